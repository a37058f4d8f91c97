//! The restorer's decision: what a Node gets back, given its record.

use crate::store::Stored;
use crate::summary::{NodeSummary, RecordSummary};
use crate::{Labels, Node, Record, ResourceVersion, Uid};

/// What the restorer should do, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The patch of the Node, if any.
    pub patch: Option<Patch>,
    /// Why: what logs and metrics show.
    pub reason: Reason,
}

/// A patch of a Node, all of it or nothing: the labels, and the marker that says they are back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// The incarnation that was read. The API server answers 422 where the Node is another by now.
    pub uid: Uid,
    /// The version that was read. The API server answers 409 where the Node has changed since.
    pub version: ResourceVersion,
    /// The labels that the record has and the Node has not.
    pub labels: Labels,
    /// The keys of labels that both have, with different values. The Node keeps its own, and that is stored from then on: a
    /// person may have to know.
    pub conflicts: Vec<String>,
    /// The new value of the [`RESTORED`](crate::node::RESTORED) annotation.
    pub marker: String,
    /// The generation of the record that the labels come from.
    pub generation: u64,
}

/// Why the restorer does what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Nothing is stored of this Node, or no label is left of what was.
    NothingStored,
    /// The ConfigMap can't be read: a person has to look.
    RecordUnreadable,
    /// The record was made from this very incarnation: what is not on the Node was removed from it.
    SameIncarnation,
    /// This incarnation has been given these labels before: what is not on the Node was removed from it.
    AlreadyRestored,
    /// A new incarnation lacks labels that the record has.
    Returned,
    /// A new incarnation lacks none; it is marked all the same, or the storer would wait for ever.
    ReturnedWhole,
}

impl Reason {
    /// A word for logs and metrics; part of what users build upon, so it stays.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NothingStored => "nothing-stored",
            Self::RecordUnreadable => "record-unreadable",
            Self::SameIncarnation => "same-incarnation",
            Self::AlreadyRestored => "already-restored",
            Self::Returned => "returned",
            Self::ReturnedWhole => "returned-whole",
        }
    }
}

/// Decides what a Node gets back. A label that it has is never overwritten.
///
/// The record has to be read *after* the Node: one that was read before may hold a label that was removed, and
/// stored as removed, before this incarnation was created.
pub fn plan_restore(node: &Node, stored: Stored<&Record>) -> Plan {
    let reason = decide(&node.summary(), stored.map(Record::summary));
    let (Reason::Returned, Stored::Record(record)) = (reason, stored) else {
        return Plan { patch: None, reason };
    };
    let missing = record.labels.iter().filter(|(key, _)| !node.labels.contains_key(*key));
    let labels: Labels = missing.map(|(key, value)| (key.clone(), value.clone())).collect();
    let differs = |(key, value): &(&String, &String)| node.labels.get(*key).is_some_and(|own| own != *value);
    let conflicts = record.labels.iter().filter(differs).map(|(key, _)| key.clone()).collect();
    let reason = if labels.is_empty() { Reason::ReturnedWhole } else { Reason::Returned };
    let patch = Patch {
        uid: node.uid.clone(),
        version: node.version,
        labels,
        conflicts,
        marker: node.marker_for(record.generation, []),
        generation: record.generation,
    };
    Plan { patch: Some(patch), reason }
}

/// The decision itself, as far as summaries tell: [`Reason::Returned`] stands for [`Reason::ReturnedWhole`] too.
pub fn decide(node: &NodeSummary, stored: Stored<RecordSummary>) -> Reason {
    match stored {
        Stored::Nothing => Reason::NothingStored,
        Stored::Unreadable => Reason::RecordUnreadable,
        Stored::Record(record) if record.is_of(node) => Reason::SameIncarnation,
        Stored::Record(record) if record.is_restored_to(node) => Reason::AlreadyRestored,
        // A marker made from it could outlive it, and hold for the record that comes after it, whose generations begin anew.
        Stored::Record(record) if record.is_empty => Reason::NothingStored,
        Stored::Record(_) => Reason::Returned,
    }
}

#[cfg(test)]
mod tests;
