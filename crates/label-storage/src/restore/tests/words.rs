//! The words that users build on.

use super::*;

#[test]
fn every_reason_keeps_its_word() {
    for (reason, word) in [
        (Reason::NothingStored, "nothing-stored"),
        (Reason::RecordUnreadable, "record-unreadable"),
        (Reason::SameIncarnation, "same-incarnation"),
        (Reason::AlreadyRestored, "already-restored"),
        (Reason::Returned, "returned"),
        (Reason::ReturnedWhole, "returned-whole"),
        (Reason::Ignored, "ignored"),
        (Reason::OtherMachine, "other-machine"),
        (Reason::NoIdentity, "no-identity"),
        (Reason::SeenInPart, "seen-in-part"),
        (Reason::NoRoom, "no-room"),
    ] {
        assert_eq!(reason.as_str(), word);
    }
}

#[test]
fn every_why_keeps_its_word() {
    let words = ["other-machine", "other-name", "never", "too-large", "refused"];
    assert!(Why::ALL.iter().map(|why| why.as_str()).eq(words));
    let all = [Why::OtherMachine, Why::OtherName, Why::Never, Why::TooLarge, Why::Refused];
    assert_eq!(all.map(Why::as_str), words);
}
