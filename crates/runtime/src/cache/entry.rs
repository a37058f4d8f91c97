//! A key, with the Nodes that have it and its record.

use std::time::{Duration, Instant};

use label_storage::store::{LastSeen, Stored};
use label_storage::summary::{NodeSummary, RecordSummary, UidDigest};
use label_storage::{Node, NodeName, RecordKey, ResourceVersion};

use super::{Cache, CachedNode, CachedRecord, Presence};

/// Everything that the cache has of one key.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    cache: &'a Cache,
    key: RecordKey,
    /// The first of the Nodes that have this key. If there is none, the one that had it last.
    node: Option<(&'a NodeName, &'a CachedNode)>,
    record: Option<&'a CachedRecord>,
}

impl Cache {
    pub fn get(&self, key: &str) -> Option<Entry<'_>> {
        let is_live = |(_, node): &(_, &CachedNode)| node.presence == Presence::Live;
        let latest = || self.owners(key).max_by_key(|(_, node)| node.last.version);
        let node = self.owners(key).find(is_live).or_else(latest);
        let slot = self.slots.get(key).filter(|slot| slot.record.is_known);
        let key = match (slot, node) {
            (Some(slot), _) => RecordKey::from(&slot.name),
            (None, Some((name, node))) => node.key(name)?,
            (None, None) => return None,
        };
        Some(Entry { cache: self, key, node, record: slot.map(|slot| &slot.record) })
    }

    /// All keys. A key may come twice.
    pub fn keys(&self) -> impl Iterator<Item = RecordKey> {
        self.slots.iter().flat_map(|slot| {
            let of_node = slot.node.key(&slot.name);
            let is_other = |key: &RecordKey| of_node.as_ref() != Some(key);
            let of_record = slot.record.is_known.then(|| RecordKey::from(&slot.name)).filter(is_other);
            of_node.into_iter().chain(of_record)
        })
    }

    /// The Nodes that have this key, or had it last.
    pub(super) fn owners<'a>(&'a self, key: &str) -> impl Iterator<Item = (&'a NodeName, &'a CachedNode)> {
        let by_name = self.slots.get(key).filter(|slot| slot.node.has_key(key, key));
        let others = self.identities.get(key).into_iter().flat_map(|identity| &identity.nodes);
        let others = others.filter_map(|(name, _)| self.slots.get(name));
        by_name.into_iter().chain(others).map(|slot| (&slot.name, &slot.node))
    }
}

impl<'a> Entry<'a> {
    pub fn key(&self) -> &RecordKey {
        &self.key
    }

    /// The Node, if it exists. If several Nodes have this key, the one that has had it for longest.
    pub fn node(&self) -> Option<NodeSummary> {
        let (_, node) = self.node.filter(|(_, node)| node.presence == Presence::Live)?;
        Some(node.last)
    }

    /// The name to read the Node by: its own, or that of the Node that had this key last.
    pub fn node_name(&self) -> &str {
        let deleted = || self.final_labels().map(|last| last.name.as_str());
        let recorded = || self.cache.identities.get(&self.key)?.recorded.as_deref();
        self.node.map(|(name, _)| &**name).or_else(deleted).or_else(recorded).unwrap_or(&self.key)
    }

    pub fn stored(&self) -> Stored<RecordSummary> {
        self.record.map_or(Stored::Nothing, |record| record.stored)
    }

    pub fn record_version(&self) -> ResourceVersion {
        self.record.map_or(ResourceVersion(0), |record| record.version)
    }

    /// The versions of the Node and of the record.
    pub(crate) fn versions(&self) -> (ResourceVersion, ResourceVersion) {
        let node = self.node.map_or(ResourceVersion(0), |(_, node)| node.last.version);
        (node, self.record_version())
    }

    /// Since when this process has seen the record unchanged.
    pub fn record_since(&self) -> Instant {
        let seconds = self.record.map_or(0, |record| record.since);
        self.cache.epoch + Duration::from_secs(seconds.into())
    }

