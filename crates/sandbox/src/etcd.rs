//! A client of etcd: reads its history, in order and without gaps, and compacts it.
//!
//! Besides gRPC, etcd has a JSON API, with bytes in base64 and numbers as text.

use futures::{AsyncBufReadExt, Stream, TryStreamExt};
use http::Request;
use k8s_openapi::ByteString;
use kube::{Client, Config};
use serde::{Deserialize, Deserializer, de};
use serde_json::{Value, json};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It did not answer, or with an error.
    #[error("etcd does not answer")]
    Call(#[source] kube::Error),
    /// The connection broke, or the answer can't be decoded.
    #[error("the answer of etcd is incomplete")]
    Broken(#[source] std::io::Error),
    /// The requested history was compacted.
    #[error("etcd has compacted the history before revision {0}")]
    Compacted(u64),
}

#[derive(Clone)]
pub struct Etcd {
    client: Client,
}

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub key: String,
    /// As the API server encodes it; `None` if the key was deleted.
    pub value: Option<Vec<u8>>,
    /// The revision of the write, which is the object's `resourceVersion`.
    pub revision: u64,
}

impl Etcd {
    pub(crate) fn new(port: u16) -> Result<Self, Error> {
        let url = format!("http://127.0.0.1:{port}")
            .parse()
            .map_err(|error| Error::Call(kube::Error::HttpError(http::Error::from(error))))?;
        let mut config = Config::new(url);
        // An unreachable etcd must be reported as an error.
        config.default_retry = false;
        Ok(Self { client: Client::try_from(config).map_err(Error::Call)? })
    }

    /// The latest revision.
    pub async fn revision(&self) -> Result<u64, Error> {
        let body = json!({ "key": ByteString(b"/".to_vec()), "count_only": true });
        let answer: Answer = self.client.request(post("/v3/kv/range", &body)?).await.map_err(Error::Call)?;
        Ok(answer.header.revision)
    }

    /// Compacts the history before this revision.
    pub async fn compact(&self, revision: u64) -> Result<(), Error> {
        let body = json!({ "revision": revision.to_string(), "physical": true });
        self.client.request::<Value>(post("/v3/kv/compaction", &body)?).await.map(drop).map_err(Error::Call)
    }

    /// Writes all keys and values, or none. Returns the revision. By default etcd accepts up to 128.
    pub async fn put_all(&self, pairs: &[(String, Vec<u8>)]) -> Result<u64, Error> {
        let bytes = |bytes: &[u8]| ByteString(bytes.to_vec());
        let put = |(key, value): &(String, Vec<u8>)| json!({ "request_put": { "key": bytes(key.as_bytes()), "value": bytes(value) } });
        let body = json!({ "success": pairs.iter().map(put).collect::<Vec<_>>() });
        let answer: Answer = self.client.request(post("/v3/kv/txn", &body)?).await.map_err(Error::Call)?;
        Ok(answer.header.revision)
    }

    /// All writes from this revision on to keys from `from` to before `to`, in order.
    pub async fn watch(
        &self,
        from: &str,
        to: &str,
        revision: u64,
    ) -> Result<impl Stream<Item = Result<Vec<Event>, Error>> + use<>, Error> {
        let [key, range_end] = [from, to].map(|key| ByteString(key.as_bytes().to_vec()));
        let start_revision = revision.to_string();
        let body = json!({ "create_request": { "key": key, "range_end": range_end, "start_revision": start_revision } });
        let stream = self.client.request_stream(post("/v3/watch", &body)?).await.map_err(Error::Call)?;
        Ok(Box::pin(stream).lines().map_err(Error::Broken).and_then(async |line| events(&line)))
    }
}

fn post(path: &str, body: &Value) -> Result<Request<Vec<u8>>, Error> {
    let request = Request::post(path).header(http::header::CONTENT_TYPE, "application/json");
    request.body(body.to_string().into_bytes()).map_err(|error| Error::Call(kube::Error::HttpError(error)))
}

fn events(line: &str) -> Result<Vec<Event>, Error> {
    let Line { result } = serde_json::from_str(line).map_err(|error| Error::Broken(error.into()))?;
    match (result.canceled, result.compact_revision) {
        (false, _) => {}
        (true, 0) => return Err(Error::Broken(std::io::Error::other("etcd ended the watch"))),
        (true, revision) => return Err(Error::Compacted(revision)),
    }
    let event = |RawEvent { r#type, kv }| Event {
        key: String::from_utf8_lossy(&kv.key.0).into_owned(),
        value: (r#type != "DELETE").then_some(kv.value.0),
        revision: kv.mod_revision,
    };
    Ok(result.events.into_iter().map(event).collect())
}

#[derive(Deserialize)]
struct Answer {
    header: Header,
}

#[derive(Deserialize)]
struct Header {
    #[serde(deserialize_with = "number")]
    revision: u64,
}

#[derive(Deserialize)]
struct Line {
    result: Watched,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Watched {
    events: Vec<RawEvent>,
    canceled: bool,
    #[serde(deserialize_with = "number")]
    compact_revision: u64,
}

#[derive(Deserialize)]
struct RawEvent {
    #[serde(default)]
    r#type: String,
    kv: KeyValue,
}

#[derive(Deserialize)]
struct KeyValue {
    key: ByteString,
    #[serde(default)]
    value: ByteString,
    #[serde(deserialize_with = "number")]
    mod_revision: u64,
}

fn number<'de, D: Deserializer<'de>>(text: D) -> Result<u64, D::Error> {
    String::deserialize(text)?.parse().map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_events_or_nothing_or_the_end() {
        let created = r#"{"result":{"header":{"revision":"7"},"created":true}}"#;
        assert_eq!(events(created).unwrap(), []);
        let two = r#"{"result":{"events":[{"kv":{"key":"YQ==","mod_revision":"8","value":"dg=="}},
            {"type":"DELETE","kv":{"key":"YQ==","mod_revision":"9"}}]}}"#;
        let event = |value: Option<&[u8]>, revision| Event {
            key: "a".to_owned(),
            value: value.map(<[u8]>::to_vec),
            revision,
        };
        assert_eq!(events(two).unwrap(), [event(Some(b"v"), 8), event(None, 9)]);
        let compacted = r#"{"result":{"canceled":true,"compact_revision":"5"}}"#;
        assert!(matches!(events(compacted), Err(Error::Compacted(5))));
        for broken in ["{", r#"{"result":{"canceled":true}}"#] {
            assert!(matches!(events(broken), Err(Error::Broken(_))), "{broken}");
        }
    }
}
