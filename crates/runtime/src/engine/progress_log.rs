//! Logs the progress every few seconds, so that a mass change does not need a line for each Node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::call::Error;
use crate::metrics::Metrics;
use crate::reconciler::Done;
use crate::work_queue::WorkQueue;

pub(super) struct ProgressLog {
    pub(super) metrics: Arc<Metrics>,
    counts: BTreeMap<&'static str, usize>,
    since: Instant,
}

impl ProgressLog {
    /// The interval of the log lines while there is much to do.
    const EVERY: Duration = Duration::from_secs(5);

    pub(super) fn new(metrics: &Arc<Metrics>) -> Self {
        Self { metrics: Arc::clone(metrics), counts: BTreeMap::new(), since: Instant::now() }
    }

    pub(super) fn count(&mut self, outcome: &Result<Done, Error>, took: Duration) {
        let word = match outcome {
            Ok(done) => done.outcome,
            Err(error) => {
                self.metrics.failed(error);
                Some("failed")
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

    pub(super) fn due(&self) -> Option<Instant> {
        (!self.counts.is_empty()).then(|| self.since + Self::EVERY)
    }

    /// Logs when no attempt is in flight, or when the interval is over. A single Node has a line of its own.
    pub(super) fn tell_if_due(&mut self, queue: &WorkQueue, now: Instant) {
        let is_over = queue.in_flight() == 0;
        if self.due().is_some_and(|due| is_over || due <= now) {
            let (took, done) = (self.since.elapsed(), std::mem::take(&mut self.counts));
            let all = done.values().sum();
            if all > 1 {
                let queued = queue.ready();
                let left = time_left(queued, all, took).map(tracing::field::debug);
                tracing::info!(?done, queued, ?took, left, "worked");
            }
        }
    }
}

/// The time until the queue is empty at the present rate, in whole seconds.
fn time_left(queued: usize, done: usize, took: Duration) -> Option<Duration> {
    let seconds = took.as_secs_f64() * queued as f64 / done as f64;
    (queued > 0).then(|| Duration::from_secs(seconds.ceil() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_rate() {
        let took = Duration::from_secs(5);
        let shown = |queued, done| time_left(queued, done, took).map(|left| format!("{left:?}"));
        assert_eq!(shown(4200, 500), Some("42s".to_owned()));
        assert_eq!(shown(1, 500), Some("1s".to_owned()));
        assert_eq!(shown(0, 500), None);
    }
}