    /// The Node as it was last seen, if it is gone.
    pub fn last_seen(&self) -> Option<LastSeen> {
        let NodeSummary { uid, version, labels, .. } =
            self.node.filter(|(_, node)| node.presence != Presence::Live)?.1.last;
        (uid != UidDigest::UNKNOWN).then_some(LastSeen { uid, version, labels })
    }

    /// True if it is certain that no Node has this key.
    pub fn is_surely_gone(&self) -> bool {
        match self.node {
            Some(_) => self.cache.owners(&self.key).all(|(_, node)| node.presence == Presence::Gone),
            None => self.record.is_some_and(|record| record.has_no_node),
        }
    }

    /// True if several Nodes have this key, or its Node was stored under another key. Then the owner of the record is unknown.
    pub fn is_contested(&self) -> bool {
        self.claimants().nth(1).is_some() || self.node().is_some_and(|node| self.is_stranger(node.uid))
    }

    /// True if an incarnation was stored under another key, and the record of this key is of another one: a kubelet can claim the
    /// identity of a machine that is gone.
    pub(crate) fn is_stranger(&self, uid: UidDigest) -> bool {
        let is_others = |record: RecordSummary| record.uid != Some(uid) && !record.is_empty;
        matches!(self.stored(), Stored::Record(record) if is_others(record))
            && self.cache.is_stored_under(uid, |key| *key != *self.key)
    }

    pub fn claimants(&self) -> impl Iterator<Item = (&'a NodeName, NodeSummary)> {
        let live = self.cache.owners(&self.key).filter(|(_, node)| node.presence == Presence::Live);
        live.map(|(name, node)| (name, node.last))
    }

    /// The Nodes that have this key and the start-up taint.
    pub fn tainted_claimants(&self) -> impl Iterator<Item = (&'a NodeName, UidDigest)> {
        let tainted = self.claimants().filter(|(_, node)| node.traits.has_startup_taint);
        tainted.map(|(name, node)| (name, node.uid))
    }

    /// True if it is certain that another Node had this key, too, when the Node of this name was deleted.
    pub(crate) fn had_others(&self, name: &str, deleted_at: ResourceVersion) -> bool {
        let is_certain = |node: &CachedNode| self.cache.gap.is_none_or(|gap| node.last.version >= gap);
        self.others(name, deleted_at).any(is_certain)
    }

    /// The other Nodes that had this key when the Node of this name was deleted. Those that were last seen before a gap of the watch may have
    /// been deleted, too.
    fn others(&self, name: &str, deleted_at: ResourceVersion) -> impl Iterator<Item = &'a CachedNode> {
        let nodes = self.cache.identities.get(&self.key).into_iter().flat_map(|identity| &identity.nodes);
        let others = nodes.filter(move |(other, since)| **other != *name && *since < deleted_at);
        let others = others.filter_map(|(other, _)| Some(&self.cache.slots.get(other)?.node));
        others.filter(|node| node.presence == Presence::Live)
    }

    /// True if an answer about the Node of this name is about this key.
    pub(crate) fn is_about(&self, name: &str) -> bool {
        let is_key = *name == *self.key && !self.key.is_identity();
        is_key || self.claimants().any(|(claimant, _)| **claimant == *name)
    }

    /// The final labels that are stored next. After a gap of the watch, a list may have to show first that no other Node had the key.
    pub fn final_labels(&self) -> Option<&'a Node> {
        let is_clear = |last: &Node| self.others(&last.name, last.version).next().is_none();
        self.cache.final_labels.first(&self.key).filter(|last| self.cache.gap.is_none() || is_clear(last))
    }

    /// All final labels that are kept, the oldest first.
    pub fn all_final_labels(&self) -> impl Iterator<Item = &'a Node> {
        self.cache.final_labels.all(&self.key)
    }
}
