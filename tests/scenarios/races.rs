//! Changes between a read and a write.

use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use label_storage::name::record_name;
use sandbox::process::Signal;
use serde_json::json;

use crate::interference::{Interference, alongside};
use crate::scenario::{Labels, Scenario, labels};

fn patches_a_node(request: &str) -> bool {
    request.starts_with("PATCH ") && request.contains("/nodes/")
}

fn replaces_a_record(request: &str) -> bool {
    request.starts_with("PUT ") && request.contains("/configmaps/")
}

async fn patch_node(nodes: &Api<Node>, node: &str, patch: serde_json::Value) {
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.expect("a patch by somebody else");
}

async fn replace_node(nodes: &Api<Node>, node: &str) {
    nodes.delete(node, &Default::default()).await.expect("a deletion by somebody else");
    let bare = json!({"metadata": {"name": node}});
    let bare = serde_json::from_value(bare).expect("a node");
    nodes.create(&PostParams::default(), &bare).await.expect("a kubelet that registers");
}

pub async fn a_stale_write_of_a_record_is_refused_and_planned_anew(s: &Scenario) -> Result<()> {
    s.list_often();
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    let (records, name): (Api<ConfigMap>, _) = (s.config_maps.clone(), record_name(&node));
    // Another writer changes the record after it was read for a replace.
    let interference = Interference::before(replaces_a_record, move || async move {
        let touch = Patch::Merge(json!({"metadata": {"annotations": {"touched": "yes"}}}));
        records.patch(&name, &PatchParams::default(), &touch).await.expect("a patch by somebody else");
    });
    alongside::<storer::Args>(s, &interference, async || {
        s.eventually_stored(&node, labels([("pool", "gold")])).await?;
        s.label(&node, [("pool", Some("silver"))]).await?;
        s.eventually_stored(&node, labels([("pool", "silver")])).await?;
        assert!(interference.count(replaces_a_record) >= 2, "the first was refused");
        let annotations =
            s.config_map(&node).await?.context("no record")?.metadata.annotations.unwrap_or_default();
        assert_eq!(
            annotations.get("touched").map(String::as_str),
            Some("yes"),
            "what the other wrote is still there"
        );
        assert_eq!(
            annotations.get("label-storage/generation").map(String::as_str),
            Some("2"),
            "written once"
        );
        Ok(())
    })
    .await
}

/// Stores labels, deletes the node and re-creates it bare, with no daemon running at the end of it.
async fn return_unrestored(s: &Scenario, node: &str, kept: Labels) -> Result<()> {
    let _storer = s.storer(&[])?;
    s.create(node, kept.clone()).await?;
    s.eventually_stored(node, kept).await?;
    s.delete(node).await?;
    s.create(node, Labels::new()).await
}

pub async fn a_stale_patch_of_a_node_is_refused_and_planned_anew(s: &Scenario) -> Result<()> {
    s.list_often();
    let node = s.node("a");
    return_unrestored(s, &node, labels([("pool", "gold")])).await?;
    let (nodes, name) = (s.nodes.clone(), node.clone());
    let interference = Interference::before(patches_a_node, move || async move {
        patch_node(&nodes, &name, json!({"metadata": {"annotations": {"heartbeat": "1"}}})).await;
    });
    alongside::<restorer::Args>(s, &interference, async || {
        s.eventually_labelled(&node, labels([("pool", "gold")])).await?;
        assert_eq!(interference.count(patches_a_node), 2, "the first was refused");
        Ok(())
    })
    .await
}

pub async fn a_label_changed_while_the_node_is_being_restored_is_kept(s: &Scenario) -> Result<()> {
    s.list_often();
    let node = s.node("a");
    return_unrestored(s, &node, labels([("pool", "gold"), ("rack", "7")])).await?;
    let (nodes, name) = (s.nodes.clone(), node.clone());
    let interference = Interference::before(patches_a_node, move || async move {
        patch_node(&nodes, &name, json!({"metadata": {"labels": {"pool": "mine"}}})).await;
    });
    alongside::<restorer::Args>(s, &interference, async || {
        s.eventually_labelled(&node, labels([("pool", "mine"), ("rack", "7")])).await
    })
    .await?;
    let _storer = s.storer(&[])?;
    s.eventually_stored(&node, labels([("pool", "mine"), ("rack", "7")])).await
}

pub async fn labels_stored_after_the_restorer_has_read_the_record_come_back_too(s: &Scenario) -> Result<()> {
    s.list_often();
    let node = s.node("a");
    let storer = s.storer(&[])?;
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    storer.process.signal(Signal::TERM)?;
    storer.exit().await?;
    s.label(&node, [("late", Some("1"))]).await?;
    let version = s.get(&node).await?.metadata.resource_version;
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    let record = s.record(&node).await?.context("no record")?;
    // The write of a storer that read the node's last change just before the deletion.
    let generation = (record.generation + 1).to_string();
    let annotations = json!({
        "label-storage/generation": generation,
        "label-storage/labels-generation": generation,
        "label-storage/node-resource-version": version,
    });
    let late = json!({"metadata": {"annotations": annotations}, "data": {"late": "1"}});
    let (records, name): (Api<ConfigMap>, _) = (s.config_maps.clone(), record_name(&node));
    let interference = Interference::before(patches_a_node, move || async move {
        records
            .patch(&name, &PatchParams::default(), &Patch::Merge(late))
            .await
            .expect("a write by a storer");
    });
    let expected = labels([("pool", "gold"), ("late", "1")]);
    alongside::<restorer::Args>(s, &interference, async || {
        s.eventually_labelled(&node, expected.clone()).await?;
        assert_eq!(interference.count(patches_a_node), 2, "once from each generation");
        Ok(())
    })
    .await?;
    let _storer = s.storer(&[])?;
    s.eventually_stored(&node, expected).await
}

