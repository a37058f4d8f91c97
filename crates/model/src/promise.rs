//! The promises of the protocol, and the checks that find a broken one.
//!
//! A promise is taken back exactly in the cases that stay open in `docs/guarantees.md`:
//!
//! - A value is promised once it has been stored, or is on the Node and in its record with no write under way. A person who
//!   changes or removes it takes the promise back.
//! - A removal is promised if the labels of the Node were authoritative then (the record is of that incarnation or was restored to
//!   it, or there is none and no deletion of an earlier incarnation with that label is still to be stored). It is taken back
//!   when the Node is re-created before the removal was stored, and when the record's labels change to those of an earlier
//!   incarnation before it was ("removed between two restores").
//! - A *changed* value is not promised if the next incarnation was restored from the record of before, by a restorer that had not
//!   received the deletion: no daemon overwrites the older value that it was given.

use std::fmt;

use crate::protocol::Protocol;
use crate::world::{Action, KEYS, Labels, Name, Node, Patch, Promise, Record, Removal, Storing, Write};

/// A promise that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Property {
    /// A stored label is lost.
    Lost,
    /// A removed label comes back.
    CameBack,
    /// A daemon overwrites a label, or sets one that is another Node's.
    Overwritten,
    /// A record goes back in its Node's history.
    WentBack,
    /// A Node was deleted while storers watched, and its final labels are not in its record.
    Unheard,
    /// A restorer that has received a deletion restores other labels than the Node had then.
    Outdated,
    /// No daemon has anything left to do, and record and Node differ; or the daemons never finish.
    Unsettled,
}

impl Property {
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Lost, "a stored label is never lost"),
        (Self::CameBack, "a removed label never comes back"),
        (Self::Overwritten, "a label on a node is never overwritten by a daemon"),
        (Self::WentBack, "a record never goes back in its node's history"),
        (Self::Unheard, "the final labels of a node are stored while storers watch"),
        (Self::Outdated, "a restorer that has received a deletion restores the final labels"),
        (Self::Unsettled, "all daemons finish their work, and then node and record agree"),
    ];
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let promise = Self::ALL.iter().find(|(property, _)| property == self);
        f.write_str(promise.map_or("", |(_, promise)| promise))
    }
}

/// More writes than any history within the bounds needs.
const MOST_GENERATIONS: u8 = 40;

impl Name {
    /// A person, a controller or a kubelet sets or removes labels on the Node.
    pub(crate) fn labels_change(&mut self, at: usize, labels: Labels, protocol: &Protocol) {
        let Some(node) = self.node else { return };
        for (key, value) in labels.into_iter().enumerate().filter(|(key, value)| node.labels[*key] != *value)
        {
            let removed = value == 0 && self.is_authority(at, node, key, protocol);
            let removed = removed.then_some(Removal { uid: node.uid, is_stored: false });
            self.promises[key] = Promise { changed_at: self.version, removed, ..Promise::default() };
        }
        self.node = Some(Node { labels, version: self.version, ..node });
    }

    fn is_authority(&self, at: usize, node: Node, key: usize, protocol: &Protocol) -> bool {
        let Some(record) = self.record else {
            let is_earlier = |view: &Node| view.uid < node.uid && view.labels[key] > 0;
            let unheard =
                self.storers.iter().map(|storer| usize::from(storer.watcher.heard)).min().unwrap_or(0);
            let unheard = self.events[unheard..].iter().flatten().map(|event| event.last);
            let kept = self.storers.iter().flat_map(|storer| storer.watcher.final_labels).flatten();
            let writes = self.writes().filter_map(|write| write.view);
            return !unheard.chain(kept).chain(writes).any(|view| is_earlier(&view));
        };
        protocol.is_authority(at, node, record)
    }

