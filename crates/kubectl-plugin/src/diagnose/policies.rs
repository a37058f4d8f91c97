//! The admission policies: that they exist and are in force.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::{Api, ResourceExt};
use label_storage_runtime::call::in_one_line;

use super::Finding;
use super::installation::Installation;
use crate::cluster::Cluster;

/// The ends of their names, and the harm without each.
const POLICIES: [(&str, &str); 2] = [
    ("nodes", "the account of the restorer may change everything on every node"),
    ("records", "everyone who may write ConfigMaps here can label any node that returns"),
];

/// The policies' names in the chart begin like this.
pub(crate) fn prefix(namespace: &str) -> String {
    match namespace.contains("label-storage") {
        true => namespace.to_owned(),
        false => format!("label-storage-{namespace}"),
    }
}

/// The problems, and the number of policies in force.
pub(crate) async fn findings(cluster: &Cluster, installation: &Installation) -> (Vec<Finding>, usize) {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(cluster.client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(cluster.client.clone());
    let all = (Default::default(), Default::default());
    let (policies, bindings) = match tokio::join!(policies.list(&all.0), bindings.list(&all.1)) {
        (Ok(policies), Ok(bindings)) => (policies.items, bindings.items),
        (Err(error), _) | (_, Err(error)) => {
            return (vec![Finding::unknown("policies-unknown", in_one_line(&error))], 0);
        }
    };
    let fix = installation.upgrade(&cluster.hints, &cluster.namespace);
    let (mut findings, mut in_force) = (Vec::new(), 0);
    for (end, harm) in POLICIES {
        let name = format!("{}-{end}", prefix(&cluster.namespace));
        let Some(policy) = policies.iter().find(|policy| policy.name_any() == name) else {
            let message = format!("there is no admission policy {name}: {harm}");
            findings.push(Finding::warning("policy-missing", message).fix(fix.clone()));
            continue;
        };
        let bound: Vec<_> = bindings.iter().filter(|binding| binding.spec.policy_name == name).collect();
        let mut actions = bound.iter().flat_map(|binding| &binding.spec.validation_actions);
        let denies = actions.any(|action| action == "Deny");
        let failure = policy.spec.as_ref().and_then(|spec| spec.failure_policy.as_deref());
        let problem = match bound.first() {
            None => Some(Finding::error(
                "policy-not-bound",
                format!("no binding puts the policy {name} in force: {harm}"),
            )),
            Some(first) if !denies => Some(Finding::error(
                "policy-not-denying",
                format!("the binding {} of the policy {name} does not deny: {harm}", first.name_any()),
            )),
            Some(_) if failure == Some("Ignore") => Some(Finding::warning(
                "policy-ignores-failures",
                format!("the policy {name} lets requests pass that it can't judge (failurePolicy: Ignore)"),
            )),
            Some(_) => None,
        };
        in_force += usize::from(problem.is_none());
        findings.extend(problem.map(|problem| problem.fix(fix.clone())));
    }
    (findings, in_force)
}
