//! Scenario tests: the real daemons, as processes, against a real kube-apiserver and etcd.
//!
//! One control plane serves all tests of a run; each test has its own namespace and its own node names, and its
//! daemons see no others (`--nodes`). Those of the manifests have a second one, with the built-in controllers, which would
//! change the Nodes of all others. The test program has its own `main` for two reasons: the control plane ends with
//! the run, and the program starts *itself* as a storer or restorer, which can never be older than the code under test.
//!
//! - [`scenario`]: what a test is given: nodes, records, daemons, and waiting for things to become true.
//! - [`daemon`]: a daemon that runs: its log, and what it says on its admin port.
//! - [`kubelet`]: runs the pods of StatefulSets as processes.
//! - [`interference`]: a client that lets something happen just before a chosen request.
//! - [`slow_server`]: just enough of an API server to keep a daemon waiting.
//! - All else: the tests, by subject.

#![allow(
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "a test program, where `pub` means: for the other modules"
)]

mod absent_storer;
mod brake;
mod choosing;
mod command_line;
mod configuration;
mod conflicts;
mod control_plane;
mod crashes;
mod daemon;
mod deploy;
mod e2e;
mod events;
mod excluding;
mod faults;
mod history;
mod hostile;
mod identity;
mod interference;
mod keeping;
mod kubelet;
mod leases;
mod lies;
mod many;
mod monitoring;
mod ownership;
mod plugin_check;
mod plugin_explain;
mod plugin_get;
mod plugin_port;
mod plugin_status;
mod plugin_write;
mod proxies;
mod races;
mod reading;
mod records;
mod refusing;
mod regressions;
mod restoring;
mod retaining;
mod scaling;
mod scenario;
mod seeing;
mod sharding;
mod slow_server;
mod soak;
mod startup;
mod storing;
mod watching;

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Trial};
use sandbox::{Options, Sandbox, itself};

use crate::scenario::Scenario;

/// The tests that `-- quick` runs: those of the main paths.
const QUICK: [&str; 20] = [
    "restoring::a_recreated_node_gets_its_labels_back",
    "restoring::a_label_on_the_returning_node_is_not_overwritten",
    "restoring::a_removed_label_stays_removed_in_the_store_and_after_the_next_return",
    "storing::a_node_that_existed_before_the_daemons_is_stored",
    "storing::the_record_of_a_returning_node_is_left_alone_until_it_is_restored",
    "records::of_a_tampered_record_the_valid_entries_are_restored_and_nothing_is_lost",
    "choosing::only_what_is_included_is_stored",
    "conflicts::the_record_counts_where_the_rules_say_so_and_what_was_before_is_kept",
    "identity::all_labels_of_a_bare_node_come_back",
    "identity::two_nodes_that_claim_one_identity_are_reported_and_left_alone",
    "refusing::a_refused_label_keeps_no_other_away",
    "startup::pods_may_come_with_the_very_change_that_brings_the_labels",
    "races::labels_stored_after_the_restorer_has_read_the_record_come_back_too",
    "ownership::a_replica_that_is_asked_to_end_hands_its_shard_over",
    "sharding::three_shards_cover_every_node_exactly_once",
    "watching::a_label_changed_just_before_the_deletion_is_kept",
    "absent_storer::a_restorer_that_was_killed_meanwhile_receives_the_deletion_again",
    "configuration::every_example_is_run",
    "plugin_explain::explain_says_who_does_what_and_why",
    "plugin_status::where_all_is_well_it_says_so",
];

