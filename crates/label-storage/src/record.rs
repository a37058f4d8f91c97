//! The record: one ConfigMap for each Node. People can read and edit it, so everything in it is checked.

mod config_map;
mod damage;
mod history;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;

use self::config_map::{DataItem, read_entry};
pub use self::damage::{Damage, Decoded, TooLarge, Unreadable};
use crate::item::Item;
use crate::node::Machine;
use crate::rules::{OtherMachine, Rules, Winner};
use crate::withheld::{EVERYTHING, Why};
use crate::{Labels, Node, ResourceVersion, Uid};

/// The label of a ConfigMap that is a record.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "label-storage");
/// The full name of the Node. The ConfigMap's own name may be shortened.
pub const NODE: &str = "label-storage/node";
/// The incarnation that the labels were read from.
pub const NODE_UID: &str = "label-storage/node-uid";
/// The version of the Node that the labels were read from.
pub const NODE_RESOURCE_VERSION: &str = "label-storage/node-resource-version";
/// Counts the writes of the record.
pub const GENERATION: &str = "label-storage/generation";
/// The generation in which the labels last changed. A marker of an earlier one does not hold.
pub const LABELS_GENERATION: &str = "label-storage/labels-generation";
/// The time at which the labels were read from the Node.
pub const CAPTURED_AT: &str = "label-storage/captured-at";
/// The time at which the Node was found deleted; absent while it exists.
pub const DEPARTED_AT: &str = "label-storage/departed-at";
/// The identity that the record is filed under, if that is not the Node's name.
pub const IDENTITY: &str = "label-storage/identity";
/// The provider ID of the machine that the labels were read from.
pub const PROVIDER_ID: &str = "label-storage/provider-id";
/// The system UUID of the machine that the labels were read from.
pub const SYSTEM_UUID: &str = "label-storage/system-uuid";
/// The names of the withheld items, each with the Node and the machine that it was read from.
pub const WITHHELD: &str = "label-storage/withheld";

/// The size limit of a ConfigMap. The API server counts values alone; counting keys too keeps a record clear of etcd's
/// own limit on a request.
const MAX_BYTES: usize = 1 << 20;

/// The stored items of one Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// The uid of the ConfigMap that it was read from; `None` before it is written.
    pub config_map: Option<Uid>,
    /// The Node's full name.
    pub node: String,
    /// The incarnation that the labels were read from. `None` if a person wrote them for a Node that is still to come, or
    /// if the annotation is lost: then the record belongs to no living incarnation, and its labels are restored.
    pub uid: Option<Uid>,
    /// The version of the Node that the labels were read from.
    pub node_version: Option<ResourceVersion>,
    /// Counts the writes of this record.
    pub generation: u64,
    /// The generation in which the labels last changed. Never above `generation`.
    pub labels_generation: Option<u64>,
    /// The time at which the labels were read from the Node.
    pub captured_at: Option<Timestamp>,
    /// The time at which the Node was found deleted.
    pub departed_at: Option<Timestamp>,
    /// The items that are restored, by name (see [`Item`]).
    pub labels: Labels,
    /// Identity, machine, withheld items and history.
    pub more: More,
    /// Other entries of the ConfigMap, which are written back unchanged.
    pub leftovers: Leftovers,
}

/// The parts of a record that most Nodes do not need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct More {
    /// The identity that it is filed under, if that is not the Node's name.
    pub identity: Option<String>,
    /// The machine that the labels were read from.
    pub machine: Machine,
    /// The items of earlier incarnations that this one was not given, by name. They are no difference from the Node.
    pub withheld: BTreeMap<String, WithheldValue>,
    /// Earlier versions of the labels, the latest last.
    pub history: Vec<Version>,
    /// True if the labels are final labels that are not stored yet (see `anticipate`).
    pub is_anticipated: bool,
    /// True if the ConfigMap has lost the label of records. The next write adds it.
    pub is_unlabelled: bool,
}

/// An item that was not restored, and its [`Origin`]. The next return of the Node tries it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithheldValue {
    /// The value of the item.
    pub value: String,
    /// The name of the Node that it was read from, if it is known.
    pub node: Option<String>,
    /// The machine that it was read from, as far as it is known.
    pub machine: Machine,
}

/// The Node and the machine that an item was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin<'a> {
    /// The Node's name, if it is known.
    pub node: Option<&'a str>,
    /// The machine, as far as it is known.
    pub machine: &'a Machine,
}

