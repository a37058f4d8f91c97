//! How long a record waits for its Node.

use super::*;

#[test]
fn is_stamped_and_keeps_its_labels() {
    let record = record("a", "u1").label("k", "v");
    let action = Action::Replace(Record { generation: 5, ..record.clone().departed(NOW) });
    expect(Sighting::Gone, Stored::Record(&record), at(), Reason::Departed, action);
}

#[test]
fn is_kept_for_the_retention_and_then_deleted() {
    let seen = Circumstances { unchanged_for: TOMBSTONE_LIFETIME, ..at() };
    for (departed_at, reason, action) in [
        (NOW - 99, Reason::Away, Action::Nothing),
        (NOW - 100, Reason::RetentionOver, Action::Delete),
        (1, Reason::RetentionOver, Action::Delete),
    ] {
        let record = record("a", "u1").label("k", "v").departed(departed_at);
        expect(Sighting::Gone, Stored::Record(&record), seen, reason, action);
        // A clock that jumps for a moment deletes nothing.
        expect(Sighting::Gone, Stored::Record(&record), at(), Reason::Away, Action::Nothing);
    }
}

#[test]
fn is_kept_where_its_departure_lies_in_the_future() {
    let record = record("a", "u1").label("k", "v").departed(NOW + 1_000_000);
    expect(Sighting::Gone, Stored::Record(&record), at(), Reason::Away, Action::Nothing);
}

#[test]
fn is_kept_for_ever_where_the_retention_says_so() {
    let record = record("a", "u1").label("k", "v").departed(0);
    let at = Circumstances { retention: Duration::MAX, ..at() };
    expect(Sighting::Gone, Stored::Record(&record), at, Reason::Away, Action::Nothing);
}

#[test]
fn may_have_never_existed() {
    expect(Sighting::Gone, Stored::Nothing, at(), Reason::NothingStored, Action::Nothing);
}
