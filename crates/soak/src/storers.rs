//! How far the storers of each shard have come, and what the API server had forgotten on their way.
//!
//! A storer publishes in its Lease the version up to which no deletion is left to be stored. A deletion before that which nobody has
//! stored is lost. It is excused only if the API server, or the proxy in its place, answered 410 to the very storer that holds the
//! Lease, and the deletion lies between the version that it asked for and the one from which it went on.

use std::collections::BTreeMap;
use std::time::Instant;

use label_storage::{Position, ResourceVersion, shard};
use label_storage_runtime::lease::LIFETIME;

use crate::object::{SeenLease, Shard};

/// What became of a deletion whose last labels nobody has stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Passage {
    /// A storer still has to store it, or to hear of it.
    Ahead,
    /// All storers of its shard are past it, and the API server had forgotten it.
    Forgotten,
    /// All storers of its shard are past it, and this one had no reason to be.
    Skipped(String),
}

/// The storers' Leases, and the answers that they were given.
#[derive(Debug, Default)]
pub(crate) struct Storers {
    leases: BTreeMap<Shard, Lease>,
    /// By the name of the storer. A process that works on several shards has one watch for each, which can't be told apart.
    gaps: BTreeMap<String, Vec<Gap>>,
    /// The version that each storer last asked for.
    asked: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct Lease {
    /// Who wrote it last.
    holder: String,
    is_released: bool,
    /// When it was written last.
    written: Instant,
    /// What its holder began with: what came before that is another's affair.
    began_at: u64,
    position: Position,
    /// What the API server had forgotten before it came to its position.
    forgotten: Vec<Gap>,
}

impl Lease {
    /// False if nobody may work on the shard any more, as where there is another number of replicas by now.
    fn is_current(&self, now: Instant) -> bool {
        now.duration_since(self.written) < LIFETIME
    }

    fn has_forgotten(&self, deletion: u64) -> bool {
        self.forgotten.iter().any(|gap| gap.has(deletion))
    }
}

/// What the API server has forgotten, as a storer was told.
#[derive(Debug, Clone, Copy)]
struct Gap {
    /// The version that the storer asked for, and was answered 410.
    after: u64,
    /// The version from which it went on. Nothing while it has not.
    until: Option<u64>,
}

impl Gap {
    fn has(self, deletion: u64) -> bool {
        self.after < deletion && self.until.is_none_or(|until| deletion <= until)
    }
}

impl Storers {
    /// A storer asks to watch Nodes from this version on.
    pub(crate) fn asked(&mut self, storer: &str, version: u64, now: Instant) {
        self.asked.insert(storer.to_owned(), version);
        // One of several watches may not be the one that was refused. Then the Leases tell how far that one came. A Lease that could not be
        // renewed for a while counts, too: its engine goes on, and so does its watch.
        let is_its_own = |lease: &&Lease| lease.holder == storer && !lease.is_released;
        let is_recent = |lease: &&Lease| now.duration_since(lease.written) < LIFETIME * 4;
        if self.leases.values().filter(is_its_own).filter(is_recent).count() > 1 {
            return;
        }
        let Some(gaps) = self.gaps.get_mut(storer) else { return };
        // Asked for again, as by a successor: it is not forgotten until that is answered.
        gaps.retain(|gap| gap.until.is_some() || gap.after < version);
        for gap in gaps.iter_mut().filter(|gap| gap.until.is_none()) {
            gap.until = Some(version);
        }
    }

    /// This storer was answered 410 to that.
    pub(crate) fn expired(&mut self, storer: &str, version: u64) {
        self.gaps.entry(storer.to_owned()).or_default().push(Gap { after: version, until: None });
    }

    /// A Lease was written, and with it how far its holder has come.
    pub(crate) fn lease_written(&mut self, shard: Shard, seen: SeenLease, now: Instant) {
        let before = self.leases.remove(&shard);
        let is_released = seen.holder.is_none();
        // It is released by who held it.
        let holder = seen.holder.or_else(|| before.as_ref().map(|lease| lease.holder.clone()));
        let (Some(holder), Some(position)) = (holder, seen.position) else { return };
        let same = before.filter(|lease| lease.holder == holder && !lease.is_released);
        let version = position.version.0;
        let began_at = same.map_or(version, |lease| lease.began_at);
        let gaps = self.gaps.get(&holder).into_iter().flatten().filter(|gap| gap.after < version);
        let forgotten = gaps.map(|gap| Gap { until: gap.until.or(Some(version)), ..*gap }).collect();
        let lease =
            Lease { holder: holder.clone(), is_released, written: now, began_at, position, forgotten };
        self.leases.insert(shard, lease);
        self.close_gaps(&holder, now);
    }

    /// A storer that is past a gap with all of its shards has gone on from there, at the latest.
    fn close_gaps(&mut self, storer: &str, now: Instant) {
        let positions: Vec<_> = self.held_by(storer, now).map(|lease| lease.position.version.0).collect();
        let (Some(least), Some(most)) = (positions.iter().min(), positions.iter().max()) else { return };
        for gap in self.gaps.get_mut(storer).into_iter().flatten() {
            if gap.until.is_none() && gap.after < *least {
                gap.until = Some(*most);
            }
        }
    }

    fn held_by<'a>(&'a self, storer: &'a str, now: Instant) -> impl Iterator<Item = &'a Lease> {
        let is_held = move |lease: &&Lease| !lease.is_released && lease.is_current(now);
        self.leases.values().filter(move |lease| lease.holder == storer).filter(is_held)
    }

    /// What became of a deletion that nobody has stored, by what the Node is filed under.
    pub(crate) fn passage(&self, node: &str, deletion: u64, now: Instant) -> Passage {
        let leases: Vec<_> = self.responsible(node, deletion, now).collect();
        let is_settled = |lease: &&Lease| lease.position.is_settled(node, ResourceVersion(deletion));
        if leases.is_empty() || !leases.iter().all(is_settled) {
            return Passage::Ahead;
        }
        match leases.iter().find(|lease| !lease.has_forgotten(deletion)) {
            Some(lease) => Passage::Skipped(lease.holder.clone()),
            None => Passage::Forgotten,
        }
    }

    /// True if all storers of this Node watch from after this deletion, and were not told that it is forgotten. Then they have heard
    /// of it, and have to store it before anything else of that Node, or they have skipped it.
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

    /// Of the storers that handle this Node, those that were there before this deletion. While the number of replicas changes there
    /// are several.
    fn responsible(&self, node: &str, deletion: u64, now: Instant) -> impl Iterator<Item = &Lease> {
        let is_responsible = move |((index, replicas), lease): &(&Shard, &Lease)| {
            shard(node, *replicas) == *index && lease.is_current(now) && lease.began_at < deletion
        };
        self.leases.iter().filter(is_responsible).map(|(_, lease)| lease)
    }
}

#[cfg(test)]
mod tests;
