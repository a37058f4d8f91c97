//! Restorers restore exactly the items that storers with any rules have stored.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::fixtures::some_choice;
use crate::rules::{OtherMachine, Patterns, Selection};

const KEPT: &str = "annotation:label-storage/keep";
const NAMES: [&str; 9] = [
    "pool",
    "a/b",
    "kubernetes.io/os",
    "annotation:owner",
    "annotation:csi.volume.kubernetes.io/nodeid",
    "taint:NoSchedule:gpu",
    "taint:NoExecute:node.kubernetes.io/not-ready",
    "cordon:",
    KEPT,
];

/// Rules that replicas may have side by side while they are rolled out.
fn some_rules() -> impl Strategy<Value = Vec<Rules>> {
    let conflicts = proptest::sample::select(vec!["", "*=record", "pool=report,annotation:*=record"]);
    let rules =
        (some_choice(), conflicts, any::<[bool; 2]>()).prop_map(|(choice, conflicts, [none, startup])| {
            Rules {
                conflicts: conflicts.parse().expect("conflicts"),
                other_machine: if none { OtherMachine::None } else { OtherMachine::All },
                startup_taint: startup.then_some(Rules::STARTUP_TAINT),
                ..choice
            }
        });
    // Those that store everything among them: otherwise little happens.
    let everything =
        Rules { annotations: Selection::all(), taints: Selection::all(), cordon: true, ..Rules::default() };
    proptest::collection::vec(rules, 4).prop_map(move |mut rules| {
        rules.push(everything.clone());
        rules
    })
}

/// The items of a Node that these rules store, by the documentation, independent of the shipped code.
fn is_stored(rules: &Rules, name: &str, keep: Option<&str>) -> bool {
    let keep = keep.and_then(|list| list.parse::<Patterns>().ok());
    match Item::parse(name).expect("a name") {
        Item::Label(key) => {
            keep.as_ref().unwrap_or(&rules.labels.include).matches(key) && !rules.labels.exclude.matches(key)
        }
        Item::Annotation("label-storage/keep") => true,
        Item::Annotation("csi.volume.kubernetes.io/nodeid") => false,
        Item::Annotation(key) => rules.annotations.selects(key),
        Item::Taint { key: "node.kubernetes.io/not-ready", .. } => false,
        Item::Taint { key, .. } => rules.taints.selects(key),
        Item::Cordon => rules.cordon,
    }
}

fn some_life() -> impl Strategy<Value = Vec<Step>> {
    let name = || proptest::sample::select(&NAMES[..8]);
    let keep = proptest::sample::select(vec!["", "pool", "a/*,kubernetes.io/os", "not a pattern", "*"]);
    let ruled = || 0..5usize;
    let set = (name(), proptest::sample::select(vec!["x", "y"]));
    let step = prop_oneof![
        5 => set.prop_map(|(name, value)| Step::Set(name, if name == "cordon:" { "true" } else { value })),
        1 => keep.prop_map(|list| Step::Set(KEPT, list)),
        1 => proptest::sample::select(&NAMES[..]).prop_map(Step::Remove),
        1 => Just(Step::Set("annotation:label-storage/ignore", "true")),
        1 => Just(Step::Remove("annotation:label-storage/ignore")),
        6 => ruled().prop_map(|rules| Step::Store { rules, is_whole: true }),
        4 => ruled().prop_map(|rules| Step::Restore { rules }),
    ];
    let delete = (prop::bool::weighted(0.8), any::<bool>())
        .prop_map(|(is_heard, is_whole)| Step::Delete { is_heard, is_whole });
    let after = ruled().prop_map(|rules| Step::Store { rules, is_whole: true });
    (proptest::collection::vec(step, 0..8), delete, proptest::collection::vec(after, 0..3)).prop_map(
        |(life, delete, after)| {
            let create = Step::Create { machine: "A" };
            [vec![create], life, vec![delete], after].concat()
        },
    )
}

