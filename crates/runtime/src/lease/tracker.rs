//! Keeping an eye on leases: for how long this process has seen each of them unrenewed, and what follows.
//!
//! Clocks of different machines are never compared. What counts is how long *this* process has seen the same version,
//! in looks that followed each other closely: one that was suspended for an hour, or cut off from the API server, knows
//! nothing of that time, and must not conclude that nobody has renewed anything.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use label_storage::ResourceVersion;

use super::{All, LIFETIME, Seen, Shard};

/// A lease that was never there is left to its home for this long: replicas that start together find none at all.
pub(crate) const ABSENCE: Duration = Duration::from_secs(1);

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) struct Me {
    /// The name that stands in a lease.
    pub(crate) identity: String,
    /// The shard that it was started for, and of how many there are now. There is no such shard if the index is too large.
    pub(crate) home: Shard,
}

/// What to do about a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is ours: renew it.
    Renew,
    /// It should be ours: take it.
    Take,
    /// It is somebody else's.
    Leave,
}

/// Decides about a lease that has not changed for this long. One that is not there is left to its home until `absence` is over.
pub(crate) fn decide(
    me: &Me,
    shard: &Shard,
    seen: Option<&Seen>,
    unchanged_for: Duration,
    absence: Duration,
) -> Step {
    let is_home = *shard == me.home;
    let Some(claim) = seen.map(|seen| &seen.claim) else {
        return if is_home || unchanged_for >= absence { Step::Take } else { Step::Leave };
    };
    match &claim.holder {
        None => Step::Take,
        Some(holder) if *holder == me.identity => Step::Renew,
        // An adopter notices when it renews the lease. Until then both work, which does no harm.
        Some(_) if is_home && claim.home != Some(me.home.index) => Step::Take,
        Some(_) if unchanged_for >= LIFETIME => Step::Take,
        Some(_) => Step::Leave,
    }
}

/// What was seen of each lease, and since when.
#[derive(Debug, Default)]
pub(crate) struct LeaseTracker {
    seen: BTreeMap<Shard, Unchanged>,
    last: Option<Instant>,
}

#[derive(Debug)]
struct Unchanged {
    version: Option<ResourceVersion>,
    since: Instant,
    /// True if it was seen to change: a version that was only found may be that of a holder that is gone.
    has_changed: bool,
}

impl LeaseTracker {
    /// A look at all leases, which there is this often. Looks that are much further apart tell nothing of the time between them.
    pub(crate) fn look(
        &mut self,
        all: &All,
        expected: impl Iterator<Item = Shard>,
        every: Duration,
        now: Instant,
    ) {
        if self.last.replace(now).is_none_or(|last| now.duration_since(last) > every * 4) {
            self.seen.clear();
        }
        let versions: BTreeMap<_, _> = expected
            .map(|shard| (shard, None))
            .chain(all.iter().map(|(shard, seen)| (shard.clone(), seen.version())))
            .collect();
        self.seen.retain(|shard, _| versions.contains_key(shard));
        for (shard, version) in versions {
            let found = Unchanged { version, since: now, has_changed: false };
            let seen = self.seen.entry(shard).or_insert(found);
            if seen.version != version {
                *seen = Unchanged { version, since: now, has_changed: true };
            }
        }
    }

    /// Whether nobody has looked yet.
    pub(crate) fn is_new(&self) -> bool {
        self.last.is_none()
    }

    /// For how long a lease has looked the same, or been absent.
    pub(crate) fn unchanged_for(&self, shard: &Shard, now: Instant) -> Duration {
        self.seen.get(shard).map(|seen| now.duration_since(seen.since)).unwrap_or_default()
    }

    /// True if a lease was seen to change within its lifetime.
    pub(crate) fn is_renewed(&self, shard: &Shard, now: Instant) -> bool {
        self.seen.get(shard).is_some_and(|seen| seen.has_changed) && self.unchanged_for(shard, now) < LIFETIME
    }
}
