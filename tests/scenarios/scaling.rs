//! The StatefulSet is scaled while the daemons run. This control plane makes no pods: each test starts and ends the daemons itself.

use std::cell::Cell;
use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use kube::api::DeleteParams;
use sandbox::process::Signal;

use crate::daemon::Daemon;
use crate::ownership::{create_all, eventually_all_stored, eventually_held, holders, names, pool, relabel};
use crate::scenario::{Labels, Scenario};

const KINDS: [&str; 2] = ["storer", "restorer"];

/// Every shard of this number with its own replica, as `0-of-3` and `0`.
fn at_home(replicas: u32) -> BTreeMap<String, String> {
    (0..replicas).map(|index| (format!("{index}-of-{replicas}"), index.to_string())).collect()
}

/// The shards with a holder, of every number of replicas.
async fn held(s: &Scenario, kind: &str) -> Result<BTreeMap<String, String>> {
    Ok(holders(s, kind).await?.into_iter().filter_map(|(shard, holder)| Some((shard, holder?))).collect())
}

/// Changes the label of a node, deletes it and creates it again without the label, until this is over.
async fn come_and_go(s: &Scenario, node: &str, rounds: &Cell<u32>, is_over: &Cell<bool>) -> Result<()> {
    while !is_over.get() {
        let value = format!("round-{}", rounds.get());
        s.label(node, [("pool", Some(&value))]).await?;
        // A change just before the deletion is kept by a watch alone.
        if !s.watch {
            s.eventually_stored(node, pool(&value)).await?;
        }
        s.delete(node).await?;
        s.eventually(&format!("final label of {node}"), pool(&value), async || {
            Ok(s.record(node).await?.context("no record")?.labels)
        })
        .await?;
        s.create(node, Labels::new()).await?;
        s.eventually_labelled(node, pool(&value)).await?;
        s.eventually_stored(node, pool(&value)).await?;
        rounds.set(rounds.get() + 1);
    }
    Ok(())
}

pub async fn scaled_from_two_to_five_to_one_under_load_nothing_is_lost(s: &Scenario) -> Result<()> {
    let (nodes, is_over) = (names(s), Cell::new(false));
    let rounds: Vec<_> = nodes.iter().map(|_| Cell::new(0)).collect();
    create_all(s, &nodes, pool("gold")).await?;
    let mut daemons = Vec::new();
    for kind in KINDS {
        s.create_set(kind, 2).await?;
        for ordinal in 0..2 {
            daemons.push((kind, ordinal, s.pod(kind, ordinal, &[])?));
        }
    }
    eventually_all_stored(s, &nodes, "gold").await?;
    // Two, since one may be under way already.
    let two_more_rounds = async || {
        let before: Vec<_> = rounds.iter().map(Cell::get).collect();
        let is_done = |(now, before): (&Cell<u32>, &u32)| now.get() >= before + 2;
        s.eventually_after("two more rounds of each node", true, async || {
            Ok(rounds.iter().zip(&before).all(is_done))
        })
        .await
    };
    let settled = async |replicas: u32| {
        for kind in KINDS {
            s.eventually("each shard at home, and no other", at_home(replicas), async || held(s, kind).await)
                .await?;
        }
        anyhow::Ok(())
    };
    let scaling = async {
        settled(2).await?;
        two_more_rounds().await?;
        for kind in KINDS {
            s.scale(kind, 5).await?;
            for ordinal in 2..5 {
                daemons.push((kind, ordinal, s.pod(kind, ordinal, &[])?));
            }
        }
        settled(5).await?;
        two_more_rounds().await?;
        for kind in KINDS {
            s.scale(kind, 1).await?;
        }
        // As the StatefulSet's controller ends pods in parallel.
        let (first, others): (Vec<_>, Vec<_>) = daemons.iter().partition(|(_, ordinal, _)| *ordinal == 0);
        for (_, _, daemon) in &others {
            daemon.process.signal(Signal::TERM)?;
        }
        for (kind, ordinal, daemon) in &others {
            let exit = daemon.exit().await?;
            ensure!(exit.success(), "{kind}-{ordinal}: {exit:?}");
        }
        settled(1).await?;
        two_more_rounds().await?;
        for (_, _, daemon) in first {
            for (from, to) in [("from=2", "to=5"), ("from=5", "to=1")] {
                ensure!(daemon.has_logged(&["the number of shards changed", from, to]), "{from} {to}");
            }
        }
        is_over.set(true);
        Ok(())
    };
    let load =
        try_join_all(nodes.iter().zip(&rounds).map(|(node, rounds)| come_and_go(s, node, rounds, &is_over)));
    tokio::try_join!(load, scaling)?;
    Ok(())
}