/// The longest tests. They come first, so that nothing waits for them in the end.
const LONG: [&str; 18] = [
    "five_thousand_nodes_deleted_at_once_come_back_with_their_labels",
    "two_thousand_nodes_that_were_changed_at_last_return_as_they_were",
    "leftover_leases_hide_no_shard",
    "the_end_to_end_test_passes_and_leaves_nothing_behind",
    "final_labels_survive_502_for_a_while",
    "final_labels_survive_500_for_a_while",
    "final_labels_survive_403_for_a_while",
    "while_the_stateful_set_is_scaled_every_node_is_some_replicas",
    "a_node_that_depends_on_its_machine_waits_for_the_final_labels",
    "a_returning_node_gets_the_labels_that_it_had_at_its_deletion",
    "at_most_a_share_of_the_records_is_deleted_in_an_hour",
    "hundreds_of_returning_nodes_make_no_storm",
    "scaled_from_two_to_five_to_one_under_load_nothing_is_lost",
    "idle_replicas_make_few_requests_beside_renewals",
    "what_is_changed_after_the_list_is_not_overwritten",
    "random_histories_in_bad_weather_end_as_an_oracle_says",
    "upgrade_and_uninstall_keep_the_records",
    "every_query_finds_what_the_daemons_tell_of",
];

