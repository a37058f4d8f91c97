//! Earlier versions of the labels.

use super::*;
use crate::fixtures::{decode, node, written};

fn rules(history: usize) -> Rules {
    Rules { history, ..Rules::default() }
}

/// The record after the Node's label was each of these, one after the other.
fn through(values: &[&str], rules: &Rules) -> Record {
    let labelled = |value: &str| if value.is_empty() { node("a") } else { node("a").label("k", value) };
    let mut record = Record::of(&labelled(values[0]), second(0));
    for (at, value) in values.iter().enumerate().skip(1) {
        record = written(&record.retaken(&labelled(value), second(at as i64), rules));
    }
    record
}

/// Each version: its generation, when it was, and the label.
fn versions(record: &Record) -> Vec<(u64, i64, &str)> {
    let version = |version: &'_ Version| (version.generation, version.at.expect("a time").as_second());
    let label = |version: &'_ Version| version.labels.len();
    assert!(record.more.history.iter().all(|version| label(version) == 1));
    let all = record.more.history.iter();
    all.map(|of| (version(of).0, version(of).1, of.labels["k"].as_str())).collect()
}

#[test]
fn a_version_is_what_was_kept_and_when() {
    let record = through(&["v", "w", "x"], &rules(3));
    assert_eq!(versions(&record), [(1, 0, "v"), (2, 1, "w")]);
    assert_eq!(
        encode(&record).data.expect("data")["history-COLON-2"],
        r#"{"at":"1970-01-01T00:00:01Z","kept":{"k":"w"}}"#
    );
}

#[test]
fn only_what_changes_makes_a_version() {
    let record = through(&["v", "v", "w", "w", "w"], &rules(3));
    assert_eq!(versions(&record), [(1, 1, "v")], "and it is from when it was last seen");
    let stamped = record.with_departed_at(Some(second(9)));
    assert_eq!(stamped.more.history, record.more.history);
    let returned = node("a").incarnation("u2").label("k", "w");
    assert_eq!(versions(&record.retaken(&returned, second(9), &rules(3))), [(1, 1, "v")]);
    assert_eq!(
        versions(&through(&["v", "", "w"], &rules(3))),
        [(1, 0, "v")],
        "that there was nothing is no version"
    );
}

#[test]
fn there_are_no_more_versions_than_the_rules_say_and_the_oldest_go() {
    let values = ["a", "b", "c", "d", "e"];
    for (history, expected) in [(0, &[][..]), (1, &["d"]), (3, &["b", "c", "d"]), (20, &["a", "b", "c", "d"])]
    {
        let record = through(&values, &rules(history));
        assert_eq!(versions(&record).iter().map(|(_, _, value)| *value).collect::<Vec<_>>(), expected);
    }
    // A rule that is narrowed takes effect with the next write.
    let many = through(&values, &rules(20));
    let few = many.retaken(&node("a").label("k", "f"), second(9), &rules(2));
    assert_eq!(versions(&few).iter().map(|(_, _, value)| *value).collect::<Vec<_>>(), ["d", "e"]);
}

#[test]
fn a_merge_is_a_change_like_any_other() {
    let first = record("a", "u1").label("k", "v").label("l", "w");
    let merged = written(&first.merged(&node("a").incarnation("u2").label("k", "x"), second(1), &rules(3)));
    let version = Version { generation: 4, at: Some(second(500)), labels: first.labels };
    assert_eq!(merged.more.history, [version]);
}

#[test]
fn what_is_kept_beside_labels_is_in_it_too() {
    let first = record("a", "u1").label("annotation:owner", "a\n\"b\"").label("taint:NoSchedule:gpu", "");
    let next = written(&first.retaken(&node("a"), second(1), &rules(1)));
    assert_eq!(next.more.history[0].labels, first.labels);
    assert_eq!(next.labels, Labels::new());
}

#[test]
fn where_there_is_no_room_the_oldest_go_first_and_labels_never() {
    let large = |i: u64| Version {
        generation: i,
        at: None,
        labels: [("annotation:large".to_owned(), "x".repeat(200 << 10))].into(),
    };
    let mut record = good().label("annotation:large", &"x".repeat(250 << 10));
    record.more.history = (1..=6).map(large).collect();
    let read = written(&record);
    assert_eq!(read.labels, record.labels);
    assert_eq!(read.more.history, [large(4), large(5), large(6)]);
    let full = record
        .label("annotation:more", &"x".repeat(250 << 10))
        .label("annotation:most", &"x".repeat(250 << 10));
    let full = full.label("annotation:utmost", &"x".repeat(250 << 10));
    let read = written(&full);
    assert_eq!((read.labels, read.more.history), (full.labels, vec![]));
}

#[test]
fn a_version_that_is_none_is_damage_and_is_kept() {
    let good_one = r#"{"kept":{"k":"v"}}"#;
    for (data_key, value) in [
        ("history-COLON-7", ""),
        ("history-COLON-7", "null"),
        ("history-COLON-7", "{}"),
        ("history-COLON-7", "[]"),
        ("history-COLON-7", r#"{"kept":{"k":1}}"#),
        ("history-COLON-7", r#"{"kept":{"not a key":"v"}}"#),
        ("history-COLON-7", r#"{"kept":{"k":"not a value"}}"#),
        ("history-COLON-7", r#"{"kept":{"k":"v"},"at":"yesterday"}"#),
        ("history-COLON-7", r#"{"kept":{"k":"v"},"note":"mine"}"#),
        ("history-COLON-07", good_one),
        ("history-COLON--7", good_one),
        ("history-COLON-", good_one),
        ("history-COLON-x", good_one),
        ("history-COLON-99999999999999999999", good_one),
    ] {
        let decoded = tampered(|config_map| {
            config_map.data.get_or_insert_default().insert(data_key.to_owned(), value.to_owned());
        });
        let decoded = decoded.expect("readable");
        assert_eq!(decoded.record, good().leftover(data_key, value), "{data_key} {value}");
        assert_eq!(decoded.damage.len(), 1);
    }
    let decoded = tampered(|config_map| {
        config_map.data.get_or_insert_default().insert("history-COLON-7".to_owned(), good_one.to_owned());
    });
    let decoded = decoded.expect("readable");
    assert_eq!((decoded.record.more.history.len(), decoded.damage), (1, vec![]));
}

proptest! {
    #[test]
    fn versions_survive_the_round_trip(
        generations in proptest::collection::btree_set(any::<u64>(), 0..5),
        labels in proptest::collection::btree_map("(annotation:)?[a-z]{1,3}", "[a-z]{0,3}", 1..4),
        at in proptest::option::of(0i64..1 << 32),
    ) {
        let version = |generation| Version { generation, at: at.map(second), labels: labels.clone() };
        let mut record = good();
        record.more.history = generations.into_iter().map(version).collect();
        let decoded = decode(&encode(&record));
        prop_assert_eq!(decoded.record, record);
        prop_assert_eq!(decoded.damage, vec![]);
    }

    #[test]
    fn no_history_makes_decoding_panic_or_lose_an_entry(
        entries in proptest::collection::btree_map("history-COLON-[0-9+ x]{0,3}", r#"[{}\[\]":,a-z0-9]{0,30}"#, 0..6),
    ) {
        let mut config_map = encode(&record("a", "u1"));
        config_map.data = Some(entries.clone());
        let again = encode(&decode(&config_map).record);
        prop_assert_eq!(again.data.unwrap_or_default().len(), entries.len());
    }
}
