//! `check`: is the installation sound?
//!
//! Each part looks at one thing, and says what is not as it should be and which command mends it. What may not be looked at is a finding
//! of its own: nobody is told that all is well because nobody could look.
//!
//! - [`sets`]: the StatefulSets: versions, flags, and how many pods are ready.
//! - [`rights`]: what the person may do, and what the daemons' accounts may.
//! - [`admission`]: the policies, there and in force.
//! - [`leases`]: every shard held and renewed.
//! - [`rules`]: the ConfigMap of rules; [`records`]: what is in the way of records, or can't be read; [`nodes`]: what Nodes say of themselves.

mod admission;
mod leases;
mod nodes;
mod records;
mod rights;
mod rules;
pub(crate) mod sets;

use std::sync::Arc;

use anyhow::{Context, Result};
use console::style;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use label_storage::Rules;
use label_storage_runtime::call::in_one_line;
use serde::Serialize;

use crate::Ended;
use crate::advice::Advice;
use crate::cli::{Format, Global};
use crate::cluster::{self, Cluster};
use crate::output::{Table, for_machines, plain};
use crate::server_time::ServerTime;

/// How to say it
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How to print
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
enum Severity {
    /// Something does not work.
    Error,
    /// It works, but not as it should, or not for long.
    Warning,
    /// Nobody could look.
    Unknown,
    /// Worth knowing, and nothing wrong.
    Note,
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    severity: Severity,
    message: String,
    /// The command that mends it, or shows more.
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<String>,
}

impl Finding {
    fn new(severity: Severity, message: impl Into<String>) -> Self {
        Self { severity, message: message.into(), mend: None }
    }

    fn error(message: impl Into<String>) -> Self {
        Self::new(Severity::Error, message)
    }

    fn warning(message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, message)
    }

    fn note(message: impl Into<String>) -> Self {
        Self::new(Severity::Note, message)
    }

    /// What could not be looked at, and why.
    fn unknown(what: &str, why: impl AsRef<str>) -> Self {
        Self::new(Severity::Unknown, format!("can't tell {what}: {}", why.as_ref()))
    }

    fn mend(self, command: impl Into<String>) -> Self {
        Self { mend: Some(command.into()), ..self }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Checked {
    name: &'static str,
    /// What was looked at, where nothing was found.
    summary: String,
    findings: Vec<Finding>,
}

impl Checked {
    fn new(name: &'static str, summary: impl Into<String>, findings: Vec<Finding>) -> Self {
        Self { name, summary: summary.into(), findings }
    }
}

/// All of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    /// Whether nothing was found that has to be mended.
    sound: bool,
    namespace: String,
    checks: Vec<Checked>,
}

/// What all parts need.
struct Look {
    client: Client,
    namespace: String,
    /// What the cluster-wide objects of this installation are called, or begin with: as in the chart.
    name: String,
}

impl Look {
    fn new(client: Client, namespace: &str) -> Self {
        let name = match namespace.contains("label-storage") {
            true => namespace.to_owned(),
            false => format!("label-storage-{namespace}"),
        };
        Self { client, namespace: namespace.to_owned(), name }
    }

    /// How to install what is missing, over what is there.
    fn install(&self, sets: &sets::Sets) -> String {
        match (sets.release(), self.namespace.as_str()) {
            (None, "label-storage") => "kubectl apply -f deploy/label-storage.yaml".to_owned(),
            (release, namespace) => {
                let release = release.unwrap_or("label-storage");
                format!(
                    "helm upgrade --install {release} deploy/chart --namespace {namespace} --reuse-values"
                )
            }
        }
    }
}

/// Why something could not be read, in a few words. A right that is missing is named by the server itself.
fn why(error: &kube::Error) -> String {
    in_one_line(error)
}

