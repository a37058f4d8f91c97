//! What a file says, or what flags say: rules with gaps. Flags fill some of a file's gaps, defaults the rest.

use std::time::Duration;

use super::patterns::{Patterns, Selection};
use super::{Conflicts, IdentityBy, Rules, Selector, Share, Trust};

/// Rules of which only some are said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Draft {
    /// Which labels are stored.
    pub labels: Choice,
    /// Which annotations are stored.
    pub annotations: Choice,
    /// Which taints are stored.
    pub taints: Choice,
    /// Whether it is stored that a Node is cordoned.
    pub cordon: Option<bool>,
    /// For which Nodes a record is made.
    pub selector: Option<Selector>,
    /// Whether only for those that say what is to be kept.
    pub opt_in: Option<bool>,
    /// Whose word counts.
    pub conflicts: Option<Conflicts>,
    /// By what a Node is known again.
    pub identity: Option<IdentityBy>,
    /// Whether nothing comes back to another machine.
    pub fence: Option<bool>,
    /// To which machines security labels come back.
    pub trust: Option<Trust>,
    /// Whether Nodes that registered with the startup taint lose it when their labels are back.
    pub has_startup_taint: Option<bool>,
    /// After what time at the latest.
    pub startup_taint: Option<Duration>,
    /// How long the record of a Node that is gone is kept.
    pub retention: Option<Duration>,
    /// What share of all records may be deleted in an hour.
    pub cleanup_share: Option<Share>,
    /// How many earlier states a record remembers.
    pub history: Option<usize>,
}

/// A selection of which only some is said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// What is kept.
    pub include: Option<Patterns>,
    /// And what of that is not.
    pub exclude: Option<Patterns>,
}

impl Choice {
    fn under(self, flags: Self) -> Self {
        Self { include: flags.include.or(self.include), exclude: flags.exclude.or(self.exclude) }
    }

    fn or(self, default: Selection) -> Selection {
        Selection {
            include: self.include.unwrap_or(default.include),
            exclude: self.exclude.unwrap_or(default.exclude),
        }
    }
}

impl Draft {
    /// The same, where these flags don't say otherwise.
    pub fn under(self, flags: Self) -> Self {
        Self {
            labels: self.labels.under(flags.labels),
            annotations: self.annotations.under(flags.annotations),
            taints: self.taints.under(flags.taints),
            cordon: flags.cordon.or(self.cordon),
            selector: flags.selector.or(self.selector),
            opt_in: flags.opt_in.or(self.opt_in),
            conflicts: flags.conflicts.or(self.conflicts),
            identity: flags.identity.or(self.identity),
            fence: flags.fence.or(self.fence),
            trust: flags.trust.or(self.trust),
            has_startup_taint: flags.has_startup_taint.or(self.has_startup_taint),
            startup_taint: flags.startup_taint.or(self.startup_taint),
            retention: flags.retention.or(self.retention),
            cleanup_share: flags.cleanup_share.or(self.cleanup_share),
            history: flags.history.or(self.history),
        }
    }

    /// The rules, with defaults where nothing is said.
    pub fn rules(self) -> Rules {
        let default = Rules::default();
        let at_most = self.startup_taint.unwrap_or(Rules::STARTUP_TAINT);
        Rules {
            labels: self.labels.or(default.labels),
            annotations: self.annotations.or(default.annotations),
            taints: self.taints.or(default.taints),
            cordon: self.cordon.unwrap_or(default.cordon),
            selector: self.selector.unwrap_or(default.selector),
            opt_in: self.opt_in.unwrap_or(default.opt_in),
            conflicts: self.conflicts.unwrap_or(default.conflicts),
            identity: self.identity.unwrap_or(default.identity),
            fence: self.fence.unwrap_or(default.fence),
            trust: self.trust.unwrap_or(default.trust),
            startup_taint: self.has_startup_taint.unwrap_or_default().then_some(at_most),
            retention: self.retention.unwrap_or(default.retention),
            cleanup_share: self.cleanup_share.unwrap_or(default.cleanup_share),
            history: self.history.unwrap_or(default.history),
        }
    }
}
