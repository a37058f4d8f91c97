//! Gives the record of a Node to another name.

use std::cell::RefCell;

use anyhow::{Result, bail};
use label_storage::node::IGNORE;
use label_storage::record::{Decoded, Unreadable};
use label_storage::rules::IdentityBy;
use label_storage::{Node, Record, ResourceVersion, Rules, Uid};
use label_storage_runtime::records;

use crate::Ended;
use crate::cli::Change;
use crate::cluster::Cluster;
use crate::commands::import::NOBODY;
use crate::find::Found;
use crate::preview::Preview;
use crate::node_presence::{NOT_DEPARTED, Wait, NodePresence};
use crate::write::{Operation, Proposal, Write, carry_out};

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

    /// Also while a node of the old name is there, or no storer notes that it is gone: what it was given last may be lost then
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
    carry_out(cluster, change, "Rename this?", &[Rename::new(args)]).await
}

struct Rename {
    args: Args,
    wait: Wait,
    planned: RefCell<Option<Planned>>,
}

/// What was last planned.
struct Planned {
    /// Under the old name.
    source: Record,
    /// Under the new one.
    renamed: Record,
    /// And what was shown of that.
    preview: Preview,
}

impl Rename {
    fn new(args: Args) -> Self {
        Self { wait: Wait::new(args.force), planned: RefCell::new(None), args }
    }
}

impl Operation for Rename {
    fn node(&self) -> &str {
        &self.args.old
    }

