//! Decides about leases by how long this process has seen each of them unrenewed.
//!
//! Clocks of different machines are never compared. A process that was suspended for an hour, or cut off from the API
//! server, has not seen that time: only looks that followed each other closely count.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use label_storage::ResourceVersion;

use super::{All, LIFETIME, RENEWAL, SeenLease, Shard};

/// A missing lease is left to its home for this long: when all replicas start together, there are no leases.
pub(crate) const ABSENCE: Duration = Duration::from_secs(1);

/// Two lists further apart than this show nothing about the time between them. When an outage begins, the last renewal of a lease is at most
/// [`RENEWAL`] ago, so no lease ends in a shorter outage.
const APART: Duration = LIFETIME.saturating_sub(RENEWAL);

#[derive(Debug, Clone)]
pub(crate) struct Me {
    /// The holder in its leases.
    pub(crate) identity: String,
    /// Its own shard. A pod whose ordinal is N or more has none: no such shard exists then.
    pub(crate) home: Shard,
}

impl Me {
    pub(crate) fn is_anothers(&self, seen: &SeenLease) -> bool {
        seen.claim.holder.as_ref().is_some_and(|holder| *holder != self.identity)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseAction {
    Renew,
    Take,
    Leave,
}

/// Decides about a lease that has not changed for this long. A missing one is left to its home until `absence` is over.
pub(crate) fn decide(
    me: &Me,
    shard: Shard,
    seen: Option<&SeenLease>,
    unchanged_for: Duration,
    absence: Duration,
) -> LeaseAction {
    let is_home = shard == me.home;
    let Some(claim) = seen.map(|seen| &seen.claim) else {
        return if is_home || unchanged_for >= absence { LeaseAction::Take } else { LeaseAction::Leave };
    };
    match &claim.holder {
        None => LeaseAction::Take,
        Some(holder) if *holder == me.identity => LeaseAction::Renew,
        // An adopter notices when it renews the lease. Until then both work, which does no harm.
        Some(_) if is_home && claim.home != Some(me.home.index) => LeaseAction::Take,
        Some(_) if unchanged_for >= LIFETIME => LeaseAction::Take,
        Some(_) => LeaseAction::Leave,
    }
}

#[derive(Debug, Default)]
pub(crate) struct LeaseTracker {
    seen: BTreeMap<Shard, Unchanged>,
    /// The last look: a list, or a renewal that the watch reported.
    pub(crate) last: Option<Instant>,
}

#[derive(Debug)]
struct Unchanged {
    /// `None` if there is no lease.
    version: Option<ResourceVersion>,
    since: Instant,
    /// True if this process saw it change: a version that was only found may be that of a holder that is gone.
    has_changed: bool,
}

impl LeaseTracker {
    /// Notes a list of all leases.
    pub(crate) fn look(&mut self, all: &All, expected: impl Iterator<Item = Shard>, now: Instant) {
        if !self.has_looked(now) {
            self.seen.clear();
        }
        self.last = Some(now);
        let found = all.iter().map(|(shard, seen)| (*shard, seen.version()));
        let versions: BTreeMap<_, _> = expected.map(|shard| (shard, None)).chain(found).collect();
        self.seen.retain(|shard, _| versions.contains_key(shard));
        for (shard, version) in versions {
            let found = Unchanged { version, since: now, has_changed: false };
            let seen = self.seen.entry(shard).or_insert(found);
            if seen.version != version {
                *seen = Unchanged { version, since: now, has_changed: true };
            }
        }
    }

    /// Notes a change that the watch reported. It is a look at all leases: events come in order.
    pub(crate) fn changed(&mut self, shard: Shard, version: Option<ResourceVersion>, now: Instant) {
        let has_looked = self.has_looked(now);
        // A watch may begin, or be, behind the last list.
        if let Some(seen) = self.seen.get_mut(&shard).filter(|seen| has_looked && seen.version < version) {
            *seen = Unchanged { version, since: now, has_changed: true };
            self.last = Some(now);
        }
    }

    fn has_looked(&self, now: Instant) -> bool {
        self.last.is_some_and(|last| now.duration_since(last) <= APART)
    }

    /// The time at which a lease can be adopted, unless it is renewed.
    pub(crate) fn ends_at(&self, shard: Shard) -> Option<Instant> {
        self.seen.get(&shard).map(|seen| seen.since + LIFETIME)
    }

    /// The time for which a lease has had the same version, or been missing.
    pub(crate) fn unchanged_for(&self, shard: Shard, now: Instant) -> Duration {
        self.seen.get(&shard).map(|seen| now.duration_since(seen.since)).unwrap_or_default()
    }

    /// True if a lease was seen to change within its lifetime.
    pub(crate) fn is_renewed(&self, shard: Shard, now: Instant) -> bool {
        self.seen.get(&shard).is_some_and(|seen| seen.has_changed)
            && self.unchanged_for(shard, now) < LIFETIME
    }
}
