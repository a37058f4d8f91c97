//! The answers to a kubelet's probes.
//!
//! - *Not alive* means that a loop makes no progress: the kubelet restarts the container. An API server that is down is no
//!   reason: a restart would make things worse.
//! - *Not ready* means that this replica does not do its work yet, or can't: it holds up a rolling update.

use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::lease::LIFETIME;
use crate::shutdown::Shutdown;

/// A loop that has not turned for this long counts as stuck.
const STANDSTILL: Duration = Duration::from_secs(60);

/// The longest that a loop waits before it turns again.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Health {
    shutdown: Shutdown,
    /// False in a dry run.
    keeps_leases: bool,
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The loops, by name, and the last turn of each. The channel of one that has ended is closed.
    loops: Vec<(String, watch::Receiver<Instant>)>,
    has_listed: bool,
    /// The last time that all leases were read and written, and how many were held.
    kept: Option<(Instant, usize)>,
}

impl Health {
    pub(crate) fn new(shutdown: Shutdown, keeps_leases: bool) -> Self {
        Self { shutdown, keeps_leases, ..Self::default() }
    }

    /// Registers a loop, which sends the time of each turn, until the sender is dropped.
    pub(crate) fn pulse(&self, name: impl Into<String>) -> watch::Sender<Instant> {
        let (pulse, last) = watch::channel(Instant::now());
        self.state.send_modify(|state| {
            state.loops.retain(|(_, last)| last.has_changed().is_ok());
            state.loops.push((name.into(), last));
        });
        pulse
    }

    pub(crate) fn listed(&self) {
        self.state.send_modify(|state| state.has_listed = true);
    }

    pub(crate) fn kept_leases(&self, held: usize) {
        self.state.send_modify(|state| state.kept = Some((Instant::now(), held)));
    }

    pub(crate) fn what_is_dead(&self, now: Instant) -> Vec<String> {
        let state = self.state.borrow();
        let running = state.loops.iter().filter(|(_, last)| last.has_changed().is_ok());
        let dead = running.filter_map(|(name, last)| {
            let still = now.saturating_duration_since(*last.borrow());
            (still > STANDSTILL).then(|| format!("{name} has made no progress for {} s", still.as_secs()))
        });
        dead.collect()
    }

    pub(crate) fn what_is_not_ready(&self, now: Instant) -> Vec<String> {
        let mut reasons = self.what_is_dead(now);
        let state = self.state.borrow();
        if self.shutdown.stop.is_cancelled() {
            reasons.push("the process is stopping".to_owned());
        }
        match state.kept.map(|(at, held)| (now.saturating_duration_since(at), held)) {
            _ if !self.keeps_leases => (),
            None => reasons.push("leases have not been read yet".to_owned()),
            Some((since, _)) if since > LIFETIME => {
                reasons.push(format!("leases have not been renewed for {} s", since.as_secs()));
            }
            Some((_, 0)) => reasons.push("no shard is held yet".to_owned()),
            Some(_) => (),
        }
        if !state.has_listed {
            reasons.push("nodes and records have not been listed yet".to_owned());
        }
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_stands_still_is_dead_and_one_that_has_ended_is_not() {
        let health = Health::default();
        let (keeper, engine) = (health.pulse("the keeper"), health.pulse("shard 3"));
        let later = Instant::now() + STANDSTILL + Duration::from_secs(5);
        assert_eq!(health.what_is_dead(Instant::now()), Vec::<String>::new());
        let dead = health.what_is_dead(later);
        assert_eq!(
            dead,
            ["the keeper has made no progress for 65 s", "shard 3 has made no progress for 65 s"]
        );
        drop(engine);
        assert_eq!(health.what_is_dead(later).len(), 1);
        drop(keeper);
        assert_eq!(health.what_is_dead(later), Vec::<String>::new());
    }

    #[test]
    fn ready_is_who_has_listed_and_keeps_leases() {
        let health = Health::default();
        let why =
            |health: &Health, later: Duration| health.what_is_not_ready(Instant::now() + later).join(", ");
        let now = Duration::ZERO;
        assert_eq!(why(&health, now), "nodes and records have not been listed yet");
        health.listed();
        assert_eq!(why(&health, now), "", "a dry run has no leases");
        let health = Health::new(Shutdown::default(), true);
        health.listed();
        assert_eq!(why(&health, now), "leases have not been read yet");
        health.kept_leases(0);
        assert_eq!(why(&health, now), "no shard is held yet");
        health.kept_leases(1);
        assert_eq!(why(&health, now), "");
        assert_eq!(why(&health, LIFETIME * 2), "leases have not been renewed for 30 s");
        health.shutdown.stop.cancel();
        assert_eq!(why(&health, now), "the process is stopping");
    }
}
