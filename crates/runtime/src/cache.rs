//! The newest summary of each Node of the shard and of its record.
//!
//! Lists, watches and answers arrive in any order. Each comes with its resourceVersion, and only a newer one counts. The versions of a Node and
//! of a ConfigMap are never compared.

mod freshness;
mod key_owners;
mod node_index;
mod packed;

use std::time::Instant;

use hashbrown::HashTable;
use label_storage::ResourceVersion;
use label_storage::store::{LastSeen, Stored};
use label_storage::summary::{NodeSummary, RecordSummary};
use xxhash_rust::xxh3::xxh3_64;

use self::key_owners::KeyOwners;
use self::node_index::NodeIndex;
use self::packed::{PackedNode, PackedRecord};
use crate::record_key::{Filed, RecordKey};

pub use self::freshness::{Known, STALE};
pub(crate) use self::node_index::Elsewhere;

/// One Node and its record: the newest of each, or its absence at that version.
#[derive(Debug)]
pub struct Entry {
    key: RecordKey,
    node: PackedNode,
    record: PackedRecord,
    node_version: ResourceVersion,
    record_version: ResourceVersion,
    /// The last lists that had them.
    node_list: u32,
    record_list: u32,
    /// Since when this process has seen the record unchanged.
    record_since: Instant,
    /// True if the Node is gone for certain: a watch reported its deletion, a read by name answered 404, or an accepted list lacked it.
    is_surely_gone: bool,
    /// With identities: the Nodes that claim this key. `node` is the first of them.
    claims: Option<Box<KeyOwners>>,
}

impl Entry {
    fn new(key: RecordKey) -> Self {
        Self {
            key,
            node: PackedNode::default(),
            record: PackedRecord::default(),
            node_version: ResourceVersion(0),
            record_version: ResourceVersion(0),
            node_list: 0,
            record_list: 0,
            record_since: Instant::now(),
            is_surely_gone: false,
            claims: None,
        }
    }

    pub fn key(&self) -> &RecordKey {
        &self.key
    }

    /// The Node, if it exists.
    pub fn node(&self) -> Option<NodeSummary> {
        self.node.unpack(self.node_version)
    }

    pub fn stored(&self) -> Stored<RecordSummary> {
        self.record.unpack()
    }

    /// The version of the ConfigMap.
    pub fn record_version(&self) -> ResourceVersion {
        self.record_version
    }

    /// The versions of Node and record.
    pub(crate) fn versions(&self) -> (ResourceVersion, ResourceVersion) {
        (self.node_version, self.record_version)
    }

    /// Since when this process has seen the record unchanged.
    pub fn record_since(&self) -> Instant {
        self.record_since
    }

    /// The Node as it was last seen, if it is gone.
    pub fn last_seen(&self) -> Option<LastSeen> {
        self.node.last_seen(self.node_version)
    }

    /// True if the Node is gone for certain.
    pub fn is_surely_gone(&self) -> bool {
        self.is_surely_gone && !self.node.is_there()
    }

    fn see_node(&mut self, node: NodeSummary) -> bool {
        let is_news = is_news(node.version, self.node_version, self.node.is_there());
        if is_news {
            (self.node_version, self.node) = (node.version, PackedNode::pack(&node));
        }
        is_news
    }

    fn lose_node(&mut self, version: ResourceVersion, is_sure: bool) -> bool {
        let is_news = version >= self.node_version && self.node.is_there();
        if is_news {
            self.node = self.node.gone();
            self.is_surely_gone = is_sure;
        }
        // The next list may have the Node again at the same version, so a list does not raise the version.
        if is_sure {
            self.node_version = self.node_version.max(version);
        }
        self.is_surely_gone |= is_sure && !self.node.is_there();
        is_news
    }

    fn see_record(&mut self, version: ResourceVersion, record: Stored<RecordSummary>) -> bool {
        let is_news = is_news(version, self.record_version, self.record.is_there());
        if is_news {
            (self.record_version, self.record) = (version, PackedRecord::pack(record));
            self.record_since = Instant::now();
        }
        is_news
    }

