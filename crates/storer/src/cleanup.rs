//! How many records of Nodes that are long gone may be deleted in an hour. Whatever makes many of them seem over at the same time, a
//! clock, a mistaken rule or a fault nobody has thought of, takes hours to do harm then, and somebody can look.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use label_storage::rules::Share;
use label_storage_runtime::table::Name;

use crate::counts::Counts;

/// The time that the share is meant for.
const HOUR: Duration = Duration::from_secs(3600);

/// How often to tell that some have to wait.
const TELL_EVERY: Duration = Duration::from_secs(600);

/// When the last records were let go. For a process as a whole: it outlives a change of rules, and of shards.
#[derive(Debug, Default)]
pub(crate) struct Grants(Mutex<VecDeque<Instant>>);

impl Grants {
    /// One more, where so many are allowed in an hour. An error: not before this time.
    fn grant(&self, most: usize, now: Instant) -> Result<(), Duration> {
        let mut granted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while granted.front().is_some_and(|at| now.saturating_duration_since(*at) >= HOUR) {
            granted.pop_front();
        }
        match granted.front() {
            Some(oldest) if granted.len() >= most => {
                Err((*oldest + HOUR).saturating_duration_since(now).max(Duration::from_secs(1)))
            }
            _ => {
                granted.push_back(now);
                Ok(())
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// The deletions of one shard's records.
pub(crate) struct Cleanup {
    share: Share,
    /// So many records there are.
    records: usize,
    /// Of which of them the deletion is still under way.
    under_way: HashSet<Name>,
    /// Those that have to wait.
    held_back: HashSet<Name>,
    told_at: Option<Instant>,
    counts: Arc<Counts>,
}

impl Cleanup {
    pub(crate) fn new(share: Share, counts: Arc<Counts>) -> Self {
        Self {
            share,
            records: 0,
            under_way: HashSet::new(),
            held_back: HashSet::new(),
            told_at: None,
            counts,
        }
    }

    /// For how long a record has to wait before it may be deleted; `None`: it may be.
    pub(crate) fn wait(&mut self, name: &Name, now: Instant) -> Option<Duration> {
        if self.under_way.contains(name) {
            return None;
        }
        let most = self.share.of(self.records.max(1));
        let Err(wait) = self.counts.grants.grant(most, now) else {
            self.under_way.insert(Name::clone(name));
            self.release(name);
            return None;
        };
        if self.held_back.insert(Name::clone(name)) {
            self.counts.cleanups_held_back.inc();
        }
        if self.told_at.is_none_or(|at| now.saturating_duration_since(at) >= TELL_EVERY) {
            self.told_at = Some(now);
            tracing::warn!(
                records = self.records,
                in_an_hour = most,
                example = &**name,
                "more records are over than may be deleted in an hour: the rest waits"
            );
        }
        Some(wait)
    }

    /// A deletion came to its end, or to nothing.
    pub(crate) fn done(&mut self, name: &Name) {
        self.under_way.remove(name);
    }

    /// All records were counted; some that had to wait may not be there any more.
    pub(crate) fn counted(&mut self, records: usize, is_there: impl Fn(&str) -> bool) {
        // Not down: what is deleted in an hour is a share of what there was before.
        self.records = if self.counts.grants.is_empty() { records } else { self.records.max(records) };
        let gone: Vec<_> = self.held_back.iter().filter(|name| !is_there(name)).cloned().collect();
        for name in gone {
            self.release(&name);
        }
    }

    fn release(&mut self, name: &Name) {
        if self.held_back.remove(name) {
            self.counts.cleanups_held_back.dec();
        }
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        self.counts.cleanups_held_back.dec_by(self.held_back.len() as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleanup(share: &str) -> Cleanup {
        Cleanup::new(share.parse().expect("a share"), Arc::default())
    }

    fn name(number: usize) -> Name {
        Name::from(format!("n{number}"))
    }

    #[test]
    fn a_share_of_all_may_go_in_an_hour_and_the_rest_waits() {
        let (mut cleanup, now) = (cleanup("10%"), Instant::now());
        cleanup.counted(100, |_| true);
        let granted = |cleanup: &mut Cleanup, at: Instant| {
            (0..100).filter(|number| cleanup.wait(&name(*number), at).is_none()).collect::<Vec<_>>()
        };
        assert_eq!(granted(&mut cleanup, now).len(), 10);
        assert_eq!(cleanup.counts.cleanups_held_back.get(), 90);
        for number in 0..10 {
            cleanup.done(&name(number));
        }
        cleanup.counted(90, |_| true);
        assert_eq!(granted(&mut cleanup, now + HOUR / 2).len(), 0);
        assert_eq!(granted(&mut cleanup, now + HOUR).len(), 10, "a tenth of what there was");
        cleanup.counted(0, |_| false);
        assert_eq!(cleanup.counts.cleanups_held_back.get(), 0);
    }

    #[test]
    fn what_was_let_go_once_is_not_asked_for_again_until_it_is_done() {
        let (mut cleanup, now) = (cleanup("1%"), Instant::now());
        cleanup.counted(1, |_| true);
        for _ in 0..3 {
            assert_eq!(cleanup.wait(&name(0), now), None);
        }
        cleanup.done(&name(0));
        assert_eq!(cleanup.wait(&name(0), now), Some(HOUR));
    }

    #[test]
    fn at_least_one_may_go() {
        let mut cleanup = cleanup("0.5%");
        assert_eq!(cleanup.wait(&name(0), Instant::now()), None);
    }
}
