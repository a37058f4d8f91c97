use super::*;
use crate::fixtures::{node, record, second, uid};

mod a_record_whose_node_is_gone;
mod chosen;
mod in_doubt;
mod last_labels;
mod words;
mod worth_keeping;

const NOW: i64 = 1000;

fn at() -> Circumstances {
    Circumstances { retention: Duration::from_secs(100), ..Circumstances::at(second(NOW)) }
}

/// The history is not compared.
fn without_history() -> Rules {
    Rules { history: 0, ..Rules::default() }
}

#[track_caller]
fn expect(
    sighting: Sighting<&Node>,
    stored: Stored<&Record>,
    at: Circumstances,
    reason: Reason,
    action: Action,
) {
    assert_eq!(plan_store(sighting, stored, at, &without_history()), Plan { action, reason });
}

/// The record after a write from this node: the next generation, captured now.
fn retaken(node: &Node, generation: u64) -> Record {
    Record { generation, labels_generation: Some(generation), ..Record::of(node, second(NOW)) }
}

/// The same, where the labels are those that the record had.
fn taken_over(node: &Node, generation: u64) -> Record {
    Record { labels_generation: Some(4), ..retaken(node, generation) }
}

#[test]
fn a_lost_label_is_added_with_the_next_write_or_by_one_of_its_own() {
    let may_add_label = Circumstances { may_add_label: true, ..at() };
    let mut unlabelled = record("a", "u1").label("k", "v");
    unlabelled.more.is_unlabelled = true;
    let stored = Stored::Record(&unlabelled);
    let touched = Action::Replace(Record { generation: 5, ..unlabelled.clone() });
    let same = node("a").label("k", "v");
    let ignored = same.clone().annotated(crate::node::IGNORE, "true");
    let returned = node("a").incarnation("u2").at(20);
    for (node, reason) in
        [(&same, Reason::UpToDate), (&ignored, Reason::Ignored), (&returned, Reason::AwaitingRestore)]
    {
        expect(Sighting::Live(node), stored, may_add_label, Reason::LabelLost, touched.clone());
        expect(Sighting::Live(node), stored, at(), reason, Action::Nothing);
    }
    let departed = unlabelled.clone().departed(NOW);
    let touched = Action::Replace(Record { generation: 5, ..departed.clone() });
    expect(Sighting::Gone, Stored::Record(&departed), may_add_label, Reason::LabelLost, touched);
    let changed = node("a").label("k", "other").at(12);
    let plan = plan_store(Sighting::Live(&changed), stored, may_add_label, &without_history());
    assert_eq!(plan.reason, Reason::LabelsChanged);
    let older = node("a").label("k", "other").at(9);
    expect(Sighting::Live(&older), stored, may_add_label, Reason::ViewOlderThanRecord, Action::Nothing);
}

#[test]
fn items_count_only_while_the_record_has_them() {
    let node = node("a").incarnation("u2").marked("u2/4/refused:a").summary();
    let withheld = |record: Record| !Stored::Record(record.summary()).withheld_from(&node).is_empty();
    assert!(withheld(record("a", "u2").withheld("a", "x", None)));
    assert!(!withheld(record("a", "u2").label("k", "v")), "it was removed from the record");
    assert!(withheld(record("a", "u1").label("a", "x")), "the storer has not followed yet");
    let mut changed = record("a", "u1").label("a", "x");
    changed.labels_generation = Some(5);
    changed.generation = 5;
    assert!(!withheld(changed), "it is about to be restored again");
    assert!(Stored::Nothing.withheld_from(&node).is_empty());
}

mod a_node_without_a_record {
    use super::*;

    #[test]
    fn is_stored_when_first_seen() {
        let node = node("a").label("k", "v");
        let first = Record::of(&node, second(NOW));
        assert_eq!(
            (first.generation, first.uid.clone(), first.captured_at),
            (1, Some(uid("u1")), Some(second(NOW)))
        );
        expect(Sighting::Live(&node), Stored::Nothing, at(), Reason::FirstSeen, Action::Create(first));
    }