    fn writes(&self) -> impl Iterator<Item = Write> + use<'_> {
        let sent = self.storers.iter().filter_map(|storer| match storer.job {
            Storing::Sent(write) => Some(write),
            _ => None,
        });
        sent.chain(self.late_write)
    }

    /// The Node is about to be deleted. Its final labels must be stored if they are authoritative.
    pub(crate) fn node_deleted(&mut self, at: usize, node: Node, protocol: &Protocol) {
        let counts = (0..KEYS).all(|key| self.is_authority(at, node, key, protocol));
        self.last_said = counts.then_some(node.labels);
        // A restorer does not keep that a Node had no labels if no record is known: most Nodes without labels never had one.
        let is_kept = counts && (self.record.is_some() || node.labels != [0; KEYS]);
        self.before = is_kept.then_some((node.uid, node.labels));
    }

    /// A person has edited the record, or deleted it (`None`): the Node is restored with these labels.
    pub(crate) fn record_is_edited(&mut self, labels: Option<Labels>) {
        (self.last_said, self.before) = (None, None);
        for (key, promise) in self.promises.iter_mut().enumerate() {
            let kept = labels.map_or(0, |labels| labels[key]);
            let removed = (kept == 0).then_some(Removal { uid: self.uids, is_stored: true });
            *promise = Promise { kept, changed_at: self.version, given_to: 0, removed };
        }
    }

    /// A new incarnation is created: labels whose removal is not stored may come back.
    pub(crate) fn node_created(&mut self) {
        self.last_said = None;
        for promise in &mut self.promises {
            promise.removed = promise.removed.filter(|removal| removal.is_stored);
        }
    }

    /// A write of the record is being carried out.
    pub(crate) fn record_changes(&mut self, write: &Write) -> Result<(), Property> {
        let (Action::Create(next) | Action::Replace(next)) = write.action else { return Ok(()) };
        // An empty record of no incarnation claims nothing about the Node.
        if next.is_tombstone() {
            return Ok(());
        }
        if next.version < self.newest {
            return Err(Property::WentBack);
        }
        if next.generation > MOST_GENERATIONS {
            return Err(Property::Unsettled);
        }
        self.newest = next.version;
        // The record had the final labels, and a write from before replaces them: a restorer has not kept them.
        let (had, has) = (self.record.map(|record| record.labels), Some(next.labels));
        self.before = self.before.filter(|(_, labels)| had != Some(*labels) || has == had);
        self.take_back_between_restores(&next);
        let Some(view) = write.view else { return Ok(()) };
        for (key, promise) in self.promises.iter_mut().enumerate() {
            if view.version < promise.changed_at {
                continue;
            }
            // A later incarnation may have an older value already, which no daemon overwrites.
            let is_in_time = promise.given_to <= view.uid;
            if promise.kept == 0 && is_in_time {
                promise.kept = view.labels[key];
            }
            if let Some(removal) = &mut promise.removed
                && removal.uid == view.uid
                && self.uids == view.uid
                && next.labels[key] == 0
            {
                removal.is_stored = true;
            }
        }
        Ok(())
    }

    /// The labels of an earlier incarnation are stored late: the record that the last one was restored from lacked them.
    fn take_back_between_restores(&mut self, next: &Record) {
        let is_late = next.uid < self.uids && self.record.is_some_and(|record| next.labels != record.labels);
        if is_late {
            self.last_said = None;
            // The record lacked the labels of an incarnation before that one.
            self.before = self.before.filter(|(uid, _)| next.uid >= *uid);
            let last = self.uids;
            for promise in &mut self.promises {
                promise.removed = promise.removed.filter(|removal| removal.is_stored || removal.uid != last);
            }
        }
    }

    /// A patch adds labels to a Node.
    pub(crate) fn node_is_patched(&mut self, node: &Node, patch: &Patch) -> Result<(), Property> {
        let labels = &patch.labels;
        let before = self.before.filter(|_| !patch.is_blind).map(|(_, labels)| labels);
        // Others may have changed labels since an earlier restore.
        let is_first = node.marker.is_none_or(|marker| marker.uid != node.uid);
        let is_wrong =
            |before: Labels| (0..KEYS).any(|key| node.labels[key] == 0 && labels[key] != before[key]);
        if is_first && before.is_some_and(is_wrong) {
            return Err(Property::Outdated);
        }
        for key in (0..KEYS).filter(|key| labels[*key] > 0) {
            if labels[key] == u8::MAX || (node.labels[key] > 0 && node.labels[key] != labels[key]) {
                return Err(Property::Overwritten);
            }
            let promise = &mut self.promises[key];
            if promise.removed.is_some() {
                return Err(Property::CameBack);
            }
            if before.is_some() {
                continue;
            }
            promise.given_to = node.uid;
            let is_outrun = self.record.is_some_and(|record| {
                patch.object != record.object || patch.generation < record.labels_generation
            });
            if is_outrun && promise.kept != labels[key] {
                promise.kept = 0;
            }
        }
        Ok(())
    }

    /// A value that is on the Node and in its record, with no write under way, counts as stored.
    pub(crate) fn promise_what_is_settled(&mut self) {
        let is_under_way = self.writes().next().is_some();
        if let (Some(node), Some(record), false) = (self.node, self.record, is_under_way)
            && node.uid == record.uid
        {
            for (key, promise) in self.promises.iter_mut().enumerate() {
                if promise.kept == 0 && node.labels[key] == record.labels[key] {
                    promise.kept = node.labels[key];
                }
            }
        }
    }

    /// Checks the promises about a world in which no daemon has anything left to do.
    pub(crate) fn check_at_rest(&self) -> Result<(), Property> {
        let Some(node) = self.node else {
            let stored = self.record.map_or([0; KEYS], |record| record.labels);
            if self.last_said.is_some_and(|labels| labels != stored) {
                return Err(Property::Unheard);
            }
            let is_well = self.record.is_none_or(|record| record.departed || record.labels == [0; KEYS]);
            return if is_well { Ok(()) } else { Err(Property::Unsettled) };
        };
        let is_lost = |key: &usize| {
            let kept = self.promises[*key].kept;
            kept > 0 && kept != node.labels[*key]
        };
        if (0..KEYS).any(|key| is_lost(&key)) {
            return Err(Property::Lost);
        }
        let agrees = match self.record {
            None => node.labels == [0; KEYS],
            Some(record) => record.uid == node.uid && record.labels == node.labels && !record.departed,
        };
        // An empty record is about to be deleted, whichever incarnation it is of.
        let is_empty =
            self.record.is_some_and(|record| record.labels == node.labels && node.labels == [0; KEYS]);
        if agrees || is_empty { Ok(()) } else { Err(Property::Unsettled) }
    }
}
