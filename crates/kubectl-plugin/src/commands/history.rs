//! `history` and `rollback`: the earlier versions of a Node's labels.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use anyhow::{Result, bail};
use jiff::Timestamp;
use label_storage::item::Item;
use label_storage::node::KEEP;
use label_storage::record::Version;
use label_storage::restore::{Reason, decide, is_never_kept};
use label_storage::rules::Trust;
use label_storage::rules::patterns::{KeyKind, MACHINE_FACTS, Patterns};
use label_storage::store::Stored;
use label_storage::{Labels, Node, Record, ResourceVersion, Rules};
use serde_json::json;

use crate::Ended;
use crate::changes::{diff_lines, differences, painted};
use crate::cluster::Cluster;
use crate::find::Found;
use crate::flags::Change;
use crate::hints::quoted;
use crate::node_patch;
use crate::node_presence::NOT_DEPARTED;
use crate::output::{Format, OF_OBJECTS, age, counted, print, typed};
use crate::preview::Preview;
use crate::write::{Operation, Proposal, Write, carry_out};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Below each version are its differences from the next one: - was removed, + was added.

Examples:
  kubectl label-storage history my-node")]
pub struct Args {
    /// The name of the node; it need not exist
    node: String,

    /// The output format
    #[arg(long, short, value_name = "FORMAT", default_value = "table", value_parser = OF_OBJECTS)]
    output: Format,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubectl label-storage rollback my-node --to 17")]
pub struct RollbackArgs {
    /// The name of the node; it need not exist
    node: String,

    /// The generation of the version, as `history` shows it
    #[arg(long, value_name = "GENERATION")]
    to: u64,

    /// Return labels under node-restriction.kubernetes.io/ even if another machine had them
    #[arg(long)]
    trust: bool,

