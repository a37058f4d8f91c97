//! What is known of every Node of the shard and of its record, and since when.
//!
//! Lists and watches tell of the same objects at the same time, and answers of the API server overtake each other. So
//! everything that is seen comes with its resourceVersion, and only what is newer counts. Both kinds count on their
//! own: the versions of a Node and of a ConfigMap are never compared.

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

/// What is known of one Node and its record: of each the newest, or that it was gone at that version.
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
    /// Since when this process has seen the record as it is.
    record_since: Instant,
    /// Whether the Node's absence is certain enough to act upon: the API server told of its deletion, or said so when
    /// asked for it. That a list did not have it is not enough.
    is_surely_gone: bool,
    /// Where entries are not filed by name: who is in it. What is said of the Node above is the first of them.
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

    /// What it is filed under: the Node's name, unless the rules say otherwise.
    pub fn key(&self) -> &RecordKey {
        &self.key
    }

    /// The Node, if it is there.
    pub fn node(&self) -> Option<NodeSummary> {
        self.node.unpack(self.node_version)
    }

    /// Its record.
    pub fn stored(&self) -> Stored<RecordSummary> {
        self.record.unpack()
    }

    /// The record's own version.
    pub fn record_version(&self) -> ResourceVersion {
        self.record_version
    }

    /// The versions of Node and record: whether anything was seen of them since.
    pub(crate) fn versions(&self) -> (ResourceVersion, ResourceVersion) {
        (self.node_version, self.record_version)
    }

    /// Since when this process has seen the record as it is.
    pub fn record_since(&self) -> Instant {
        self.record_since
    }

    /// The Node as it was last seen, if it is gone.
    pub fn last_seen(&self) -> Option<LastSeen> {
        self.node.last_seen(self.node_version)
    }

    /// Whether the Node is gone beyond doubt.
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
        // What a list lacked, the next may have again, as it was: no list stands against all later ones.
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

    /// Whether lists lack the Node, and it is not certain that it is gone.
    fn is_missing(&self) -> bool {
        !self.node.is_there() && !self.is_surely_gone
    }

    /// Whether there is a record with something in it that does not say that its Node is gone.
    fn expects_node(&self) -> bool {
        matches!(self.stored(), Stored::Record(record) if record.departed_at.is_none() && !record.is_empty)
    }
}

/// All entries, by what they are filed under.
///
/// An index of numbers beside the entries, rather than a map of entries: a map of a hundred thousand entries is half empty, and
/// both halves are there while it grows.
#[derive(Debug, Default)]
pub struct Cache {
    index: HashTable<u32>,
    entries: Vec<Entry>,
    /// Counts the lists, so that what the last one lacked can be told.
    lists: u32,
    /// Where each Node is, unless entries are filed by name: then that is where it is.
    places: Option<Box<NodeIndex>>,
}

/// How much there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Nodes.
    pub nodes: usize,
    /// Records.
    pub records: usize,
    /// Records among them that can't be read.
    pub unreadable: usize,
}

/// How many Nodes are missing that should be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    /// So many have a record that does not say that they are gone, and no list or deletion has told where they are.
    pub nodes: usize,
    /// Of so many that have such a record.
    pub known: usize,
}

impl Cache {
    /// The same kind of cache, with nothing in it.
    pub(crate) fn emptied(&self) -> Self {
        if self.places.is_some() { Self::by_identity() } else { Self::default() }
    }

    /// What is filed under this, if anything is.
    pub fn get(&self, under: &str) -> Option<&Entry> {
        self.find(under).map(|at| &self.entries[at])
    }

    fn find(&self, under: &str) -> Option<usize> {
        let found = self.index.find(hash(under), |&at| *self.entries[at as usize].key == *under);
        found.map(|&at| at as usize)
    }

    /// The entry for what is filed under this, made where there is none.
    fn entry(&mut self, under: &str) -> &mut Entry {
        let at = match self.find(under) {
            Some(at) => at,
            None => self.add(under),
        };
        &mut self.entries[at]
    }

