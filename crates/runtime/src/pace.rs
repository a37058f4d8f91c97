//! When to do the next thing: pauses with jitter, so that replicas that start together don't stay together, and
//! growing pauses for what keeps failing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rand::RngExt;

use crate::call::Error;

/// The longest that one node has to wait after failures.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A listing costs the server more than it costs us: it gets ten times as long to do other things.
const REST: u32 = 10;

/// The pauses between passes.
#[derive(Debug)]
pub struct Pace {
    interval: Duration,
    last_listing_took: Option<Duration>,
}

impl Pace {
    /// One pass in each interval, give or take.
    pub fn new(interval: Duration) -> Self {
        Self { interval, last_listing_took: None }
    }

    /// The pause until the next pass: the interval, but never less than ten times what listing takes. Of two listings
    /// in a row the quicker one counts: a server that stood still for half a minute, as in a fail-over, was not busy
    /// with the list, and nobody should wait five minutes for labels because of it.
    pub fn until_next(&mut self, listing_took: Duration) -> Duration {
        let usual = self.last_listing_took.replace(listing_took).unwrap_or(listing_took).min(listing_took);
        around(self.interval).max(usual * REST)
    }
}

/// The least pause after a look at the cluster that failed after this time: the server is struggling, so it gets the
/// same rest, within reason.
pub fn rest_after_failure(took: Duration) -> Duration {
    (took * REST).min(LONGEST_WAIT)
}

/// A duration give or take a tenth.
fn around(duration: Duration) -> Duration {
    duration.mul_f64(rand::rng().random_range(0.9..1.1))
}

/// Something up to this duration, and not nothing.
pub fn jittered(limit: Duration) -> Duration {
    limit.mul_f64(rand::rng().random_range(0.1..1.0))
}

/// The pause before try number `tries` + 1: twice the one before, give or take, up to a limit.
pub fn exponential(first: Duration, tries: u32, limit: Duration) -> Duration {
    let doubled = first.saturating_mul(1 << tries.saturating_sub(1).min(16));
    around(doubled.min(limit))
}

/// The pause that a server asks for, within reason: a second where it does not say how long, a minute at most.
pub fn retry_after(seconds: Option<u32>) -> Duration {
    Duration::from_secs(u64::from(seconds.unwrap_or(1).clamp(1, 60)))
}

/// Which nodes failed lately, and when they are due again. One node that keeps failing costs little, and never holds
/// up the others.
#[derive(Debug, Default)]
pub struct Failures(HashMap<String, Failure>);

#[derive(Debug)]
struct Failure {
    times: u32,
    due: Instant,
}

impl Failures {
    /// Whether it is time to try this node (again).
    pub fn is_due(&self, node: &str, now: Instant) -> bool {
        self.0.get(node).is_none_or(|failure| failure.due <= now)
    }

    /// Takes note of how a node fared, and returns what became of it, if it did not fail.
    pub fn note<T>(&mut self, node: &str, outcome: Result<T, Error>, first: Duration) -> Option<T> {
        match outcome {
            Ok(outcome) => {
                self.0.remove(node);
                Some(outcome)
            }
            Err(error) => {
                tracing::warn!(node, %error, "a node failed, it will be tried again");
                self.add(node, first, error.retry_after(), Instant::now());
                None
            }
        }
    }

    /// Puts a node back for a while, and for longer each time.
    fn add(&mut self, node: &str, first: Duration, retry_after: Option<Duration>, now: Instant) {
        let failure = self.0.entry(node.to_owned()).or_insert(Failure { times: 0, due: now });
        failure.times = failure.times.saturating_add(1);
        failure.due =
            now + exponential(first, failure.times, LONGEST_WAIT).max(retry_after.unwrap_or_default());
    }

    /// Forgets about all nodes that are of no concern any more.
    pub fn retain(&mut self, concerns: impl Fn(&str) -> bool) {
        self.0.retain(|node, _| concerns(node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_pause_is_the_interval_give_or_take() {
        for _ in 0..1000 {
            let pause = Pace::new(SECOND * 10).until_next(Duration::from_millis(3));
            assert!((SECOND * 9..SECOND * 11).contains(&pause), "{pause:?}");
        }
    }

    #[test]
    fn the_pause_is_never_less_than_ten_times_the_listing() {
        let mut pace = Pace::new(SECOND);
        assert_eq!(pace.until_next(SECOND * 3), SECOND * 30);
        assert_eq!(pace.until_next(SECOND * 4), SECOND * 30);
        assert_eq!(pace.until_next(SECOND * 4), SECOND * 40);
        assert_eq!(Pace::new(SECOND).until_next(Duration::from_millis(200)), SECOND * 2);
    }

    #[test]
    fn a_server_that_stood_still_once_is_not_taken_for_a_slow_one() {
        let mut pace = Pace::new(SECOND);
        let usual = Duration::from_millis(200);
        let pauses = [usual, SECOND * 30, usual].map(|took| pace.until_next(took));
        assert_eq!(pauses, [SECOND * 2; 3]);
    }

    #[test]
    fn pauses_double_up_to_the_limit() {
        for (tries, middle) in [(1, 1), (2, 2), (3, 4), (7, 60), (u32::MAX, 60)] {
            let pause = exponential(SECOND, tries, SECOND * 60).as_secs_f64();
            assert!((0.89..1.11).contains(&(pause / f64::from(middle))), "{tries}: {pause}");
        }
    }

    #[test]
    fn a_failing_node_waits_and_the_others_do_not() {
        let mut failures = Failures::default();
        let now = Instant::now();
        failures.add("a", SECOND, None, now);
        assert!(!failures.is_due("a", now) && failures.is_due("b", now));
        assert!(failures.is_due("a", now + SECOND * 2));
        failures.add("a", SECOND, Some(SECOND * 30), now);
        assert!(!failures.is_due("a", now + SECOND * 29) && failures.is_due("a", now + SECOND * 30));
        assert_eq!(failures.note("a", Ok(()), SECOND), Some(()));
        assert!(failures.is_due("a", now));
    }
}
