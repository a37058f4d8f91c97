//! What follows from it that records may be filed under something else than a name: Nodes move from entry to entry, several have the
//! same identity, or some have none.

use std::collections::HashMap;

use label_storage::summary::UidDigest;
use label_storage::{Node, ResourceVersion};

use super::{Engine, Planner};
use crate::api_source::Resource;
use crate::cache::{Cache, Elsewhere, Entry};
use crate::record_key::RecordKey;
use crate::recorder::EventRecorder;

/// Among so many claimants every change is told at once. More have something for an identity that is none, such as a zone: a list
/// tells of all of them.
const FEW: usize = 16;

/// So many names are in a line of the log.
const NAMED: usize = 5;

impl<P: Planner> Engine<'_, P> {
    /// A Node was deleted, and looked like this just before.
    pub(super) fn deleted(&mut self, last: Node) {
        let (under, version) = (last.filed_under().to_owned(), last.version);
        // Where others claimed the same, nobody knows whose labels belong in the record.
        let was_contested = self.cache.get(&under).is_some_and(|entry| entry.had_others(&last.name, version));
        // A replica before this one has dealt with it.
        let is_settled = self.resumed.as_ref().is_some_and(|resumed| resumed.is_settled(&under, version));
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

/// Rows that several Nodes claim.
#[derive(Default)]
pub(super) struct Contests {
    /// Who was said to claim each of them.
    told: HashMap<RecordKey, Vec<(RecordKey, UidDigest)>>,
}

impl Contests {
    /// Takes note of a entry that is contested. `heard`: how far the watch of Nodes has come. A claimant that it has not come to may
    /// have followed upon another that is gone: nothing is said before that is certain.
    pub(super) fn note(&mut self, entry: &Entry, heard: Option<ResourceVersion>, events: &EventRecorder) {
        let told = self.told.entry(RecordKey::clone(entry.key())).or_default();
        let is_told_of = |version| heard.is_some_and(|heard| version <= heard);
        if entry.nodes() <= FEW && entry.claimants().all(|(_, _, version)| is_told_of(version)) {
            tell(entry, told, events);
        }
    }

    /// Takes note that a entry is not contested, and says whether it was.
    pub(super) fn settle(&mut self, name: &str) -> bool {
        // Nearly always.
        if self.told.is_empty() {
            return false;
        }
        let told = self.told.remove(name);
        if told.as_ref().is_some_and(|told| !told.is_empty()) {
            tracing::info!(identity = name, "one node has this identity again");
        }
        told.is_some()
    }

    /// A complete list has told who is there.
    pub(super) fn listed(&mut self, cache: &Cache, events: &EventRecorder) {
        self.told.retain(|name, told| {
            let entry = cache.get(name).filter(|entry| entry.is_contested());
            entry.inspect(|entry| tell(entry, told, events)).is_some()
        });
    }

    /// Forgets all of them.
    pub(super) fn start_over(&mut self) {
        self.told.clear();
    }
}

/// Tells all claimants of each other, unless that was done.
fn tell(entry: &Entry, told: &mut Vec<(RecordKey, UidDigest)>, events: &EventRecorder) {
    let mut present: Vec<_> = entry.claimants().map(|(name, uid, _)| (RecordKey::clone(name), uid)).collect();
    present.sort_by(|(one, _), (other, _)| one.cmp(other));
    if *told == present {
        return;
    }
    let names: Vec<&str> = present.iter().map(|(name, _)| &**name).collect();
    tracing::warn!(
        identity = &**entry.key(),
        nodes = names.len(),
        examples = ?&names[..names.len().min(NAMED)],
        "several nodes have the same identity: none of them is stored or restored until that is resolved"
    );
    for (name, uid) in &present {
        events.contested(name, *uid, entry.key(), &names);
    }
    *told = present;
}
