//! The newest summary of each Node of the shard, the newest of each record, and the final labels of deleted Nodes.
//!
//! Lists, watches and answers arrive in any order. Each comes with its resourceVersion, and only a newer one counts. The versions of a Node and
//! of a ConfigMap are never compared.
//!
//! Nodes are found by name, records by key. [`Cache::get`] joins them: an [`Entry`] is a key with the Nodes that have it, and its record.

mod entry;
mod freshness;
mod table;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use label_storage::final_labels::FinalLabels;
use label_storage::store::Stored;
use label_storage::summary::{NodeSummary, RecordSummary, UidDigest};
use label_storage::withheld::Why;
use label_storage::{NodeName, RecordKey, ResourceVersion};

use self::table::{Slot, Table};
use crate::record_key::Filed;

pub use self::entry::Entry;
pub(crate) use self::freshness::Doubts;
pub use self::freshness::{Known, KnownVersion, STALE};

#[derive(Debug)]
pub struct Cache {
    /// Nodes by name, and records by key.
    slots: Table,
    /// The Nodes whose key is not their name, by key.
    identities: HashMap<RecordKey, Identity>,
    /// The key under which each incarnation is stored, in any shard, and the last list that had that record. Empty if keys are names.
    stored_under: HashMap<UidDigest, (RecordKey, u32)>,
    /// Keys that a Node has left for another key or shard, until [`take_left`](Self::take_left).
    left: Vec<RecordKey>,
    lists: u32,
    /// The last list that had an object at an older version than the cache, and the lowest of these versions in the cache.
    older: Option<(u32, ResourceVersion)>,
    /// The version at which the watch of Nodes went on after a gap, until a complete list has shown which Nodes the gap has left.
    gap: Option<ResourceVersion>,
    /// Times are kept in seconds since then.
    epoch: Instant,
    pub final_labels: FinalLabels,
}

#[derive(Debug)]
struct CachedNode {
    /// The key of its record, if that is not its name.
    identity: Option<Box<RecordKey>>,
    presence: Presence,
    /// The last list that had it.
    list: u32,
    /// The Node as it was last seen. Its version is that of the deletion, if one was reported, and may be all that is known.
    last: NodeSummary,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Live,
    /// A list lacked it.
    Missing,
    /// A watch reported its deletion, a read by name answered 404, or an accepted list lacked it.
    Gone,
    /// Its key is of another shard, or not known.
    Elsewhere,
}

#[derive(Debug)]
struct CachedRecord {
    stored: Stored<RecordSummary>,
    version: ResourceVersion,
    /// The last list that had it.
    list: u32,
    /// Since when this process has seen it unchanged, rounded up.
    since: u32,
    /// True if it is certain that no Node has the key, unless the cache has one.
    has_no_node: bool,
    /// True if something is known of it, if only its absence.
    is_known: bool,
}

/// A key that is not a Node's name.
#[derive(Debug, Default)]
struct Identity {
    /// The Nodes that have it, or had it last, in the order in which they got it, and the version at which each was first seen with it.
    nodes: Vec<(NodeName, ResourceVersion)>,
    /// The Node that the record was made from.
    recorded: Option<NodeName>,
}

/// An object as an attempt has read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading<T> {
    /// It was not read.
    None,
    Absent,
    Present(T),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Count {
    pub nodes: usize,
    pub records: usize,
    pub unreadable: usize,
    /// Withheld items, by reason.
    pub withheld: BTreeMap<&'static str, usize>,
}

impl Default for Cache {
    fn default() -> Self {
        Self::new(Duration::MAX)
    }
}

impl Cache {
    /// An empty cache that keeps final labels for this long, unless they are stored before.
    pub fn new(lifetime: Duration) -> Self {
        Self {
            slots: Table::default(),
            identities: HashMap::new(),
            stored_under: HashMap::new(),
            left: Vec::new(),
            lists: 0,
            older: None,
            gap: None,
            epoch: Instant::now(),
            final_labels: FinalLabels::new(lifetime),
        }
    }

