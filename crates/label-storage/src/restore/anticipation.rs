//! Restores a Node from final labels that are not stored yet.

use jiff::Timestamp;

use crate::store::{Action, Circumstances, Sighting, Stored, plan_store};
use crate::summary::{LabelsDigest, NodeSummary, RecordSummary};
use crate::{Node, Record, ResourceVersion, Rules, store};

/// True if a Node can be restored from this record and final labels that it lacks. Without a record there is nothing that a marker can name.
pub fn can_anticipate(stored: Stored<RecordSummary>, rules: &Rules) -> bool {
    rules.depend_on_name_alone() && matches!(stored, Stored::Record(record) if !record.is_tombstone())
}

/// The record as the storer will write it, with these final labels, the oldest first. The final labels must be seen through the rules (see
/// [`Node::seen_through`]).
///
/// The generations stay those of the record that was read. So a marker names labels that are stored. It holds until the storer has written;
/// then the Node is restored once more, and lacks nothing.
pub fn anticipate<'a>(
    record: &Record,
    final_labels: impl IntoIterator<Item = &'a Node>,
    rules: &Rules,
) -> Record {
    let mut next = record.clone();
    let is_tombstone = record.summary().is_tombstone();
    for last in final_labels.into_iter().filter(|_| !is_tombstone) {
        let seen = next.clone().seen_through(rules, Some(last));
        // Times are not restored.
        let at = Circumstances::at(Timestamp::UNIX_EPOCH);
        let plan = plan_store(Sighting::Deleted(last), Stored::Record(&seen), at, rules);
        if let Action::Replace(stored) = plan.action {
            next = stored.with_all_items();
            next.more.is_anticipated = true;
        }
    }
    Record { generation: record.generation, labels_generation: record.labels_generation, ..next }
}

/// A record that lacks final labels, as it was last seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Baseline {
    labels: LabelsDigest,
    version: Option<ResourceVersion>,
}

impl Baseline {
    /// The record as it is now. One that can't be read is as it was before, if that is known.
    pub fn of(stored: Stored<RecordSummary>, before: Option<Self>) -> Self {
        match stored {
            Stored::Record(record) => Self { labels: record.labels, version: record.node_version() },
            Stored::Unreadable if let Some(before) = before => before,
            Stored::Unreadable | Stored::Nothing => Self { labels: LabelsDigest::EMPTY, version: None },
        }
    }

    /// True if a person has changed the labels of the record since: then they count, and not the final labels. A storer that changes labels
    /// raises the version of the Node.
    pub fn is_edited(self, stored: Stored<RecordSummary>) -> bool {
        let now = Self::of(stored, Some(self));
        now.labels != self.labels && now.version <= self.version
    }
}

/// True if a restorer keeps final labels, given the Node and the record as they were last seen: false if the record certainly has them, if no
/// storer stores them, or if a later incarnation was restored, so that its own labels count. `has_earlier`: final labels of an earlier
/// incarnation are kept, so that the record will change before these are stored.
pub fn keeps_final_labels(
    last: NodeSummary,
    has_earlier: bool,
    live: Option<NodeSummary>,
    stored: Stored<RecordSummary>,
) -> bool {
    let is_superseding = |live: NodeSummary| live.restored_from.is_some() && live.version > last.version;
    let changes = |record: RecordSummary| {
        // An incarnation that was not restored only adds labels of its own.
        let is_authoritative = record.is_of(&last) || record.is_restored_to(&last);
        (is_authoritative || !last.labels.is_empty()) && (has_earlier || record.labels != last.labels)
    };
    let adds_something = match stored {
        Stored::Record(record) => changes(record),
        // The storer may just be creating the record. It creates none for a Node that is not selected.
        Stored::Nothing => !last.labels.is_empty() && !last.traits.is_unselected,
        Stored::Unreadable => true,
    };
    adds_something && store::is_worth_keeping(last, stored) && !live.is_some_and(is_superseding)
}
