//! How much absence is believed.
//!
//! A list that lacks a node is how a deletion shows. It is also how a broken API server, an empty cache or the wrong
//! cluster shows. Each node that a list lacks is asked for by name before its record is touched; and where a list
//! lacks a large share of them all at once, the brake is put on: nothing is concluded from absence at all, until that has
//! stayed so for a while, in several lists, and some of the missing nodes were asked for by name and none of them was there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::counts::Counts;

/// For how long a large loss has to last.
const HOLD: Duration = Duration::from_secs(60);

/// Fewer than this are always believed, after they were asked for by name: else a cluster of two nodes could never lose one.
const FEW: usize = 3;

/// A larger part than this, one in three, is a large loss.
const PART: usize = 3;

/// And so many looks have to agree: pauses between them may be long.
const LOOKS: u32 = 3;

/// So many of the missing nodes are asked for by name.
pub(crate) const SAMPLES: usize = 8;

/// Remembers a large loss for as long as it lasts.
pub(crate) struct Evidence {
    loss: Option<Loss>,
    counts: Arc<Counts>,
}

#[derive(Debug)]
struct Loss {
    since: Instant,
    looks: u32,
    missing: usize,
    /// Whether some were asked for by name, and are not there.
    is_confirmed: bool,
}

/// What to make of an absence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The nodes are gone.
    Believed,
    /// Nobody knows yet.
    Doubted,
    /// It has lasted: samples are to tell.
    AskForSamples,
}

impl Evidence {
    pub(crate) fn new(counts: Arc<Counts>) -> Self {
        Self { loss: None, counts }
    }

    /// Whether to believe that `missing` of `known` nodes are gone, where `known` are those with a record that does
    /// not say so yet.
    pub(crate) fn judge(&mut self, missing: usize, known: usize, now: Instant) -> Judgement {
        if missing < FEW || missing * PART <= known {
            self.release("the nodes are there again");
            return Judgement::Believed;
        }
        // A loss that grows is another one.
        if self.loss.as_ref().is_some_and(|loss| missing > loss.missing) {
            self.release("even more nodes are missing");
        }
        let loss = self.loss.get_or_insert_with(|| {
            tracing::error!(
                missing,
                known,
                hold = ?HOLD,
                "a large share of the nodes is missing: nothing is stamped or cleaned up until that has lasted and samples \
                 confirm it"
            );
            self.counts.brakings.inc();
            self.counts.brakes_engaged.inc();
            Loss { since: now, looks: 0, missing, is_confirmed: false }
        });
        loss.looks += 1;
        if loss.looks < LOOKS || now.duration_since(loss.since) < HOLD {
            Judgement::Doubted
        } else if loss.is_confirmed {
            self.release("it has lasted, and samples confirm it");
            Judgement::Believed
        } else {
            Judgement::AskForSamples
        }
    }

    /// So many of the missing nodes were asked for, and so many are there.
    pub(crate) fn sampled(&mut self, asked: usize, there: usize, now: Instant) {
        let Some(loss) = &mut self.loss else { return };
        if there > 0 {
            tracing::error!(asked, there, "lists lack nodes that are there: the API server answers wrongly");
            (loss.since, loss.looks, loss.is_confirmed) = (now, 0, false);
        } else if asked > 0 {
            loss.is_confirmed = true;
        }
    }

    /// Whether nothing is concluded from absence for now.
    pub(crate) fn is_braking(&self) -> bool {
        self.loss.is_some()
    }

    fn release(&mut self, why: &str) {
        if self.loss.take().is_some() {
            tracing::info!(why, "the brake is off");
            self.counts.brakes_engaged.dec();
        }
    }
}

impl Drop for Evidence {
    fn drop(&mut self) {
        self.release("this shard is not worked on any more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence() -> Evidence {
        Evidence::new(Arc::default())
    }

    #[test]
    fn a_few_missing_nodes_are_believed_at_once() {
        let mut evidence = evidence();
        for (missing, known) in [(0, 0), (1, 1), (2, 2), (2, 100), (33, 100), (33_333, 100_000)] {
            assert_eq!(
                evidence.judge(missing, known, Instant::now()),
                Judgement::Believed,
                "{missing} of {known}"
            );
            assert!(!evidence.is_braking());
        }
    }

    #[test]
    fn a_large_loss_is_believed_once_it_has_lasted_and_samples_confirm_it() {
        for (missing, known) in [(3, 3), (3, 8), (34, 100), (100, 100), (40_000, 100_000)] {
            let mut evidence = evidence();
            let now = Instant::now();
            let mut judge = |at| evidence.judge(missing, known, at);
            assert_eq!(judge(now), Judgement::Doubted, "{missing} of {known}");
            assert_eq!(judge(now + HOLD - Duration::from_millis(1)), Judgement::Doubted);
            assert_eq!(judge(now + HOLD), Judgement::AskForSamples);
            assert_eq!(judge(now + HOLD), Judgement::AskForSamples, "nobody has answered");
            evidence.sampled(0, 0, now + HOLD);
            assert_eq!(evidence.judge(missing, known, now + HOLD), Judgement::AskForSamples, "nor now");
            assert_eq!(evidence.counts.brakes_engaged.get(), 1);
            evidence.sampled(5, 0, now + HOLD);
            assert_eq!(evidence.judge(missing, known, now + HOLD), Judgement::Believed);
            assert_eq!(evidence.counts.brakes_engaged.get(), 0);
            assert_eq!(evidence.counts.brakings.get(), 1);
        }
    }

    #[test]
    fn a_sample_that_is_there_shows_that_lists_are_wrong() {
        let (mut evidence, now) = (evidence(), Instant::now());
        for look in 0..3 {
            evidence.judge(100, 100, now + HOLD * look);
        }
        evidence.sampled(5, 1, now + HOLD * 2);
        assert_eq!(evidence.judge(100, 100, now + HOLD * 2), Judgement::Doubted, "it begins anew");
        assert!(evidence.is_braking());
    }

    #[test]
    fn two_looks_far_apart_are_too_few() {
        let mut evidence = evidence();
        let now = Instant::now();
        assert_eq!(evidence.judge(100, 100, now), Judgement::Doubted);
        assert_eq!(evidence.judge(100, 100, now + HOLD * 2), Judgement::Doubted);
        assert_eq!(evidence.judge(100, 100, now + HOLD * 4), Judgement::AskForSamples);
    }

    #[test]
    fn a_loss_that_grows_begins_anew() {
        let mut evidence = evidence();
        let now = Instant::now();
        for looks in 0..3 {
            evidence.judge(50, 100, now + HOLD * looks);
        }
        evidence.sampled(5, 0, now + HOLD * 3);
        assert_eq!(evidence.judge(100, 100, now + HOLD * 4), Judgement::Doubted);
    }

    #[test]
    fn a_loss_that_ends_is_forgotten() {
        let mut evidence = evidence();
        let now = Instant::now();
        assert_eq!(evidence.judge(100, 100, now), Judgement::Doubted);
        assert_eq!(evidence.judge(0, 100, now + HOLD / 2), Judgement::Believed);
        assert_eq!(evidence.judge(100, 100, now + HOLD), Judgement::Doubted);
    }
}
