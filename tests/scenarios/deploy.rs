//! The manifests in deploy/ do what they say.
//!
//! - [`manifests`]: the committed file and the chart, and applying them as `kubectl` does.
//! - [`accounts`]: what the daemons' accounts may do is what the daemons do.
//! - [`attacks`]: attempts that the installation refuses.
//! - [`pods`]: what becomes of the StatefulSets.
//! - [`policies`]: what the admission policies refuse, and what they let pass.
//! - [`local`]: what deploy/local/local.sh brings up beside them.
//! - [`neighbours`]: other installations, and other people's objects.
//! - [`values`]: what Helm refuses.
//! - [`rules`]: what the rules have the restorer do, the API server lets it.
//! - [`hooks`]: `helm test`.
//! - [`release`]: the script deploy/release.sh.
//! - [`chart`]: installing, upgrading and uninstalling with the real helm.

mod accounts;
mod attacks;
mod chart;
mod hooks;
mod local;
pub mod manifests;
mod neighbours;
mod pods;
mod policies;
mod release;
mod rules;
mod values;

pub use accounts::{
    every_permission_is_used_and_none_is_missing, the_daemons_have_a_priority_level_of_their_own,
};
pub use attacks::{
    a_kubelet_can_not_write_the_annotations_of_label_storage,
    a_stolen_token_of_the_storer_writes_records_alone, accounts_can_have_any_name,
    each_daemon_writes_its_own_leases, the_accounts_are_for_their_own_pods,
};
pub use chart::{
    all_values_together_are_accepted, kubectl_apply_installs_everything_or_nothing, names_can_be_looked_up,
    upgrade_and_uninstall_keep_the_records,
};
pub use hooks::helm_test_runs_daemons_that_write_nothing;
pub use local::prometheus_and_grafana_are_accepted_and_find_what_they_are_to_show;
pub use neighbours::{objects_of_others_are_left_alone, two_installations_have_no_object_in_common};
pub use pods::the_pods_pass_admission_and_know_their_place;
pub use policies::{
    a_namespace_with_records_can_be_deleted, only_the_storer_and_those_who_may_write_records,
    the_restorer_adds_labels_and_its_marker_alone, the_restorer_may_do_what_the_rules_ask_for_and_no_more,
};
pub use release::{
    a_release_is_the_same_to_the_byte, an_image_is_the_same_to_the_byte, versions_that_disagree_are_refused,
    what_krew_would_refuse_is_refused,
};
pub use rules::what_the_rules_ask_for_passes_the_policies;
pub use values::helm_refuses_the_rules_that_the_storer_refuses;
