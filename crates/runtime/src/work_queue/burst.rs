//! Detects that many Nodes are deleted or created at once, as when a zone goes away or comes back.

use std::time::{Duration, Instant};

/// This many changes within a window are a burst.
const MANY: u32 = 16;
const WINDOW: Duration = Duration::from_secs(2);
/// A burst is over after this time without a window that is as full.
const QUIET: Duration = Duration::from_secs(5);
/// The longest burst: tidy writes must not wait forever in a cluster whose Nodes never stop changing.
const LONGEST: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, Default)]
pub(super) struct Burst {
    window: Option<Instant>,
    changes: u32,
    /// The first and the last change of a full window.
    full: Option<(Instant, Instant)>,
}

impl Burst {
    /// A Node was deleted, or a new incarnation was seen.
    pub(super) fn note(&mut self, now: Instant) {
        if self.window.is_none_or(|window| now.duration_since(window) > WINDOW) {
            (self.window, self.changes) = (Some(now), 0);
        }
        self.changes = self.changes.saturating_add(1);
        if self.changes >= MANY {
            let first = self.full.filter(|(_, last)| *last + QUIET > now).map_or(now, |(first, _)| first);
            self.full = Some((first, now));
        }
    }

    /// The end of the burst, if there is one.
    pub(super) fn ends_at(&self, now: Instant) -> Option<Instant> {
        let ends_at = self.full.map(|(first, last)| (last + QUIET).min(first + LONGEST));
        ends_at.filter(|ends_at| *ends_at > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_lasts_until_nodes_stop_changing() {
        let (mut burst, start) = (Burst::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        (0..60).for_each(|second| burst.note(at(second * 1000)));
        assert_eq!(burst.ends_at(at(60_000)), None, "one a second is ordinary life");
        (0..400).for_each(|tenth| burst.note(at(100_000 + tenth * 100)));
        assert!(burst.ends_at(at(140_000)).is_some());
        assert_eq!(burst.ends_at(at(140_000) + QUIET), None);
    }

    #[test]
    fn a_burst_that_does_not_end_holds_nothing_up_forever() {
        let (mut burst, start) = (Burst::default(), Instant::now());
        let mut now = start;
        let mut change_until = |burst: &mut Burst, end: Instant| {
            while now < end {
                burst.note(now);
                now += Duration::from_millis(100);
            }
        };
        change_until(&mut burst, start + LONGEST);
        assert!(burst.ends_at(start + LONGEST - QUIET).is_some());
        change_until(&mut burst, start + LONGEST * 2);
        assert_eq!(burst.ends_at(start + LONGEST * 2), None);
        change_until(&mut burst, start + LONGEST * 2);
        let later = start + LONGEST * 2 + QUIET * 2;
        (0..MANY).for_each(|_| burst.note(later));
        assert!(burst.ends_at(later).is_some(), "after a quiet time another one begins");
    }
}
