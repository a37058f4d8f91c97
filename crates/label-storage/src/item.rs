//! The names of what is kept. A label stands under its key. What else may be kept stands under a name that no label has, since no
//! label key has a colon; so all of it goes through the same protocol, in one map and in one record.
//!
//! | what | its name | its value |
//! |---|---|---|
//! | a label | `example.com/pool` | its own |
//! | an annotation | `annotation:example.com/owner` | its own |
//! | a taint | `taint:NoSchedule:example.com/dedicated` | its own, or empty |
//! | that it is cordoned | `cordon:` | `true` |

use std::fmt;

use crate::node::Taint;
use crate::{Node, label};

/// What a taint may do to pods.
pub const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The labels that say that a Node can be trusted, by what stands before the slash, or at the end of it: a kubelet can't set them
/// itself.
const TRUST: &str = "node-restriction.kubernetes.io";

/// The most that one Node's annotations may have, keys and values together.
pub const MAX_ANNOTATIONS: usize = 256 << 10;

const ANNOTATION: &str = "annotation";
const TAINT: &str = "taint";
const CORDON: &str = "cordon";

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// A label of this key.
    Label(&'a str),
    /// An annotation of this key.
    Annotation(&'a str),
    /// A taint. A Node has one at most of each effect and key.
    Taint {
        /// What it does.
        effect: &'a str,
        /// Its key.
        key: &'a str,
    },
    /// That no pods are to come: `spec.unschedulable`.
    Cordon,
}

impl<'a> Item<'a> {
    /// What a name stands for, if anything.
    pub fn parse(name: &'a str) -> Option<Self> {
        let Some((kind, rest)) = name.split_once(':') else {
            return label::is_key(name).then_some(Self::Label(name));
        };
        match (kind, rest) {
            (ANNOTATION, key) if label::is_annotation_key(key) => Some(Self::Annotation(key)),
            (TAINT, rest) => {
                let (effect, key) = rest.split_once(':')?;
                let is_taint = EFFECTS.contains(&effect) && label::is_key(key);
                is_taint.then_some(Self::Taint { effect, key })
            }
            (CORDON, "") => Some(Self::Cordon),
            _ => None,
        }
    }

    /// Whether the API server takes this value for it.
    pub fn takes(self, value: &str) -> bool {
        match self {
            Self::Label(_) | Self::Taint { .. } => label::is_value(value),
            Self::Annotation(key) => key.len() + value.len() <= MAX_ANNOTATIONS,
            Self::Cordon => value == "true",
        }
    }

    /// Whether whoever trusts the Node may do so because of it: then another machine of the same name is not to have it.
    pub fn is_trust(self) -> bool {
        // As the API server tells them: `example.com.node-restriction.kubernetes.io/fips` is one, too.
        let is_trust = |prefix: &str| {
            prefix.strip_suffix(TRUST).is_some_and(|before| before.is_empty() || before.ends_with('.'))
        };
        matches!(self, Self::Label(key) if key.split_once('/').is_some_and(|(prefix, _)| is_trust(prefix)))
    }

    /// Whether it is no metadata, so that more has to be known of a Node to put it there.
    pub fn is_in_spec(self) -> bool {
        matches!(self, Self::Taint { .. } | Self::Cordon)
    }
}

impl fmt::Display for Item<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(key) => f.write_str(key),
            Self::Annotation(key) => write!(f, "{ANNOTATION}:{key}"),
            Self::Taint { effect, key } => write!(f, "{TAINT}:{effect}:{key}"),
            Self::Cordon => write!(f, "{CORDON}:"),
        }
    }
}

impl Node {
    /// The value of something that may be kept, as this Node has it.
    pub fn value_of(&self, kept: Item<'_>) -> Option<&str> {
        match kept {
            Item::Label(key) => self.labels.get(key).map(String::as_str),
            Item::Annotation(key) => self.extras.annotations.get(key).map(String::as_str),
            Item::Taint { effect, key } => {
                let same = |taint: &&Taint| taint.effect == effect && taint.key == key;
                self.extras.taints.iter().find(same).map(|taint| taint.value.as_str())
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
        assert!(takes("cordon:", "true") && !takes("cordon:", "false"));
    }

    #[test]
    fn only_labels_that_kubelets_can_not_set_are_trusted() {
        let is_trust = |name| Item::parse(name).expect("a name").is_trust();
        for name in ["node-restriction.kubernetes.io/tier", "example.com.node-restriction.kubernetes.io/fips"]
        {
            assert!(is_trust(name), "{name}");
        }
        for name in [
            "tier",
            "node-restriction.kubernetes.io",
            "kubernetes.io/tier",
            "my-node-restriction.kubernetes.io/tier",
            "node-restriction.kubernetes.io.example.com/tier",
            "annotation:node-restriction.kubernetes.io/tier",
            "taint:NoSchedule:node-restriction.kubernetes.io/tier",
        ] {
            assert!(!is_trust(name), "{name}");
        }
    }
}
