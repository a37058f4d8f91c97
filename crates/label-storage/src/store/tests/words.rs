//! The words that users build on.

use super::*;

#[test]
fn every_reason_keeps_its_word() {
    for (reason, word) in [
        (Reason::FirstSeen, "first-seen"),
        (Reason::NoLabels, "no-labels"),
        (Reason::UpToDate, "up-to-date"),
        (Reason::LabelsChanged, "labels-changed"),
        (Reason::Restored, "restored"),
        (Reason::NotGone, "not-gone"),
        (Reason::AwaitingRestore, "awaiting-restore"),
        (Reason::Returned, "returned"),
        (Reason::ViewOlderThanRecord, "view-older-than-record"),
        (Reason::RecordUnreadable, "record-unreadable"),
        (Reason::EmptyForNow, "empty-for-now"),
        (Reason::EmptyForGood, "empty-for-good"),
        (Reason::FinalLabels, "final-labels"),
        (Reason::LeftUnrestored, "left-unrestored"),
        (Reason::Departed, "departed"),
        (Reason::Away, "away"),
        (Reason::RetentionOver, "retention-over"),
        (Reason::NothingStored, "nothing-stored"),
        (Reason::Ignored, "ignored"),
        (Reason::NotSelected, "not-selected"),
        (Reason::NoIdentity, "no-identity"),
        (Reason::OtherMachine, "other-machine"),
        (Reason::OutcomeUnknown, "outcome-unknown"),
    ] {
        assert_eq!(reason.as_str(), word);
    }
}
