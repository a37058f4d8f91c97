//! Detects that many Nodes are deleted or created at once, as when a zone goes away or comes back.

use std::time::{Duration, Instant};

/// This many changes within a window are a burst.
const MANY: u32 = 16;
const WINDOW: Duration = Duration::from_secs(2);
/// A burst is over after this time without a window that is as full.
const QUIET: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Burst {
    began: Option<Instant>,
    changes: u32,
    ends_at: Option<Instant>,
}

impl Burst {
    /// A Node was deleted, or a new incarnation was seen.
    pub(super) fn note(&mut self, now: Instant) {
        if self.began.is_none_or(|began| now.duration_since(began) > WINDOW) {
            (self.began, self.changes) = (Some(now), 0);
        }
        self.changes = self.changes.saturating_add(1);
        if self.changes >= MANY {
            self.ends_at = Some(now + QUIET);
        }
    }

    /// The end of the burst, if there is one.
    pub(super) fn ends_at(&self, now: Instant) -> Option<Instant> {
        self.ends_at.filter(|ends_at| *ends_at > now)
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
}
