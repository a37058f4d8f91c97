//! The storer's decision: what becomes of a record, given its Node.

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
use crate::{Node, Record, ResourceVersion, Rules};

/// For how long a plan may be carried out after its Node was read. Later, the world may have moved on in ways that
/// no guard on a write sees, so it is dropped and made anew.
pub const PLAN_LIFETIME: Duration = Duration::from_secs(10);

/// For how long an emptied record stays before it is deleted. Another storer may have planned, while the record did
/// not exist yet, to create it with labels that are gone now; the empty record is what refuses that create. So it
/// has to outlive every plan.
pub const TOMBSTONE_LIFETIME: Duration = Duration::from_secs(30);

/// The storer's knowledge of a Node: all of it, or a summary.
#[derive(Debug, Clone, Copy)]
pub enum Sighting<N> {
    /// The API server has it, and it looks like this.
    Live(N),
    /// It was deleted, and looked like this just before: a watch's DELETED event.
    Deleted(N),
    /// The API server was asked for it, and does not have it.
    Gone,
}

impl<N> Sighting<N> {
    /// The same sighting of something else.
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
    /// The same, of something else.
    pub fn map<S>(self, to: impl FnOnce(R) -> S) -> Stored<S> {
        match self {
            Self::Nothing => Stored::Nothing,
            Self::Unreadable => Stored::Unreadable,
            Self::Record(record) => Stored::Record(to(record)),
        }
    }
}

/// The circumstances of a decision.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances {
    /// The time of day, for what is written into a record and for the retention.
    pub now: Timestamp,
    /// For how long *this process* has seen the record unchanged. Not a difference of clocks: those jump and disagree.
    pub unchanged_for: Duration,
    /// For how long the record of a Node that is gone is kept.
    pub retention: Duration,
    /// A Node that is gone, as this process has last seen it.
    pub last_seen: Option<LastSeen>,
    /// True if this process has sent a write of the record, at the very version that was read now, and does not know its outcome:
    /// the API server may still carry it out.
    pub in_doubt: bool,
}

/// A Node that is gone, as it was last seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastSeen {
    /// Which incarnation it was.
    pub uid: UidDigest,
    /// Its version then: that of its deletion, if the watch has reported it.
    pub version: ResourceVersion,
    /// Its labels then.
    pub labels: LabelsDigest,
}

impl Circumstances {
    /// Nothing is known but the time of day.
    pub fn at(now: Timestamp) -> Self {
        Self {
            now,
            unchanged_for: Duration::ZERO,
            retention: Duration::MAX,
            last_seen: None,
            in_doubt: false,
        }
    }
}

/// The storer's plan, and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The write, if any.
    pub action: Action,
    /// Why: what logs and metrics show.
    pub reason: Reason,
}

/// A write of a record. Every one is guarded: a create fails where a ConfigMap exists; replace and delete carry the
/// resourceVersion that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// All is well, or it is not the storer's turn.
    Nothing,
    /// Create the ConfigMap.
    Create(Record),
    /// Replace what was read.
    Replace(Record),
    /// Delete what was read.
    Delete,
}

