//! Last labels that nobody needs any more.

use super::*;

#[test]
fn last_labels_of_a_node_without_an_identity_are_not_kept() {
    let mut last = node("a").label("k", "v").at(12);
    assert!(is_worth_keeping(last.summary(), Stored::Nothing));
    last.extras.is_unidentified = true;
    assert!(!is_worth_keeping(last.summary(), Stored::Nothing));
}

#[test]
fn other_labels_of_the_records_own_incarnation_are_kept() {
    let last = node("a").label("k", "new").at(12);
    let stored = record("a", "u1").label("k", "v").summary();
    assert!(is_worth_keeping(last.summary(), Stored::Record(stored)));
    let older = last.clone().at(10);
    assert!(!is_worth_keeping(older.summary(), Stored::Record(stored)), "the record is as new");
}

#[test]
fn only_a_later_and_another_incarnation_makes_last_labels_obsolete() {
    let last = node("a").label("k", "v").at(12);
    let is_obsolete = |live: Node| is_history(&last.summary(), Some(live.summary()), Stored::Nothing);
    let other = node("a").incarnation("u2").marked("u2/3");
    assert!(is_obsolete(other.clone().at(13)));
    for version in [11, 12] {
        assert!(!is_obsolete(other.clone().at(version)), "{version}");
    }
    // The Node was deleted, so this answer is stale.
    for version in [11, 12, 13] {
        assert!(!is_obsolete(node("a").marked("u1/3").at(version)), "{version}");
    }
    let unreadable = is_history(&last.summary(), Some(other.at(13).summary()), Stored::Unreadable);
    assert!(!unreadable);
}
