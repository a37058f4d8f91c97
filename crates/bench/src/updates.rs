//! Kubelets that say that all is well: a steady stream of status updates, as a large cluster has it all day.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::cluster::Cluster;
use crate::machine::Machine;

/// Updates a second: 100,000 kubelets that each send one every 5 minutes.
pub(crate) const RATE: u32 = 333;
/// More than this are never in flight: a server that can't keep up gets what it can take.
const AT_ONCE: usize = 64;

/// Updates in the background. Dropping it ends them.
pub(crate) struct Updates {
    done: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Updates {
    /// Begins to update the first `nodes` machines, one after the other and again from the start.
    pub(crate) fn start(cluster: &Cluster, nodes: u32) -> Self {
        let done = Arc::new(AtomicU64::new(0));
        let task = tokio::spawn(beat(cluster.clone(), nodes.max(1), done.clone()));
        Self { done, task }
    }

    /// How many the API server has taken so far.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

impl Drop for Updates {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn beat(cluster: Cluster, nodes: u32, done: Arc<AtomicU64>) {
    let in_flight = Arc::new(Semaphore::new(AT_ONCE));
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / RATE);
    // Late ones are made up for: on average the rate is right.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
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
