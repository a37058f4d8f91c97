//! The storer's decision: the next write of a record, given its Node.

pub mod deletion_budget;
pub mod in_doubt;
mod reason;
mod schedule;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

pub use self::in_doubt::InDoubt;
pub use self::reason::Reason;
pub use self::schedule::View;
use crate::summary::{LabelsDigest, NodeSummary, RecordSummary, UidDigest};
use crate::withheld::WithheldCounts;
use crate::{Node, Record, ResourceVersion, Rules};

/// The time in which a plan may be carried out after its Node was read. Later, the cluster may have changed in ways that no guard on a
/// write detects, so the plan is dropped and made again.
pub const PLAN_LIFETIME: Duration = Duration::from_secs(10);

/// The time for which an emptied record stays before it is deleted. Before the record existed, another storer may have planned to create
/// it with labels that are removed now. While the empty record exists, the API server refuses that create, so it must outlive every plan.
pub const TOMBSTONE_LIFETIME: Duration = Duration::from_secs(30);

/// The storer's knowledge of a Node: all of it, or a summary.
#[derive(Debug, Clone, Copy)]
pub enum Sighting<N> {
    /// The API server has it.
    Live(N),
    /// It was deleted. This is its last state, from the DELETED event of a watch.
    Deleted(N),
    /// A read by name did not find it.
    Gone,
}

impl<N> Sighting<N> {
    /// Converts the Node.
    pub fn map<M>(self, to: impl FnOnce(N) -> M) -> Sighting<M> {
        match self {
            Self::Live(node) => Sighting::Live(to(node)),
            Self::Deleted(node) => Sighting::Deleted(to(node)),
            Self::Gone => Sighting::Gone,
        }
    }
}

/// The record: all of it, or a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored<R> {
    /// There is no ConfigMap of that name.
    Nothing,
    /// There is one that can't be read.
    Unreadable,
    /// There is a record.
    Record(R),
}

impl<R> Stored<R> {
    /// Borrows the record.
    pub const fn as_ref(&self) -> Stored<&R> {
        match self {
            Self::Nothing => Stored::Nothing,
            Self::Unreadable => Stored::Unreadable,
            Self::Record(record) => Stored::Record(record),
        }
    }

    /// Converts the record.
    pub fn map<S>(self, to: impl FnOnce(R) -> S) -> Stored<S> {
        match self {
            Self::Nothing => Stored::Nothing,
            Self::Unreadable => Stored::Unreadable,
            Self::Record(record) => Stored::Record(to(record)),
        }
    }
}

impl Stored<RecordSummary> {
    /// The items of this record that are withheld from this Node now.
    pub fn withheld_from(self, node: &NodeSummary) -> WithheldCounts {
        match self {
            Stored::Record(record) if record.is_of(node) && record.has_withheld => node.traits.withheld,
            // The storer has not followed the restore yet.
            Stored::Record(record) if !record.is_of(node) && record.is_restored_to(node) => {
                node.traits.withheld
            }
            _ => WithheldCounts::default(),
        }
    }
}

/// The circumstances of a decision.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances {
    /// The time of day, for times in records and for the retention.
    pub now: Timestamp,
    /// The time for which *this process* has seen the record unchanged. It is not a difference of clocks, which jump and disagree.
    pub unchanged_for: Duration,
    /// The time for which the record of a deleted Node is kept.
    pub retention: Duration,
    /// A deleted Node, as this process has last seen it.
    pub last_seen: Option<LastSeen>,
    /// True if this process has sent a write for this version of the record, and does not know its outcome: the API server may still carry
    /// it out.
    pub in_doubt: bool,
    /// True if a write may serve only to add the label of records again.
    pub may_add_label: bool,
}

/// A deleted Node, as it was last seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastSeen {
    /// Its incarnation.
    pub uid: UidDigest,
    /// Its version then: that of its deletion, if the watch has reported it.
    pub version: ResourceVersion,
    /// Its labels then.
    pub labels: LabelsDigest,
}

impl Circumstances {
    /// Only the time of day is known.
    pub fn at(now: Timestamp) -> Self {
        Self {
            now,
            unchanged_for: Duration::ZERO,
            retention: Duration::MAX,
            last_seen: None,
            in_doubt: false,
            may_add_label: false,
        }
    }
}

