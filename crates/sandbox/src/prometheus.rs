//! A real Prometheus that scrapes the given targets every second, and ends with its owner.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use http::Request;
use http::header::CONTENT_TYPE;
use kube::client::Body;
use kube::{Client, Config};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::assets::{self, Binary};
use crate::process::{self, Exit, Guarded};

/// The time limit until it listens.
const START_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program is missing.
    #[error(transparent)]
    Assets(#[from] assets::Error),
    /// Its folder can't be used.
    #[error("can't write Prometheus's configuration")]
    Folder(#[source] io::Error),
    /// It can't be started.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// It ended unexpectedly.
    #[error("Prometheus ended unexpectedly ({exit}); the last lines of its log:\n{tail}")]
    Ended { exit: Exit, tail: String },
    /// It does not listen.
    #[error("Prometheus did not listen within {} s; the last lines of its log:\n{tail}", START_LIMIT.as_secs())]
    Silent { tail: String },
    /// It did not answer, or with an error.
    #[error("Prometheus does not answer")]
    Call(#[source] kube::Error),
    /// It refuses a query.
    #[error("Prometheus refuses {what}: {why}")]
    Refused { what: String, why: String },
}

/// A running Prometheus.
pub struct Prometheus {
    client: Client,
    address: SocketAddr,
    process: Guarded,
    _folder: TempDir,
}

/// A target: its address, and the labels for each of its samples.
#[derive(Debug, Clone)]
pub struct Target {
    /// The address that serves `/metrics`.
    pub address: SocketAddr,
    /// Such as the name of the pod, which Prometheus discovers in a cluster.
    pub labels: BTreeMap<String, String>,
}

/// One series of an answer. The answer to an instant query has one point.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its labels, with its name.
    pub labels: BTreeMap<String, String>,
    /// Times in seconds since 1970, and values.
    pub points: Vec<(f64, f64)>,
}

/// A recording or alerting rule.
#[derive(Debug, Clone, Deserialize)]
pub struct Rule {
    /// The name of the recorded series, or of the alert.
    pub name: String,
    pub query: String,
    /// `ok`, `err`, or `unknown` before it was first evaluated.
    pub health: String,
    /// The error, if it can't be evaluated.
    #[serde(default, rename = "lastError")]
    pub last_error: String,
}

impl Prometheus {
    /// Starts a Prometheus that scrapes these targets, and evaluates the rules of this file, each second. Must be called on a tokio runtime.
    pub fn start(targets: &[Target], rules: Option<&Path>) -> Result<Self, Error> {
        let program = assets::find(Binary::Prometheus)?;
        let folder = TempDir::new().map_err(Error::Folder)?;
        let configuration = folder.path().join("prometheus.yml");
        // JSON is YAML.
        std::fs::write(&configuration, configure(targets, rules).to_string()).map_err(Error::Folder)?;

        let mut command = Command::new(program);
        command.arg(format!("--config.file={}", configuration.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
        // Any free port: the log has it.
        command.arg("--web.listen-address=127.0.0.1:0");
        let process = Guarded::spawn("prometheus", &command, &folder.path().join("prometheus.log"))?;
        let address = listening(&process)?;
        let url = format!("http://{address}")
            .parse()
            .map_err(|error| Error::Call(kube::Error::HttpError(http::Error::from(error))))?;
        let mut config = Config::new(url);
        config.default_retry = false;
        let client = Client::try_from(config).map_err(Error::Call)?;
        Ok(Self { client, address, process, _folder: folder })
    }

    /// The address of its API.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn process(&self) -> &Guarded {
        &self.process
    }

    /// The value of an expression now.
    pub async fn query(&self, expression: &str) -> Result<Vec<Series>, Error> {
        let answer = self.ask("/api/v1/query", &[("query", expression)]).await?;
        series(&answer, "value").ok_or_else(|| nonsense(expression, &answer))
    }

    /// The values of an expression in a range of time, in steps, all in seconds.
    pub async fn query_range(
        &self,
        expression: &str,
        from: f64,
        to: f64,
        step: f64,
    ) -> Result<Vec<Series>, Error> {
        let [from, to, step] = [from, to, step].map(|seconds| format!("{seconds:.3}"));
        let form = [("query", expression), ("start", &from), ("end", &to), ("step", &step)];
        let answer = self.ask("/api/v1/query_range", &form).await?;
        series(&answer, "values").ok_or_else(|| nonsense(expression, &answer))
    }

    /// The selectors of an expression, without ranges and offsets.
    pub async fn selectors(&self, expression: &str) -> Result<Vec<String>, Error> {
        let tree = self.ask("/api/v1/parse_query", &[("query", expression)]).await?;
        let mut found = Vec::new();
        find_selectors(&tree, &mut found);
        Ok(found)
    }

    /// The rules, with their state.
    pub async fn rules(&self) -> Result<Vec<Rule>, Error> {
        #[derive(Deserialize)]
        struct Groups {
            groups: Vec<Group>,
        }
        #[derive(Deserialize)]
        struct Group {
            rules: Vec<Rule>,
        }
        let answer = self.ask("/api/v1/rules", &[]).await?;
        let groups: Groups = serde_json::from_value(answer).map_err(|error| Error::Refused {
            what: "a list of its rules".to_owned(),
            why: error.to_string(),
        })?;
        Ok(groups.groups.into_iter().flat_map(|group| group.rules).collect())
    }

    async fn ask(&self, path: &str, form: &[(&str, &str)]) -> Result<Value, Error> {
        let request = if form.is_empty() { Request::get(path) } else { Request::post(path) };
        let body: Vec<String> =
            form.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let request = request
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Body::from(body.join("&").into_bytes()))
            .map_err(|error| Error::Call(kube::Error::HttpError(error)))?;
        let response = self.client.send(request).await.map_err(Error::Call)?;
        let bytes = response.into_body().collect_bytes().await.map_err(Error::Call)?;
        let mut answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if answer["status"] == "success" {
            return Ok(answer["data"].take());
        }
        let what = form.first().map_or(path, |(_, value)| value).to_owned();
        let why = answer["error"]
            .as_str()
            .map_or_else(|| String::from_utf8_lossy(&bytes).into_owned(), str::to_owned);
        Err(Error::Refused { what, why })
    }
}

fn configure(targets: &[Target], rules: Option<&Path>) -> Value {
    let targets: Vec<Value> = targets
        .iter()
        .map(|Target { address, labels }| json!({"targets": [address.to_string()], "labels": labels}))
        .collect();
    json!({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": rules.into_iter().collect::<Vec<_>>(),
        "scrape_configs": [{"job_name": "label-storage", "static_configs": targets}],
    })
}

/// Waits until its log has the address.
fn listening(process: &Guarded) -> Result<SocketAddr, Error> {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        let log = std::fs::read_to_string(process.log()).unwrap_or_default();
        if let Some(address) = log.lines().find_map(address_in) {
            return Ok(address);
        }
        if let Some(exit) = process.try_wait() {
            return Err(Error::Ended { exit, tail: process.log_tail(5) });
        }
        if Instant::now() > deadline {
            return Err(Error::Silent { tail: process.log_tail(5) });
        }
        thread::sleep(POLL);
    }
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("msg=\"Listening on\"")?;
    let (_, address) = rest.split_once("address=")?;
    address.split_whitespace().next()?.parse().ok()
}

