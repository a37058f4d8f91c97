//! The Events that `kubectl describe node` shows.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use faults::{Fault, Request, Verb};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use sandbox::process::Signal;
use serde_json::json;

use crate::scenario::{Labels, Scenario, labels};

/// The Events about a node's present incarnation, as `kubectl describe node` asks for them: who, why, and in what words.
pub async fn events_of(s: &Scenario, node: &str) -> Result<BTreeMap<(String, String), String>> {
    let uid = s.get(node).await?.metadata.uid.context("a uid")?;
    let selector = format!(
        "involvedObject.kind=Node,involvedObject.name={node},involvedObject.namespace=,involvedObject.uid={uid}"
    );
    let events: Api<Event> = Api::all(s.client.clone());
    let events = events.list(&ListParams::default().fields(&selector)).await?.items;
    let count = events.len();
    let events: BTreeMap<_, _> = events
        .into_iter()
        .map(|event| {
            let by = event.reporting_component.unwrap_or_default();
            ((by, event.reason.unwrap_or_default()), event.message.unwrap_or_default())
        })
        .collect();
    assert_eq!(events.len(), count, "of each, one: {events:?}");
    Ok(events)
}

/// Waits until these are all the Events about a node.
async fn eventually_told(s: &Scenario, node: &str, expected: &[(&str, &str, &str)]) -> Result<()> {
    let expected = expected.iter().map(|(by, reason, note)| (format!("label-storage/{by}"), *reason, *note));
    let expected: BTreeMap<_, _> =
        expected.map(|(by, reason, note)| ((by, reason.to_owned()), note.to_owned())).collect();
    s.eventually(&format!("events of {node}"), expected, async || events_of(s, node).await).await
}

pub async fn a_restored_node_says_which_labels_it_was_given(s: &Scenario) -> Result<()> {
    let _daemons = (s.storer(&[])?, s.restorer(&["--rules", "conflicts: [{keys: ['*'], wins: report}]"])?);
    let (node, conflicting) = (s.node("a"), s.node("conflicting"));
    for node in [&node, &conflicting] {
        s.create(node, labels([("example.com/rack", "7"), ("pool", "gold"), ("same", "x")])).await?;
        s.eventually_stored(node, labels([("example.com/rack", "7"), ("pool", "gold"), ("same", "x")]))
            .await?;
        s.delete(node).await?;
    }
    s.create(&node, labels([("same", "x")])).await?;
    s.create(&conflicting, labels([("pool", "default"), ("same", "x")])).await?;
    let restored = "Restored from its record: ";
    eventually_told(
        s,
        &node,
        &[("restorer", "LabelsRestored", &format!("{restored}example.com/rack, pool"))],
    )
    .await?;
    let conflict = "The values on the node differ from its record, and the node keeps its own: pool. Its own values are stored from \
                    now on. To use other values, set them on the node";
    eventually_told(
        s,
        &conflicting,
        &[
            ("restorer", "LabelsRestored", &format!("{restored}example.com/rack")),
            ("restorer", "RestoreConflict", conflict),
        ],
    )
    .await
}

pub async fn a_record_that_can_not_be_read_is_told_of_with_what_to_do(s: &Scenario) -> Result<()> {
    s.list_often();
    let (node, foreign) = (s.node("a"), s.node("foreign"));
    let (storer, _restorer) = s.pair()?;
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.patch_record(&node, json!({"metadata": {"annotations": {"label-storage/node": "somebody"}}})).await?;
    let told = async |node: &str, by: &str, advice: &str| {
        s.eventually(&format!("{by} about {node}"), true, async || {
            let events = events_of(s, node).await?;
            let event = events.get(&(format!("label-storage/{by}"), "RecordUnreadable".to_owned()));
            Ok(event.is_some_and(|note| note.contains(advice)))
        })
        .await
    };
    for by in ["storer", "restorer"] {
        told(&node, by, "correct or remove that annotation").await?;
    }
    // There is an Event for each incarnation, because `kubectl describe` looks for the uid.
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    for by in ["storer", "restorer"] {
        told(&node, by, "correct or remove that annotation").await?;
    }
    // A foreign ConfigMap of the same name is found before the record is written.
    s.occupy_record(&foreign).await?;
    s.create(&foreign, labels([("pool", "gold")])).await?;
    told(&foreign, "storer", "move it to another name").await?;
    s.has_acted(&storer, &foreign).await?;
    let events = events_of(s, &foreign).await?;
    assert_eq!(events.keys().filter(|(by, _)| by == "label-storage/storer").count(), 1, "{events:?}");
    s.has_acted(&storer, &node).await?;
    assert_eq!(events_of(s, &node).await?.len(), 2, "not with every look");
    Ok(())
}

