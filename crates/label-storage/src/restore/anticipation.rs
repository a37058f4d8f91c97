//! Restores a Node from final labels that are not stored yet.

use jiff::Timestamp;

use crate::store::{Action, Circumstances, Sighting, Stored, plan_store};
use crate::summary::{NodeSummary, RecordSummary};
use crate::{Node, Record, Rules, store};

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
    // An empty record of no incarnation only refuses another create: it shows that nothing was stored before.
    let is_tombstone = record.uid.is_none() && record.is_empty();
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
