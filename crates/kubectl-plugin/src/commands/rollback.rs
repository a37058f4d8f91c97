//! Brings an earlier version of a Node's labels back.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use label_storage::item::Item;
use label_storage::node::KEEP;
use label_storage::record::{Version, WithheldValue};
use label_storage::restore::{Reason, decide, is_never_kept};
use label_storage::rules::Trust;
use label_storage::rules::patterns::{KeyKind, MACHINE_FACTS, Patterns};
use label_storage::store::Stored;
use label_storage::{Node, Record, ResourceVersion, Rules};
use label_storage_runtime::records;

use crate::Ended;
use crate::cli::Change;
use crate::cluster::Cluster;
use crate::node_patch;
use crate::preview::Preview;
use crate::node_presence::{NOT_DEPARTED, Wait, NodePresence};
use crate::write::{Operation, Proposal, Write, carry_out};

/// Flags of `rollback`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The node, by name
    #[arg(value_name = "NODE")]
    pub node: String,

    /// The version to go back to, by its generation, as `history` shows it
    #[arg(long, value_name = "GENERATION")]
    pub to: u64,

    /// Bring labels under node-restriction.kubernetes.io/ back, too, whichever machine had them
    #[arg(long)]
    pub trust: bool,

    /// Also where no storer notes that the node is gone: what it was given last may be lost then
    #[arg(long)]
    pub force: bool,

    /// Whether to ask.
    #[command(flatten)]
    pub change: Change,
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let change = args.change;
    carry_out(cluster, change, "Roll this back?", &[Rollback { wait: Wait::new(args.force), args }]).await
}

struct Rollback {
    args: Args,
    wait: Wait,
}

impl Operation for Rollback {
    fn node(&self) -> &str {
        &self.args.node
    }

    async fn plan(&self, cluster: &Cluster, _: u32) -> Result<Proposal> {
        let name = &self.args.node;
        let found = cluster.once_departed(cluster.find_known(name).await?, &self.wait).await?;
        let (Some(config_map), Stored::Record(record)) = (&found.record, found.stored()) else {
            let what = found.record.as_ref().and_then(records::Found::complaint);
            match what {
                Some(what) => bail!("the record of node {name} can't be used: {what}"),
                None => bail!("nothing is stored of node {name}"),
            }
        };
        let version = version(record, self.args.to)?;
        match (&found.node, cluster.node_presence(&found).await?) {
            (Some(node), NodePresence::Present(_)) => {
                cluster.require_uncontested(&found).await?;
                self.plan_node(cluster, node, record, version)
            }
            (None, NodePresence::Absent(seen)) => self.plan_record(cluster, config_map, record, version, seen),
            (None, NodePresence::Present(others)) => bail!("the node is there as {}", others.join(" and ")),
            (Some(_), NodePresence::Absent(_)) => bail!("node {name} was just deleted: try again"),
        }
    }
}

/// The version of this generation.
fn version(record: &Record, generation: u64) -> Result<&Version> {
    let name = &record.node;
    if let Some(version) = record.more.history.iter().find(|version| version.generation == generation) {
        return Ok(version);
    }
    if record.labels_generation == Some(generation) {
        bail!("generation {generation} is what is stored of node {name} now");
    }
    let all: Vec<_> = record.more.history.iter().map(|version| version.generation.to_string()).collect();
    if all.is_empty() {
        bail!("no earlier version is stored of node {name}");
    }
    bail!("generation {generation} is not stored of node {name}: there are {}", all.join(", "));
}

/// What a version can tell of. A storer writes down what its rules have it keep at that time, and not by which rules: what it lacks may have
/// been missing on the Node, or may not have been looked at.
struct Covered<'a> {
    rules: &'a Rules,
    keep: Option<Patterns>,
    has_annotations: bool,
    has_taints: bool,
}

