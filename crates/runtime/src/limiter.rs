//! The number of Nodes worked on at the same time: as many as make the API server faster, and no more.
//!
//! The limit starts low and grows while more Nodes at a time mean more Nodes a second. It halves when the server is busy or fails, as in TCP
//! congestion control. So many replicas share the server without knowing of each other.

use std::time::{Duration, Instant};

use crate::backoff;
use crate::call::{Error, FailureKind};

/// The limit at the start, and the least: one call that hangs must not hold up all others.
const FIRST: usize = 4;
/// A limit that is higher by this factor is compared with the one before, and kept if it makes the server faster by the other.
const GROWTH: f64 = 1.2;
const GAIN: f64 = 1.1;
/// The factor of each step at the start.
const FIRST_STEP: f64 = 4.0;
/// The least number of Nodes with which a limit is measured.
const FEWEST: f64 = 8.0;
/// The time before a higher limit is tried again that was of no use.
const HOLD: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Limiter {
    limit: f64,
    least: f64,
    most: f64,
    /// The last limit that was of use, and the Nodes per second with it, once that is known.
    useful: (f64, Option<f64>),
    measured: Measured,
    /// True until the first limit that is too high. Until then the limit grows in large steps.
    is_ramping_up: bool,
    /// Until then the limit does not grow.
    hold_until: Option<Instant>,
    /// The time of the last cut. Trouble of work that began before it does not count again.
    cut_at: Option<Instant>,
    pub(crate) paused_until: Option<Instant>,
}

/// The Nodes that were done with one limit.
#[derive(Debug, Default)]
struct Measured {
    set_at: Option<Instant>,
    /// The end of the first Node that began after the limit was set. Nodes that began before found fewer others in flight.
    since: Option<Instant>,
    nodes: f64,
    took: Duration,
}

impl Limiter {
    pub(crate) fn new(most: usize) -> Self {
        Self::between(FIRST.min(most), most)
    }

    /// A limiter that never changes its limit.
    pub(crate) fn fixed(limit: usize) -> Self {
        Self::between(limit, limit)
    }

    fn between(least: usize, most: usize) -> Self {
        let (least, most) = (least as f64, most as f64);
        Self {
            limit: least,
            least,
            most,
            useful: (least, None),
            measured: Measured::default(),
            is_ramping_up: true,
            hold_until: None,
            cut_at: None,
            paused_until: None,
        }
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
                    self.settle(self.limit / 2.0, now);
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
            Some(FailureKind::Moved) | None => self.succeeded(began, now),
        }
        if let Some(pause) = pause {
            let until = now + backoff::a_little_more(pause);
            self.paused_until = self.paused_until.max(Some(until));
        }
    }

    fn succeeded(&mut self, began: Instant, now: Instant) {
        let Measured { set_at, since, nodes, took } = &mut self.measured;
        match since {
            None if *set_at <= Some(began) => *since = Some(now),
            Some(since) if *since <= began => {
                *nodes += 1.0;
                *took += now.duration_since(began);
            }
            _ => (),
        }
        if *nodes < self.limit.max(FEWEST) {
            return;
        }
        // With as many in flight as the limit allows, this is how many are done in a second.
        let rate = self.limit * *nodes / took.as_secs_f64();
        let is_holding = self.hold_until.is_some_and(|until| now < until);
        match self.useful {
            (useful, Some(before)) if self.limit >= useful * GROWTH && rate < before * GAIN => {
                let tried = self.limit;
                tracing::debug!(
                    limit = useful,
                    tried,
                    before,
                    rate,
                    "more nodes in flight do not increase throughput"
                );
                self.hold_until = (!self.is_ramping_up).then(|| now + HOLD);
                return self.settle(useful, now);
            }
            (useful, Some(_)) if self.limit < useful * GROWTH && !is_holding => (),
            // The first Nodes wait for connections, so that nothing can be compared with them.
            _ if self.is_ramping_up && self.limit <= self.least && self.limit < self.most => (),
            _ => self.useful = (self.limit, Some(rate)),
        }
        let more = if self.is_ramping_up { self.limit * FIRST_STEP } else { self.limit + 1.0 };
        let limit = if is_holding { self.limit } else { more.min(self.most) };
        self.set(limit, now);
    }

    /// Goes back to a lower limit.
    fn settle(&mut self, limit: f64, now: Instant) {
        self.set(limit.max(self.least), now);
        (self.useful, self.is_ramping_up) = ((self.limit, None), false);
    }

    fn set(&mut self, limit: f64, now: Instant) {
        (self.limit, self.measured) = (limit, Measured { set_at: Some(now), ..Measured::default() });
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

    /// Works for half a minute on a server that needs `latency` for a Node, and does not more than `rate` a second. Returns the time after that.
    fn work(limiter: &mut Limiter, mut now: Instant, latency: Duration, rate: u32) -> Instant {
        let end = now + SECOND * 30;
        let (mut in_flight, mut free_at) = (std::collections::VecDeque::new(), now);
        while now < end {
            while limiter.has_room(in_flight.len(), now) {
                free_at = free_at.max(now) + SECOND / rate;
                in_flight.push_back((now, free_at.max(now + latency)));
            }
            let (began, ended) = in_flight.pop_front().expect("room for one");
            now = now.max(ended);
            limiter.note(began, None, now);
        }
        now
    }

    /// A server that is the faster, the more it has to do.
    const ENDLESS: u32 = 1_000_000;

    #[test]
    fn it_begins_with_a_few_and_soon_allows_all() {
        let (mut limiter, now) = (Limiter::new(16), Instant::now());
        assert_eq!(room(&limiter, now), 4);
        let now = work(&mut limiter, now, SECOND / 10, ENDLESS);
        assert_eq!(room(&limiter, now), 16);
        assert_eq!(room(&Limiter::new(1), now), 1);
    }

    #[test]
    fn it_grows_only_while_that_makes_the_server_faster() {
        let found = |latency, rate| {
            let mut limiter = Limiter::new(128);
            let now = work(&mut limiter, Instant::now(), Duration::from_millis(latency), rate);
            room(&limiter, now)
        };
        assert!((50..=100).contains(&found(100, 500)), "50 at a time keep it busy: {}", found(100, 500));
        assert!(found(4, 500) <= 16, "two at a time keep it busy: {}", found(4, 500));
        assert_eq!(found(1500, ENDLESS), 128, "each takes long, but there is no end to how many it can do");
    }

    #[test]
    fn a_fixed_limit_stays() {
        let (mut limiter, now) = (Limiter::fixed(64), Instant::now());
        let now = work(&mut limiter, now, SECOND / 10, 10);
        limiter.note(now, Some(&Error::unclear("try", "lost")), now);
        assert_eq!(room(&limiter, now), 64);
    }

    #[test]
    fn trouble_halves_it_once_for_all_that_was_under_way() {
        let mut limiter = Limiter::new(64);
        let now = work(&mut limiter, Instant::now(), SECOND / 10, ENDLESS);
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
