//! The protocol has no counterexample within the bounds. Without any one of its guards, it has one.

#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

use model::cases::{self, QUICK};
use model::{Config, Guard, Left, Property, Resume, search};

const MOST: usize = 3_000_000;

/// Searches every n-th case, so that two tests can use the two cores of a small machine.
fn look(every: usize, from: usize) {
    for case in QUICK.iter().skip(from).step_by(every) {
        let report = search(case.config, MOST);
        println!("{}: {} states, {:?}", case.name, report.states, report.took);
        if let Some(counterexample) = report.counterexample {
            panic!("{}: {counterexample}", case.name);
        }
        assert!(report.is_complete, "{}: more than {MOST} states", case.name);
        // A search of very few states would prove nothing.
        assert!(report.states > 10_000, "{}: {} states", case.name, report.states);
    }
}

#[test]
fn no_order_of_events_breaks_a_promise() {
    look(2, 0);
}

#[test]
fn no_order_of_other_events_breaks_a_promise() {
    look(2, 1);
}

#[track_caller]
fn expect(config: Config, property: Property) -> (String, usize) {
    let report = search(config, MOST);
    let counterexample = report.counterexample.expect("a counterexample");
    let trace = counterexample.to_string();
    println!("without {:?}, {} states: {trace}\n", config.without, report.states);
    assert_eq!(counterexample.property, property, "{trace}");
    assert!(trace.ends_with("<-- broken here"), "{trace}");
    (trace, report.states)
}

macro_rules! guards {
    ($($test:ident: $guard:ident)+) => {
        $(#[test]
        fn $test() {
            let (config, property) = cases::shown_by(Guard::$guard);
            let (_, states) = expect(config, property);
            // With the guard, a search of twice as many states finds nothing. So the guard makes the difference.
            let with = Config { without: None, ..config };
            assert!(search(with, states * 2).counterexample.is_none());
        })+

        #[test]
        fn every_guard_is_tried() {
            let tried = [$(Guard::$guard),+];
            let all = <Guard as clap::ValueEnum>::value_variants();
            assert!(all.iter().all(|guard| tried.contains(guard)), "{tried:?}");
        }
    };
}

guards! {
    without_a_look_for_edits_restorers_undo_them: Edited
    without_the_uid_nothing_is_restored: Uid
    without_the_marker_labels_are_lost: Marker
    without_marking_a_whole_node_the_storer_waits_for_ever: MarkWhole
    without_the_uid_in_the_marker_a_copied_one_loses_labels: OwnMarker
    where_a_marker_holds_for_the_next_record_labels_are_lost: RecordUid
    without_the_confirming_read_removed_labels_come_back: ConfirmingGet
    without_a_fresh_record_removed_labels_come_back: FreshRecord
    without_the_tombstone_records_go_back: Tombstone
    without_the_lifetime_of_plans_records_go_back: PlanLifetime
    without_the_version_of_the_record_records_go_back: RecordVersion
    without_creating_only_what_is_not_there_records_go_back: CreateOnly
    without_the_version_of_the_node_labels_are_overwritten: NodeVersion
    where_a_deletion_counts_twice_labels_are_lost: NewerDeleted
    without_knowing_history_for_what_it_is_records_go_back: History
    without_keeping_that_there_were_no_labels_a_removal_is_not_stored: KeepNone
    without_the_generation_of_labels_those_stored_last_are_lost: LabelsGeneration
    without_a_second_write_a_late_one_undoes_the_final_labels: InDoubt
    without_keeping_them_while_a_write_is_under_way_final_labels_are_lost: Unsettled
    without_the_version_of_the_deletion_edits_are_undone: DepartedVersion
    where_a_deletion_is_dealt_with_twice_deleted_records_come_back: Settled
    without_anticipation_a_returning_node_gets_the_old_value: Anticipation
    where_final_labels_outlive_a_restore_the_next_node_gets_them: Superseded
}

#[test]
fn what_stays_open_is_real() {
    let left = Left { label: 1, unlabel: 1, delete: 1, ..Left::default() };
    expect(Config { left, late_final_labels: true, ..QUICK[0].config }, Property::WentBack);
}

#[test]
fn a_resumed_watch_loses_no_deletion_of_another_node_and_none_that_the_api_server_has() {
    let left = Left { label: 1, unlabel: 1, delete: 2, crash: 1, ..Left::default() };
    let one = Config { storers: 1, restorers: 1, left, ..QUICK[0].config };
    for config in [Config { names: 2, resume: Resume::Any, ..one }, Config { resume: Resume::Recent, ..one }]
    {
        let counterexample = search(config, 100_000).counterexample;
        assert!(counterexample.is_none(), "{}", counterexample.expect("one"));
    }
}

#[test]
fn a_trace_can_be_read() {
    let (config, property) = cases::shown_by(Guard::Marker);
    let (trace, _) = expect(config, property);
    let lines: Vec<&str> = trace.lines().collect();
    assert_eq!(lines[0], "broken: a stored label is never lost");
    assert!(lines[1].starts_with("  1. n0 storer 1   reads record and node, and sends a write"), "{trace}");
    assert!(lines[1].ends_with("node u1@1 {a=1}   record -"), "{trace}");
}