/// The storer's plan, and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The write, if any.
    pub action: Action,
    /// The reason, which logs and metrics show.
    pub reason: Reason,
}

/// A write of a record. Every write is guarded: a create fails if the ConfigMap exists; a replace or a delete has the resourceVersion that
/// was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// No write is needed, or the restorer comes first.
    Nothing,
    /// Create the ConfigMap.
    Create(Record),
    /// Replace the record that was read.
    Replace(Record),
    /// Delete the record that was read.
    Delete,
}

/// Plans the next write of a record. Node and record must be seen through the same rules (see [`Node::seen_through`]).
///
/// | Node | record | outcome |
/// |---|---|---|
/// | exists | none | created, unless the Node has no labels |
/// | exists, same incarnation as the record | differs | replaced with the Node's labels |
/// | exists, another incarnation, not restored from these labels | not empty | unchanged until the Node is restored |
/// | exists, another incarnation, restored from these labels | any | replaced with the Node's labels |
/// | deleted, later than the record was made | none, or of that incarnation, or restored to it | the final labels are stored |
/// | deleted, later than the record was made | of another incarnation, and never restored to it | the Node's labels are merged over the record's |
/// | absent | any | kept for the retention |
/// | exists, with labels | empty | replaced with the Node's labels: there is nothing to restore |
/// | any other | empty | deleted half a minute later |
/// | exists or was deleted, with the ignore annotation | any | unchanged, except that `departed-at` is removed |
///
/// If an earlier write may still arrive, even "unchanged" is a write, which raises the generation or creates an empty record. It makes the
/// API server refuse the earlier write.
///
/// The rules' selection of Nodes counts only while there is no record. An existing record follows its Node, so that removed labels stay
/// removed.
///
/// The third row matters most. A Node that was just re-created has none of its labels yet. A storer that stored it now would delete the
/// stored labels.
pub fn plan_store(node: Sighting<&Node>, stored: Stored<&Record>, at: Circumstances, rules: &Rules) -> Plan {
    let reason = match (decide(node.map(Node::summary), stored.map(Record::summary), at), node, stored) {
        // The labels of two machines are not merged.
        (Reason::LeftUnrestored, Sighting::Deleted(node), Stored::Record(record))
            if rules.excludes(node, record) =>
        {
            Reason::OtherMachine
        }
        (reason, _, _) => reason,
    };
    let departed = |record| Record { departed_at: Some(at.now), ..record };
    let action = match (reason, node, stored) {
        (Reason::FirstSeen, Sighting::Live(node), _) => Action::Create(Record::of(node, at.now)),
        (
            Reason::LabelsChanged | Reason::Restored | Reason::NotGone,
            Sighting::Live(node),
            Stored::Record(record),
        ) => Action::Replace(record.retaken(node, at.now, rules)),
        (Reason::Returned, _, Stored::Record(record)) => Action::Replace(record.with_departed_at(None)),
        (Reason::FinalLabels, Sighting::Deleted(node), Stored::Nothing) => {
            Action::Create(departed(Record::of(node, at.now)))
        }
        (Reason::FinalLabels, Sighting::Deleted(node), Stored::Record(record)) => {
            Action::Replace(departed(record.retaken(node, at.now, rules)))
        }
        (Reason::LeftUnrestored, Sighting::Deleted(node), Stored::Record(record)) => {
            Action::Replace(departed(record.merged(node, at.now, rules)))
        }
        (Reason::Departed, _, Stored::Record(record)) => Action::Replace(Record {
            node_version: record.node_version.max(accounted_for(&record.summary(), at)),
            ..record.with_departed_at(record.departed_at.or(Some(at.now)))
        }),
        (Reason::EmptyForGood | Reason::RetentionOver, _, _) => Action::Delete,
        _ => Action::Nothing,
    };
    match (action, node, stored) {
        (Action::Nothing, _, Stored::Record(record)) if at.in_doubt => {
            Plan { action: Action::Replace(record.touched()), reason: Reason::OutcomeUnknown }
        }
        (Action::Nothing, _, Stored::Record(record))
            if at.may_add_label && record.more.is_unlabelled && reason != Reason::ViewOlderThanRecord =>
        {
            Plan { action: Action::Replace(record.touched()), reason: Reason::LabelLost }
        }
        (Action::Nothing, Sighting::Live(node) | Sighting::Deleted(node), _)
            if at.in_doubt && matches!(reason, Reason::NoLabels | Reason::NotSelected) =>
        {
            Plan { action: Action::Create(Record::tombstone(node, at.now)), reason: Reason::OutcomeUnknown }
        }
        (action, _, _) => Plan { action, reason },
    }
}