    fn lose_record(&mut self, version: ResourceVersion, is_sure: bool) -> bool {
        let is_news = version >= self.record_version && self.record.is_there();
        if is_news {
            self.record = PackedRecord::default();
        }
        // As with Nodes.
        if is_sure {
            self.record_version = self.record_version.max(version);
        }
        is_news
    }

    /// True if a list lacked the Node, and it is not certain that it is gone.
    fn is_missing(&self) -> bool {
        !self.node.is_there() && !self.is_surely_gone
    }

    /// True if there is a record with labels whose Node is not departed.
    fn expects_node(&self) -> bool {
        matches!(self.stored(), Stored::Record(record) if record.departed_at.is_none() && !record.is_empty)
    }
}

/// All entries, by key.
///
/// An index of numbers beside a vector, rather than a map of entries: a map of 100,000 entries is half empty, and exists twice while it grows.
#[derive(Debug, Default)]
pub struct Cache {
    index: HashTable<u32>,
    entries: Vec<Entry>,
    /// The number of the last list.
    lists: u32,
    /// With identities: the key of each Node.
    places: Option<Box<NodeIndex>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    pub nodes: usize,
    pub records: usize,
    /// Records that can't be read.
    pub unreadable: usize,
}

/// Nodes that a list lacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    /// Nodes with a record that is not departed, whose deletion nothing has reported.
    pub nodes: usize,
    /// All Nodes with such a record.
    pub known: usize,
}

impl Cache {
    /// An empty cache of the same kind.
    pub(crate) fn emptied(&self) -> Self {
        if self.places.is_some() { Self::by_identity() } else { Self::default() }
    }

    pub fn get(&self, under: &str) -> Option<&Entry> {
        self.find(under).map(|at| &self.entries[at])
    }

    fn find(&self, under: &str) -> Option<usize> {
        let found = self.index.find(hash(under), |&at| *self.entries[at as usize].key == *under);
        found.map(|&at| at as usize)
    }

    /// The entry of a key, created if there is none.
    fn entry(&mut self, under: &str) -> &mut Entry {
        let at = match self.find(under) {
            Some(at) => at,
            None => self.add(under),
        };
        &mut self.entries[at]
    }

    fn add(&mut self, under: &str) -> usize {
        if self.entries.len() == self.entries.capacity() {
            // By an eighth, not by double: entries are most of a daemon's memory.
            self.entries.reserve_exact(64 + self.entries.len() / 8);
        }
        let at = self.entries.len();
        self.entries.push(Entry::new(RecordKey::from(under)));
        let entries = &self.entries;
        let number = u32::try_from(at).unwrap_or(u32::MAX);
        self.index.insert_unique(hash(under), number, |&at| hash(&entries[at as usize].key));
        at
    }

    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    pub fn count(&self) -> Count {
        let mut count = Count::default();
        for entry in &self.entries {
            count.nodes += entry.nodes();
            count.records += usize::from(entry.record.is_there());
            count.unreadable += usize::from(entry.stored() == Stored::Unreadable);
        }
        count
    }

