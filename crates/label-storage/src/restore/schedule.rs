//! When the restorer reconciles a key.

use std::time::Duration;

use super::{Reason, decide};
use crate::decision::{Decision, Urgency, When};
use crate::node_state::{NodeState, Skip};
use crate::store::Stored;
use crate::summary::{NodeSummary, RecordSummary};

const SOON: When = When::Now(Urgency::Soon);
/// A retry that is later than this is decided upon again with the next list.
const LATER: Duration = Duration::from_secs(600);

/// Everything that the cache has of one key.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// The Node, if it exists.
    pub node: Option<NodeSummary>,
    /// The record.
    pub stored: Stored<RecordSummary>,
    /// True if the record may have changed unseen.
    pub is_unsure: bool,
    /// True if this Node was found to be another machine than its record's, which by the rules gets nothing.
    pub is_other_machine: bool,
    /// The time for which the Node may still have the start-up taint; `None` if it has none.
    pub taint_left: Option<Duration>,
    /// The time until withheld items are tried again; `None` if there are none.
    pub until_retry: Option<Duration>,
}

impl View {
    /// Decides when to reconcile the key.
    pub fn decide(&self) -> Decision {
        let Some(node) = self.node else { return Decision::nothing("no-node") };
        let reason = decide(&node, self.stored);
        let state = match reason.state() {
            NodeState::Due if self.is_other_machine => NodeState::Skipped(Skip::OtherMachine),
            state => state,
        };
        let when = match self.taint_left {
            _ if state == NodeState::Due || self.is_unsure => SOON,
            None => match self.until_retry.filter(|_| reason == Reason::SameIncarnation) {
                Some(left) if left < LATER => When::After(left, Urgency::Tidy),
                _ => When::Never,
            },
            // There is nothing to restore, so the start-up taint can be removed.
            Some(left) if reason.is_final() || left.is_zero() => SOON,
            Some(left) => When::After(left, Urgency::Soon),
        };
        Decision { reason: reason.as_str(), when, state }
    }
}

/// Decides about a key that several Nodes have: only a start-up taint has to be removed in time.
pub fn decide_contested(taint_left: Option<Duration>) -> Decision {
    let when = taint_left.map_or(When::Never, |left| When::After(left, Urgency::Soon));
    Decision { reason: Skip::Contested.as_str(), when, state: NodeState::Skipped(Skip::Contested) }
}
