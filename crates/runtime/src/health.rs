//! Whether a replica is alive, and whether it is ready: what a kubelet asks, and what follows if the answer is no.
//!
//! - *Not alive* is killed and started again. So it means that a loop stands still, which only that can mend; never that the
//!   API server is down, where a restart would make things worse.
//! - *Not ready* holds up a rolling update. So it means that this replica does not do its work yet, or can't.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::lease::LIFETIME;

/// A loop that has not turned for so long stands still: none waits for anything longer than a sixth of it.
const STANDSTILL: Duration = Duration::from_secs(60);

/// How often a loop has to turn at least.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(10);

/// What is known of a process's own state.
#[derive(Debug, Default)]
pub(crate) struct Health {
    pulses: Mutex<Pulses>,
    has_listed: AtomicBool,
    is_ending: AtomicBool,
    /// When the leases were last read or written; `None` where there are none to keep.
    leases: Mutex<Option<Leases>>,
}

#[derive(Debug, Default)]
struct Pulses {
    begun: u64,
    last: BTreeMap<u64, (String, Instant)>,
}

#[derive(Debug, Clone, Copy)]
struct Leases {
    kept_at: Option<Instant>,
    held: usize,
}

impl Health {
    /// A loop begins, and ends when this is dropped.
    pub(crate) fn pulse(self: &Arc<Self>, name: impl Into<String>) -> Pulse {
        let mut pulses = lock(&self.pulses);
        pulses.begun += 1;
        let number = pulses.begun;
        pulses.last.insert(number, (name.into(), Instant::now()));
        Pulse { number, health: Arc::clone(self) }
    }

    /// All Nodes and records of a shard have been listed.
    pub(crate) fn listed(&self) {
        self.has_listed.store(true, Ordering::Relaxed);
    }

    /// The end was asked for.
    pub(crate) fn ending(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// There are leases to be kept.
    pub(crate) fn keeps_leases(&self) {
        lock(&self.leases).get_or_insert(Leases { kept_at: None, held: 0 });
    }

    /// The leases have just been read or written, and so many are held.
    pub(crate) fn kept_leases(&self, held: usize) {
        *lock(&self.leases) = Some(Leases { kept_at: Some(Instant::now()), held });
    }

    /// What keeps it from being alive.
    pub(crate) fn what_is_dead(&self, now: Instant) -> Vec<String> {
        let pulses = lock(&self.pulses);
        let dead = pulses.last.values().filter_map(|(name, last)| {
            let still = now.saturating_duration_since(*last);
            (still > STANDSTILL).then(|| format!("{name} has stood still for {} s", still.as_secs()))
        });
        dead.collect()
    }

    /// What keeps it from being ready.
    pub(crate) fn what_is_not_ready(&self, now: Instant) -> Vec<String> {
        let mut reasons = self.what_is_dead(now);
        if self.is_ending.load(Ordering::Relaxed) {
            reasons.push("it is about to end".to_owned());
        }
        if let Some(leases) = *lock(&self.leases) {
            match leases.kept_at.map(|at| now.saturating_duration_since(at)) {
                None => reasons.push("no lease was read yet".to_owned()),
                Some(since) if since > LIFETIME => {
                    reasons.push(format!("leases can't be kept, for {} s now", since.as_secs()));
                }
                Some(_) if leases.held == 0 => reasons.push("no shard is held yet".to_owned()),
                Some(_) => (),
            }
        }
        if !self.has_listed.load(Ordering::Relaxed) {
            reasons.push("nodes and records have not been listed yet".to_owned());
        }
        reasons
    }
}

/// A loop that turns.
#[derive(Debug)]
pub(crate) struct Pulse {
    number: u64,
    health: Arc<Health>,
}

impl Pulse {
    /// It has turned.
    pub(crate) fn beat(&self) {
        if let Some((_, last)) = lock(&self.health.pulses).last.get_mut(&self.number) {
            *last = Instant::now();
        }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        lock(&self.health.pulses).last.remove(&self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_stands_still_is_dead_and_one_that_has_ended_is_not() {
        let health = Arc::new(Health::default());
        let (keeper, engine) = (health.pulse("the keeper"), health.pulse("shard 3"));
        let later = Instant::now() + STANDSTILL + Duration::from_secs(5);
        assert_eq!(health.what_is_dead(Instant::now()), Vec::<String>::new());
        let dead = health.what_is_dead(later);
        assert_eq!(dead, ["the keeper has stood still for 65 s", "shard 3 has stood still for 65 s"]);
        drop(engine);
        assert_eq!(health.what_is_dead(later).len(), 1);
        drop(keeper);
        assert_eq!(health.what_is_dead(later), Vec::<String>::new());
    }

    #[test]
    fn ready_is_who_has_listed_and_keeps_leases() {
        let health = Arc::new(Health::default());
        let why =
            |health: &Health, later: Duration| health.what_is_not_ready(Instant::now() + later).join(", ");
        let now = Duration::ZERO;
        assert_eq!(why(&health, now), "nodes and records have not been listed yet");
        health.listed();
        assert_eq!(why(&health, now), "", "a dry run has no leases");
        health.keeps_leases();
        assert_eq!(why(&health, now), "no lease was read yet");
        health.kept_leases(0);
        assert_eq!(why(&health, now), "no shard is held yet");
        health.kept_leases(1);
        health.keeps_leases();
        assert_eq!(why(&health, now), "");
        assert_eq!(why(&health, LIFETIME * 2), "leases can't be kept, for 30 s now");
        health.ending();
        assert_eq!(why(&health, now), "it is about to end");
    }
}
