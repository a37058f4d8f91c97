//! The time of day, and how far it can be trusted.
//!
//! How long a Node has been gone is counted by the time of day: it may be weeks, and no process lives that long for sure. A
//! clock that jumps by a year would end every retention at once. So a jump is noticed: within a process by the clock that
//! only counts on, and from one process to the next by when a lease was last renewed. After a jump, in either
//! direction, every retention begins anew. That keeps old records longer than asked for, and loses none.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

/// The two clocks of a machine may drift apart by this much between two looks; and those of two machines may differ by it.
const TOLERANCE: SignedDuration = SignedDuration::from_mins(1);

/// From one process to the next the time of day may have gone on by this much, and by no more than a tenth of the retention: nobody can
/// tell whether so much time has passed or a clock was put forward.
const PAUSE: SignedDuration = SignedDuration::from_hours(24);

/// A time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Now.
    pub now: Timestamp,
    /// Since when the clock is known to go right.
    pub steady_since: Timestamp,
}

/// Tells the time of day, and watches itself.
#[derive(Debug)]
pub struct Clock {
    state: Mutex<State>,
    read: fn() -> Timestamp,
}

#[derive(Debug, Clone, Copy)]
struct State {
    seen: (Timestamp, Instant),
    steady_since: Timestamp,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new(Timestamp::now)
    }
}

impl Clock {
    /// A clock that reads the time of day like this.
    pub fn new(read: fn() -> Timestamp) -> Self {
        let now = read();
        Self { state: Mutex::new(State { seen: (now, Instant::now()), steady_since: now }), read }
    }

    /// What time it is, and since when that is to be believed.
    pub fn moment(&self) -> Moment {
        self.at((self.read)(), Instant::now())
    }

    fn at(&self, now: Timestamp, counted: Instant) -> Moment {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = counted.saturating_duration_since(state.seen.1);
        let jump = now.duration_since(state.seen.0) - signed(passed);
        if jump.abs() > TOLERANCE {
            tracing::warn!(?jump, "the clock has jumped: every retention begins anew");
            state.steady_since = now;
        }
        state.seen = (now, counted);
        Moment { now, steady_since: state.steady_since }
    }

    /// Goes on from a process before this one, which believed its clock since `steady_since` and last told the time at
    /// `last`.
    pub(crate) fn go_on(&self, last: Timestamp, steady_since: Timestamp, retention: Duration) {
        if self.follows_upon(last, steady_since, retention) {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.steady_since = state.steady_since.min(steady_since);
        }
    }

    /// Takes over what another process has looked after until now, whose clock is another: what it has written down is believed from
    /// when both clocks are.
    pub(crate) fn take_over(&self, last: Timestamp, steady_since: Timestamp, retention: Duration) {
        let since =
            if self.follows_upon(last, steady_since, retention) { steady_since } else { self.moment().now };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.steady_since = state.steady_since.max(since);
    }

    /// Whether this clock may be the continuation of one that last showed this.
    fn follows_upon(&self, last: Timestamp, steady_since: Timestamp, retention: Duration) -> bool {
        let pause = self.moment().now.duration_since(last);
        let longest = PAUSE.min(signed(retention / 10)).max(TOLERANCE);
        let follows = pause >= -TOLERANCE && pause <= longest && steady_since <= last;
        if !follows {
            tracing::warn!(
                ?pause,
                "no replica was there for long, or a clock has jumped: every retention begins anew"
            );
        }
        follows
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: SignedDuration = SignedDuration::from_hours(1);

    fn at(clock: &Clock, hours_of_day: i64, hours_counted: u64) -> SignedDuration {
        let (began, counted) = clock.state.lock().map(|state| state.seen).expect("no panic");
        let moment =
            clock.at(began + HOUR * hours_of_day as i32, counted + Duration::from_secs(3600 * hours_counted));
        moment.now.duration_since(moment.steady_since)
    }

    #[test]
    fn a_clock_that_goes_right_is_believed() {
        let clock = Clock::default();
        assert_eq!(at(&clock, 1, 1), HOUR);
        assert_eq!(at(&clock, 700, 700), HOUR * 701);
    }

    #[test]
    fn after_a_jump_in_either_direction_nothing_is_old() {
        let clock = Clock::default();
        at(&clock, 5, 5);
        assert_eq!(at(&clock, 24 * 365, 1), SignedDuration::ZERO);
        assert_eq!(at(&clock, 2, 2), HOUR * 2);
        assert_eq!(at(&clock, -24 * 365, 1), SignedDuration::ZERO);
        assert_eq!(at(&clock, 3, 3), HOUR * 3);
    }

    const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

    /// For how many hours it is believed.
    fn believed(clock: &Clock) -> i64 {
        let moment = clock.moment();
        moment.now.duration_since(moment.steady_since).as_hours()
    }

    #[test]
    fn the_next_process_goes_on_unless_too_much_time_seems_to_have_passed() {
        for (last, steady_since, retention, expected) in [
            (-1, -1000, MONTH, 1000),
            (-23, -1000, MONTH, 1000),
            (-23, -1000, Duration::MAX, 1000),
            (-25, -1000, MONTH, 0),
            (-24 * 365, -10_000, MONTH, 0),
            (1, -1000, MONTH, 0),
            (-2, -1, MONTH, 0),
            // That would be the end of it at once.
            (-1, -1000, Duration::from_secs(2 * 3600), 0),
            (-1, -1000, Duration::from_secs(20 * 3600), 1000),
        ] {
            let clock = Clock::default();
            let began = clock.moment().now;
            clock.go_on(began + HOUR * last, began + HOUR * steady_since, retention);
            assert_eq!(believed(&clock), expected, "{last} {retention:?}");
        }
    }

    #[test]
    fn what_another_clock_has_stamped_is_believed_from_when_both_are() {
        for (last, steady_since, expected) in [
            (0, -1000, 1000),
            (0, -3000, 2000),
            (0, -1, 1),
            (-24 * 365, -24 * 365, 0),
            (-24 * 365, 0, 0),
            (2, -1000, 0),
        ] {
            let clock = Clock::default();
            let began = clock.moment().now;
            clock.go_on(began, began - HOUR * 2000, MONTH);
            clock.take_over(began + HOUR * last, began + HOUR * steady_since, MONTH);
            assert_eq!(believed(&clock), expected, "{last} {steady_since}");
        }
    }
}
