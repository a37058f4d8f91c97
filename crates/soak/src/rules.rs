//! The rules of a soak, and what people do to Nodes so that they matter.

use std::time::Duration;

use label_storage::Rules;
use label_storage::kept::Kept;
use label_storage::rules::{IdentityBy, Trust};

/// Label keys: ordinary ones, and some that a record has to write in another way.
const LABELS: [&str; 6] =
    ["pool", "example.com/rack", "a-SLASH-b", "a/b", "topology.example.com/zone", "tier"];
const ANNOTATIONS: [&str; 3] =
    ["annotation:example.com/owner", "annotation:example.com/last-seen", "annotation:note"];
/// Two have one key: they differ by their effect.
const TAINTS: [&str; 4] = [
    "taint:NoSchedule:dedicated",
    "taint:NoExecute:dedicated",
    "taint:NoSchedule:example.com/draining",
    "taint:PreferNoSchedule:example.com/gpu",
];
const CORDON: &str = "cordon:";

/// A retention that no soak outlasts.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);

/// The names of what people set and remove (see [`label_storage::kept`]): all labels, and all of each other kind of which the rules keep
/// something.
pub(crate) fn names(rules: &Rules) -> Vec<&'static str> {
    let mut names = LABELS.to_vec();
    if !rules.annotations.selects_none() {
        names.extend(ANNOTATIONS);
    }
    if !rules.taints.selects_none() {
        names.extend(TAINTS);
    }
    names.extend(rules.cordon.then_some(CORDON));
    names
}

/// Refuses rules that the oracle can't judge.
pub fn judgeable(rules: &Rules) -> anyhow::Result<()> {
    let default = Rules::default();
    let is_changed = match &rules.identity {
        IdentityBy::Label(key) => LABELS.contains(&key.as_str()),
        IdentityBy::Annotation(key) => ANNOTATIONS.contains(&Kept::Annotation(key).to_string().as_str()),
        IdentityBy::Name | IdentityBy::ProviderId | IdentityBy::SystemUuid => false,
    };
    let unjudged = [
        ("an identity that people change", is_changed),
        ("nodes.selector", rules.selector != default.selector),
        ("nodes.optIn", rules.opt_in),
        ("identity.fence", rules.fence),
        ("identity.trustLabels", rules.trust != Trust::default()),
        ("a retention below 1d", rules.retention < LONG),
    ];
    match unjudged.into_iter().find(|(_, is_there)| *is_there) {
        Some((rule, _)) => {
            anyhow::bail!("the soak can't judge what comes of {rule}: remove it from the rules")
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use label_storage::rules::Selection;

    use super::*;

    #[test]
    fn what_is_never_kept_is_not_set() {
        assert_eq!(names(&Rules::default()), LABELS);
        let all = Rules {
            annotations: Selection::all(),
            taints: Selection::all(),
            cordon: true,
            ..Rules::default()
        };
        assert_eq!(names(&all).len(), 14);
        assert!(names(&all).iter().all(|name| all.keeps(name, None)));
    }

    #[test]
    fn rules_that_can_not_be_judged_are_refused() {
        for text in [
            "nodes: {selector: a}",
            "nodes: {optIn: true}",
            "identity: {by: 'label:pool'}",
            "identity: {by: 'annotation:note'}",
            "identity: {fence: true}",
            "identity: {trustLabels: name}",
            "retention: 1h",
        ] {
            judgeable(&Rules::from_yaml(text).expect("rules")).expect_err(text);
        }
    }
}
