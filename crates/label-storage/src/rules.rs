//! The rules that operators choose.
//!
//! The storer alone decides which labels are stored. A restorer that left a label out would still mark the Node, and the
//! storer would treat the label as removed. A rule applies to later writes. Entries that a record already has
//! stay there and are restored, so rules may change, and may differ between replicas during a roll-out.

pub mod builtin_exclusions;
pub mod conflicts;
mod display;
pub mod file;
pub mod identity;
pub mod patterns;
pub mod selector;
pub mod units;

use std::time::Duration;

pub use self::conflicts::{Conflicts, Winner};
pub use self::file::Refused;
pub use self::identity::{IdentityBy, OtherMachine};
pub use self::patterns::{Patterns, Selection};
pub use self::selector::Selector;
pub use self::units::Percentage;

/// An invalid value of a rule. The text has the valid form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRule(String);

/// The operator's rules. By default all labels are kept, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The labels that are stored, by key.
    pub labels: Selection,
    /// The annotations that are stored, by key.
    pub annotations: Selection,
    /// The taints that are stored, by key.
    pub taints: Selection,
    /// True if the cordon is stored.
    pub cordon: bool,
    /// The Nodes for which a record is created. A record that exists follows its Node in any case.
    pub selector: Selector,
    /// True if a record is created only for Nodes with the annotation [`KEEP`](crate::node::KEEP).
    pub opt_in: bool,
    /// Decides which value wins where a returning Node and its record differ.
    pub conflicts: Conflicts,
    /// The property by which a returning Node is recognised.
    pub identity: IdentityBy,
    /// The items that another machine than the record's gets.
    pub other_machine: OtherMachine,
    /// The longest time that the startup taint stays on a Node; `None` if the restorer does not remove it.
    pub startup_taint: Option<Duration>,
    /// The longest time for which a returning Node waits for final labels that are not stored yet.
    pub patience: Duration,
    /// How long the record of a deleted Node is kept; [`Duration::MAX`] means for ever.
    pub retention: Duration,
    /// The share of all records that may be deleted in an hour.
    pub cleanup_share: Percentage,
    /// The number of earlier versions of the labels that a record keeps.
    pub history: usize,
}

impl Rules {
    /// The default for `startupTaint.atMost`.
    pub const STARTUP_TAINT: Duration = Duration::from_secs(2 * 60);
    /// The highest number of earlier versions: all of them have to fit into one ConfigMap.
    pub const MOST_HISTORY: usize = 20;

    /// True if an annotation of this key is stored because the rules select it.
    pub fn keeps_annotation(&self, key: &str) -> bool {
        self.annotations.selects(key) && !builtin_exclusions::is_machine_annotation(key)
    }

    /// True if a decision depends on an annotation of this key.
    pub fn wants_annotation(&self, key: &str) -> bool {
        key.starts_with(builtin_exclusions::OURS)
            || self.keeps_annotation(key)
            || matches!(&self.identity, IdentityBy::Annotation(its) if its == key)
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            labels: Selection::all(),
            annotations: Selection::none(),
            taints: Selection::none(),
            cordon: false,
            selector: Selector::default(),
            opt_in: false,
            conflicts: Conflicts::default(),
            identity: IdentityBy::default(),
            other_machine: OtherMachine::default(),
            startup_taint: None,
            patience: Duration::from_secs(2 * 60),
            retention: Duration::from_secs(30 * 24 * 60 * 60),
            cleanup_share: Percentage::default(),
            history: 3,
        }
    }
}

#[cfg(test)]
mod tests;
