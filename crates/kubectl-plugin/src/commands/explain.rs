//! `explain`: the state of one node, and the next steps of the daemons by their own decision functions.

mod rules;
mod steps;

use std::time::Duration;

use anyhow::Result;
use console::style;
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use kube::Api;
use label_storage::store::{Circumstances, Sighting, TOMBSTONE_LIFETIME};
use label_storage::{Labels, Node, Record, plan_restore, plan_store, restore, shard, store};
use label_storage_runtime::call::Error;
use label_storage_runtime::{call, records};
use serde::Serialize;

use self::steps::{Hint, Step};
use crate::Ended;
use crate::changes::{Difference, differences, painted};
use crate::cluster::Cluster;
use crate::diagnose::installation::Installation;
use crate::diagnose::shards::{Holding, Leases, Shard};
use crate::diagnose::state::State;
use crate::find::Found;
use crate::output::{Format, OF_OBJECTS, age, plain, print, typed};
use crate::select::state;
use crate::server_time::ServerTime;

/// Holders renew their leases every two seconds.
const PATIENCE: Duration = Duration::from_secs(6);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Below the next step of a daemon, - marks an item that it removes, and + an item that it adds.

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
    stored: Labels,
    /// From the record to the node, as far as the rules keep it.
    differences: Vec<Difference>,
    storer: Step,
    restorer: Step,
    rules: Vec<String>,
    shards: Vec<String>,
    next: Vec<Hint>,
}

/// The node, its record and its surroundings.
struct Case<'a> {
    cluster: &'a Cluster,
    found: &'a Found,
    now: Timestamp,
    at: Circumstances,
    created_at: Option<Timestamp>,
    /// Other nodes with the same identity.
    rivals: Vec<String>,
    /// The node and the record as the storer sees them.
    node: Option<Node>,
    record: Option<records::Found>,
    to_store: store::Plan,
    /// `None` without a node.
    to_restore: Option<restore::Plan>,
    /// True if the restorer may wait for final labels that are not stored yet.
    awaits_final_labels: bool,
}

impl Case<'_> {
    fn record_name(&self) -> String {
        label_storage::name::record_name(&self.found.filed_under)
    }

    /// The record as the storer sees it.
    fn stored(&self) -> Option<&Record> {
        Some(&self.record.as_ref()?.content.as_ref().ok()?.record)
    }

    fn ago(&self, at: Timestamp) -> String {
        format!("{} ago", age(self.now.duration_since(at)))
    }
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let found = &cluster.find_known(&args.node).await?;
    let rivals = cluster.rivals(found).await?;
    let time = ServerTime::ask(&cluster.client).await?;
    let now = time.now();
    let state = state(cluster, found, !rivals.is_empty(), now);
    let created_at = created_at(cluster, found).await?;
    let shards = shards(cluster, &found.filed_under, &time).await;
    let awaits_final_labels = !restore::can_anticipate(found.stored().map(Record::summary), &cluster.rules)
        && shards.iter().flatten().any(|shard| shard.keeps_final_labels(&found.filed_under));
    let (rules, (node, record)) = (&cluster.rules, found.seen_by_storer(&cluster.rules));
    let sighting = node.as_ref().map_or(Sighting::Gone, Sighting::Live);
    let at = Circumstances { retention: rules.retention, may_add_label: true, ..Circumstances::at(now) };
    let unchanged = Circumstances { unchanged_for: TOMBSTONE_LIFETIME, ..at };
    let to_store = plan_store(sighting, records::Found::stored(record.as_ref()), unchanged, rules);
    let to_restore = found.node.as_ref().map(|node| plan_restore(node, found.stored(), rules, false));
    let case = Case {
        cluster,
        found,
        now,
        at,
        created_at,
        rivals,
        node,
        record,
        to_store,
        to_restore,
        awaits_final_labels,
    };
    let labels = |record: Option<&Record>| record.map(|record| record.labels.clone()).unwrap_or_default();
    let own = case.node.as_ref().map(|node| differences(&labels(case.stored()), &node.labels));
    let explanation = Explanation {
        node: found.name.clone(),
        state,
        facts: rules::facts(&case),
        stored: labels(found.record()),
        differences: own.unwrap_or_default(),
        storer: steps::storer(&case),
        restorer: steps::restorer(&case),
        rules: rules::rules(&case),
        shards: match shards {
            Ok(shards) => shards.iter().map(|shard| format!("{}.", shard.sentence(time.now()))).collect(),
            Err(error) => vec![format!("Unknown: {error}.")],
        },
        next: steps::hints(&case),
    };
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

/// The node's shards.
async fn shards(cluster: &Cluster, key: &str, time: &ServerTime) -> Result<Vec<Shard>, Error> {
    let expected = Installation::read(cluster).await.expected();
    let is_own = |it: &Shard| it.replicas.is_none_or(|replicas| it.index == shard(key, replicas));
    let own = |leases: &Leases| {
        let shards = leases.shards(None, &expected).into_iter();
        shards.filter(|it| is_own(it) && it.state != Holding::Retired).collect()
    };
    Leases::settle(cluster, time, PATIENCE, own).await
}

impl Explanation {
    fn to_text(&self) -> String {
        let mut text = String::new();
        let mut section = |head: &str, lines: Vec<String>| {
            let gap = if text.is_empty() { "" } else { "\n" };
            text += &format!("{gap}{head}\n");
            lines.iter().for_each(|line| text += &format!("  {line}\n"));
        };
        let plainly = |lines: &[String]| lines.iter().map(|line| plain(line)).collect::<Vec<_>>();
        section(&format!("{}: {}", style(plain(&self.node)).bold(), self.state), plainly(&self.facts));
        let stored = self.stored.iter().map(|(name, value)| plain(&format!("{name}={value}")));
        let stored: Vec<_> = stored.collect();
        if !stored.is_empty() {
            section("Stored", stored);
        }
        for (who, step) in [("storer", &self.storer), ("restorer", &self.restorer)] {
            let why = format!("{} (docs/protocol.md, {})", step.because, step.place);
            let changes = step.changes.iter().map(|line| painted(&plain(line)));
            let head = format!("The {who} {}: {}", step.does, style(step.reason).bold());
            section(&head, std::iter::once(why).chain(changes).collect());
        }
        let next: Vec<_> = self.next.iter().map(|hint| format!("{}: {}", hint.to, hint.run)).collect();
        for (head, lines) in [("Rules", &self.rules), ("Shards", &self.shards), ("Next", &next)] {
            if !lines.is_empty() {
                section(head, plainly(lines));
            }
        }
        text
    }
}
