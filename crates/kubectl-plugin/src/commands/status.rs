//! `status`: the state of all nodes, records and shards.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use console::style;
use globset::GlobMatcher;
use jiff::Timestamp;
use label_storage_runtime::args::{duration, glob};
use label_storage_runtime::call::Error;
use label_storage_runtime::lease;
use serde::Serialize;

use crate::Ended;
use crate::cluster::Cluster;
use crate::diagnose::installation::{self, Installation};
use crate::diagnose::shards::{Expected, Holding, Leases, Shard};
use crate::diagnose::state::State;
use crate::diagnose::survey::{Names, Survey};
use crate::diagnose::{Finding, Severity};
use crate::flags::Global;
use crate::output::{Format, OF_OBJECTS, Table, age, plain, print, typed};
use crate::server_time::ServerTime;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 healthy, 1 error, 3 problems found. Use this command in scripts; `check` examines the installation.
If a problem may be work in progress, the command waits for --patience and looks again. The problem counts if it has not changed.

Examples:
  kubectl label-storage status
  kubectl label-storage status -o jsonpath='{.states.pending.count}'")]
pub struct Args {
    /// The output format
    #[arg(long, short, value_name = "FORMAT", default_value = "table", value_parser = OF_OBJECTS)]
    output: Format,

    /// Time to wait for work in progress before a problem is reported
    #[arg(long, value_name = "TIME", default_value = "6s", value_parser = duration)]
    patience: Duration,

    /// Age from which a node must be restored and have a record
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration)]
    overdue: Duration,

    /// Include only nodes whose name matches, such as 'pool-a-*', and daemons with the same --nodes
    #[arg(long, env = "LABEL_STORAGE_NODES", value_name = "GLOB", value_parser = glob)]
    nodes: Option<GlobMatcher>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    healthy: bool,
    findings: Vec<Finding>,
    namespace: String,
    at: Timestamp,
    /// `null` if nodes, records or rules can't be read.
    nodes: Option<usize>,
    records: Option<usize>,
    states: Option<BTreeMap<State, Names>>,
    /// Stored items that were not restored to existing nodes, by reason.
    withheld: Option<BTreeMap<&'static str, u32>>,
    shards: Option<Vec<Shard>>,
}

pub(crate) async fn run(global: &Global, args: Args) -> Result<Ended> {
    let cluster = Cluster::connect_without_rules(global).await?;
    let time = ServerTime::ask(&cluster.client).await?;
    let (only, installation) = (args.nodes.as_ref(), Installation::read(&cluster).await);
    let scope = only.map(lease::scope);
    let expected = if only.is_some() { Expected::default() } else { installation.expected() };
    let shards =
        Leases::settle(&cluster, &time, args.patience, |leases| leases.shards(scope.as_deref(), &expected));
    let (survey, shards) = tokio::join!(survey(&cluster, &args, time.now()), shards);
    let mut findings = Vec::from_iter(installation::rules(&cluster));
    let survey = readable(survey, &mut findings)?.flatten();
    let shards = readable(shards, &mut findings)?;
    if survey.is_none() && shards.is_none() {
        let missing: Vec<_> = findings.iter().map(|finding| finding.message.as_str()).collect();
        bail!("nothing can be read: {}", missing.join("; "));
    }
    findings.extend(survey.iter().flat_map(|survey| survey.findings(&cluster.hints)));
    let waits = !cluster.rules.depend_on_name_alone();
    findings.extend(survey.as_ref().zip(shards.as_ref()).filter(|_| waits).and_then(|(survey, shards)| {
        survey.awaiting_final_labels(&cluster.hints, |key| shards.iter().any(|it| it.keeps_final_labels(key)))
    }));
    let problems = shards.iter().flatten().filter(|shard| shard.is_problem());
    findings.extend(problems.filter_map(|shard| shard.finding(&cluster.hints, time.now())));
    let stopped = installation.findings(&cluster).into_iter();
    findings.extend(stopped.filter(|finding| finding.reason == "stopped" && only.is_none()));
    let report = Report {
        healthy: !findings.iter().any(|finding| finding.severity <= Severity::Unknown),
        findings,
        at: time.now(),
        nodes: survey.as_ref().map(Survey::node_count),
        records: survey.as_ref().map(|survey| survey.records),
        withheld: survey.as_ref().map(|survey| survey.withheld.clone()),
        states: survey.map(|survey| survey.states),
        shards,
        namespace: cluster.namespace,
    };
    if !args.output.print(&typed("Status", &report))? {
        print(&text(&report))?;
    }
    Ok(if report.healthy { Ended::Well } else { Ended::Unwell })
}

