//! `restore` and `forget` for many nodes: `-l`, `--pending`, `--departed` and `--all`.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use faults::{Fault, Request, Verb};
use serde_json::json;

use super::{departed, does, has_lines, refuses, stored};
use crate::scenario::{Labels, Scenario, labels};

pub async fn of_selected_nodes_those_that_can_be_restored_are(s: &Scenario) -> Result<()> {
    let [returned, other, ignored, away, present] =
        ["returned", "other", "ignored", "away", "present"].map(|name| s.node(name));
    for node in [&returned, &ignored, &away] {
        departed(s, node, &labels([("pool", "gold")])).await?;
    }
    departed(s, &other, &labels([("pool", "silver")])).await?;
    stored(s, &present, &labels([("pool", "gold")])).await?;
    s.create(&returned, Labels::new()).await?;
    s.create(&other, Labels::new()).await?;
    s.create_as(&ignored, json!({"metadata": {"annotations": {"label-storage/ignore": "true"}}})).await?;

    let told = s.plugin(&["restore", "--all", "--dry-run"])?;
    ensure!(told.code == Some(0), "{told:?}");
    has_lines(
        &told.out,
        &[&format!("node {other} is restored:"), "  +pool=silver", &format!("node {returned} is restored:")],
    )?;
    ensure!(!told.out.contains(&present), "nothing is to be done: {told:?}");
    for (node, why) in [(&ignored, "label-storage/ignore"), (&away, "does not exist")] {
        let is_said = |line: &str| line.starts_with(&format!("skipped: node {node} ")) && line.contains(why);
        ensure!(told.err.lines().any(is_said), "{told:?}");
    }
    // Named, the same is refused, all of it.
    refuses(s, &["restore", &returned, &ignored, "--yes"], &["nothing was changed", "label-storage/ignore"])?;
    refuses(s, &["restore", "--pending"], &["can't ask for confirmation without a terminal"])?;
    assert_eq!(s.labels(&returned).await?, Labels::new());

    let told = s.plugin(&["restore", "-l", "pool=gold", "--yes"])?;
    ensure!(told.code == Some(0), "{told:?}");
    has_lines(&told.out, &[&format!("node/{returned} restored")])?;
    assert_eq!(s.labels(&returned).await?, labels([("pool", "gold")]));
    assert_eq!(s.labels(&other).await?, Labels::new(), "it was not selected");
    assert_eq!(s.labels(&ignored).await?, Labels::new());
    does(s, &["restore", "--pending", "--yes"])?;
    assert_eq!(s.labels(&other).await?, labels([("pool", "silver")]));
    let none = s.plugin(&["restore", "--pending", "--yes"])?;
    assert_eq!((none.code, none.err.as_str()), (Some(0), "nothing to change: 0 nodes selected\n"));
    Ok(())
}

pub async fn selected_records_are_forgotten(s: &Scenario) -> Result<()> {
    let [gold, silver, present] = ["gold", "silver", "present"].map(|name| s.node(name));
    departed(s, &gold, &labels([("pool", "gold")])).await?;
    departed(s, &silver, &labels([("pool", "silver")])).await?;
    stored(s, &present, &labels([("pool", "gold")])).await?;
    let left = async || {
        let mut left = Vec::new();
        for node in [&gold, &silver, &present] {
            left.push(s.record(node).await?.is_some());
        }
        anyhow::Ok(left)
    };
    refuses(s, &["forget", "--yes"], &["--all"])?;
    refuses(s, &["forget", "--all"], &["can't ask for confirmation without a terminal", "--yes"])?;
    let told = s.plugin(&["forget", "--all", &gold, "--yes"])?;
    assert_eq!(told.code, Some(2), "{told:?}");
    assert_eq!(left().await?, [true; 3]);
    does(s, &["forget", "--departed", "-l", "pool=gold", "--yes"])?;
    assert_eq!(left().await?, [false, true, true]);
    does(s, &["forget", "--all", "--yes"])?;
    assert_eq!(left().await?, [false; 3]);
    Ok(())
}

pub async fn many_nodes_are_planned_at_the_same_time(s: &Scenario) -> Result<()> {
    const NODES: usize = 32;
    let nodes: Vec<_> = (0..NODES).map(|number| s.node(&format!("n{number}"))).collect();
    for node in &nodes {
        crate::plugin_get::made_by_hand(s, node, json!({"pool": "gold"})).await?;
    }
    let pause = Duration::from_secs(1);
    let slow = move |request: &Request| match request.is(Verb::Get, "configmaps") {
        true => Fault::Latency(pause),
        false => Fault::None,
    };
    let proxy = s.proxy(slow).await?;
    let kubeconfig = proxy.kubeconfig().to_str().expect("a path").to_owned();
    let began = Instant::now();
    let said = does(s, &["forget", "--all", "--dry-run", "--kubeconfig", &kubeconfig])?;
    assert!(began.elapsed() < pause * 16, "{:?}", began.elapsed());
    let order: Vec<_> = said.lines().filter(|line| line.ends_with("is deleted:")).collect();
    assert!(order.len() == NODES && order.is_sorted(), "{said}");
    Ok(())
}
