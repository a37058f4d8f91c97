//! A node returns, and its labels with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use faults::{Fault, Request, Verb};
use k8s_openapi::api::core::v1::Node;
use label_storage::node::RESTORED;
use serde_json::json;

use crate::scenario::{Labels, Scenario, labels};

pub async fn a_recreated_node_gets_its_labels_back(s: &Scenario) -> Result<()> {
    let _daemons = s.pair()?;
    let node = s.node("a");
    let kept = labels([("pool", "gold"), ("example.com/rack", "7"), ("empty", "")]);
    s.leaves_and_returns(&node, &kept).await?;
    s.eventually_labelled(&node, kept.clone()).await?;
    s.eventually_stored(&node, kept).await
}

pub async fn a_label_on_the_returning_node_is_not_overwritten(s: &Scenario) -> Result<()> {
    let _daemons = s.pair()?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold"), ("rack", "7"), ("empty", "not")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold"), ("rack", "7"), ("empty", "not")])).await?;
    s.delete(&node).await?;
    s.create(&node, labels([("pool", "default"), ("empty", "")])).await?;
    let expected = labels([("pool", "default"), ("rack", "7"), ("empty", "")]);
    s.eventually_labelled(&node, expected.clone()).await?;
    s.eventually_stored(&node, expected).await
}

pub async fn a_removed_label_stays_removed_in_the_store_and_after_the_next_return(
    s: &Scenario,
) -> Result<()> {
    s.list_often();
    let (_storer, restorer) = s.pair()?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold"), ("rack", "7")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold"), ("rack", "7")])).await?;
    s.label(&node, [("pool", None)]).await?;
    s.eventually_stored(&node, labels([("rack", "7")])).await?;
    // Twice: the second incarnation was restored, the first was not.
    for _ in 0..2 {
        s.delete(&node).await?;
        s.create(&node, Labels::new()).await?;
        s.eventually_labelled(&node, labels([("rack", "7")])).await?;
        s.eventually_stored(&node, labels([("rack", "7")])).await?;
        s.has_acted(&restorer, &node).await?;
        assert_eq!(s.labels(&node).await?, labels([("rack", "7")]));
    }
    // Removed from a restored node, it stays away too.
    s.label(&node, [("rack", None), ("new", Some("1"))]).await?;
    s.eventually_stored(&node, labels([("new", "1")])).await?;
    s.has_acted(&restorer, &node).await?;
    assert_eq!(s.labels(&node).await?, labels([("new", "1")]));
    Ok(())
}

pub async fn a_changed_value_wins(s: &Scenario) -> Result<()> {
    let _daemons = s.pair()?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.label(&node, [("pool", Some("silver"))]).await?;
    s.eventually_stored(&node, labels([("pool", "silver")])).await?;
    let generation = s.record(&node).await?.context("no record")?.generation;
    assert_eq!(generation, 2, "one more with every write");
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, labels([("pool", "silver")])).await
}

pub async fn a_node_deleted_and_recreated_faster_than_the_loops_gets_its_labels_back(
    s: &Scenario,
) -> Result<()> {
    let slow = ["--interval", "3s"];
    let (_storer, _restorer) = (s.storer(&slow)?, s.restorer(&slow)?);
    let node = s.node("a");
    let kept = labels([("pool", "gold")]);
    s.create(&node, kept.clone()).await?;
    s.eventually_stored(&node, kept.clone()).await?;
    for _ in 0..3 {
        s.delete(&node).await?;
        s.create(&node, Labels::new()).await?;
    }
    s.eventually_labelled(&node, kept.clone()).await?;
    s.eventually_stored(&node, kept).await
}

pub async fn a_node_recreated_from_its_own_saved_yaml_is_restored(s: &Scenario) -> Result<()> {
    let _daemons = s.pair()?;
    let node = s.node("a");
    let first = labels([("pool", "gold")]);
    s.create(&node, first.clone()).await?;
    s.eventually_stored(&node, first.clone()).await?;
    // A restored incarnation, so that what is saved carries a marker.
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_stored(&node, first).await?;
    let saved = s.get(&node).await?;
    assert!(
        saved.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(RESTORED))
    );
    // Labels that were set after the YAML was saved must be restored, although the saved marker is complete.
    s.label(&node, [("rack", Some("7")), ("pool", Some("silver"))]).await?;
    s.eventually_stored(&node, labels([("pool", "silver"), ("rack", "7")])).await?;
    s.delete(&node).await?;
    s.create_from(as_saved(saved)).await?;
    let expected = labels([("pool", "gold"), ("rack", "7")]);
    s.eventually_labelled(&node, expected.clone()).await?;
    s.eventually_stored(&node, expected).await
}

/// `kubectl get node -o yaml > file`, `kubectl create -f file`: all but what the API server refuses.
fn as_saved(mut node: Node) -> Node {
    node.metadata.resource_version = None;
    node.metadata.managed_fields = None;
    node
}