    /// Drops everything but final labels, which can't be read again.
    pub(crate) fn start_over(&mut self) {
        let final_labels = std::mem::replace(&mut self.final_labels, FinalLabels::new(Duration::ZERO));
        *self = Self { final_labels, ..Self::default() };
        let keys: Vec<_> = self.final_labels.unstored().map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| _ = self.record(key));
    }

    /// Adds a Node that was read or listed. Returns true if it is newer than the cached one.
    pub fn see_node<'a>(&mut self, list: Option<u32>, key: impl Into<Filed<'a>>, node: NodeSummary) -> bool {
        let filed = key.into();
        let (name, cached) = self.node(filed.name);
        cached.list = list.unwrap_or(cached.list);
        let (was_live, known) = (cached.presence == Presence::Live, cached.last.version);
        if !is_news(node.version, known, was_live) {
            self.note_older(list, node.version, known);
            return false;
        }
        let had_key = was_live && cached.has_key(filed.under, filed.name);
        let is_same = had_key && cached.last.uid == node.uid;
        (cached.last, cached.presence) = (node, Presence::Live);
        if !had_key {
            self.give_key(&name, filed.under, was_live, node.version);
        } else if let (false, Some(identity)) = (is_same, self.identities.get_mut(filed.under)) {
            let same = identity.nodes.iter_mut().find(|(other, _)| *other == name);
            same.into_iter().for_each(|(_, since)| *since = node.version);
        }
        true
    }

    /// Notes that a list has a Node, and nothing else of it.
    pub(crate) fn keep_node(&mut self, list: u32, name: &str) {
        self.node(name).1.list = list;
    }

    /// Notes that a Node certainly did not exist at this version.
    pub fn lose_node<'a>(&mut self, filed: impl Into<Filed<'a>>, version: ResourceVersion) -> bool {
        let filed = filed.into();
        let (name, cached) = self.node(filed.name);
        let was_live = cached.presence == Presence::Live;
        let has_key = cached.has_key(filed.under, filed.name);
        if version < cached.last.version {
            // The Node has been re-created since, perhaps with another key.
            if !has_key {
                self.record(filed.under).has_no_node = true;
            }
            return false;
        }
        (cached.last.version, cached.presence) = (version, Presence::Gone);
        if !has_key {
            self.give_key(&name, filed.under, was_live, version);
        }
        was_live
    }

    /// Notes that a read by name found no Node. Only call this if nothing was seen of the Node since that read.
    pub fn miss_node(&mut self, key: &str) {
        let first = self.owners(key).find(|(_, node)| node.presence == Presence::Live);
        let all = || self.owners(key).map(|(name, _)| name.clone()).collect();
        let lost: Vec<_> = first.map_or_else(all, |(name, _)| vec![name.clone()]);
        if lost.is_empty() {
            self.record(key).has_no_node = true;
        }
        for name in lost {
            self.node(&name).1.presence = Presence::Gone;
        }
    }

    /// Notes a Node of another shard. `may_be_listed`: a list runs that may still have the Node as it was before.
    pub(crate) fn see_elsewhere(
        &mut self,
        list: Option<u32>,
        name: &str,
        version: ResourceVersion,
        may_be_listed: bool,
    ) {
        // Most Nodes of a cluster are in other shards, and are not kept.
        if !may_be_listed && self.slots.get(name).is_none_or(|slot| slot.node.is_unknown()) {
            return;
        }
        let (name, cached) = self.node(name);
        cached.list = list.unwrap_or(cached.list);
        let (was_live, known) = (cached.presence == Presence::Live, cached.last.version);
        if !is_news(version, known, was_live) {
            return self.note_older(list, version, known);
        }
        cached.last.version = version;
        if was_live {
            cached.presence = Presence::Elsewhere;
            self.take_key(&name, true);
        }
    }

    fn node(&mut self, name: &str) -> (NodeName, &mut CachedNode) {
        let Slot { name, node, .. } = self.slots.slot(name);
        (name.clone(), node)
    }

    fn record(&mut self, key: &str) -> &mut CachedRecord {
        let record = &mut self.slots.slot(key).record;
        record.is_known = true;
        record
    }

    /// Gives a Node another key.
    fn give_key(&mut self, name: &NodeName, key: &str, was_live: bool, since: ResourceVersion) {
        self.take_key(name, was_live);
        if &**name != key {
            let key = RecordKey::from(&self.slots.slot(key).name);
            self.identities.entry(key.clone()).or_default().nodes.push((name.clone(), since));
            self.node(name).1.identity = Some(Box::new(key));
        }
    }

    fn take_key(&mut self, name: &NodeName, was_live: bool) {
        let identity = self.node(name).1.identity.take();
        let nodes = identity.as_ref().and_then(|key| self.identities.get_mut(&**key));
        nodes.into_iter().for_each(|identity| identity.nodes.retain(|(other, _)| other != name));
        let key = identity.map_or_else(|| name.into(), |key| *key);
        if was_live {
            self.record(&key).has_no_node = true;
            self.left.push(key);
        }
    }

    /// The keys that Nodes have left since this was last asked.
    pub(crate) fn take_left(&mut self) -> Vec<RecordKey> {
        std::mem::take(&mut self.left)
    }

    /// Adds a record that was read or listed. Returns true if it is newer than the cached one.
    pub fn see_record<'a>(
        &mut self,
        list: Option<u32>,
        filed: impl Into<Filed<'a>>,
        version: ResourceVersion,
        stored: Stored<RecordSummary>,
    ) -> bool {
        let filed = filed.into();
        let now = u32::try_from(self.epoch.elapsed().as_secs() + 1).unwrap_or(u32::MAX);
        if filed.under != filed.name {
            if let Stored::Record(RecordSummary { uid: Some(uid), .. }) = stored {
                self.see_stored(list, uid, filed.under);
            }
            let identity = self.identities.entry(filed.under.into()).or_default();
            identity.recorded = Some(filed.name.into());
        }
        let record = self.record(filed.under);
        record.list = list.unwrap_or(record.list);
        let known = record.version;
        let is_news = is_news(version, known, record.is_there());
        if is_news {
            (record.stored, record.version, record.since) = (stored, version, now);
        }
        self.note_older(list, version, known);
        is_news
    }

    /// Notes that an incarnation is stored under a key, which may be of another shard.
    pub(crate) fn see_stored(&mut self, list: Option<u32>, uid: UidDigest, key: &str) {
        self.stored_under.insert(uid, (key.into(), list.unwrap_or(self.lists)));
    }

    pub(crate) fn forget_stored(&mut self, uid: UidDigest, key: &str) {
        if self.is_stored_under(uid, |other| other == key) {
            self.stored_under.remove(&uid);
        }
    }

    fn is_stored_under(&self, uid: UidDigest, is_asked: impl Fn(&str) -> bool) -> bool {
        self.stored_under.get(&uid).is_some_and(|(key, _)| is_asked(key))
    }

    /// Notes that there was no record at this version.
    pub fn lose_record(&mut self, key: &str, version: ResourceVersion) -> bool {
        let record = self.record(key);
        let is_news = version >= record.version && record.is_there();
        if is_news {
            record.stored = Stored::Nothing;
        }
        record.version = record.version.max(version);
        is_news
    }

    /// Notes that there is no record. Only call this if nothing was seen of it since the read.
    pub fn miss_record(&mut self, key: &str) {
        self.record(key).stored = Stored::Nothing;
    }

    /// Begins a list, and returns its number.
    pub fn begin_list(&mut self) -> u32 {
        self.lists = self.lists.wrapping_add(1);
        self.lists
    }

    /// The watch of Nodes has a gap, and went on at this version: Nodes that were last seen before may have been deleted.
    pub(crate) fn note_gap(&mut self, until: ResourceVersion) {
        self.gap = Some(until);
    }

    /// Ends a complete list of Nodes. Returns true if it lacked a known Node. The next list may have the Node again at the same version.
    pub fn end_list_of_nodes(&mut self, list: u32, version: ResourceVersion) -> bool {
        let is_lacking = |node: &&mut CachedNode| {
            node.presence == Presence::Live && node.list != list && version >= node.last.version
        };
        let lacking = self.slots.iter_mut().map(|slot| &mut slot.node).filter(is_lacking);
        let is_lacking = lacking.map(|node| node.presence = Presence::Missing).count() > 0;
        if self.gap.take_if(|gap| *gap <= version).is_some() {
            self.drop_contested();
        }
        is_lacking
    }

    /// Drops final labels that a gap of the watch has left undecided, if another Node had the key all the time.
    fn drop_contested(&mut self) {
        let mut final_labels = std::mem::take(&mut self.final_labels);
        final_labels.retain(|key, last, _| {
            !self.get(key).is_some_and(|entry| entry.had_others(&last.name, last.version))
        });
        self.final_labels = final_labels;
    }

    /// Notes the version of an object in a list, and its version in the cache. An object without a version can't be compared.
    fn note_older(&mut self, list: Option<u32>, listed: ResourceVersion, known: ResourceVersion) {
        if let Some(list) = list.filter(|_| listed < known && listed != ResourceVersion(0)) {
            let same = self.older.filter(|(other, _)| *other == list);
            self.older = Some((list, same.map_or(known, |(_, lowest)| lowest.min(known))));
        }
    }

    /// True if a complete list of this version is of another history than the cache: it has each object at its latest version up to its own,
    /// so none can be older than in the cache.
    pub(crate) fn is_of_another_history(&self, list: u32, version: ResourceVersion) -> bool {
        self.older.is_some_and(|(of, known)| of == list && known <= version)
    }

    /// Ends a complete list of records. Returns true if it lacked a known record.
    pub fn end_list_of_records(&mut self, list: u32, version: ResourceVersion) -> bool {
        let is_lacking = |record: &&mut CachedRecord| {
            record.is_there() && record.list != list && version >= record.version
        };
        self.stored_under.retain(|_, (_, last)| *last >= list);
        let lacking = self.slots.iter_mut().map(|slot| &mut slot.record).filter(is_lacking);
        lacking.map(|record| record.stored = Stored::Nothing).count() > 0
    }

    /// Marks all Nodes that lists lacked as deleted.
    pub fn believe_absence(&mut self) {
        for Slot { node, record, .. } in self.slots.iter_mut() {
            if node.presence == Presence::Missing {
                node.presence = Presence::Gone;
            }
            record.has_no_node = true;
        }
    }

    /// Drops Nodes and records that do not exist, unless there is work to do for their key.
    pub fn forget_gone(&mut self, has_work: impl Fn(&RecordKey) -> bool) {
        let has_record = |slots: &Table, key: &RecordKey| {
            slots.get(key).is_some_and(|slot| slot.record.is_there()) || has_work(key)
        };
        let is_needed = |slots: &Table, slot: &Slot| {
            let key = slot.node.key(&slot.name);
            slot.node.presence == Presence::Live || key.is_some_and(|key| has_record(slots, &key))
        };
        let gone = self.slots.iter().filter(|slot| !slot.node.is_unknown() && !is_needed(&self.slots, slot));
        for name in gone.map(|slot| slot.name.clone()).collect::<Vec<_>>() {
            *self.node(&name).1 = CachedNode::unknown();
        }
        let slots = &self.slots;
        self.identities.retain(|key, identity| {
            identity.nodes.retain(|(name, _)| slots.get(name).is_some_and(|slot| !slot.node.is_unknown()));
            !identity.nodes.is_empty() || has_record(slots, key)
        });
        self.slots.retain(|slot| {
            !slot.node.is_unknown() || slot.record.is_there() || has_work(&RecordKey::from(&slot.name))
        });
    }

    pub fn count(&self) -> Count {
        let mut count = Count::default();
        for Slot { name, node, record } in self.slots.iter() {
            let is_live = node.presence == Presence::Live;
            count.nodes += usize::from(is_live);
            if is_live && !node.last.traits.withheld.is_empty() {
                let entry = node.key(name).and_then(|key| self.get(&key));
                let withheld =
                    entry.map_or(Stored::Nothing, |entry| entry.stored()).withheld_from(&node.last);
                for why in Why::ALL {
                    *count.withheld.entry(why.as_str()).or_default() += withheld.get(*why) as usize;
                }
            }
            count.records += usize::from(record.is_there());
            count.unreadable += usize::from(record.stored == Stored::Unreadable);
        }
        count
    }

    /// The number of Nodes that lists lacked and nothing has reported, and of all that should be there: they have such a key, and a record that
    /// is not departed.
    pub fn missing(&self, concerns: impl Fn(&RecordKey) -> bool) -> (usize, usize) {
        let expects = |slot: &&Slot| slot.record.expects_node() && concerns(&(&slot.name).into());
        let is_missing = |entry: Entry<'_>| entry.node().is_none() && !entry.is_surely_gone();
        let expecting = self.slots.iter().filter(expects);
        expecting.fold((0, 0), |(missing, all), slot| {
            (missing + usize::from(self.get(&slot.name).is_some_and(is_missing)), all + 1)
        })
    }
}

