//! The taint that keeps pods away until the labels are there.

use std::time::Duration;

use super::*;
use crate::fixtures::taint;
use crate::rules::OtherMachine;

fn rules() -> Rules {
    Rules { startup_taint: Some(Duration::from_secs(60)), ..Rules::default() }
}

fn registered() -> Node {
    node("a")
        .incarnation("u2")
        .machine("B")
        .taint("label-storage/restoring:NoSchedule")
        .taint("gpu:NoSchedule")
}

/// True if the taint is removed. Checks that no other taint changes.
fn lifts(node: &Node, stored: Stored<&Record>, rules: &Rules, is_overdue: bool) -> bool {
    let plan = plan_restore(node, stored, rules, is_overdue);
    let Some(patch) = plan.patch else { return false };
    let expected = patch.lifts_startup_taint.then(|| vec![taint("gpu:NoSchedule")]);
    assert_eq!(patch.taints, expected, "{:?}", plan.reason);
    patch.lifts_startup_taint
}

#[test]
fn it_comes_off_in_the_very_patch_that_restores() {
    let record = record("a", "u1").label("k", "v");
    let plan = plan_restore(&registered(), Stored::Record(&record), &rules(), false);
    let patch = plan.patch.expect("a patch");
    assert!(patch.lifts_startup_taint && patch.marker.is_some());
    assert_eq!(patch.labels().collect::<Vec<_>>(), [("k", "v")]);
    assert_eq!(patch.taints, Some(vec![taint("gpu:NoSchedule")]));
}

#[test]
fn it_comes_off_where_there_is_nothing_to_wait_for() {
    let record = record("a", "u1").label("k", "v");
    let own = Record { uid: Some(registered().uid), ..record.clone() };
    let empty = Record { labels: Labels::new(), ..record.clone() };
    assert!(lifts(&registered(), Stored::Nothing, &rules(), false));
    assert!(lifts(&registered(), Stored::Record(&empty), &rules(), false));
    assert!(lifts(&registered(), Stored::Record(&own), &rules(), false));
    assert!(lifts(&registered().marked("u2/4"), Stored::Record(&record), &rules(), false));
    for stored in [Stored::Nothing, Stored::Unreadable, Stored::Record(&record)] {
        assert!(lifts(&registered().annotated("label-storage/ignore", "true"), stored, &rules(), false));
    }
}

#[test]
fn it_stays_for_a_while_where_a_person_has_to_look_and_then_comes_off() {
    let record = record("a", "u1").label("k", "v").machine("A");
    let none = Rules { other_machine: OtherMachine::None, ..rules() };
    for (stored, rules) in [(Stored::Unreadable, &rules()), (Stored::Record(&record), &none)] {
        assert!(!lifts(&registered(), stored, rules, false));
        let plan = plan_restore(&registered(), stored, rules, true);
        let patch = plan.patch.expect("a patch");
        assert_eq!(patch.taints, Some(vec![taint("gpu:NoSchedule")]));
        assert!(patch.restored.is_empty() && patch.marker.is_none(), "and nothing else is done");
    }
}

#[test]
fn it_is_nobodys_business_where_the_rule_is_off() {
    let off = Rules { startup_taint: None, ..rules() };
    let readable = record("a", "u1").label("k", "v");
    let with_taints = record("a", "u1").label("taint:NoSchedule:spot", "");
    for is_overdue in [false, true] {
        for stored in [Stored::Nothing, Stored::Unreadable, Stored::Record(&readable)] {
            assert!(!lifts(&registered(), stored, &off, is_overdue));
        }
        // Other taints are written, and it among them.
        let plan = plan_restore(&registered(), Stored::Record(&with_taints), &off, is_overdue);
        let taints = plan.patch.expect("a patch").taints.expect("another taint");
        let expected = ["label-storage/restoring:NoSchedule", "gpu:NoSchedule", "spot:NoSchedule"];
        assert_eq!(taints, expected.map(taint));
    }
}

#[test]
fn a_node_that_may_have_it_is_looked_at_before_it_is_restored() {
    let mut metadata = registered();
    metadata.extras = Default::default();
    let stored = record("a", "u1").label("k", "v");
    for (rules, reason) in [
        (rules(), Reason::SeenInPart),
        (Rules { startup_taint: None, ..rules() }, Reason::Returned),
        (Rules { other_machine: OtherMachine::Untrusted, ..Rules::default() }, Reason::SeenInPart),
        (Rules { other_machine: OtherMachine::None, ..Rules::default() }, Reason::SeenInPart),
    ] {
        assert_eq!(plan_restore(&metadata, Stored::Record(&stored), &rules, false).reason, reason);
    }
    for (name, reason) in [
        ("annotation:owner", Reason::SeenInPart),
        ("annotation:label-storage/keep", Reason::SeenInPart),
        ("taint:NoSchedule:gpu", Reason::SeenInPart),
        ("cordon:", Reason::SeenInPart),
        ("node-restriction.kubernetes.io/tier", Reason::Returned),
        ("pool", Reason::Returned),
    ] {
        let stored = record("a", "u1").label(name, "true");
        let plan = plan_restore(&metadata, Stored::Record(&stored), &Rules::default(), false);
        assert_eq!((plan.reason, plan.patch.is_some()), (reason, reason == Reason::Returned), "{name}");
        let withheld = record("a", "u1").withheld(name, "true", None);
        let plan = plan_restore(&metadata, Stored::Record(&withheld), &Rules::default(), false);
        assert_eq!(plan.reason, reason, "{name}");
    }
}
