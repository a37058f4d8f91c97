//! Final labels, until they are stored.

use super::*;

#[test]
fn are_kept_unless_the_record_has_them_or_is_newer() {
    let last = node("a").label("k", "v").at(12);
    let keeps = |stored: Stored<&Record>| is_worth_keeping(last.summary(), stored.map(Record::summary));
    assert!(keeps(Stored::Nothing) && keeps(Stored::Record(&record("a", "u1"))));
    assert!(keeps(Stored::Record(&record("a", "u0").label("k", "v"))), "it is to be this incarnation's");
    assert!(!keeps(Stored::Record(&record("a", "u1").label("k", "v"))));
    let newer = Record { node_version: Some(last.version), ..record("a", "u2") };
    assert!(!keeps(Stored::Record(&newer)) && keeps(Stored::Unreadable), "a person may fix that one");
    assert!(
        is_worth_keeping(node("a").summary(), Stored::Nothing),
        "there may be one that nobody has seen yet"
    );
}

#[test]
fn are_history_once_a_later_incarnation_was_restored_and_its_record_deleted() {
    let last = node("a").label("k", "v").at(12);
    let is_history = |live: Option<&Node>, stored: Stored<&Record>| {
        is_history(&last.summary(), live.map(Node::summary), stored.map(Record::summary))
    };
    let back = node("a").incarnation("u2").at(20);
    let restored = back.clone().marked("u2/3");
    assert!(is_history(Some(&restored), Stored::Nothing));
    assert!(!is_history(Some(&back), Stored::Nothing), "nobody may have heard of them yet");
    assert!(!is_history(Some(&back.marked("u1/3")), Stored::Nothing), "a copied marker says nothing");
    assert!(!is_history(None, Stored::Nothing));
    assert!(!is_history(Some(&restored), Stored::Record(&record("a", "u1"))), "the versions decide");
    assert!(!is_history(Some(&restored.at(11)), Stored::Nothing), "an answer from before");
}
