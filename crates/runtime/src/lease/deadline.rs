//! Ends the work on a shard before its lease can be adopted.

use std::future::{pending, poll_fn};
use std::task::Poll;

use tokio::sync::watch;

use super::RENEW_DEADLINE;
use crate::boot_time::BootTime;

/// The end of a lease, which every renewal moves. A process that was suspended or cut off needs no message to notice it.
/// Without a lease, which is the default, there is no deadline.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeaseDeadline(watch::Sender<Term>);

/// The time from a claim of the lease until it ends.
#[derive(Debug, Clone, Copy, Default)]
struct Term {
    until: Option<BootTime>,
    /// Counts the times that the lease had ended before it was renewed.
    number: u64,
}

impl Term {
    fn holds(self) -> bool {
        self.until.is_none_or(|until| BootTime::now() < until)
    }
}

impl LeaseDeadline {
    /// The deadline of a lease that was taken by a call that began at `began`.
    pub(crate) fn new(began: BootTime) -> Self {
        Self(watch::Sender::new(Term { until: Some(began + RENEW_DEADLINE), number: 0 }))
    }

    pub(crate) fn renew(&self, began: BootTime) {
        self.0.send_modify(|term| {
            term.number += u64::from(!term.holds());
            term.until = Some(began + RENEW_DEADLINE);
        });
    }

    pub(crate) fn holds(&self) -> bool {
        self.0.borrow().holds()
    }

    /// The number of the term. What was read in an earlier one must not be used: it may be of any age.
    pub(crate) fn term(&self) -> u64 {
        self.0.borrow().number
    }

    /// Works until the deadline, and not in a later term. It is checked before every step, so that a process that was suspended goes no further.
    pub(crate) async fn within<T>(self, work: impl Future<Output = T>) -> Option<T> {
        let term = self.term();
        let (mut work, mut ended) = (std::pin::pin!(work), std::pin::pin!(self.ended()));
        poll_fn(|context| {
            if !self.holds() || self.term() != term || ended.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(context).map(Some)
        })
        .await
    }

    async fn ended(&self) {
        while self.holds() {
            let until = self.0.borrow().until;
            let Some(until) = until else { return pending().await };
            tokio::time::sleep(until - BootTime::now()).await;
        }
    }

    /// Resolves at the next renewal.
    pub(crate) async fn renewed(&mut self) {
        let _ = self.0.subscribe().changed().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;
    use crate::boot_time::suspend;

    /// The deadline of a lease that has just ended.
    fn ended() -> LeaseDeadline {
        let deadline = LeaseDeadline::new(BootTime::now());
        suspend(RENEW_DEADLINE);
        deadline
    }

    #[tokio::test]
    async fn it_ends_by_itself_unless_it_is_renewed() {
        let deadline = ended();
        assert!(!deadline.holds());
        deadline.ended().await;
        deadline.renew(BootTime::now());
        assert!(deadline.holds());
        let almost_ended = BootTime::now();
        suspend(RENEW_DEADLINE - Duration::from_millis(20));
        deadline.renew(almost_ended);
        deadline.ended().await;
        assert!(!deadline.holds());
    }

    #[test]
    fn without_a_lease_it_never_ends() {
        assert!(LeaseDeadline::default().holds());
        assert_eq!(LeaseDeadline::default().ended().now_or_never(), None);
        assert_eq!(LeaseDeadline::default().within(async { 1 }).now_or_never(), Some(Some(1)));
    }

    #[tokio::test]
    async fn nothing_is_begun_or_gone_on_with_after_its_end() {
        assert_eq!(ended().within(async { 1 }).await, None);
        let deadline = LeaseDeadline::new(BootTime::now());
        let suspended = async {
            suspend(RENEW_DEADLINE);
            tokio::task::yield_now().await;
            1
        };
        assert_eq!(deadline.within(suspended).await, None);
    }

    #[tokio::test]
    async fn a_renewal_after_the_end_does_not_continue_what_was_begun_before() {
        let deadline = LeaseDeadline::new(BootTime::now());
        let of_the_manager = deadline.clone();
        let work = async |suspended| {
            suspend(suspended);
            of_the_manager.renew(BootTime::now());
            tokio::task::yield_now().await;
            1
        };
        assert_eq!(deadline.clone().within(work(RENEW_DEADLINE / 2)).await, Some(1));
        assert_eq!(deadline.clone().within(work(RENEW_DEADLINE)).await, None);
        assert!(deadline.holds());
    }
}
