//! The record of a Node that was deleted before it was restored.

use super::*;
use crate::fixtures::{node, written};

fn labels(record: &Record) -> Vec<(&str, &str)> {
    record.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[test]
fn it_follows_the_node_unless_its_own_word_counts_for_more() {
    let first = record("a", "u1").label("pool", "gold").label("zone", "a").label("annotation:owner", "me");
    let node = node("a").incarnation("u2").label("pool", "default").label("zone", "b").label("new", "x");
    for (conflicts, pool, zone) in [
        ("", "default", "b"),
        ("pool=record", "gold", "b"),
        ("*=record", "gold", "a"),
        ("pool=report", "default", "b"),
    ] {
        let rules = Rules { conflicts: conflicts.parse().expect("conflicts"), ..Rules::default() };
        let merged = written(&first.merged(&node, second(1), &rules));
        let expected = [("annotation:owner", "me"), ("new", "x"), ("pool", pool), ("zone", zone)];
        assert_eq!(labels(&merged), expected, "{conflicts}");
        assert_eq!((merged.uid.as_ref(), merged.node_version), (Some(&node.uid), Some(node.version)));
    }
}

#[test]
fn it_follows_a_node_that_was_restored_before_whatever_the_conflicts_say() {
    let first = record("a", "u1").label("pool", "late");
    let bare = node("a").incarnation("u2").label("pool", "person");
    let marker = bare.marker_for(&first, []);
    let rules = Rules { conflicts: "*=record".parse().expect("conflicts"), ..Rules::default() };
    for (node, pool) in [(bare.clone(), "late"), (bare.marked(&marker), "person")] {
        assert_eq!(labels(&first.merged(&node, second(1), &rules)), [("pool", pool)]);
    }
}

#[test]
fn it_adds_nothing_that_its_keep_list_does_not_have() {
    let first = record("a", "u1")
        .label("annotation:label-storage/keep", "pool,a/*")
        .label("pool", "gold")
        .label("old", "x");
    let registered =
        node("a").incarnation("u2").label("kubernetes.io/os", "linux").label("a/b", "c").label("old", "y");
    let merged = |node: &Node| first.merged(node, second(1), &Rules::default());
    let keep = "annotation:label-storage/keep";
    assert_eq!(
        labels(&merged(&registered)),
        [("a/b", "c"), (keep, "pool,a/*"), ("old", "y"), ("pool", "gold")]
    );
    // One that it has itself it was seen through already.
    let own = registered.annotated("label-storage/keep", "*").label(keep, "*");
    assert_eq!(merged(&own).labels.len(), 5);
}
