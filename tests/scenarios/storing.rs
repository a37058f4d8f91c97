//! What is stored, when, and for how long.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use crate::interference::{Interference, alongside};
use crate::scenario::{Labels, Scenario, labels};

pub async fn a_node_that_existed_before_the_daemons_is_stored(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    let kept = labels([("pool", "gold")]);
    s.create(&node, kept.clone()).await?;
    let _daemons = s.pair()?;
    s.eventually_stored(&node, kept.clone()).await?;
    let record = s.record(&node).await?.context("no record")?;
    assert_eq!((record.node.as_str(), record.generation, record.departed_at), (node.as_str(), 1, None));
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, kept).await
}

pub async fn without_labels_the_record_is_empty_at_once_and_gone_within_a_minute(s: &Scenario) -> Result<()> {
    let _daemons = s.pair()?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.label(&node, [("pool", None)]).await?;
    s.eventually_stored(&node, Labels::new()).await?;
    let emptied = Instant::now();
    s.eventually("the record is gone", false, async || Ok(s.config_map(&node).await?.is_some())).await?;
    // Not too early, either: it has to outlive every plan. That it is no more than a minute is up to the machine.
    assert!(emptied.elapsed() > Duration::from_secs(20), "gone after {:?}", emptied.elapsed());
    // And it can begin anew.
    s.label(&node, [("pool", Some("silver"))]).await?;
    s.eventually_stored(&node, labels([("pool", "silver")])).await
}

pub async fn the_record_of_a_returning_node_is_left_alone_until_it_is_restored(s: &Scenario) -> Result<()> {
    let storer = s.storer(&[])?;
    let node = s.node("a");
    let kept = labels([("pool", "gold"), ("rack", "7")]);
    s.create(&node, kept.clone()).await?;
    s.eventually_stored(&node, kept.clone()).await?;
    let uid = s.get(&node).await?.metadata.uid;
    s.delete(&node).await?;
    s.create(&node, labels([("pool", "default")])).await?;
    s.eventually("awaiting-restore", true, async || Ok(storer.has_logged(&[&node, "awaiting-restore"])))
        .await?;
    s.after_two_passes(&storer, &node).await?;
    let record = s.record(&node).await?.context("no record")?;
    assert_eq!((record.uid.map(|uid| uid.to_string()), record.labels), (uid, kept));

    let _restorer = s.restorer(&[])?;
    let expected = labels([("pool", "default"), ("rack", "7")]);
    s.eventually_labelled(&node, expected.clone()).await?;
    s.eventually_stored(&node, expected).await
}

pub async fn a_record_deleted_under_a_living_node_comes_back(s: &Scenario) -> Result<()> {
    let _daemons = s.pair()?;
    let node = s.node("a");
    let kept = labels([("pool", "gold")]);
    s.create(&node, kept.clone()).await?;
    s.eventually_stored(&node, kept.clone()).await?;
    s.config_maps.delete(&label_storage::name::record_name(&node), &Default::default()).await?;
    s.eventually_stored(&node, kept).await
}

pub async fn a_departed_node_is_stamped_and_forgotten_after_the_retention(s: &Scenario) -> Result<()> {
    let storer = s.storer(&[])?;
    let node = s.node("a");
    let kept = labels([("pool", "gold")]);
    s.create(&node, kept.clone()).await?;
    s.eventually_stored(&node, kept.clone()).await?;
    s.delete(&node).await?;
    s.eventually("departed-at", true, async || {
        Ok(s.record(&node).await?.is_some_and(|r| r.departed_at.is_some()))
    })
    .await?;
    s.after_two_passes(&storer, &node).await?;
    let record = s.record(&node).await?.context("no record")?;
    assert_eq!((record.labels, record.generation), (kept, 2), "stamped once, and kept");
    drop(storer);

    let _impatient = s.storer(&["--retention", "1s"])?;
    s.eventually("the record is gone", false, async || Ok(s.config_map(&node).await?.is_some())).await
}

pub async fn unchanged_nodes_cost_no_calls(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    let kept = labels([("pool", "gold")]);
    s.create(&node, kept.clone()).await?;
    let calls = Interference::none();
    alongside::<storer::Args>(s, &calls, async || {
        s.eventually_stored(&node, kept.clone()).await?;
        // From here on the node's own status changes, as a kubelet's heartbeats do, and its labels don't.
        let before = calls.seen();
        let heartbeat = json!({"metadata": {"annotations": {"beat": "1"}}});
        s.nodes.patch(&node, &Default::default(), &kube::api::Patch::Merge(heartbeat)).await?;
        s.eventually("three more passes", true, async || {
            Ok(calls.seen().iter().filter(|call| call.contains("/configmaps?")).count() >= 4)
        })
        .await?;
        let calls: Vec<_> = calls.seen().split_off(before.len());
        // The pass that stored it may still have been under way.
        let single: Vec<_> = calls.iter().skip(1).filter(|call| call.contains(&node)).collect();
        assert_eq!(single, Vec::<&String>::new());
        Ok(())
    })
    .await
}

pub async fn a_node_that_can_not_be_stored_does_not_hold_up_the_others(s: &Scenario) -> Result<()> {
    let (stuck, fine) = (s.node("a"), s.node("b"));
    let foreign =
        json!({"metadata": {"name": label_storage::name::record_name(&stuck)}, "data": {"theirs": "x"}});
    s.config_maps.create(&Default::default(), &serde_json::from_value(foreign)?).await?;
    let storer = s.storer(&[])?;
    s.create(&stuck, labels([("pool", "gold")])).await?;
    s.eventually("the failure is told", true, async || Ok(storer.has_logged(&["WARN", &stuck, "rename it"])))
        .await?;
    for value in ["1", "2"] {
        s.nodes.delete(&fine, &Default::default()).await.ok();
        s.create(&fine, labels([("pool", value)])).await?;
        s.config_maps.delete(&label_storage::name::record_name(&fine), &Default::default()).await.ok();
        s.eventually_stored(&fine, labels([("pool", value)])).await?;
    }
    Ok(())
}
