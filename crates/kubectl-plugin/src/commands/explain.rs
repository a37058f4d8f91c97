//! `explain`: the state of one node, and the next steps of the daemons by their own decision functions.

mod restorer;
mod rules;
mod storer;

use std::time::Duration;

use anyhow::Result;
use console::style;
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use kube::Api;
use label_storage::store::{Circumstances, Sighting, TOMBSTONE_LIFETIME};
use label_storage::{Labels, plan_restore, plan_store, shard};
use label_storage_runtime::{call, records};
use serde::Serialize;

use crate::Ended;
use crate::changes::{Difference, differences, painted};
use crate::cluster::Cluster;
use crate::diagnose::installation::Installation;
use crate::diagnose::shards::{Holding, Leases, Shard};
use crate::diagnose::state::State;
use crate::find::Found;
use crate::hints::quoted;
use crate::output::{Format, OF_OBJECTS, age, plain, print, typed};
use crate::select::state;
use crate::server_time::ServerTime;

/// Holders renew their leases every two seconds.
const PATIENCE: Duration = Duration::from_secs(6);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Below the next step of a daemon, - is an item that it removes, and + one that it adds.

Example:
  kubectl label-storage explain my-node")]
pub struct Args {
    /// The name of a node, which may be absent
    #[arg(value_name = "NODE")]
    node: String,

    /// The output format
    #[arg(long, short, value_name = "FORMAT", default_value = "table", value_parser = OF_OBJECTS)]
    output: Format,
}

/// Scripts rely on the names, so these stay.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation {
    node: String,
    state: State,
    facts: Vec<String>,
    /// The stored items.
    stored: Labels,
    /// From the record to the node, as far as the rules keep it.
    differences: Vec<Difference>,
    storer: Step,
    restorer: Step,
    rules: Vec<String>,
    shards: Vec<String>,
    next: Vec<Hint>,
}

/// The next step of a daemon.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Step {
    /// The word for it in logs and metrics.
    reason: &'static str,
    does: String,
    because: &'static str,
    /// The place in docs/protocol.md.
    #[serde(rename = "where")]
    place: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<String>,
}

/// A command that would change the outcome.
#[derive(Debug, Serialize)]
struct Hint {
    to: String,
    run: String,
}

fn hint(to: impl Into<String>, run: impl Into<String>) -> Hint {
    Hint { to: to.into(), run: run.into() }
}

/// The node, its record and its surroundings.
struct Case<'a> {
    cluster: &'a Cluster,
    found: &'a Found,
    now: Timestamp,
    created_at: Option<Timestamp>,
    /// Other nodes with the same identity.
    rivals: &'a [String],
}

impl Case<'_> {
    fn record_name(&self) -> String {
        label_storage::name::record_name(&self.found.filed_under)
    }

    /// The argument for a command: several records may be of nodes of one name.
    fn argument(&self) -> String {
        let Found { name, filed_under, .. } = self.found;
        if self.found.node.is_some() || name == filed_under { quoted(name) } else { quoted(filed_under) }
    }

    fn ago(&self, at: Timestamp) -> String {
        format!("{} ago", age(self.now.duration_since(at)))
    }
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let found = cluster.find_known(&args.node).await?;
    let rivals = cluster.rivals(&found).await?;
    let time = ServerTime::ask(&cluster.client).await?;
    let state = state(cluster, &found, !rivals.is_empty(), time.now());
    let created_at = created_at(cluster, &found).await?;
    let shards = shards(cluster, &found.filed_under, &time).await;
    let case = Case { cluster, found: &found, now: time.now(), created_at, rivals: &rivals };
    let explanation = explain(&case, state, shards);
    if !args.output.print(&typed("Explanation", &explanation))? {
        print(&explanation.to_text())?;
    }
    Ok(Ended::Well)
}

async fn created_at(cluster: &Cluster, found: &Found) -> Result<Option<Timestamp>> {
    let Some(node) = &found.node else { return Ok(None) };
    let nodes: Api<core::Node> = Api::all(cluster.client.clone());
    let there = call::one("get node", nodes.get_metadata_opt(&node.name)).await?;
    let same = there.filter(|there| there.metadata.uid.as_deref() == Some(node.uid.as_str()));
    Ok(same.and_then(|there| there.metadata.creation_timestamp).map(|time| time.0))
}