/// `None` without the rules: they define which record belongs to which node.
async fn survey(cluster: &Cluster, args: &Args, now: Timestamp) -> Result<Option<Survey>, Error> {
    let Args { nodes, overdue, patience, .. } = args;
    if cluster.rules_unknown.is_some() {
        return Ok(None);
    }
    let take = || Survey::take(cluster, nodes.as_ref(), now, Some(*overdue));
    let mut survey = take().await?;
    if survey.is_unsure() && !patience.is_zero() {
        eprintln!("some problems may be work in progress: looking again in {patience:?}");
        tokio::time::sleep(*patience).await;
        let earlier = std::mem::replace(&mut survey, take().await?);
        survey.confirm(&earlier);
    }
    Ok(Some(survey))
}

/// `None` and a finding if a permission is missing.
fn readable<T>(answer: Result<T, Error>, findings: &mut Vec<Finding>) -> Result<Option<T>, Error> {
    match answer {
        Err(error) if error.code == Some(403) => {
            findings.push(Finding::new(Severity::Unknown, "permission-missing", error.to_string()));
            Ok(None)
        }
        answer => answer.map(Some),
    }
}

fn text(report: &Report) -> String {
    let verdict = match report.healthy {
        true => style("Healthy").green().bold(),
        false => style("Not healthy").red().bold(),
    };
    let mut text = format!("{verdict}\n");
    for finding in &report.findings {
        let message = plain(&finding.message);
        text += &format!("- {}\n", if finding.is_problem() { style(message).red() } else { style(message) });
        text += &finding.fix.as_ref().map(|fix| format!("  {}\n", plain(fix))).unwrap_or_default();
    }
    let mut table = Table::new(&["", "COUNT", ""]);
    let count = |count: Option<usize>| count.map_or("?".to_owned(), |count| count.to_string());
    table.row(["nodes".to_owned(), count(report.nodes), String::new()]);
    for (state, names) in report.states.iter().flatten() {
        let is_usual = matches!(state, State::UpToDate | State::NoLabels | State::Departed);
        let few = if is_usual { String::new() } else { plain(&names.few()) };
        table.row([format!("  {state}"), names.count.to_string(), few]);
    }
    table.row(["records".to_owned(), count(report.records), String::new()]);
    text += &format!("\n{}", table.to_text());
    if let Some(shards) = &report.shards {
        text += &format!("\n{}", holders(shards, report.at).to_text());
    }
    text
}

fn holders(shards: &[Shard], now: Timestamp) -> Table {
    let scope = if shards.iter().any(|shard| !shard.scope.is_empty()) { "SCOPE" } else { "" };
    let mut table = Table::new(&["DAEMON", "SHARD", "HOLDER", "RENEWED", "STATE", scope]);
    let or_none = |text: Option<String>| text.unwrap_or("-".to_owned());
    for shard in shards {
        let state = style(shard.state);
        let state = match shard.state {
            Holding::Home => state.green(),
            Holding::Adopted | Holding::Retired => state.yellow(),
            _ => state.red(),
        };
        table.row([
            plain(&shard.daemon),
            or_none(shard.replicas.map(|replicas| format!("{}/{replicas}", shard.index))),
            or_none(shard.holder.as_deref().map(plain)),
            or_none(shard.renewed_at.map(|at| age(now.duration_since(at)))),
            state.to_string(),
            plain(&shard.scope),
        ]);
    }
    table
}
