//! Ends the work on a shard before its lease can be adopted.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use tokio::sync::watch;

use super::RENEW_DEADLINE;

/// The end of a lease, which every renewal moves. It needs no message: a process that was suspended or cut off has passed it.
#[derive(Debug, Clone)]
pub(crate) struct LeaseDeadline(watch::Receiver<Option<Instant>>);

/// Moves the [`LeaseDeadline`]. A renewal counts from the time at which its call began.
#[derive(Debug)]
pub(crate) struct LeaseRenewals(watch::Sender<Option<Instant>>);

impl LeaseRenewals {
    pub(crate) fn new(began: Instant) -> Self {
        Self(watch::Sender::new(Some(began + RENEW_DEADLINE)))
    }

    pub(crate) fn deadline(&self) -> LeaseDeadline {
        LeaseDeadline(self.0.subscribe())
    }

    pub(crate) fn renewed(&self, began: Instant) {
        self.0.send_replace(Some(began + RENEW_DEADLINE));
    }
}

impl LeaseDeadline {
    /// Without a lease there is no deadline.
    pub(crate) fn unlimited() -> Self {
        Self(watch::Sender::new(None).subscribe())
    }

    pub(crate) fn holds(&self) -> bool {
        self.0.borrow().is_none_or(|until| Instant::now() < until)
    }

    /// Does the work until the deadline. It checks before every step: a process that was suspended in the middle goes no further.
    pub(crate) async fn within<T>(self, work: impl Future<Output = T>) -> Option<T> {
        let (mut work, mut ended) = (std::pin::pin!(work), std::pin::pin!(self.clone().ended()));
        poll_fn(|context| {
            if !self.holds() || ended.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(context).map(Some)
        })
        .await
    }

    async fn ended(mut self) {
        loop {
            let until = *self.0.borrow_and_update();
            let Some(until) = until else { return std::future::pending().await };
            if Instant::now() >= until {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep_until(until.into()) => (),
                Ok(()) = self.0.changed() => (),
            }
        }
    }

    /// Resolves at the next renewal.
    pub(crate) async fn renewed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
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
        let renewals = LeaseRenewals::new(long_ago);
        let deadline = renewals.deadline();
        assert!(!deadline.holds());
        deadline.clone().ended().await;
        renewals.renewed(Instant::now());
        assert!(deadline.holds());
        renewals.renewed(long_ago + Duration::from_millis(20));
        deadline.clone().ended().await;
        assert!(!deadline.holds());
    }

    #[test]
    fn without_a_lease_it_never_ends() {
        assert!(LeaseDeadline::unlimited().holds());
        assert_eq!(LeaseDeadline::unlimited().ended().now_or_never(), None);
        assert_eq!(LeaseDeadline::unlimited().within(async { 1 }).now_or_never(), Some(Some(1)));
    }

    #[tokio::test]
    async fn nothing_is_begun_or_gone_on_with_after_its_end() {
        let long_ago = Instant::now().checked_sub(RENEW_DEADLINE).expect("a clock that is not younger");
        let renewals = LeaseRenewals::new(long_ago);
        assert_eq!(renewals.deadline().within(async { 1 }).await, None);
        renewals.renewed(Instant::now());
        let suspended = async {
            renewals.renewed(long_ago);
            tokio::task::yield_now().await;
            1
        };
        assert_eq!(renewals.deadline().within(suspended).await, None);
    }
}
