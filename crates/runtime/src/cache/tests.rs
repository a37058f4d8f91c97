use label_storage::Uid;
use label_storage::summary::{LabelsDigest, RecordId, UidDigest};

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
        id: RecordId::UNKNOWN,
        uid: None,
        node_version: None,
        labels_generation: None,
        departed_at: None,
        labels: LabelsDigest::EMPTY,
        is_empty: false,
        has_withheld: false,
        needs_whole: false,
        is_unlabelled: false,
    })
}

/// How many Nodes there are, and how many records.
fn count(cache: &Cache) -> (usize, usize) {
    let Count { nodes, records, .. } = cache.count();
    (nodes, records)
}

#[test]
fn only_what_is_newer_counts() {
    let mut cache = Cache::default();
    let is_gone = |cache: &Cache| cache.get("a").is_some_and(|entry| entry.is_surely_gone());
    assert!(cache.see_node(None, "a", node(5)));
    assert!(!cache.see_node(None, "a", node(5)) && !cache.see_node(None, "a", node(4)));
    assert!(!cache.lose_node("a", version(4)), "deleted before it was seen");
    assert_eq!(cache.get("a").and_then(|entry| entry.node()), Some(node(5)));
    assert!(cache.lose_node("a", version(7)));
    assert!(!cache.see_node(None, "a", node(6)), "seen before it was deleted");
    assert!(is_gone(&cache));
    assert!(cache.see_node(None, "a", node(8)));
    cache.miss_node("a");
    assert!(is_gone(&cache) && !cache.see_node(None, "a", node(7)));
    assert!(cache.see_node(None, "a", node(8)), "it was there all the time, and somebody was wrong");
}

#[test]
fn what_a_list_lacked_the_next_may_have_again() {
    let mut cache = Cache::default();
    let list = |cache: &mut Cache, is_in_it: bool, at: u64| {
        let list = cache.begin_list();
        if is_in_it {
            cache.see_node(Some(list), "a", node(5));
            cache.see_record(Some(list), "a", version(6), record());
        }
        cache.end_list_of_nodes(list, version(at));
        cache.end_list_of_records(list, version(at));
        count(cache)
    };
    assert_eq!(list(&mut cache, true, 10), (1, 1));
    assert_eq!(list(&mut cache, false, 20), (0, 0));
    assert_eq!(list(&mut cache, true, 30), (1, 1));
    // But what was deleted beyond doubt is not there because an old list has it.
    assert_eq!(list(&mut cache, false, 40), (0, 0));
    cache.lose_node("a", version(35));
    cache.lose_record("a", version(36));
    assert_eq!(list(&mut cache, true, 34), (0, 0));
}

#[test]
fn the_versions_of_nodes_and_records_are_not_compared() {
    let mut cache = Cache::default();
    cache.see_node(None, "a", node(1000));
    assert!(cache.see_record(None, "a", version(5), record()));
    assert!(cache.lose_record("a", version(6)));
    let entry = cache.get("a").expect("an entry");
    assert_eq!((entry.stored(), entry.node()), (Stored::Nothing, Some(node(1000))));
}

#[test]
fn what_a_complete_list_lacks_is_gone_but_not_what_came_after_it() {
    let mut cache = Cache::default();
    for (name, at) in [("listed", 1), ("missing", 2), ("later", 30)] {
        cache.see_node(None, name, node(at));
    }
    let list = cache.begin_list();
    cache.see_node(Some(list), "listed", node(1));
    cache.see_node(Some(list), "new", node(3));
    cache.end_list_of_nodes(list, version(20));
    let there = |name: &str| cache.get(name).is_some_and(|entry| entry.node().is_some());
    assert_eq!(["listed", "missing", "later", "new"].map(there), [true, false, true, true]);
}

#[test]
fn absence_from_a_list_is_no_certainty_and_a_deletion_is() {
    let mut cache = Cache::default();
    let names = ["listed", "missing", "deleted", "never-seen"];
    for name in names {
        cache.see_record(None, name, version(1), record());
    }
    for name in &names[..3] {
        cache.see_node(None, *name, node(2));
    }
    let list = cache.begin_list();
    cache.see_node(Some(list), "listed", node(2));
    cache.lose_node("deleted", version(3));
    cache.end_list_of_nodes(list, version(4));
    let gone = |cache: &Cache| names.map(|name| cache.get(name).is_some_and(|entry| entry.is_surely_gone()));
    assert_eq!(cache.missing(|_| true), (2, 4));
    assert_eq!(gone(&cache), [false, false, true, false]);
    cache.believe_absence();
    assert_eq!(gone(&cache), [false, true, true, true]);
}

#[test]
fn what_there_is_nothing_to_know_of_is_forgotten() {
    let mut cache = Cache::default();
    for name in ["gone", "node", "busy"] {
        cache.see_node(None, name, node(1));
    }
    cache.see_record(None, "record", version(1), record());
    cache.lose_node("gone", version(2));
    cache.lose_node("busy", version(2));
    assert_eq!(count(&cache), (1, 1));
    cache.forget_gone(|name| &**name == "busy");
    let names: Vec<_> = cache.keys().map(|key| key.to_string()).collect();
    assert_eq!(names, ["node", "busy", "record"]);
    let found = ["gone", "node", "record"].map(|name| cache.get(name).map(|entry| entry.key().to_string()));
    assert_eq!(found, [None, Some("node".to_owned()), Some("record".to_owned())]);
}

#[test]
fn a_row_is_small() {
    let size = size_of::<Slot>();
    assert!(size <= 168, "{size}");
}
