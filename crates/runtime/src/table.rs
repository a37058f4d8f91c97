//! What is known of every Node of the shard and of its record, and since when.
//!
//! Lists and watches tell of the same objects at the same time, and answers of the API server overtake each other. So
//! everything that is seen comes with its resourceVersion, and only what is newer counts. Both kinds count on their
//! own: the versions of a Node and of a ConfigMap are never compared.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use label_storage::ResourceVersion;
use label_storage::store::Stored;
use label_storage::summary::{NodeSummary, RecordSummary};

/// A Node's name, shared by all who speak of it.
pub type Name = Arc<str>;

/// What is known of one Node and its record.
#[derive(Debug, Clone)]
pub struct Row {
    node: Slot<NodeSummary>,
    record: Slot<Stored<RecordSummary>>,
    /// Since when this process has seen the record as it is.
    record_since: Instant,
    /// Whether the Node's absence is certain enough to act upon.
    absence: Absence,
}

/// How sure it is that a Node is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Absence {
    /// A list did not have it.
    Suspected,
    /// The API server told of its deletion, or said so when asked for it.
    Certain,
}

/// The newest that is known of an object: it looks like this, or it was gone at that version.
#[derive(Debug, Clone)]
struct Slot<T> {
    version: ResourceVersion,
    /// The last list that had it.
    list: u32,
    value: Option<T>,
}

impl<T> Slot<T> {
    const fn empty() -> Self {
        Self { version: ResourceVersion(0), list: 0, value: None }
    }

    fn see(&mut self, version: ResourceVersion, value: T) -> bool {
        let is_news = version > self.version;
        if is_news {
            (self.version, self.value) = (version, Some(value));
        }
        is_news
    }

    fn lose(&mut self, version: ResourceVersion) -> bool {
        let is_news = version >= self.version && self.value.is_some();
        if is_news {
            (self.version, self.value) = (version, None);
        }
        is_news
    }
}

impl Row {
    fn new() -> Self {
        Self {
            node: Slot::empty(),
            record: Slot::empty(),
            record_since: Instant::now(),
            absence: Absence::Suspected,
        }
    }

    /// The Node, if it is there.
    pub fn node(&self) -> Option<NodeSummary> {
        self.node.value
    }

    /// Its record.
    pub fn stored(&self) -> Stored<RecordSummary> {
        self.record.value.unwrap_or(Stored::Nothing)
    }

    /// The record's own version.
    pub fn record_version(&self) -> ResourceVersion {
        self.record.version
    }

    /// Since when this process has seen the record as it is.
    pub fn record_since(&self) -> Instant {
        self.record_since
    }

    /// Whether the Node is gone beyond doubt.
    pub fn is_surely_gone(&self) -> bool {
        self.node.value.is_none() && self.absence == Absence::Certain
    }

    /// Takes note of the Node, and says whether that is news.
    pub fn see_node(&mut self, node: NodeSummary) -> bool {
        self.node.see(node.version, node)
    }

    /// Takes note that the Node was gone at this version, beyond doubt.
    pub fn lose_node(&mut self, version: ResourceVersion) -> bool {
        let is_gone = self.node.lose(version);
        if self.node.value.is_none() {
            self.absence = Absence::Certain;
        }
        is_gone
    }

    /// Takes note that the Node was not found when it was asked for. Whatever was seen of it was before.
    pub fn miss_node(&mut self) {
        self.lose_node(self.node.version);
    }

    /// Takes note of the record, and says whether that is news.
    pub fn see_record(&mut self, version: ResourceVersion, record: Stored<RecordSummary>) -> bool {
        let is_news = self.record.see(version, record);
        if is_news {
            self.record_since = Instant::now();
        }
        is_news
    }

    /// Takes note that there was no record at this version.
    pub fn lose_record(&mut self, version: ResourceVersion) -> bool {
        self.record.lose(version)
    }

    /// Takes note that there is no record. Whatever was seen of it was before.
    pub fn miss_record(&mut self) {
        self.lose_record(self.record.version);
    }

    /// Whether there is a record with something in it that does not say that its Node is gone.
    fn expects_node(&self) -> bool {
        matches!(self.stored(), Stored::Record(record) if record.departed_at.is_none() && !record.is_empty)
    }
}

/// All rows, by the Node's name.
#[derive(Debug, Default)]
pub struct Table {
    rows: HashMap<Name, Row>,
    /// Counts the lists, so that what the last one lacked can be told.
    lists: u32,
}

/// How many Nodes are missing that should be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    /// So many have a record that does not say that they are gone, and no list or deletion has told where they are.
    pub nodes: usize,
    /// Of so many that have such a record.
    pub known: usize,
}

impl Table {
    /// The row of a Node, if there is one.
    pub fn get(&self, node: &str) -> Option<(&Name, &Row)> {
        self.rows.get_key_value(node)
    }

