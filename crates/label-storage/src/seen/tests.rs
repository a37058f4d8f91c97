use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::Labels;
use crate::fixtures::{node, record, second, uid, written};
use crate::restore::plan_restore;
use crate::rules::Selection;
use crate::store::{Action, Circumstances, Reason, Sighting, Stored, plan_store};

mod beside_labels;
mod filing;
mod in_part;
mod keep;

/// Rules that exclude these labels.
fn rules(excluded: &str) -> Rules {
    Rules { labels: Selection::all_but(excluded.parse().expect("patterns")), ..Rules::default() }
}

#[test]
fn what_is_excluded_makes_no_record_and_no_difference() {
    let rules = rules("machine-facts");
    let at = circumstances(Duration::ZERO);
    let host = |node: Node| node.label("kubernetes.io/hostname", "a");
    let plan = |node: Node, stored: Option<Record>| {
        let stored = stored.map(|record| record.seen_through(&rules, None));
        let stored = stored.as_ref().map_or(Stored::Nothing, Stored::Record);
        plan_store(Sighting::Live(&node.seen_through(&rules)), stored, at, &rules).reason
    };
    assert_eq!(plan(host(node("a")), None), Reason::NoLabels);
    let stored = record("a", "u1").label("pool", "gold");
    assert_eq!(plan(host(node("a").label("pool", "gold")), Some(stored.clone())), Reason::UpToDate);
    // Stored before it was excluded, and another by now.
    let stored = stored.label("kubernetes.io/hostname", "b");
    assert_eq!(plan(host(node("a").label("pool", "gold")), Some(stored.clone())), Reason::UpToDate);
    assert_eq!(plan(node("a").label("pool", "gold"), Some(stored.clone())), Reason::UpToDate);
    assert_eq!(plan(node("a"), Some(stored)), Reason::LabelsChanged);
}

#[test]
fn a_record_with_nothing_but_what_is_excluded_is_not_empty() {
    let rules = rules("pool");
    let aged = circumstances(Duration::from_secs(3600));
    let stored = record("a", "u1").label("pool", "gold").seen_through(&rules, None);
    let reason =
        |sighting: Sighting<&Node>| plan_store(sighting, Stored::Record(&stored), aged, &rules).reason;
    assert_eq!(reason(Sighting::Live(&node("a"))), Reason::UpToDate);
    assert_eq!(reason(Sighting::Live(&node("a").incarnation("u2"))), Reason::AwaitingRestore);
    assert_eq!(reason(Sighting::Gone), Reason::Departed);
}

fn circumstances(unchanged_for: Duration) -> Circumstances {
    let retention = Duration::from_secs(100);
    Circumstances { unchanged_for, retention, ..Circumstances::at(second(1000)) }
}

fn some_labels() -> impl Strategy<Value = Labels> {
    let keys = prop_oneof![
        Just("pool".to_owned()),
        Just("kubernetes.io/hostname".to_owned()),
        Just("example.com/a".to_owned()),
        Just("example.com/b".to_owned()),
        // Too long for a ConfigMap key as it is.
        Just(format!("{}.com/{}", ["a".repeat(60).as_str(); 4].join("."), "n".repeat(60))),
    ];
    proptest::collection::btree_map(keys, "[xy]", 0..5)
}

fn some_rules() -> impl Strategy<Value = Rules> {
    let patterns = vec!["pool", "machine-facts", "example.com/*", "example.com/b", "*.com/*", "a*", "*"];
    proptest::sample::subsequence(patterns, 0..4).prop_map(|patterns| rules(&patterns.join(",")))
}

fn some_node() -> impl Strategy<Value = Node> {
    let markers = prop_oneof![Just(None), Just(Some("u1/4")), Just(Some("u2/4")), Just(Some("u2/3"))];
    (some_labels(), prop_oneof![Just("u1"), Just("u2")], 8u64..13, markers).prop_map(
        |(labels, incarnation, version, marker)| Node {
            labels,
            marker: marker.map(str::to_owned),
            ..node("a").incarnation(incarnation).at(version)
        },
    )
}

fn some_record() -> impl Strategy<Value = Record> {
    (some_labels(), any::<bool>(), any::<bool>()).prop_map(|(labels, is_of_u1, is_departed)| Record {
        labels,
        uid: is_of_u1.then(|| uid("u1")),
        departed_at: is_departed.then(|| second(990)),
        ..record("a", "u1")
    })
}

