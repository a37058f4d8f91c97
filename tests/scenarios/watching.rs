//! Watches. Lists come only once an hour here.

use anyhow::Result;
use faults::{Fault, Proxy, Request, Verb};
use kube::api::{DeleteParams, ListParams};
use sandbox::Options;
use sandbox::process::Signal;
use serde_json::json;

use crate::control_plane::{each, on_its_own};
use crate::daemon::Daemon;
use crate::interference::{Interference, alongside_with};
use crate::scenario::{Labels, NO_LISTS, Scenario, labels};

fn pair_through(s: &Scenario, proxy: &Proxy) -> Result<(Daemon, Daemon)> {
    Ok((s.daemon_through(proxy, "storer", &NO_LISTS)?, s.daemon_through(proxy, "restorer", &NO_LISTS)?))
}

pub async fn a_label_changed_just_before_the_deletion_is_kept(s: &Scenario) -> Result<()> {
    let storer = s.storer(&NO_LISTS)?;
    let nodes: Vec<_> = (0..20).map(|i| s.node(&format!("n{i}"))).collect();
    for node in &nodes {
        s.create(node, labels([("pool", "gold"), ("removed", "soon")])).await?;
        s.eventually_stored(node, labels([("pool", "gold"), ("removed", "soon")])).await?;
    }
    s.is_watching(&storer).await?;
    for node in &nodes {
        s.label(node, [("pool", Some("platinum")), ("removed", None)]).await?;
        s.delete(node).await?;
    }
    for node in &nodes {
        s.eventually_departed(node).await?;
        // The deletion may have been found before its event with the final labels arrived.
        s.eventually(&format!("last labels of {node}"), Some(labels([("pool", "platinum")])), async || {
            Ok(s.record(node).await?.map(|record| record.labels))
        })
        .await?;
    }
    // And of a node that was deleted before it could be stored.
    let brief = s.node("brief");
    s.create(&brief, labels([("pool", "gold")])).await?;
    s.delete(&brief).await?;
    s.eventually_departed(&brief).await?;
    let _restorer = s.restorer(&NO_LISTS)?;
    s.create(&brief, Labels::new()).await?;
    s.eventually_labelled(&brief, labels([("pool", "gold")])).await
}

/// Only the storer has them, so neither lists nor failures may make it drop them.
pub async fn what_is_changed_and_replaced_at_once_is_kept(s: &Scenario) -> Result<()> {
    let _daemons = s.pair()?;
    let nodes: Vec<_> = (0..20).map(|number| s.node(&number.to_string())).collect();
    for node in &nodes {
        s.create(node, labels([("pool", "gold"), ("own", "yes")])).await?;
    }
    for node in &nodes {
        s.eventually_stored(node, labels([("pool", "gold"), ("own", "yes")])).await?;
    }
    // One value is changed, one label is added, one removed; and the node is re-created before that could be stored.
    for node in &nodes {
        s.label(node, [("pool", Some("silver")), ("new", Some("yes")), ("own", None)]).await?;
        s.delete(node).await?;
        s.create(node, Labels::new()).await?;
    }
    for node in &nodes {
        let expected = labels([("pool", "silver"), ("new", "yes")]);
        s.eventually_labelled(node, expected.clone()).await?;
        s.eventually_stored(node, expected).await?;
    }
    Ok(())
}

pub async fn last_labels_wait_until_they_can_be_stored(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    s.occupy_record(&node).await?;
    let storer = s.storer(&["--audit-interval", "150ms"])?;
    s.is_watching(&storer).await?;
    s.create(&node, labels([("pool", "gold")])).await?;
    s.delete(&node).await?;
    let is_told = async || Ok(storer.has_logged(&["WARN", &node, "move it"]));
    s.eventually("somebody else's configmap is in the way", true, is_told).await?;
    let lists = |daemon: &Daemon| daemon.log().matches("listed kind=Nodes").count();
    let before = lists(&storer);
    s.eventually("some lists", true, async || Ok(lists(&storer) > before + 3)).await?;
    s.delete_record(&node).await?;
    s.eventually_departed(&node).await?;
    assert_eq!(s.record(&node).await?.map(|record| record.labels), Some(labels([("pool", "gold")])));
    Ok(())
}

pub async fn what_was_heard_last_is_stored_before_the_end(s: &Scenario) -> Result<()> {
    // One at a time, so that most of it is still to be done.
    let storer = s.storer(&[&NO_LISTS[..], &["--concurrency", "1"]].concat())?;
    s.is_watching(&storer).await?;
    let nodes: Vec<_> = (0..40).map(|i| s.node(&format!("n{i}"))).collect();
    for node in &nodes {
        s.create(node, labels([("pool", "gold")])).await?;
        s.label(node, [("pool", Some("platinum"))]).await?;
        s.delete(node).await?;
    }
    let heard = async || Ok(storer.log().lines().filter(|line| line.contains("DEBUG deleted ")).count());
    s.eventually("all deletions are heard of", nodes.len(), heard).await?;
    storer.process.signal(Signal::TERM)?;
    assert_eq!(storer.exit().await?.code(), 0);
    for node in &nodes {
        let record = s.record(node).await?.map(|record| record.labels);
        assert_eq!(record, Some(labels([("pool", "platinum")])), "{node}");
    }
    Ok(())
}

