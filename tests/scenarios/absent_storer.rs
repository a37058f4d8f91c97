//! Labels that change while no storer runs. Lists come only once an hour here.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::ListParams;
use label_storage::Record;
use sandbox::Options;
use sandbox::process::Signal;

use crate::control_plane::{each, on_its_own};
use crate::daemon::Daemon;
use crate::scenario::{Labels, NO_LISTS, Scenario, labels};

async fn kill(daemon: &Daemon) -> Result<()> {
    daemon.process.signal(Signal::KILL)?;
    daemon.exit().await?;
    Ok(())
}

fn before() -> Labels {
    labels([("changed", "old"), ("removed", "soon"), ("same", "yes")])
}

fn after() -> Labels {
    labels([("changed", "new"), ("added", "late"), ("same", "yes")])
}

/// Each kind of change, while no storer runs, and the deletion.
async fn changes_and_leaves(s: &Scenario, node: &str) -> Result<()> {
    s.label(node, [("changed", Some("new")), ("added", Some("late")), ("removed", None)]).await?;
    s.delete(node).await
}

/// A storer that has stored this Node, and a restorer that watches.
async fn pair_that_has_stored(s: &Scenario, node: &str, flags: &[&str]) -> Result<(Daemon, Daemon)> {
    let flags = [&NO_LISTS[..], flags].concat();
    let (storer, restorer) = (s.storer(&flags)?, s.restorer(&flags)?);
    for daemon in [&storer, &restorer] {
        s.is_watching(daemon).await?;
    }
    s.create(node, before()).await?;
    s.eventually_stored(node, before()).await?;
    Ok((storer, restorer))
}

pub async fn a_returning_node_gets_the_labels_that_it_had_at_its_deletion(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    let (storer, _restorer) = pair_that_has_stored(s, &node, &[]).await?;
    kill(&storer).await?;
    changes_and_leaves(s, &node).await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, after()).await?;
    let record = s.record(&node).await?.context("no record")?;
    ensure!(record.labels == before(), "no storer has stored them: {:?}", record.labels);
    tokio::time::sleep(Duration::from_secs(100)).await;
    let _storer = s.storer(&NO_LISTS)?;
    s.eventually_stored(&node, after()).await?;
    ensure!(s.labels(&node).await? == after(), "{:?}", s.labels(&node).await?);
    Ok(())
}

pub async fn a_node_that_has_lost_all_its_labels_returns_without(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    let (storer, restorer) = pair_that_has_stored(s, &node, &[]).await?;
    kill(&storer).await?;
    s.label(&node, [("changed", None), ("removed", None), ("same", None)]).await?;
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    s.eventually("the node is marked", true, async || {
        Ok(s.get(&node).await?.metadata.annotations.is_some_and(|all| !all.is_empty()))
    })
    .await?;
    ensure!(s.labels(&node).await?.is_empty() && restorer.has_logged(&["restored", "labels=0"]));
    let _storer = s.storer(&NO_LISTS)?;
    let is_empty = async || Ok(s.record(&node).await?.is_none_or(|record| record.labels.is_empty()));
    s.eventually("no label is stored", true, is_empty).await?;
    ensure!(s.labels(&node).await?.is_empty());
    Ok(())
}

pub async fn a_restorer_that_was_killed_meanwhile_receives_the_deletion_again(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    let (storer, restorer) = pair_that_has_stored(s, &node, &[]).await?;
    kill(&storer).await?;
    changes_and_leaves(s, &node).await?;
    let is_kept = async || Ok(restorer.has_logged(&["deleted", &node, "is_kept=true"]));
    s.eventually("the deletion is received", true, is_kept).await?;
    kill(&restorer).await?;
    s.create(&node, Labels::new()).await?;
    let _restorer = s.restorer(&NO_LISTS)?;
    s.eventually_labelled(&node, after()).await?;
    let _storer = s.storer(&NO_LISTS)?;
    s.eventually_stored(&node, after()).await?;
    ensure!(s.labels(&node).await? == after(), "{:?}", s.labels(&node).await?);
    Ok(())
}

