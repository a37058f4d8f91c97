//! The past of two records that become one, and what else an edit says of itself.

use super::*;
use crate::fixtures::{decode, written};

fn version(generation: u64, at: i64, pool: &str) -> Version {
    Version { generation, at: Some(second(at)), labels: [("pool".to_owned(), pool.to_owned())].into() }
}

fn with_past(pool: &str, history: Vec<Version>) -> Record {
    let mut record = record("a", "u1").label("pool", pool);
    record.more.history = history;
    record
}

/// When each version was, and its label, where nothing has to go.
fn past(mine: &Record, other: &Record) -> Vec<(i64, String)> {
    let history = mine.history_under(other, &Rules { history: 20, ..Rules::default() });
    let at = |version: &Version| version.at.expect("a time").as_second();
    history.iter().map(|version| (at(version), version.labels["pool"].clone())).collect()
}

fn expected(versions: &[(i64, &str)]) -> Vec<(i64, String)> {
    versions.iter().map(|(at, pool)| (*at, (*pool).to_owned())).collect()
}

#[test]
fn of_two_versions_of_one_time_the_records_own_comes_first() {
    let mine = with_past("x", vec![version(1, 10, "a"), version(2, 20, "b")]);
    let other = with_past("x", vec![version(1, 10, "c"), version(2, 20, "d")]);
    assert_eq!(past(&mine, &other), expected(&[(10, "a"), (10, "c"), (20, "b"), (20, "d")]));
}

#[test]
fn the_same_labels_at_another_time_are_another_version() {
    let mine = with_past("x", vec![version(1, 10, "a"), version(2, 30, "b")]);
    let other = with_past("x", vec![version(1, 20, "a"), version(2, 30, "b"), version(3, 40, "b")]);
    assert_eq!(past(&mine, &other), expected(&[(10, "a"), (20, "a"), (30, "b"), (40, "b")]));
}

#[test]
fn that_there_was_nothing_is_no_version() {
    let mut mine = with_past("x", vec![version(1, 10, "a")]);
    let other = with_past("y", Vec::new());
    assert_eq!(past(&mine, &other), expected(&[(10, "a"), (500, "x")]));
    mine.labels.clear();
    assert_eq!(past(&mine, &other), expected(&[(10, "a")]));
}

#[test]
fn generations_that_grow_already_stay_as_they_are() {
    let mine = with_past("x", vec![version(1, 10, "a"), version(5, 30, "c")]);
    let other = with_past("x", vec![version(3, 20, "b"), version(5, 40, "d"), version(5, 50, "e")]);
    let history = mine.history_under(&other, &Rules { history: 20, ..Rules::default() });
    assert_eq!(history.iter().map(|version| version.generation).collect::<Vec<_>>(), [1, 3, 5, 6, 7]);
}

#[test]
fn a_record_for_a_node_to_come_is_filed_under_its_identity() {
    let identity = "systemUUID=A";
    let seeded = Record::awaiting("a", Some(identity.to_owned()));
    assert_eq!(seeded.filed_under(), identity);
    let config_map = encode(&seeded.label("pool", "gold"));
    assert_eq!(config_map.metadata.name, Some(record_name(identity)));
    assert_eq!(decode(&config_map).record.filed_under(), identity);
    assert_eq!(Record::awaiting("a", None).filed_under(), "a");
}

#[test]
fn an_edit_of_what_is_withheld_alone_is_a_change_but_no_version() {
    let before = record("a", "u1").label("pool", "gold").withheld("tier", "1", Some("A"));
    let edit = |withheld: BTreeMap<String, WithheldValue>| {
        written(&before.edited(before.labels.clone(), withheld, None, second(900), &Rules::default()))
    };
    let same = edit(before.more.withheld.clone());
    assert_eq!((same.labels_generation, same.captured_at), (Some(4), Some(second(500))));
    for withheld in [BTreeMap::new(), record("a", "u1").withheld("tier", "1", Some("B")).more.withheld] {
        let after = edit(withheld.clone());
        assert_eq!((after.labels_generation, after.captured_at), (Some(5), Some(second(900))));
        assert_eq!((after.more.withheld, after.more.history), (withheld, vec![]));
    }
}

fn awaiting(generation: u64, at: i64, pool: &str, history: Vec<Version>) -> Record {
    let Version { at, labels, .. } = version(generation, at, pool);
    let mut record = Record::awaiting("a", None);
    (record.generation, record.captured_at, record.labels) = (generation, at, labels);
    record.more.history = history;
    record
}

#[test]
fn two_pasts_become_one_in_the_order_of_time_and_each_generation_names_one_version() {
    let rules = Rules { history: 20, ..Rules::default() };
    let mine = awaiting(3, 40, "mine", vec![version(1, 10, "a"), version(2, 30, "b")]);
    let other = awaiting(3, 50, "other", vec![version(1, 10, "a"), version(2, 20, "c")]);
    let all = [version(1, 10, "a"), version(2, 20, "c"), version(3, 30, "b"), version(4, 40, "mine")];
    assert_eq!(mine.history_under(&other, &rules), all);
    let few = Rules { history: 2, ..rules };
    assert_eq!(mine.history_under(&other, &few), [version(2, 30, "b"), version(3, 40, "mine")]);
    // Labels that did not change are no earlier version.
    let same = awaiting(9, 50, "mine", Vec::new());
    assert_eq!(mine.history_under(&same, &few), mine.more.history);
}
