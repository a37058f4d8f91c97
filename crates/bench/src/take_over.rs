//! The time from the end of a replica until another one takes over.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use anyhow::Context;
use label_storage::shard;
use sandbox::process::{Guarded, Signal};
use serde_json::json;

use crate::cold_start::{self, NAMESPACE};
use crate::machine::{Dress, Machine};
use crate::report::TakeOver;
use crate::stage::{RESTORER, STORER, Stage};
use crate::stats::Latencies;
use crate::watch::{Sight, Watch};

/// Replicas of each daemon.
const REPLICAS: NonZeroU32 = NonZeroU32::new(3).expect("three is not zero");
/// Each daemon is ended this many times in each way.
const TIMES: u32 = 5;
/// The log message of a replica that holds its own shard.
const AT_HOME: &str = "holding the lease of this shard";
/// The time limit of one take-over.
const LIMIT: Duration = Duration::from_secs(120);

/// Ends one replica after the other, each time just before a change of a Node in its shard.
pub(crate) async fn measure(stage: &mut Stage) -> anyhow::Result<Vec<TakeOver>> {
    cold_start::ensure_records(stage).await?;
    let mut measured = Vec::new();
    let mut storers = all(stage, STORER).await?;
    let mut restorers = all(stage, RESTORER).await?;
    for (signal, name) in [(Signal::KILL, "SIGKILL"), (Signal::TERM, "SIGTERM")] {
        for (daemon, replicas) in [(STORER, &mut storers), (RESTORER, &mut restorers)] {
            let mut times = Vec::new();
            for turn in 0..TIMES {
                let index = turn % REPLICAS;
                eprintln!("{name} to {daemon}-{index}");
                times.push(one(stage, daemon, index, &replicas[index as usize], signal).await?);
                replicas[index as usize] = replica(stage, daemon, index).await?;
            }
            let times = Latencies::of(times).context("nothing was measured")?;
            measured.push(TakeOver { daemon, signal: name, nodes: stage.nodes.len(), times });
        }
    }
    Ok(measured)
}

async fn all(stage: &mut Stage, daemon: &str) -> anyhow::Result<Vec<Guarded>> {
    let mut all = Vec::new();
    for index in 0..REPLICAS.get() {
        all.push(replica(stage, daemon, index).await?);
    }
    Ok(all)
}

/// Starts a replica, and waits until it holds its shard.
async fn replica(stage: &mut Stage, daemon: &str, index: u32) -> anyhow::Result<Guarded> {
    let replica = stage.daemon(daemon, NAMESPACE, index, REPLICAS.get())?;
    stage.await_log(&replica, AT_HOME).await?;
    stage.calm().await?;
    Ok(replica)
}

/// Ends a replica, makes a change in its shard, and waits for the effect.
async fn one(
    stage: &mut Stage,
    daemon: &str,
    index: u32,
    replica: &Guarded,
    signal: Signal,
) -> anyhow::Result<Duration> {
    let mut machines = Machine::first(u32::try_from(stage.nodes.len())?).into_iter();
    let machine = machines
        .find(|machine| shard(&machine.name(), REPLICAS) == index)
        .context("no node in this shard")?;
    let mut watch = if daemon == STORER {
        Watch::records(&stage.cluster, NAMESPACE).await?
    } else {
        stage.delete(&[machine]).await?;
        Watch::whole_nodes(&stage.cluster).await?
    };
    replica.signal(signal)?;
    let began = Instant::now();
    let (uid, version) = if daemon == STORER {
        let value = jiff::Timestamp::now().as_millisecond().to_string();
        let patch = json!({"metadata": {"labels": {"example.com/trial": value}}});
        let node = stage.cluster.patch_node(machine, "kubectl-label", &patch).await?;
        (node.uid, node.version)
    } else {
        stage.create(&[machine], Dress::Bare).await?;
        let node = stage.nodes.get(&machine).context("it was just created")?;
        (node.uid.clone(), node.version)
    };
    let shows = |sight: &Sight| sight.machine == machine && sight.uid == uid && sight.version >= version;
    loop {
        let sight = tokio::time::timeout(LIMIT, watch.next()).await.context("no replica took over")??;
        if shows(&sight) {
            return Ok(sight.at - began);
        }
    }
}
