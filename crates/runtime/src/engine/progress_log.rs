//! How much was done, in a line now and then rather than a line each.

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
    /// How often to tell, while there is much to do.
    const EVERY: Duration = Duration::from_secs(10);

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

    /// Tells when nothing is being worked on, or it has been a while. Of a single Node its own line has told.
    pub(super) fn tell_if_due(&mut self, queue: &WorkQueue, now: Instant) {
        let is_over = queue.in_flight() == 0;
        if self.due().is_some_and(|due| is_over || due <= now) {
            let (took, done) = (self.since.elapsed(), std::mem::take(&mut self.counts));
            if done.values().sum::<usize>() > 1 {
                tracing::info!(?done, queued = queue.len(), ?took, "worked");
            }
        }
    }
}
