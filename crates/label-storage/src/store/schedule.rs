//! When the storer reconciles a key.

use std::time::Duration;

use super::{Circumstances, Reason, Sighting, Stored, TOMBSTONE_LIFETIME, decide};
use crate::decision::{Decision, Urgency, When};
use crate::node_state::{NodeState, Skip};
use crate::summary::{NodeSummary, RecordSummary};

/// A write that only makes a record tidier waits this long. Often the Node is back or restored by then, and several writes become one.
const TIDY: Duration = Duration::from_secs(2);
/// A re-created Node is usually restored and stored sooner than this. A write that only removes `departed-at` is needed only if it is not
/// restored.
const UNRESTORED: Duration = Duration::from_secs(30);
/// A record whose retention ends later than this is decided upon again with the next list.
const SOON: Duration = Duration::from_secs(600);

/// Everything that the cache has of one key.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// The Node, if it exists.
    pub node: Option<NodeSummary>,
    /// True if it is certain that no Node has this key.
    pub is_surely_gone: bool,
    /// True if several Nodes have this key.
    pub is_contested: bool,
    /// The record.
    pub stored: Stored<RecordSummary>,
    /// True if there are final labels to store.
    pub has_final_labels: bool,
    /// True if Node or record has changed just now.
    pub is_event: bool,
    /// The circumstances.
    pub at: Circumstances,
}

impl View {
    /// Decides when to reconcile the key. `cleanup_pause` returns the time until an expired record may be deleted.
    pub fn decide(&self, cleanup_pause: impl FnOnce() -> Duration) -> Decision {
        if self.is_contested {
            return self.decide_contested();
        }
        if self.has_final_labels {
            let reason = Reason::FinalLabels.as_str();
            return Decision { reason, when: When::Now(Urgency::Urgent), state: NodeState::Due };
        }
        let sighting = match self.node {
            Some(node) => Sighting::Live(node),
            None if self.is_surely_gone => Sighting::Gone,
            None => return Decision::nothing("not-surely-gone"),
        };
        let reason = decide(sighting, self.stored, self.at);
        let state = reason.state(self.has_labels_of_record());
        let when = match reason {
            _ if state == NodeState::Due => {
                When::Now(if self.is_event { Urgency::Soon } else { Urgency::Routine })
            }
            Reason::EmptyForNow => {
                When::After(TOMBSTONE_LIFETIME.saturating_sub(self.at.unchanged_for), Urgency::Tidy)
            }
            Reason::Away if !self.adds_label() => self.until_retention_is_over(),
            // A view that is older than the record may stay so for ever: it is read by name.
            Reason::Restored | Reason::NotGone | Reason::ViewOlderThanRecord => {
                When::After(TIDY, Urgency::Tidy)
            }
            Reason::Departed => When::After(TIDY, Urgency::Departed),
            Reason::Returned => When::After(UNRESTORED, Urgency::Tidy),
            Reason::EmptyForGood => When::Now(Urgency::Tidy),
            Reason::RetentionOver => When::After(cleanup_pause(), Urgency::Tidy),
            _ if self.adds_label() => When::After(TIDY, Urgency::Tidy),
            _ => When::Never,
        };
        Decision { reason: reason.as_str(), when, state }
    }

    /// One of several Nodes exists, so `departed-at` is wrong. Nothing else is written.
    fn decide_contested(&self) -> Decision {
        let is_departed = matches!(self.stored, Stored::Record(record) if record.departed_at.is_some());
        let rest = UNRESTORED.saturating_sub(self.at.unchanged_for);
        let when = if is_departed { When::After(rest, Urgency::Soon) } else { When::Never };
        Decision { reason: Skip::Contested.as_str(), when, state: NodeState::Skipped(Skip::Contested) }
    }

    /// True if a new incarnation would take over the record: not before the watch has reported the deletion of the one before, whose final
    /// labels may still be on their way.
    pub fn takes_over(&self) -> bool {
        let is_own = |node| matches!(self.stored, Stored::Record(record) if record.is_of(&node));
        !self.has_final_labels && self.node.is_some_and(|node| !is_own(node))
    }

    fn has_labels_of_record(&self) -> bool {
        matches!((self.node, self.stored), (Some(node), Stored::Record(record)) if node.labels == record.labels)
    }

    fn adds_label(&self) -> bool {
        self.at.may_add_label && matches!(self.stored, Stored::Record(record) if record.is_unlabelled)
    }

    fn until_retention_is_over(&self) -> When {
        let Stored::Record(record) = self.stored else { return When::Never };
        let away = record.departed_at.map(|departed_at| self.at.now.duration_since(departed_at.into()));
        let away = away.and_then(|away| Duration::try_from(away).ok()).unwrap_or_default();
        let retention = self.at.retention.saturating_sub(away);
        let rest = retention.max(TOMBSTONE_LIFETIME.saturating_sub(self.at.unchanged_for));
        if rest < SOON { When::After(rest, Urgency::Tidy) } else { When::Never }
    }
}