pub(crate) async fn run(global: &Global, args: &Args) -> Result<Ended> {
    let clients = cluster::clients(global).await?;
    let look = Look::new(clients.0.clone(), &global.namespace);
    // Where nobody answers there is nothing to be checked.
    let times = ServerTime::ask(&look.client).await.context("the API server can't be asked")?;
    let mut checks = match missing_namespace(&look).await {
        Some(finding) => vec![Checked::new("namespace", String::new(), vec![finding])],
        None => all(&look, clients, global, &times).await,
    };
    let advice = Advice::new(global);
    for finding in checks.iter_mut().flat_map(|checked| &mut checked.findings) {
        finding.mend = finding.mend.as_deref().map(|command| advice.there(command));
    }
    let is_bad = |finding: &Finding| finding.severity <= Severity::Warning;
    let sound = !checks.iter().flat_map(|checked| &checked.findings).any(is_bad);
    let report = Report { sound, namespace: look.namespace, checks };
    if !for_machines(args.output, &report)? {
        for_people(&report)?;
    }
    Ok(if sound { Ended::Well } else { Ended::Unwell })
}

/// Without a namespace there is nothing in it either.
async fn missing_namespace(look: &Look) -> Option<Finding> {
    let namespaces: Api<Namespace> = Api::all(look.client.clone());
    // Who may not read it finds out more from all else.
    let is_missing = matches!(namespaces.get_opt(&look.namespace).await, Ok(None));
    is_missing.then(|| {
        Finding::error(format!(
            "there is no namespace {}: is it another, or is nothing installed?",
            look.namespace
        ))
        .mend("kubectl get statefulsets --all-namespaces --selector app.kubernetes.io/part-of=label-storage")
    })
}

async fn all(look: &Look, clients: (Client, Client), global: &Global, times: &ServerTime) -> Vec<Checked> {
    let ((sets, installed), (rules, ruled)) = tokio::join!(sets::check(look), rules::check(look, global));
    let cluster = Cluster::new(clients, &look.namespace, Arc::new(rules.unwrap_or_default()));
    let (rights, (has_policy, admitted), leased, recorded, seen) = tokio::join!(
        rights::of_daemons(look, &sets),
        admission::check(look, &sets),
        leases::check(look, &sets, times),
        records::check(look, &cluster),
        nodes::check(&cluster),
    );
    let person = rights::of_person(look, has_policy).await;
    vec![installed, rights, admitted, ruled, leased, recorded, seen, person]
}

fn for_people(report: &Report) -> Result<()> {
    let mut table = Table::new(["STATUS", "CHECK", "FOUND"]);
    let mut counts = [0_usize; 4];
    for checked in &report.checks {
        if checked.findings.is_empty() {
            let name = checked.name.to_owned();
            table.row([style("ok").green().to_string(), name, checked.summary.clone()]);
        }
        for finding in &checked.findings {
            counts[finding.severity as usize] += 1;
            let status = match finding.severity {
                Severity::Error => style("error").red().bold(),
                Severity::Warning => style("warning").yellow(),
                Severity::Unknown => style("unknown").cyan(),
                Severity::Note => style("note").dim(),
            };
            table.row([status.to_string(), checked.name.to_owned(), plain(&finding.message)]);
            if let Some(command) = &finding.mend {
                table.row([String::new(), String::new(), format!("  {}", style(plain(command)).bold())]);
            }
        }
    }
    table.print()?;
    let [errors, warnings, unknown, _] = counts;
    let open = if unknown > 0 { format!(", and {unknown} that nobody could tell") } else { String::new() };
    match errors + warnings {
        0 if unknown > 0 => eprintln!("sound, as far as could be told{open}"),
        0 => eprintln!("sound"),
        _ => eprintln!("not sound: errors: {errors}, warnings: {warnings}{open}"),
    }
    Ok(())
}

/// The rules by which all else is judged; where they can't be used, the usual ones.
type Judged = Option<Rules>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_looked_at_is_not_worse_than_what_was() {
        assert!(Severity::Error < Severity::Warning);
        assert!(Severity::Warning < Severity::Unknown);
        let finding = Finding::unknown("who holds what", "forbidden");
        assert_eq!(finding.message, "can't tell who holds what: forbidden");
    }
}