fn main() -> ExitCode {
    match itself::role().as_deref() {
        Some("storer") => return label_storage_runtime::main::<storer::Args>(std::env::args_os()),
        Some("restorer") => return label_storage_runtime::main::<restorer::Args>(std::env::args_os()),
        Some("plugin") => {
            scenario::leave_terminal();
            return kubectl_plugin::main(std::env::args_os());
        }
        _ => {}
    }
    let mut arguments = Arguments::from_args();
    // They wait far more than they compute.
    arguments.test_threads.get_or_insert(12);
    let control_planes = ControlPlanes::default();
    let mut trials = trials(&control_planes);
    for name in QUICK.iter().chain(&LONG) {
        assert!(trials.iter().any(|trial| trial.name().ends_with(name)), "there is no test {name}");
    }
    trials.sort_by_key(|trial| !LONG.iter().any(|name| trial.name().ends_with(name)));
    if arguments.filter.take_if(|filter| filter == "quick").is_some() {
        trials.retain(|trial| QUICK.contains(&trial.name()));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Ends the control planes, which nothing but this process's death would end otherwise.
    drop(control_planes);
    conclusion.exit_code()
}

/// The control plane of the tests.
struct ControlPlanes {
    /// etcd and the API server.
    bare: Arc<ControlPlane>,
    /// With the built-in controllers, and an audit log.
    whole: Arc<ControlPlane>,
}

impl Default for ControlPlanes {
    fn default() -> Self {
        let whole = Options { controller_manager: true, audit: true, ..Options::default() };
        let plane = |options| Arc::new(ControlPlane { options, started: OnceLock::new() });
        Self { bare: plane(Options::default()), whole: plane(whole) }
    }
}

/// Started by the first test that needs it, so that `--list` and a filter that matches nothing cost nothing.
struct ControlPlane {
    options: Options,
    started: OnceLock<Result<Arc<Sandbox>, String>>,
}

impl ControlPlane {
    fn get(&self) -> Result<Arc<Sandbox>, String> {
        let start = || Sandbox::start(self.options.clone()).map(Arc::new).map_err(|error| error.to_string());
        self.started.get_or_init(start).clone()
    }
}

fn trials(control_planes: &ControlPlanes) -> Vec<Trial> {
    let mut trials = Vec::new();
    macro_rules! trials {
        ($control_plane:expr, $modes:expr; $($module:ident: $($test:ident)+;)+) => { for mode in $modes { $($({
            let control_plane = Arc::clone(&$control_plane);
            let (name, test) = (concat!(stringify!($module), "::", stringify!($test)), stringify!($test));
            trials.push(Trial::test(format!("{}{name}", mode.prefix()), move || {
                let sandbox = control_plane.get()?;
                let watch = mode == Mode::Watching;
                Ok(scenario::run(&sandbox, test, watch, async |scenario: &Scenario| $module::$test(scenario).await)?)
            }));
        })+)+ } };
    }
    // Without a watch, too: what only a list can show, the order of reads, and what another replica takes over. All else is the same code.
    trials! {
        control_planes.bare, [Mode::Watching, Mode::Polling];
        restoring:
            a_recreated_node_gets_its_labels_back
            a_removed_label_stays_removed_in_the_store_and_after_the_next_return
            a_node_deleted_and_recreated_faster_than_the_loops_gets_its_labels_back
            what_a_person_edits_while_the_node_is_away_comes_back;
        storing:
            a_node_that_existed_before_the_daemons_is_stored
            without_labels_the_record_is_empty_at_once_and_gone_within_a_minute
            the_record_of_a_returning_node_is_left_alone_until_it_is_restored
            a_record_deleted_under_a_living_node_comes_back
            a_departed_node_is_stamped_and_forgotten_after_the_retention
            unchanged_nodes_cost_no_calls;
        records:
            a_record_that_has_lost_its_label_is_used_and_labelled_again;
        plugin_write:
            what_is_set_while_a_node_is_away_comes_back;
        excluding:
            storers_with_different_rules_lose_nothing_and_do_not_fight;
        choosing:
            only_selected_nodes_get_a_record_and_it_follows_them;
        identity:
            an_instance_is_known_again_under_another_name
            a_node_that_is_nobody_yet_waits_until_it_is_somebody
            two_nodes_that_claim_one_identity_are_reported_and_left_alone;
        startup:
            pods_may_come_with_the_very_change_that_brings_the_labels;
        hostile:
            a_record_that_is_not_utf8_holds_up_no_other
            a_node_that_is_not_utf8_holds_up_no_other;
        races:
            a_stale_write_of_a_record_is_refused_and_planned_anew
            labels_stored_after_the_restorer_has_read_the_record_come_back_too
            a_node_replaced_while_it_is_being_restored_is_restored_itself
            a_node_replaced_while_it_is_being_stored_does_not_empty_its_record
            two_replicas_of_one_shard_do_no_harm;
        ownership:
            a_shard_whose_replica_was_killed_is_adopted_and_given_back
            while_their_number_changes_every_node_is_some_replicas
            a_replica_that_sleeps_longer_than_its_lease_does_no_harm;
        sharding:
            three_shards_cover_every_node_exactly_once;
        scaling:
            scaled_from_two_to_five_to_one_under_load_nothing_is_lost;
        soak:
            random_histories_in_bad_weather_end_as_an_oracle_says;
    }
    trials! {
        control_planes.bare, [Mode::Watching];
        records:
            of_a_tampered_record_the_valid_entries_are_restored_and_nothing_is_lost
            a_record_that_names_another_node_is_left_for_a_person
            somebody_elses_config_map_is_not_touched
            a_record_copied_from_another_cluster_is_restored_and_kept_up_to_date;
        refusing:
            a_refused_label_keeps_no_other_away
            of_many_labels_those_that_are_refused_are_found
            labels_that_are_refused_only_together_come_back_in_part
            a_refusal_that_passes_withholds_no_label;
        hostile:
            hundreds_of_hostile_records_do_no_harm
            a_node_that_is_not_utf8_holds_up_no_startup_taint;
        races:
            a_stale_patch_of_a_node_is_refused_and_planned_anew
            a_label_changed_while_the_node_is_being_restored_is_kept
            a_taint_added_while_the_node_is_being_restored_is_kept;
        sharding:
            more_shards_than_nodes_are_fine;
        scaling:
            while_the_stateful_set_is_scaled_every_node_is_some_replicas;
        choosing:
            only_what_is_included_is_stored
            a_nodes_own_list_is_kept_and_still_holds_after_its_return
            an_ignored_node_is_neither_stored_nor_restored
            where_nodes_have_to_ask_only_those_that_do_get_a_record
            narrowed_while_a_node_is_away_rules_lose_nothing_of_it
            an_ignored_node_is_not_said_to_be_gone
            while_rules_change_nothing_is_lost
            the_list_of_the_next_node_does_not_decide_about_the_last_labels_of_the_one_before;
        conflicts:
            the_record_counts_where_the_rules_say_so_and_what_was_before_is_kept
            a_record_that_counts_is_not_overwritten_by_a_node_that_left_unrestored;
        identity:
            a_machine_is_known_again_under_another_name
            what_a_label_says_is_known_again_under_another_name
            what_an_annotation_says_is_known_again_under_another_name
            all_labels_of_a_bare_node_come_back
            another_machine_of_the_same_name_gets_all_labels
            an_excluded_machine_is_neither_stored_nor_restored
            trust_labels_are_withheld_from_another_machine
            a_machine_that_claims_another_identity_gets_nothing_and_stores_nothing
            a_trust_label_is_withheld_from_another_name
            another_machine_is_another_identity
            a_contested_identity_is_not_said_to_be_gone;
        keeping:
            what_is_chosen_comes_back_and_what_a_machine_says_of_itself_does_not
            a_record_brings_back_what_it_holds_and_never_what_a_machine_says_of_itself
            unless_it_is_chosen_nothing_but_labels_is_kept;
        startup:
            a_record_that_can_not_be_read_keeps_pods_away_only_for_a_while
            where_there_is_nothing_to_restore_pods_may_come_at_once
            another_machine_waits_for_as_long_and_is_not_restored
            nodes_that_nobody_can_tell_apart_wait_for_as_long
            a_record_that_nobody_answers_for_keeps_pods_away_only_for_a_while
            labels_that_are_refused_keep_pods_away_only_for_a_while
            unless_it_is_chosen_the_taint_is_left_alone;
        history:
            the_last_versions_are_in_the_record_and_no_more
            without_history_there_is_none;
        plugin_explain:
            explain_says_who_does_what_and_why
            explain_names_the_rules_that_have_a_part_in_it
            explain_does_not_go_by_clocks_that_disagree;
        plugin_get:
            get_shows_what_is_stored_and_how_it_stands
            get_says_what_can_not_be_shown
            several_records_of_one_name_are_told_apart
            get_sorts_and_watches
            the_installation_is_found
            flags_choose_the_server_and_the_user
            explain_shows_the_difference_between_node_and_record
            history_shows_each_version_against_the_next
            who_reads_slowly_or_not_at_all_holds_up_no_list
            what_others_wrote_can_not_forge_what_is_shown;
        proxies:
            proxies_of_the_environment_and_of_the_kubeconfig_are_used;
        retaining:
            at_most_a_share_of_the_records_is_deleted_in_an_hour;
        reading:
            a_whole_node_is_read_as_it_is
            a_server_that_does_not_serve_protobuf_is_an_error_that_says_so;
        storing:
            a_node_that_can_not_be_stored_does_not_hold_up_the_others
            a_clock_that_jumps_by_a_year_deletes_nothing;
        ownership:
            with_all_but_one_gone_that_one_does_all_the_work
            a_replica_that_is_asked_to_end_hands_its_shard_over
            a_lease_has_a_position_before_its_first_renewal
            what_was_changed_and_deleted_while_the_storer_was_replaced_is_stored
            history_that_the_server_has_forgotten_is_missed_aloud
            during_an_outage_leases_are_asked_for_ever_more_rarely
            idle_replicas_make_few_requests_beside_renewals
            many_large_leases_do_not_fill_the_memory;
        leases:
            leftover_leases_hide_no_shard
            a_lease_without_its_labels_is_found_by_its_name
            slow_lease_writes_leave_no_shard_uncovered
            a_replica_whose_lease_is_refused_again_and_again_is_not_ready
            a_replica_whose_namespace_is_deleted_is_not_ready;
        seeing:
            a_daemon_is_ready_when_it_has_listed_all_and_keeps_its_lease
            what_happens_is_counted
            probes_answer_beside_half_open_requests
            changes_of_stored_labels_are_counted
            nodes_that_are_not_restored_are_told_of;
        brake:
            lists_that_lack_nodes_which_are_there_touch_no_record
            nodes_that_are_all_gone_are_departed_when_the_next_list_agrees;
        control_plane:
            killed_and_restarted_under_load_it_loses_no_label
            an_etcd_restored_with_a_later_revision_withholds_nothing
            five_thousand_nodes_deleted_at_once_come_back_with_their_labels;
        e2e:
            the_end_to_end_test_passes_and_leaves_nothing_behind;
        many:
            a_cold_start_reads_few_nodes_by_name
            a_mass_return_reads_few_objects_by_name
            what_is_changed_after_the_list_is_not_overwritten;
        absent_storer:
            a_returning_node_gets_the_labels_that_it_had_at_its_deletion
            a_node_that_has_lost_all_its_labels_returns_without
            a_restorer_that_was_killed_meanwhile_receives_the_deletion_again
            a_node_that_depends_on_its_machine_waits_for_the_final_labels
            a_node_waits_for_final_labels_no_longer_than_the_rules_allow
            two_thousand_nodes_that_were_changed_at_last_return_as_they_were;
        watching:
            a_label_changed_just_before_the_deletion_is_kept
            what_is_changed_and_replaced_at_once_is_kept
            last_labels_wait_until_they_can_be_stored
            what_was_heard_last_is_stored_before_the_end
            a_returning_node_is_restored_without_a_list
            a_watch_that_is_cut_goes_on_where_it_was
            a_watch_that_goes_silent_is_noticed
            a_watch_that_has_expired_is_followed_by_a_list
            a_last_change_survives_a_mass_deletion_while_the_storer_is_replaced
            a_last_change_survives_while_the_record_can_not_be_read;
        regressions:
            final_labels_survive_502_for_a_while
            final_labels_survive_500_for_a_while
            final_labels_survive_403_for_a_while
            a_node_that_can_not_be_stored_undoes_nothing_that_was_done_to_others
            a_write_that_arrives_late_does_not_undo_the_final_labels
            bare_incarnations_do_not_push_out_the_final_labels
            a_node_that_changes_all_the_time_is_restored
            a_position_from_the_future_does_not_make_daemons_deaf
            a_record_that_is_being_deleted_takes_no_final_labels_along;
        restoring:
            a_label_on_the_returning_node_is_not_overwritten
            a_changed_value_wins
            a_node_recreated_from_its_own_saved_yaml_is_restored
            keys_with_the_token_and_at_the_length_limits_survive
            nodes_with_the_longest_names_survive
            a_record_that_came_after_the_first_list_of_records_is_found_soon;
        excluding:
            machine_facts_are_not_stored
            what_was_stored_before_it_was_excluded_stays_and_comes_back
            what_is_excluded_is_not_waited_for;
        events:
            a_restored_node_says_which_labels_it_was_given
            a_record_that_can_not_be_read_is_told_of_with_what_to_do
            hundreds_of_returning_nodes_make_no_storm
            events_that_can_not_be_written_hold_up_nothing
            without_leave_no_events_are_written;
        faults:
            connections_that_break_lose_nothing
            refusals_and_errors_lose_nothing
            a_busy_server_is_waited_for
            stale_answers_bring_nothing_back
            lists_that_fail_lose_nothing
            watches_that_fail_lose_nothing
            a_list_that_is_never_answered_holds_up_nothing
            deletions_that_fail_are_made_again
            everything_at_random_loses_nothing
            leases_that_can_not_be_written_are_no_reason_to_hurry;
        lies:
            an_empty_list_of_nodes_is_no_departure
            a_list_without_a_third_of_the_nodes_is_no_departure
            a_node_that_a_list_lacked_is_known_again_from_the_next
            an_empty_list_of_records_changes_nothing
            lists_that_stay_stale_lose_nothing
            a_stale_record_brings_no_removed_label_back
            a_record_that_is_said_to_be_absent_is_asked_for_again
            a_node_that_is_said_to_be_absent_is_asked_for_again
            a_departure_at_the_wrong_time_loses_nothing;
        crashes:
            a_signal_ends_an_idle_daemon_in_order
            a_write_in_flight_is_finished_after_the_first_signal
            a_write_that_is_never_answered_does_not_hold_up_the_end
            a_second_signal_ends_a_daemon_at_once;
        command_line:
            a_dry_run_writes_nothing
            a_dry_run_tells_what_the_rules_do
            bad_usage_is_one_line_and_exit_code_2
            a_bad_file_at_the_start_is_one_line_and_exit_code_2
            flags_come_from_the_environment_and_the_shard_from_the_pods_name
            a_cluster_that_can_not_be_used_is_one_line_and_exit_code_1
            missing_rights_are_named
            a_stateful_set_that_can_not_be_read_is_one_line_and_exit_code_1;
        configuration:
            every_example_is_run
            what_is_kept_is_what_the_examples_say
            whose_word_counts_is_what_the_examples_say
            who_is_the_same_is_what_the_examples_say
            who_is_the_same_is_what_the_table_says
            when_and_for_how_long_is_what_the_examples_say
            recipes_for_machines_do_what_they_say
            recipes_for_instances_do_what_they_say
            the_defaults_and_the_charts_rules_are_as_documented;
        plugin_write:
            what_was_withheld_is_given_where_a_person_says_so
            an_excluded_machine_is_restored_only_where_a_person_says_so
            a_node_that_is_forgotten_returns_without
            a_node_that_has_never_been_there_gets_what_is_set_for_it
            a_machine_that_has_never_been_there_gets_what_is_set_for_it
            what_a_node_said_before_does_not_undo_what_is_set
            a_machine_returns_under_another_name
            a_machine_that_is_there_under_another_name_gets_its_labels
            a_node_that_is_there_gets_an_earlier_version_back
            a_node_that_is_away_comes_back_with_an_earlier_version
            restoring_beside_the_restorer_is_no_fight
            a_node_is_restored_at_once_and_once_more
            what_can_not_be_restored_is_refused_with_advice
            what_is_no_record_is_not_forgotten
            a_failure_of_one_node_does_not_hold_up_the_others
            when_the_api_server_fails_no_other_node_is_tried
            of_selected_nodes_those_that_can_be_restored_are
            selected_records_are_forgotten
            many_nodes_are_planned_at_the_same_time
            a_server_dry_run_shows_what_admission_refuses
            a_server_dry_run_changes_no_record
            without_rights_nothing_is_changed_and_the_right_is_named
            what_nothing_can_have_is_bad_usage
            a_rename_that_broke_off_is_finished_by_another
            where_there_is_nothing_to_go_back_to_it_is_said
            nothing_is_changed_before_the_answer_is_yes
            what_has_changed_before_the_answer_is_shown_again
            a_write_of_unclear_effect_is_looked_for_and_made_once
            a_rename_that_fails_in_the_middle_leaves_both
            what_only_looks_as_if_it_was_renamed_is_kept
            a_node_that_would_be_given_nothing_is_told_of
            who_says_no_in_the_middle_is_told_what_was_done
            all_that_is_stored_can_be_given_over_what_a_node_has
            what_a_version_could_not_tell_of_is_left_alone
            what_a_node_said_last_is_waited_for_before_it_is_set
            a_node_is_set_while_others_come_and_go
            without_a_storer_nothing_is_set_nor_rolled_back_nor_renamed
            a_record_that_changes_before_it_is_written_keeps_that_change
            a_record_that_is_made_anew_before_it_is_deleted_is_another
            a_node_that_changes_before_it_is_patched_keeps_that_change
            what_changes_while_it_is_renamed_is_not_lost
            ctrl_c_in_the_middle_loses_nothing
            the_kubeconfig_may_say_as_whom;
        plugin_status:
            where_all_is_well_it_says_so
            what_is_not_well_comes_first_and_is_the_exit_code
            work_in_progress_is_looked_at_again
            a_right_that_is_missing_is_named_and_the_rest_is_shown
            nodes_are_judged_by_the_rules
            an_excluded_machine_is_not_overdue_but_needs_a_person
            withheld_items_are_shown_until_the_node_has_them_or_they_are_dropped
            by_unknown_rules_no_node_is_judged
            on_a_terminal_it_is_in_colours
            bad_input_is_one_line;
        plugin_port:
            labels_of_nodes_that_do_not_exist_yet_can_be_prepared
            nodes_that_are_there_are_left_alone_unless_they_are_included
            what_a_node_would_not_be_given_is_not_imported_over_its_record
            what_is_exported_is_imported_elsewhere_as_it_was
            an_import_with_anything_wrong_changes_nothing
            an_interrupted_import_says_how_far_it_came_and_goes_on
            an_import_survives_bad_weather
            an_import_that_loses_the_server_goes_on_later
            what_changes_meanwhile_is_not_overwritten
            somebody_elses_config_map_in_the_way_is_found_before_anything_is_written
            a_node_that_is_there_under_another_name_is_there
            an_import_that_nobody_listens_to_is_finished
            who_imports_from_stdin_is_asked_at_the_terminal
            on_a_terminal_a_bar_shows_how_far_it_is
            a_second_ctrl_c_ends_an_import_at_once
            a_record_that_changes_before_it_is_replaced_is_left_alone
            a_dry_run_on_the_server_shows_refusals_and_changes_nothing
            an_interrupted_export_leaves_nothing_behind
            a_file_is_replaced_by_a_complete_export_with_records_alone
            entries_that_are_no_labels_are_exported_and_refused_by_an_import;
        plugin_check:
            each_fault_is_found_with_the_command_that_mends_it
            what_may_not_be_looked_at_is_said_to_be_unknown
            where_nothing_is_installed_that_is_said
            kubectl_completes;
        monitoring:
            every_query_finds_what_the_daemons_tell_of
            the_documentation_lists_exactly_what_the_daemons_tell_of;
    }
    trials! {
        control_planes.whole, [Mode::Watching];
        deploy:
            every_permission_is_used_and_none_is_missing
            the_pods_pass_admission_and_know_their_place
            prometheus_and_grafana_are_accepted_and_find_what_they_are_to_show
            all_values_together_are_accepted
            upgrade_and_uninstall_keep_the_records
            only_the_storer_and_those_who_may_write_records
            a_namespace_with_records_can_be_deleted
            a_kubelet_can_not_write_the_annotations_of_label_storage
            each_daemon_writes_its_own_leases
            the_accounts_are_for_their_own_pods
            a_stolen_token_of_the_storer_writes_records_alone
            the_restorer_adds_labels_and_its_marker_alone
            the_restorer_may_do_what_the_rules_ask_for_and_no_more
            what_the_rules_ask_for_passes_the_policies
            the_daemons_have_a_priority_level_of_their_own
            accounts_can_have_any_name
            helm_test_runs_daemons_that_write_nothing
            names_can_be_looked_up
            kubectl_apply_installs_everything_or_nothing
            objects_of_others_are_left_alone
            two_installations_have_no_object_in_common
            helm_refuses_the_rules_that_the_storer_refuses
            versions_that_disagree_are_refused
            a_release_is_the_same_to_the_byte
            what_krew_would_refuse_is_refused
            an_image_is_the_same_to_the_byte;
    }
    trials! {
        control_planes.bare, [Mode::Polling];
        restoring:
            records_made_since_the_last_audit_are_found;
        absent_storer:
            without_a_watch_a_returning_node_gets_the_labels_of_the_last_list;
    }
    trials
}

/// The way in which the daemons of a scenario find changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// As they happen.
    Watching,
    /// With the next list.
    Polling,
}

impl Mode {
    fn prefix(self) -> &'static str {
        match self {
            Self::Watching => "",
            Self::Polling => "polling::",
        }
    }
}
