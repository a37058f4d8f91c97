//! Final labels that are not stored yet.

use super::*;
use crate::rules::Selection;
use crate::store::{Action, Circumstances, Sighting, plan_store};

/// The patch of a new incarnation, from a record that lacks these final labels.
fn restored(record: &Record, final_labels: &[Node]) -> Option<Patch> {
    let back = node("a").incarnation("u3").at(20);
    let record = anticipate(record, final_labels, &Rules::default());
    plan_restore(&back, Stored::Record(&record), &Rules::default(), false).patch
}

fn back() -> Node {
    node("a").incarnation("u3").at(20)
}

#[test]
fn changed_and_removed_labels_are_restored_as_they_were_at_the_deletion() {
    let record = record("a", "u1").label("changed", "old").label("removed", "x").label("same", "x");
    let last = node("a").label("changed", "new").label("same", "x").at(12);
    assert_eq!(restored(&record, &[last]), patch(&[("changed", "new"), ("same", "x")], &back(), 4));
}

#[test]
fn a_node_that_has_lost_all_its_labels_is_marked() {
    let record = record("a", "u1").label("pool", "gold");
    assert_eq!(restored(&record, &[node("a").at(12)]), patch(&[], &back(), 4));
}

#[test]
fn final_labels_of_an_unrestored_incarnation_are_merged() {
    let record = record("a", "u1").label("pool", "gold").label("zone", "a");
    let last = node("a").incarnation("u2").label("zone", "b").at(12);
    assert_eq!(restored(&record, &[last]), patch(&[("pool", "gold"), ("zone", "b")], &back(), 4));
}

#[test]
fn final_labels_that_the_record_has_change_nothing() {
    let record = record("a", "u1").label("pool", "gold").label("zone", "a");
    for version in [9, 10] {
        let last = node("a").label("pool", "silver").at(version);
        assert_eq!(anticipate(&record, [&last], &Rules::default()), record, "{version}");
    }
}

#[test]
fn nothing_is_restored_where_nothing_was_stored_before() {
    let tombstone = Record::tombstone(&node("a"), crate::fixtures::second(500));
    let last = node("a").label("pool", "silver").at(12);
    assert_eq!(anticipate(&tombstone, [&last], &Rules::default()), tombstone);
}

#[test]
fn items_that_this_restorer_would_not_store_are_restored() {
    let rules = Rules { labels: Selection::all_but("zone".parse().expect("patterns")), ..Rules::default() };
    let record = record("a", "u1").label("pool", "gold").label("zone", "a").leftover("bad key", "x");
    let last = node("a").label("pool", "silver").label("zone", "b").at(12).seen_through(&rules);
    let next = anticipate(&record, [&last], &rules);
    assert_eq!(next.labels, record.clone().label("pool", "silver").labels);
    assert_eq!(next.leftovers, record.leftovers);
}

#[test]
fn after_the_storer_has_written_the_node_is_restored_once_more_and_lacks_nothing() {
    let (rules, stored) = (Rules::default(), record("a", "u1").label("pool", "gold").label("removed", "x"));
    let last = node("a").label("pool", "silver").at(12);
    let patch = restored(&stored, std::slice::from_ref(&last)).expect("a patch");
    let restored = back().label("pool", "silver").marked(&patch.marker.expect("a marker"));
    expect(&restored, Stored::Record(&stored), Reason::AlreadyRestored, None);
    let at = Circumstances::at(crate::fixtures::second(600));
    let plan = plan_store(Sighting::Deleted(&last), Stored::Record(&stored), at, &rules);
    let Action::Replace(written) = plan.action else { panic!("{plan:?}") };
    let plan = plan_restore(&restored, Stored::Record(&written), &rules, false);
    assert_eq!(
        (plan.reason, plan.patch.map(|patch| patch.restored)),
        (Reason::ReturnedWhole, Some(Labels::new()))
    );
}

#[test]
fn a_restorer_keeps_final_labels_until_they_are_stored_or_do_not_count() {
    let stored = record("a", "u1").label("pool", "gold");
    let keeps = |last: &Node, live: Option<&Node>, stored: Stored<&Record>| {
        keeps_final_labels(last.summary(), false, live.map(Node::summary), stored.map(Record::summary))
    };
    let last = node("a").label("pool", "silver").at(12);
    assert!(keeps(&last, None, Stored::Record(&stored)));
    assert!(keeps(&last, Some(&back()), Stored::Record(&stored)));
    assert!(keeps(&last, Some(&back()), Stored::Unreadable), "a person may fix the record");
    assert!(keeps(&last, Some(&back()), Stored::Nothing), "the storer may be creating the record");
    let restored = back().marked("u3/4");
    assert!(!keeps(&last, Some(&restored), Stored::Record(&stored)), "a later incarnation was restored");
    assert!(keeps(&last, Some(&restored.clone().at(11)), Stored::Record(&stored)), "an earlier one was");
    let same = record("a", "u1").label("pool", "silver");
    assert!(!keeps(&last, None, Stored::Record(&same)), "the record has them");
    let summary = Stored::Record(same.summary());
    let unrestored = last.clone().incarnation("u2");
    assert!(keeps_final_labels(unrestored.summary(), true, None, summary), "earlier ones change the record");
    let newer = Record { node_version: Some(ResourceVersion(12)), ..stored.clone() };
    assert!(!keeps(&last, None, Stored::Record(&newer)), "the record is as new");
    let bare = node("a").incarnation("u2").at(12);
    assert!(!keeps(&bare, None, Stored::Record(&stored)), "they add nothing");
    assert!(keeps(&node("a").at(12), None, Stored::Record(&stored)), "all labels were removed");
    let mut unselected = last;
    unselected.extras.is_unselected = true;
    assert!(!keeps(&unselected, None, Stored::Nothing), "no storer creates a record");
    assert!(keeps(&unselected, None, Stored::Record(&stored)));
}
