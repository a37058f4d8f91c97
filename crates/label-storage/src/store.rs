//! The storer's decision: what becomes of a record, given its Node.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::summary::{NodeSummary, RecordSummary};
use crate::{Node, Record, Rules};

/// For how long a plan may be carried out after its Node was read. Later, the world may have moved on in ways that
/// no guard on a write sees, so it is dropped and made anew.
pub const PLAN_LIFETIME: Duration = Duration::from_secs(10);

/// For how long an emptied record stays before it is deleted. Another storer may have planned, while the record did
/// not exist yet, to create it with labels that are gone now; the empty record is what refuses that create. So it
/// has to outlive every plan.
pub const TOMBSTONE_LIFETIME: Duration = Duration::from_secs(30);

/// What the storer knows of a Node: all of it, or a summary.
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

/// What is known of the record: all of it, or a summary.
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
    /// Since when the time of day is known to go right. What it showed before may be a year off, so no retention counts
    /// from before.
    pub steady_since: Timestamp,
}

/// What the storer should do, and why.
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

/// Why the storer does what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The Node has labels and there is no record yet.
    FirstSeen,
    /// The Node has no labels and there is no record: none is needed.
    NoLabels,
    /// The record says what the Node says.
    UpToDate,
    /// The Node's labels differ from the record's, and the Node is right.
    LabelsChanged,
    /// The restorer has marked this incarnation: from here on the Node is right, and the record follows it.
    Restored,
    /// The record said that the Node is gone, and it is there.
    NotGone,
    /// A new incarnation that has not been restored: its labels are not the Node's word yet.
    AwaitingRestore,
    /// As [`AwaitingRestore`](Self::AwaitingRestore), and the record still said that the Node is gone.
    Returned,
    /// This view of the Node is older than the one that the record was made from.
    ViewOlderThanRecord,
    /// The ConfigMap can't be read: a person has to look.
    RecordUnreadable,
    /// The record has no labels left; it stays until no plan from before can be alive.
    EmptyForNow,
    /// The record has had no labels for long enough.
    EmptyForGood,
    /// The Node was deleted: these were its last labels.
    LastWords,
    /// The Node was deleted before it was restored: what it had goes over what the record has.
    LeftUnrestored,
    /// The Node is gone: from now on the retention counts.
    Departed,
    /// The Node is gone, and its record waits for it.
    Away,
    /// The Node has been gone for longer than the retention.
    RetentionOver,
    /// The Node is gone, and nothing is stored of it.
    NothingStored,
    /// A person has taken the Node out of all this. What was stored before that stays.
    Ignored,
    /// The rules have no record made of this Node.
    NotSelected,
    /// The Node does not have what its record would be filed under.
    NoIdentity,
    /// The Node was deleted, and was another machine than the one that the record is kept for.
    OtherMachine,
}

impl Reason {
    /// A word for logs and metrics; part of what users build upon, so it stays.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FirstSeen => "first-seen",
            Self::NoLabels => "no-labels",
            Self::UpToDate => "up-to-date",
            Self::LabelsChanged => "labels-changed",
            Self::Restored => "restored",
            Self::NotGone => "not-gone",
            Self::AwaitingRestore => "awaiting-restore",
            Self::Returned => "returned",
            Self::ViewOlderThanRecord => "view-older-than-record",
            Self::RecordUnreadable => "record-unreadable",
            Self::EmptyForNow => "empty-for-now",
            Self::EmptyForGood => "empty-for-good",
            Self::LastWords => "last-words",
            Self::LeftUnrestored => "left-unrestored",
            Self::Departed => "departed",
            Self::Away => "away",
            Self::RetentionOver => "retention-over",
            Self::NothingStored => "nothing-stored",
            Self::Ignored => "ignored",
            Self::NotSelected => "not-selected",
            Self::NoIdentity => "no-identity",
            Self::OtherMachine => "other-machine",
        }
    }
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
/// Which Nodes are selected only counts where there is no record yet: one that exists follows its Node, so that what is removed from
/// that stays removed.
///
/// The third row is the heart. A Node that was just re-created has none of its labels yet, and a storer that believed
/// it would wipe the store.
pub fn plan_store(node: Sighting<&Node>, stored: Stored<&Record>, at: Circumstances, rules: &Rules) -> Plan {
    let reason = match (decide(node.map(Node::summary), stored.map(Record::summary), at), node, stored) {
        // What it had was not this machine's, and what it had itself does not go with that.
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
        (Reason::Departed, _, Stored::Record(record)) => {
            Action::Replace(record.with_departed_at(Some(at.now)))
        }
        (Reason::EmptyForGood | Reason::RetentionOver, _, _) => Action::Delete,
        _ => Action::Nothing,
    };
    Plan { action, reason }
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

/// Whether a deletion has been followed by more than its last labels can tell of, though no record says so any more: a later
/// incarnation has been restored, so there was a record, and all its labels were removed since, or it was.
pub fn is_history(last: &NodeSummary, live: Option<NodeSummary>, stored: Stored<RecordSummary>) -> bool {
    let is_later = |live: NodeSummary| live.uid != last.uid && live.version > last.version;
    stored == Stored::Nothing && live.is_some_and(|live| is_later(live) && live.restored_from.is_some())
}

/// Whether the last labels of a Node that was deleted have to be kept until they are stored, given the record as it was last
/// seen: not if it has them for certain, or can't need them any more.
pub fn is_worth_keeping(last: NodeSummary, stored: Stored<RecordSummary>) -> bool {
    let has_them = |record: RecordSummary| record.is_of(&last) && record.labels == last.labels;
    match stored {
        _ if last.traits.is_ignored || last.traits.is_unidentified => false,
        // That none is known is not that there is none. Where there is one, it has labels that this Node no longer had, and
        // follows it, selected or not.
        Stored::Nothing => true,
        Stored::Unreadable => false,
        Stored::Record(record) => deleted(&last, &record) != Reason::ViewOlderThanRecord && !has_them(record),
    }
}

fn live(node: &NodeSummary, record: &RecordSummary, at: Circumstances) -> Reason {
    let (same_incarnation, restored) = (record.is_of(node), record.is_restored_to(node));
    let is_older = record.node_version.is_some_and(|version| node.version < version);
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
    if record.node_version.is_some_and(|version| node.version <= version) {
        Reason::ViewOlderThanRecord
    } else if record.is_of(node) || record.is_restored_to(node) {
        Reason::LastWords
    } else {
        Reason::LeftUnrestored
    }
}

fn gone(record: &RecordSummary, at: Circumstances) -> Reason {
    match record.departed_at {
        _ if record.is_empty => tombstone(at),
        None => Reason::Departed,
        Some(departed_at) if is_over(departed_at, at) => Reason::RetentionOver,
        Some(_) => Reason::Away,
    }
}

/// As with an empty record, nobody may have a plan from before it: so it is also seen unchanged for a while first.
fn is_over(departed_at: Timestamp, at: Circumstances) -> bool {
    // A retention beyond what a signed duration holds is for ever; a departure in the future is a clock that jumped.
    let is_over = |retention| at.now.duration_since(departed_at.max(at.steady_since)) >= retention;
    SignedDuration::try_from(at.retention).is_ok_and(is_over) && at.unchanged_for >= TOMBSTONE_LIFETIME
}

fn tombstone(at: Circumstances) -> Reason {
    if at.unchanged_for >= TOMBSTONE_LIFETIME { Reason::EmptyForGood } else { Reason::EmptyForNow }
}

#[cfg(test)]
mod tests;
