//! A Node's own list of what is to be kept.

use super::*;
use crate::plan_restore;

const KEPT: &str = "annotation:label-storage/keep";

fn listed(list: &str) -> Node {
    let node = node("a").label("pool", "gold").label("zone", "a").label("kubernetes.io/os", "linux");
    node.annotated("label-storage/keep", list)
}

fn names(node: Node, rules: &Rules) -> Vec<String> {
    node.seen_through(rules).labels.into_keys().collect()
}

#[test]
fn it_takes_the_place_of_what_is_included_and_not_of_what_is_excluded() {
    let only_zone = Rules {
        labels: Selection { include: "zone".parse().expect("patterns"), exclude: Default::default() },
        ..Rules::default()
    };
    for (rules, list, labels) in [
        (Rules::default(), "pool", &["pool"][..]),
        (Rules::default(), "p*,zone", &["pool", "zone"]),
        (Rules::default(), "", &[]),
        (Rules::default(), "machine-facts", &["kubernetes.io/os"]),
        (only_zone.clone(), "pool", &["pool"]),
        (only_zone.clone(), "*", &["kubernetes.io/os", "pool", "zone"]),
        (rules("pool"), "pool,zone", &["zone"]),
        // Rather too much than too little.
        (Rules::default(), "not a pattern", &["kubernetes.io/os", "pool", "zone"]),
        (only_zone, "pool,,zone", &["zone"]),
    ] {
        let mut expected: Vec<_> = labels.iter().copied().chain([KEPT]).collect();
        expected.sort_unstable();
        assert_eq!(names(listed(list), &rules), expected, "{list}");
    }
}

#[test]
fn it_is_remembered_and_brought_back_even_where_it_can_not_be_read() {
    for list in ["pool", "", "not a pattern", "*"] {
        let rules = Rules::default();
        let at = circumstances(Duration::ZERO);
        let seen = listed(list).seen_through(&rules);
        let plan = plan_store(Sighting::Live(&seen), Stored::Nothing, at, &rules);
        let Action::Create(record) = plan.action else { panic!("{plan:?}") };
        let back = node("a").incarnation("u2").whole();
        let plan = plan_restore(&back, Stored::Record(&written(&record)), &rules, false);
        let patch = plan.patch.expect("a patch");
        assert_eq!(patch.annotations().collect::<Vec<_>>(), [("label-storage/keep", list)]);
    }
}

#[test]
fn to_narrow_it_drops_nothing_that_was_stored() {
    let stored = record("a", "u1").label(KEPT, "*").label("pool", "gold").label("zone", "a");
    let node = listed("pool").at(11).seen_through(&Rules::default());
    let read = stored.seen_through(&Rules::default(), Some(&node));
    let plan = plan_store(
        Sighting::Live(&node),
        Stored::Record(&read),
        circumstances(Duration::ZERO),
        &Rules::default(),
    );
    let Action::Replace(next) = plan.action else { panic!("{plan:?}") };
    let next = written(&next);
    assert_eq!(next.labels.keys().collect::<Vec<_>>(), [KEPT, "pool", "zone"]);
    assert_eq!(next.labels[KEPT], "pool");
    // And one who has not seen the Node sees the record by what it remembers.
    assert_eq!(next.seen_through(&Rules::default(), None).labels.keys().collect::<Vec<_>>(), [KEPT, "pool"]);
}

#[test]
fn of_a_node_that_was_seen_in_part_the_record_is_right_about_the_rest() {
    let rules = Rules { taints: Selection::all(), cordon: true, ..Rules::default() };
    let stored =
        record("a", "u1").label("k", "v").label("taint:NoSchedule:gpu", "x").label("cordon:", "true");
    for (node, expected) in [
        (node("a").label("k", "w").at(11), 3),
        (node("a").label("k", "w").at(11).whole(), 1),
        (node("a").label("k", "w").at(11).whole().taint("gpu=y:NoSchedule"), 2),
    ] {
        let seen = node.seen_through(&rules);
        for sighting in [Sighting::Live(&seen), Sighting::Deleted(&seen)] {
            let read = stored.clone().seen_through(&rules, Some(&seen));
            let plan = plan_store(sighting, Stored::Record(&read), circumstances(Duration::ZERO), &rules);
            let Action::Replace(next) = plan.action else { panic!("{plan:?}") };
            assert_eq!(written(&next).labels.len(), expected);
        }
    }
}