pub async fn keys_with_the_token_and_at_the_length_limits_survive(s: &Scenario) -> Result<()> {
    let _daemons = s.pair()?;
    let node = s.node("a");
    let long_prefix = [vec!["p".repeat(63); 3].join("."), "q".repeat(61)].join(".");
    assert_eq!(long_prefix.len(), 253);
    let mut kept = labels([
        ("a-SLASH-b", "token"),
        ("a-DASH-SLASH-b", "escaped"),
        ("a/b", "slash"),
        ("x.y/a-SLASH-b", "both"),
        ("x.y/SLASH-z", "after"),
        ("UPPER_lower.1-2", "A_b.c-9"),
    ]);
    kept.insert("n".repeat(63), "v".repeat(63));
    kept.insert(format!("{long_prefix}/{}", "n".repeat(63)), "v".repeat(63));
    kept.insert(format!("{long_prefix}/{}m", "n".repeat(62)), String::new());
    s.leaves_and_returns(&node, &kept).await?;
    s.eventually_labelled(&node, kept).await
}

pub async fn nodes_with_the_longest_names_survive(s: &Scenario) -> Result<()> {
    let _daemons = s.pair()?;
    let named = |length: usize, end: &str| {
        let start = s.node("n");
        format!("{start}{}{end}", "n".repeat(length - start.len() - end.len()))
    };
    // The longest whose record has its whole name, the first that has not, and two that differ at their very end.
    let nodes: BTreeMap<String, Labels> =
        [named(239, "x"), named(240, "x"), named(253, "x"), named(253, "y")]
            .into_iter()
            .enumerate()
            .map(|(i, node)| (node, labels([("number", &i.to_string())])))
            .collect();
    for (node, kept) in &nodes {
        s.create(node, kept.clone()).await?;
    }
    for (node, kept) in &nodes {
        s.eventually_stored(node, kept.clone()).await?;
        s.delete(node).await?;
        s.create(node, Labels::new()).await?;
    }
    for (node, kept) in &nodes {
        s.eventually_labelled(node, kept.clone()).await?;
    }
    Ok(())
}

pub async fn what_a_person_edits_while_the_node_is_away_comes_back(s: &Scenario) -> Result<()> {
    let _daemons = s.pair()?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold"), ("old", "1")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold"), ("old", "1")])).await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    s.patch_record(&node, json!({"data": {"pool": "platinum", "old": null, "example.com-SLASH-new": "2"}}))
        .await?;
    s.create(&node, Labels::new()).await?;
    let expected = labels([("pool", "platinum"), ("example.com/new", "2")]);
    s.eventually_labelled(&node, expected.clone()).await?;
    s.eventually_stored(&node, expected).await?;
    let record = s.record(&node).await?.context("no record")?;
    assert_eq!(record.departed_at, None, "it is back");
    Ok(())
}

/// Without a watch of records, and with a list only once an hour, the record is read when its node returns.
pub async fn records_made_since_the_last_audit_are_found(s: &Scenario) -> Result<()> {
    let rarely = ["--audit-interval", "1h"];
    let (_storer, restorer) = (s.storer(&rarely)?, s.restorer(&rarely)?);
    let is_up = async || Ok(restorer.has_logged(&["INFO", "listed all nodes and records"]));
    s.eventually("the restorer has listed all records", true, is_up).await?;
    // More than are worked on at a time.
    let nodes: Vec<_> = (0..80).map(|i| s.node(&format!("n{i}"))).collect();
    let kept = labels([("pool", "gold")]);
    for node in &nodes {
        s.create(node, kept.clone()).await?;
    }
    for node in &nodes {
        s.eventually_stored(node, kept.clone()).await?;
        s.delete(node).await?;
    }
    for node in &nodes {
        s.create(node, Labels::new()).await?;
    }
    for node in &nodes {
        s.eventually_labelled(node, kept.clone()).await?;
    }
    Ok(())
}

pub async fn a_record_that_came_after_the_first_list_of_records_is_found_soon(s: &Scenario) -> Result<()> {
    let (node, kept) = (s.node("a"), labels([("pool", "gold")]));
    let is_open = Arc::new(AtomicBool::new(false));
    let opened = Arc::clone(&is_open);
    let proxy = s.proxy(move |request: &Request| {
        let is_list = request.verb == Verb::List && request.resource == "nodes";
        let is_shut = is_list && !opened.load(Ordering::Relaxed);
        if is_shut { Fault::Status { code: 500, retry_after: None } } else { Fault::None }
    });
    let proxy = proxy.await?;
    let restorer = s.daemon_through(&proxy, "restorer", &["--watch=false", "--audit-interval", "1h"])?;
    let has_listed = async || Ok(restorer.has_logged(&["listed", "Records"]));
    s.eventually("records are listed", true, has_listed).await?;
    let storer = s.storer(&[])?;
    s.leaves_and_returns(&node, &kept).await?;
    is_open.store(true, Ordering::Relaxed);
    s.eventually_labelled(&node, kept).await?;
    drop(storer);
    Ok(())
}