/// The decision, which needs only summaries. [`plan_store`] makes a plan from it. A daemon with 100,000 Nodes calls it to find out if a plan
/// is needed.
pub fn decide(node: Sighting<NodeSummary>, stored: Stored<RecordSummary>, at: Circumstances) -> Reason {
    match (node, stored) {
        // The Node exists, so `departed-at` is removed: otherwise the old time would count after the next deletion.
        (Sighting::Live(node), Stored::Record(record))
            if node.traits.is_ignored && record.departed_at.is_some() =>
        {
            Reason::Returned
        }
        (Sighting::Live(node) | Sighting::Deleted(node), _) if node.traits.is_ignored => Reason::Ignored,
        (Sighting::Live(node) | Sighting::Deleted(node), _) if node.traits.is_unidentified => {
            Reason::NoIdentity
        }
        (_, Stored::Unreadable) => Reason::RecordUnreadable,
        (Sighting::Live(node) | Sighting::Deleted(node), Stored::Nothing) if node.labels.is_empty() => {
            Reason::NoLabels
        }
        (Sighting::Live(node) | Sighting::Deleted(node), Stored::Nothing) if node.traits.is_unselected => {
            Reason::NotSelected
        }
        (Sighting::Live(_), Stored::Nothing) => Reason::FirstSeen,
        (Sighting::Deleted(_), Stored::Nothing) => Reason::FinalLabels,
        (Sighting::Gone, Stored::Nothing) => Reason::NothingStored,
        (Sighting::Live(node), Stored::Record(record)) => live(&node, &record, at),
        (Sighting::Deleted(node), Stored::Record(record)) => deleted(&node, &record),
        (Sighting::Gone, Stored::Record(record)) => gone(&record, at),
    }
}

/// True if final labels are obsolete although there is no record to compare: a later incarnation was restored, so there was a record, and its
/// labels or the record itself were removed since.
pub fn is_history(last: &NodeSummary, live: Option<NodeSummary>, stored: Stored<RecordSummary>) -> bool {
    let is_later = |live: NodeSummary| live.uid != last.uid && live.version > last.version;
    let has_nothing = match stored {
        Stored::Nothing => true,
        Stored::Record(record) => record.is_tombstone(),
        Stored::Unreadable => false,
    };
    has_nothing && live.is_some_and(|live| is_later(live) && live.restored_from.is_some())
}

/// True if final labels must be kept until they are stored, given the record as it was last seen: false if it certainly has them, or can't
/// need them any more.
pub fn is_worth_keeping(last: NodeSummary, stored: Stored<RecordSummary>) -> bool {
    let has_them = |record: RecordSummary| record.is_of(&last) && record.labels == last.labels;
    match stored {
        _ if last.traits.is_ignored || last.traits.is_unidentified => false,
        // There may be a record that is not known yet. One that can't be read may be fixed.
        Stored::Nothing | Stored::Unreadable => true,
        Stored::Record(record) => deleted(&last, &record) != Reason::ViewOlderThanRecord && !has_them(record),
    }
}

/// True if the storer keeps the final labels of a deleted Node. If a write of the record may be under way, the content of the record is
/// unknown, so they are kept.
pub fn keeps_final_labels(last: NodeSummary, stored: Stored<RecordSummary>, writes: Writes) -> bool {
    let is_unsettled = writes.is_in_flight || writes.has_failed || writes.is_in_doubt;
    is_unsettled || is_worth_keeping(last, stored)
}

/// The writes of one record that may be under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Writes {
    /// An attempt has begun.
    pub is_in_flight: bool,
    /// The last attempt has failed.
    pub has_failed: bool,
    /// See [`InDoubt`].
    pub is_in_doubt: bool,
}

