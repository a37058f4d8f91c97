//! Which machine had what.

use super::*;
use crate::fixtures::{node, written};
use crate::rules::{OtherMachine, Selection};

const TIER: &str = "node-restriction.kubernetes.io/tier";

/// The items that can be restored, and the machine that had them.
fn all(record: &Record) -> Vec<(&str, &str, Option<&str>)> {
    record.all().map(|(name, value, origin)| (name, value, origin.machine.system_uuid.as_deref())).collect()
}

#[test]
fn a_record_says_which_machine_it_was_read_from() {
    let first = Record::of(&node("a").label("k", "v").machine("A"), second(1));
    assert_eq!(all(&written(&first)), [("k", "v", Some("A"))]);
    // Of a deleted one, only its metadata may be known.
    let last = first.retaken(&node("a").label("k", "w"), second(2), &Rules::default());
    assert_eq!(all(&written(&last)), [("k", "w", Some("A"))]);
    let next = first.retaken(&node("a").label("k", "w").incarnation("u2"), second(2), &Rules::default());
    assert_eq!(all(&written(&next)), [("k", "w", None)]);
}

#[test]
fn what_a_marker_names_stays_with_the_machine_that_had_it() {
    let first = record("a", "u1").label(TIER, "x").label("pool", "gold").machine("A");
    let marker = format!("u2/4/other-machine:{TIER},never:not-there");
    let node = node("a").incarnation("u2").label("pool", "gold").machine("B").marked(&marker);
    let next = written(&first.retaken(&node, second(2), &Rules::default()));
    assert_eq!(all(&next), [("pool", "gold", Some("B")), (TIER, "x", Some("A"))]);
    assert_eq!(next.labels, node.labels, "it is not taken for the node's");
    // From here on the node is right: who has it by now and loses it has lost it.
    let labelled = next.retaken(&node.clone().label(TIER, "y"), second(3), &Rules::default());
    assert_eq!(all(&labelled), [(TIER, "y", Some("B")), ("pool", "gold", Some("B"))]);
    let removed = labelled.retaken(&node, second(4), &Rules::default());
    assert_eq!(all(&removed), [("pool", "gold", Some("B"))]);
}

#[test]
fn what_is_set_aside_stays_with_the_machine_that_had_it() {
    let narrow = Selection::all_but("*node-restriction.kubernetes.io/*".parse().expect("patterns"));
    let narrow = Rules { labels: narrow, ..Rules::default() };
    let first = record("a", "u1").label(TIER, "x").label("pool", "gold").machine("A");
    for (machine, origin) in [("A", Some("A")), ("B", Some("A"))] {
        let node = node("a").incarnation("u2").label("pool", "gold").machine(machine).marked("u2/4");
        let seen = first.clone().seen_through(&narrow, Some(&node));
        let next = written(&seen.retaken(&node, second(2), &narrow));
        let mut all = all(&next);
        all.sort_unstable();
        assert_eq!(all, [(TIER, "x", origin), ("pool", "gold", Some(machine))]);
    }
    // Unknown is not different.
    let unknown = Record { more: More::default(), ..first };
    let node = node("a").incarnation("u2").machine("B").marked("u2/4");
    let next = unknown.seen_through(&narrow, Some(&node)).retaken(&node, second(2), &narrow);
    assert_eq!(all(&written(&next)), [(TIER, "x", Some("B"))]);
}

#[test]
fn an_incarnation_that_was_never_restored_does_not_make_trust_its_own() {
    let first = record("a", "u1").label(TIER, "x").label("pool", "gold").machine("A");
    let merged = |node: Node, rules: &Rules| written(&first.merged(&node, second(2), rules));
    let next = node("a").incarnation("u2").machine("B");
    assert_eq!(
        all(&merged(next.clone(), &Rules::default())),
        [("pool", "gold", Some("B")), (TIER, "x", Some("A"))]
    );
    let untrusted = Rules { other_machine: OtherMachine::Untrusted, ..Rules::default() };
    let record_wins = Rules { conflicts: "*=record".parse().expect("conflicts"), ..untrusted };
    let labelled = next.label(TIER, "y").label("pool", "default");
    for (rules, node, tier, pool) in [
        (Rules::default(), labelled.clone(), "y", "default"),
        (record_wins.clone(), labelled.clone(), "y", "gold"),
        (record_wins.clone(), labelled.clone().machine("A"), "x", "gold"),
        (Rules { other_machine: OtherMachine::All, ..record_wins }, labelled, "x", "gold"),
    ] {
        let machine = node.extras.machine.system_uuid.clone();
        let next = merged(node, &rules);
        assert_eq!(all(&next), [(TIER, tier, machine.as_deref()), ("pool", pool, machine.as_deref())]);
    }
}

#[test]
fn a_trust_label_stays_with_its_node_when_another_name_merges_its_labels_over_it() {
    let by_machine = Rules { identity: crate::rules::IdentityBy::SystemUuid, ..Rules::default() };
    let record_wins = Rules { conflicts: "*=record".parse().expect("conflicts"), ..by_machine.clone() };
    let first = record("victim", "u1").label(TIER, "x").label("pool", "gold").machine("A");
    let thief = node("thief").incarnation("u2").machine("A");
    let next = written(&first.merged(&thief, second(2), &by_machine));
    let kept = &next.more.withheld[TIER];
    assert_eq!((next.node.as_str(), kept.node.as_deref()), ("thief", Some("victim")));
    // Nor does the record win over its own.
    let next = written(&first.merged(&thief.label(TIER, "y"), second(2), &record_wins));
    assert_eq!(next.labels[TIER], "y");
}

#[test]
fn what_was_given_back_and_removed_does_not_wait_any_more() {
    let waiting = || record("a", "u1").label("pool", "gold").withheld(TIER, "x", Some("A")).machine("B");
    let given = node("a").incarnation("u2").label("pool", "gold").machine("A").marked("u2/4");
    let next = |node: &Node, rules: &Rules| written(&waiting().retaken(node, second(2), rules));
    assert_eq!(all(&next(&given, &Rules::default())), [("pool", "gold", Some("A"))]);
    // Unless it was withheld once more, with or without a name for it, or is none of this storer's business.
    let both = [("pool", "gold", Some("A")), (TIER, "x", Some("A"))];
    for marker in [format!("u2/4/other-machine:{TIER}"), "u2/4/other-machine:*".to_owned()] {
        assert_eq!(all(&next(&given.clone().marked(&marker), &Rules::default())), both, "{marker}");
    }
    let narrow = Selection { include: "pool".parse().expect("patterns"), ..Selection::all() };
    assert_eq!(all(&next(&given, &Rules { labels: narrow, ..Rules::default() })), both);
}
