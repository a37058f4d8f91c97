//! How much absence is believed.
//!
//! A list that lacks a node is how a deletion shows. It is also how a broken API server, an empty cache or the wrong
//! cluster shows. Each node that a list lacks is asked for by name before its record is touched; and where a list
//! lacks a large share of them all at once, nothing is concluded at all until that has stayed so for a while.

use std::time::{Duration, Instant};

/// For how long a large loss has to last.
const HOLD: Duration = Duration::from_secs(60);

/// Fewer than this are always believed, after they were asked for by name: else a cluster of two nodes could never lose one.
const FEW: usize = 3;

/// A larger part than this, one in three, is a large loss.
const PART: usize = 3;

/// And so many looks have to agree: pauses between them may be long.
const LOOKS: u32 = 3;

/// Remembers a large loss for as long as it lasts.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    loss: Option<Loss>,
}

#[derive(Debug)]
struct Loss {
    since: Instant,
    looks: u32,
    missing: usize,
}

impl Evidence {
    /// Whether to believe that `missing` of `known` nodes are gone, where `known` are those with a record that does
    /// not say so yet.
    pub(crate) fn suffices(&mut self, missing: usize, known: usize, now: Instant) -> bool {
        if missing < FEW || missing * PART <= known {
            self.loss = None;
            return true;
        }
        // A loss that grows is another one.
        let loss = match self.loss.take().filter(|loss| missing <= loss.missing) {
            Some(loss) => Loss { looks: loss.looks + 1, ..loss },
            None => {
                tracing::warn!(missing, known, hold = ?HOLD, "a large share of the nodes is missing: waiting whether that lasts");
                Loss { since: now, looks: 1, missing }
            }
        };
        let lasts = loss.looks >= LOOKS && now.duration_since(loss.since) >= HOLD;
        self.loss = Some(loss);
        lasts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_missing_nodes_are_believed_at_once() {
        let mut evidence = Evidence::default();
        for (missing, known) in [(0, 0), (1, 1), (2, 2), (2, 100), (33, 100), (33_333, 100_000)] {
            assert!(evidence.suffices(missing, known, Instant::now()), "{missing} of {known}");
        }
    }

    #[test]
    fn a_large_loss_is_believed_once_it_has_lasted() {
        for (missing, known) in [(3, 3), (3, 8), (34, 100), (100, 100), (40_000, 100_000)] {
            let mut evidence = Evidence::default();
            let now = Instant::now();
            assert!(!evidence.suffices(missing, known, now), "{missing} of {known}");
            assert!(!evidence.suffices(missing, known, now + HOLD - Duration::from_millis(1)));
            assert!(evidence.suffices(missing, known, now + HOLD));
        }
    }

    #[test]
    fn two_looks_far_apart_are_too_few() {
        let mut evidence = Evidence::default();
        let now = Instant::now();
        assert!(!evidence.suffices(100, 100, now));
        assert!(!evidence.suffices(100, 100, now + HOLD * 2));
        assert!(evidence.suffices(100, 100, now + HOLD * 4));
    }

    #[test]
    fn a_loss_that_grows_begins_anew() {
        let mut evidence = Evidence::default();
        let now = Instant::now();
        for looks in 0..3 {
            evidence.suffices(50, 100, now + HOLD * looks);
        }
        assert!(!evidence.suffices(100, 100, now + HOLD * 4));
    }

    #[test]
    fn a_loss_that_ends_is_forgotten() {
        let mut evidence = Evidence::default();
        let now = Instant::now();
        assert!(!evidence.suffices(100, 100, now));
        assert!(evidence.suffices(0, 100, now + HOLD / 2));
        assert!(!evidence.suffices(100, 100, now + HOLD));
    }
}
