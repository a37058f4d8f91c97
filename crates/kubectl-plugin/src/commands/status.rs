//! `status`: the state of all nodes, records and shards.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use console::style;
use globset::GlobMatcher;
use jiff::{SignedDuration, Timestamp};
use label_storage_runtime::args::{duration, glob, interval};
use label_storage_runtime::call::Error;
use label_storage_runtime::lease;
use serde::Serialize;

use crate::Ended;
use crate::cluster::Cluster;
use crate::diagnose::installation::{self, Installation};
use crate::diagnose::shards::{Expected, Holding, Leases, Shard};
use crate::diagnose::state::State;
use crate::diagnose::survey::{Limits, Memory, Names, Survey};
use crate::diagnose::{Finding, Severity};
use crate::flags::Global;
use crate::output::{Format, OF_OBJECTS, Table, age, plain, typed};
use crate::server_time::ServerTime;

/// The pause between two looks is at least this many times the duration of a look.
const REST: u32 = 3;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code: 0 if all is well, 1 for an error, 3 if there are problems. Use this command in scripts; `check` looks at how it is installed.
A problem that may be work in progress is looked at twice, and counts if it has not changed.

Examples:
  kubectl label-storage status
  kubectl label-storage status --watch
  kubectl label-storage status -o jsonpath='{.states.pending.count}'")]
pub struct Args {
    /// The output format
    #[arg(long, short, value_name = "FORMAT", default_value = "table", value_parser = OF_OBJECTS)]
    output: Format,

    /// Look again and again, until Ctrl-C
    #[arg(long, short)]
    watch: bool,

    /// The time between two looks with --watch, from 100ms to 1h; never less than three times the duration of a look
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    interval: Duration,

    /// A state that has not changed for this long is not work in progress
    #[arg(long, value_name = "TIME", default_value = "6s", value_parser = duration)]
    patience: Duration,

    /// A node that is older than this should have its labels, and a record
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration)]
    overdue: Duration,

    /// Only nodes with a name that matches, such as 'pool-a-*', and the daemons with the same --nodes
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
    states: Option<BTreeMap<&'static str, Group>>,
    latest: Option<Latest>,
    shards: Option<Vec<Shard>>,
    #[serde(skip)]
    is_unsure: bool,
}

/// The nodes in one state.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    #[serde(flatten)]
    names: Names,
    /// The oldest node.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest: Option<Latest>,
}

/// A node and a time.
#[derive(Debug, Serialize)]
struct Latest {
    node: String,
    at: Timestamp,
}

/// Takes looks, and remembers what it needs from one to the next.
struct Observer<'a> {
    cluster: Cluster,
    args: &'a Args,
    time: ServerTime,
    memory: Memory,
    leases: Leases,
}

impl Observer<'_> {
    async fn look(&mut self) -> Result<Report> {
        let now = self.time.now();
        let only = self.args.nodes.as_ref();
        let Self { cluster, leases, .. } = self;
        let (survey, installation, leases) =
            tokio::join!(survey(cluster, only, now), Installation::read(cluster), leases.look(cluster, now));
        let mut findings = installation::rules(&self.cluster);
        let survey = readable(survey, &mut findings)?.flatten();
        let leases = readable(leases, &mut findings)?;
        if survey.is_none() && leases.is_none() {
            let missing: Vec<_> = findings.iter().map(|finding| finding.message.as_str()).collect();
            bail!("nothing can be read: {}", missing.join("; "));
        }
        let limits = Limits { now, patience: self.args.patience, overdue: self.args.overdue };
        let mut is_unsure = false;
        if let Some(survey) = &survey {
            let (problems, unsure) = survey.findings(&limits, &mut self.memory, &self.cluster.hints);
            findings.extend(problems);
            is_unsure |= unsure;
        }
        let expected = if only.is_some() { Expected::default() } else { installation.expected() };
        let shards = leases.map(|()| self.leases.shards(only.map(lease::scope).as_deref(), &expected));
        for shard in shards.iter().flatten() {
            let name = format!("{} {} {:?} {}", shard.daemon, shard.index, shard.replicas, shard.scope);
            let is_settled = self.memory.has_seen(&name, shard.state, limits.patience);
            let finding = shard.finding(&self.cluster.hints, now);
            is_unsure |= shard.is_problem() && !is_settled;
            findings.extend(finding.filter(|_| shard.is_problem() && is_settled));
        }
        let stopped = installation.findings(&self.cluster).into_iter();
        findings.extend(stopped.filter(|finding| finding.reason == "stopped" && only.is_none()));
        let pair = |(at, node): (Timestamp, &str)| Latest { node: node.to_owned(), at };
        Ok(Report {
            healthy: !findings.iter().any(|finding| finding.severity <= Severity::Unknown),
            findings,
            namespace: self.cluster.namespace.clone(),
            at: now,
            nodes: survey.as_ref().map(Survey::node_count),
            records: survey.as_ref().map(|survey| survey.records),
            latest: survey.as_ref().and_then(|survey| {
                Some(pair(survey.latest.as_ref().map(|(at, node)| (*at, node.as_str()))?))
            }),
            states: survey.map(|mut survey| {
                let states = std::mem::take(&mut survey.states).into_iter();
                let group = |(state, names): (State, Names)| {
                    (state.as_str(), Group { names, oldest: survey.oldest(state).map(pair) })
                };
                states.map(group).collect()
            }),
            shards,
            is_unsure,
        })
    }
}

