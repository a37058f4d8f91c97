//! The loop: one look at the cluster at a time, and what is to be done after it.

use std::cell::Cell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::Client;
use label_storage::Node;

use crate::args::{Common, Share};
use crate::call::{self, Error};
use crate::nodes::Nodes;
use crate::pace::{self, Pace};
use crate::records::{Found, Records};
use crate::shutdown::Shutdown;

/// Runs passes until the shutdown, at the daemon's pace. A pass returns how long its listing took; one that fails is
/// followed by another, after a growing pause: a daemon that gives up keeps nobody's labels.
pub async fn run(args: &Common, shutdown: &Shutdown, mut pass: impl AsyncFnMut() -> Result<Duration, Error>) {
    // Not much longer than the usual interval: what costs the server no more than usual need not come later than usual.
    const LONGEST: Duration = Duration::from_secs(10);
    let (mut failures, mut pace) = (0u32, Pace::new(args.interval));
    while !shutdown.is_requested() {
        let began = Instant::now();
        let pause = match pass().await {
            Ok(listing_took) => {
                if failures > 0 {
                    tracing::info!(failures, "passes succeed again");
                }
                failures = 0;
                pace.until_next(listing_took)
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                let pause = pace::exponential(args.interval.min(Duration::from_secs(1)), failures, LONGEST)
                    .max(error.retry_after().unwrap_or_default())
                    .max(pace::rest_after_failure(began.elapsed()));
                tracing::warn!(%error, failures, ?pause, "a pass failed");
                pause
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => (),
            () = shutdown.requested() => (),
        }
    }
}

/// One look at the cluster, through the eyes of one replica.
#[derive(Debug)]
pub struct View {
    /// This replica's share of the Nodes.
    pub nodes: Vec<Node>,
    /// All records, by the ConfigMap's name. Read after the Nodes.
    pub records: HashMap<String, Found>,
    /// How many Nodes the cluster has.
    pub all_nodes: usize,
    /// When the API server was asked: what is seen is not older than this.
    pub asked_at: Instant,
    /// What the listing cost.
    pub took: Duration,
}

/// One replica of a daemon: what it was told, which Nodes are its share, and how it reads the cluster.
pub struct Replica {
    /// What it was told.
    pub args: Common,
    /// Which Nodes it handles.
    pub share: Share,
    /// Reads Nodes.
    pub nodes: Nodes,
    /// Reads records.
    pub records: Records,
    /// Whether to go on.
    pub shutdown: Shutdown,
}

impl Replica {
    /// A replica that works on this cluster.
    pub fn new(args: Common, share: Share, client: Client, namespace: &str, shutdown: Shutdown) -> Self {
        let (nodes, records) = (Nodes::new(client.clone()), Records::new(client, namespace));
        Self { args, share, nodes, records, shutdown }
    }

    /// Lists Nodes and records. `None` after a shutdown: a list is only read, so none waits for it.
    pub async fn look(&self) -> Result<Option<View>, Error> {
        let asked_at = Instant::now();
        let lists = async { Ok((self.nodes.list().await?, self.records.list().await?)) };
        let (mut nodes, records) = tokio::select! {
            lists = lists => lists?,
            () = self.shutdown.requested() => return Ok(None),
        };
        let all_nodes = nodes.len();
        nodes.retain(|node| self.share.includes(&node.name));
        Ok(Some(View { nodes, records, all_nodes, asked_at, took: asked_at.elapsed() }))
    }

    /// Works on all of these, a bounded number at a time, each until it is settled or has failed. After a shutdown no
    /// new one is begun; nor after a while where some have failed: the next look at the cluster must not wait for a
    /// thousand calls that hang.
    pub async fn settle_all<T, R>(
        &self,
        items: Vec<T>,
        attempt: impl AsyncFn(&T, u32) -> Result<R, Error>,
    ) -> Vec<(T, Result<R, Error>)> {
        let (began, failing) = (Instant::now(), Cell::new(false));
        let goes_on = || !failing.get() || began.elapsed() < FAILING_PASS;
        work_on(items, self.args.concurrency.get(), &self.shutdown, goes_on, async |item: T| {
            let outcome = call::settle(&self.shutdown, async |tries| attempt(&item, tries).await).await;
            failing.set(failing.get() || outcome.is_err());
            (item, outcome)
        })
        .await
    }
}

/// For how long a pass in which nodes fail begins work on further ones.
const FAILING_PASS: Duration = Duration::from_secs(10);

/// Works on these, a bounded number at a time, while `goes_on` says so. After a shutdown no new one is begun, and those
/// in flight are finished, unless that takes too long.
async fn work_on<T, R>(
    items: Vec<T>,
    concurrency: usize,
    shutdown: &Shutdown,
    goes_on: impl Fn() -> bool,
    work: impl AsyncFn(T) -> R,
) -> Vec<R> {
    let mut done = Vec::with_capacity(items.len());
    let items = futures::stream::iter(items.into_iter().take_while(|_| goes_on()));
    let begun = items.take_until(shutdown.requested()).map(|item| work(item));
    let mut results = std::pin::pin!(begun.buffer_unordered(concurrency));
    let mut drained = std::pin::pin!(shutdown.drained());
    loop {
        tokio::select! {
            result = results.next() => match result {
                Some(result) => done.push(result),
                None => return done,
            },
            () = &mut drained => {
                tracing::warn!("leaving unfinished what did not end in time");
                return done;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_items_are_worked_on_and_never_too_many_at_a_time() {
        let (now, most) = (Cell::new(0), Cell::new(0));
        let work = async |item: u32| {
            now.set(now.get() + 1);
            most.set(most.get().max(now.get()));
            tokio::time::sleep(Duration::from_millis(u64::from(item % 7))).await;
            now.set(now.get() - 1);
            item
        };
        let mut done = work_on((0..100).collect(), 8, &Shutdown::default(), || true, work).await;
        done.sort_unstable();
        assert_eq!(done, (0..100).collect::<Vec<_>>());
        assert_eq!(most.get(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_finishes_what_is_in_flight_and_begins_nothing_new() {
        let shutdown = Shutdown::default();
        let begun = RefCell::new(Vec::new());
        let work = async |item: u32| {
            begun.borrow_mut().push(item);
            tokio::time::sleep(Duration::from_secs(1)).await;
            shutdown.request();
            tokio::time::sleep(Duration::from_secs(1)).await;
            item
        };
        let done = work_on((0..100).collect(), 3, &shutdown, || true, work).await;
        assert_eq!((done, begun.borrow().clone()), (vec![0, 1, 2], vec![0, 1, 2]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_does_not_wait_for_ever() {
        let shutdown = Shutdown::default();
        let start = tokio::time::Instant::now();
        let work = async |_: u32| {
            shutdown.request();
            std::future::pending::<()>().await;
        };
        assert_eq!(work_on(vec![1, 2], 3, &shutdown, || true, work).await, []);
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_new_is_begun_once_it_is_not_to_go_on() {
        let begun = Cell::new(0);
        let work = async |_: u32| begun.set(begun.get() + 1);
        let done = work_on((0..100).collect(), 1, &Shutdown::default(), || begun.get() < 7, work).await;
        assert_eq!((done.len(), begun.get()), (7, 7));
    }
}