pub async fn a_node_that_depends_on_its_machine_waits_for_the_final_labels(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    let text = format!("{WAITING}\npatience: 5m\n");
    let flags = ["--rules", &text];
    let (storer, restorer) = pair_that_has_stored(s, &node, &flags).await?;
    kill(&storer).await?;
    changes_and_leaves(s, &node).await?;
    s.create(&node, Labels::new()).await?;
    let rules = s.file("rules.yaml");
    std::fs::write(&rules, &text)?;
    let rules = rules.to_str().context("a path")?;
    let shows = async |command: &[&str], part: &str| {
        let waits = async || Ok(s.plugin(command)?.out.contains(part));
        s.eventually(&format!("{command:?} shows the wait"), true, waits).await
    };
    let waits = format!("waits for the final labels of {node}");
    shows(&["explain", &node, "--config", rules], &waits).await?;
    let waiting = format!("1 node waiting for the final labels of the node that was deleted: {node}");
    shows(&["status", "--config", rules, "--patience", "0s"], &waiting).await?;
    // The Lease names what is pending.
    kill(&restorer).await?;
    let flags = [&NO_LISTS[..], &flags].concat();
    let _restorer = s.restorer(&flags)?;
    tokio::time::sleep(Duration::from_secs(100)).await;
    ensure!(s.labels(&node).await?.is_empty(), "restored too early: {:?}", s.labels(&node).await?);
    let _storer = s.storer(&flags)?;
    s.eventually_labelled(&node, after()).await?;
    s.eventually_stored(&node, after()).await
}

pub async fn a_node_waits_for_final_labels_no_longer_than_the_rules_allow(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    let rules = format!("{WAITING}\npatience: 2s\n");
    let (storer, restorer) = pair_that_has_stored(s, &node, &["--rules", &rules]).await?;
    kill(&storer).await?;
    changes_and_leaves(s, &node).await?;
    let is_kept = async || Ok(restorer.has_logged(&["deleted", &node, "is_kept=true"]));
    s.eventually("the deletion is received", true, is_kept).await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, before()).await
}

pub async fn without_a_watch_a_returning_node_gets_the_labels_of_the_last_list(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    let (storer, restorer) = s.pair()?;
    s.create(&node, before()).await?;
    s.eventually_stored(&node, before()).await?;
    kill(&storer).await?;
    s.label(&node, [("changed", Some("new")), ("added", Some("late")), ("removed", None)]).await?;
    s.has_acted(&restorer, &node).await?;
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, after()).await?;
    let _storer = s.storer(&[])?;
    s.eventually_stored(&node, after()).await?;
    ensure!(s.labels(&node).await? == after(), "{:?}", s.labels(&node).await?);
    Ok(())
}

const WAITING: &str = "identity: {otherMachine: none}";

pub async fn two_thousand_nodes_that_were_changed_at_last_return_as_they_were(s: &Scenario) -> Result<()> {
    const NODES: usize = 2000;
    let s = &on_its_own(s, Options::default()).await?;
    let flags = [&NO_LISTS[..], &["--log-level", "info"]].concat();
    let (storer, restorer) = (s.storer(&flags)?, s.restorer(&flags)?);
    for daemon in [&storer, &restorer] {
        s.is_watching(daemon).await?;
    }
    let nodes: Vec<_> = (0..NODES).map(|number| s.node(&format!("n{number}"))).collect();
    each(&nodes, async |node| s.create(node, before()).await).await?;
    let stored = async |expected: Labels| {
        let records = s.config_maps.list(&ListParams::default()).await?.items;
        let records = records.iter().filter_map(|record| Record::decode(record).ok());
        Ok(records.filter(|decoded| decoded.record.labels == expected).count())
    };
    s.eventually_after("all are stored", NODES, async || stored(before()).await).await?;
    kill(&storer).await?;
    each(&nodes, async |node| changes_and_leaves(s, node).await).await?;
    each(&nodes, async |node| s.create(node, Labels::new()).await).await?;
    let restored = async || {
        let nodes = s.nodes.list(&ListParams::default()).await?.items;
        Ok(nodes.into_iter().filter(|node| node.metadata.labels == Some(after())).count())
    };
    s.eventually_after("all are restored", NODES, restored).await?;
    let _storer = s.storer(&flags)?;
    s.eventually_after("all are stored", NODES, async || stored(after()).await).await?;
    ensure!(restored().await? == NODES, "labels were changed");
    Ok(())
}
