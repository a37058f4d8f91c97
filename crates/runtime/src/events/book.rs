//! What becomes of news: an Event of its own, one more of a series, or a number among many. Without a single call.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::{News, REASONS, Reason};

/// So many Events are written at once.
pub(super) const BURST: u32 = 50;

/// And one more after each of these.
const REFILL: Duration = Duration::from_secs(1);

/// What was only counted is told this long after the first of it.
pub(super) const SUMMARY: Duration = Duration::from_secs(60);

/// That something has happened again is told at once, and from then on not more often than this. The API server forgets an
/// Event after an hour; one that is still true should be there.
pub(super) const AGAIN: Duration = Duration::from_secs(600);

/// What has not happened for this long begins anew.
const FORGET: Duration = Duration::from_secs(3600);

/// So many series are remembered; one that is not begins anew.
const MOST_SERIES: usize = 1024;

/// Remembers what was written.
pub(super) struct Book {
    /// When as many Events as can be would be there to be written.
    full_at: Instant,
    /// Nothing is written before this.
    paused_until: Instant,
    series: HashMap<News, Series>,
    /// Counted and not told, by [`Reason`].
    untold: [u64; REASONS.len()],
    /// When the first of them was counted.
    untold_since: Option<Instant>,
}

/// The same again and again.
#[derive(Debug)]
struct Series {
    /// The Event.
    name: String,
    count: i32,
    /// Of these, so many are in the Event.
    told: i32,
    told_at: Instant,
    last_at: Instant,
}

/// What to do with news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Write an Event.
    Write,
    /// Nothing now: there is one, and it will be brought up to date.
    Remember,
    /// Nothing now: it is counted.
    Count,
}

/// An Event that has become a series, or a longer one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Repeated {
    pub(super) news: News,
    pub(super) name: String,
    pub(super) count: i32,
}

/// How many were only counted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) reason: Reason,
    pub(super) count: u64,
    /// Within this time.
    pub(super) within: Duration,
}

