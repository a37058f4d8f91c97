//! Items: labels, and everything else that can be kept. Each has a name. Only names of labels have no colon, so all items
//! fit into one map and one record.
//!
//! | item | name | value |
//! |---|---|---|
//! | label | `example.com/pool` | its value |
//! | annotation | `annotation:example.com/owner` | its value |
//! | taint | `taint:NoSchedule:example.com/dedicated` | its value, or empty |
//! | cordon | `cordon:` | `true` |

use std::fmt;

use crate::{Node, label};

/// The effects that a taint can have.
pub const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Labels with these prefixes, or prefixes that end so, can't be changed by a kubelet. Workloads trust a Node because of them.
const RESTRICTED: [&str; 2] = ["kubernetes.io", "k8s.io"];
/// Except those with these prefixes.
const KUBELET_PREFIXES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// And except these, which describe the machine.
pub(crate) const MACHINE_FACT_KEYS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// The limit for all annotations of one object, keys and values together.
pub const MAX_ANNOTATIONS: usize = 256 << 10;

/// A label, or something else that can be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// The label of this key.
    Label(&'a str),
    /// The annotation of this key.
    Annotation(&'a str),
    /// A taint. A Node has at most one of each effect and key.
    Taint {
        /// One of [`EFFECTS`].
        effect: &'a str,
        /// A key like those of labels.
        key: &'a str,
    },
    /// `spec.unschedulable`.
    Cordon,
}

impl<'a> Item<'a> {
    /// The item of this name; `None` if it is not a valid name.
    pub fn parse(name: &'a str) -> Option<Self> {
        let mut parts = name.splitn(3, ':');
        match (parts.next()?, parts.next(), parts.next()) {
            (key, None, _) if label::is_key(key) => Some(Self::Label(key)),
            ("annotation", Some(key), None) if label::is_annotation_key(key) => Some(Self::Annotation(key)),
            ("taint", Some(effect), Some(key)) if EFFECTS.contains(&effect) && label::is_key(key) => {
                Some(Self::Taint { effect, key })
            }
            ("cordon", Some(""), None) => Some(Self::Cordon),
            _ => None,
        }
    }

    /// True if the API server accepts this value, and it can be written back as it was.
    pub fn takes(self, value: &str) -> bool {
        match self {
            Self::Label(_) | Self::Taint { .. } => label::is_value(value),
            Self::Annotation(key) => key.len() + value.len() <= MAX_ANNOTATIONS && label::is_intact(value),
            Self::Cordon => value == "true",
        }
    }

    /// True if workloads may trust a Node because of it: the admission plugin NodeRestriction keeps kubelets from changing such a label.
    /// The rules may withhold it from another machine or another name.
    pub fn is_trust(self) -> bool {
        let Self::Label(key) = self else { return false };
        let Some((prefix, _)) = key.split_once('/') else { return false };
        let ends_with = |end: &&str| {
            prefix.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('.'))
        };
        RESTRICTED.iter().any(ends_with)
            && !KUBELET_PREFIXES.iter().any(ends_with)
            && !MACHINE_FACT_KEYS.contains(&key)
    }
}

impl fmt::Display for Item<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(key) => f.write_str(key),
            Self::Annotation(key) => write!(f, "annotation:{key}"),
            Self::Taint { effect, key } => write!(f, "taint:{effect}:{key}"),
            Self::Cordon => f.write_str("cordon:"),
        }
    }
}

impl Node {
    /// The value of this item on this Node.
    pub fn value_of(&self, item: Item<'_>) -> Option<&str> {
        match item {
            Item::Label(key) => self.labels.get(key).map(String::as_str),
            Item::Annotation(key) => self.extras.annotations.get(key).map(String::as_str),
            Item::Taint { effect, key } => {
                let mut taints = self.extras.taints.iter();
                let found = taints.find(|taint| taint.effect == effect && taint.key == key);
                found.map(|taint| taint.value.as_str())
            }
            Item::Cordon => self.extras.is_unschedulable.then_some("true"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_what_it_says() {
        for (name, kept) in [
            ("example.com/pool", Item::Label("example.com/pool")),
            ("annotation", Item::Label("annotation")),
            ("cordon", Item::Label("cordon")),
            ("annotation:example.com/owner", Item::Annotation("example.com/owner")),
            ("annotation:Example.com/owner", Item::Annotation("Example.com/owner")),
            ("taint:NoExecute:a/b", Item::Taint { effect: "NoExecute", key: "a/b" }),
            ("cordon:", Item::Cordon),
        ] {
            assert_eq!(Item::parse(name), Some(kept), "{name}");
            assert_eq!(kept.to_string(), name);
        }
        for name in [
            "",
            ":",
            "label:a",
            "annotation:",
            "annotation:a b",
            "taint:a",
            "taint:Never:a",
            "taint:NoExecute:",
            "cordon:x",
            "history:7",
        ] {
            assert_eq!(Item::parse(name), None, "{name}");
        }
    }

    #[test]
    fn what_the_api_server_would_refuse_is_no_value() {
        let too_long = "x".repeat(MAX_ANNOTATIONS);
        let takes = |name: &str, value: &str| Item::parse(name).expect("a name").takes(value);
        assert!(takes("a", "b") && takes("a", "") && !takes("a", "b c"));
        assert!(takes("taint:NoSchedule:a", "") && !takes("taint:NoSchedule:a", "b c"));
        assert!(takes("annotation:a", "any text\n{}") && !takes("annotation:a", &too_long));
        assert!(!takes("annotation:a", "gold\u{fffd}"), "it was not UTF-8");
        assert!(takes("cordon:", "true") && !takes("cordon:", "false"));
    }

    #[test]
    fn only_labels_that_kubelets_can_not_set_are_trusted() {
        let is_trust = |name| Item::parse(name).expect("a name").is_trust();
        for name in [
            "node-restriction.kubernetes.io/tier",
            "example.com.node-restriction.kubernetes.io/fips",
            "node-role.kubernetes.io/control-plane",
            "kubernetes.io/tier",
            "k8s.io/tier",
            "my.k8s.io/tier",
            "my-node.kubernetes.io/tier",
            "topology.kubernetes.io/rack",
        ] {
            assert!(is_trust(name), "{name}");
        }
        for name in [
            "tier",
            "node-restriction.kubernetes.io",
            "example.com/tier",
            "mykubernetes.io/tier",
            "node.kubernetes.io/instance-type",
            "my.node.kubernetes.io/tier",
            "kubelet.kubernetes.io/tier",
            "kubernetes.io/hostname",
            "topology.kubernetes.io/zone",
            "node-restriction.kubernetes.io.example.com/tier",
            "annotation:node-restriction.kubernetes.io/tier",
            "taint:NoSchedule:node-restriction.kubernetes.io/tier",
        ] {
            assert!(!is_trust(name), "{name}");
        }
    }
}