impl Origin<'_> {
    /// The reason to withhold an item of this origin from a Node of another name or machine.
    pub(crate) fn withholds(self, item: Item<'_>, node: &Node, rules: &Rules) -> Option<Why> {
        if item.is_trust() && rules.identity.is_forgeable() && self.node != Some(&node.name) {
            return Some(Why::OtherName);
        }
        let is_withheld = match rules.other_machine {
            OtherMachine::All => false,
            OtherMachine::Untrusted => item.is_trust(),
            OtherMachine::None => true,
        };
        (is_withheld && node.extras.machine.differs_from(self.machine)).then_some(Why::OtherMachine)
    }

    fn withheld(self, value: &str) -> WithheldValue {
        let node = self.node.map(str::to_owned);
        WithheldValue { value: value.to_owned(), node, machine: self.machine.clone() }
    }
}

/// An earlier version of the labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The generation of the record in which they were stored.
    pub generation: u64,
    /// The time at which they were read.
    pub at: Option<Timestamp>,
    /// All items, by name.
    pub labels: Labels,
}

/// Entries of a record that are not items, and items that the reader's rules do not store (see [`Record::seen_through`]).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Entries of `data`.
    pub data: BTreeMap<String, String>,
    /// All of `binaryData`.
    pub binary_data: BTreeMap<String, ByteString>,
}

impl Leftovers {
    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty() && self.binary_data.is_empty()
    }
}

impl Record {
    /// An empty record for a Node that is still to come.
    pub fn awaiting(node: &str, identity: Option<String>) -> Self {
        let more = More { identity, ..More::default() };
        Self { node: node.to_owned(), more, ..Self::default() }
    }

    /// The first record of this Node.
    pub fn of(node: &Node, now: Timestamp) -> Self {
        let mut record = Self::tombstone(node, now);
        record.uid = Some(node.uid.clone());
        record.node_version = Some(node.version);
        record.labels = node.labels.clone();
        record.more.machine = node.extras.machine.clone().checked();
        record
    }

    /// An empty record, older than any other. While it exists, the API server refuses every other create.
    pub fn tombstone(node: &Node, now: Timestamp) -> Self {
        Self {
            node_version: Some(ResourceVersion(0)),
            generation: 1,
            labels_generation: Some(1),
            captured_at: Some(now),
            ..Self::awaiting(&node.name, node.extras.identity.clone())
        }
    }

    /// The key of the record: see [`Node::filed_under`].
    pub fn filed_under(&self) -> &str {
        self.more.identity.as_deref().unwrap_or(&self.node)
    }

    /// The next generation of this record, with the Node's labels.
    pub fn retaken(&self, node: &Node, now: Timestamp, rules: &Rules) -> Self {
        // Only the first record of an incarnation needs the names in its marker. Later, an item that the Node lacks was
        // removed from it.
        let is_of = self.uid.as_ref() == Some(&node.uid);
        let mut withheld: Vec<_> = node.withheld().filter(|_| !is_of).collect();
        if withheld.contains(&EVERYTHING) {
            withheld = self.all().map(|(name, _, _)| name).collect();
        }
        let mut next = self.followed_by(Self::of(node, now), &withheld, is_of, rules);
        // A restorer names all items that it withholds. The Node was given the others, and has lost those that it lacks.
        let keep = node.keep_patterns();
        next.more.withheld.retain(|name, _| {
            let was_given =
                !is_of && self.more.withheld.contains_key(name) && !withheld.contains(&name.as_str());
            !(was_given && rules.keeps(name, keep.as_ref()))
        });
        next
    }

    /// The next generation of this record, with the labels of an unrestored incarnation merged over its own.
    pub fn merged(&self, node: &Node, now: Timestamp, rules: &Rules) -> Self {
        // As in a restore, the record can win only over a Node that was never restored.
        let is_first = node.restored_from().is_none();
        let is_for = |item: Item<'_>| self.origin().withholds(item, node, rules).is_none();
        let wins = |name: &str| {
            is_first
                && rules.conflicts.winner(name) == Winner::Record
                && Item::parse(name).is_some_and(is_for)
        };
        // The Node did not have these. They keep their origin.
        let is_lost = |name: &str| is_trust(name) && !node.labels.contains_key(name);
        let (withheld, mut labels): (Labels, Labels) =
            self.labels.clone().into_iter().partition(|(name, _)| is_lost(name));
        // The Node's own list of labels to keep was not restored yet.
        let keep = if node.keep_list().is_none() { self.keep_patterns() } else { None };
        let is_kept = |name: &str| keep.is_none() || rules.keeps(name, keep.as_ref());
        for (name, value) in &node.labels {
            let counts = if labels.contains_key(name) { !wins(name) } else { is_kept(name) };
            if counts {
                labels.insert(name.clone(), value.clone());
            }
        }
        let withheld: Vec<_> = withheld.keys().map(String::as_str).collect();
        self.followed_by(Self { labels, ..Self::of(node, now) }, &withheld, false, rules)
    }

