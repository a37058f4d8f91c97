//! `rename`: moves the record of a Node to another name.

use std::cell::RefCell;

use anyhow::{Result, bail};
use jiff::Timestamp;
use label_storage::node::IGNORE;
use label_storage::rules::IdentityBy;
use label_storage::{Labels, Node, Record, ResourceVersion, Rules, Uid};

use crate::Ended;
use crate::changes::{Difference, differences};
use crate::cluster::Cluster;
use crate::commands::import::NOBODY;
use crate::find::Found;
use crate::flags::Change;
use crate::hints::quoted;
use crate::node_presence::NOT_DEPARTED;
use crate::preview::Preview;
use crate::write::{Operation, Proposal, Write, carry_out};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubectl label-storage rename old-node new-node
  kubectl label-storage rename old-node new-node --replace")]
pub struct Args {
    /// The old name of the node
    old: String,

    /// The name that it has now, or returns with
    new: String,

    /// Replace the record of the new name, if there is one; its labels go into the history
    #[arg(long)]
    replace: bool,

    /// Go on if a node of the old name exists, or if no storer stores its deletion: its final labels may be lost
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    change: Change,
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let by = &cluster.rules.identity;
    if *by != IdentityBy::Name {
        bail!("nodes are identified by {by} here: a record needs no rename when its node gets another name");
    }
    if args.old == args.new {
        bail!("the old and the new name are both {}: give two names", args.old);
    }
    let rename = Rename { planned: RefCell::new(None), args };
    carry_out(cluster, rename.args.change, ("Rename", "record"), &[rename], true).await
}

struct Rename {
    args: Args,
    /// The last plan, by which the next attempt recognizes its own write: the old record, the new one, and the preview.
    planned: RefCell<Option<(Record, Record, Preview)>>,
}

impl Operation for Rename {
    async fn plan(&self, cluster: &Cluster, tries: u32) -> Result<Proposal> {
        let Args { old, new, replace, force, .. } = &self.args;
        let done = format!("record of node/{old} renamed to node/{new}");
        let target = cluster.find(new).await?;
        let found = cluster.once_departed(cluster.find(old).await?, *force).await?;
        let Some(source) = &found.record else {
            if tries > 0 && target.record.is_some() {
                let preview = Preview::new(&format!("the record of node {old} is already renamed"));
                return Ok(Proposal { preview, writes: Vec::new(), done });
            }
            bail!("nothing is stored for node {old} in namespace {}", cluster.namespace);
        };
        let record = found.require_record()?;
        if found.node.is_some() && !force {
            bail!("node {old} exists, and its record follows it: give --force to move its labels to {new}");
        }
        let existing = target.record.as_ref().map(|_| target.require_record()).transpose()?;
        // Only the deletion is missing: the attempt before has written the new record.
        let planned = self.planned.borrow().clone().filter(|(before, renamed, _)| {
            tries > 0 && is_same(before, record) && existing.is_some_and(|it| is_same(it, renamed))
        });
        if let Some((_, _, preview)) = planned {
            return Ok(Proposal { preview, writes: vec![Write::delete(source)?], done });
        }
        // The same for another rename that was interrupted.
        let is_real = |uid: &&Uid| uid.as_str() != NOBODY;
        let is_half_done = record.uid.as_ref().filter(is_real).is_some()
            && existing.is_some_and(|existing| existing.uid == record.uid && is_same(existing, record));
        if existing.is_some() && !is_half_done && !replace {
            let get = cluster.hints.plugin(&format!("get {}", quoted(new)));
            bail!("node {new} has a record (`{get}` shows it): give --replace to replace it");
        }
        let seen = cluster.absence(&target).await?;
        let preview = preview(&self.args, &found, &target, &cluster.rules);
        let mut writes = Vec::new();
        if !is_half_done {
            let renamed = renamed(record, &target, seen, &cluster.rules);
            writes.push(match &target.record {
                Some(replaced) => Write::replace(&renamed, replaced, Some(&source.config_map))?,
                None => Write::create(&renamed, Some(&source.config_map))?,
            });
            self.planned.replace(Some((record.clone(), renamed, preview.clone())));
        }
        // The deletion comes last: an interruption leaves two records, and never none.
        writes.push(Write::delete(source)?);
        Ok(Proposal { preview, writes, done })
    }
}

/// True if both have the same content, apart from the name and the parts that every write changes.
fn is_same(this: &Record, other: &Record) -> bool {
    let (mine, theirs) = (&this.more, &other.more);
    (&this.labels, &this.leftovers) == (&other.labels, &other.leftovers)
        && (&mine.machine, &mine.withheld) == (&theirs.machine, &theirs.withheld)
        && mine.history == theirs.history
}

/// The record under its new name. It keeps its incarnation: no Node of the new name has that, so it is restored to the next one.
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
    let all = |found: &Found| -> Labels {
        let items = found.record().into_iter().flat_map(Record::all);
        items.map(|(name, value, _)| (name.to_owned(), value.to_owned())).collect()
    };
    let mut preview = Preview::new(&format!("the record of node {old} becomes the record of node {new}:"));
    for Difference { name, before, after } in differences(&all(target), &all(found)) {
        preview.changes(&name, before.as_deref(), after.as_deref());
    }
    preview.also(&format!("the record of node {old} is deleted"));
    if found.node.is_some() {
        preview.note(&format!("node {old} exists: the storer creates a new record from its labels"));
    } else if found.is_departing() {
        preview.note(NOT_DEPARTED);
    }
    let Some(node) = &target.node else { return preview };
    let is_other = |record: &Record| node.extras.machine.differs_from(&record.more.machine);
    preview.note(&if node.is_ignored() {
        format!("node {new} has the annotation {IGNORE}: it is not restored until that is removed")
    } else if rules.is_fenced() && found.record().is_some_and(is_other) {
        format!("node {new} is another machine, and the rules have a fence: use `restore --other-machine`")
    } else {
        format!("node {new} exists: the restorer adds the labels that it lacks")
    });
    preview
}
