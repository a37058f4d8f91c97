//! Conflicts and their winners.

use super::*;
use crate::fixtures::taint;

fn rules(conflicts: &str) -> Rules {
    Rules { conflicts: conflicts.parse().expect("conflicts"), ..Rules::default() }
}

/// The restored items, and all conflicts.
fn outcome(node: &Node, record: &Record, rules: &Rules) -> (Labels, Vec<(String, Winner)>) {
    let plan = plan_restore(node, Stored::Record(record), rules, false);
    let patch = plan.patch.expect("a patch");
    let conflicts = patch.conflicts.into_iter().map(|conflict| (conflict.name, conflict.winner));
    (patch.restored, conflicts.collect())
}

#[test]
fn a_kubelet_that_registers_with_another_value_is_overruled_where_the_rules_say_so() {
    let node = node("a").incarnation("u2").label("pool", "default").label("zone", "b");
    let record = record("a", "u1").label("pool", "gold").label("zone", "a");
    for (conflicts, restored, pool, zone) in [
        ("", &[][..], Winner::Node, Winner::Node),
        ("pool=record", &[("pool", "gold")], Winner::Record, Winner::Node),
        ("pool=node,*=record", &[("zone", "a")], Winner::Node, Winner::Record),
        ("pool=report,zone=report", &[], Winner::Report, Winner::Report),
        ("*=record", &[("pool", "gold"), ("zone", "a")], Winner::Record, Winner::Record),
        ("*=report,*=record", &[], Winner::Report, Winner::Report),
    ] {
        let restored = restored.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let in_conflict = vec![("pool".to_owned(), pool), ("zone".to_owned(), zone)];
        assert_eq!(outcome(&node, &record, &rules(conflicts)), (restored, in_conflict), "{conflicts}");
    }
}

#[test]
fn what_was_changed_on_a_node_after_it_was_restored_is_not_overruled() {
    // Labels were stored since, so it is restored once more.
    let node = node("a").incarnation("u2").label("pool", "silver");
    let record = record("a", "u1").label("pool", "gold").label("late", "1");
    let late = Labels::from([("late".to_owned(), "1".to_owned())]);
    let in_conflict = |winner| vec![("pool".to_owned(), winner)];
    let marked = node.clone().marked("u2/3");
    assert_eq!(outcome(&marked, &record, &rules("*=record")), (late.clone(), in_conflict(Winner::Node)));
    let reported = outcome(&marked, &record, &rules("*=report"));
    assert_eq!(reported, (late, in_conflict(Winner::Report)));
    let copied = outcome(&node.marked("u1/3"), &record, &rules("*=record"));
    assert_eq!(copied.1, in_conflict(Winner::Record), "that one was not restored");
}

#[test]
fn annotations_and_taints_are_overruled_by_their_names() {
    let node = node("a").incarnation("u2").whole().annotated("owner", "me").taint("gpu=no:NoSchedule");
    let record = record("a", "u1")
        .label("annotation:owner", "you")
        .label("taint:NoSchedule:gpu", "yes")
        .label("cordon:", "true");
    let restored = |conflicts| outcome(&node, &record, &rules(conflicts)).0.into_keys().collect::<Vec<_>>();
    assert_eq!(restored(""), ["cordon:"], "what it has not is no conflict");
    assert_eq!(restored("owner=record,gpu=record"), ["cordon:"], "those are labels");
    assert_eq!(restored("annotation:*=record"), ["annotation:owner", "cordon:"]);
    assert_eq!(restored("taint:*:gpu=record"), ["cordon:", "taint:NoSchedule:gpu"]);
}

#[test]
fn taints_keep_their_order_their_effects_and_their_times() {
    let mut evicting = taint("node.kubernetes.io/not-ready:NoExecute");
    evicting.time_added = Some("2026-11-16T06:48:56Z".to_owned());
    let mut node = node("a").incarnation("u2").whole().taint("gpu=no:NoSchedule");
    node.extras.taints.insert(0, evicting.clone());
    let record = record("a", "u1")
        .label("taint:NoSchedule:gpu", "yes")
        .label("taint:NoExecute:gpu", "")
        .label("taint:PreferNoSchedule:spot", "x");
    let taints = |conflicts| {
        let plan = plan_restore(&node, Stored::Record(&record), &rules(conflicts), false);
        plan.patch.expect("a patch").taints.expect("other taints")
    };
    let added = [taint("gpu:NoExecute"), taint("spot=x:PreferNoSchedule")];
    for (conflicts, gpu) in [("", "gpu=no:NoSchedule"), ("*=record", "gpu=yes:NoSchedule")] {
        assert_eq!(taints(conflicts), [vec![evicting.clone(), taint(gpu)], added.to_vec()].concat());
    }
}

#[test]
fn taints_that_stay_as_they_are_are_not_written() {
    let node = node("a").incarnation("u2").whole().taint("gpu=no:NoSchedule");
    let record = record("a", "u1").label("taint:NoSchedule:gpu", "yes").label("k", "v");
    let patch =
        plan_restore(&node, Stored::Record(&record), &Rules::default(), false).patch.expect("a patch");
    assert_eq!(patch.taints, None);
    assert_eq!(patch.labels().collect::<Vec<_>>(), [("k", "v")]);
    assert!(!patch.cordons() && patch.annotations().next().is_none());
}
