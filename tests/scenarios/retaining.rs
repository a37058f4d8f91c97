//! How long records of departed nodes are kept.

use anyhow::Result;
use kube::api::ListParams;

use crate::scenario::{Labels, Scenario, labels};

pub async fn at_most_a_share_of_the_records_is_deleted_in_an_hour(s: &Scenario) -> Result<()> {
    let rules = |share| format!("{{retention: 1m, cleanupShare: {share}}}");
    let start = |share| s.storer(&["--rules", &rules(share), "--admin-address", "127.0.0.1:0"]);
    let storer = start("20%")?;
    let nodes: Vec<_> = (0..10).map(|number| s.node(&format!("n{number}"))).collect();
    for node in &nodes {
        s.create(node, labels([("pool", "gold")])).await?;
        s.eventually_stored(node, labels([("pool", "gold")])).await?;
    }
    for node in &nodes {
        s.delete(node).await?;
    }
    for node in &nodes {
        s.eventually_departed(node).await?;
    }
    let held_back = "cleanups_held_back";
    s.eventually_after("all have to wait for their turns", 10.0, async || {
        storer.metric(held_back, &[]).await
    })
    .await?;
    let count = async || {
        let config_maps = s.config_maps.list(&ListParams::default()).await?.items;
        let names = config_maps.into_iter().filter_map(|config_map| config_map.metadata.name);
        Ok(names.filter(|name| name.starts_with("label-storage.")).count())
    };
    assert_eq!(count().await?, 10);
    // One of them returns, and is not late.
    let restorer = s.restorer(&[])?;
    s.create(&nodes[0], Labels::new()).await?;
    s.eventually_labelled(&nodes[0], labels([("pool", "gold")])).await?;
    s.eventually("it is not gone any more", Some(true), async || {
        Ok(s.record(&nodes[0]).await?.map(|record| record.departed_at.is_none()))
    })
    .await?;
    s.eventually("and waits no more", 9.0, async || storer.metric(held_back, &[]).await).await?;
    drop((storer, restorer));
    // The rest may go at once, if the operator says so.
    let storer = start("100%")?;
    s.eventually_after("all others are deleted", 1, count).await?;
    storer.eventually_counted(s, "cleanups_total", &["reason=\"retention-over\""], 9.0).await
}
