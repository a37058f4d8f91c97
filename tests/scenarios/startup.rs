//! No pod before the labels.

use anyhow::{Context, Result};
use faults::{Fault, Request, Script, Verb};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::api::{WatchEvent, WatchParams};
use label_storage::name::record_name;
use serde_json::{Value, json};

use crate::events::events_of;
use crate::refusing::{MARKER, forbid};
use crate::scenario::{Labels, Scenario, labels};

const ON: [&str; 2] = ["--rules", "startupTaint: {enabled: true}"];

const BRIEF: &str = "startupTaint: {enabled: true, atMost: 2s}";

/// A Node as registered by a kubelet with the start-up taint.
fn registered() -> Value {
    json!({"spec": {"taints": [
        {"key": "label-storage/restoring", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
    ]}})
}

fn keeps_pods_away(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == "label-storage/restoring"))
}

async fn eventually_lifted(s: &Scenario, node: &str) -> Result<()> {
    s.eventually("pods may come", false, async || Ok(keeps_pods_away(&s.get(node).await?))).await?;
    let taints = s.get(node).await?.spec.and_then(|spec| spec.taints).unwrap_or_default();
    assert_eq!(taints.len(), 1, "no other taint is touched: {taints:?}");
    Ok(())
}

async fn is_told(s: &Scenario, node: &str, why: &str) -> Result<()> {
    let key = ("label-storage/restorer".to_owned(), "StartupTaintLifted".to_owned());
    s.eventually("an event says why", Some(true), async || {
        Ok(events_of(s, node).await?.remove(&key).map(|note| note.contains(why)))
    })
    .await
}

pub async fn pods_may_come_with_the_very_change_that_brings_the_labels(s: &Scenario) -> Result<()> {
    let (_storer, _restorer) = (s.storer(&ON)?, s.restorer(&ON)?);
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.delete(&node).await?;
    let from =
        s.nodes.list_metadata(&Default::default()).await?.metadata.resource_version.context("a version")?;
    let params = WatchParams::default().fields(&format!("metadata.name={node}"));
    let events = s.nodes.watch(&params, &from).await?;
    s.create_as(&node, registered()).await?;
    eventually_lifted(s, &node).await?;
    assert_eq!(s.labels(&node).await?, labels([("pool", "gold")]));
    let mut events = events.boxed();
    while let Some(event) = events.try_next().await? {
        let (WatchEvent::Added(seen) | WatchEvent::Modified(seen)) = event else { continue };
        let has_labels = seen.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("pool"));
        assert_ne!(keeps_pods_away(&seen), has_labels, "{seen:?}");
        if has_labels {
            return Ok(());
        }
    }
    anyhow::bail!("the watch ended too early")
}

pub async fn where_there_is_nothing_to_restore_pods_may_come_at_once(s: &Scenario) -> Result<()> {
    let (_storer, _restorer) = (s.storer(&ON)?, s.restorer(&ON)?);
    let (new, ignored, known) = (s.node("new"), s.node("ignored"), s.node("known"));
    s.create_as(&new, registered()).await?;
    eventually_lifted(s, &new).await?;
    let mut content = registered();
    content["metadata"] = json!({"annotations": {"label-storage/ignore": "true"}});
    s.create_as(&ignored, content).await?;
    eventually_lifted(s, &ignored).await?;
    // Of a node that was not away, too: a person may have put it there.
    s.create(&known, labels([("pool", "gold")])).await?;
    s.eventually_stored(&known, labels([("pool", "gold")])).await?;
    s.patch(&known, registered()).await?;
    eventually_lifted(s, &known).await
}

pub async fn a_record_that_can_not_be_read_keeps_pods_away_only_for_a_while(s: &Scenario) -> Result<()> {
    let (_storer, restorer) = (s.storer(&ON)?, s.restorer(&["--rules", BRIEF])?);
    let node = s.node("a");
    s.occupy_record(&node).await?;
    s.create_as(&node, registered()).await?;
    s.has_decided(&restorer, &node, "record-unreadable").await?;
    eventually_lifted(s, &node).await?;
    is_told(s, &node, "record-unreadable").await?;
    assert_eq!(s.labels(&node).await?, Labels::new());
    Ok(())
}

