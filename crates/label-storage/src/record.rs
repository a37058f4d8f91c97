//! The record: one ConfigMap for each Node, readable and editable by people, and therefore hostile until checked.

mod config_map;
mod damage;
mod edited;
mod history;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;

use self::config_map::{DataItem, read_entry};
pub use self::damage::{Damage, Decoded, TooLarge, Unreadable};
use crate::item::Item;
use crate::node::{EVERYTHING, Machine};
use crate::rules::{Rules, Trust, Winner};
use crate::{Labels, Node, ResourceVersion, Uid};

/// The label that tells a record from somebody else's ConfigMap.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "label-storage");
/// The full name of the node: the ConfigMap's own name may be shortened.
pub const NODE: &str = "label-storage/node";
/// The incarnation that the labels were read from.
pub const NODE_UID: &str = "label-storage/node-uid";
/// The resourceVersion of the node that the labels were read from.
pub const NODE_RESOURCE_VERSION: &str = "label-storage/node-resource-version";
/// One more with every write of the record.
pub const GENERATION: &str = "label-storage/generation";
/// The generation in which the labels last changed: what a marker has to name for its node to have them all.
pub const LABELS_GENERATION: &str = "label-storage/labels-generation";
/// When the labels were read from the node.
pub const CAPTURED_AT: &str = "label-storage/captured-at";
/// Since when the node is gone; absent while it is there.
pub const DEPARTED_AT: &str = "label-storage/departed-at";
/// What the record is filed under, where that is not the node's name.
pub const IDENTITY: &str = "label-storage/identity";
/// The machine that the labels were read from, by the cloud's name for it.
pub const PROVIDER_ID: &str = "label-storage/provider-id";
/// The machine that the labels were read from, by its own.
pub const SYSTEM_UUID: &str = "label-storage/system-uuid";
/// What is not on the node because it was not given back: each name, with the machine that had it.
pub const WITHHELD: &str = "label-storage/withheld";

/// What a ConfigMap may hold. The API server counts values alone; counting keys too keeps a record clear of etcd's
/// own limit on a request.
const MAX_BYTES: usize = 1 << 20;

/// What is stored of one Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The uid of the ConfigMap that it was read from; `None` before it is written.
    pub config_map: Option<Uid>,
    /// The Node's full name.
    pub node: String,
    /// The incarnation that the labels were read from. `None` where they were read from none (a person wrote them down for a Node
    /// that is still to come), or the record doesn't say: then it belongs to no living one, and its labels are restored.
    pub uid: Option<Uid>,
    /// The version of the Node that the labels were read from.
    pub node_version: Option<ResourceVersion>,
    /// Counts the writes of this record.
    pub generation: u64,
    /// The generation in which the labels last changed. Never above `generation`.
    pub labels_generation: Option<u64>,
    /// When the labels were read from the Node.
    pub captured_at: Option<Timestamp>,
    /// Since when the Node is gone.
    pub departed_at: Option<Timestamp>,
    /// What comes back with the Node: its labels, and what else is kept, by name (see [`Item`]).
    pub labels: Labels,
    /// What else there is to be known of it.
    pub more: More,
    /// What else is in the ConfigMap. Somebody meant something by it: it is written back as it was.
    pub leftovers: Leftovers,
}

/// What a record has beside what comes back with any Node of its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct More {
    /// What it is filed under, where that is not the Node's name.
    pub identity: Option<String>,
    /// The machine that the labels were read from.
    pub machine: Machine,
    /// What an earlier incarnation had and this one was not given, by name. It is no reason to take the Node's labels for changed.
    pub withheld: BTreeMap<String, WithheldValue>,
    /// What the labels were before, the latest last.
    pub history: Vec<Version>,
}

/// What was not given back, and waits for the machine that had it, or for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithheldValue {
    /// Its value.
    pub value: String,
    /// The machine that had it, by its own name; `None` where nobody knows.
    pub system_uuid: Option<String>,
}

/// What the labels were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The generation of the record that they came with.
    pub generation: u64,
    /// When they were read.
    pub at: Option<Timestamp>,
    /// All that was kept.
    pub labels: Labels,
}

/// Entries of a record that are nothing that is kept, or labels that are none of the reader's business (see
/// [`Record::seen_through`]).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Entries of `data` with a key or a value that no label has, and labels that were set aside.
    pub data: BTreeMap<String, String>,
    /// All of `binaryData`.
    pub binary_data: BTreeMap<String, ByteString>,
}

