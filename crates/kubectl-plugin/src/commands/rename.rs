//! `rename`: moves the record of a Node to another name.

use anyhow::{Result, bail};
use jiff::Timestamp;
use label_storage::{Labels, Node, Record, ResourceVersion, Rules, node::IGNORE, rules::IdentityBy};

use crate::changes::{Difference, Preview, differences};
use crate::find::{Found, NOT_DEPARTED};
use crate::write::{Proposal, Write, carry_out};
use crate::{Ended, cluster::Cluster, commands::import::NOBODY, flags::Change, hints::quoted};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubectl label-storage rename old-node new-node
  kubectl label-storage rename old-node new-node --replace")]
pub struct Args {
    /// The old name of the node
    old: String,
    /// The new name of the node
    new: String,
    /// Replace the record of the new name, if there is one; its labels are added to the history
    #[arg(long)]
    replace: bool,
    /// Continue even if a node of the old name exists, or if no storer has stored its deletion: its final labels may be lost
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    change: Change,
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let by = &cluster.rules.identity;
    if *by != IdentityBy::Name {
        bail!("the rules identify nodes by {by}, so a record does not depend on the name of its node");
    }
    if args.old == args.new {
        bail!("the old and the new name are both {}: give two names", args.old);
    }
    let plan = async |args: &Args, tried: Option<&Preview>| plan(cluster, args, tried).await;
    carry_out(cluster, args.change, ("Rename", "record"), &[args], true, plan).await
}

async fn plan(cluster: &Cluster, args: &Args, tried: Option<&Preview>) -> Result<Proposal> {
    let Args { old, new, replace, force, .. } = args;
    let done = format!("record of node/{old} renamed to node/{new}");
    let target = cluster.find(new).await?;
    let found = cluster.once_departed(cluster.find(old).await?, *force).await?;
    let source = match (&found.record, &target.record, tried) {
        (Some(source), ..) => source,
        (None, Some(_), Some(tried)) => {
            return Ok(Proposal { preview: tried.clone(), writes: Vec::new(), done });
        }
        _ => bail!("nothing is stored for node {old} in namespace {}", cluster.namespace),
    };
    let record = found.require_record()?;
    if found.node.is_some() && !force {
        bail!("node {old} exists, and its record follows it: give --force to move its labels to {new}");
    }
    let existing = target.record.as_ref().map(|_| target.require_record()).transpose()?;
    // Only the deletion is left: this rename, or an interrupted one, has written the new record.
    let is_of_node = record.uid.as_ref().is_some_and(|uid| uid.as_str() != NOBODY);
    let is_half_done = existing.is_some_and(|existing| {
        has_content_of(existing, record) && (tried.is_some() || is_of_node && existing.uid == record.uid)
    });
    if existing.is_some() && !is_half_done && !replace {
        let get = cluster.hints.plugin(&format!("get {}", quoted(new)));
        bail!("node {new} has a record (`{get}` shows it): give --replace to replace it");
    }
    let mut writes = Vec::new();
    if !is_half_done {
        let seen = cluster.absence(&target).await?;
        let renamed = renamed(record, &target, seen, &cluster.rules);
        writes.push(Write::put(&renamed, target.record.as_ref(), Some(&source.config_map))?);
    }
    // The deletion comes last: an interruption leaves two records, and never none.
    writes.push(Write::delete(source)?);
    let preview = match tried {
        Some(tried) if is_half_done => tried.clone(),
        _ => preview(args, &found, &target, &cluster.rules),
    };
    Ok(Proposal { preview, writes, done })
}

/// True if nothing of the other record would be lost: neither an item nor a version in its history.
fn has_content_of(this: &Record, other: &Record) -> bool {
    let (mine, theirs) = (&this.more, &other.more);
    (&this.labels, &this.leftovers) == (&other.labels, &other.leftovers)
        && (&mine.machine, &mine.withheld) == (&theirs.machine, &theirs.withheld)
        && theirs.history.iter().all(|version| {
            mine.history.iter().any(|its| (its.at, &its.labels) == (version.at, &version.labels))
        })
}

/// The record under its new name. It keeps its incarnation: no Node of the new name has that, so it is
/// restored to the next one.
fn renamed(record: &Record, target: &Found, seen: Option<ResourceVersion>, rules: &Rules) -> Record {
    let mut renamed = record.clone();
    renamed.node.clone_from(&target.name);
    renamed.node_version = renamed.node_version.max(seen);
    // The retention starts again, and no storer will store a deletion of this name.
    renamed.departed_at = seen.map(|_| Timestamp::now());
    // Above the generation that the Node was restored from: otherwise it would count as restored.
    let restored_from = target.node.as_ref().and_then(Node::restored_from);
    let mut generation = record.generation.max(restored_from.map_or(0, |from| from.generation));
    if let Some(existing) = target.record() {
        renamed.more.history = existing.history_under(record, rules);
        let newest = renamed.more.history.last().map_or(0, |version| version.generation);
        generation = generation.max(existing.generation).max(newest);
        renamed.node_version = renamed.node_version.max(existing.node_version);
        renamed.captured_at = Some(Timestamp::now());
        renamed.leftovers.data.extend(existing.leftovers.data.clone());
        renamed.leftovers.binary_data.extend(existing.leftovers.binary_data.clone());
    }
    renamed.generation = generation.saturating_add(1);
    renamed.labels_generation = Some(renamed.generation);
    renamed
}

fn preview(args: &Args, found: &Found, target: &Found, rules: &Rules) -> Preview {
    let Args { old, new, .. } = args;
    let [before, after] = [target, found].map(|found| -> Labels {
        let items = found.record().into_iter().flat_map(Record::all);
        items.map(|(name, value, _)| (name.to_owned(), value.to_owned())).collect()
    });
    let mut preview = Preview::new(&format!("the record of node {old} becomes the record of node {new}:"));
    for Difference { name, before, after } in differences(&before, &after) {
        preview.changes(&name, before.as_deref(), after.as_deref());
    }
    preview.also(&format!("the record of node {old} is deleted"));
    if found.node.is_some() {
        preview.note(&format!("node {old} exists: the storer creates a new record from its labels"));
    } else if found.is_departing() {
        preview.note(NOT_DEPARTED);
    }
    let Some(node) = &target.node else { return preview };
    preview.note(&if node.is_ignored() {
        format!("node {new} has the annotation {IGNORE}: it is not restored until that is removed")
    } else if found.record().is_some_and(|record| rules.excludes(node, record)) {
        format!("node {new} is another machine: use `restore --other-machine`")
    } else {
        format!("node {new} exists: the restorer adds the labels that it lacks")
    });
    preview
}