    /// Sees a Node. Returns true if that is newer.
    pub fn see_node<'a>(&mut self, filed: impl Into<Filed<'a>>, node: NodeSummary) -> bool {
        let filed = filed.into();
        match self.places {
            None => self.entry(filed.under).see_node(node),
            Some(_) => self.place(None, filed, &node),
        }
    }

    /// Sees that a Node was gone at this version, for certain.
    pub fn lose_node<'a>(&mut self, filed: impl Into<Filed<'a>>, version: ResourceVersion) -> bool {
        let filed = filed.into();
        match self.places {
            None => self.entry(filed.under).lose_node(version, true),
            Some(_) => self.displace(filed, version),
        }
    }

    /// Sees that a read by name found no Node. Only call this if nothing was seen of the Node since that read.
    pub fn miss_node(&mut self, under: &str) {
        if self.places.is_some() {
            return self.miss_placed(under);
        }
        let entry = self.entry(under);
        entry.lose_node(entry.node_version, true);
    }

    /// Sees a record. Returns true if that is newer.
    pub fn see_record<'a>(
        &mut self,
        filed: impl Into<Filed<'a>>,
        version: ResourceVersion,
        record: Stored<RecordSummary>,
    ) -> bool {
        self.recorded(filed.into()).see_record(version, record)
    }

    /// The entry of a record, after it was told the Node's name.
    fn recorded(&mut self, filed: Filed<'_>) -> &mut Entry {
        let names_the_node = self.places.is_some() && filed.names_the_node();
        let entry = self.entry(filed.under);
        if names_the_node {
            entry.recorded(filed.name);
        }
        entry
    }

    /// Sees that there was no record at this version.
    pub fn lose_record(&mut self, under: &str, version: ResourceVersion) -> bool {
        self.entry(under).lose_record(version, true)
    }

    /// Sees that there is no record. Only call this if nothing was seen of it since the read.
    pub fn miss_record(&mut self, under: &str) {
        let entry = self.entry(under);
        entry.lose_record(entry.record_version, true);
    }

    /// Begins a list, and returns its number.
    pub fn begin_list(&mut self) -> u32 {
        self.lists = self.lists.wrapping_add(1);
        self.lists
    }

    /// Sees a Node in a list.
    pub fn list_node<'a>(&mut self, list: u32, filed: impl Into<Filed<'a>>, node: NodeSummary) -> bool {
        let filed = filed.into();
        if self.places.is_some() {
            return self.place(Some(list), filed, &node);
        }
        let entry = self.entry(filed.under);
        entry.node_list = list;
        entry.see_node(node)
    }

    /// Sees a record in a list.
    pub fn list_record<'a>(
        &mut self,
        list: u32,
        filed: impl Into<Filed<'a>>,
        version: ResourceVersion,
        record: Stored<RecordSummary>,
    ) -> bool {
        let entry = self.recorded(filed.into());
        entry.record_list = list;
        entry.see_record(version, record)
    }

    /// Ends a complete list of Nodes. Returns true if it lacked a known Node.
    pub fn end_list_of_nodes(&mut self, list: u32, version: ResourceVersion) -> bool {
        if self.places.is_some() {
            return self.end_list_of_placed(list, version);
        }
        let lacking = self.entries.iter_mut().filter(|entry| entry.node_list != list);
        lacking.filter_map(|entry| entry.lose_node(version, false).then_some(())).count() > 0
    }

    /// Ends a complete list of records. Returns true if it lacked a known record.
    pub fn end_list_of_records(&mut self, list: u32, version: ResourceVersion) -> bool {
        let lacking = self.entries.iter_mut().filter(|entry| entry.record_list != list);
        lacking.filter_map(|entry| entry.lose_record(version, false).then_some(())).count() > 0
    }

    /// Forgets entries without Node, record or work.
    pub fn forget_gone(&mut self, has_work: impl Fn(&RecordKey) -> bool) {
        self.forget_places(&has_work);
        let before = self.entries.len();
        self.entries.retain(|entry| entry.node.is_there() || entry.record.is_there() || has_work(&entry.key));
        if self.entries.len() == before {
            return;
        }
        self.index.clear();
        for (at, entry) in self.entries.iter().enumerate() {
            let number = u32::try_from(at).unwrap_or(u32::MAX);
            self.index.insert_unique(hash(&entry.key), number, |&at| hash(&self.entries[at as usize].key));
        }
    }

    pub fn missing(&self) -> Missing {
        let mut missing = Missing { nodes: 0, known: 0 };
        for entry in self.expecting() {
            missing.known += 1;
            missing.nodes += usize::from(entry.is_missing());
        }
        missing
    }

    /// The entries that should have a Node.
    fn expecting(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.expects_node() && self.could_know_node(entry))
    }

    /// Takes all Nodes that lists lacked for gone.
    pub fn believe_absence(&mut self) {
        for entry in self.entries.iter_mut().filter(|entry| !entry.node.is_there()) {
            entry.is_surely_gone = true;
        }
    }
}

/// True if a version is news: newer, or the same version of an object that was thought to be gone.
fn is_news(version: ResourceVersion, known: ResourceVersion, is_there: bool) -> bool {
    version > known || version == known && !is_there
}

fn hash(under: &str) -> u64 {
    xxh3_64(under.as_bytes())
}

#[cfg(test)]
mod tests;