/// All that is on the Node, by name.
fn all_of(node: &Node) -> BTreeMap<String, String> {
    let taints = node.extras.taints.iter();
    let taints = taints.map(|taint| (format!("taint:{}:{}", taint.effect, taint.key), taint.value.clone()));
    let annotations = node.extras.annotations.iter();
    let annotations = annotations.map(|(key, value)| (format!("annotation:{key}"), value.clone()));
    let cordon = node.extras.is_unschedulable.then(|| ("cordon:".to_owned(), "true".to_owned()));
    node.labels.clone().into_iter().chain(annotations).chain(taints).chain(cordon).collect()
}

/// The items that storers could have stored so far.
type Storable = BTreeSet<(String, String)>;

fn note(storable: &mut Storable, world: &World, rules: usize) {
    let sighted = world.final_labels.first().or(world.node.as_ref());
    for (name, value) in sighted.map(all_of).unwrap_or_default() {
        let keep = sighted.and_then(Node::keep_list);
        if is_stored(&world.rules[rules], &name, keep) {
            storable.insert((name, value));
        }
    }
}

fn check(world: &World, storable: &Storable, done: &Done) {
    let Done::Restored { before, patch, .. } = done else { return };
    for (name, value) in &patch.restored {
        assert!(storable.contains(&(name.clone(), value.clone())), "{name}={value} was never to be stored");
    }
    let (after, record) = (world.node.as_ref().expect("a node"), world.record().expect("a record"));
    for (name, value, _) in record.all() {
        let kept = Item::parse(name).expect("a name");
        let had = before.value_of(kept).is_some();
        assert!(had || after.value_of(kept) == Some(value), "{name} did not come back");
    }
}

/// Storers of all rules in turn, until none has anything to write.
fn settle(world: &mut World) {
    let count = world.rules.len();
    let mut record = world.record();
    let mut unchanged = 0;
    for round in 0.. {
        world.take(&Step::Store { rules: round % count, is_whole: true });
        let next = world.record();
        unchanged = if next == record { unchanged + 1 } else { 0 };
        record = next;
        if unchanged == count {
            return;
        }
        assert!(round < 5 * count, "they fight over {record:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_comes_back_is_what_rules_had_stored(rules in some_rules(), lives in proptest::collection::vec(some_life(), 1..4)) {
        let mut world = World::new(rules);
        let mut storable = Storable::new();
        for step in lives.concat() {
            if let Step::Store { rules, .. } = step {
                note(&mut storable, &world, rules);
            }
            let done = world.take(&step);
            check(&world, &storable, &done);
        }
    }

    #[test]
    fn storers_with_different_rules_come_to_rest(
        rules in some_rules(), lives in proptest::collection::vec(some_life(), 1..4), life in some_life(),
    ) {
        let mut world = World::new(rules);
        for step in lives.concat() {
            world.take(&step);
        }
        settle(&mut world);
        for step in life.iter().filter(|step| !matches!(step, Step::Delete { .. })) {
            world.take(step);
        }
        settle(&mut world);
    }

    /// An item that one set of rules has stored stays until a storer with rules that keep it sees its removal.
    #[test]
    fn what_was_stored_is_dropped_only_by_who_would_store_it(
        rules in some_rules(), lives in proptest::collection::vec(some_life(), 1..4),
    ) {
        let mut world = World::new(rules);
        for step in lives.concat() {
            if let Done::Stored { before: Some(before), after, node, rules, .. } = world.take(&step) {
                let after = after.expect("nothing is deleted that fast");
                let keep = node.as_ref().and_then(Node::keep_list);
                for (name, value) in &before.labels {
                    let is_same = after.labels.get(name) == Some(value);
                    prop_assert!(is_same || is_stored(&world.rules[rules], name, keep), "{} {:?} {:?}", name, before, after);
                }
            }
        }
    }
}