pub async fn a_returning_node_is_restored_without_a_list(s: &Scenario) -> Result<()> {
    let (storer, restorer) = (s.storer(&NO_LISTS)?, s.restorer(&NO_LISTS)?);
    s.is_watching(&storer).await?;
    s.is_watching(&restorer).await?;
    comes_and_goes(s, "a").await
}

/// A node that is labelled, deleted and re-created, and must get its labels back.
async fn comes_and_goes(s: &Scenario, name: &str) -> Result<()> {
    let node = s.node(name);
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.label(&node, [("pool", Some("silver"))]).await?;
    s.eventually_stored(&node, labels([("pool", "silver")])).await?;
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, labels([("pool", "silver")])).await
}

pub async fn a_watch_that_is_cut_goes_on_where_it_was(s: &Scenario) -> Result<()> {
    let proxy = s.proxy(|_: &faults::Request| Fault::None).await?;
    let (storer, restorer) = pair_through(s, &proxy)?;
    for daemon in [&storer, &restorer] {
        s.is_watching(daemon).await?;
    }
    let node = s.node("a");
    for round in 0..5 {
        let value = round.to_string();
        // Changes during the outage are received later, including the deletion and the labels before it.
        proxy.cut();
        s.create(&node, labels([("round", &value)])).await?;
        s.delete(&node).await?;
        s.eventually("the last labels", Some(labels([("round", &value)])), async || {
            Ok(s.record(&node).await?.map(|record| record.labels))
        })
        .await?;
    }
    comes_and_goes(s, "b").await
}

pub async fn a_watch_that_goes_silent_is_noticed(s: &Scenario) -> Result<()> {
    let proxy = s.proxy(|_: &faults::Request| Fault::None).await?;
    let (storer, restorer) = pair_through(s, &proxy)?;
    for daemon in [&storer, &restorer] {
        s.is_watching(daemon).await?;
    }
    proxy.silence();
    comes_and_goes(s, "a").await?;
    assert!(
        storer.has_logged(&["WARN", "a watch broke", "no event within the time limit"]),
        "{}",
        storer.log()
    );
    Ok(())
}

pub async fn a_watch_that_has_expired_is_followed_by_a_list(s: &Scenario) -> Result<()> {
    // Requests a version that the real server has dropped long ago.
    let interference = Interference::with_forgotten_watches();
    let flags = ["--interval", "150ms", "--audit-interval", "1h"];
    alongside_with::<storer::Args>(s, &flags, &interference, async || {
        for value in ["1", "2", "3"] {
            let node = s.node(value);
            s.create(&node, labels([("pool", value)])).await?;
            s.eventually_stored(&node, labels([("pool", value)])).await?;
        }
        let lists =
            interference.count(|call| call.starts_with("GET /api/v1/nodes") && !call.contains("watch=true"));
        assert!(lists > 2, "{lists} lists");
        Ok(())
    })
    .await
}

/// More Nodes are deleted than final labels are kept, while no storer runs, and the first lists of records fail.
pub async fn a_last_change_survives_a_mass_deletion_while_the_storer_is_replaced(s: &Scenario) -> Result<()> {
    const OTHERS: usize = 4200;
    let s = &on_its_own(s, Options::default()).await?;
    let flags = [&NO_LISTS[..], &["--log-level", "info"]].concat();
    let storer = s.storer(&flags)?;
    s.is_watching(&storer).await?;
    let node = s.node("changed");
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    let others: Vec<_> = (0..OTHERS).map(|number| s.node(&format!("n{number}"))).collect();
    each(&others, async |node| s.create(node, Labels::new()).await).await?;
    storer.process.signal(Signal::KILL)?;
    storer.exit().await?;
    s.label(&node, [("pool", Some("silver"))]).await?;
    s.delete(&node).await?;
    s.nodes.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    let mut refused = 0;
    let proxy = s
        .proxy(move |request: &Request| {
            let is_refused = refused < 3 && request.is(Verb::List, "configmaps");
            refused += usize::from(is_refused);
            if is_refused { Fault::Status { code: 429, retry_after: Some(2) } } else { Fault::None }
        })
        .await?;
    let storer = s.daemon_through(&proxy, "storer", &flags)?;
    s.eventually_departed(&node).await?;
    s.eventually("the last labels", Some(labels([("pool", "silver")])), async || {
        Ok(s.record(&node).await?.map(|record| record.labels))
    })
    .await?;
    anyhow::ensure!(!storer.has_logged(&["too many final labels"]), "{}", storer.log());
    Ok(())
}

pub async fn a_last_change_survives_while_the_record_can_not_be_read(s: &Scenario) -> Result<()> {
    let storer = s.storer(&NO_LISTS)?;
    s.is_watching(&storer).await?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.patch_record(&node, json!({"metadata": {"annotations": {"label-storage/node": "other"}}})).await?;
    let is_reported = async || Ok(storer.has_logged(&["problem found in a record"]));
    s.eventually("the problem is reported", true, is_reported).await?;
    s.label(&node, [("pool", Some("silver"))]).await?;
    s.delete(&node).await?;
    let is_received = async || Ok(storer.has_logged(&["DEBUG deleted ", &node]));
    s.eventually("the deletion is received", true, is_received).await?;
    s.patch_record(&node, json!({"metadata": {"annotations": {"label-storage/node": node}}})).await?;
    s.eventually_departed(&node).await?;
    s.eventually("the last labels", Some(labels([("pool", "silver")])), async || {
        Ok(s.record(&node).await?.map(|record| record.labels))
    })
    .await
}
