//! The positions of the storers of each shard, and the parts of the history that the API server had dropped before them.
//!
//! A storer publishes in its Lease the version up to which no deletion is left to be stored. A deletion before that which is not stored
//! is lost. The loss is excused only if the API server, or the proxy in its place, answered 410 to the storer that holds the Lease, and the
//! deletion lies between the version that the storer requested and the one from which it continued.

use std::collections::BTreeMap;
use std::time::Instant;

use label_storage::{Position, ResourceVersion, shard};
use label_storage_runtime::lease::LIFETIME;

use crate::object::{SeenLease, Shard};

/// The state of a deletion whose final labels are not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Passage {
    /// A storer still has to store it, or to receive it.
    Ahead,
    /// All storers of its shard are past it, and the API server had dropped it.
    Forgotten,
    /// All storers of its shard are past it, and this one had no reason to skip it.
    Skipped(String),
    /// No storer has to store it any more: the one that had to was replaced, and had published that it was past it.
    Unclaimed,
}

/// The storers' Leases, and the watches that they requested.
#[derive(Debug, Default)]
pub(crate) struct Storers {
    leases: BTreeMap<Shard, Lease>,
    /// By the name of the storer. A process that holds several shards has a watch for each, which can't be told apart.
    gaps: BTreeMap<String, Vec<Gap>>,
    /// The version that each storer last requested.
    asked: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct Lease {
    /// The last holder that wrote it.
    holder: String,
    is_released: bool,
    /// The time of its last write.
    written: Instant,
    /// The position from which its holder has to go on: that of the holder before. Deletions that were settled then are not its own.
    began: Position,
    position: Position,
    /// The gaps in the history before its position.
    forgotten: Vec<Gap>,
}

impl Lease {
    /// False if the shard may have no holder any more, for example because the number of replicas has changed.
    fn is_current(&self, now: Instant) -> bool {
        now.duration_since(self.written) < LIFETIME
    }

    fn has_forgotten(&self, deletion: u64) -> bool {
        self.forgotten.iter().any(|gap| gap.has(deletion))
    }
}

/// A part of the history that the API server had dropped when a storer requested it.
#[derive(Debug, Clone, Copy)]
struct Gap {
    /// The version that the storer requested, with the answer 410.
    after: u64,
    /// The version from which it continued; `None` until then.
    until: Option<u64>,
}

impl Gap {
    fn has(self, deletion: u64) -> bool {
        self.after < deletion && self.until.is_none_or(|until| deletion <= until)
    }
}

impl Storers {
    /// A storer requests a watch of Nodes from this version on.
    pub(crate) fn asked(&mut self, storer: &str, version: u64, now: Instant) {
        self.asked.insert(storer.to_owned(), version);
        // If the storer has several watches, this may not be the one that was refused. Then the positions in the Leases show its progress. A
        // Lease that was not renewed for a while counts, too, because its engine and its watch continue.
        let is_its_own = |lease: &&Lease| lease.holder == storer && !lease.is_released;
        let is_recent = |lease: &&Lease| now.duration_since(lease.written) < LIFETIME * 4;
        if self.leases.values().filter(is_its_own).filter(is_recent).count() > 1 {
            return;
        }
        let Some(gaps) = self.gaps.get_mut(storer) else { return };
        // The version is requested again, as by a successor. It counts as available until the answer.
        gaps.retain(|gap| gap.until.is_some() || gap.after < version);
        for gap in gaps.iter_mut().filter(|gap| gap.until.is_none()) {
            gap.until = Some(version);
        }
    }

    /// This storer got the answer 410.
    pub(crate) fn expired(&mut self, storer: &str, version: u64) {
        self.gaps.entry(storer.to_owned()).or_default().push(Gap { after: version, until: None });
    }

    /// A Lease was written, with the position of its holder.
    pub(crate) fn lease_written(&mut self, shard: Shard, seen: SeenLease, now: Instant) {
        let before = self.leases.remove(&shard);
        let is_released = seen.holder.is_none();
        // Its holder has released it.
        let holder = seen.holder.or_else(|| before.as_ref().map(|lease| lease.holder.clone()));
        let (Some(holder), Some(position)) = (holder, seen.position) else { return };
        let version = position.version.0;
        let began = match before {
            Some(lease) if lease.holder == holder && !lease.is_released => lease.began,
            Some(lease) => lease.position,
            None => position.clone(),
        };
        let gaps = self.gaps.get(&holder).into_iter().flatten().filter(|gap| gap.after < version);
        let forgotten = gaps.map(|gap| Gap { until: gap.until.or(Some(version)), ..*gap }).collect();
        let lease = Lease { holder: holder.clone(), is_released, written: now, began, position, forgotten };
        self.leases.insert(shard, lease);
        self.close_gaps(&holder, now);
    }

