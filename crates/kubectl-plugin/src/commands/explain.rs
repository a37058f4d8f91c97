//! What the daemons would do with a Node now, and why: decided with their own functions.

mod circumstances;
mod restorer;
mod shards;
mod storer;

use std::io::{self, Write};

use anyhow::Result;
use console::style;
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use kube::Api;
use label_storage::restore::Reason as RestoreReason;
use label_storage::rules::IdentityBy;
use label_storage::store::{Circumstances, Reason as StoreReason, Sighting, TOMBSTONE_LIFETIME};
use label_storage::{plan_restore, plan_store};
use label_storage_runtime::{call, records};
use serde::Serialize;

use self::shards::Holders;
use crate::Ended;
use crate::advice::quoted;
use crate::changes::painted;
use crate::cli::Format;
use crate::cluster::Cluster;
use crate::find::Found;
use crate::output::{age, for_machines, plain};

/// Of which, and how to show it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code: 3 where a person has to do something first: the record can't be read, or claims to be of a later version of the node
than there is; several nodes claim it; the node is another machine, and the rules have a fence; or nobody works on the node's
shard.")]
pub struct Args {
    /// The name of a node, whether it is there or not
    #[arg(value_name = "NODE")]
    node: String,

    /// How to print
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    output: Format,
}

/// What there is to be said. The names are what scripts go by, so they stay.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation {
    node: String,
    /// What there is.
    facts: Vec<String>,
    storer: Decision,
    restorer: Decision,
    /// Which rules have a part in this.
    rules: Vec<String>,
    /// Who works on it.
    shards: Vec<String>,
    /// What would have to happen.
    next: Vec<Step>,
}

/// What a daemon would do.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Decision {
    /// As its logs and metrics have it.
    reason: &'static str,
    /// Where docs/protocol.md says so.
    #[serde(rename = "where")]
    place: &'static str,
    /// What it would do.
    does: String,
    /// Why.
    because: &'static str,
    /// What would change: lines of a diff.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<String>,
}

/// Something that would change what the daemons do.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Step {
    /// What for.
    to: String,
    /// The command.
    run: String,
}

/// Makes a step.
fn step(to: impl Into<String>, run: impl Into<String>) -> Step {
    Step { to: to.into(), run: run.into() }
}

/// What every part of the explanation looks at.
struct Case<'a> {
    cluster: &'a Cluster,
    found: &'a Found,
    now: Timestamp,
    /// Since when the Node is there.
    created_at: Option<Timestamp>,
    /// Other Nodes that claim the same record.
    rivals: &'a [String],
}

impl Case<'_> {
    /// The ConfigMap that is the record, or would be.
    fn record_name(&self) -> String {
        label_storage::name::record_name(&self.found.filed_under)
    }

    /// What a command takes for it: several records may be of Nodes of one name.
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
    let rivals = rivals(cluster, &found).await?;
    let holders = Holders::read(cluster, &found.filed_under).await;
    let created_at = created_at(cluster, &found).await?;
    let case = Case { cluster, found: &found, now: Timestamp::now(), created_at, rivals: &rivals };
    let (explanation, needs_a_person) = explain(&case, &holders);
    if !for_machines(args.output, &explanation)? {
        io::stdout().lock().write_all(explanation.to_text().as_bytes())?;
    }
    let is_idle = holders.are_known() && !holders.is_worked_on();
    Ok(if needs_a_person || is_idle { Ended::Unwell } else { Ended::Well })
}

/// Since when the very Node is there that was found: the daemons decide without that.
async fn created_at(cluster: &Cluster, found: &Found) -> Result<Option<Timestamp>> {
    let Some(node) = &found.node else { return Ok(None) };
    let nodes: Api<core::Node> = Api::all(cluster.client.clone());
    let there = call::one("get node", nodes.get_metadata_opt(&node.name)).await?;
    let same = there.filter(|there| there.metadata.uid.as_deref() == Some(node.uid.as_str()));
    Ok(same.and_then(|there| there.metadata.creation_timestamp).map(|time| time.0))
}