    #[test]
    fn needs_none_while_it_has_no_labels() {
        expect(Sighting::Live(&node("a")), Stored::Nothing, at(), Reason::NoLabels, Action::Nothing);
    }

    #[test]
    fn is_stored_also_when_it_carries_a_marker() {
        let node = node("a").label("k", "v").marked("u1/3");
        let first = Record::of(&node, second(NOW));
        expect(Sighting::Live(&node), Stored::Nothing, at(), Reason::FirstSeen, Action::Create(first));
    }
}

mod a_record_of_this_incarnation {
    use super::*;

    #[test]
    fn that_says_the_same_is_left_alone_however_old_it_is() {
        let node = node("a").label("k", "v").at(5000);
        let record = record("a", "u1").label("k", "v");
        expect(Sighting::Live(&node), Stored::Record(&record), at(), Reason::UpToDate, Action::Nothing);
    }

    #[test]
    fn follows_a_changed_added_or_removed_label() {
        let record = record("a", "u1").label("k", "v").label("gone", "x");
        for node in [
            node("a").label("k", "other").label("gone", "x"),
            node("a").label("k", "v"),
            node("a").label("new", ""),
        ] {
            let node = node.at(11);
            let action = Action::Replace(retaken(&node, 5));
            expect(Sighting::Live(&node), Stored::Record(&record), at(), Reason::LabelsChanged, action);
        }
    }

    #[test]
    fn is_emptied_not_deleted_when_the_last_label_goes() {
        let node = node("a").at(11);
        let record = record("a", "u1").label("k", "v");
        let action = Action::Replace(retaken(&node, 5));
        expect(Sighting::Live(&node), Stored::Record(&record), at(), Reason::LabelsChanged, action);
    }

    #[test]
    fn is_never_replaced_by_an_older_view() {
        let node = node("a").label("k", "old");
        let record = record("a", "u1").label("k", "v");
        let replaced = |node: &Node| Action::Replace(retaken(node, 5));
        for (version, reason, action) in [
            (9, Reason::ViewOlderThanRecord, Action::Nothing),
            (10, Reason::LabelsChanged, replaced(&node.clone().at(10))),
            (11, Reason::LabelsChanged, replaced(&node.clone().at(11))),
        ] {
            let node = node.clone().at(version);
            expect(Sighting::Live(&node), Stored::Record(&record), at(), reason, action);
        }
    }

    #[test]
    fn that_was_wrongly_taken_for_departed_is_put_right() {
        let node = node("a").label("k", "v").at(11);
        let record = record("a", "u1").label("k", "v").departed(900);
        let action = Action::Replace(taken_over(&node, 5));
        expect(Sighting::Live(&node), Stored::Record(&record), at(), Reason::NotGone, action);
    }

    #[test]
    fn keeps_what_is_no_label() {
        let node = node("a").label("k", "w").at(11);
        let record = record("a", "u1").label("k", "v").leftover("bad key", "x");
        let action = Action::Replace(retaken(&node, 5).leftover("bad key", "x"));
        expect(Sighting::Live(&node), Stored::Record(&record), at(), Reason::LabelsChanged, action);
    }
}

mod an_empty_record {
    use super::*;

    #[track_caller]
    fn expires(sighting: Sighting<&Node>, record: &Record) {
        let young = Circumstances { unchanged_for: TOMBSTONE_LIFETIME - Duration::from_millis(1), ..at() };
        expect(sighting, Stored::Record(record), young, Reason::EmptyForNow, Action::Nothing);
        let old = Circumstances { unchanged_for: TOMBSTONE_LIFETIME, ..at() };
        expect(sighting, Stored::Record(record), old, Reason::EmptyForGood, Action::Delete);
    }

    #[test]
    fn is_deleted_once_no_plan_from_before_can_be_alive() {
        const { assert!(TOMBSTONE_LIFETIME.as_secs() > 2 * PLAN_LIFETIME.as_secs()) };
        expires(Sighting::Live(&node("a")), &record("a", "u1"));
        expires(Sighting::Gone, &record("a", "u1"));
        expires(Sighting::Gone, &record("a", "u1").departed(900));
    }

