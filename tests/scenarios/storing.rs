//! Storing: the labels, the time, and the retention.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use label_storage_runtime::Daemon;
use label_storage_runtime::server_clock::ServerClock;
use sandbox::process::Signal;
use serde_json::json;

use crate::interference::{Interference, alongside, alongside_with_clock};
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
    s.list_often();
    let (storer, _restorer) = s.pair()?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.label(&node, [("pool", None)]).await?;
    s.eventually_stored(&node, Labels::new()).await?;
    // It has to outlive every plan, and that is what keeps it.
    s.has_acted(&storer, &node).await?;
    assert!(s.config_map(&node).await?.is_some() && storer.has_logged(&[&node, "empty-for-now"]));
    s.eventually("the record is gone", false, async || Ok(s.config_map(&node).await?.is_some())).await?;
    // The record is gone before the storer can say so.
    let words = ["INFO", &node, "empty-for-good"];
    s.eventually("the deletion is told", true, async || Ok(storer.has_logged(&words))).await?;
    // And it can begin anew.
    s.label(&node, [("pool", Some("silver"))]).await?;
    s.eventually_stored(&node, labels([("pool", "silver")])).await
}

pub async fn the_record_of_a_returning_node_is_left_alone_until_it_is_restored(s: &Scenario) -> Result<()> {
    s.list_often();
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
    s.has_acted(&storer, &node).await?;
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
    s.delete_record(&node).await?;
    s.eventually_stored(&node, kept).await
}

pub async fn a_departed_node_is_stamped_and_forgotten_after_the_retention(s: &Scenario) -> Result<()> {
    s.list_often();
    let storer = s.storer(&[])?;
    let node = s.node("a");
    let kept = labels([("pool", "gold")]);
    s.create(&node, kept.clone()).await?;
    s.eventually_stored(&node, kept.clone()).await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    s.has_acted(&storer, &node).await?;
    let record = s.record(&node).await?.context("no record")?;
    assert_eq!((record.labels, record.generation), (kept, 2), "stamped once, and kept");
    s.patch_record(
        &node,
        json!({"metadata": {"annotations": {"label-storage/departed-at": "2020-01-01T00:00:00Z"}}}),
    )
    .await?;
    storer.process.signal(Signal::TERM)?;
    storer.exit().await?;
    let _storer = s.storer(&["--rules", "cleanupShare: 100%"])?;
    s.eventually("the record is gone", false, async || Ok(s.config_map(&node).await?.is_some())).await
}

/// By how many days the clock of [`jumping`] is wrong.
static JUMP: AtomicI64 = AtomicI64::new(0);

fn jumping() -> Timestamp {
    Timestamp::now() + SignedDuration::from_hours(24 * JUMP.load(Ordering::Relaxed))
}

pub async fn a_clock_that_jumps_by_a_year_deletes_nothing(s: &Scenario) -> Result<()> {
    let (away, emptied) = (s.node("away"), s.node("emptied"));
    let kept = labels([("pool", "gold")]);
    for node in [&away, &emptied] {
        s.create(node, kept.clone()).await?;
    }
    let (clock, rules) = (Arc::new(ServerClock::new(jumping)), ["--rules", "cleanupShare: 100%"]);
    alongside_with_clock::<storer::Args>(s, &rules, &Interference::none(), clock, async || {
        for node in [&away, &emptied] {
            s.eventually_stored(node, kept.clone()).await?;
        }
        s.delete(&away).await?;
        s.eventually_departed(&away).await?;
        JUMP.store(365, Ordering::Relaxed);
        // An empty record is deleted after half a minute. By then one that seems to be a year old would be, too.
        s.label(&emptied, [("pool", None)]).await?;
        let is_there = async || Ok(s.config_map(&emptied).await?.is_some());
        s.eventually("the empty record is gone", false, is_there).await?;
        assert_eq!(s.record(&away).await?.context("no record")?.labels, kept);
        Ok(())
    })
    .await
}

/// Lets a daemon look on while nothing happens but what a kubelet's heartbeats do, and returns what it asks for.
async fn calls_when_idle<D: Daemon>(
    s: &Scenario,
    node: &str,
    settled: impl AsyncFnOnce() -> Result<()>,
) -> Result<Vec<String>> {
    let calls = Interference::none();
    let lists =
        |from: usize| calls.seen()[from..].iter().filter(|call| call.ends_with("/configmaps")).count();
    let mut idle = Vec::new();
    alongside::<D>(s, &calls, async || {
        settled().await?;
        // The pass that settled it may still be under way.
        let before = calls.seen().len();
        s.eventually("a pass from there on", true, async || Ok(lists(before) >= 2)).await?;
        let before = calls.seen().len();
        let heartbeat = json!({"metadata": {"annotations": {"beat": "1"}}});
        s.nodes.patch(node, &Default::default(), &kube::api::Patch::Merge(heartbeat)).await?;
        s.eventually("three more passes", true, async || Ok(lists(before) >= 3)).await?;
        idle = calls.seen().split_off(before);
        Ok(())
    })
    .await?;
    Ok(idle)
}

pub async fn unchanged_nodes_cost_no_calls(s: &Scenario) -> Result<()> {
    s.list_often();
    let node = s.node("a");
    let kept = labels([("pool", "gold")]);
    s.create(&node, kept.clone()).await?;
    let stored =
        calls_when_idle::<storer::Args>(s, &node, async || s.eventually_stored(&node, kept.clone()).await)
            .await?;
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    let restored =
        calls_when_idle::<restorer::Args>(s, &node, async || s.eventually_labelled(&node, kept).await)
            .await?;
    for calls in [stored, restored] {
        assert!(calls.len() >= 5, "{calls:?}");
        let lists = |call: &&String| call.starts_with("GET ") && !call.contains(&node);
        assert_eq!(calls.iter().filter(lists).count(), calls.len(), "only lists: {calls:?}");
    }
    Ok(())
}

pub async fn a_node_that_can_not_be_stored_does_not_hold_up_the_others(s: &Scenario) -> Result<()> {
    let (stuck, fine) = (s.node("a"), s.node("b"));
    s.occupy_record(&stuck).await?;
    let storer = s.storer(&[])?;
    s.create(&stuck, labels([("pool", "gold")])).await?;
    s.eventually("the failure is told", true, async || Ok(storer.has_logged(&["WARN", &stuck, "move it"])))
        .await?;
    for value in ["1", "2"] {
        s.nodes.delete(&fine, &Default::default()).await.ok();
        s.create(&fine, labels([("pool", value)])).await?;
        s.delete_record(&fine).await.ok();
        s.eventually_stored(&fine, labels([("pool", value)])).await?;
    }
    Ok(())
}
