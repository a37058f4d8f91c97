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

async fn eventually_braking(s: &Scenario, storer: &Daemon, is_braking: bool) -> Result<()> {
    storer.eventually_counted(s, "brake_engaged", &[], f64::from(u8::from(is_braking))).await
}

fn lists_of_nodes(fault: Fault) -> impl FnMut(&Request) -> Fault + Send + 'static {
    move |request| {
        let is_one = request.verb == Verb::List && request.resource == "nodes";
        if is_one { fault } else { Fault::None }
    }
}

pub async fn lists_that_lack_nodes_which_are_there_touch_no_record(s: &Scenario) -> Result<()> {
    let (nodes, kept) = stored_nodes(s).await?;
    let proxy = s.proxy(lists_of_nodes(Fault::EmptyList)).await?;
    let storer = s.daemon_through(&proxy, "storer", &FLAGS)?;
    eventually_braking(s, &storer, true).await?;
    // After a minute, samples tell.
    s.eventually_after("samples", true, async || {
        Ok(storer.has_logged(&["ERROR", "lists lack nodes that are there"]))
    })
    .await?;
    eventually_braking(s, &storer, true).await?;
    for node in &nodes {
        let record = s.record(node).await?;
        assert_eq!(record.map(|record| (record.labels, record.departed_at)), Some((kept.clone(), None)));
    }
    proxy.set_script(|_: &Request| Fault::None);
    eventually_braking(s, &storer, false).await
}

pub async fn nodes_that_are_all_gone_are_believed_to_be_after_a_while(s: &Scenario) -> Result<()> {
    let (nodes, kept) = stored_nodes(s).await?;
    try_join_all(nodes.iter().map(|node| s.delete(node))).await?;
    // Nobody was there to hear of it, so only lists tell.
    let proxy = s.proxy(
        |request: &Request| {
            if request.verb == Verb::Watch { Fault::ExpiredWatch } else { Fault::None }
        },
    );
    let proxy = proxy.await?;
    let storer = s.daemon_through(&proxy, "storer", &FLAGS)?;
    eventually_braking(s, &storer, true).await?;
    s.eventually_after("the brake is off", true, async || {
        Ok(storer.has_logged(&["the brake is off", "samples confirm it"]))
    })
    .await?;
    for node in &nodes {
        s.eventually_departed(node).await?;
        assert_eq!(s.record(node).await?.map(|record| record.labels), Some(kept.clone()));
    }
    eventually_braking(s, &storer, false).await
}
