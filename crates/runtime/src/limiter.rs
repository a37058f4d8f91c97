//! The number of Nodes worked on at the same time: as many as the API server takes without complaint.
//!
//! The limit starts low, grows while calls succeed, and halves when the server is busy, fails or gets slow, as in TCP
//! congestion control. So many replicas share the server without knowing of each other.

use std::time::{Duration, Instant};

use crate::backoff;
use crate::call::{Error, FailureKind};

/// The limit at the start, and the least: one call that hangs must not hold up all others.
const FIRST: f64 = 4.0;

/// A Node that took longer was slowed down by the server. Kubernetes calls a single call slow after a second.
const SLOW: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Limiter {
    limit: f64,
    most: f64,
    /// True until the first trouble. Until then the limit grows by one with each success.
    is_ramping_up: bool,
    /// The time of the last cut. Trouble of work that began before it does not count again.
    cut_at: Option<Instant>,
    pub(crate) paused_until: Option<Instant>,
}

impl Limiter {
    pub(crate) fn new(most: usize) -> Self {
        let most = most as f64;
        Self { limit: FIRST.min(most), most, is_ramping_up: true, cut_at: None, paused_until: None }
    }

    /// True if another Node may begin while this many are in flight.
    pub(crate) fn has_room(&self, in_flight: usize, now: Instant) -> bool {
        self.paused_until.is_none_or(|until| until <= now) && (in_flight as f64) < self.limit.floor()
    }

    /// Adjusts the limit to the outcome for a Node that began at this time.
    pub(crate) fn note(&mut self, began: Instant, error: Option<&Error>, now: Instant) {
        let pause = error.and_then(Error::retry_after);
        let has_trouble = match error.map(|error| error.kind) {
            Some(FailureKind::Busy(_) | FailureKind::Unclear | FailureKind::NotConnected) => true,
            Some(FailureKind::Moved | FailureKind::Refused) | None => now.duration_since(began) > SLOW,
        };
        // A refusal costs the server next to nothing, so it tells nothing about the limit.
        let is_progress = error.is_none_or(|error| error.kind != FailureKind::Refused);
        if has_trouble && self.cut_at.is_none_or(|cut_at| began >= cut_at) {
            self.limit = (self.limit / 2.0).max(FIRST.min(self.most));
            (self.is_ramping_up, self.cut_at) = (false, Some(now));
            tracing::debug!(limit = self.limit, ?pause, "the API server struggles: fewer nodes at a time");
        } else if !has_trouble && is_progress {
            let more = if self.is_ramping_up { 1.0 } else { 1.0 / self.limit };
            self.limit = (self.limit + more).min(self.most);
        }
        if let Some(pause) = pause {
            let until = now + backoff::a_little_more(pause);
            self.paused_until = self.paused_until.max(Some(until));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn room(limiter: &Limiter, now: Instant) -> usize {
        (0..).take_while(|&in_flight| limiter.has_room(in_flight, now)).count()
    }

    fn busy(seconds: u64) -> Error {
        Error { kind: FailureKind::Busy(SECOND * seconds as u32), ..Error::unclear("try", "busy") }
    }

    #[test]
    fn it_begins_with_a_few_and_soon_allows_all() {
        let (mut limiter, now) = (Limiter::new(16), Instant::now());
        assert_eq!(room(&limiter, now), 4);
        for _ in 0..100 {
            limiter.note(now, None, now);
        }
        assert_eq!(room(&limiter, now), 16);
        assert_eq!(room(&Limiter::new(1), now), 1);
    }

    #[test]
    fn trouble_halves_it_once_for_all_that_was_under_way() {
        let (mut limiter, now) = (Limiter::new(64), Instant::now());
        for _ in 0..100 {
            limiter.note(now, None, now);
        }
        for _ in 0..30 {
            limiter.note(now, Some(&Error::unclear("try", "lost")), now + SECOND);
        }
        assert_eq!(room(&limiter, now), 32);
        let later = now + SECOND * 2;
        limiter.note(later, None, later + SLOW * 2);
        assert_eq!(room(&limiter, later), 16, "slow is trouble, too");
        for _ in 0..20 {
            limiter.note(later, None, later);
        }
        assert_eq!(room(&limiter, later), 17, "and from then on it grows slowly");
        for round in 2..40 {
            limiter.note(now + SLOW * 9 * round, Some(&busy(1)), now + SLOW * 9 * round + SECOND);
        }
        assert_eq!(room(&limiter, now + SECOND * 999), 4, "but never to fewer than at first");
    }

    #[test]
    fn a_pause_that_the_server_asks_for_holds_for_all() {
        let (mut limiter, now) = (Limiter::new(16), Instant::now());
        limiter.note(now, Some(&busy(5)), now);
        assert_eq!(room(&limiter, now + SECOND * 5 - Duration::from_millis(1)), 0);
        assert!(room(&limiter, now + SECOND * 8) > 0);
    }

    #[test]
    fn what_was_refused_or_had_moved_is_no_sign_of_trouble() {
        let (mut limiter, now) = (Limiter::new(16), Instant::now());
        limiter.note(now, Some(&Error::refused("try", "no")), now);
        limiter.note(now, Some(&Error::expired("try")), now);
        assert!(room(&limiter, now) >= 4);
    }
}
