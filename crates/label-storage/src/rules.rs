//! What operators choose: which labels, annotations and taints of which Nodes are kept, whose word counts where Node and record
//! disagree, by what a Node is known again, and for how long a record is kept.
//!
//! - [`patterns`]: keys by name, by pattern and in sets; [`selector`]: Nodes by their labels.
//! - [`conflicts`]: whose word counts; [`identity`]: by what a Node is known again.
//! - [`builtin_exclusions`]: what is not kept, whatever is chosen.
//! - [`mod@file`]: the rules file; [`units`]: durations and percentages in it.
//!
//! What is stored is the storer's decision alone: a restorer that left a label out would mark the Node all the same, and the
//! storer would take the label for removed. A rule says what is stored from now on, and nothing about what was stored before: what
//! a record holds that its storer would not store is left alone in it, and comes back. So rules may change, and differ between
//! replicas while they are rolled out, and nothing that was stored is lost by it.

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
pub use self::identity::{IdentityBy, Trust};
pub use self::patterns::{Patterns, Selection};
pub use self::selector::Selector;
pub use self::units::Percentage;

/// What operators choose. By default all labels are kept, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Which labels are stored, by key.
    pub labels: Selection,
    /// Which annotations are stored, by key.
    pub annotations: Selection,
    /// Which taints are stored, by key.
    pub taints: Selection,
    /// Whether it is stored that a Node is cordoned.
    pub cordon: bool,
    /// For which Nodes a record is made. One that exists follows its Node, whatever this says.
    pub selector: Selector,
    /// Whether a record is made only for Nodes that say themselves what is to be kept.
    pub opt_in: bool,
    /// Whose word counts where a Node that returned has something already, with another value than its record.
    pub conflicts: Conflicts,
    /// By what a Node that returns is known again.
    pub identity: IdentityBy,
    /// Whether nothing comes back to another machine than the one that it was read from.
    pub fence: bool,
    /// What a returning machine must be for security labels to come back.
    pub trust: Trust,
    /// Whether Nodes that registered with the startup taint lose it when their labels are back, and after what time at the latest.
    pub startup_taint: Option<Duration>,
    /// How long the record of a Node that is gone is kept; [`Duration::MAX`] is for ever.
    pub retention: Duration,
    /// What share of all records may be deleted in an hour.
    pub cleanup_share: Percentage,
    /// How many earlier states of a Node its record remembers.
    pub history: usize,
}

impl Rules {
    /// How long the record of a Node that is gone is kept, unless it is said.
    pub const RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

    /// After what time a startup taint comes off, unless it is said.
    pub const STARTUP_TAINT: Duration = Duration::from_secs(2 * 60);

    /// How many earlier states a record remembers, unless it is said.
    pub const HISTORY: usize = 3;

    /// How many it can be told to remember: all of them have to fit into one ConfigMap.
    pub const MOST_HISTORY: usize = 20;

    /// Whether a label of this key is stored.
    pub fn keeps_label(&self, key: &str) -> bool {
        self.labels.selects(key)
    }

    /// Whether an annotation of this key is stored because it was chosen.
    pub fn keeps_annotation(&self, key: &str) -> bool {
        self.annotations.selects(key) && !builtin_exclusions::is_machine_annotation(key)
    }

    /// Whether a taint of this key is stored.
    pub fn keeps_taint(&self, key: &str) -> bool {
        self.taints.selects(key) && !builtin_exclusions::is_lifecycle_taint(key)
    }

    /// Whether all labels are stored: then nobody need ask for each.
    pub fn keeps_all_labels(&self) -> bool {
        self.labels.selects_all()
    }

    /// Whether a decision takes an annotation of this key: ours, one that is stored, or what the Node is known by.
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
            fence: false,
            trust: Trust::default(),
            startup_taint: None,
            retention: Self::RETENTION,
            cleanup_share: Percentage::default(),
            history: Self::HISTORY,
        }
    }
}

#[cfg(test)]
mod tests;