/// Waits until exactly these shards are held. All shards of some number are held at every moment until then.
async fn covered_until(
    s: &Scenario,
    what: &str,
    is_true: impl Fn(&BTreeMap<String, String>) -> bool,
) -> Result<()> {
    s.eventually(what, true, async || {
        let held = held(s, "storer").await?;
        let is_complete =
            |replicas| (0..replicas).all(|index| held.contains_key(&format!("{index}-of-{replicas}")));
        assert!((1..=5).any(is_complete), "some nodes are nobody's: {held:?}");
        Ok(is_true(&held))
    })
    .await
}

pub async fn while_the_stateful_set_is_scaled_every_node_is_some_replicas(s: &Scenario) -> Result<()> {
    let nodes = names(s);
    create_all(s, &nodes, pool("gold")).await?;
    s.create_set("storer", 2).await?;
    let pod = |ordinal| s.pod("storer", ordinal, &["--admin-address", "127.0.0.1:0"]);
    let mut daemons: Vec<Daemon> = vec![pod(0)?, pod(1)?];
    eventually_held(s, "storer", [("0-of-2", "0"), ("1-of-2", "1")]).await?;
    eventually_all_stored(s, &nodes, "gold").await?;

    // Three more that are not there yet: the two work on all five shards, and on those alone.
    s.scale("storer", 5).await?;
    covered_until(s, "five shards", |held| held.keys().eq(at_home(5).keys())).await?;
    relabel(s, &nodes, "silver").await?;
    eventually_all_stored(s, &nodes, "silver").await?;
    for ordinal in 2..5 {
        daemons.push(pod(ordinal)?);
    }
    covered_until(s, "five shards at home", |held| *held == at_home(5)).await?;

    // A pod without a shard runs until it is stopped.
    s.scale("storer", 1).await?;
    covered_until(s, "one shard at home", |held| *held == at_home(1)).await?;
    relabel(s, &nodes, "bronze").await?;
    eventually_all_stored(s, &nodes, "bronze").await?;
    for daemon in &daemons {
        daemon.eventually_counted(s, "shards", &[], 1.0).await?;
        ensure!(daemon.process.try_wait().is_none(), "it has ended");
    }
    s.scale("storer", 3).await?;
    covered_until(s, "three shards at home", |held| *held == at_home(3)).await?;
    // A pod that has not read the number yet may adopt what the others gave up.
    for daemon in &daemons {
        daemon.eventually_counted(s, "shards", &[], 3.0).await?;
    }
    covered_until(s, "three shards at home for good", |held| *held == at_home(3)).await?;

    // 0 is no number of shards, and neither is one that can't be read.
    s.scale("storer", 0).await?;
    s.sets().delete("storer", &DeleteParams::default()).await?;
    for daemon in &daemons {
        let words = ["WARN", "keeping the number of shards", "shards=3"];
        s.eventually("a warning", true, async || Ok(daemon.has_logged(&words))).await?;
    }
    relabel(s, &nodes, "gold").await?;
    eventually_all_stored(s, &nodes, "gold").await?;
    ensure!(held(s, "storer").await? == at_home(3), "somebody has given up a shard");
    Ok(())
}