/// Decides what becomes of a record. Node and record are to be seen through the same rules (see [`Node::seen_through`]).
///
/// | the Node | the record | what follows |
/// |---|---|---|
/// | there | none | created, unless the Node has no labels |
/// | there, the record's own incarnation | differs | replaced: the Node is right |
/// | there, another incarnation, not restored from these labels | not empty | left alone until the restorer has had its turn |
/// | there, another incarnation, restored from these labels | any | replaced: the Node is right again |
/// | deleted, later than the record was made | none, or of that incarnation, or restored to it | its last labels are stored |
/// | deleted, later than the record was made | of another incarnation, and never restored to it | its labels are merged over the record's |
/// | gone | any | kept for the retention |
/// | there, with labels | empty | replaced: there is nothing to be restored, so the Node is right |
/// | any other | empty | deleted, half a minute later |
/// | there or deleted, and a person has said that it is to be ignored | any | left alone, but that it is not gone |
///
/// Where an earlier write may still arrive, even "left alone" is a write: one that raises the generation, or creates an empty record.
///
/// Which Nodes are selected only counts where there is no record yet: one that exists follows its Node, so that what is removed from
/// that stays removed.
///
/// The third row is the heart. A Node that was just re-created has none of its labels yet, and a storer that believed
/// it would wipe the store.
pub fn plan_store(node: Sighting<&Node>, stored: Stored<&Record>, at: Circumstances, rules: &Rules) -> Plan {
    let reason = match (decide(node.map(Node::summary), stored.map(Record::summary), at), node, stored) {
        // The labels of two machines are not merged.
        (Reason::LeftUnrestored, Sighting::Deleted(node), Stored::Record(record))
            if rules.is_fenced() && node.extras.machine.differs_from(&record.more.machine) =>
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
        (Reason::LastWords, Sighting::Deleted(node), Stored::Nothing) => {
            Action::Create(departed(Record::of(node, at.now)))
        }
        (Reason::LastWords, Sighting::Deleted(node), Stored::Record(record)) => {
            Action::Replace(departed(record.retaken(node, at.now, rules).trusted_as_in(record)))
        }
        (Reason::LeftUnrestored, Sighting::Deleted(node), Stored::Record(record)) => {
            Action::Replace(departed(record.merged(node, at.now, rules).trusted_as_in(record)))
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
        (Action::Nothing, Sighting::Live(node) | Sighting::Deleted(node), _)
            if at.in_doubt && matches!(reason, Reason::NoLabels | Reason::NotSelected) =>
        {
            Plan { action: Action::Create(Record::tombstone(node, at.now)), reason: Reason::OutcomeUnknown }
        }
        (action, _, _) => Plan { action, reason },
    }
}

/// The decision itself, which summaries suffice for: [`plan_store`] makes a plan of it, and who watches a hundred
/// thousand Nodes asks it whether a plan is needed.
pub fn decide(node: Sighting<NodeSummary>, stored: Stored<RecordSummary>, at: Circumstances) -> Reason {
    match (node, stored) {
        // It is not gone, whoever is to see to it. A stamp from before would count when it leaves again.
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
        (Sighting::Deleted(_), Stored::Nothing) => Reason::LastWords,
        (Sighting::Gone, Stored::Nothing) => Reason::NothingStored,
        (Sighting::Live(node), Stored::Record(record)) => live(&node, &record, at),
        (Sighting::Deleted(node), Stored::Record(record)) => deleted(&node, &record),
        (Sighting::Gone, Stored::Record(record)) => gone(&record, at),
    }
}

/// True if final labels are outdated although no record says so any more: a later incarnation was restored, so there was a record, and its
/// labels or the record itself were removed since.
pub fn is_history(last: &NodeSummary, live: Option<NodeSummary>, stored: Stored<RecordSummary>) -> bool {
    let is_later = |live: NodeSummary| live.uid != last.uid && live.version > last.version;
    let has_nothing = match stored {
        Stored::Nothing => true,
        Stored::Record(record) => record.is_empty && record.uid.is_none(),
        Stored::Unreadable => false,
    };
    has_nothing && live.is_some_and(|live| is_later(live) && live.restored_from.is_some())
}

/// True if final labels are kept until they are stored, given the record as it was last seen: not if it has them for certain, or can't need
/// them any more.
pub fn is_worth_keeping(last: NodeSummary, stored: Stored<RecordSummary>) -> bool {
    let has_them = |record: RecordSummary| record.is_of(&last) && record.labels == last.labels;
    match stored {
        _ if last.traits.is_ignored || last.traits.is_unidentified => false,
        // There may be a record that is not known yet.
        Stored::Nothing => true,
        Stored::Unreadable => false,
        Stored::Record(record) => deleted(&last, &record) != Reason::ViewOlderThanRecord && !has_them(record),
    }
}

/// True if the storer keeps the final labels of a Node that was deleted. If a write of the record may be under way, nobody knows what the record
/// will have.
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

/// The sighting that is stored, if this is the Node by name and `last` its final labels. Final labels come first, as long as nobody has stored
/// them. Returns `None` if the API server still has the Node whose deletion it has reported: its answer is stale, unless it stays so
/// (`is_believed`).
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

/// An event is newer than the record only if its version is *greater*: a late event of an older incarnation, or the
/// same event twice, must not undo what came after it.
fn deleted(node: &NodeSummary, record: &RecordSummary) -> Reason {
    if record.node_version().is_some_and(|version| node.version <= version) {
        Reason::ViewOlderThanRecord
    } else if record.is_of(node) || record.is_restored_to(node) {
        Reason::LastWords
    } else {
        Reason::LeftUnrestored
    }
}

/// The version of a Node that is gone which a record accounts for: its labels are those that this incarnation had last. A departed record
/// has this version, so that a repeated event of the deletion does not undo what a person does with the record.
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

/// As with an empty record, nobody may have a plan from before it: so it is also seen unchanged for a while first.
fn is_over(departed_at: Timestamp, at: Circumstances) -> bool {
    // A retention beyond what a signed duration holds is for ever; a departure in the future is a clock that jumped.
    let is_over = |retention| at.now.duration_since(departed_at) >= retention;
    SignedDuration::try_from(at.retention).is_ok_and(is_over) && at.unchanged_for >= TOMBSTONE_LIFETIME
}

fn tombstone(at: Circumstances) -> Reason {
    if at.unchanged_for >= TOMBSTONE_LIFETIME { Reason::EmptyForGood } else { Reason::EmptyForNow }
}

#[cfg(test)]
mod tests;
