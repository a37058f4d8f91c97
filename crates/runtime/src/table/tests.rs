use label_storage::Uid;
use label_storage::summary::{LabelsDigest, UidDigest};

use super::*;

mod identity;

fn version(version: u64) -> ResourceVersion {
    ResourceVersion(version)
}

fn node(at: u64) -> NodeSummary {
    let uid = Uid::new("u1").expect("a uid").digest();
    NodeSummary {
        uid,
        version: version(at),
        labels: LabelsDigest::EMPTY,
        restored_from: None,
        traits: Default::default(),
    }
}

fn record() -> Stored<RecordSummary> {
    Stored::Record(RecordSummary {
        id: None,
        uid: None,
        node_version: None,
        labels_generation: None,
        departed_at: None,
        labels: LabelsDigest::EMPTY,
        is_empty: false,
    })
}

/// How many Nodes there are, and how many records.
fn count(table: &Table) -> (usize, usize) {
    let Count { nodes, records, .. } = table.count();
    (nodes, records)
}

#[test]
fn only_what_is_newer_counts() {
    let mut table = Table::default();
    let is_gone = |table: &Table| table.get("a").is_some_and(Row::is_surely_gone);
    assert!(table.see_node("a", node(5)));
    assert!(!table.see_node("a", node(5)) && !table.see_node("a", node(4)));
    assert!(!table.lose_node("a", version(4)), "deleted before it was seen");
    assert_eq!(table.get("a").and_then(Row::node), Some(node(5)));
    assert!(table.lose_node("a", version(7)));
    assert!(!table.see_node("a", node(6)), "seen before it was deleted");
    assert!(is_gone(&table));
    assert!(table.see_node("a", node(8)));
    table.miss_node("a");
    assert!(is_gone(&table) && !table.see_node("a", node(7)));
    assert!(table.see_node("a", node(8)), "it was there all the time, and somebody was wrong");
}

#[test]
fn what_a_list_lacked_the_next_may_have_again() {
    let mut table = Table::default();
    let list = |table: &mut Table, is_in_it: bool, at: u64| {
        let list = table.begin_list();
        if is_in_it {
            table.list_node(list, "a", node(5));
            table.list_record(list, "a", version(6), record());
        }
        table.end_list_of_nodes(list, version(at));
        table.end_list_of_records(list, version(at));
        count(table)
    };
    assert_eq!(list(&mut table, true, 10), (1, 1));
    assert_eq!(list(&mut table, false, 20), (0, 0));
    assert_eq!(list(&mut table, true, 30), (1, 1));
    // But what was deleted beyond doubt is not there because an old list has it.
    assert_eq!(list(&mut table, false, 40), (0, 0));
    table.lose_node("a", version(35));
    table.lose_record("a", version(36));
    assert_eq!(list(&mut table, true, 34), (0, 0));
}

#[test]
fn the_versions_of_nodes_and_records_are_not_compared() {
    let mut table = Table::default();
    table.see_node("a", node(1000));
    assert!(table.see_record("a", version(5), record()));
    assert!(table.lose_record("a", version(6)));
    let row = table.get("a").expect("a row");
    assert_eq!((row.stored(), row.node()), (Stored::Nothing, Some(node(1000))));
}

#[test]
fn what_a_complete_list_lacks_is_gone_but_not_what_came_after_it() {
    let mut table = Table::default();
    for (name, at) in [("listed", 1), ("missing", 2), ("later", 30)] {
        table.see_node(name, node(at));
    }
    let list = table.begin_list();
    table.list_node(list, "listed", node(1));
    table.list_node(list, "new", node(3));
    table.end_list_of_nodes(list, version(20));
    let there = |name: &str| table.get(name).is_some_and(|row| row.node().is_some());
    assert_eq!(["listed", "missing", "later", "new"].map(there), [true, false, true, true]);
}

#[test]
fn absence_from_a_list_is_no_certainty_and_a_deletion_is() {
    let mut table = Table::default();
    let names = ["listed", "missing", "deleted", "never-seen"];
    for name in names {
        table.see_record(name, version(1), record());
    }
    for name in &names[..3] {
        table.see_node(*name, node(2));
    }
    let list = table.begin_list();
    table.list_node(list, "listed", node(2));
    table.lose_node("deleted", version(3));
    table.end_list_of_nodes(list, version(4));
    let gone = |table: &Table| names.map(|name| table.get(name).is_some_and(Row::is_surely_gone));
    assert_eq!(table.missing(), Missing { nodes: 2, known: 4 });
    assert_eq!(gone(&table), [false, false, true, false]);
    table.believe_absence();
    assert_eq!(gone(&table), [false, true, true, true]);
}

#[test]
fn what_there_is_nothing_to_know_of_is_forgotten() {
    let mut table = Table::default();
    for name in ["gone", "node", "busy"] {
        table.see_node(name, node(1));
    }
    table.see_record("record", version(1), record());
    table.lose_node("gone", version(2));
    table.lose_node("busy", version(2));
    assert_eq!(count(&table), (1, 1));
    table.forget_gone(|name| &**name == "busy");
    let names: Vec<_> = table.iter().map(|row| row.key().to_string()).collect();
    assert_eq!(names, ["node", "busy", "record"]);
    let found = ["gone", "node", "record"].map(|name| table.get(name).map(|row| row.key().to_string()));
    assert_eq!(found, [None, Some("node".to_owned()), Some("record".to_owned())]);
}

#[test]
fn a_row_is_small() {
    assert!(size_of::<Row>() <= 200, "{}", size_of::<Row>());
}
