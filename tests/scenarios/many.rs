//! Many nodes at once: they are read by lists, and nothing else is different.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use faults::{Fault, Proxy, Request, Verb};
use futures::{StreamExt, TryStreamExt, stream};

use crate::scenario::{Labels, NO_LISTS, Scenario, labels};

const MANY: u32 = 150;
/// A few at a time, so that most are still waiting when the list is there.
const SLOWLY: [&str; 2] = ["--concurrency", "4"];
/// So many at a time that a list is used up before it is too old, even on a slow server.
const QUICKLY: [&str; 2] = ["--concurrency", "16"];

/// Makes reads by name slow, and counts them.
async fn slow_reads(s: &Scenario, patches: Duration) -> Result<(Proxy, Arc<AtomicU32>)> {
    let reads = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&reads);
    let proxy = s.proxy(move |request: &Request| match (request.verb, request.resource.as_str()) {
        (Verb::Get, "nodes" | "configmaps") => {
            counted.fetch_add(1, Ordering::Relaxed);
            Fault::Latency(Duration::from_secs(1))
        }
        (Verb::Patch, "nodes") => Fault::Latency(patches),
        _ => Fault::None,
    });
    Ok((proxy.await?, reads))
}

async fn each(nodes: &[String], work: impl AsyncFn(&String) -> Result<()>) -> Result<()> {
    stream::iter(nodes).map(|node| work(node)).buffer_unordered(16).try_collect().await
}

fn nodes(s: &Scenario) -> Vec<String> {
    (0..MANY).map(|number| s.node(&number.to_string())).collect()
}

fn stored() -> Labels {
    labels([("pool", "gold"), ("node-role.kubernetes.io/worker", "")])
}

pub async fn a_cold_start_reads_few_nodes_by_name(s: &Scenario) -> Result<()> {
    let nodes = nodes(s);
    each(&nodes, async |node| s.create(node, stored()).await).await?;
    let (proxy, reads) = slow_reads(s, Duration::ZERO).await?;
    let _storer = s.daemon_through(&proxy, "storer", &[NO_LISTS.as_slice(), &QUICKLY].concat())?;
    each(&nodes, async |node| s.eventually_stored(node, stored()).await).await?;
    let reads = reads.load(Ordering::Relaxed);
    ensure!(reads < MANY / 2, "{reads} reads for {MANY} nodes");
    Ok(())
}

/// All nodes are back before the restorer starts.
async fn return_all(s: &Scenario, nodes: &[String]) -> Result<()> {
    let storer = s.storer(&NO_LISTS)?;
    each(nodes, async |node| s.create(node, stored()).await).await?;
    each(nodes, async |node| s.eventually_stored(node, stored()).await).await?;
    drop(storer);
    each(nodes, async |node| s.delete(node).await).await?;
    each(nodes, async |node| s.create(node, Labels::new()).await).await
}

pub async fn a_mass_return_reads_few_objects_by_name(s: &Scenario) -> Result<()> {
    let nodes = nodes(s);
    return_all(s, &nodes).await?;
    let (proxy, reads) = slow_reads(s, Duration::ZERO).await?;
    let _restorer = s.daemon_through(&proxy, "restorer", &[NO_LISTS.as_slice(), &QUICKLY].concat())?;
    each(&nodes, async |node| s.eventually_labelled(node, stored()).await).await?;
    let reads = reads.load(Ordering::Relaxed);
    ensure!(reads < MANY / 2, "{reads} reads for {MANY} nodes");
    Ok(())
}

pub async fn what_is_changed_after_the_list_is_not_overwritten(s: &Scenario) -> Result<()> {
    let nodes = nodes(s);
    return_all(s, &nodes).await?;
    let (proxy, _) = slow_reads(s, Duration::from_millis(300)).await?;
    let restorer = s.daemon_through(&proxy, "restorer", &[NO_LISTS.as_slice(), &SLOWLY].concat())?;
    let has_listed = async || Ok(restorer.has_logged(&["listed for many nodes", "Records"]));
    s.eventually("the nodes and records are listed", true, has_listed).await?;
    let last = &nodes[nodes.len() - 20..];
    each(last, async |node| s.label(node, [("pool", Some("own"))]).await).await?;
    each(&nodes, async |node| {
        let has_marker = async || {
            let annotations = s.get(node).await?.metadata.annotations.unwrap_or_default();
            Ok(annotations.contains_key("label-storage/restored"))
        };
        s.eventually(&format!("{node} is restored"), true, has_marker).await
    })
    .await?;
    let mut own = 0;
    for node in last {
        own += u32::from(s.labels(node).await?.get("pool").is_some_and(|pool| pool == "own"));
    }
    ensure!(own == 20, "{own} of 20 nodes have their own label");
    Ok(())
}