    /// Turns `next`, made from a Node, into the next generation of this record. `is_of` is true if the incarnation is the same.
    fn followed_by(&self, next: Self, newly_withheld: &[&str], is_of: bool, rules: &Rules) -> Self {
        let generation = self.generation.saturating_add(1);
        let changed = next.labels != self.labels;
        let labels_generation = if changed { Some(generation) } else { self.labels_generation };
        let mut more = next.more;
        // Only the metadata of the Node was read.
        if more.machine.is_unknown() && is_of {
            more.machine = self.more.machine.clone();
        }
        let mut leftovers = self.leftovers.clone();
        let origin = self.origin();
        more.withheld = self.more.withheld.clone();
        for (name, value) in newly_withheld.iter().filter_map(|name| self.labels.get_key_value(*name)) {
            more.withheld.insert(name.clone(), origin.withheld(value));
        }
        if next.node != self.node || more.machine.differs_from(origin.machine) {
            // Another Node or machine had the trust labels that were set aside.
            leftovers.data.retain(|data_key, value| match read_entry(data_key, value) {
                Ok(DataItem::Item(name, value)) if is_trust(&name) => {
                    more.withheld.insert(name, origin.withheld(&value));
                    false
                }
                _ => true,
            });
        }
        more.withheld.retain(|name, _| !next.labels.contains_key(name));
        more.history = self.history_after(changed, rules);
        let config_map = self.config_map.clone();
        Self { config_map, generation, labels_generation, more, leftovers, ..next }
    }

    /// The next generation of this record, with labels and withheld items that a person chose.
    ///
    /// `seen` is a version of the cluster at which the Node was gone. The event of its deletion may come late, and must not
    /// undo the edit.
    pub fn edited(
        &self,
        labels: Labels,
        mut withheld: BTreeMap<String, WithheldValue>,
        seen: Option<ResourceVersion>,
        now: Timestamp,
        rules: &Rules,
    ) -> Self {
        withheld.retain(|name, _| !labels.contains_key(name));
        let mut edited = self.touched();
        edited.more.history = self.history_after(labels != self.labels, rules);
        // An item that is no longer withheld has to be given to a Node that was restored without it.
        if labels != self.labels || withheld != self.more.withheld {
            edited.labels_generation = Some(edited.generation);
            edited.captured_at = Some(now);
        }
        edited.node_version = edited.node_version.max(seen);
        edited.more.withheld = withheld;
        edited.labels = labels;
        edited
    }

    /// The next generation of this record, otherwise unchanged.
    pub fn touched(&self) -> Self {
        Self { generation: self.generation.saturating_add(1), ..self.clone() }
    }

    /// The next generation of this record, with this departure, or none.
    pub fn with_departed_at(&self, departed_at: Option<Timestamp>) -> Self {
        Self { departed_at, ..self.touched() }
    }

    /// Undoes [`seen_through`](Self::seen_through).
    pub(crate) fn with_all_items(mut self) -> Self {
        self.leftovers.data.retain(|data_key, value| match read_entry(data_key, value) {
            Ok(DataItem::Item(name, value)) => {
                self.labels.entry(name).or_insert(value);
                false
            }
            _ => true,
        });
        self
    }

    /// True if it has nothing to restore.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.more.withheld.is_empty() && self.leftovers.is_empty()
    }

    /// All items that can be restored, the withheld ones too: name, value and origin.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str, Origin<'_>)> {
        let labels = self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str(), self.origin()));
        let withheld = self.more.withheld.iter().map(|(name, WithheldValue { value, node, machine })| {
            (name.as_str(), value.as_str(), Origin { node: node.as_deref(), machine })
        });
        labels.chain(withheld)
    }

    fn origin(&self) -> Origin<'_> {
        Origin { node: Some(&self.node), machine: &self.more.machine }
    }
}

fn is_trust(name: &str) -> bool {
    Item::parse(name).is_some_and(Item::is_trust)
}

#[cfg(test)]
mod tests;