pub async fn another_machine_waits_for_as_long_and_is_not_restored(s: &Scenario) -> Result<()> {
    let flags = ["--rules", &format!("{BRIEF}\nidentity: {{otherMachine: none}}")];
    let (_storer, _restorer) = (s.storer(&flags)?, s.restorer(&flags)?);
    let node = s.node("a");
    let machine = |uuid: &str| json!({"nodeInfo": {"systemUUID": uuid}});
    s.create_as(&node, json!({"metadata": {"labels": {"pool": "gold"}}, "status": machine("m1")})).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    let mut other = registered();
    other["status"] = machine("m2");
    s.create_as(&node, other).await?;
    eventually_lifted(s, &node).await?;
    is_told(s, &node, "other-machine").await?;
    assert_eq!(s.labels(&node).await?, Labels::new());
    Ok(())
}

pub async fn unless_it_is_chosen_the_taint_is_left_alone(s: &Scenario) -> Result<()> {
    s.list_often();
    let (_storer, restorer) = s.pair()?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.delete(&node).await?;
    s.create_as(&node, registered()).await?;
    s.eventually_labelled(&node, labels([("pool", "gold")])).await?;
    s.has_acted(&restorer, &node).await?;
    assert!(keeps_pods_away(&s.get(&node).await?));
    Ok(())
}

pub async fn nodes_that_nobody_can_tell_apart_wait_for_as_long(s: &Scenario) -> Result<()> {
    let flags = ["--rules", &format!("{BRIEF}\nidentity: {{by: 'label:example.com/serial'}}")];
    let (one, other, nobody) = (s.node("one"), s.node("other"), s.node("nobody"));
    let mut same = registered();
    same["metadata"] = json!({"labels": {"example.com/serial": "s1"}});
    s.create_as(&one, same.clone()).await?;
    s.create_as(&other, same).await?;
    s.create_as(&nobody, registered()).await?;
    // Before any of them can be restored or stored.
    let (_storer, _restorer) = (s.storer(&flags)?, s.restorer(&flags)?);
    for (node, why) in [(&nobody, "no-identity"), (&one, "contested"), (&other, "contested")] {
        eventually_lifted(s, node).await?;
        is_told(s, node, why).await?;
    }
    Ok(())
}

/// These requests for records are not answered, for as long as the daemon lives.
struct Unanswered(Verb, Option<String>);

impl Script for Unanswered {
    fn fault(&mut self, request: &Request) -> Fault {
        let Self(verb, name) = self;
        match request.is(*verb, "configmaps") && request.name == *name {
            true => Fault::Status { code: 500, retry_after: None },
            false => Fault::None,
        }
    }
}

pub async fn a_record_that_nobody_answers_for_keeps_pods_away_only_for_a_while(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    let proxy = s.proxy(Unanswered(Verb::Get, Some(record_name(&node)))).await?;
    let flags = ["--rules", BRIEF, "--admin-address", "127.0.0.1:0"];
    let (_storer, restorer) = (s.storer(&ON)?, s.daemon_through(&proxy, "restorer", &flags)?);
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.delete(&node).await?;
    s.create_as(&node, registered()).await?;
    eventually_lifted(s, &node).await?;
    is_told(s, &node, "no-answer").await?;
    assert_eq!(s.labels(&node).await?, Labels::new());
    restorer.eventually_counted(s, "startup_taints_lifted_total", &["reason=\"no-answer\""], 1.0).await?;
    // It is not given up.
    proxy.set_script(Unanswered(Verb::Get, None));
    s.eventually_labelled(&node, labels([("pool", "gold")])).await
}

pub async fn labels_that_are_refused_keep_pods_away_only_for_a_while(s: &Scenario) -> Result<()> {
    let flags = ["--rules", BRIEF, "--admin-address", "127.0.0.1:0"];
    let (_storer, restorer) = (s.storer(&ON)?, s.restorer(&flags)?);
    let node = s.node("a");
    let kept = labels([("pool", "gold"), ("team", "blue")]);
    s.create(&node, kept.clone()).await?;
    s.eventually_stored(&node, kept.clone()).await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    // The marker is refused, so nothing can be restored.
    let policy = forbid(s, MARKER).await?;
    s.create_as(&node, registered()).await?;
    eventually_lifted(s, &node).await?;
    is_told(s, &node, "refused").await?;
    restorer.eventually_counted(s, "startup_taints_lifted_total", &["reason=\"refused\""], 1.0).await?;
    assert_eq!(s.labels(&node).await?, Labels::new());
    assert_eq!(s.record(&node).await?.context("no record")?.labels, kept, "it is still to be restored");
    policy.lift().await?;
    s.eventually_after("its labels", kept, async || s.labels(&node).await).await
}