    fn add(&mut self, under: &str) -> usize {
        if self.entries.len() == self.entries.capacity() {
            // By an eighth, not by all: that is still seldom, and entries are the most of what a daemon holds.
            self.entries.reserve_exact(64 + self.entries.len() / 8);
        }
        let at = self.entries.len();
        self.entries.push(Entry::new(RecordKey::from(under)));
        let entries = &self.entries;
        // Four billion Nodes do not fit into memory, nor into a cluster.
        let number = u32::try_from(at).unwrap_or(u32::MAX);
        self.index.insert_unique(hash(under), number, |&at| hash(&entries[at as usize].key));
        at
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// How many Nodes there are, and how many records.
    pub fn count(&self) -> Count {
        let mut count = Count::default();
        for entry in &self.entries {
            count.nodes += entry.nodes();
            count.records += usize::from(entry.record.is_there());
            count.unreadable += usize::from(entry.stored() == Stored::Unreadable);
        }
        count
    }

    /// Takes note of a Node, and says whether that is news.
    pub fn see_node<'a>(&mut self, filed: impl Into<Filed<'a>>, node: NodeSummary) -> bool {
        let filed = filed.into();
        match self.places {
            None => self.entry(filed.under).see_node(node),
            Some(_) => self.place(None, filed, &node),
        }
    }

    /// Takes note that a Node was gone at this version, beyond doubt.
    pub fn lose_node<'a>(&mut self, filed: impl Into<Filed<'a>>, version: ResourceVersion) -> bool {
        let filed = filed.into();
        match self.places {
            None => self.entry(filed.under).lose_node(version, true),
            Some(_) => self.displace(filed, version),
        }
    }

    /// Takes note that the Node of an entry was not found when it was asked for. Only if nothing was seen of it meanwhile.
    pub fn miss_node(&mut self, under: &str) {
        if self.places.is_some() {
            return self.miss_placed(under);
        }
        let entry = self.entry(under);
        entry.lose_node(entry.node_version, true);
    }

    /// Takes note of a record, and says whether that is news.
    pub fn see_record<'a>(
        &mut self,
        filed: impl Into<Filed<'a>>,
        version: ResourceVersion,
        record: Stored<RecordSummary>,
    ) -> bool {
        self.recorded(filed.into()).see_record(version, record)
    }

    /// The entry of a record, which knows now which Node the record names.
    fn recorded(&mut self, filed: Filed<'_>) -> &mut Entry {
        let names_the_node = self.places.is_some() && filed.names_the_node();
        let entry = self.entry(filed.under);
        if names_the_node {
            entry.recorded(filed.name);
        }
        entry
    }

    /// Takes note that there was no record at this version.
    pub fn lose_record(&mut self, under: &str, version: ResourceVersion) -> bool {
        self.entry(under).lose_record(version, true)
    }

    /// Takes note that there is no record. Only if nothing was seen of it meanwhile.
    pub fn miss_record(&mut self, under: &str) {
        let entry = self.entry(under);
        entry.lose_record(entry.record_version, true);
    }

    /// Begins a list: everything that it has is to be marked with this number.
    pub fn begin_list(&mut self) -> u32 {
        self.lists = self.lists.wrapping_add(1);
        self.lists
    }

    /// Takes note of a Node in a list.
    pub fn list_node<'a>(&mut self, list: u32, filed: impl Into<Filed<'a>>, node: NodeSummary) -> bool {
        let filed = filed.into();
        if self.places.is_some() {
            return self.place(Some(list), filed, &node);
        }
        let entry = self.entry(filed.under);
        entry.node_list = list;
        entry.see_node(node)
    }

    /// Takes note of a record in a list.
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

    /// Ends a complete list of Nodes: what it lacked was not there at its version. Says whether it lacked any that were known.
    pub fn end_list_of_nodes(&mut self, list: u32, version: ResourceVersion) -> bool {
        if self.places.is_some() {
            return self.end_list_of_placed(list, version);
        }
        let lacking = self.entries.iter_mut().filter(|entry| entry.node_list != list);
        lacking.filter_map(|entry| entry.lose_node(version, false).then_some(())).count() > 0
    }

    /// The same for a list of records.
    pub fn end_list_of_records(&mut self, list: u32, version: ResourceVersion) -> bool {
        let lacking = self.entries.iter_mut().filter(|entry| entry.record_list != list);
        lacking.filter_map(|entry| entry.lose_record(version, false).then_some(())).count() > 0
    }

    /// Forgets what there is nothing left to know of, and nothing left to do with.
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

    /// How many Nodes a list lacked that should be there.
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

    /// Takes it for certain that what lists lacked is gone.
    pub fn believe_absence(&mut self) {
        for entry in self.entries.iter_mut().filter(|entry| !entry.node.is_there()) {
            entry.is_surely_gone = true;
        }
    }
}

/// Whether it is news that something was seen at this version. What was thought to be gone is, as it was, too.
fn is_news(version: ResourceVersion, known: ResourceVersion, is_there: bool) -> bool {
    version > known || version == known && !is_there
}

fn hash(under: &str) -> u64 {
    xxh3_64(under.as_bytes())
}

#[cfg(test)]
mod tests;
