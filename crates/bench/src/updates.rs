//! Heartbeats of kubelets: a steady stream of node status updates, as in a large cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::cluster::Cluster;
use crate::machine::Machine;

/// The most requests in flight. A server that is too slow gets fewer updates, not a growing number of requests: its watches would fall
/// behind without end, and nothing else could be measured.
const AT_ONCE: usize = 8;

/// Sends updates in the background. Dropping it ends them.
pub(crate) struct Updates {
    done: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Updates {
    /// Starts to update the first `nodes` machines in turn, `rate` times a second.
    pub(crate) fn start(cluster: &Cluster, nodes: u32, rate: u32) -> Self {
        let done = Arc::new(AtomicU64::new(0));
        let task = tokio::spawn(beat(cluster.clone(), nodes.max(1), rate.max(1), done.clone()));
        Self { done, task }
    }

    /// The number of updates that the API server has accepted so far.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

impl Drop for Updates {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn beat(cluster: Cluster, nodes: u32, rate: u32, done: Arc<AtomicU64>) {
    let in_flight = Arc::new(Semaphore::new(AT_ONCE));
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
    // Missed ticks are not made up for: after a pause of the server they would all come at once. But a tick that the timer, which has a
    // resolution of one millisecond, delivers a little late must not delay the following ones.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    for machine in (0..nodes).cycle().map(Machine) {
        ticks.tick().await;
        // The semaphore is never closed.
        let Ok(permit) = in_flight.clone().acquire_owned().await else { return };
        let (cluster, done) = (cluster.clone(), done.clone());
        tokio::spawn(async move {
            // Failed updates are not counted, so the reported rate is lower.
            if cluster.beat(machine).await.is_ok() {
                done.fetch_add(1, Ordering::Relaxed);
            }
            drop(permit);
        });
    }
}