    #[test]
    fn of_an_earlier_incarnation_has_nothing_to_wait_for() {
        let bare = node("a").incarnation("u2").at(20);
        expires(Sighting::Live(&bare), &record("a", "u1").departed(900));
        expires(Sighting::Live(&node("a").incarnation("u0").label("k", "v").at(9)), &record("a", "u1"));
        let labelled = bare.label("k", "v");
        let action = Action::Replace(retaken(&labelled, 5));
        let empty = record("a", "u1").departed(900);
        expect(Sighting::Live(&labelled), Stored::Record(&empty), at(), Reason::LabelsChanged, action);
    }

    #[test]
    fn is_filled_again_when_the_node_has_labels_again() {
        let node = node("a").label("k", "v").at(11);
        let action = Action::Replace(retaken(&node, 5));
        let old = Circumstances { unchanged_for: TOMBSTONE_LIFETIME, ..at() };
        expect(Sighting::Live(&node), Stored::Record(&record("a", "u1")), old, Reason::LabelsChanged, action);
    }

    #[test]
    fn is_not_empty_while_something_is_left_in_it_that_is_no_label() {
        let record = record("a", "u1").leftover("bad key", "v");
        let old = Circumstances { unchanged_for: TOMBSTONE_LIFETIME, ..at() };
        expect(Sighting::Live(&node("a")), Stored::Record(&record), old, Reason::UpToDate, Action::Nothing);
    }
}

mod a_new_incarnation {
    use super::*;

    #[test]
    fn is_not_believed_before_it_is_restored() {
        let record = record("a", "u1").label("k", "v");
        for node in [node("a"), node("a").label("k", "other"), node("a").marked("u1/4"), node("a").marked("")]
        {
            let node = node.incarnation("u2").at(20);
            expect(
                Sighting::Live(&node),
                Stored::Record(&record),
                at(),
                Reason::AwaitingRestore,
                Action::Nothing,
            );
        }
    }

    #[test]
    fn ends_the_departure_without_touching_the_labels() {
        let node = node("a").incarnation("u2").at(20);
        let record = record("a", "u1").label("k", "v").departed(900);
        let action = Action::Replace(Record { departed_at: None, generation: 5, ..record.clone() });
        expect(Sighting::Live(&node), Stored::Record(&record), at(), Reason::Returned, action);
    }

    #[test]
    fn is_believed_once_it_is_marked() {
        let record = record("a", "u1").label("k", "v").departed(900);
        for marker in ["u2/4", "u2/5"] {
            let same = node("a").label("k", "v").incarnation("u2").marked(marker).at(20);
            let action = Action::Replace(taken_over(&same, 5));
            expect(Sighting::Live(&same), Stored::Record(&record), at(), Reason::Restored, action);
            for node in [node("a").label("k", "other"), node("a")] {
                let node = node.incarnation("u2").marked(marker).at(20);
                let action = Action::Replace(retaken(&node, 5));
                expect(Sighting::Live(&node), Stored::Record(&record), at(), Reason::Restored, action);
            }
        }
    }

    #[test]
    fn that_was_restored_before_the_last_labels_were_stored_is_restored_again_first() {
        let node = node("a").label("k", "v").incarnation("u2").marked("u2/3").at(20);
        let record = record("a", "u1").label("k", "v").label("late", "x");
        expect(
            Sighting::Live(&node),
            Stored::Record(&record),
            at(),
            Reason::AwaitingRestore,
            Action::Nothing,
        );
        // A stamp is a write too, but changes no labels.
        let stamped = Record { generation: 9, labels_generation: Some(3), ..record };
        let action = Action::Replace(retaken(&node, 10));
        expect(Sighting::Live(&node), Stored::Record(&stamped), at(), Reason::Restored, action);
    }

    #[test]
    fn that_is_marked_is_believed_also_where_versions_count_differently() {
        let node = node("a").label("k", "v").incarnation("u2").marked("u2/4").at(3);
        let record = record("a", "u1").label("k", "v");
        let action = Action::Replace(taken_over(&node, 5));
        expect(Sighting::Live(&node), Stored::Record(&record), at(), Reason::Restored, action);
    }