impl Leftovers {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty() && self.binary_data.is_empty()
    }

    /// Takes out those labels, set aside as nobody's business, that say that a Node can be trusted.
    fn take_trust(&mut self) -> Labels {
        let read = |(data_key, value): (&String, &String)| match read_entry(data_key, value) {
            Ok(DataItem::Item(name, value)) if is_trust(&name) => Some((name, value)),
            _ => None,
        };
        let trust: Labels = self.data.iter().filter_map(read).collect();
        self.data.retain(|data_key, value| read((data_key, value)).is_none());
        trust
    }
}

impl Record {
    /// The first record of a Node, as it looks in this view.
    pub fn of(node: &Node, now: Timestamp) -> Self {
        let (identity, machine) = (node.extras.identity.clone(), node.extras.machine.clone().checked());
        Self {
            config_map: None,
            node: node.name.clone(),
            uid: Some(node.uid.clone()),
            node_version: Some(node.version),
            generation: 1,
            labels_generation: Some(1),
            captured_at: Some(now),
            departed_at: None,
            labels: node.labels.clone(),
            more: More { identity, machine, ..More::default() },
            leftovers: Leftovers::default(),
        }
    }

    /// An empty record in the place of a Node's, which refuses any other create. It is older than whatever may be stored there.
    pub fn tombstone(node: &Node, now: Timestamp) -> Self {
        let mut tombstone = Self { uid: None, labels: Labels::new(), ..Self::of(node, now) };
        tombstone.node_version = Some(ResourceVersion(0));
        tombstone.more.machine = Machine::default();
        tombstone
    }

    /// What it is filed under: see [`Node::filed_under`].
    pub fn filed_under(&self) -> &str {
        self.more.identity.as_deref().unwrap_or(&self.node)
    }

    /// The next generation of this record, with the Node as it looks in this view.
    pub fn retaken(&self, node: &Node, now: Timestamp, rules: &Rules) -> Self {
        // What was withheld from a Node it does not have, and that is not its word. Later on it may well be: what it was given since,
        // and has lost again, was removed.
        let is_of = self.uid.as_ref() == Some(&node.uid);
        let mut withheld: Vec<_> = node.withheld().filter(|_| !is_of).collect();
        if withheld.contains(&EVERYTHING) {
            withheld = self.all().map(|(name, _, _)| name).collect();
        }
        let mut next = self.followed_by(Self::of(node, now), withheld.clone(), is_of, rules);
        // A restorer names all that it withholds. What waited for this Node and is not among that it was given; if it does not have
        // it any more, somebody has removed it.
        let keep = node.keep_patterns();
        next.more.withheld.retain(|name, _| {
            let was_given =
                !is_of && self.more.withheld.contains_key(name) && !withheld.contains(&name.as_str());
            !(was_given && rules.keeps(name, keep.as_ref()))
        });
        next
    }

    /// Sets aside what says that a Node can be trusted, where nobody knows any more which machine that was: a deletion may tell of
    /// metadata alone. What the record before has with the same value, the machine had that is named there, so it waits for that one.
    pub(crate) fn trusted_as_in(mut self, before: &Self) -> Self {
        if !self.more.machine.is_unknown() {
            return self;
        }
        let origin = |name: &str, value: &str| {
            let same = |(it, had, uuid): (_, _, Option<&str>)| {
                (it == name && had == value).then_some(uuid?.to_owned())
            };
            before.all().find_map(same).filter(|_| is_trust(name))
        };
        let labels = std::mem::take(&mut self.labels);
        for (name, value) in labels {
            match origin(&name, &value) {
                Some(uuid) => {
                    let withheld = WithheldValue { value, system_uuid: Some(uuid) };
                    self.more.withheld.insert(name, withheld);
                    self.labels_generation = Some(self.generation);
                }
                None => _ = self.labels.insert(name, value),
            }
        }
        self
    }

