use super::*;
use crate::Record;
use crate::fixtures::{node, record};

mod anticipation;
mod conflicts;
mod decided;
mod hostile;
mod room;
mod startup;
mod withholding;
mod words;

fn patch(restored: &[(&str, &str)], node: &Node, generation: u64) -> Option<Patch> {
    let restored = restored.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let marker = Some(format!("{}/{generation}", node.uid));
    Some(Patch { restored, marker, generation, ..Patch::empty(node) })
}

/// The same, where the Node has other values of these.
fn conflicting(conflicts: &[&str], patch: Option<Patch>) -> Option<Patch> {
    let conflict = |name: &&str| Conflict { name: (*name).to_owned(), winner: Winner::Node };
    let conflicts = conflicts.iter().map(conflict).collect();
    patch.map(|patch| Patch { conflicts, ..patch })
}

#[track_caller]
fn expect(node: &Node, stored: Stored<&Record>, reason: Reason, patch: Option<Patch>) {
    assert_eq!(plan_restore(node, stored, &Rules::default(), false), Plan { patch, reason });
}

#[test]
fn without_a_record_nothing_is_restored() {
    expect(&node("a"), Stored::Nothing, Reason::NothingStored, None);
}

#[test]
fn from_an_unreadable_record_nothing_is_restored() {
    expect(&node("a"), Stored::Unreadable, Reason::RecordUnreadable, None);
}

#[test]
fn the_records_own_incarnation_is_right_about_what_it_lacks() {
    let record = record("a", "u1").label("k", "v");
    expect(&node("a"), Stored::Record(&record), Reason::SameIncarnation, None);
}

#[test]
fn a_new_incarnation_gets_what_it_lacks() {
    let node = node("a").incarnation("u2").at(77);
    let record = record("a", "u1").label("k", "v").label("x.y/z", "");
    let patch = patch(&[("k", "v"), ("x.y/z", "")], &node, 4);
    expect(&node, Stored::Record(&record), Reason::Returned, patch);
}

#[test]
fn a_label_that_the_node_has_is_never_overwritten() {
    let node = node("a").incarnation("u2").label("k", "mine").label("empty", "").label("same", "x");
    let record = record("a", "u1").label("k", "v").label("empty", "no").label("l", "w").label("same", "x");
    let patch = conflicting(&["empty", "k"], patch(&[("l", "w")], &node, 4));
    expect(&node, Stored::Record(&record), Reason::Returned, patch);
}

#[test]
fn a_new_incarnation_that_lacks_nothing_is_marked_all_the_same() {
    let node = node("a").incarnation("u2").label("k", "mine");
    let record = record("a", "u1").label("k", "v");
    let patch = conflicting(&["k"], patch(&[], &node, 4));
    expect(&node, Stored::Record(&record), Reason::ReturnedWhole, patch);
}

#[test]
fn an_empty_record_marks_nobody() {
    for node in [node("a").incarnation("u2"), node("a").incarnation("u2").label("k", "mine")] {
        expect(&node, Stored::Record(&record("a", "u1")), Reason::NothingStored, None);
    }
}

#[test]
fn a_restored_incarnation_is_right_about_what_it_lacks() {
    let record = record("a", "u1").label("k", "v");
    for marker in ["u2/4", "u2/5"] {
        let node = node("a").incarnation("u2").marked(marker);
        expect(&node, Stored::Record(&record), Reason::AlreadyRestored, None);
    }
    // Stamps came later, and changed no labels.
    let stamped = Record { generation: 9, ..record };
    let node = node("a").incarnation("u2").marked("u2/4");
    expect(&node, Stored::Record(&stamped), Reason::AlreadyRestored, None);
}

#[test]
fn what_was_stored_after_the_restorer_read_the_record_is_restored_too() {
    let node = node("a").incarnation("u2").label("k", "v").marked("u2/3");
    let record = record("a", "u1").label("k", "v").label("late", "x");
    expect(&node, Stored::Record(&record), Reason::Returned, patch(&[("late", "x")], &node, 4));
}

#[test]
fn a_marker_of_an_earlier_incarnation_says_nothing() {
    let node = node("a").incarnation("u2").marked("u1/3");
    let record = record("a", "u1").label("k", "v");
    expect(&node, Stored::Record(&record), Reason::Returned, patch(&[("k", "v")], &node, 4));
}

#[test]
fn a_record_that_does_not_say_its_incarnation_is_restored() {
    let node = node("a");
    let record = Record { uid: None, ..record("a", "u1").label("k", "v") };
    expect(&node, Stored::Record(&record), Reason::Returned, patch(&[("k", "v")], &node, 4));
}

#[test]
fn a_departed_record_is_restored_like_any_other() {
    let node = node("a").incarnation("u2");
    let record = record("a", "u1").label("k", "v").departed(600);
    expect(&node, Stored::Record(&record), Reason::Returned, patch(&[("k", "v")], &node, 4));
}

#[test]
fn what_is_no_label_is_not_restored() {
    let node = node("a").incarnation("u2");
    let record = record("a", "u1").leftover("bad key", "v");
    expect(&node, Stored::Record(&record), Reason::ReturnedWhole, patch(&[], &node, 4));
}
