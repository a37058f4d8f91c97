//! Answers of a real server are read as they are, and only in protobuf.

use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use faults::{Fault, Request, Verb};
use kube::api::{Patch, PatchParams};
use label_storage::rules::{Patterns, Selection};
use label_storage::{ResourceVersion, Rules};
use label_storage_runtime::api_source::ApiSource;
use label_storage_runtime::projection::{Detail, Projection};
use label_storage_wire::{Event, NodePart, Object, Taint};
use serde_json::json;

use crate::scenario::{Scenario, labels};

/// Sees whole Nodes, and one annotation beside our own.
fn whole() -> Result<Projection> {
    let annotations = Selection { include: "example.com/owner".parse::<Patterns>()?, ..Selection::none() };
    Ok(Projection {
        rules: Arc::new(Rules { cordon: true, annotations, ..Rules::default() }),
        detail: Detail::WhatIsKept,
    })
}

pub async fn a_whole_node_is_read_as_it_is(s: &Scenario) -> Result<()> {
    let name = s.node("a");
    s.create_from(serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": {"pool": "gold"},
            "annotations": {"example.com/owner": "me", "example.com/other": "x"},
        },
        "spec": {
            "podCIDR": "10.9.8.0/24",
            "podCIDRs": ["10.9.8.0/24"],
            "providerID": "example:///zone/i-1",
            "unschedulable": true,
            "taints": [
                {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
                {"key": "example.com/drain", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"},
                // Not in UTC, and to the millisecond: the server writes neither.
                {"key": "z", "value": "1", "effect": "PreferNoSchedule", "timeAdded": "2026-01-02T03:04:05.678+02:00"},
            ],
        },
    }))?)
    .await?;
    let status = json!({"status": {
        "capacity": {"cpu": "8"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "Hostname", "address": "a"}],
        "nodeInfo": {
            "machineID": "m1", "systemUUID": "EC2E1916-9099-7CAF-FD21-32C3A1E70B84", "bootID": "b1", "kernelVersion": "6",
            "osImage": "x", "containerRuntimeVersion": "c", "kubeletVersion": "v1", "kubeProxyVersion": "v1",
            "operatingSystem": "linux", "architecture": "amd64",
        },
        "images": [{"names": ["example.com/image"], "sizeBytes": 1}],
    }});
    s.nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;

    let plain = s.node("plain");
    s.create(&plain, labels([("pool", "gold")])).await?;

    // The server gives every Node this one.
    let not_ready = taint("node.kubernetes.io/not-ready", "", "NoSchedule", None);
    let node = NodePart {
        provider_id: "example:///zone/i-1".to_owned(),
        is_unschedulable: true,
        taints: vec![
            taint("dedicated", "gpu", "NoSchedule", None),
            taint("example.com/drain", "", "NoExecute", Some("2026-01-02T03:04:05Z")),
            taint("z", "1", "PreferNoSchedule", Some("2026-01-02T01:04:05Z")),
            not_ready.clone(),
        ],
        system_uuid: "EC2E1916-9099-7CAF-FD21-32C3A1E70B84".to_owned(),
    };
    let source = ApiSource::nodes(s.client.clone()).seen_by(whole()?);
    let got = source.get(&name).await?.context("no node")?;
    let meta = s.get(&name).await?.metadata;
    let expected = Object {
        name: name.clone(),
        uid: meta.uid.context("no uid")?,
        resource_version: meta.resource_version.context("no version")?,
        created_at: Some(meta.creation_timestamp.context("no time")?.0),
        labels: labels([("pool", "gold")]),
        annotations: labels([("example.com/owner", "me")]),
        node: Some(node),
        ..Object::default()
    };
    assert_eq!(got, expected);
    assert_eq!(list(&source, &name).await?, expected);
    let unremarkable = source.get(&plain).await?.context("no node")?;
    let taints = vec![not_ready];
    assert_eq!(unremarkable.node, Some(NodePart { taints, ..NodePart::default() }));
    assert_eq!(list(&source, &plain).await?, unremarkable);

    // Changes of the Node after a change of another object.
    let before = s.node("before");
    s.create(&before, labels([])).await?;
    let from = source.get(&before).await?.context("no node")?.resource_version.parse()?;
    s.label(&name, [("pool", Some("silver"))]).await?;
    let changed = source.get(&name).await?.context("no node")?;
    assert_eq!(changed.node, got.node);
    assert_eq!(next_of(&source, from, &name).await?, Event::Changed(changed.clone()));

    // A client that requests only metadata gets no more, except for a single Node.
    let modest = ApiSource::nodes(s.client.clone())
        .seen_by(Projection { detail: Detail::WhatIsKept, ..Projection::default() });
    let metadata = list(&modest, &name).await?;
    assert_eq!(metadata, Object { node: None, annotations: labels([]), ..changed.clone() });
    assert_eq!(next_of(&modest, from, &name).await?, Event::Changed(metadata));
    let got = modest.get(&name).await?.context("no node")?;
    assert_eq!(got, Object { annotations: labels([]), ..changed });
    Ok(())
}

fn taint(key: &str, value: &str, effect: &str, time_added: Option<&str>) -> Taint {
    let (key, value, effect) = (key.to_owned(), value.to_owned(), effect.to_owned());
    Taint { key, value, effect, time_added: time_added.map(str::to_owned) }
}

/// The Node of this name, from a list of all.
async fn list(source: &ApiSource, name: &str) -> Result<Object> {
    let (found, name) = (Arc::new(Mutex::new(None)), name.to_owned());
    let seen = Arc::clone(&found);
    let each = move |object: Result<Object, _>| {
        let object = object.expect("an object");
        if object.name == name {
            *seen.lock().expect("no panic") = Some(object);
        }
    };
    source.list(each).await?;
    found.lock().expect("no panic").take().context("not listed")
}

/// The first event of the Node of this name.
async fn next_of(source: &ApiSource, from: ResourceVersion, name: &str) -> Result<Event> {
    let mut watch = source.watch(from).await?;
    loop {
        let event = watch.next().await?.context("the watch has ended")?;
        if let Event::Changed(object) | Event::Deleted(object) = &event
            && object.name == name
        {
            return Ok(event);
        }
    }
}

pub async fn a_server_that_does_not_serve_protobuf_is_an_error_that_says_so(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    let refuses = |request: &Request| match request.is(Verb::List, "nodes") {
        true => Fault::Status { code: 406, retry_after: None },
        false => Fault::None,
    };
    let proxy = s.proxy(refuses).await?;
    let storer = s.daemon_through(&proxy, "storer", &[])?;
    let message = "can't list nodes: the API server does not serve protobuf: ";
    s.eventually("the error", true, async || Ok(storer.has_logged(&["WARN", message]))).await?;
    assert!(s.config_map(&node).await?.is_none(), "nothing is stored");
    // The server is upgraded.
    proxy.set_script(|_: &Request| Fault::None);
    s.eventually_stored(&node, labels([("pool", "gold")])).await
}
