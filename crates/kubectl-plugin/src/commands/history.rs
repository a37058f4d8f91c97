//! `history` and `rollback`: the earlier versions of a Node's labels.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use anyhow::{Result, bail};
use jiff::Timestamp;
use label_storage::node::{KEEP, Taint};
use label_storage::restore::{Reason, is_never_kept};
use label_storage::rules::patterns::{KeyKind, Patterns, SETS};
use label_storage::{Labels, Node, Record, ResourceVersion, Rules};
use label_storage::{item::Item, record::Version};
use label_storage_runtime::patch::taints_as_json;
use serde_json::{Value, json};

use crate::changes::{Preview, diff_lines, differences, painted};
use crate::find::{Found, NOT_DEPARTED};
use crate::output::{Format, OF_OBJECTS, age, counted, print, typed};
use crate::write::{Proposal, Write, carry_out};
use crate::{Ended, cluster::Cluster, flags::Change, hints::quoted};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Below each version are its differences from the next one: - marks removed items, and + added items.

Examples:
  kubectl label-storage history my-node")]
pub struct Args {
    /// The name of the node, which may be absent
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
    /// The name of the node, which may be absent
    node: String,
    /// The generation of the version, as `history` shows it
    #[arg(long, value_name = "GENERATION")]
    to: u64,
    /// Include labels that a kubelet may not set, such as node-restriction.kubernetes.io/*, even if they were on another machine
    #[arg(long)]
    trust: bool,
    /// Continue even if no storer has stored the deletion of the node: its final labels may be lost
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    change: Change,
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let found = cluster.find_known(&args.node).await?;
    let Record { generation, captured_at: at, labels, more, .. } = found.require_record()?.clone();
    // The oldest first and the present one last.
    let versions = [more.history, vec![Version { generation, at, labels }]].concat();
    // Scripts rely on these names.
    let object = |(index, Version { generation, at, labels }): (usize, &Version)| {
        let is_current = index + 1 == versions.len();
        json!({"generation": generation, "capturedAt": at, "isCurrent": is_current, "kept": labels})
    };
    let fields: Vec<_> = versions.iter().enumerate().map(object).collect();
    if !args.output.print(&typed("History", json!({"node": found.name, "versions": fields})))? {
        print(&text(&versions))?;
    }
    match cluster.rules.history {
        _ if versions.len() > 1 => (),
        0 => eprintln!("the rules keep no history (history: 0)"),
        _ => eprintln!("node {} has no earlier version: its labels have not changed", found.name),
    }
    Ok(Ended::Well)
}

fn text(versions: &[Version]) -> String {
    let mut text = String::new();
    for (index, Version { generation, at, labels }) in versions.iter().enumerate() {
        let ago = |at: Timestamp| format!("{} ago ({at:.0})", age(Timestamp::now().duration_since(at)));
        let stored = at.map_or_else(|| "at an unknown time".to_owned(), ago);
        let (items, next) = (counted(labels.len(), "item"), versions.get(index + 1));
        let current = if next.is_none() { ", current" } else { "" };
        text += &format!("generation {generation}, {items}, stored {stored}{current}\n");
        for line in next.into_iter().flat_map(|next| diff_lines(&differences(labels, &next.labels))) {
            text += &format!("  {}\n", painted(&line));
        }
    }
    text
}

pub(crate) async fn roll_back(cluster: &Cluster, args: RollbackArgs) -> Result<Ended> {
    let plan = async |args: &RollbackArgs, _: Option<&Preview>| plan(cluster, args).await;
    carry_out(cluster, args.change, ("Roll back", "node"), &[args], true, plan).await
}

async fn plan(cluster: &Cluster, args: &RollbackArgs) -> Result<Proposal> {
    let RollbackArgs { node: name, to, .. } = args;
    let found = cluster.once_departed(cluster.find_known(name).await?, args.force).await?;
    let record = found.require_record()?;
    let absence = cluster.absence(&found).await?;
    let mut preview = Preview::new(&format!("node {name} returns to generation {to}:"));
    let edits = edits(args, &mut preview, &cluster.rules, &found)?;
    let write = match (&found.node, absence) {
        (Some(node), None) => {
            match found.restore_reason() {
                Some(Reason::Returned) => {
                    let restore = cluster.hints.plugin(&format!("restore {}", quoted(name)));
                    bail!("node {name} is not restored yet: run `{restore}` first");
                }
                Some(Reason::Ignored) => preview.note("the node is ignored, so this is not stored"),
                _ => (),
            }
            (!edits.is_empty()).then(|| Write::patch(node, node_patch(node, &edits)))
        }
        (None, Some(_)) => {
            if found.is_departing() {
                preview.note(NOT_DEPARTED);
            }
            let edited = edit(record, edits, absence, &cluster.rules);
            edited.map(|edited| Write::put(&edited, found.record.as_ref(), None)).transpose()?
        }
        _ => bail!("node {name} was just created or deleted: try again"),
    };
    if write.is_none() {
        preview.note("nothing changes");
    }
    let writes = write.into_iter().collect();
    Ok(Proposal { preview, writes, done: format!("node/{name} rolled back") })
}

