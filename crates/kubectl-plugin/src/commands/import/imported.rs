//! What an import makes of a record: one that belongs to nobody, and that no marker is newer than.

use jiff::Timestamp;
use label_storage::record::Version;
use label_storage::{Node, Record, ResourceVersion, Uid};

/// Stands where the incarnation would: no Node has it, and a person sees where the record comes from.
const NOBODY: &str = "imported";

/// The record to write: what the file says, over what there was.
///
/// - It is of no incarnation, so the restorer gives it to the Node, and the storer waits for that.
/// - Its generation is above what was there and above what the Node's marker names, or the marker would say that the Node has been
///   given this already, and the storer would have the Node's word for it.
/// - The Node is gone from now on, if it is not there. When it left another cluster, or before this one was lost, is no reason to
///   forget it sooner; and records that do not say that their Nodes are gone look like a great loss to the storer, which then
///   stops to believe in any.
pub(super) fn imported(
    file: &Record,
    before: Option<&Record>,
    node: Option<&Node>,
    now: Timestamp,
    history: usize,
) -> Record {
    let mut record = file.clone();
    record.uid = Uid::new(NOBODY);
    record.node_version = Some(ResourceVersion(0));
    record.departed_at = node.is_none().then_some(now);
    record.captured_at.get_or_insert(now);
    let marker = node.and_then(Node::restored_from).unwrap_or(0);
    let least = marker.max(before.map_or(0, |before| before.generation));
    if least > 0 {
        record.generation = record.generation.max(least.saturating_add(1));
    }
    record.labels_generation = Some(record.generation);
    if let Some(before) = before {
        // What was there can be brought back.
        record.more.history.clone_from(&before.more.history);
        if !before.labels.is_empty() && before.labels != record.labels {
            let generation = before.labels_generation.unwrap_or(before.generation);
            let labels = before.labels.clone();
            record.more.history.push(Version { generation, at: before.captured_at, labels });
        }
        let too_many = record.more.history.len().saturating_sub(history);
        record.more.history.drain(..too_many);
    }
    record
}
