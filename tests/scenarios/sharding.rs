//! Many replicas share the nodes.

use std::num::NonZeroU32;

use anyhow::{Context, Result};
use label_storage::shard;

use crate::daemon::Daemon;
use crate::scenario::{Labels, Scenario, labels};

/// N replicas of a daemon.
fn replicas(s: &Scenario, kind: &str, n: u32) -> Result<Vec<Daemon>> {
    let n = n.to_string();
    (0..n.parse()?)
        .map(|index: u32| s.daemon(kind, &["--replicas", &n, "--replica-index", &index.to_string()]))
        .collect()
}

async fn all_survive(s: &Scenario, nodes: &[String]) -> Result<()> {
    for node in nodes {
        s.create(node, labels([("node", &node[node.len() - 3..])])).await?;
    }
    for node in nodes {
        s.eventually_stored(node, labels([("node", &node[node.len() - 3..])])).await?;
        s.delete(node).await?;
        s.create(node, Labels::new()).await?;
    }
    for node in nodes {
        s.eventually_labelled(node, labels([("node", &node[node.len() - 3..])])).await?;
    }
    Ok(())
}

pub async fn three_shards_cover_every_node_exactly_once(s: &Scenario) -> Result<()> {
    let (storers, restorers) = (replicas(s, "storer", 3)?, replicas(s, "restorer", 3)?);
    let nodes: Vec<_> = (0..30).map(|i| s.node(&format!("n{i:02}"))).collect();
    all_survive(s, &nodes).await?;
    for daemons in [storers, restorers] {
        for node in &nodes {
            let home = shard(node, NonZeroU32::new(3).context("not zero")?);
            for (index, daemon) in (0..).zip(&daemons) {
                let decides = daemon.decisions(node) > 0;
                // The first one to start may adopt the shards of the others until they run, and logs that.
                let may = || daemon.has_logged(&["adopted a shard", &format!("shard={home} ")]);
                assert!(if index == home { decides } else { !decides || may() }, "{node}: {index}, {home}");
            }
        }
        assert!(
            daemons.iter().all(|daemon| nodes.iter().any(|node| daemon.decisions(node) > 0)),
            "a replica without a node"
        );
    }
    Ok(())
}

pub async fn more_shards_than_nodes_are_fine(s: &Scenario) -> Result<()> {
    let (storers, restorers) = (replicas(s, "storer", 8)?, replicas(s, "restorer", 8)?);
    let nodes: Vec<_> = (0..3).map(|i| s.node(&format!("n{i:02}"))).collect();
    all_survive(s, &nodes).await?;
    for daemon in storers.iter().chain(&restorers) {
        assert_eq!(daemon.process.try_wait(), None, "an idle replica lives");
    }
    Ok(())
}