/// `None` without the rules: they tell how nodes and records belong together.
async fn survey(
    cluster: &Cluster,
    only: Option<&GlobMatcher>,
    now: Timestamp,
) -> Result<Option<Survey>, Error> {
    match cluster.rules_unknown {
        None => Survey::take(cluster, only, now).await.map(Some),
        Some(_) => Ok(None),
    }
}

/// `None` and a finding if a permission is missing.
fn readable<T>(answer: Result<T, Error>, findings: &mut Vec<Finding>) -> Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.code == Some(403) => {
            findings.push(Finding::new(Severity::Unknown, "permission-missing", error.to_string()));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn run(global: &Global, args: Args) -> Result<Ended> {
    let cluster = Cluster::connect_without_rules(global).await?;
    let time = ServerTime::ask(&cluster.client).await?;
    let mut observer =
        Observer { cluster, args: &args, time, memory: Memory::default(), leases: Leases::default() };
    if args.watch {
        return watch(&mut observer, global).await;
    }
    let mut report = observer.look().await?;
    if report.is_unsure {
        eprintln!("some of it may be work in progress: looking again in {:?}", args.patience);
        tokio::time::sleep(args.patience).await;
        report = observer.look().await?;
    }
    io::stdout().lock().write_all(&printed(&report, &args.output)?)?;
    Ok(if report.healthy { Ended::Well } else { Ended::Unwell })
}

async fn watch(observer: &mut Observer<'_>, global: &Global) -> Result<Ended> {
    let mut is_first = true;
    let looks = async {
        loop {
            let began = Instant::now();
            match observer.look().await {
                Ok(report) => {
                    show(&printed(&report, &observer.args.output)?, &observer.args.output, is_first)?
                }
                Err(error) if is_first => return Err(error),
                Err(error) => eprintln!("error: {error:#}"),
            }
            is_first = false;
            tokio::time::sleep(observer.args.interval.max(began.elapsed() * REST)).await;
            if let Err(error) = observer.cluster.read_rules(global).await {
                eprintln!("error: {error:#}");
            }
        }
    };
    tokio::select! {
        ended = looks => ended,
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted.map(|()| Ended::Well)?),
    }
}

/// In place of the report before on a terminal, after it elsewhere. Written at once, so that it does not flicker.
fn show(report: &[u8], format: &Format, is_first: bool) -> io::Result<()> {
    let before: &[u8] = match format {
        Format::Table if io::stdout().is_terminal() => b"\x1b[H\x1b[2J",
        Format::Yaml if !is_first => b"---\n",
        Format::Table if !is_first => b"\n",
        _ => b"",
    };
    let mut out = io::stdout().lock();
    out.write_all(&[before, report].concat())?;
    out.flush()
}

fn printed(report: &Report, format: &Format) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    if !format.write(&typed("Status", report), &mut out)? {
        out.extend(text(report).into_bytes());
    }
    Ok(out)
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
    let since = |at: Timestamp| age(report.at.duration_since(at));
    let mut table = Table::new(&["", "COUNT", ""]);
    let count = |count: Option<usize>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
    table.row(["nodes".to_owned(), count(report.nodes), String::new()]);
    for (state, Group { names, oldest }) in report.states.iter().flatten() {
        let detail = match (*state, oldest) {
            ("up-to-date" | "no-labels" | "departed", _) => String::new(),
            (_, Some(oldest)) => format!("{} (the oldest for {})", oldest.node, since(oldest.at)),
            (_, None) => names.few(),
        };
        table.row([format!("  {state}"), names.count.to_string(), plain(&detail)]);
    }
    let latest = report
        .latest
        .as_ref()
        .map(|latest| format!("latest change stored {} ago, of {}", since(latest.at), latest.node));
    table.row(["records".to_owned(), count(report.records), plain(&latest.unwrap_or_default())]);
    text += &format!("\n{}", table.to_text());
    if let Some(shards) = &report.shards {
        text += &format!("\n{}", holders(shards, report.at).to_text());
    }
    text
}

fn holders(shards: &[Shard], now: Timestamp) -> Table {
    let has_scopes = shards.iter().any(|shard| !shard.scope.is_empty());
    let mut table =
        Table::new(&["DAEMON", "SHARD", "HOLDER", "RENEWED", "STATE", if has_scopes { "SCOPE" } else { "" }]);
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for shard in shards {
        let state = match shard.state {
            Holding::Home => style(shard.state.as_str()).green(),
            Holding::Adopted | Holding::Retired => style(shard.state.as_str()).yellow(),
            _ => style(shard.state.as_str()).red(),
        };
        let ago = |at: Timestamp| age(now.duration_since(at).max(SignedDuration::ZERO));
        table.row([
            plain(&shard.daemon),
            or_none(shard.replicas.map(|replicas| format!("{}/{replicas}", shard.index))),
            or_none(shard.holder.as_deref().map(plain)),
            or_none(shard.renewed_at.map(ago)),
            state.to_string(),
            plain(&shard.scope),
        ]);
    }
    table
}
