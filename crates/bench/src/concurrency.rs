//! The time that one restorer takes for many Nodes, with its adaptive concurrency limit and with fixed ones.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use faults::{Fault, Proxy, Request};

use crate::cluster::{AT_ONCE, each};
use crate::machine::{Dress, Machine};
use crate::report::{Restoring, Server};
use crate::stage::{RESTORER, STORER, Stage};
use crate::stats::median;
use crate::watch::Watch;

/// Added to each call of a slow server.
const DELAY: Duration = Duration::from_millis(100);
/// `None`: the adaptive limit.
const LIMITS: [Option<u32>; 6] = [None, Some(8), Some(16), Some(32), Some(64), Some(128)];
/// Each limit is measured this many times with each server.
const ROUNDS: usize = 3;

/// Needs Nodes with all their labels, and leaves them so.
pub(crate) async fn measure(stage: &mut Stage) -> anyhow::Result<Vec<Restoring>> {
    let nodes = stage.nodes.len();
    let machines = Machine::first(u32::try_from(nodes)?);
    let namespace = format!("concurrency-{nodes}");
    stage.cluster.create_namespace(&namespace).await?;
    let mut records = Watch::records(&stage.cluster, &namespace).await?;
    let storer = stage.daemon(STORER, &namespace, 0, 1)?;
    stage.see_all("storing nodes", nodes, &mut records, &[&storer], |_| true).await?;
    drop((storer, records));
    // From here on all records are of deleted Nodes.
    stage.delete(&machines).await?;
    stage.create(&machines, Dress::Bare).await?;

    let direct = stage.sandbox.kubeconfig().to_owned();
    let slow = stage.sandbox.data_folder().join("kubeconfig-slow");
    let delay = |_: &Request| Fault::Latency(DELAY);
    let proxy = Proxy::start(&direct, &slow, delay).await?;
    let mut measured = Vec::new();
    for (server, kubeconfig) in [(Server::Direct, &*direct), (Server::Slow, proxy.kubeconfig())] {
        let mut seconds = LIMITS.map(|limit| (limit, Vec::new()));
        for round in 1..=ROUNDS {
            // Each round starts with another limit.
            seconds.rotate_left(1);
            for (limit, seconds) in &mut seconds {
                eprintln!("{}, limit {}, round {round}", server.name(), limit_name(*limit));
                seconds.push(restore(stage, kubeconfig, &namespace, *limit).await?);
            }
        }
        seconds.sort_by_key(|(limit, _)| *limit);
        for (limit, all) in seconds {
            let seconds = median(&all).context("nothing was measured")?;
            measured.push(Restoring { nodes, server, limit, seconds, rounds: ROUNDS });
        }
    }
    Ok(measured)
}

pub(crate) fn limit_name(limit: Option<u32>) -> String {
    limit.map_or_else(|| "free".to_owned(), |limit| limit.to_string())
}

/// Removes the labels of all Nodes, and runs a restorer that adds them again. Returns the seconds from the first Node to the last.
async fn restore(
    stage: &mut Stage,
    kubeconfig: &Path,
    namespace: &str,
    limit: Option<u32>,
) -> anyhow::Result<f64> {
    let nodes = stage.nodes.len();
    let machines = Machine::first(u32::try_from(nodes)?);
    let strip = |machine: Machine| {
        let cluster = stage.cluster.clone();
        async move { cluster.patch_node(machine, "kubectl-label", &machine.stripping_patch()).await }
    };
    each("removing labels", &machines, AT_ONCE, strip).await?;
    stage.calm().await?;
    let mut whole = Watch::whole_nodes(&stage.cluster).await?;
    let limit = limit.map(|limit| limit.to_string());
    let flags: Vec<&str> = limit.iter().flat_map(|limit| ["--fixed-concurrency", limit]).collect();
    let restorer = stage.daemon_through(kubeconfig, RESTORER, namespace, (0, 1), &flags)?;
    let restored = stage.see_all("labels back on nodes", nodes, &mut whole, &[&restorer], |_| true).await?;
    Ok(restored.seconds())
}