/// Chooses between the Node that was read by name and its final labels. Final labels come first until they are stored. Returns `None` if the
/// answer is stale: it still has the Node whose deletion was reported. A stale answer is accepted after a while (`is_believed`).
pub fn sighting<'a>(
    live: Option<&'a Node>,
    last: Option<&'a Node>,
    stored: Stored<RecordSummary>,
    is_believed: bool,
) -> Option<Sighting<&'a Node>> {
    let is_history = |last: &&Node| is_history(&last.summary(), live.map(Node::summary), stored);
    match (live, last.filter(|last| !is_history(last))) {
        (Some(live), Some(last)) if live.uid == last.uid => is_believed.then_some(Sighting::Live(live)),
        (_, Some(last)) => Some(Sighting::Deleted(last)),
        (Some(live), None) => Some(Sighting::Live(live)),
        (None, None) => Some(Sighting::Gone),
    }
}

fn live(node: &NodeSummary, record: &RecordSummary, at: Circumstances) -> Reason {
    let (same_incarnation, restored) = (record.is_of(node), record.is_restored_to(node));
    let is_older = record.node_version().is_some_and(|version| node.version < version);
    if !same_incarnation && !restored {
        return match record.departed_at {
            // There is nothing to be restored, so there is nothing to wait for.
            _ if record.is_empty && !node.labels.is_empty() && !is_older && !node.traits.is_unselected => {
                Reason::LabelsChanged
            }
            _ if record.is_empty => tombstone(at),
            Some(_) => Reason::Returned,
            None => Reason::AwaitingRestore,
        };
    }
    // A marker that was made from these very labels proves that this view is later than they are. Versions can't: a
    // record from another cluster, or from before etcd was restored from a backup, counts them differently.
    let is_later = restored && record.labels_generation.is_some() && !same_incarnation;
    if !is_later && is_older {
        return Reason::ViewOlderThanRecord;
    }
    if !same_incarnation {
        Reason::Restored
    } else if node.labels != record.labels {
        Reason::LabelsChanged
    } else if record.departed_at.is_some() {
        Reason::NotGone
    } else if record.is_empty {
        tombstone(at)
    } else {
        Reason::UpToDate
    }
}

/// An event is newer than the record only if its version is *greater*: a late event of an older incarnation, or a repeated event, must not
/// undo later changes.
fn deleted(node: &NodeSummary, record: &RecordSummary) -> Reason {
    if record.node_version().is_some_and(|version| node.version <= version) {
        Reason::ViewOlderThanRecord
    } else if record.is_of(node) || record.is_restored_to(node) {
        Reason::FinalLabels
    } else {
        Reason::LeftUnrestored
    }
}

/// The last version of a deleted Node, if the record has the labels of that version. A departed record has this version, so that a repeated
/// event of the deletion does not undo a person's edit of the record.
fn accounted_for(record: &RecordSummary, at: Circumstances) -> Option<ResourceVersion> {
    let last = at.last_seen.filter(|last| record.uid == Some(last.uid) && record.labels == last.labels);
    last.map(|last| last.version)
}

fn gone(record: &RecordSummary, at: Circumstances) -> Reason {
    match record.departed_at {
        _ if record.is_empty => tombstone(at),
        None => Reason::Departed,
        Some(_) if accounted_for(record, at) > record.node_version() => Reason::Departed,
        Some(departed_at) if is_over(departed_at.into(), at) => Reason::RetentionOver,
        Some(_) => Reason::Away,
    }
}

/// True if the retention has expired. As with an empty record, no older plan may exist, so the record must also have been unchanged for a
/// while.
fn is_over(departed_at: Timestamp, at: Circumstances) -> bool {
    // A retention that is too long for a signed duration means for ever. A departure in the future comes from a clock that jumped.
    let is_over = |retention| at.now.duration_since(departed_at) >= retention;
    SignedDuration::try_from(at.retention).is_ok_and(is_over) && at.unchanged_for >= TOMBSTONE_LIFETIME
}

fn tombstone(at: Circumstances) -> Reason {
    if at.unchanged_for >= TOMBSTONE_LIFETIME { Reason::EmptyForGood } else { Reason::EmptyForNow }
}

#[cfg(test)]
mod tests;
