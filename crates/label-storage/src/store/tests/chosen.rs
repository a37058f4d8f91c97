//! Which Nodes the storer looks after.

use super::*;
use crate::rules::OtherMachine;

const SIGHTINGS: [fn(&Node) -> Sighting<&Node>; 2] =
    [|node| Sighting::Live(node), |node| Sighting::Deleted(node)];

fn reason(node: Sighting<&Node>, stored: Stored<&Record>) -> Reason {
    let plan = plan_store(node, stored, at(), &without_history());
    let is_write = !matches!(plan.action, Action::Nothing);
    let writes = [
        Reason::FirstSeen,
        Reason::LabelsChanged,
        Reason::Restored,
        Reason::FinalLabels,
        Reason::LeftUnrestored,
        Reason::NotGone,
        Reason::Returned,
        Reason::Departed,
    ];
    assert_eq!(is_write, writes.contains(&plan.reason), "{plan:?}");
    plan.reason
}

#[test]
fn a_node_that_is_to_be_ignored_is_neither_stored_nor_forgotten() {
    let ignored = |value| node("a").label("k", "new").annotated("label-storage/ignore", value).at(20);
    let own = record("a", "u1").label("k", "v");
    let other = record("a", "u0").label("k", "v").departed(900);
    for sighting in SIGHTINGS {
        for stored in [Stored::Nothing, Stored::Unreadable, Stored::Record(&own), Stored::Record(&other)] {
            let is_there = matches!(sighting(&ignored("true")), Sighting::Live(_));
            // It is not gone, and what says so would count when it leaves.
            let expected = match stored {
                Stored::Record(record) if is_there && record.departed_at.is_some() => Reason::Returned,
                _ => Reason::Ignored,
            };
            assert_eq!(reason(sighting(&ignored("true")), stored), expected);
            assert!(!is_worth_keeping(ignored("true").summary(), stored.map(Record::summary)));
        }
        for value in ["", "false", "True", "yes"] {
            assert_ne!(reason(sighting(&ignored(value)), Stored::Record(&own)), Reason::Ignored, "{value}");
        }
    }
    // Gone, it is like any other, and what was stored before is kept for as long.
    assert_eq!(reason(Sighting::Gone, Stored::Record(&own)), Reason::Departed);
}

#[test]
fn of_a_node_that_is_not_selected_no_record_is_made_but_one_that_exists_follows_it() {
    let mut node = node("a").label("k", "new").at(20);
    node.extras.is_unselected = true;
    let own = record("a", "u1").label("k", "v");
    let other = record("a", "u0").label("k", "v");
    let emptied = record("a", "u1");
    let other_emptied = record("a", "u0");
    for (stored, live, deleted) in [
        (Stored::Nothing, Reason::NotSelected, Reason::NotSelected),
        (Stored::Unreadable, Reason::RecordUnreadable, Reason::RecordUnreadable),
        (Stored::Record(&own), Reason::LabelsChanged, Reason::FinalLabels),
        (Stored::Record(&other), Reason::AwaitingRestore, Reason::LeftUnrestored),
        (Stored::Record(&emptied), Reason::LabelsChanged, Reason::FinalLabels),
        // There is nothing in it that the Node could have removed.
        (Stored::Record(&other_emptied), Reason::EmptyForNow, Reason::LeftUnrestored),
    ] {
        assert_eq!(reason(Sighting::Live(&node), stored), live, "{stored:?}");
        assert_eq!(reason(Sighting::Deleted(&node), stored), deleted, "{stored:?}");
    }
    assert!(
        is_worth_keeping(node.summary(), Stored::Nothing),
        "there may be one that nobody has seen yet, and it has what was removed"
    );
}

#[test]
fn a_selector_asks_for_all_labels_whatever_is_stored_of_them() {
    let rules = Rules {
        selector: "pool=gold".parse().expect("a selector"),
        labels: crate::rules::Selection::all_but("pool".parse().expect("patterns")),
        ..Rules::default()
    };
    for (pool, is_unselected) in [("gold", false), ("silver", true)] {
        let seen = node("a").label("pool", pool).label("k", "v").seen_through(&rules);
        assert_eq!(seen.extras.is_unselected, is_unselected);
        assert_eq!(seen.labels.len(), 1);
    }
}

#[test]
fn opting_in_takes_a_keep_list_be_it_unreadable() {
    let rules = Rules { opt_in: true, ..Rules::default() };
    let is_unselected = |node: Node| node.label("k", "v").seen_through(&rules).extras.is_unselected;
    assert!(is_unselected(node("a")));
    for list in ["k", "", "*", "not a pattern"] {
        assert!(!is_unselected(node("a").annotated("label-storage/keep", list)), "{list}");
    }
}

#[test]
fn without_an_identity_there_is_no_record_to_look_for() {
    let mut node = node("a").label("k", "new").at(20);
    node.extras.is_unidentified = true;
    let own = record("a", "u1").label("k", "v");
    for sighting in SIGHTINGS {
        for stored in [Stored::Nothing, Stored::Unreadable, Stored::Record(&own)] {
            assert_eq!(reason(sighting(&node), stored), Reason::NoIdentity);
        }
    }
}

#[test]
fn the_final_labels_of_an_excluded_machine_are_not_stored() {
    let rule = |other_machine| Rules { other_machine, ..without_history() };
    let (none, untrusted) = (rule(OtherMachine::None), rule(OtherMachine::Untrusted));
    let stored = record("a", "u1").label("k", "v").machine("A");
    let left = node("a").incarnation("u2").label("k", "w").at(20);
    let (same, other, unknown) = (left.clone().machine("A"), left.clone().machine("B"), left);
    for (node, rules, reason) in [
        (&other, &none, Reason::OtherMachine),
        (&same, &none, Reason::LeftUnrestored),
        (&unknown, &none, Reason::LeftUnrestored),
        (&other, &untrusted, Reason::LeftUnrestored),
        (&other, &without_history(), Reason::LeftUnrestored),
    ] {
        let plan = plan_store(Sighting::Deleted(node), Stored::Record(&stored), at(), rules);
        assert_eq!(plan.reason, reason, "{node:?}");
        assert_eq!(plan.action == Action::Nothing, reason == Reason::OtherMachine);
    }
    assert!(none.needs_whole_nodes() && untrusted.needs_whole_nodes(), "or it would be unknown");
}
