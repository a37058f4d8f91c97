//! Checks that the admission policies exist and are in force.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::{Api, ResourceExt};
use label_storage_runtime::call::in_one_line;

use super::Finding;
use super::Severity::{Error, Warning};
use super::installation::Installation;
use crate::cluster::Cluster;

/// The suffixes of their names, and the risk without each.
const POLICIES: [(&str, &str); 5] = [
    ("accounts", "everyone who may create pods in this namespace can use the accounts of the daemons"),
    ("kubelets", "every kubelet can delete the stored labels of its node"),
    ("leases", "everyone who may write leases in this namespace can stop the daemons"),
    ("nodes", "the account of the restorer can change everything on every node"),
    ("records", "everyone who may write ConfigMaps in this namespace can label any re-created node"),
];

/// The problems, and the number of policies in force.
pub(crate) async fn findings(cluster: &Cluster, installation: &Installation) -> (Vec<Finding>, usize) {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(cluster.client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(cluster.client.clone());
    let all = Default::default();
    let (policies, bindings) = match tokio::join!(policies.list(&all), bindings.list(&all)) {
        (Ok(policies), Ok(bindings)) => (policies.items, bindings.items),
        (Err(error), _) | (_, Err(error)) => {
            return (vec![Finding::unknown("policies-unknown", in_one_line(&error))], 0);
        }
    };
    let mut findings = Vec::new();
    for (end, harm) in POLICIES {
        let name = format!("{}-{end}", installation.cluster_name(&cluster.namespace));
        let bound: Vec<_> = bindings.iter().filter(|binding| binding.spec.policy_name == name).collect();
        let mut actions = bound.iter().flat_map(|binding| &binding.spec.validation_actions);
        let failure_policy = |policy: &ValidatingAdmissionPolicy| policy.spec.clone()?.failure_policy;
        let (severity, reason, message) = match policies.iter().find(|policy| policy.name_any() == name) {
            None => (Warning, "policy-missing", format!("there is no admission policy {name}: {harm}")),
            Some(_) if bound.is_empty() => {
                (Error, "policy-not-bound", format!("no binding puts the policy {name} in force: {harm}"))
            }
            Some(_) if !actions.any(|action| action == "Deny") => (
                Error,
                "policy-not-denying",
                format!("the binding of the policy {name} does not deny: {harm}"),
            ),
            Some(policy) if failure_policy(policy).as_deref() == Some("Ignore") => {
                let passes = "allows requests that it can't evaluate (failurePolicy: Ignore)";
                (Warning, "policy-ignores-failures", format!("the policy {name} {passes}"))
            }
            Some(_) => continue,
        };
        findings.push(Finding::new(severity, reason, message).fix(installation.upgrade(cluster)));
    }
    let in_force = POLICIES.len() - findings.len();
    (findings, in_force)
}