/// The holders of the node's shards, in sentences.
async fn shards(cluster: &Cluster, key: &str, time: &ServerTime) -> Vec<String> {
    let expected = Installation::read(cluster).await.expected();
    let is_own = |it: &Shard| it.replicas.is_none_or(|replicas| it.index == shard(key, replicas));
    let own = |leases: &Leases| {
        let shards = leases.shards(None, &expected).into_iter();
        shards.filter(|it| is_own(it) && it.state != Holding::Retired).collect()
    };
    match Leases::settle(cluster, time, PATIENCE, own).await {
        Ok(shards) => shards.iter().map(|shard| format!("{}.", shard.sentence(time.now()))).collect(),
        Err(error) => vec![format!("Unknown: {error}.")],
    }
}

fn explain(case: &Case<'_>, state: State, shards: Vec<String>) -> Explanation {
    let (cluster, found) = (case.cluster, case.found);
    let (node, record) = found.seen_by_storer(&cluster.rules);
    let at = Circumstances { retention: cluster.rules.retention, ..Circumstances::at(case.now) };
    let unchanged = Circumstances { unchanged_for: TOMBSTONE_LIFETIME, ..at };
    let sighting = node.as_ref().map_or(Sighting::Gone, Sighting::Live);
    let stored = records::Found::stored(record.as_ref());
    let to_store = plan_store(sighting, stored, unchanged, &cluster.rules);
    let to_restore =
        found.node.as_ref().map(|node| plan_restore(node, found.stored(), &cluster.rules, false));
    let is_contested = !case.rivals.is_empty();
    let mut next = storer::hints(case, &to_store);
    next.extend(to_restore.as_ref().into_iter().flat_map(|plan| restorer::hints(case, plan)));
    let own = node.as_ref().map(|node| node.labels.clone()).unwrap_or_default();
    let kept = |record: Option<&label_storage::Record>| {
        record.map(|record| record.labels.clone()).unwrap_or_default()
    };
    let seen = record.as_ref().and_then(|found| found.content.as_ref().ok()).map(|decoded| &decoded.record);
    Explanation {
        node: found.name.clone(),
        state,
        facts: rules::facts(case),
        stored: kept(found.record()),
        differences: if node.is_some() { differences(&kept(seen), &own) } else { Vec::new() },
        rules: rules::rules(case, node.as_ref(), seen, to_restore.as_ref()),
        storer: match is_contested {
            true => contested(),
            false => storer::step(case, &to_store, node.as_ref(), stored, at),
        },
        restorer: match &to_restore {
            Some(_) if is_contested => contested(),
            Some(plan) => restorer::step(case, plan),
            None => restorer::absent(),
        },
        shards,
        next,
    }
}

fn contested() -> Step {
    Step {
        reason: "identity-contested",
        place: "rules",
        does: "does nothing".to_owned(),
        because: "Several nodes have this identity, so none of them is stored or restored.",
        changes: Vec::new(),
    }
}

impl Explanation {
    fn to_text(&self) -> String {
        let mut text = String::new();
        let mut section = |head: String, lines: Vec<String>| {
            let gap = if text.is_empty() { "" } else { "\n" };
            text += &format!("{gap}{head}\n");
            lines.iter().for_each(|line| text += &format!("  {line}\n"));
        };
        let plainly = |lines: &[String]| lines.iter().map(|line| plain(line)).collect::<Vec<_>>();
        let title = format!("{}: {}", style(plain(&self.node)).bold(), self.state.as_str());
        section(title, plainly(&self.facts));
        if !self.stored.is_empty() {
            let stored = self.stored.iter().map(|(name, value)| plain(&format!("{name}={value}")));
            section("Stored".to_owned(), stored.collect());
        }
        for (who, step) in [("storer", &self.storer), ("restorer", &self.restorer)] {
            let why = format!("{} (docs/protocol.md, {})", step.because, step.place);
            let changes = step.changes.iter().map(|line| painted(&plain(line)));
            let head = format!("The {who} {}: {}", step.does, style(step.reason).bold());
            section(head, std::iter::once(why).chain(changes).collect());
        }
        if !self.rules.is_empty() {
            section("Rules".to_owned(), plainly(&self.rules));
        }
        section("Shards".to_owned(), plainly(&self.shards));
        let next: Vec<_> = self.next.iter().map(|hint| format!("{}: {}", hint.to, hint.run)).collect();
        if !next.is_empty() {
            section("Next".to_owned(), plainly(&next));
        }
        text
    }
}