/// The series of an answer: `value` of an instant query, `values` of a range query. A scalar is a series without labels.
fn series(answer: &Value, key: &str) -> Option<Vec<Series>> {
    let point = |pair: &Value| {
        let value = pair.get(1)?.as_str()?;
        // Rust reads `+Inf`, `-Inf` and `NaN` as Prometheus writes them.
        Some((pair.get(0)?.as_f64()?, value.parse().ok()?))
    };
    if answer["resultType"] == "scalar" {
        return Some(vec![Series { labels: BTreeMap::new(), points: vec![point(&answer["result"])?] }]);
    }
    let one = |result: &Value| {
        let labels = serde_json::from_value(result["metric"].clone()).ok()?;
        let points = match &result[key] {
            values if key == "value" => vec![point(values)?],
            values => values.as_array()?.iter().map(point).collect::<Option<_>>()?,
        };
        Some(Series { labels, points })
    };
    answer["result"].as_array()?.iter().map(one).collect()
}

/// A selector is a node of the tree with matchers.
fn find_selectors(tree: &Value, found: &mut Vec<String>) {
    match tree {
        Value::Object(fields) => {
            if let Some(Value::Array(matchers)) = fields.get("matchers") {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let matchers = matchers.iter().map(|matcher| {
                    format!("{}{}{}", text(&matcher["name"]), text(&matcher["type"]), matcher["value"])
                });
                found.push(format!("{{{}}}", matchers.collect::<Vec<_>>().join(",")));
            }
            fields.values().for_each(|value| find_selectors(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| find_selectors(value, found)),
        _ => {}
    }
}

fn nonsense(expression: &str, answer: &Value) -> Error {
    Error::Refused { what: expression.to_owned(), why: format!("the answer can't be decoded: {answer}") }
}

/// Percent-encodes a value of a form.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_address_is_in_its_log() {
        let line = r#"time=2026-11-16T15:00:00.000Z level=INFO source=tls_config.go:354 msg="Listening on" component=web address=127.0.0.1:41873"#;
        assert_eq!(address_in(line), Some(SocketAddr::from(([127, 0, 0, 1], 41873))));
        assert_eq!(
            address_in(r#"level=INFO msg="Start listening for connections" address=[127.0.0.1:0]"#),
            None
        );
    }

    #[test]
    fn an_answer_is_series() {
        let labels = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        let one = json!({"resultType": "vector", "result": [{"metric": {"a": "b"}, "value": [1.5, "+Inf"]}]});
        let expected = Series { labels: labels.clone(), points: vec![(1.5, f64::INFINITY)] };
        assert_eq!(series(&one, "value"), Some(vec![expected]));
        let many = json!({"resultType": "matrix", "result": [{"metric": {"a": "b"}, "values": [[1, "2"], [2, "3"]]}]});
        assert_eq!(
            series(&many, "values"),
            Some(vec![Series { labels, points: vec![(1.0, 2.0), (2.0, 3.0)] }])
        );
        let scalar = json!({"resultType": "scalar", "result": [1, "7"]});
        assert_eq!(series(&scalar, "value").map(|all| all[0].points.clone()), Some(vec![(1.0, 7.0)]));
        assert_eq!(series(&json!({"resultType": "vector"}), "value"), None);
    }

    #[test]
    fn selectors_are_found_wherever_they_are() {
        let tree = json!({"lhs": {"args": [{"matchers": [
            {"name": "code", "type": "=~", "value": "5.."}, {"name": "__name__", "type": "=", "value": "a"},
        ]}]}, "rhs": {"matchers": []}});
        let mut found = Vec::new();
        find_selectors(&tree, &mut found);
        assert_eq!(found, [r#"{code=~"5..",__name__="a"}"#, "{}"]);
    }

    #[test]
    fn forms_are_escaped() {
        assert_eq!(escaped(r#"sum(a{b="ä c"}[5m])"#), "sum%28a%7Bb%3D%22%C3%A4%20c%22%7D%5B5m%5D%29");
    }
}
