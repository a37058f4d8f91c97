//! Writes that may still arrive, and deletions that may be heard of again.

use super::*;
use crate::summary::digest;

#[test]
fn where_a_write_may_still_arrive_there_is_always_another_one() {
    let in_doubt = Circumstances { in_doubt: true, ..at() };
    let (same, labelled) = (node("a").label("k", "v"), record("a", "u1").label("k", "v"));
    let touched = Record { generation: 5, ..labelled.clone() };
    for (sighting, reason) in [
        (Sighting::Live(&same), Reason::UpToDate),
        (Sighting::Live(&node("a").incarnation("u2").at(20)), Reason::AwaitingRestore),
        (Sighting::Deleted(&node("a").at(9)), Reason::ViewOlderThanRecord),
    ] {
        expect(sighting, Stored::Record(&labelled), at(), reason, Action::Nothing);
        let action = Action::Replace(touched.clone());
        expect(sighting, Stored::Record(&labelled), in_doubt, Reason::OutcomeUnknown, action);
    }
    // A change of labels is such a write itself.
    let changed = node("a").label("k", "other").at(12);
    let plan = plan_store(Sighting::Live(&changed), Stored::Record(&labelled), in_doubt, &without_history());
    assert_eq!(plan.reason, Reason::LabelsChanged);
}

#[test]
fn a_create_that_may_still_arrive_finds_an_empty_record_that_claims_nothing() {
    let in_doubt = Circumstances { in_doubt: true, ..at() };
    let bare = node("a").at(20);
    for sighting in [Sighting::Live(&bare), Sighting::Deleted(&bare)] {
        expect(sighting, Stored::Nothing, at(), Reason::NoLabels, Action::Nothing);
        let plan = plan_store(sighting, Stored::Nothing, in_doubt, &without_history());
        let Action::Create(record) = plan.action else { panic!("{plan:?}") };
        assert_eq!(plan.reason, Reason::OutcomeUnknown);
        assert!(record.is_empty() && record.uid.is_none(), "{record:?}");
        // Final labels from before are stored over it.
        let last = node("a").incarnation("u0").label("k", "v").at(3);
        let plan = plan_store(Sighting::Deleted(&last), Stored::Record(&record), at(), &without_history());
        assert!(matches!(plan.action, Action::Replace(record) if record.labels == last.labels));
        // Unless they were dealt with before.
        let restored = node("a").incarnation("u2").marked("u2/1").at(30).summary();
        let stored = Stored::Record(record.summary());
        assert!(is_history(&last.summary(), Some(restored), stored));
        assert!(!is_history(&last.summary(), Some(bare.summary()), stored));
    }
    let mut unselected = node("a").label("k", "v");
    unselected.extras.is_unselected = true;
    let plan = plan_store(Sighting::Deleted(&unselected), Stored::Nothing, in_doubt, &without_history());
    assert!(matches!(plan.action, Action::Create(record) if record.is_empty()));
    for sighting in [Sighting::Gone, Sighting::Live(&bare.annotated(crate::node::IGNORE, "true"))] {
        let plan = plan_store(sighting, Stored::Nothing, in_doubt, &without_history());
        assert_eq!(plan.action, Action::Nothing, "there is nothing to say about this node");
    }
}

#[test]
fn a_departed_record_has_the_version_of_the_deletion_that_it_accounts_for() {
    let last = |version: u64, node: &Node| {
        let (uid, version) = (node.uid.digest(), ResourceVersion(version));
        let labels = digest(&node.labels);
        Circumstances { last_seen: Some(LastSeen { uid, version, labels }), ..at() }
    };
    let (same, other) = (node("a").label("k", "v"), node("a").label("k", "other"));
    let stored = record("a", "u1").label("k", "v");
    let departed = |version: u64, since: i64, record: &Record| {
        let node_version = Some(ResourceVersion(version));
        Action::Replace(Record {
            generation: 5,
            node_version,
            departed_at: Some(second(since)),
            ..record.clone()
        })
    };
    let gone = |record: &Record, at, reason, action| {
        expect(Sighting::Gone, Stored::Record(record), at, reason, action);
    };
    gone(&stored, last(12, &same), Reason::Departed, departed(12, NOW, &stored));
    gone(&stored, last(12, &other), Reason::Departed, departed(10, NOW, &stored));
    let next = same.clone().incarnation("u2");
    gone(&stored, last(12, &next), Reason::Departed, departed(10, NOW, &stored));
    gone(&stored, last(8, &same), Reason::Departed, departed(10, NOW, &stored));
    // It was seen to be gone before the deletion was heard of.
    let earlier = stored.departed(950);
    gone(&earlier, last(12, &same), Reason::Departed, departed(12, 950, &earlier));
    gone(&earlier, last(10, &same), Reason::Away, Action::Nothing);
    gone(&earlier, last(12, &other), Reason::Away, Action::Nothing);
}