/// The labels of this generation.
fn version(record: &Record, generation: u64) -> Result<&Labels> {
    let (name, history) = (&record.node, &record.more.history);
    if (record.labels_generation.unwrap_or(record.generation)..=record.generation).contains(&generation) {
        bail!("generation {generation} of node {name} is the present one: choose an earlier one");
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

/// The edits that return the Node to the version, or the record if there is no Node. Items that no record had
/// are left alone.
fn edits(args: &RollbackArgs, preview: &mut Preview, rules: &Rules, found: &Found) -> Result<Edits> {
    let record = found.require_record()?;
    let version = version(record, args.to)?;
    // The machine itself, or a controller, sets these labels.
    let facts = Patterns::of(KeyKind::Label, SETS.map(|(name, _)| name))?;
    let is_fact = |item| is_never_kept(item) || matches!(item, Item::Label(key) if facts.matches(key));
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
        let is_distrusted = item.is_trust() && rules.may_withhold_trust() && !args.trust;
        // A version has the items that the rules kept at that time. The rules themselves are not stored.
        let left_alone = match (after, item) {
            _ if before == after => continue,
            (Some(_), _) if is_distrusted => Some("give --trust to include it on any machine"),
            (Some(_), _) => None,
            _ if !rules.keeps(name, keep.as_ref()) => Some("the rules do not keep it"),
            (None, Item::Label(_) | Item::Annotation(KEEP)) => None,
            (None, item) => (!has_kind(item)).then_some("that version has no item of this kind"),
        };
        if let Some(why) = left_alone {
            preview.note(&format!("{name} is not changed: {why}"));
            continue;
        }
        preview.changes(name, before, after);
        edits.insert(name.clone(), after.map(str::to_owned));
    }
    Ok(edits)
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

/// The patch that makes these changes. With uid and resourceVersion the API
/// server refuses the patch if the Node was re-created or has changed.
fn node_patch(node: &Node, changes: &Edits) -> Value {
    let (mut labels, mut annotations) = (BTreeMap::new(), BTreeMap::new());
    let (mut taints, mut unschedulable) = (node.extras.taints.clone(), None);
    for (name, value) in changes {
        match Item::parse(name) {
            Some(item @ Item::Taint { .. }) if node.value_of(item) == value.as_deref() => (),
            Some(Item::Label(key)) => _ = labels.insert(key, value),
            Some(Item::Annotation(key)) => _ = annotations.insert(key, value),
            Some(Item::Taint { effect, key }) => {
                let old = taints.iter().position(|taint| taint.effect == effect && taint.key == key);
                let old = old.map(|at| taints.remove(at));
                let [key, effect] = [key, effect].map(str::to_owned);
                let time_added = old.and_then(|taint| taint.time_added);
                taints.extend(value.clone().map(|value| Taint { key, value, effect, time_added }));
            }
            Some(Item::Cordon) => unschedulable = Some(value.is_some()),
            None => (),
        }
    }
    let mut body = json!({"metadata": {
        "uid": node.uid.as_str(),
        "resourceVersion": node.version.to_string(),
        "labels": labels,
        "annotations": annotations,
    }});
    if taints != node.extras.taints {
        body["spec"]["taints"] = taints_as_json(&taints);
    }
    if let Some(unschedulable) = unschedulable {
        body["spec"]["unschedulable"] = unschedulable.into();
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_changed_may_go() {
        let mut node = Node::new("a".to_owned(), "u2".to_owned(), "77", [].into(), None).expect("a node");
        node.extras.taints = [("a", "b"), ("kept", "")]
            .map(|(key, value)| Taint {
                key: key.to_owned(),
                value: value.to_owned(),
                effect: "NoExecute".to_owned(),
                time_added: None,
            })
            .into();
        let changes = [
            ("pool", Some("gold")),
            ("old", None),
            ("annotation:example.com/owner", None),
            ("taint:NoExecute:a", None),
            ("taint:NoSchedule:dedicated", Some("gpu")),
            ("cordon:", None),
        ];
        let changes = changes.map(|(name, value)| (name.to_owned(), value.map(str::to_owned))).into();
        let expected = json!({
            "metadata": {
                "uid": "u2",
                "resourceVersion": "77",
                "labels": {"pool": "gold", "old": null},
                "annotations": {"example.com/owner": null},
            },
            "spec": {
                "taints": [
                    {"key": "kept", "effect": "NoExecute"},
                    {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
                ],
                "unschedulable": false,
            },
        });
        assert_eq!(node_patch(&node, &changes), expected);
        let changes = [("taint:NoExecute:a".to_owned(), Some("b".to_owned()))].into();
        assert_eq!(node_patch(&node, &changes).get("spec"), None, "the taints do not change");
    }
}
