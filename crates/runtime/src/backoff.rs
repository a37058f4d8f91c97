//! When to do the next thing: pauses with jitter, so that replicas that start together don't stay together, and
//! growing pauses for what keeps failing.

use std::time::Duration;

use rand::RngExt;

/// The longest that one node has to wait after failures.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A listing costs the server more than it costs us: it gets ten times as long to do other things.
const REST: u32 = 10;

/// How long lists take, and how long to rest from them.
#[derive(Debug, Default)]
pub struct Pace {
    /// What the last two took.
    last: [Option<Duration>; 2],
}

impl Pace {
    /// Takes note of how long a list took.
    pub fn note(&mut self, took: Duration) {
        self.last = [self.last[1], Some(took)];
    }

    /// The pause until the next list: the interval, give or take, but never less than ten times what listing takes. Of
    /// two lists in a row the quicker one counts: a server that stood still for half a minute, as in a fail-over, was
    /// not busy with the list, and nobody should wait five minutes for labels because of it.
    pub fn pause(&self, interval: Duration) -> Duration {
        let usual = self.last.iter().flatten().min().copied().unwrap_or_default();
        around(interval).max(usual * REST)
    }
}

/// The least pause after a list that failed after this time: the server is struggling, so it gets the
/// same rest, within reason.
pub fn rest_after_failure(took: Duration) -> Duration {
    (took * REST).min(LONGEST_WAIT)
}

/// A duration give or take a tenth.
pub(crate) fn around(duration: Duration) -> Duration {
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

/// A pause that somebody asked for, and up to half as long again, so that not all come back at the same time.
pub fn a_little_more(pause: Duration) -> Duration {
    pause.mul_f64(rand::rng().random_range(1.0..1.5))
}

/// The pause that a server asks for, within reason: a second where it does not say how long, a minute at most.
pub fn retry_after(seconds: Option<u32>) -> Duration {
    Duration::from_secs(u64::from(seconds.unwrap_or(1).clamp(1, 60)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The pauses after lists that took so long.
    fn pauses<const N: usize>(interval: Duration, took: [Duration; N]) -> [Duration; N] {
        let mut pace = Pace::default();
        took.map(|took| {
            pace.note(took);
            pace.pause(interval)
        })
    }

    #[test]
    fn the_pause_is_the_interval_give_or_take() {
        for _ in 0..1000 {
            let pause = pauses(SECOND * 10, [Duration::from_millis(3)])[0];
            assert!((SECOND * 9..SECOND * 11).contains(&pause), "{pause:?}");
        }
    }

    #[test]
    fn the_pause_is_never_less_than_ten_times_the_listing() {
        assert_eq!(
            pauses(SECOND, [SECOND * 3, SECOND * 4, SECOND * 4]),
            [SECOND * 30, SECOND * 30, SECOND * 40]
        );
        assert_eq!(pauses(SECOND, [Duration::from_millis(200)]), [SECOND * 2]);
    }

    #[test]
    fn a_server_that_stood_still_once_is_not_taken_for_a_slow_one() {
        let usual = Duration::from_millis(200);
        assert_eq!(pauses(SECOND, [usual, SECOND * 30, usual]), [SECOND * 2; 3]);
    }

    #[test]
    fn pauses_double_up_to_the_limit() {
        for (tries, middle) in [(1, 1), (2, 2), (3, 4), (7, 60), (u32::MAX, 60)] {
            let pause = exponential(SECOND, tries, SECOND * 60).as_secs_f64();
            assert!((0.89..1.11).contains(&(pause / f64::from(middle))), "{tries}: {pause}");
        }
    }
}