/// Other Nodes that claim to be the same. By name, no two can.
async fn rivals(cluster: &Cluster, found: &Found) -> Result<Vec<String>> {
    let Some(node) = &found.node else { return Ok(Vec::new()) };
    if cluster.rules.identity == IdentityBy::Name || node.extras.is_unidentified {
        return Ok(Vec::new());
    }
    let (mut claimants, _) = cluster.claimants(node.filed_under()).await?;
    claimants.retain(|name| *name != node.name);
    Ok(claimants)
}

/// All of it, and whether a person has to do something before the daemons can.
fn explain(case: &Case<'_>, holders: &Holders) -> (Explanation, bool) {
    let (cluster, found) = (case.cluster, case.found);
    let (node, record) = found.seen_by_storer(&cluster.rules);
    let at = Circumstances {
        // Whoever holds the shard counts that for itself.
        unchanged_for: TOMBSTONE_LIFETIME,
        retention: cluster.rules.retention,
        ..Circumstances::at(case.now)
    };
    let sighting = node.as_ref().map_or(Sighting::Gone, Sighting::Live);
    let to_store = plan_store(sighting, records::Found::stored(record.as_ref()), at, &cluster.rules);
    let to_restore =
        found.node.as_ref().map(|node| plan_restore(node, found.stored(), &cluster.rules, false));
    let is_contested = !case.rivals.is_empty();
    let needs_a_person = is_contested
        || matches!(to_store.reason, StoreReason::RecordUnreadable | StoreReason::ViewOlderThanRecord)
        || to_restore.as_ref().is_some_and(|plan| plan.reason == RestoreReason::OtherMachine);
    let mut next = storer::steps(case, &to_store);
    next.extend(to_restore.as_ref().into_iter().flat_map(|plan| restorer::steps(case, plan)));
    let explanation = Explanation {
        node: found.name.clone(),
        facts: circumstances::facts(case),
        rules: circumstances::rules(case, node.as_ref(), to_restore.as_ref(), at),
        storer: if is_contested { contested() } else { storer::decision(case, &to_store, record.as_ref()) },
        restorer: match &to_restore {
            Some(_) if is_contested => contested(),
            Some(plan) => restorer::decision(case, plan),
            None => restorer::absent(),
        },
        shards: holders.sentences(case.now),
        next,
    };
    (explanation, needs_a_person)
}

fn contested() -> Decision {
    Decision {
        reason: "identity-contested",
        place: "\"What operators choose\", identity",
        does: "does nothing".to_owned(),
        because: "Several Nodes claim this record, so nothing is concluded from any of them.",
        changes: Vec::new(),
    }
}

impl Explanation {
    fn to_text(&self) -> String {
        let mut text = String::new();
        let mut section = |head: String, lines: Vec<String>| {
            if !text.is_empty() {
                text.push('\n');
            }
            text += &format!("{head}\n");
            lines.iter().for_each(|line| text += &format!("  {line}\n"));
        };
        let plainly = |lines: &[String]| lines.iter().map(|line| plain(line)).collect::<Vec<_>>();
        section(style(plain(&self.node)).bold().to_string(), plainly(&self.facts));
        for (who, decision) in [("storer", &self.storer), ("restorer", &self.restorer)] {
            let reason = style(decision.reason).bold();
            let why = [format!("{} ({})", decision.because, decision.place)];
            let changes = decision.changes.iter().map(|line| painted(&plain(line)));
            section(
                format!("The {who} {}: {reason}", decision.does),
                why.into_iter().chain(changes).collect(),
            );
        }
        section("Rules that have a part in this".to_owned(), plainly(&self.rules));
        section("Who works on it".to_owned(), plainly(&self.shards));
        let next: Vec<_> = self.next.iter().map(|step| format!("{}: {}", step.to, step.run)).collect();
        if !next.is_empty() {
            section("What would change that".to_owned(), plainly(&next));
        }
        text
    }
}
