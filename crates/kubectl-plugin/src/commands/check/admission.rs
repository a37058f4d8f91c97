//! The admission policies: there, and in force.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::{Api, ResourceExt};

use super::{Checked, Finding, Look, sets, why};

/// What each is for, by how its name ends.
const POLICIES: [(&str, &str); 2] = [
    ("nodes", "the restorer's account may change anything about any Node"),
    ("records", "whoever may write ConfigMaps here can label any Node that returns"),
];

/// Looks at all of them, and says whether writing records takes a right of its own, where that can be told.
pub(super) async fn check(look: &Look, sets: &sets::Sets) -> (Option<bool>, Checked) {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(look.client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(look.client.clone());
    let bindings = bindings.list(&Default::default()).await.map(|list| list.items);
    let mut findings = Vec::new();
    let mut guards_records = None;
    for (end, without) in POLICIES {
        let name = format!("{}-{end}", look.name);
        let policy = match policies.get_opt(&name).await {
            Ok(policy) => policy,
            Err(error) => {
                findings.push(Finding::unknown(&format!("whether the policy {name} is there"), why(&error)));
                continue;
            }
        };
        let bound = match (&policy, &bindings) {
            (None, _) => Some(false),
            (Some(_), Ok(bindings)) => Some(bindings.iter().any(|binding| binds(binding, &name))),
            (Some(_), Err(_)) => None,
        };
        if end == "records" {
            guards_records = bound;
        }
        let install = look.install(sets);
        match (policy, bound, &bindings) {
            (None, ..) => {
                let message = format!("there is no admission policy {name}: {without}");
                findings.push(Finding::warning(message).mend(install));
            }
            (Some(_), _, Err(error)) => {
                findings.push(Finding::unknown(&format!("whether the policy {name} is bound"), why(error)));
            }
            (Some(_), Some(false), Ok(bindings)) => findings.push(unbound(&name, without, bindings, install)),
            (Some(policy), ..) => {
                let failure = policy.spec.as_ref().and_then(|spec| spec.failure_policy.as_deref());
                if failure == Some("Ignore") {
                    let message =
                        format!("the policy {name} lets pass what it can't judge (failurePolicy: Ignore)");
                    findings.push(Finding::warning(message).mend(install));
                }
            }
        }
    }
    (guards_records, Checked::new("admission", "two policies, both in force", findings))
}

/// Whether a binding puts this policy into force.
fn binds(binding: &ValidatingAdmissionPolicyBinding, policy: &str) -> bool {
    let spec = &binding.spec;
    let denies = || spec.validation_actions.iter().any(|action| action == "Deny");
    spec.policy_name == policy && denies()
}

/// What to say of a policy that refuses nothing.
fn unbound(
    name: &str,
    without: &str,
    bindings: &[ValidatingAdmissionPolicyBinding],
    install: String,
) -> Finding {
    match bindings.iter().find(|binding| binding.spec.policy_name == name) {
        Some(binding) => {
            let (binding, patch) = (binding.name_any(), r#"{"spec":{"validationActions":["Deny"]}}"#);
            Finding::error(format!(
                "the policy {name} refuses nothing (binding {binding} lacks Deny): {without}"
            ))
            .mend(format!(
                "kubectl patch validatingadmissionpolicybinding {binding} --type merge --patch '{patch}'"
            ))
        }
        None => Finding::error(format!("the policy {name} is bound by nothing: {without}")).mend(install),
    }
}
