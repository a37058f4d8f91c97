//! Where each Node is, where entries are not filed by name: what a Node is filed under may change while it lives, and then it has to
//! leave the entry that it was in, though nothing in the row's name tells of that.
//!
//! So what is newest is decided by Node here, and not by entry: two Nodes that claim one entry are not each other's past.

use std::collections::HashMap;

use label_storage::ResourceVersion;
use label_storage::summary::NodeSummary;

use super::{Cache, Entry, is_news};
use crate::record_key::{Filed, NodeName, RecordKey};

/// Where each Node is that is, or was, in an entry.
#[derive(Debug, Default)]
pub(super) struct NodeIndex {
    by_name: HashMap<NodeName, Place>,
    /// Rows whose Nodes went elsewhere, since anybody asked.
    left: Vec<RecordKey>,
}

#[derive(Debug)]
struct Place {
    at: At,
    /// The newest that is known of the Node.
    version: ResourceVersion,
    /// The last list that had it.
    list: u32,
}

#[derive(Debug)]
enum At {
    /// In this entry.
    Entry(RecordKey),
    /// Gone, or somewhere that is not this table's business. The entry that it was in.
    Gone(Option<RecordKey>),
}

impl At {
    fn is_row(&self) -> bool {
        matches!(self, Self::Entry(_))
    }
}

impl NodeIndex {
    /// A Node's place, made where there is none.
    fn of(&mut self, name: &str) -> (NodeName, &mut Place) {
        let key = self.by_name.get_key_value(name).map(|(key, _)| NodeName::clone(key));
        let key = key.unwrap_or_else(|| NodeName::from(name));
        let place = self.by_name.entry(NodeName::clone(&key));
        let nowhere_yet = || Place { at: At::Gone(None), version: ResourceVersion(0), list: 0 };
        (key, place.or_insert_with(nowhere_yet))
    }
}

/// A Node that is in no entry of a cache, or in none any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elsewhere<'a> {
    /// The Node's name.
    pub(crate) name: &'a str,
    /// Since this version, at the latest.
    pub(crate) version: ResourceVersion,
}

/// For tables whose entries are not filed by name; nothing of this is ever called for another.
impl Cache {
    /// A cache whose entries are filed under something else than the Nodes' names.
    pub fn by_identity() -> Self {
        Self { places: Some(Box::default()), ..Self::default() }
    }

    /// Takes note that a Node is in an entry of another shard, or in none. `may_be_listed`: a list is under way that may still have
    /// it as it was before.
    pub(crate) fn see_elsewhere(&mut self, node: Elsewhere<'_>, may_be_listed: bool) {
        self.note_elsewhere(node, None, may_be_listed);
    }

    /// The same, in a list.
    pub(crate) fn list_elsewhere(&mut self, list: u32, node: Elsewhere<'_>) {
        self.note_elsewhere(node, Some(list), false);
    }

    fn note_elsewhere(&mut self, node: Elsewhere<'_>, list: Option<u32>, may_be_listed: bool) {
        let Some(places) = &mut self.places else { return };
        // Most Nodes of a cluster are other shards', and no business of this one.
        if !may_be_listed && !places.by_name.contains_key(node.name) {
            return;
        }
        let (name, place) = places.of(node.name);
        place.list = list.unwrap_or(place.list);
        if !is_news(node.version, place.version, place.at.is_row()) {
            return;
        }
        place.version = node.version;
        if let At::Entry(entry) = &place.at {
            let entry = RecordKey::clone(entry);
            place.at = At::Gone(Some(RecordKey::clone(&entry)));
            self.leave(&entry, &name, node.version);
        }
    }

    /// A Node has left an entry for certain, though it is not gone.
    fn leave(&mut self, entry: &RecordKey, name: &NodeName, version: ResourceVersion) {
        self.entry(entry).unclaim(name, version, true);
        if let Some(places) = &mut self.places {
            places.left.push(RecordKey::clone(entry));
        }
    }

    /// Rows whose Nodes went elsewhere, since this was last asked.
    pub(crate) fn take_left(&mut self) -> Vec<RecordKey> {
        self.places.as_mut().map(|places| std::mem::take(&mut places.left)).unwrap_or_default()
    }