    /// The row of a Node.
    pub fn row(&mut self, node: &str) -> (Name, &mut Row) {
        // Most are there: a name is made only once.
        let name = match self.rows.get_key_value(node) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(node),
        };
        let row = self.rows.entry(Arc::clone(&name)).or_insert_with(Row::new);
        (name, row)
    }

    /// All rows.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &Row)> {
        self.rows.iter()
    }

    /// How many Nodes are there, and how many records.
    pub fn count(&self) -> (usize, usize) {
        self.rows.values().fold((0, 0), |(nodes, records), row| {
            let (node, record) = (row.node.value.is_some(), row.record.value.is_some());
            (nodes + usize::from(node), records + usize::from(record))
        })
    }

    /// Begins a list: everything that it has is to be marked with this number.
    pub fn begin_list(&mut self) -> u32 {
        self.lists = self.lists.wrapping_add(1);
        self.lists
    }

    /// Takes note of a Node in a list.
    pub fn list_node(&mut self, list: u32, name: &str, node: NodeSummary) -> bool {
        let (_, row) = self.row(name);
        row.node.list = list;
        row.see_node(node)
    }

    /// Takes note of a record in a list.
    pub fn list_record(
        &mut self,
        list: u32,
        node: &str,
        version: ResourceVersion,
        record: Stored<RecordSummary>,
    ) -> bool {
        let (_, row) = self.row(node);
        row.record.list = list;
        row.see_record(version, record)
    }

    /// Ends a complete list of Nodes: what it lacked was not there at its version.
    pub fn end_list_of_nodes(&mut self, list: u32, version: ResourceVersion) {
        for row in self.rows.values_mut().filter(|row| row.node.list != list) {
            if row.node.lose(version) {
                row.absence = Absence::Suspected;
            }
        }
    }

    /// Ends a complete list of records: what it lacked was not there at its version.
    pub fn end_list_of_records(&mut self, list: u32, version: ResourceVersion) {
        for row in self.rows.values_mut().filter(|row| row.record.list != list) {
            row.record.lose(version);
        }
    }

    /// Forgets what there is nothing left to know of.
    pub fn forget_gone(&mut self) {
        self.rows.retain(|_, row| row.node.value.is_some() || row.record.value.is_some());
    }

    /// How many Nodes a list lacked that should be there.
    pub fn missing(&self) -> Missing {
        let mut missing = Missing { nodes: 0, known: 0 };
        for row in self.rows.values().filter(|row| row.expects_node()) {
            missing.known += 1;
            missing.nodes += usize::from(row.node.value.is_none() && row.absence == Absence::Suspected);
        }
        missing
    }

    /// Takes it for certain that what lists lacked is gone.
    pub fn believe_absence(&mut self) {
        for row in self.rows.values_mut().filter(|row| row.node.value.is_none()) {
            row.absence = Absence::Certain;
        }
    }
}

#[cfg(test)]
mod tests {
    use label_storage::Uid;
    use label_storage::summary::LabelsDigest;

    use super::*;

    fn version(version: u64) -> ResourceVersion {
        ResourceVersion(version)
    }

    fn node(at: u64) -> NodeSummary {
        let uid = Uid::new("u1").expect("a uid").digest();
        NodeSummary { uid, version: version(at), labels: LabelsDigest::EMPTY, restored_from: None }
    }

    fn record() -> Stored<RecordSummary> {
        Stored::Record(RecordSummary {
            uid: None,
            node_version: None,
            labels_generation: None,
            departed_at: None,
            labels: LabelsDigest::EMPTY,
            is_empty: false,
        })
    }

    #[test]
    fn only_what_is_newer_counts() {
        let mut row = Row::new();
        assert!(row.see_node(node(5)));
        assert!(!row.see_node(node(5)) && !row.see_node(node(4)));
        assert!(!row.lose_node(version(4)), "deleted before it was seen");
        assert_eq!(row.node(), Some(node(5)));
        assert!(row.lose_node(version(7)));
        assert!(!row.see_node(node(6)), "seen before it was deleted");
        assert!(row.is_surely_gone());
        assert!(row.see_node(node(8)));
        row.miss_node();
        assert!(row.is_surely_gone() && !row.see_node(node(8)));
    }

    #[test]
    fn the_versions_of_nodes_and_records_are_not_compared() {
        let mut row = Row::new();
        row.see_node(node(1000));
        assert!(row.see_record(version(5), record()));
        assert!(row.lose_record(version(6)));
        assert_eq!((row.stored(), row.node()), (Stored::Nothing, Some(node(1000))));
    }

    #[test]
    fn what_a_complete_list_lacks_is_gone_but_not_what_came_after_it() {
        let mut table = Table::default();
        for (name, at) in [("listed", 1), ("missing", 2), ("later", 30)] {
            table.row(name).1.see_node(node(at));
        }
        let list = table.begin_list();
        table.list_node(list, "listed", node(1));
        table.list_node(list, "new", node(3));
        table.end_list_of_nodes(list, version(20));
        let there = |name: &str| table.get(name).is_some_and(|(_, row)| row.node().is_some());
        assert_eq!(["listed", "missing", "later", "new"].map(there), [true, false, true, true]);
    }

    #[test]
    fn absence_from_a_list_is_no_certainty_and_a_deletion_is() {
        let mut table = Table::default();
        let names = ["listed", "missing", "deleted", "never-seen"];
        for name in names {
            table.row(name).1.see_record(version(1), record());
        }
        for name in &names[..3] {
            table.row(name).1.see_node(node(2));
        }
        let list = table.begin_list();
        table.list_node(list, "listed", node(2));
        table.row("deleted").1.lose_node(version(3));
        table.end_list_of_nodes(list, version(4));
        let gone =
            |table: &Table| names.map(|name| table.get(name).is_some_and(|(_, row)| row.is_surely_gone()));
        assert_eq!(table.missing(), Missing { nodes: 2, known: 4 });
        assert_eq!(gone(&table), [false, false, true, false]);
        table.believe_absence();
        assert_eq!(gone(&table), [false, true, true, true]);
    }

    #[test]
    fn what_there_is_nothing_to_know_of_is_forgotten() {
        let mut table = Table::default();
        table.row("node").1.see_node(node(1));
        table.row("record").1.see_record(version(1), record());
        table.row("gone").1.see_node(node(1));
        table.row("gone").1.lose_node(version(2));
        assert_eq!(table.count(), (1, 1));
        table.forget_gone();
        assert!(table.get("gone").is_none() && table.iter().count() == 2);
    }
}
