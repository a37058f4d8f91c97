//! The number of Nodes worked on at the same time, as in TCP congestion control.
//!
//! The limit doubles until the API server is busy or fails for the first time. Then it halves, and from there on it grows slowly. So many
//! replicas share the server without knowing of each other. A slow server is not in trouble: with more Nodes in flight it does more in a
//! second.

use std::time::Instant;

use crate::backoff;
use crate::call::{Error, FailureKind};

/// The limit at the start.
const FIRST: usize = 32;
/// The lowest limit: one call that hangs must not hold up all others.
const LEAST: usize = 4;

#[derive(Debug)]
pub(crate) struct Limiter {
    limit: f64,
    least: f64,
    most: f64,
    /// The time of the last cut. Trouble of work that began before it does not count again.
    cut_at: Option<Instant>,
    pub(crate) paused_until: Option<Instant>,
}

impl Limiter {
    pub(crate) fn new(most: usize) -> Self {
        Self::starting_at(FIRST.min(most), LEAST.min(most), most)
    }

    /// A limiter that never changes its limit.
    pub(crate) fn fixed(limit: usize) -> Self {
        Self::starting_at(limit, limit, limit)
    }

    fn starting_at(first: usize, least: usize, most: usize) -> Self {
        let (limit, least, most) = (first as f64, least as f64, most as f64);
        Self { limit, least, most, cut_at: None, paused_until: None }
    }

    /// True if another Node may begin while this many are in flight.
    pub(crate) fn has_room(&self, in_flight: usize, now: Instant) -> bool {
        self.paused_until.is_none_or(|until| until <= now) && (in_flight as f64) < self.limit.floor()
    }

    /// Adjusts the limit to the outcome for a Node that began at this time.
    pub(crate) fn note(&mut self, began: Instant, error: Option<&Error>, now: Instant) {
        let pause = error.and_then(Error::retry_after);
        match error.map(|error| error.kind) {
            Some(FailureKind::Busy(_) | FailureKind::Unclear | FailureKind::NotConnected) => {
                if self.cut_at.is_none_or(|cut_at| began >= cut_at) {
                    self.limit = (self.limit / 2.0).max(self.least);
                    self.cut_at = Some(now);
                    tracing::debug!(
                        limit = self.limit,
                        ?pause,
                        "the API server is busy or fails: fewer nodes in flight"
                    );
                }
            }
            // A refusal costs the server next to nothing, so it tells nothing about the limit.
            Some(FailureKind::Refused) => (),
            Some(FailureKind::Moved) | None => {
                // With as many in flight as the limit allows, the limit doubles, or grows by one, while each of them is done once.
                let growth = if self.cut_at.is_none() { 1.0 } else { 1.0 / self.limit };
                self.limit = (self.limit + growth).min(self.most);
            }
        }
        if let Some(pause) = pause {
            let until = now + backoff::a_little_more(pause);
            self.paused_until = self.paused_until.max(Some(until));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn room(limiter: &Limiter, now: Instant) -> usize {
        (0..).take_while(|&in_flight| limiter.has_room(in_flight, now)).count()
    }

    fn busy(seconds: u64) -> Error {
        Error { kind: FailureKind::Busy(SECOND * seconds as u32), ..Error::unclear("try", "busy") }
    }

    /// Has as many Nodes done as the limit allows at a time, this often.
    fn work(limiter: &mut Limiter, mut now: Instant, rounds: u32) -> Instant {
        for _ in 0..rounds {
            let (began, in_flight) = (now, room(limiter, now));
            now += SECOND / 10;
            (0..in_flight).for_each(|_| limiter.note(began, None, now));
        }
        now
    }

    #[test]
    fn it_doubles_up_to_the_limit() {
        let (mut limiter, mut now) = (Limiter::new(100), Instant::now());
        for expected in [32, 64, 100, 100] {
            assert_eq!(room(&limiter, now), expected);
            now = work(&mut limiter, now, 1);
        }
        assert_eq!(room(&Limiter::new(16), now), 16);
        assert_eq!(room(&Limiter::new(1), now), 1);
    }

    #[test]
    fn a_fixed_limit_stays() {
        let (mut limiter, now) = (Limiter::fixed(64), Instant::now());
        let now = work(&mut limiter, now, 10);
        limiter.note(now, Some(&Error::unclear("try", "lost")), now);
        assert_eq!(room(&limiter, now), 64);
    }

    #[test]
    fn trouble_halves_it_once_for_all_that_was_under_way() {
        let mut limiter = Limiter::new(64);
        let now = work(&mut limiter, Instant::now(), 2);
        assert_eq!(room(&limiter, now), 64);
        for _ in 0..30 {
            limiter.note(now, Some(&Error::unclear("try", "lost")), now + SECOND);
        }
        assert_eq!(room(&limiter, now), 32);
        let later = now + SECOND * 2;
        limiter.note(later, Some(&busy(0)), later);
        assert_eq!(room(&limiter, later + SECOND), 16, "busy is trouble, too");
        for _ in 0..20 {
            limiter.note(later, None, later);
        }
        assert_eq!(room(&limiter, later + SECOND), 17, "and from then on it grows slowly");
        for round in 2..40 {
            limiter.note(now + SECOND * 9 * round, Some(&busy(1)), now + SECOND * 9 * round + SECOND);
        }
        assert_eq!(room(&limiter, now + SECOND * 999), 4, "but never to fewer");
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
        assert_eq!(room(&limiter, now), 16);
    }
}
