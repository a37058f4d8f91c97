//! A large share of the nodes is missing, or seems to be.

use anyhow::Result;
use faults::{Fault, Request, Verb};
use futures::future::try_join_all;
use sandbox::process::Signal;

use crate::daemon::Daemon;
use crate::scenario::{Labels, Scenario, labels};

const FLAGS: [&str; 2] = ["--admin-address", "127.0.0.1:0"];

async fn stored_nodes(s: &Scenario) -> Result<(Vec<String>, Labels)> {
    let (nodes, kept) =
        ((0..6).map(|number| s.node(&number.to_string())).collect::<Vec<_>>(), labels([("pool", "gold")]));
    try_join_all(nodes.iter().map(|node| s.create(node, kept.clone()))).await?;
    let storer = s.storer(&[])?;
    for node in &nodes {
        s.eventually_stored(node, kept.clone()).await?;
    }
    storer.process.signal(Signal::TERM)?;
    storer.exit().await?;
    Ok((nodes, kept))
}

/// Waits until so many lists were not used.
async fn eventually_braked(s: &Scenario, storer: &Daemon, times: f64) -> Result<()> {
    s.eventually("lists that are not used", true, async || {
        Ok(storer.metric("brake_engagements_total", &[]).await? >= times)
    })
    .await
}

fn lists_of_nodes(fault: Fault) -> impl FnMut(&Request) -> Fault + Send + 'static {
    move |request| {
        let is_one = request.verb == Verb::List && request.resource == "nodes";
        if is_one { fault } else { Fault::None }
    }
}

pub async fn lists_that_lack_nodes_which_are_there_touch_no_record(s: &Scenario) -> Result<()> {
    s.list_often();
    let (nodes, kept) = stored_nodes(s).await?;
    let proxy = s.proxy(lists_of_nodes(Fault::EmptyList)).await?;
    let storer = s.daemon_through(&proxy, "storer", &FLAGS)?;
    // Every second one is used: each node is read by name then, and is there.
    eventually_braked(s, &storer, 3.0).await?;
    for node in &nodes {
        let record = s.record(node).await?;
        assert_eq!(record.map(|record| (record.labels, record.departed_at)), Some((kept.clone(), None)));
    }
    proxy.set_script(|_: &Request| Fault::None);
    s.label(&nodes[0], [("pool", Some("silver"))]).await?;
    s.eventually_stored(&nodes[0], labels([("pool", "silver")])).await
}

pub async fn nodes_that_are_all_gone_are_departed_when_the_next_list_agrees(s: &Scenario) -> Result<()> {
    s.list_often();
    let (nodes, kept) = stored_nodes(s).await?;
    try_join_all(nodes.iter().map(|node| s.delete(node))).await?;
    // No storer ran at the deletion, so only lists show it.
    let proxy = s.proxy(
        |request: &Request| {
            if request.verb == Verb::Watch { Fault::ExpiredWatch } else { Fault::None }
        },
    );
    let proxy = proxy.await?;
    let storer = s.daemon_through(&proxy, "storer", &FLAGS)?;
    eventually_braked(s, &storer, 1.0).await?;
    for node in &nodes {
        s.eventually_departed(node).await?;
        assert_eq!(s.record(node).await?.map(|record| record.labels), Some(kept.clone()));
    }
    Ok(())
}