    /// Go on if no storer stores the deletion of the node: its final labels may be lost
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    change: Change,
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let found = cluster.find_known(&args.node).await?;
    let versions = versions(found.require_record()?);
    // Scripts rely on these names.
    let fields = versions.iter().enumerate().map(|(at, Version { generation, at: captured_at, labels })| {
        let is_current = at + 1 == versions.len();
        json!({"generation": generation, "capturedAt": captured_at, "isCurrent": is_current, "kept": labels})
    });
    let fields: Vec<_> = fields.collect();
    if !args.output.print(&typed("History", json!({"node": found.name, "versions": fields})))? {
        print(&text(&versions, Timestamp::now()))?;
    }
    match cluster.rules.history {
        _ if versions.len() > 1 => (),
        0 => eprintln!("the rules keep no history (history: 0)"),
        _ => eprintln!("node {} has no earlier version: its labels have not changed", found.name),
    }
    Ok(Ended::Well)
}

/// All versions of a record, the oldest first and the present one last.
fn versions(record: &Record) -> Vec<Version> {
    let Record { generation, captured_at: at, ref labels, .. } = *record;
    [&record.more.history[..], &[Version { generation, at, labels: labels.clone() }]].concat()
}

fn text(versions: &[Version], now: Timestamp) -> String {
    let mut text = String::new();
    for (at, Version { generation, at: stored_at, labels }) in versions.iter().enumerate() {
        let stored = match stored_at {
            Some(at) => format!("stored {} ago ({at:.0})", age(now.duration_since(*at))),
            None => "stored at an unknown time".to_owned(),
        };
        let (items, next) = (counted(labels.len(), "item"), versions.get(at + 1));
        let current = if next.is_none() { ", current" } else { "" };
        text += &format!("generation {generation}, {items}, {stored}{current}\n");
        for line in next.into_iter().flat_map(|next| diff_lines(&differences(labels, &next.labels))) {
            text += &format!("  {}\n", painted(&line));
        }
    }
    text
}

pub(crate) async fn roll_back(cluster: &Cluster, args: RollbackArgs) -> Result<Ended> {
    carry_out(cluster, args.change, ("Roll back", "node"), &[args], true).await
}

impl Operation for RollbackArgs {
    async fn plan(&self, cluster: &Cluster, _: u32) -> Result<Proposal> {
        let Self { node: name, to, .. } = self;
        let found = cluster.once_departed(cluster.find_known(name).await?, self.force).await?;
        let record = found.require_record()?;
        let absence = cluster.absence(&found).await?;
        cluster.require_uncontested(&found).await?;
        let mut preview = Preview::new(&format!("node {name} returns to generation {to}:"));
        let edits = self.edits(&mut preview, &cluster.rules, &found)?;
        let mut writes = Vec::new();
        match (&found.node, absence) {
            (Some(node), None) => {
                match decide(&node.summary(), Stored::Record(record.summary())) {
                    Reason::Returned => {
                        let restore = cluster.hints.plugin(&format!("restore {}", quoted(name)));
                        bail!("node {name} is not restored yet: run `{restore}` first");
                    }
                    Reason::Ignored => preview.note("the node is ignored, so this is not stored"),
                    _ => (),
                }
                if !edits.is_empty() {
                    writes.push(Write::patch(node, node_patch::changing(node, &edits)));
                }
            }
            (None, Some(seen)) => {
                if found.is_departing() {
                    preview.note(NOT_DEPARTED);
                }
                let edited = edit(record, edits, Some(seen), &cluster.rules);
                if let (Some(edited), Some(config_map)) = (edited, &found.record) {
                    writes.push(Write::replace(&edited, config_map, None)?);
                }
            }
            _ => bail!("node {name} was just created or deleted: try again"),
        }
        if writes.is_empty() {
            preview.note("nothing changes");
        }
        Ok(Proposal { preview, writes, done: format!("node/{name} rolled back") })
    }
}

/// The labels of this generation.
fn version(record: &Record, generation: u64) -> Result<&Labels> {
    let (name, history) = (&record.node, &record.more.history);
    let since = record.labels_generation.unwrap_or(record.generation);
    if (since..=record.generation).contains(&generation) {
        bail!("generation {generation} of node {name} is stored now: choose an earlier one");
    }
    let all: Vec<_> = history.iter().map(|version| version.generation.to_string()).collect();
    match history.iter().find(|version| version.generation == generation) {
        Some(version) => Ok(&version.labels),
        None if all.is_empty() => bail!("no earlier version of node {name} is stored"),
        None => bail!("generation {generation} of node {name} is not stored: choose from {}", all.join(", ")),
    }
}

/// Changes by name; `None` removes an item.
pub(super) type Edits = BTreeMap<String, Option<String>>;

impl RollbackArgs {
    /// The edits that return the Node to the version, or the record if there is no Node. Items that no record had are left alone.
    fn edits(&self, preview: &mut Preview, rules: &Rules, found: &Found) -> Result<Edits> {
        let record = found.require_record()?;
        let version = version(record, self.to)?;
        // The machine itself sets these on its Node.
        let facts = Patterns::of(KeyKind::Label, [MACHINE_FACTS])?;
        let is_fact = |item: Item<'_>| match item {
            Item::Label(key) => facts.matches(key),
            _ => is_never_kept(item),
        };
        let keep = found.node.as_ref().map_or_else(|| record.keep_patterns(), Node::keep_patterns);
        let has_kind = |item: Item<'_>| {
            let items = version.keys().filter_map(|name| Item::parse(name));
            let mut others = items.filter(|other| *other != Item::Annotation(KEEP));
            others.any(|other| discriminant(&other) == discriminant(&item))
        };
        let past = record.more.history.iter().flat_map(|version| version.labels.keys());
        let names: BTreeSet<_> = record.labels.keys().chain(past).collect();
        let mut edits = Edits::new();
        for name in names {
            let Some(item) = Item::parse(name) else { continue };
            let after = version.get(name).map(String::as_str);
            let before = match &found.node {
                Some(_) if is_fact(item) => after,
                Some(node) => node.value_of(item),
                None => record.labels.get(name).map(String::as_str),
            };
            let is_distrusted = item.is_trust() && rules.trust == Trust::SameMachine && !self.trust;
            // A version has the items that the rules of its time kept, and not the rules.
            let left_alone = match (after, item) {
                _ if before == after => continue,
                (Some(_), _) if is_distrusted => Some("give --trust to return it on any machine"),
                (Some(_), _) => None,
                _ if !rules.keeps(name, keep.as_ref()) => Some("the rules do not keep it"),
                (None, Item::Label(_) | Item::Annotation(KEEP)) => None,
                (None, item) => (!has_kind(item)).then_some("that version has no item of this kind"),
            };
            if let Some(why) = left_alone {
                preview.note(&format!("{name} is left alone: {why}"));
                continue;
            }
            preview.changes(name, before, after);
            edits.insert(name.clone(), after.map(str::to_owned));
        }
        Ok(edits)
    }
}

/// The record with these edits; `None` if nothing changes.
pub(super) fn edit(from: &Record, by: Edits, seen: Option<ResourceVersion>, rules: &Rules) -> Option<Record> {
    let (mut labels, mut withheld) = (from.labels.clone(), from.more.withheld.clone());
    for (name, value) in by {
        withheld.remove(&name);
        match value {
            Some(value) => labels.insert(name, value),
            None => labels.remove(&name),
        };
    }
    let edited = from.edited(labels, withheld, seen, Timestamp::now(), rules);
    let is_same = edited.labels == from.labels && edited.more.withheld == from.more.withheld;
    (!is_same).then_some(edited)
}
