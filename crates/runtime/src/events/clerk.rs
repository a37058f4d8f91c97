//! Takes news out of the inbox and has them written, one after the other.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::book::{Book, Summary, Verdict};
use super::writer::Writer;
use super::{Inbox, News, REASONS, Reason};
use crate::call::{Error, Kind};
use crate::pace;

/// How often to look whether something is to be told that was counted.
const LOOK: Duration = Duration::from_secs(1);

/// How often failures are logged.
const LOG: Duration = Duration::from_secs(600);

/// After a refusal, nothing is tried for this long: it takes a person to change that.
const REFUSED: Duration = Duration::from_secs(600);

/// After other failures not for longer than this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

pub(super) struct Clerk {
    writer: Writer,
    inbox: Arc<Inbox>,
    book: Book,
    /// So many calls in a row have failed.
    failures: u32,
    logged_at: Option<Instant>,
    /// Whether it was said that the account may not.
    has_said_denied: bool,
}

impl Clerk {
    pub(super) fn new(writer: Writer, inbox: Arc<Inbox>) -> Self {
        Self {
            writer,
            inbox,
            book: Book::new(Instant::now()),
            failures: 0,
            logged_at: None,
            has_said_denied: false,
        }
    }

    pub(super) async fn run(mut self, mut received: mpsc::Receiver<News>, closing: CancellationToken) {
        let mut look = tokio::time::interval_at(Instant::now() + LOOK, LOOK);
        while !closing.is_cancelled() {
            tokio::select! {
                Some(news) = received.recv() => self.take(news).await,
                _ = look.tick() => self.look().await,
                () = closing.cancelled() => (),
            }
        }
        while let Ok(news) = received.try_recv() {
            self.take(news).await;
        }
        self.collect();
        self.sum_up(true).await;
    }

    async fn take(&mut self, news: News) {
        let reason = news.reason;
        match self.book.take(&news, Instant::now()) {
            Verdict::Write => match self.writer.write(&news).await {
                Ok(name) => {
                    self.succeeded(reason);
                    self.book.written(news, name, Instant::now());
                }
                Err(error) => self.failed(reason, &error),
            },
            Verdict::Remember => (),
            Verdict::Count => self.count(reason, "summarised", 1),
        }
    }

    async fn look(&mut self) {
        self.collect();
        for repeated in self.book.repeated(Instant::now()) {
            match self.writer.repeat(&repeated).await {
                Ok(()) => self.succeeded(repeated.news.reason),
                // An Event lives for an hour.
                Err(error) if error.code == Some(404) => self.book.lost(&repeated.news),
                Err(error) => self.failed(repeated.news.reason, &error),
            }
        }
        self.sum_up(false).await;
    }

    /// Counts what did not fit into the inbox.
    fn collect(&mut self) {
        for reason in REASONS {
            let uncollected = self.inbox.collect(reason);
            self.count(reason, "summarised", uncollected);
            self.book.count(reason, uncollected, Instant::now());
        }
    }

    async fn sum_up(&mut self, is_end: bool) {
        for summary in self.book.summaries(Instant::now(), is_end) {
            let Summary { reason, .. } = summary;
            match self.writer.sum_up(&summary).await {
                Ok(_) => self.succeeded(reason),
                Err(error) => {
                    self.failed(reason, &error);
                    // Only a number: it can be told later.
                    self.book.count(reason, summary.count, Instant::now());
                }
            }
        }
    }

    fn count(&self, reason: Reason, outcome: &'static str, count: u64) {
        if count > 0 {
            let labels = [("reason", reason.as_str()), ("outcome", outcome)];
            self.inbox.metrics.events.get_or_create(&labels).inc_by(count);
        }
    }

    fn succeeded(&mut self, reason: Reason) {
        (self.failures, self.has_said_denied) = (0, false);
        self.count(reason, "written", 1);
    }

    /// It is not tried again. What comes next is only counted for a while.
    fn failed(&mut self, reason: Reason, error: &Error) {
        self.count(reason, "failed", 1);
        self.failures += 1;
        let now = Instant::now();
        let is_denied = matches!(error.code, Some(401 | 403));
        let pause = match error.kind {
            Kind::Busy(pause) => pause,
            Kind::Refused if is_denied => REFUSED,
            // The server did not like this very Event.
            Kind::Refused => Duration::ZERO,
            _ => pace::exponential(Duration::from_secs(1), self.failures, LONGEST_PAUSE),
        };
        self.book.pause(now + pause);
        let is_logged = self.logged_at.is_some_and(|at| now.duration_since(at) < LOG);
        if is_denied && !self.has_said_denied {
            self.has_said_denied = true;
            let namespace = &self.writer.namespace;
            tracing::warn!(
                %error,
                "no Events are written: let this account create and patch events.k8s.io events in the namespaces default and \
                 {namespace}, or give --events=false"
            );
        } else if !is_denied && !is_logged {
            self.logged_at = Some(now);
            tracing::warn!(%error, "an Event could not be written; all else goes on");
        }
    }
}