pub async fn hundreds_of_returning_nodes_make_no_storm(s: &Scenario) -> Result<()> {
    const NODES: usize = 300;
    let nodes: Vec<_> = (0..NODES).map(|number| s.node(&number.to_string())).collect();
    let kept = labels([("pool", "gold")]);
    let (_storer, restorer) = (s.storer(&[])?, s.restorer(&["--admin-address", "127.0.0.1:0"])?);
    for node in &nodes {
        s.create(node, kept.clone()).await?;
    }
    for node in &nodes {
        s.eventually_stored(node, kept.clone()).await?;
    }
    for node in &nodes {
        s.delete(node).await?;
        s.create(node, Labels::new()).await?;
    }
    for node in &nodes {
        s.eventually_labelled(node, kept.clone()).await?;
    }
    restorer.eventually_counted(s, "events_total", &["reason=\"LabelsRestored\""], NODES as f64).await?;
    let dropped =
        restorer.metric("events_total", &["reason=\"LabelsRestored\"", "outcome=\"dropped\""]).await?;
    let events: Api<Event> = Api::all(s.client.clone());
    let fields = ListParams::default().fields("reason=LabelsRestored");
    let events = events.list(&fields).await?.items;
    let prefix = format!("{}.", s.namespace);
    let is_ours =
        |event: &&Event| event.involved_object.name.as_ref().is_some_and(|name| name.starts_with(&prefix));
    let single = events.iter().filter(is_ours).count();
    assert_eq!(single + dropped as usize, NODES, "each is told of once");
    assert!(single < NODES / 2, "{single} of {NODES} have an event of their own");
    Ok(())
}

pub async fn events_that_can_not_be_written_hold_up_nothing(s: &Scenario) -> Result<()> {
    for (name, fault) in [
        ("refused", Fault::Status { code: 403, retry_after: None }),
        ("broken", Fault::Status { code: 500, retry_after: None }),
        ("silent", Fault::BlackHole),
    ] {
        let script = move |request: &Request| if request.resource == "events" { fault } else { Fault::None };
        let proxy = s.proxy(script).await?;
        let (_storer, restorer) =
            (s.daemon_through(&proxy, "storer", &[])?, s.daemon_through(&proxy, "restorer", &[])?);
        let nodes: Vec<_> = (0..20).map(|number| s.node(&format!("{name}-{number}"))).collect();
        let kept = labels([("pool", "gold")]);
        for node in &nodes {
            s.leaves_and_returns(node, &kept).await?;
        }
        for node in &nodes {
            s.eventually_labelled(node, kept.clone()).await?;
            s.eventually_stored(node, kept.clone()).await?;
        }
        assert!(!proxy.counts().is_empty(), "nobody tried to write an event");
        restorer.process.signal(Signal::TERM)?;
        assert!(restorer.exit().await?.success());
        let complaints = restorer.log().lines().filter(|line| line.contains("Event")).count();
        let advice =
            restorer.has_logged(&["WARN", "create and patch events.k8s.io events", "--events=false"]);
        assert_eq!((complaints <= 1, advice), (true, name == "refused"), "{}", restorer.log());
    }
    Ok(())
}

pub async fn without_leave_no_events_are_written(s: &Scenario) -> Result<()> {
    let script = |request: &Request| match (request.resource.as_str(), request.verb) {
        // It would be counted.
        ("events", Verb::Create) => Fault::Status { code: 403, retry_after: None },
        _ => Fault::None,
    };
    let proxy = s.proxy(script).await?;
    let (_storer, restorer) = (s.storer(&[])?, s.daemon_through(&proxy, "restorer", &["--events=false"])?);
    let node = s.node("a");
    s.leaves_and_returns(&node, &labels([("pool", "gold")])).await?;
    s.eventually_labelled(&node, labels([("pool", "gold")])).await?;
    restorer.process.signal(Signal::TERM)?;
    restorer.exit().await?;
    assert!(proxy.counts().is_empty(), "{:?}", proxy.counts());
    Ok(())
}