    #[test]
    fn that_is_marked_is_not_believed_in_an_older_view_where_nothing_proves_that_it_is_later() {
        let node = node("a").incarnation("u0").marked("u0/2").at(9);
        let record = Record { labels_generation: None, ..record("a", "u1").label("k", "v") };
        expect(
            Sighting::Live(&node),
            Stored::Record(&record),
            at(),
            Reason::ViewOlderThanRecord,
            Action::Nothing,
        );
    }

    #[test]
    fn is_awaited_also_where_the_record_does_not_say_its_incarnation() {
        let record = Record { uid: None, ..record("a", "u1").label("k", "v") };
        expect(
            Sighting::Live(&node("a")),
            Stored::Record(&record),
            at(),
            Reason::AwaitingRestore,
            Action::Nothing,
        );
    }
}

mod a_deleted_event {
    use super::*;

    #[test]
    fn stores_the_last_labels() {
        let node = node("a").label("k", "last").at(12);
        let last = |generation| Record { departed_at: Some(second(NOW)), ..retaken(&node, generation) };
        expect(Sighting::Deleted(&node), Stored::Nothing, at(), Reason::FinalLabels, Action::Create(last(1)));
        let record = record("a", "u1").label("k", "v");
        let action = Action::Replace(last(5));
        expect(Sighting::Deleted(&node), Stored::Record(&record), at(), Reason::FinalLabels, action);
    }

    #[test]
    fn of_a_node_without_labels_needs_no_record() {
        expect(Sighting::Deleted(&node("a")), Stored::Nothing, at(), Reason::NoLabels, Action::Nothing);
    }

    #[test]
    fn of_a_restored_incarnation_is_its_word() {
        let node = node("a").incarnation("u2").marked("u2/4").label("l", "w").at(12);
        let record = record("a", "u1").label("k", "v");
        let action = Action::Replace(Record { departed_at: Some(second(NOW)), ..retaken(&node, 5) });
        expect(Sighting::Deleted(&node), Stored::Record(&record), at(), Reason::FinalLabels, action);
    }

    #[test]
    fn of_an_incarnation_that_was_never_restored_is_merged() {
        let node = node("a").incarnation("u2").label("k", "new").label("l", "w").at(12);
        let record = record("a", "u1").label("k", "v").label("kept", "x");
        let merged = retaken(&node, 5).label("kept", "x");
        let action = Action::Replace(Record { departed_at: Some(second(NOW)), ..merged });
        expect(
            Sighting::Deleted(&node),
            Stored::Record(&record),
            at(),
            Reason::LeftUnrestored,
            action.clone(),
        );
        // Restored from what the record held before its last change: as good as not at all.
        let marked = node.marked("u2/3");
        expect(Sighting::Deleted(&marked), Stored::Record(&record), at(), Reason::LeftUnrestored, action);
    }

    #[test]
    fn counts_only_if_it_is_newer_than_the_record() {
        let record = record("a", "u1").label("k", "v");
        for incarnation in ["u0", "u1"] {
            for (version, newer) in [(9, false), (10, false), (11, true)] {
                let node = node("a").incarnation(incarnation).label("k", "late").at(version);
                let plan =
                    plan_store(Sighting::Deleted(&node), Stored::Record(&record), at(), &without_history());
                assert_eq!(plan.reason == Reason::ViewOlderThanRecord, !newer, "{incarnation} at {version}");
                assert_eq!(plan.action == Action::Nothing, !newer, "{incarnation} at {version}");
            }
        }
    }
}

#[test]
fn an_unreadable_record_is_never_touched() {
    let node = node("a").label("k", "v").marked("u1/3").at(99);
    for sighting in [Sighting::Live(&node), Sighting::Deleted(&node), Sighting::Gone] {
        expect(sighting, Stored::Unreadable, at(), Reason::RecordUnreadable, Action::Nothing);
    }
}