proptest! {
    #[test]
    fn what_is_set_aside_is_written_back(record in some_record(), rules in some_rules()) {
        let seen = record.clone().seen_through(&rules, None);
        prop_assert!(seen.labels.keys().all(|key| rules.labels.selects(key)));
        prop_assert_eq!(seen.is_empty(), record.is_empty());
        prop_assert_eq!(written(&seen), written(&record));
    }

    /// Whatever a storer's rules, whatever it sees and whatever it makes of that.
    #[test]
    fn no_rules_drop_what_was_stored_and_none_are_broken(
        node in some_node(),
        stored in proptest::option::of(some_record()),
        rules in some_rules(),
        is_deleted: bool,
        unchanged_for in prop_oneof![Just(Duration::ZERO), Just(Duration::from_secs(60))],
    ) {
        let seen = node.clone().seen_through(&rules);
        let sighting = if is_deleted { Sighting::Deleted(&seen) } else { Sighting::Live(&seen) };
        let read = stored.clone().map(|record| record.seen_through(&rules, None));
        let at = circumstances(unchanged_for);
        let plan = plan_store(sighting, read.as_ref().map_or(Stored::Nothing, Stored::Record), at, &rules);
        let before = stored.map(|record| record.labels).unwrap_or_default();
        let after = match &plan.action {
            Action::Nothing => return Ok(()),
            Action::Create(record) | Action::Replace(record) => written(record).labels,
            Action::Delete => Labels::new(),
        };
        let beyond = |labels: &Labels| -> Labels {
            let beyond = labels.iter().filter(|(key, _)| !rules.labels.selects(key));
            beyond.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        prop_assert_eq!(beyond(&after), beyond(&before), "{:?}", plan);
        // And what is written is what the same storer is content with.
        if let (Action::Create(record) | Action::Replace(record), false) = (&plan.action, is_deleted) {
            let again = written(record).seen_through(&rules, None);
            let next = plan_store(Sighting::Live(&seen), Stored::Record(&again), circumstances(Duration::ZERO), &rules);
            prop_assert!(matches!(next.action, Action::Nothing), "{:?} and then {:?}", plan, next);
        }
    }

    /// Two storers with different rules, each in its turn as long as it has something to write.
    #[test]
    fn storers_with_different_rules_do_not_fight(
        node in some_node(),
        stored in some_record(),
        one in some_rules(),
        other in some_rules(),
    ) {
        let mut record = stored.clone();
        let mut writes = 0;
        for rules in [&one, &other].into_iter().cycle().take(8) {
            let (seen, read) = (node.clone().seen_through(rules), record.clone().seen_through(rules, None));
            let plan = plan_store(Sighting::Live(&seen), Stored::Record(&read), circumstances(Duration::ZERO), rules);
            if let Action::Replace(next) = plan.action {
                record = written(&next);
                writes += 1;
            }
        }
        // Each has its say once, and what neither stores is as it was.
        prop_assert!(writes <= 3, "{} writes", writes);
        let untouched = |key: &&String| !one.labels.selects(key) && !other.labels.selects(key);
        for key in stored.labels.keys().filter(untouched) {
            prop_assert_eq!(record.labels.get(key), stored.labels.get(key));
        }
    }
}

#[test]
fn a_trust_label_that_was_excluded_meanwhile_comes_back_to_no_other_machine() {
    const TIER: &str = "node-restriction.kubernetes.io/tier";
    let on = |node: Node, machine: &str| {
        let machine = crate::node::Machine { system_uuid: Some(machine.to_owned()), provider_id: None };
        Node { extras: crate::node::Extras { machine, is_whole: true, ..node.extras }, ..node }
    };
    let given = |node: &Node, record: &Record| {
        let rules = Rules { other_machine: OtherMachine::Untrusted, ..Rules::default() };
        plan_restore(node, Stored::Record(record), &rules, false).patch.expect("a patch")
    };
    let had = on(node("a").label("pool", "gold").label(TIER, "pci"), "one");
    let stored = written(&Record::of(&had, second(900)));

    // Another machine of that name gets all but what the first was trusted with. The storer has other rules by now.
    let (narrow, at) = (rules("node-restriction.kubernetes.io/*"), circumstances(Duration::ZERO));
    let returned = on(node("a").incarnation("u2").at(20), "two");
    let patch = given(&returned, &stored);
    let restored = returned.label("pool", "gold").marked(&patch.marker.expect("a marker"));
    let seen = restored.clone().seen_through(&narrow);
    let known = stored.seen_through(&narrow, Some(&seen));
    let Action::Replace(stored) =
        plan_store(Sighting::Live(&seen), Stored::Record(&known), at, &narrow).action
    else {
        panic!("nothing is stored");
    };
    let stored = written(&stored);

    // It leaves and returns: what it has been given back before says nothing about whom the label was for.
    let again = on(node("a").incarnation("u3").at(30), "two");
    assert_eq!(given(&again, &stored).restored.keys().collect::<Vec<_>>(), ["pool"]);
    // The first machine gets it.
    let first = on(node("a").incarnation("u3").at(30), "one");
    assert_eq!(given(&first, &stored).restored.keys().collect::<Vec<_>>(), [TIER, "pool"]);
}
