//! Trust labels of a machine are never restored to another machine, unless the rules allow it.

use proptest::prelude::*;

use super::*;
use crate::rules::{OtherMachine, Selection};
use crate::withheld::EVERYTHING;

const TIER: &str = "node-restriction.kubernetes.io/tier";
const FIPS: &str = "example.com.node-restriction.kubernetes.io/fips";
const MACHINES: [&str; 3] = ["A", "B", "C"];

/// Rules that were in force at one time or another: none of them gives trust labels to another machine.
fn rules() -> Vec<Rules> {
    let patterns = |text: &str| text.parse().expect("patterns");
    let untrusted = || Rules { other_machine: OtherMachine::Untrusted, ..Rules::default() };
    vec![
        untrusted(),
        Rules { labels: Selection::all_but(patterns("*node-restriction.kubernetes.io/*")), ..untrusted() },
        Rules { conflicts: "*=record".parse().expect("conflicts"), history: 0, ..untrusted() },
        Rules { other_machine: OtherMachine::None, taints: Selection::all(), ..Rules::default() },
    ]
}

/// One incarnation: created, and then this and that until it is deleted, or it stays.
fn some_life() -> impl Strategy<Value = Vec<Step>> {
    let machine = || proptest::sample::select(&MACHINES[..]);
    let create = machine().prop_map(|machine| Step::Create { machine });
    let label = || proptest::sample::select(vec![TIER, FIPS, "pool"]);
    let value = || proptest::sample::select(vec!["x", "y"]);
    let keep = proptest::sample::select(vec!["", "pool", "*"]);
    let marker = proptest::sample::select(vec![
        "UID",
        "UID/99",
        "UID/1/other-machine:node-restriction.kubernetes.io/tier",
        "UID/99/other-machine:node-restriction.kubernetes.io/tier,never:pool",
        "UID/99/other-machine:*",
        "u1/99",
    ]);
    // With these rules, lists and watches have whole Nodes.
    let store = || (0..4usize).prop_map(|rules| Step::Store { rules, is_whole: true });
    let step = prop_oneof![
        4 => (label(), value()).prop_map(|(label, value)| Step::Set(label, value)),
        1 => label().prop_map(Step::Remove),
        6 => store(),
        5 => (0..4usize).prop_map(|rules| Step::Restore { rules }),
        1 => machine().prop_map(|machine| Step::Adopt { machine }),
        1 => marker.prop_map(Step::Mark),
        1 => Just(Step::Unmark),
        1 => keep.prop_map(|list| Step::Set("annotation:label-storage/keep", list)),
    ];
    let delete = prop::bool::weighted(0.8).prop_map(|is_heard| Step::Delete { is_heard, is_whole: true });
    let after = proptest::collection::vec(store(), 0..3);
    (create, proptest::collection::vec(step, 0..7), delete, after)
        .prop_map(|(create, life, delete, after)| [vec![create], life, vec![delete], after].concat())
}

/// Nothing that is trusted is given to a machine that never had it.
fn check_restored(world: &World, done: &Done) {
    let Done::Restored { patch, machine, .. } = done else { return };
    for (name, value) in &patch.restored {
        let is_trust = [TIER, FIPS].contains(&name.as_str());
        let had = world.had.contains(&(*machine, name.clone(), value.clone()));
        assert!(!is_trust || had, "{machine} was given {name}={value}");
    }
}

/// A withheld item stays in the record until the Node has it, or was restored with it. After that, a missing item was removed by a person.
fn check_withheld(world: &World, done: &Done) {
    let Done::Stored { before: Some(before), after, node, rules, .. } = done else { return };
    let after = after.as_ref().expect("nothing that has something is deleted");
    let was_given = |name: &str, node: &Node| {
        let is_restored = before.uid.as_ref() != Some(&node.uid) && node.restored_from().is_some();
        let is_named = node.withheld().any(|withheld| [name, EVERYTHING].contains(&withheld));
        is_restored && !is_named && world.rules[*rules].keeps(name, node.keep_patterns().as_ref())
    };
    for (name, withheld) in &before.more.withheld {
        let has_it =
            node.as_ref().is_some_and(|node| node.labels.contains_key(name) || was_given(name, node));
        let stays = after.more.withheld.get(name) == Some(withheld);
        assert!(stays || has_it, "{name} was dropped");
    }
}

/// An item that a person removed is not treated as withheld, whatever the marker contains.
fn check_removed(world: &World, done: &Done) {
    let Done::Stored { before: Some(before), after: Some(after), node: Some(node), rules, .. } = done else {
        return;
    };
    if before.uid.as_ref() != Some(&node.uid) {
        return;
    }
    let before = before.clone().seen_through(&world.rules[*rules], Some(node));
    for name in before.labels.keys().filter(|name| !node.labels.contains_key(*name)) {
        assert!(!after.more.withheld.contains_key(name), "{name} is said to be withheld from who had it");
    }
}

fn play(steps: &[Step]) -> World {
    let mut world = World::new(rules());
    for step in steps {
        let done = world.take(step);
        check_restored(&world, &done);
        check_withheld(&world, &done);
        check_removed(&world, &done);
        world.remember();
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_machine_is_given_the_trust_that_another_had(lives in proptest::collection::vec(some_life(), 1..5)) {
        play(&lives.concat());
    }
}