impl CachedNode {
    fn unknown() -> Self {
        let last = NodeSummary::unknown(ResourceVersion(0));
        Self { identity: None, presence: Presence::Elsewhere, list: 0, last }
    }

    fn is_unknown(&self) -> bool {
        self.last.version.0 == 0
    }

    /// The key of its record; `None` if that is of another shard, or not known.
    fn key(&self, name: &NodeName) -> Option<RecordKey> {
        let key = self.identity.as_deref().cloned().unwrap_or_else(|| name.into());
        (self.presence != Presence::Elsewhere).then_some(key)
    }

    fn has_key(&self, key: &str, name: &str) -> bool {
        self.presence != Presence::Elsewhere && self.identity.as_deref().map_or(name, |key| key) == key
    }
}

impl CachedRecord {
    const UNKNOWN: Self = Self {
        stored: Stored::Nothing,
        version: ResourceVersion(0),
        list: 0,
        since: 0,
        has_no_node: false,
        is_known: false,
    };

    fn is_there(&self) -> bool {
        self.stored != Stored::Nothing
    }

    /// True if there are labels in it, and its Node is not departed.
    fn expects_node(&self) -> bool {
        matches!(self.stored, Stored::Record(record) if record.departed_at.is_none() && !record.is_empty)
    }
}

/// True if a version is newer, or the same version of an object that was marked as deleted.
fn is_news(version: ResourceVersion, known: ResourceVersion, is_there: bool) -> bool {
    version > known || version == known && !is_there
}

#[cfg(test)]
mod tests;