    async fn plan(&self, cluster: &Cluster, tries: u32) -> Result<Proposal> {
        let Args { old, new, .. } = &self.args;
        let done = format!("record of node/{old} renamed to node/{new}");
        let theirs = cluster.find(new).await?;
        let found = cluster.once_departed(cluster.find(old).await?, &self.wait).await?;
        let Some(moved) = &found.record else {
            if tries > 0 && theirs.record.is_some() {
                let preview = Preview::new(format!("nothing is stored of node {old} any more"));
                return Ok(Proposal { preview, writes: Vec::new(), done });
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
        // It was done, but for the end of it: by an attempt before this one, or by another rename.
        let planned = self.planned.take().filter(|planned| {
            let is_there = existing.is_some_and(|existing| holds_all(existing, &planned.renamed));
            tries > 0 && is_there && holds_all(&planned.source, record)
        });
        if let Some(planned) = planned {
            let preview = planned.preview.clone();
            self.planned.replace(Some(planned));
            return Ok(Proposal { preview, writes: vec![Write::delete(moved)?], done });
        }
        let is_of_its_own = |uid: &&Uid| uid.as_str() != NOBODY;
        let is_half_done = existing.is_some_and(|existing| {
            existing.uid.as_ref().filter(is_of_its_own) == record.uid.as_ref()
                && record.uid.is_some()
                && holds_all(existing, record)
        });
        if existing.is_some() && !is_half_done && !self.args.replace {
            bail!(
                "something is stored of node {new} already: `kubectl label-storage get {new}` shows it, --replace replaces it"
            );
        }
        let seen = match cluster.node_presence(&theirs).await? {
            NodePresence::Absent(seen) => Some(seen),
            NodePresence::Present(_) => None,
        };
        let mut preview = show(old, new, record, existing);
        notes(&mut preview, old, &theirs, &found, record, &cluster.rules);
        let mut writes = Vec::new();
        let renamed = match (&theirs.record, existing) {
            _ if is_half_done => None,
            (Some(config_map), Some(existing)) => {
                let (replaced, lost) = replaced(existing, record, &theirs, seen, &cluster.rules);
                if lost > 0 {
                    preview.note(format!(
                        "of both histories, the {lost} oldest versions go: the rules keep {}",
                        cluster.rules.history
                    ));
                }
                writes.push(Write::replace(&replaced, config_map, Some(&moved.config_map))?);
                Some(replaced)
            }
            _ => {
                let renamed = renamed(record, new, &theirs, seen);
                writes.push(Write::create(&renamed, Some(&moved.config_map))?);
                Some(renamed)
            }
        };
        // Last, so that whatever happens in between there are two, and not none.
        writes.push(Write::delete(moved)?);
        let planned = |renamed| Planned { source: record.clone(), renamed, preview: preview.clone() };
        self.planned.replace(renamed.map(planned));
        Ok(Proposal { preview, writes, done })
    }
}

/// Whether nothing would be lost of a record if this one alone were left: all but its name, and what every write of it changes.
fn holds_all(this: &Record, other: &Record) -> bool {
    let (mine, theirs) = (&this.more, &other.more);
    this.labels == other.labels
        && (&mine.machine, &mine.withheld, &mine.history)
            == (&theirs.machine, &theirs.withheld, &theirs.history)
        && this.leftovers == other.leftovers
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
    // How long a record is kept counts anew under a new name, and no storer has anything to say of that Node.
    renamed.departed_at = seen.map(|_| jiff::Timestamp::now());
    renamed
}

/// The record in the place of another, which goes into the history; and how many versions of both there is no room for.
fn replaced(
    existing: &Record,
    record: &Record,
    theirs: &Found,
    seen: Option<ResourceVersion>,
    rules: &Rules,
) -> (Record, usize) {
    let mut replaced = renamed(record, &existing.node, theirs, seen);
    replaced.more.history = existing.history_under(record, rules);
    let newest = replaced.more.history.last().map_or(0, |version| version.generation);
    replaced.generation = generation_beyond(record.generation.max(existing.generation).max(newest), theirs);
    replaced.labels_generation = Some(replaced.generation);
    replaced.node_version = existing.node_version.max(replaced.node_version);
    replaced.captured_at = Some(jiff::Timestamp::now());
    replaced.leftovers.data.extend(existing.leftovers.data.clone());
    replaced.leftovers.binary_data.extend(existing.leftovers.binary_data.clone());
    let unbounded = Rules { history: usize::MAX, ..rules.clone() };
    let lost = existing.history_under(record, &unbounded).len() - replaced.more.history.len();
    (replaced, lost)
}

/// Beyond what the Node of the new name has been restored from, if it is there: or it would count as restored.
fn generation_beyond(generation: u64, theirs: &Found) -> u64 {
    let restored_from = theirs.node.as_ref().and_then(Node::restored_from);
    generation.max(restored_from.map_or(0, |from| from.generation)).saturating_add(1)
}

fn show(old: &str, new: &str, record: &Record, existing: Option<&Record>) -> Preview {
    let all =
        |record: &Record| record.all().map(|(name, value, _)| (name.to_owned(), value.to_owned())).collect();
    let (before, after) = (existing.map(all).unwrap_or_default(), all(record));
    let heading = format!("what is stored of node {old} is stored of node {new} instead:");
    let mut preview = Preview::between(heading, &before, &after);
    preview.also(format!("the record of node {old} is deleted"));
    preview
}

fn notes(preview: &mut Preview, old: &str, theirs: &Found, found: &Found, record: &Record, rules: &Rules) {
    if found.node.is_some() {
        preview.note(format!("node {old} is there: the storer makes a new record of what it has"));
    } else if found.is_departing() {
        preview.note(NOT_DEPARTED);
    }
    let Some(node) = &theirs.node else { return };
    let name = &node.name;
    if node.is_ignored() {
        preview.note(format!(
            "node {name} has the annotation {IGNORE}: it is given nothing of this until that is removed"
        ));
    } else if rules.is_fenced() && node.extras.machine.differs_from(&record.more.machine) {
        preview.note(format!(
            "node {name} is another machine, and the rules have a fence: `kubectl label-storage restore {name} --other-machine`"
        ));
    } else {
        preview.note(format!("node {name} is there: the restorer gives it what it lacks of this"));
    }
}
