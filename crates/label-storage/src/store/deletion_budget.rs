//! Limits the number of expired records that are deleted in an hour. If a clock, a rule or a fault makes many records expire at once, the
//! deletion takes hours, and a person can intervene.
//!
//! Records are deleted one after the other, evenly over the hour. Nothing is saved up, so neither a restart nor a hand-over deletes more.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::RecordKey;
use crate::rules::Percentage;

const HOUR: Duration = Duration::from_secs(3600);

/// The deletions of one shard's records.
#[derive(Debug)]
pub struct DeletionBudget {
    share: Percentage,
    records: usize,
    /// The time at which each record may be deleted, and true until that was noticed.
    turns: HashMap<RecordKey, (Instant, bool)>,
    /// The turns that are still to come.
    waiting: usize,
    last: Option<Instant>,
}

impl DeletionBudget {
    /// Allows this share of all records in an hour.
    pub fn new(share: Percentage) -> Self {
        Self { share, records: 0, turns: HashMap::new(), waiting: 0, last: None }
    }

    /// The pause before a record may be deleted.
    pub fn pause(&mut self, key: &RecordKey, now: Instant) -> Duration {
        if self.share.is_whole() {
            return Duration::ZERO;
        }
        // The records were not counted yet.
        if self.records == 0 {
            return Duration::from_secs(1);
        }
        let between = HOUR / u32::try_from(self.share.of(self.records)).unwrap_or(u32::MAX);
        let (turn, is_waiting) = self.turns.entry(key.clone()).or_insert_with(|| {
            self.waiting += 1;
            let at = self.last.map_or(now, |last| last.max(now)) + between;
            (*self.last.insert(at), true)
        });
        let pause = turn.saturating_duration_since(now);
        if pause.is_zero() {
            self.waiting -= usize::from(std::mem::take(is_waiting));
        }
        pause
    }

    /// True if a record may be deleted now.
    pub fn is_its_turn(&self, key: &str, now: Instant) -> bool {
        self.share.is_whole() || self.turns.get(key).is_some_and(|(turn, _)| *turn <= now)
    }

    /// The number of records that have to wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// A record was deleted, or is not to be deleted any more.
    pub fn done(&mut self, key: &str) {
        self.waiting -= usize::from(self.turns.remove(key).is_some_and(|(_, is_waiting)| is_waiting));
    }

    /// All records were counted. Drops those that do not exist.
    pub fn counted(&mut self, records: usize, is_there: impl Fn(&str) -> bool) {
        self.records = records;
        self.turns.retain(|key, _| is_there(key));
        self.waiting = self.turns.values().filter(|(_, is_waiting)| *is_waiting).count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(share: &str) -> DeletionBudget {
        DeletionBudget::new(share.parse().expect("a share"))
    }

    fn key(number: usize) -> RecordKey {
        RecordKey::from(format!("n{number}").as_str())
    }

    #[test]
    fn a_share_of_all_goes_in_an_hour_one_after_the_other() {
        let (mut budget, now) = (budget("10%"), Instant::now());
        budget.counted(100, |_| true);
        let granted = |budget: &mut DeletionBudget, at: Instant| {
            (0..100).filter(|number| budget.pause(&key(*number), at).is_zero()).count()
        };
        assert_eq!(granted(&mut budget, now), 0, "nothing was saved up before");
        assert_eq!(budget.waiting(), 100);
        assert_eq!(granted(&mut budget, now + HOUR / 2), 5);
        assert_eq!(granted(&mut budget, now + HOUR), 10);
        assert_eq!(budget.waiting(), 90);
        assert!(budget.is_its_turn("n9", now + HOUR) && !budget.is_its_turn("n10", now + HOUR));
        (0..10).for_each(|number| budget.done(&key(number)));
        let pause = budget.pause(&key(0), now + HOUR);
        assert_eq!(pause, HOUR * 9 + HOUR / 10, "once more, it is the last");
        budget.counted(0, |_| false);
        assert_eq!(budget.waiting(), 0);
    }

    #[test]
    fn whose_turn_has_come_keeps_it_until_it_is_done() {
        let (mut budget, now) = (budget("1%"), Instant::now());
        assert_eq!(budget.pause(&key(0), now), Duration::from_secs(1), "nobody has counted yet");
        budget.counted(1, |_| true);
        assert_eq!(budget.pause(&key(0), now), HOUR, "at least one goes in an hour");
        for _ in 0..3 {
            assert_eq!(budget.pause(&key(0), now + HOUR), Duration::ZERO);
        }
        budget.done(&key(0));
        assert_eq!(budget.pause(&key(0), now + HOUR), HOUR);
    }

    #[test]
    fn all_of_them_in_an_hour_need_not_wait_for_each_other() {
        let (mut budget, now) = (budget("100%"), Instant::now());
        assert!(budget.pause(&key(0), now).is_zero() && budget.is_its_turn("n0", now));
    }
}
