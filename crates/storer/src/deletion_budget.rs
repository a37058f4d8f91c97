//! How many records of Nodes that are long gone may be deleted in an hour. Whatever makes many of them seem over at the same time, a
//! clock, a mistaken rule or a fault nobody has thought of, takes hours to do harm then, and somebody can look.
//!
//! They go one after the other, evenly over the hour, and nothing is saved up: so no restart, and no hand-over of a shard, lets more of
//! them go.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use label_storage::RecordKey;
use label_storage::rules::Percentage;

use crate::metrics::StorerMetrics;

/// The time that the share is meant for.
const HOUR: Duration = Duration::from_secs(3600);

/// How often to tell that some have to wait.
const TELL_EVERY: Duration = Duration::from_secs(600);

/// The deletions of one shard's records.
pub(crate) struct DeletionBudget {
    share: Percentage,
    /// So many records there are.
    records: usize,
    /// When each of those may go that are over, and whether it was said to wait.
    turns: HashMap<RecordKey, Turn>,
    /// The last of these times.
    last: Option<Instant>,
    told_at: Option<Instant>,
    counts: Arc<StorerMetrics>,
}

struct Turn {
    at: Instant,
    is_held_back: bool,
}

impl DeletionBudget {
    pub(crate) fn new(share: Percentage, counts: Arc<StorerMetrics>) -> Self {
        Self { share, records: 0, turns: HashMap::new(), last: None, told_at: None, counts }
    }

    /// For how long a record has to wait before it may be deleted; `None`: it may be.
    pub(crate) fn wait(&mut self, name: &RecordKey, now: Instant) -> Option<Duration> {
        if self.share.is_whole() {
            return None;
        }
        // The records were not counted yet.
        if self.records == 0 {
            return Some(Duration::from_secs(1));
        }
        let in_an_hour = self.share.of(self.records);
        let pause = HOUR / u32::try_from(in_an_hour).unwrap_or(u32::MAX);
        let turn = self.turns.entry(name.clone()).or_insert_with(|| {
            let at = self.last.map_or(now, |last| last.max(now)) + pause;
            self.last = Some(at);
            self.counts.cleanups_held_back.inc();
            Turn { at, is_held_back: true }
        });
        let wait = turn.at.saturating_duration_since(now);
        if wait.is_zero() {
            release(turn, &self.counts);
            return None;
        }
        if self.told_at.is_none_or(|at| now.saturating_duration_since(at) >= TELL_EVERY) {
            self.told_at = Some(now);
            tracing::info!(
                records = self.records,
                in_an_hour,
                example = &**name,
                ?wait,
                "records are over, and are deleted one after the other"
            );
        }
        Some(wait)
    }

    /// True if a record may be deleted now.
    pub(crate) fn is_its_turn(&self, key: &str, now: Instant) -> bool {
        self.share.is_whole() || self.turns.get(key).is_some_and(|turn| turn.at <= now)
    }

    /// A deletion came to its end, or to nothing.
    pub(crate) fn done(&mut self, name: &str) {
        if let Some(mut turn) = self.turns.remove(name) {
            release(&mut turn, &self.counts);
        }
    }

    /// All records were counted; some that had to wait may not be there any more.
    pub(crate) fn counted(&mut self, records: usize, is_there: impl Fn(&str) -> bool) {
        self.records = records;
        let gone: Vec<_> = self.turns.keys().filter(|name| !is_there(name)).cloned().collect();
        gone.iter().for_each(|name| self.done(name));
    }
}

impl Drop for DeletionBudget {
    fn drop(&mut self) {
        let held_back = self.turns.values().filter(|turn| turn.is_held_back).count();
        self.counts.cleanups_held_back.dec_by(held_back as i64);
    }
}

/// Takes note that a record has to wait no longer.
fn release(turn: &mut Turn, counts: &StorerMetrics) {
    if std::mem::take(&mut turn.is_held_back) {
        counts.cleanups_held_back.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleanup(share: &str) -> DeletionBudget {
        DeletionBudget::new(share.parse().expect("a share"), Arc::default())
    }

    fn name(number: usize) -> RecordKey {
        RecordKey::from(format!("n{number}").as_str())
    }

    #[test]
    fn a_share_of_all_goes_in_an_hour_one_after_the_other() {
        let (mut cleanup, now) = (cleanup("10%"), Instant::now());
        cleanup.counted(100, |_| true);
        let granted = |cleanup: &mut DeletionBudget, at: Instant| {
            (0..100).filter(|number| cleanup.wait(&name(*number), at).is_none()).count()
        };
        assert_eq!(granted(&mut cleanup, now), 0, "nothing was saved up before");
        assert_eq!(cleanup.counts.cleanups_held_back.get(), 100);
        assert_eq!(granted(&mut cleanup, now + HOUR / 2), 5);
        assert_eq!(granted(&mut cleanup, now + HOUR), 10);
        assert_eq!(cleanup.counts.cleanups_held_back.get(), 90);
        for number in 0..10 {
            cleanup.done(&name(number));
        }
        assert_eq!(
            cleanup.wait(&name(0), now + HOUR),
            Some(HOUR * 9 + HOUR / 10),
            "once more, it is the last"
        );
        cleanup.counted(0, |_| false);
        assert_eq!(cleanup.counts.cleanups_held_back.get(), 0);
    }

    #[test]
    fn whose_turn_has_come_keeps_it_until_it_is_done() {
        let (mut cleanup, now) = (cleanup("1%"), Instant::now());
        cleanup.counted(1, |_| true);
        assert_eq!(cleanup.wait(&name(0), now), Some(HOUR), "at least one goes in an hour");
        for _ in 0..3 {
            assert_eq!(cleanup.wait(&name(0), now + HOUR), None);
        }
        cleanup.done(&name(0));
        assert_eq!(cleanup.wait(&name(0), now + HOUR), Some(HOUR));
    }

    #[test]
    fn all_of_them_in_an_hour_need_not_wait_for_each_other() {
        assert_eq!(cleanup("100%").wait(&name(0), Instant::now()), None);
    }
}
