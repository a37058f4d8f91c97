//! Nodes that are deleted, or move from one key or shard to another.

use label_storage::Node;

use super::{Engine, Planner};
use crate::api_source::Resource;
use crate::cache::Elsewhere;

impl<P: Planner> Engine<'_, P> {
    /// A Node was deleted, and looked like this just before.
    pub(super) fn deleted(&mut self, last: Node) {
        let (under, version) = (last.filed_under().to_owned(), last.version);
        // Where others claimed the same, nobody knows whose labels belong in the record.
        let was_contested = self.cache.get(&under).is_some_and(|entry| entry.had_others(&last.name, version));
        // A replica before this one has dealt with it.
        let is_settled = self.watch.is_settled(&under, version);
        if !self.cache.is_by_identity() {
            self.cache.see_node(&last, last.summary());
        }
        self.cache.lose_node(&last, version);
        if let Some(entry) = self.cache.get(&under).filter(|_| !was_contested && !is_settled) {
            self.planner.deleted(last, entry, self.queue.is_unsettled(&under));
        }
        self.heard(Resource::Nodes, version);
        self.consider(&under, None, true, false);
        self.consider_left();
    }

    /// A watch tells of a Node that is in no entry of this shard, or in none any more, whether it is there or not.
    pub(super) fn elsewhere(&mut self, node: Elsewhere<'_>) {
        self.heard(Resource::Nodes, node.version);
        self.cache.see_elsewhere(node, self.informers.is_listing());
        self.consider_left();
    }

    /// Decides about entries whose Nodes have just gone elsewhere.
    pub(super) fn consider_left(&mut self) {
        for entry in self.cache.take_left() {
            self.consider(&entry, None, true, false);
        }
    }
}
