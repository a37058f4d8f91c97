//! Ends the work on a shard before its lease can be adopted.

use std::future::{pending, poll_fn};
use std::task::Poll;
use std::time::Instant;

use tokio::sync::watch;
use tokio::time::sleep_until;

use super::RENEW_DEADLINE;

/// The end of a lease, which every renewal moves. A process that was suspended or cut off needs no message to notice it.
/// Without a lease, which is the default, there is no deadline.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeaseDeadline(watch::Sender<Option<Instant>>);

impl LeaseDeadline {
    /// The deadline of a lease that was taken by a call that began at `began`.
    pub(crate) fn new(began: Instant) -> Self {
        Self(watch::Sender::new(Some(began + RENEW_DEADLINE)))
    }

    pub(crate) fn renew(&self, began: Instant) {
        self.0.send_replace(Some(began + RENEW_DEADLINE));
    }

    pub(crate) fn holds(&self) -> bool {
        self.0.borrow().is_none_or(|until| Instant::now() < until)
    }

    /// Works until the deadline. It is checked before every step, so that a process that was suspended goes no further.
    pub(crate) async fn within<T>(self, work: impl Future<Output = T>) -> Option<T> {
        let (mut work, mut ended) = (std::pin::pin!(work), std::pin::pin!(self.ended()));
        poll_fn(|context| {
            if !self.holds() || ended.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(context).map(Some)
        })
        .await
    }

    async fn ended(&self) {
        while self.holds() {
            let until = *self.0.borrow();
            let Some(until) = until else { return pending().await };
            sleep_until(until.into()).await;
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

    #[tokio::test]
    async fn it_ends_by_itself_unless_it_is_renewed() {
        let long_ago = Instant::now().checked_sub(RENEW_DEADLINE).expect("a clock that is not younger");
        let deadline = LeaseDeadline::new(long_ago);
        assert!(!deadline.holds());
        deadline.ended().await;
        deadline.renew(Instant::now());
        assert!(deadline.holds());
        deadline.renew(long_ago + Duration::from_millis(20));
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
        let long_ago = Instant::now().checked_sub(RENEW_DEADLINE).expect("a clock that is not younger");
        let deadline = LeaseDeadline::new(long_ago);
        assert_eq!(deadline.clone().within(async { 1 }).await, None);
        deadline.renew(Instant::now());
        let suspended = async {
            deadline.renew(long_ago);
            tokio::task::yield_now().await;
            1
        };
        assert_eq!(deadline.clone().within(suspended).await, None);
    }
}
