//! Logs the progress every few seconds, so that a mass change does not need a line for each Node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::call::Error;
use crate::metrics::Metrics;
use crate::reconciler::Done;
use crate::work_queue::WorkQueue;

/// The least time between two lines, and the most while there is much to do.
const EVERY: Duration = Duration::from_secs(5);
const FAILED: &str = "failed";

pub(super) struct ProgressLog {
    pub(super) metrics: Arc<Metrics>,
    counts: BTreeMap<&'static str, usize>,
    since: Instant,
    logged_at: Option<Instant>,
}

impl ProgressLog {
    pub(super) fn new(metrics: &Arc<Metrics>) -> Self {
        let (counts, since) = (BTreeMap::new(), Instant::now());
        Self { metrics: Arc::clone(metrics), counts, since, logged_at: None }
    }

    pub(super) fn count(&mut self, outcome: &Result<Done, Error>, took: Duration) {
        let word = match outcome {
            Ok(done) => done.outcome,
            Err(error) => {
                self.metrics.failed(error);
                Some(FAILED)
            }
        };
        self.metrics.reconciled(word.unwrap_or("nothing"), took);
        if let Some(word) = word {
            if self.counts.is_empty() {
                self.since = Instant::now();
            }
            *self.counts.entry(word).or_default() += 1;
        }
    }

    /// The time of the next line: when no attempt is in flight, or when the interval is over.
    pub(super) fn due(&self, queue: &WorkQueue) -> Option<Instant> {
        let rest = self.logged_at.map_or(self.since, |logged_at| logged_at + EVERY);
        let due = if queue.in_flight() == 0 { rest } else { self.since + EVERY };
        (!self.counts.is_empty()).then_some(due)
    }

    pub(super) fn tell_if_due(&mut self, queue: &WorkQueue, now: Instant) {
        if let Some((done, queued)) = self.take_if_due(queue, now) {
            let took = now.duration_since(self.since);
            let left = time_left(queued, done.values().sum(), took).map(tracing::field::debug);
            tracing::info!(?done, queued, ?took, left, "worked");
        }
    }

    /// The outcomes, and the number of Nodes that could be begun now. A single Node has a line of its own, and so has each failure.
    fn take_if_due(
        &mut self,
        queue: &WorkQueue,
        now: Instant,
    ) -> Option<(BTreeMap<&'static str, usize>, usize)> {
        self.due(queue).filter(|due| *due <= now)?;
        let (done, queued) = (std::mem::take(&mut self.counts), queue.ready(now));
        let is_told =
            done.values().sum::<usize>() <= 1 || queued == 0 && done.keys().all(|word| *word == FAILED);
        if is_told {
            return None;
        }
        self.logged_at = Some(now);
        Some((done, queued))
    }
}

/// The time until the queue is empty at the present rate, in whole seconds.
fn time_left(queued: usize, done: usize, took: Duration) -> Option<Duration> {
    let seconds = took.as_secs_f64() * queued as f64 / done as f64;
    (queued > 0).then(|| Duration::from_secs(seconds.ceil() as u64))
}

#[cfg(test)]
mod tests {
    use label_storage::RecordKey;
    use label_storage::decision::Urgency;

    use super::*;
    use crate::cache::Reading;

    const SECOND: Duration = Duration::from_secs(1);

    /// A log after these outcomes, from now on.
    fn after(outcomes: &[Option<&'static str>]) -> (ProgressLog, Instant) {
        let mut log = ProgressLog::new(&Arc::default());
        work(&mut log, outcomes);
        let now = log.since;
        (log, now)
    }

    fn work(log: &mut ProgressLog, outcomes: &[Option<&'static str>]) {
        for outcome in outcomes {
            let done = Done { outcome: *outcome, node: Reading::None, record: Reading::None };
            let outcome = outcome.map_or_else(|| Err(Error::refused("try", "no")), |_| Ok(done));
            log.count(&outcome, Duration::ZERO);
        }
    }

    #[test]
    fn there_is_a_line_at_once_and_then_one_every_few_seconds() {
        let queue = WorkQueue::default();
        let (mut log, start) = after(&[Some("stored"); 2]);
        assert_eq!(log.take_if_due(&queue, start), Some(([("stored", 2)].into(), 0)));
        for second in 1..5 {
            work(&mut log, &[Some("stored"); 2]);
            assert_eq!(log.due(&queue), Some(start + EVERY));
            assert_eq!(log.take_if_due(&queue, start + SECOND * second), None, "{second} s");
        }
        assert_eq!(log.take_if_due(&queue, start + EVERY), Some(([("stored", 8)].into(), 0)));
        assert_eq!(log.due(&queue), None);
    }

    #[test]
    fn while_attempts_are_in_flight_a_line_waits_for_the_interval() {
        let mut queue = WorkQueue::default();
        queue.push(&RecordKey::from("a"), Urgency::Soon, None);
        let (mut log, start) = after(&[Some("stored"); 2]);
        assert!(queue.pop(Urgency::Tidy, start).is_some());
        assert_eq!(log.take_if_due(&queue, start + SECOND * 4), None);
        assert_eq!(log.take_if_due(&queue, start + EVERY), Some(([("stored", 2)].into(), 0)));
    }

    #[test]
    fn there_is_no_line_if_the_outcomes_have_lines_of_their_own() {
        let mut queue = WorkQueue::default();
        for outcomes in [&[Some("stored")][..], &[None, None]] {
            let (mut log, start) = after(outcomes);
            assert_eq!(log.take_if_due(&queue, start), None, "{outcomes:?}");
            assert_eq!(log.due(&queue), None);
        }
        let (mut log, start) = after(&[None, None]);
        queue.push(&RecordKey::from("a"), Urgency::Soon, None);
        assert_eq!(log.take_if_due(&queue, start), Some(([("failed", 2)].into(), 1)), "others wait");
    }

    #[test]
    fn the_time_left_follows_from_the_rate() {
        let took = Duration::from_secs(5);
        let shown = |queued, done| time_left(queued, done, took).map(|left| format!("{left:?}"));
        assert_eq!(shown(4200, 500), Some("42s".to_owned()));
        assert_eq!(shown(1, 500), Some("1s".to_owned()));
        assert_eq!(shown(0, 500), None);
    }
}
