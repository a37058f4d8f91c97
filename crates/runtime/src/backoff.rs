//! Pauses: with jitter, so that replicas that start together spread out, and growing after failures.

use std::time::Duration;

use rand::RngExt;

/// The longest pause after a failed list.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// The pause after a list is at least this many times its duration, because it costs the server more than the replica.
const REST: u32 = 10;

/// The durations of the last two lists.
#[derive(Debug, Default)]
pub struct Pace([Option<Duration>; 2]);

impl Pace {
    pub fn note(&mut self, took: Duration) {
        self.0 = [self.0[1], Some(took)];
    }

    /// The pause until the next list. The quicker one of the last two counts: a server that stood still once, as in a
    /// fail-over, was not busy with the list.
    pub fn pause(&self, interval: Duration) -> Duration {
        let usual = self.0.iter().flatten().min().copied().unwrap_or_default();
        around(interval).max(usual * REST)
    }
}

/// The least pause after a list that failed after this time.
pub fn rest_after_failure(took: Duration) -> Duration {
    (took * REST).min(LONGEST_REST)
}

/// A duration, plus or minus 10 %.
pub(crate) fn around(duration: Duration) -> Duration {
    duration.mul_f64(rand::rng().random_range(0.9..1.1))
}

/// A random 10–100 % of `limit`.
pub fn jittered(limit: Duration) -> Duration {
    limit.mul_f64(rand::rng().random_range(0.1..1.0))
}

/// The pause after this many tries: it doubles each time, up to a limit, plus or minus 10 %.
pub fn exponential(first: Duration, tries: u32, limit: Duration) -> Duration {
    let doubled = first.saturating_mul(1 << tries.saturating_sub(1).min(16));
    around(doubled.min(limit))
}

/// 100–150 % of a pause that the server asked for, so that not all replicas come back at the same time.
pub fn a_little_more(pause: Duration) -> Duration {
    pause.mul_f64(rand::rng().random_range(1.0..1.5))
}

/// The pause that a server asks for: 1 s if it does not say, 60 s at most.
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