impl Book {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            full_at: now,
            paused_until: now,
            series: HashMap::new(),
            untold: [0; REASONS.len()],
            untold_since: None,
        }
    }

    /// Decides about news.
    pub(super) fn take(&mut self, news: &News, now: Instant) -> Verdict {
        if let Some(series) = self.series.get_mut(news) {
            series.count = series.count.saturating_add(1);
            series.last_at = now;
            Verdict::Remember
        } else if self.may_write(now) {
            Verdict::Write
        } else {
            self.count(news.reason, 1, now);
            Verdict::Count
        }
    }

    /// Counts what nobody will write an Event for.
    pub(super) fn count(&mut self, reason: Reason, count: u64, now: Instant) {
        if count > 0 {
            self.untold[reason as usize] += count;
            self.untold_since.get_or_insert(now);
        }
    }

    /// Takes note of an Event that was written.
    pub(super) fn written(&mut self, news: News, name: String, now: Instant) {
        if self.series.len() >= MOST_SERIES {
            let oldest = self.series.iter().min_by_key(|(_, series)| series.last_at);
            let oldest = oldest.map(|(news, _)| news.clone());
            oldest.and_then(|oldest| self.series.remove(&oldest));
        }
        self.series.insert(news, Series { name, count: 1, told: 1, told_at: now, last_at: now });
    }

    /// The Event is not there any more: the next of its kind begins anew.
    pub(super) fn lost(&mut self, news: &News) {
        self.series.remove(news);
    }

    /// Nothing is written for a while.
    pub(super) fn pause(&mut self, until: Instant) {
        self.paused_until = until;
    }

    /// Events that are to be brought up to date.
    pub(super) fn repeated(&mut self, now: Instant) -> Vec<Repeated> {
        self.series.retain(|_, series| now.duration_since(series.last_at) < FORGET);
        let mut repeated = Vec::new();
        if now < self.paused_until {
            return repeated;
        }
        for (news, series) in &mut self.series {
            let is_due = series.told == 1 || now.duration_since(series.told_at) >= AGAIN;
            if series.count > series.told && is_due {
                (series.told, series.told_at) = (series.count, now);
                let (name, count) = (series.name.clone(), series.count);
                repeated.push(Repeated { news: news.clone(), name, count });
            }
        }
        repeated
    }

    /// What was only counted, once it is time to tell; at the end, it is.
    pub(super) fn summaries(&mut self, now: Instant, is_end: bool) -> Vec<Summary> {
        let Some(since) = self.untold_since else { return Vec::new() };
        let within = now.duration_since(since);
        if !is_end && (within < SUMMARY || now < self.paused_until) {
            return Vec::new();
        }
        self.untold_since = None;
        let untold = std::mem::take(&mut self.untold);
        let all = REASONS.into_iter().zip(untold).map(|(reason, count)| Summary { reason, count, within });
        all.filter(|summary| summary.count > 0).collect()
    }

    /// One Event less to write, if there is one left.
    fn may_write(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.max(now) + REFILL;
        let is_allowed = now >= self.paused_until && full_at <= now + REFILL * BURST;
        if is_allowed {
            self.full_at = full_at;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news(node: u32) -> News {
        let (reason, node, note) = (Reason::LabelsRestored, node.to_string(), "pool".to_owned());
        News { reason, uid: format!("u{node}"), node, note }
    }

    /// What becomes of the news of so many Nodes.
    fn many(book: &mut Book, nodes: std::ops::Range<u32>, now: Instant) -> (usize, usize) {
        let verdicts: Vec<_> = nodes.map(|node| book.take(&news(node), now)).collect();
        let of = |verdict| verdicts.iter().filter(|other| **other == verdict).count();
        (of(Verdict::Write), of(Verdict::Count))
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_a_burst_nodes_are_counted_and_told_of_at_once() {
        let mut book = Book::new(Instant::now());
        assert_eq!(many(&mut book, 0..5000, Instant::now()), (50, 4950));
        assert_eq!(book.summaries(Instant::now(), false), []);
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(many(&mut book, 5000..5100, Instant::now()), (20, 80), "one more for each second");
        tokio::time::advance(Duration::from_secs(40)).await;
        let summary = |count, within| Summary {
            reason: Reason::LabelsRestored,
            count,
            within: Duration::from_secs(within),
        };
        assert_eq!(book.summaries(Instant::now(), false), [summary(5030, 60)]);
        assert_eq!(book.summaries(Instant::now(), true), [], "told once");
        // After a while all is as it was in the beginning, and no better.
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(many(&mut book, 6000..6100, Instant::now()), (50, 50));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(book.summaries(Instant::now(), true), [summary(50, 5)], "at the end, without waiting");
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_again_is_one_event_that_is_brought_up_to_date_now_and_then() {
        let mut book = Book::new(Instant::now());
        assert_eq!(book.take(&news(1), Instant::now()), Verdict::Write);
        book.written(news(1), "e".to_owned(), Instant::now());
        let repeated = |count| Repeated { news: news(1), name: "e".to_owned(), count };
        assert_eq!(book.take(&news(1), Instant::now()), Verdict::Remember);
        assert_eq!(book.repeated(Instant::now()), [repeated(2)]);
        for _ in 0..100 {
            assert_eq!(book.take(&news(1), Instant::now()), Verdict::Remember);
            assert_eq!(book.repeated(Instant::now()), []);
        }
        tokio::time::advance(AGAIN).await;
        assert_eq!(book.repeated(Instant::now()), [repeated(102)]);
        assert_eq!(book.repeated(Instant::now()), []);
        tokio::time::advance(AGAIN).await;
        assert_eq!(book.repeated(Instant::now()), [], "nothing new");
        // Something else about the same Node is something else.
        let other = News { reason: Reason::RestoreConflict, ..news(1) };
        assert_eq!(book.take(&other, Instant::now()), Verdict::Write);
        book.lost(&news(1));
        assert_eq!(book.take(&news(1), Instant::now()), Verdict::Write);
        book.written(news(1), "f".to_owned(), Instant::now());
        tokio::time::advance(FORGET).await;
        assert_eq!(book.repeated(Instant::now()), []);
        assert_eq!(book.take(&news(1), Instant::now()), Verdict::Write, "an hour later the Event is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_series_are_remembered() {
        let mut book = Book::new(Instant::now());
        for node in 0..2 * MOST_SERIES as u32 {
            book.written(news(node), node.to_string(), Instant::now());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(book.series.len(), MOST_SERIES);
        assert_eq!(book.take(&news(2 * MOST_SERIES as u32 - 1), Instant::now()), Verdict::Remember);
    }

    #[tokio::test(start_paused = true)]
    async fn while_it_is_in_vain_nothing_is_written_and_all_is_counted() {
        let mut book = Book::new(Instant::now());
        book.written(news(1), "e".to_owned(), Instant::now());
        book.take(&news(1), Instant::now());
        book.pause(Instant::now() + AGAIN * 2);
        assert_eq!(many(&mut book, 2..10, Instant::now()), (0, 8));
        tokio::time::advance(AGAIN).await;
        assert_eq!(
            (book.repeated(Instant::now()).len(), book.summaries(Instant::now(), false).len()),
            (0, 0)
        );
        tokio::time::advance(AGAIN).await;
        assert_eq!(
            (book.repeated(Instant::now()).len(), book.summaries(Instant::now(), false).len()),
            (1, 1)
        );
        assert_eq!(many(&mut book, 10..11, Instant::now()), (1, 0));
    }
}
