//! Kubelets that say that all is well: a steady stream of status updates, as a large cluster has it all day.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::cluster::Cluster;
use crate::machine::Machine;

/// More than this are never in flight. A server that can't keep up gets what it can take, and is not buried: one with
/// ever more requests to serve lets its watches fall behind without end, and then nothing else is measured.
const AT_ONCE: usize = 8;

/// Updates in the background. Dropping it ends them.
pub(crate) struct Updates {
    done: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Updates {
    /// Begins to update the first `nodes` machines, one after the other and again from the start, `rate` a second.
    pub(crate) fn start(cluster: &Cluster, nodes: u32, rate: u32) -> Self {
        let done = Arc::new(AtomicU64::new(0));
        let task = tokio::spawn(beat(cluster.clone(), nodes.max(1), rate.max(1), done.clone()));
        Self { done, task }
    }

    /// The number that the API server has accepted so far.
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
    // Nothing is made up for: after a pause of the server it would get all of it at once. But a tick that the timer, which
    // counts in milliseconds, wakes for a little late must not move all that follow.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    for machine in (0..nodes).cycle().map(Machine) {
        ticks.tick().await;
        // It is never closed.
        let Ok(permit) = in_flight.clone().acquire_owned().await else { return };
        let (cluster, done) = (cluster.clone(), done.clone());
        tokio::spawn(async move {
            // Those that fail are not counted, and the rate that is reported shows it.
            if cluster.beat(machine).await.is_ok() {
                done.fetch_add(1, Ordering::Relaxed);
            }
            drop(permit);
        });
    }
}