    /// Closes a gap once all shards of the storer are past it: the storer has continued from there.
    fn close_gaps(&mut self, storer: &str, now: Instant) {
        let positions: Vec<_> = self.held_by(storer, now).map(|lease| &lease.position).collect();
        // With deletions that are pending, a position is requested from before them, and stays as it is until then.
        let least = positions.iter().map(|position| position.resume_from().0).min();
        let most = positions.iter().map(|position| position.version.0).max();
        for gap in self.gaps.get_mut(storer).into_iter().flatten() {
            if gap.until.is_none() && Some(gap.after) < least {
                gap.until = most;
            }
        }
    }

    fn held_by<'a>(&'a self, storer: &'a str, now: Instant) -> impl Iterator<Item = &'a Lease> {
        let is_held = move |lease: &&Lease| !lease.is_released && lease.is_current(now);
        self.leases.values().filter(move |lease| lease.holder == storer).filter(is_held)
    }

    /// The state of a deletion that is not stored, by the record key of the Node.
    pub(crate) fn passage(&self, node: &str, deletion: u64, now: Instant) -> Passage {
        let leases: Vec<_> = self.responsible(node, deletion, now).collect();
        let is_settled = |lease: &&Lease| lease.position.is_settled(node, ResourceVersion(deletion));
        if leases.is_empty() {
            return Passage::Unclaimed;
        }
        if !leases.iter().all(is_settled) {
            return Passage::Ahead;
        }
        match leases.iter().find(|lease| !lease.has_forgotten(deletion)) {
            Some(lease) => Passage::Skipped(lease.holder.clone()),
            None => Passage::Forgotten,
        }
    }

    /// True if a storer of this Node is past this deletion, because the API server had dropped it. Others may still store it.
    pub(crate) fn is_forgotten(&self, node: &str, deletion: u64, now: Instant) -> bool {
        self.responsible(node, deletion, now).any(|lease| {
            lease.position.is_settled(node, ResourceVersion(deletion)) && lease.has_forgotten(deletion)
        })
    }

    /// True if the API server has dropped this deletion before any storer of this Node could receive it.
    pub(crate) fn is_dropped(&self, node: &str, deletion: u64, now: Instant) -> bool {
        let has_gap = |lease: &Lease| {
            let mut gaps = self.gaps.get(&lease.holder).into_iter().flatten();
            gaps.any(|gap| gap.has(deletion))
        };
        let mut leases = self.responsible(node, deletion, now).peekable();
        leases.peek().is_some() && leases.all(has_gap)
    }

    /// True if all storers of this Node watch from after this deletion, without an answer 410 for it. Then they have received it, and have to
    /// store it before anything else of that Node, or they have skipped it.
    pub(crate) fn have_asked_past(&self, node: &str, deletion: u64, now: Instant) -> bool {
        let is_past = |lease: &Lease| {
            let mut gaps = self.gaps.get(&lease.holder).into_iter().flatten();
            self.held_by(&lease.holder, now).count() == 1
                && self.asked.get(&lease.holder).is_some_and(|version| *version >= deletion)
                && !gaps.any(|gap| gap.has(deletion))
        };
        let mut leases = self.responsible(node, deletion, now).peekable();
        leases.peek().is_some() && leases.all(is_past)
    }

    /// The storers that had to store this deletion when they started, or later. There are several while the number of replicas changes.
    fn responsible(&self, node: &str, deletion: u64, now: Instant) -> impl Iterator<Item = &Lease> {
        let is_responsible = move |((index, replicas), lease): &(&Shard, &Lease)| {
            let is_its_own = !lease.began.is_settled(node, ResourceVersion(deletion));
            shard(node, *replicas) == *index && lease.is_current(now) && is_its_own
        };
        self.leases.iter().filter(is_responsible).map(|(_, lease)| lease)
    }
}

#[cfg(test)]
mod tests;