pub async fn a_node_replaced_while_it_is_being_restored_is_restored_itself(s: &Scenario) -> Result<()> {
    s.list_often();
    let node = s.node("a");
    return_unrestored(s, &node, labels([("pool", "gold")])).await?;
    let (nodes, name) = (s.nodes.clone(), node.clone());
    let interference =
        Interference::before(patches_a_node, move || async move { replace_node(&nodes, &name).await });
    alongside::<restorer::Args>(s, &interference, async || {
        s.eventually_labelled(&node, labels([("pool", "gold")])).await?;
        let node = s.get(&node).await?;
        let marker = node.metadata.annotations.unwrap_or_default().remove(label_storage::node::RESTORED);
        let uid = node.metadata.uid.context("no uid")?;
        assert!(marker.as_ref().is_some_and(|marker| marker.starts_with(&uid)), "{marker:?} names {uid}");
        Ok(())
    })
    .await
}

pub async fn a_node_replaced_while_it_is_being_stored_does_not_empty_its_record(s: &Scenario) -> Result<()> {
    s.list_often();
    let node = s.node("a");
    let (nodes, name) = (s.nodes.clone(), node.clone());
    // Between the list that shows the node and the storer's second look at it.
    let reads_a_record =
        |request: &str| request.starts_with("GET ") && request.contains("/configmaps/label-storage");
    let arm = Arc::new(tokio::sync::Notify::new());
    let armed = Arc::clone(&arm);
    {
        let _storer = s.storer(&[])?;
        s.create(&node, labels([("pool", "gold")])).await?;
        s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    }
    s.label(&node, [("pool", None)]).await?;
    let interference = Interference::before(reads_a_record, move || async move {
        patch_node(&nodes, &name, json!({"metadata": {"labels": {"pool": "again"}}})).await;
        replace_node(&nodes, &name).await;
        armed.notify_one();
    });
    alongside::<storer::Args>(s, &interference, async || {
        arm.notified().await;
        let before = interference.seen().len();
        s.eventually("more passes", true, async || Ok(interference.seen().len() > before + 6)).await?;
        // Its last labels are in the event of its deletion; a list has never had them.
        let last = if s.watch { "again" } else { "gold" };
        s.eventually(
            "what the new incarnation is to be restored from",
            Some(labels([("pool", last)])),
            async || Ok(s.record(&node).await?.map(|record| record.labels)),
        )
        .await
    })
    .await
}

pub async fn two_replicas_of_one_shard_do_no_harm(s: &Scenario) -> Result<()> {
    s.list_often();
    let _daemons = (s.pair()?, s.pair()?);
    let nodes: Vec<_> = (0..10).map(|i| s.node(&format!("n{i}"))).collect();
    let value = |round: usize| labels([("round", &round.to_string()), ("pool", "gold")]);
    for node in &nodes {
        s.create(node, value(0)).await?;
    }
    for round in 1..=3 {
        for node in &nodes {
            s.eventually_stored(node, value(round - 1)).await?;
            s.label(node, [("round", Some(&round.to_string()))]).await?;
        }
        for node in &nodes {
            s.eventually_stored(node, value(round)).await?;
            s.delete(node).await?;
            s.create(node, Labels::new()).await?;
        }
        for node in &nodes {
            s.eventually_labelled(node, value(round)).await?;
        }
    }
    for node in &nodes {
        s.eventually_stored(node, value(3)).await?;
        s.label(node, [("pool", None)]).await?;
        s.eventually_stored(node, labels([("round", "3")])).await?;
    }
    Ok(())
}

pub async fn a_taint_added_while_the_node_is_being_restored_is_kept(s: &Scenario) -> Result<()> {
    s.list_often();
    let node = s.node("a");
    let dedicated = json!({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"});
    {
        let _storer = s.storer(&["--rules", "taints: {include: ['*']}"])?;
        s.create_as(&node, json!({"spec": {"taints": [dedicated]}})).await?;
        s.eventually_stored(&node, labels([("taint:NoSchedule:dedicated", "gpu")])).await?;
        s.delete(&node).await?;
        s.create(&node, Labels::new()).await?;
    }
    let (nodes, name) = (s.nodes.clone(), node.clone());
    let interference = Interference::before(patches_a_node, move || async move {
        patch_node(&nodes, &name, json!({"spec": {"taints": [{"key": "drained", "effect": "NoExecute"}]}}))
            .await;
    });
    alongside::<restorer::Args>(s, &interference, async || {
        s.eventually("all taints", vec!["dedicated".to_owned(), "drained".to_owned()], async || {
            let taints = s.get(&node).await?.spec.and_then(|spec| spec.taints).unwrap_or_default();
            let mut keys: Vec<_> = taints.into_iter().map(|taint| taint.key).collect();
            keys.retain(|key| !key.starts_with("node.kubernetes.io/"));
            keys.sort_unstable();
            Ok(keys)
        })
        .await?;
        assert!(interference.count(patches_a_node) >= 2, "the first was refused");
        Ok(())
    })
    .await
}