impl<'a> Covered<'a> {
    fn by(version: &Version, rules: &'a Rules, keep: Option<Patterns>) -> Self {
        let has =
            |is: fn(Item<'_>) -> bool| version.labels.keys().filter_map(|name| Item::parse(name)).any(is);
        Self {
            rules,
            keep,
            has_annotations: has(|kept| matches!(kept, Item::Annotation(key) if key != KEEP)),
            has_taints: has(|kept| matches!(kept, Item::Taint { .. })),
        }
    }

    /// Why it can't be told that something was missing then, though the version does not have it.
    fn why_not(&self, name: &str, kept: Item<'_>) -> Option<&'static str> {
        match kept {
            _ if !self.rules.keeps(name, self.keep.as_ref()) => Some("the rules do not keep it"),
            // It is always looked at.
            Item::Annotation(KEEP) => None,
            Item::Annotation(_) if !self.has_annotations => Some("that version has no annotations at all"),
            Item::Taint { .. } if !self.has_taints => Some("that version has no taints at all"),
            Item::Cordon => Some("that version does not say whether the node was cordoned"),
            _ => None,
        }
    }
}

impl Rollback {
    fn is_distrusted(&self, kept: Item<'_>, cluster: &Cluster) -> bool {
        kept.is_trust() && cluster.rules.trust == Trust::SameMachine && !self.args.trust
    }

    /// The Node is there, and what it has is what is stored: so it is the Node that is changed.
    fn plan_node(&self, cluster: &Cluster, node: &Node, record: &Record, version: &Version) -> Result<Proposal> {
        let name = &node.name;
        let mut preview =
            Preview::new(format!("node {name} gets back what it had in generation {}:", self.args.to));
        match decide(&node.summary(), Stored::Record(record.summary())) {
            Reason::Returned => bail!(
                "node {name} is still to be restored: do that first, with `kubectl label-storage restore {name}`"
            ),
            Reason::Ignored => {
                preview.note("it has the annotation label-storage/ignore: this is not stored");
            }
            _ => (),
        }
        let facts = Patterns::of(KeyKind::Label, [MACHINE_FACTS])?;
        let is_ours = |kept: Item<'_>| match kept {
            Item::Label(key) => !facts.matches(key),
            _ => !is_never_kept(kept),
        };
        let mut edits = BTreeMap::new();
        for (name, value) in &version.labels {
            let Some(kept) = Item::parse(name).filter(|kept| is_ours(*kept)) else { continue };
            let own = node.value_of(kept);
            if own == Some(value) {
                continue;
            }
            if self.is_distrusted(kept, cluster) {
                preview.note(format!(
                    "{name} is left alone, since it may have been another machine's: --trust gives it"
                ));
                continue;
            }
            preview.changes(name, own, Some(value));
            edits.insert(name.clone(), Some(value.clone()));
        }
        // What nobody ever stored stays.
        let past = record.more.history.iter().flat_map(|version| version.labels.keys());
        let known: BTreeSet<_> = record.labels.keys().chain(past).collect();
        let covered = Covered::by(version, &cluster.rules, node.keep_patterns());
        for name in known.into_iter().filter(|name| !version.labels.contains_key(*name)) {
            let Some(kept) = Item::parse(name).filter(|kept| is_ours(*kept)) else { continue };
            let Some(own) = node.value_of(kept) else { continue };
            match covered.why_not(name, kept) {
                Some(why) => preview.note(format!("{name} is left alone: {why}")),
                None => {
                    preview.changes(name, Some(own), None);
                    edits.insert(name.clone(), None);
                }
            }
        }
        let mut writes = Vec::new();
        if edits.is_empty() {
            preview.note("it has all of it");
        } else {
            writes.push(Write::patch(node, &node_patch::changing(node, &edits))?);
        }
        Ok(Proposal { preview, writes, done: format!("node/{name} rolled back, and the storer stores that") })
    }

    /// The Node is away: it will come back with what is stored.
    fn plan_record(
        &self,
        cluster: &Cluster,
        found: &records::Found,
        record: &Record,
        version: &Version,
        seen: ResourceVersion,
    ) -> Result<Proposal> {
        let name = &record.node;
        let mut labels = version.labels.clone();
        let mut withheld = record.more.withheld.clone();
        let mut notes = Vec::new();
        let covered = Covered::by(version, &cluster.rules, record.keep_patterns());
        for (name, value) in record.labels.iter().filter(|(name, _)| !version.labels.contains_key(*name)) {
            if let Some(why) = Item::parse(name).and_then(|kept| covered.why_not(name, kept)) {
                notes.push(format!("{name} is left alone: {why}"));
                labels.insert(name.clone(), value.clone());
            }
        }
        // The record may have gone through several machines since, and none is to have what another was trusted with.
        let distrusted = labels.extract_if(.., |name, value| {
            record.labels.get(name) != Some(value)
                && Item::parse(name).is_some_and(|kept| self.is_distrusted(kept, cluster))
        });
        for (name, value) in distrusted {
            notes.push(format!(
                "{name} is set aside, since it may have been another machine's: --trust gives it"
            ));
            let is_same = withheld.get(&name).is_some_and(|kept| kept.value == value);
            if !is_same {
                withheld.insert(name, WithheldValue { value, system_uuid: None });
            }
        }
        let heading = format!("node {name} will come back with what it had in generation {}:", self.args.to);
        let mut preview = Preview::between(heading, &record.labels, &labels);
        notes.iter().for_each(|what| preview.note(what));
        let edited = record.edited(labels, withheld, Some(seen), jiff::Timestamp::now(), &cluster.rules);
        let is_same = edited.labels == record.labels && edited.more.withheld == record.more.withheld;
        let mut writes = Vec::new();
        if is_same {
            preview.note("it is so already");
        } else {
            if record.uid.is_some() && record.departed_at.is_none() {
                preview.note(NOT_DEPARTED);
            }
            writes.push(Write::replace(&edited, found, None)?);
        }
        Ok(Proposal { preview, writes, done: format!("record of node/{name} rolled back") })
    }
}