    /// The next generation of this record, with what this incarnation has over what the record has, unless the record's word counts
    /// for more.
    pub fn merged(&self, node: &Node, now: Timestamp, rules: &Rules) -> Self {
        let is_proven = rules.trust == Trust::Name || node.extras.machine.is_surely(&self.more.machine);
        // As with a restore: the record wins over a Node that has never been restored.
        let is_first = node.restored_from().is_none();
        let wins = |name: &str| {
            is_first && rules.conflicts.winner(name) == Winner::Record && (is_proven || !is_trust(name))
        };
        // Of whichever machine it was, it did not have them.
        let is_lost = |name: &str| is_trust(name) && !node.labels.contains_key(name);
        let (withheld, mut labels): (Labels, Labels) =
            self.labels.clone().into_iter().partition(|(name, _)| is_lost(name));
        // It was not yet given the list of what is to be kept of it.
        let keep = if node.keep_list().is_none() { self.keep_patterns() } else { None };
        let is_kept = |name: &str| keep.is_none() || rules.keeps(name, keep.as_ref());
        for (name, value) in &node.labels {
            let counts = if labels.contains_key(name) { !wins(name) } else { is_kept(name) };
            if counts {
                labels.insert(name.clone(), value.clone());
            }
        }
        let withheld = withheld.keys().map(String::as_str).collect();
        self.followed_by(Self { labels, ..Self::of(node, now) }, withheld, false, rules)
    }

    fn followed_by(&self, next: Self, newly_withheld: Vec<&str>, is_of: bool, rules: &Rules) -> Self {
        let generation = self.next_generation();
        let changed = next.labels != self.labels;
        let labels_generation = if changed { Some(generation) } else { self.labels_generation };
        let mut more = next.more;
        // One incarnation may become another machine: a kubelet takes over the Node of its name that it finds. Where that was not
        // looked at, what is newly trusted may be another than the one that the record knows.
        let is_trusted_anew =
            |(name, value): (&String, &String)| is_trust(name) && self.labels.get(name) != Some(value);
        if more.machine.is_unknown() && is_of && !next.labels.iter().any(is_trusted_anew) {
            more.machine = self.more.machine.clone();
        }
        let mut leftovers = self.leftovers.clone();
        let origin = &self.more.machine.system_uuid;
        more.withheld = self.more.withheld.clone();
        let mut withhold = |name: String, value: String| {
            more.withheld.insert(name, WithheldValue { value, system_uuid: origin.clone() });
        };
        for name in newly_withheld {
            if let Some(value) = self.labels.get(name) {
                withhold(name.to_owned(), value.clone());
            }
        }
        if more.machine.system_uuid != *origin {
            // Whoever has set them aside, it was not this machine that had them.
            leftovers.take_trust().into_iter().for_each(|(name, value)| withhold(name, value));
        }
        more.withheld.retain(|name, _| !next.labels.contains_key(name));
        more.history = self.history_after(changed, rules);
        let config_map = self.config_map.clone();
        Self { config_map, generation, labels_generation, more, leftovers, ..next }
    }

    /// What the labels are, for when they were.
    fn present(&self) -> Version {
        let generation = self.labels_generation.unwrap_or(self.generation);
        Version { generation, at: self.captured_at, labels: self.labels.clone() }
    }

    /// What the labels were before, once this is over.
    fn history_after(&self, has_changed: bool, rules: &Rules) -> Vec<Version> {
        let mut history = self.more.history.clone();
        if has_changed && !self.labels.is_empty() {
            history.push(self.present());
        }
        let too_many = history.len().saturating_sub(rules.history);
        history.drain(..too_many);
        history
    }

    /// The next generation of this record, and nothing else.
    pub fn touched(&self) -> Self {
        Self { generation: self.next_generation(), ..self.clone() }
    }

    /// The next generation of this record, with the Node gone since `departed_at`, or back.
    pub fn with_departed_at(&self, departed_at: Option<Timestamp>) -> Self {
        Self { departed_at, ..self.touched() }
    }

    /// Whether nothing is left in it that anyone could miss.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.more.withheld.is_empty() && self.leftovers.is_empty()
    }

    /// All that may come back: what its last incarnation had, and what that was not given itself, with the machine that had it.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str, Option<&str>)> {
        let own = self.more.machine.system_uuid.as_deref();
        let labels = self.labels.iter().map(move |(name, value)| (name.as_str(), value.as_str(), own));
        let withheld = self.more.withheld.iter();
        labels.chain(
            withheld.map(|(name, kept)| (name.as_str(), kept.value.as_str(), kept.system_uuid.as_deref())),
        )
    }

    fn next_generation(&self) -> u64 {
        self.generation.saturating_add(1)
    }
}

fn is_trust(name: &str) -> bool {
    Item::parse(name).is_some_and(Item::is_trust)
}

#[cfg(test)]
mod tests;
