//! How long records of departed nodes are kept.

use anyhow::Result;
use kube::api::ListParams;

use crate::scenario::{Labels, Scenario, labels};

pub async fn at_most_a_share_of_the_records_is_deleted_in_an_hour(s: &Scenario) -> Result<()> {
    let storer =
        s.storer(&["--retention", "1m", "--cleanup-share", "20%", "--admin-address", "127.0.0.1:0"])?;
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
    s.eventually_after("the rest has to wait", 8.0, async || storer.metric(held_back, &[]).await).await?;
    let count = async || {
        let config_maps = s.config_maps.list(&ListParams::default()).await?.items;
        let names = config_maps.into_iter().filter_map(|config_map| config_map.metadata.name);
        Ok(names.filter(|name| name.starts_with("label-storage.")).count())
    };
    s.eventually("two are deleted", 8, count).await?;
    let over = "cleanups_total";
    assert_eq!(storer.metric(over, &["reason=\"retention-over\""]).await?, 2.0);
    // One of the others returns, and is not late.
    let mut back = Vec::new();
    for node in &nodes {
        if s.record(node).await?.is_some() {
            back.push(node);
        }
    }
    let _restorer = s.restorer(&[])?;
    s.create(back[0], Labels::new()).await?;
    s.eventually_labelled(back[0], labels([("pool", "gold")])).await?;
    s.eventually("it is not gone any more", Some(true), async || {
        Ok(s.record(back[0]).await?.map(|record| record.departed_at.is_none()))
    })
    .await
}
