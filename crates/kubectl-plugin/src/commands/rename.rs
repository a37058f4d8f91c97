//! Gives the record of a Node to another name.

use std::cell::Cell;

use anyhow::{Result, bail};
use label_storage::record::{Decoded, Unreadable};
use label_storage::rules::IdentityBy;
use label_storage::{Node, Record, ResourceVersion, Rules};
use label_storage_runtime::records;

use crate::Ended;
use crate::cli::Change;
use crate::cluster::Cluster;
use crate::find::Found;
use crate::outlook::Outlook;
use crate::whereabouts::{NOT_DEPARTED, Whereabouts};
use crate::write::{Deed, Plan, Write, carry_out};

/// Flags of `rename`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The name that the node had
    #[arg(value_name = "OLD")]
    pub old: String,

    /// The name that it has now, or will return under
    #[arg(value_name = "NEW")]
    pub new: String,

    /// Replace what is stored under the new name, if anything is
    #[arg(long)]
    pub replace: bool,

    /// Also while a node of the old name is there
    #[arg(long)]
    pub force: bool,

    /// Whether to ask.
    #[command(flatten)]
    pub change: Change,
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    if cluster.rules.identity != IdentityBy::Name {
        bail!(
            "nodes are known by {} here: a record follows that, whatever the node's name is",
            cluster.rules.identity
        );
    }
    if args.old == args.new {
        bail!("{} and {} are one name", args.old, args.new);
    }
    let change = args.change;
    carry_out(cluster, change, "Rename this?", &[Rename { args, has_waited: Cell::new(false) }]).await
}

struct Rename {
    args: Args,
    has_waited: Cell<bool>,
}

impl Deed for Rename {
    fn node(&self) -> &str {
        &self.args.old
    }

    async fn plan(&self, cluster: &Cluster, tries: u32) -> Result<Plan> {
        let Args { old, new, .. } = &self.args;
        let done = format!("record of node/{old} renamed to node/{new}");
        let theirs = cluster.find(new).await?;
        let mut found = cluster.find(old).await?;
        if !self.has_waited.replace(true) {
            found = cluster.once_departed(found).await?;
        }
        let Some(moved) = &found.record else {
            if tries > 0 && theirs.record.is_some() {
                let outlook = Outlook::new(format!("nothing is stored of node {old} any more"));
                return Ok(Plan { outlook, writes: Vec::new(), done });
            }
            bail!("nothing is stored of node {old} in namespace {}", cluster.namespace);
        };
        let record = usable(moved)?;
        if found.node.is_some() && !self.args.force {
            bail!(
                "node {old} is there, and its record follows it: give --force to have what it has now given to {new} as well"
            );
        }
        let existing = theirs.record.as_ref().map(usable).transpose()?;
        // It was done, but for the end of it.
        let is_there_already =
            existing.is_some_and(|existing| existing.uid == record.uid && existing.labels == record.labels);
        if existing.is_some() && !is_there_already && !self.args.replace {
            bail!(
                "something is stored of node {new} already: `kubectl label-storage get {new}` shows it, --replace replaces it"
            );
        }
        let seen = match cluster.whereabouts(&theirs).await? {
            Whereabouts::Away(seen) => Some(seen),
            Whereabouts::There(_) => None,
        };
        let mut outlook = show(old, new, record, existing);
        notes(&mut outlook, old, &theirs, &found, record, &cluster.rules);
        let mut writes = Vec::new();
        match (&theirs.record, existing) {
            _ if is_there_already => (),
            (Some(config_map), Some(existing)) => {
                writes.push(Write::replace(
                    &replaced(existing, record, &theirs, seen, &cluster.rules),
                    config_map,
                )?);
            }
            _ => {
                let renamed = renamed(record, new, &theirs, seen);
                writes.push(Write::create(&renamed, Some(&moved.config_map))?);
            }
        }
        // Last, so that whatever happens in between there are two, and not none.
        writes.push(Write::delete(moved)?);
        Ok(Plan { outlook, writes, done })
    }
}

fn usable(found: &records::Found) -> Result<&Record> {
    match &found.content {
        Ok(Decoded { record, .. }) => Ok(record),
        Err(error @ Unreadable::Foreign(_)) => bail!("this is not a record: {error}"),
        Err(error) => bail!("a record can't be read: {error}"),
    }
}

/// The record under its new name. The incarnation stays: none of the new name is it, so the record is given to whichever comes.
fn renamed(record: &Record, new: &str, theirs: &Found, seen: Option<ResourceVersion>) -> Record {
    let generation = generation_beyond(record.generation, theirs);
    let mut renamed = record.clone();
    renamed.node = new.to_owned();
    renamed.generation = generation;
    renamed.labels_generation = Some(generation);
    renamed.node_version = renamed.node_version.max(seen);
    // How long a record is kept counts anew under a new name.
    renamed.departed_at = None;
    renamed
}

/// The record in the place of another, which goes into the history.
fn replaced(
    existing: &Record,
    record: &Record,
    theirs: &Found,
    seen: Option<ResourceVersion>,
    rules: &Rules,
) -> Record {
    let now = jiff::Timestamp::now();
    let edited = existing.edited(record.labels.clone(), record.more.withheld.clone(), seen, now, rules);
    let generation = generation_beyond(record.generation.max(existing.generation), theirs);
    let mut renamed = renamed(record, &existing.node, theirs, seen);
    renamed.node_version = edited.node_version.max(renamed.node_version);
    renamed.generation = generation;
    renamed.labels_generation = Some(generation);
    renamed.captured_at = edited.captured_at;
    renamed.more.history = edited.more.history;
    renamed.leftovers.data.extend(existing.leftovers.data.clone());
    renamed.leftovers.binary_data.extend(existing.leftovers.binary_data.clone());
    renamed
}

/// Beyond what the Node of the new name has been restored from, if it is there: or it would count as restored.
fn generation_beyond(generation: u64, theirs: &Found) -> u64 {
    let restored_from = theirs.node.as_ref().and_then(Node::restored_from);
    generation.max(restored_from.unwrap_or_default()).saturating_add(1)
}

fn show(old: &str, new: &str, record: &Record, existing: Option<&Record>) -> Outlook {
    let all =
        |record: &Record| record.all().map(|(name, value, _)| (name.to_owned(), value.to_owned())).collect();
    let (before, after) = (existing.map(all).unwrap_or_default(), all(record));
    let heading = format!("what is stored of node {old} is stored of node {new} instead:");
    let mut outlook = Outlook::between(heading, &before, &after);
    outlook.also(format!("the record of node {old} is deleted"));
    outlook
}

fn notes(outlook: &mut Outlook, old: &str, theirs: &Found, found: &Found, record: &Record, rules: &Rules) {
    if found.node.is_some() {
        outlook.note(format!("node {old} is there: the storer makes a new record of what it has"));
    } else if record.uid.is_some() && record.departed_at.is_none() {
        outlook.note(NOT_DEPARTED);
    }
    let Some(node) = &theirs.node else { return };
    let name = &node.name;
    if rules.is_fenced() && node.extras.machine.differs_from(&record.more.machine) {
        outlook.note(format!(
            "node {name} is another machine, and the rules have a fence: `kubectl label-storage restore {name} --other-machine`"
        ));
    } else {
        outlook.note(format!("node {name} is there: the restorer gives it what it lacks of this"));
    }
}