    /// A Node was seen, perhaps in a list.
    pub(super) fn place(&mut self, list: Option<u32>, filed: Filed<'_>, node: &NodeSummary) -> bool {
        let entry = RecordKey::clone(&self.entry(filed.under).key);
        let Some(places) = &mut self.places else { return false };
        let (name, place) = places.of(filed.name);
        place.list = list.unwrap_or(place.list);
        if !is_news(node.version, place.version, place.at.is_row()) {
            return false;
        }
        place.version = node.version;
        let was_at = std::mem::replace(&mut place.at, At::Entry(RecordKey::clone(&entry)));
        let is_known = match was_at {
            At::Entry(was_in) if was_in == entry => true,
            At::Entry(left) => {
                self.leave(&left, &name, node.version);
                false
            }
            At::Gone(_) => false,
        };
        self.entry(&entry).claim(&name, node, is_known);
        true
    }

    /// A Node was gone at this version, beyond doubt.
    pub(super) fn displace(&mut self, filed: Filed<'_>, version: ResourceVersion) -> bool {
        let entry = RecordKey::clone(&self.entry(filed.under).key);
        let Some(places) = &mut self.places else { return false };
        let (name, place) = places.of(filed.name);
        let is_news = version >= place.version && place.at.is_row();
        place.version = place.version.max(version);
        if is_news
            && let At::Entry(left) =
                std::mem::replace(&mut place.at, At::Gone(Some(RecordKey::clone(&entry))))
        {
            if left == entry {
                self.entry(&entry).unclaim(&name, version, true);
                return true;
            }
            self.leave(&left, &name, version);
        }
        // It may be in another entry by now, or be another incarnation; but it was this row's.
        let entry = self.entry(&entry);
        if !entry.claimants().any(|(claimant, ..)| *claimant == name) {
            entry.unclaim(&name, version, true);
        }
        is_news
    }

    /// The Node of an entry was not found.
    pub(super) fn miss_placed(&mut self, under: &str) {
        let entry = self.entry(under);
        let claim = entry.claimants().next().map(|(name, _, version)| (NodeName::clone(name), version));
        match claim {
            Some((name, version)) => _ = self.displace(Filed { under, name: &name }, version),
            None => entry.is_surely_gone = true,
        }
    }

    /// A complete list of Nodes lacks these. Says whether there were any.
    pub(super) fn end_list_of_placed(&mut self, list: u32, version: ResourceVersion) -> bool {
        let Some(places) = &mut self.places else { return false };
        let mut lacked = Vec::new();
        for (name, place) in &mut places.by_name {
            if let At::Entry(entry) = &place.at
                && place.list != list
                && version >= place.version
            {
                let entry = RecordKey::clone(entry);
                place.at = At::Gone(Some(RecordKey::clone(&entry)));
                lacked.push((entry, NodeName::clone(name)));
            }
        }
        for (entry, name) in &lacked {
            self.entry(entry).unclaim(name, version, false);
        }
        !lacked.is_empty()
    }

    /// Forgets Nodes that are gone, unless somebody is at work who may have seen them.
    pub(super) fn forget_places(&mut self, has_work: impl Fn(&RecordKey) -> bool) {
        let Some(places) = &mut self.places else { return };
        places.by_name.retain(|_, place| match &place.at {
            At::Entry(_) => true,
            At::Gone(entry) => entry.as_ref().is_some_and(&has_work),
        });
    }

    /// True if keys are identities, not names.
    pub(crate) fn is_by_identity(&self) -> bool {
        self.places.is_some()
    }

    /// Which Node an answer was about that somebody was given who asked for this row's Node. `None`: nobody knows. Where the entry
    /// had no Node, whoever asked may have asked for one that its record names: a list or a watch will tell of it.
    pub(crate) fn answered<'a>(&self, under: &'a str, asked_for: Option<&'a NodeName>) -> Option<Filed<'a>> {
        let Some(places) = &self.places else { return Some(under.into()) };
        let name = asked_for?;
        let place = places.by_name.get(name)?;
        matches!(&place.at, At::Entry(entry) if **entry == *under).then_some(Filed { under, name })
    }

    /// True if this cache can have the Node of an entry. It can't if the record was filed under the identity of other rules.
    pub(super) fn could_know_node(&self, entry: &Entry) -> bool {
        crate::record_key::is_name(&entry.key) == self.places.is_none()
    }
}
