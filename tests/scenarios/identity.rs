//! The identity of a re-created node, and its trust labels.

use anyhow::{Context, Result};
use label_storage::Record;
use label_storage::name::record_name;
use label_storage::node::RESTORED;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::events::events_of;
use crate::scenario::{Labels, Scenario, labels};

const TRUST: &str = "node-restriction.kubernetes.io/tier";

/// The record that is filed under this.
async fn filed(s: &Scenario, identity: &str) -> Result<Option<Record>> {
    let Some(config_map) = s.config_maps.get_opt(&record_name(identity)).await? else { return Ok(None) };
    Ok(Some(Record::decode(&config_map)?.record))
}

async fn eventually_filed(s: &Scenario, identity: &str, node: &str, expected: Labels) -> Result<()> {
    let uid = s.get(node).await?.metadata.uid;
    let expected = (uid, node.to_owned(), expected);
    s.eventually(&format!("record of {identity}"), expected, async || {
        let record = filed(s, identity).await?.context("no record")?;
        Ok((record.uid.map(|uid| uid.to_string()), record.node, record.labels))
    })
    .await
}

fn pair(s: &Scenario, flags: &[&str]) -> Result<(Daemon, Daemon)> {
    Ok((s.storer(flags)?, s.restorer(flags)?))
}

/// A node of this machine, with these labels.
fn on(system_uuid: &str, labels: Value) -> Value {
    json!({"metadata": {"labels": labels}, "status": {"nodeInfo": {"systemUUID": system_uuid}}})
}

async fn eventually_told(s: &Scenario, node: &str, by: &str, reason: &str, words: &str) -> Result<()> {
    let key = (format!("label-storage/{by}"), reason.to_owned());
    s.eventually(&format!("{reason} of {node}"), Some(true), async || {
        Ok(events_of(s, node).await?.remove(&key).map(|note| note.contains(words)))
    })
    .await
}

/// Whatever it is known by, a machine that returns under another name has its labels again.
async fn returns_under_another_name(s: &Scenario, by: &str, identity: &str, content: Value) -> Result<()> {
    let _daemons = pair(s, &["--rules", &format!("identity: {{by: {by:?}}}")])?;
    let (first, second) = (s.node("first"), s.node("second"));
    let given = content["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let given: Labels = serde_json::from_value(given.into())?;
    let mut labelled = content.clone();
    labelled["metadata"]["labels"]["pool"] = json!("gold");
    let mut all = given.clone();
    all.insert("pool".to_owned(), "gold".to_owned());
    s.create_as(&first, labelled).await?;
    eventually_filed(s, identity, &first, all.clone()).await?;
    assert!(s.config_map(&first).await?.is_none(), "nothing is filed under its name");
    s.delete(&first).await?;
    s.create_as(&second, content.clone()).await?;
    s.eventually_labelled(&second, all.clone()).await?;
    eventually_filed(s, identity, &second, all).await?;
    // Another machine of the first one's name is another.
    s.create(&first, Labels::new()).await?;
    s.label(&second, [("pool", None)]).await?;
    eventually_filed(s, identity, &second, given).await?;
    assert_eq!(s.labels(&first).await?, Labels::new());
    Ok(())
}

pub async fn an_instance_is_known_again_under_another_name(s: &Scenario) -> Result<()> {
    let instance = format!("aws:///eu-west-1a/i-{}", s.namespace);
    let content = json!({"metadata": {}, "spec": {"providerID": instance}});
    returns_under_another_name(s, "providerID", &format!("providerID={instance}"), content).await
}

pub async fn a_machine_is_known_again_under_another_name(s: &Scenario) -> Result<()> {
    let uuid = format!("uuid-of-{}", s.namespace);
    returns_under_another_name(s, "systemUUID", &format!("systemUUID={uuid}"), on(&uuid, json!({}))).await
}

pub async fn what_a_label_says_is_known_again_under_another_name(s: &Scenario) -> Result<()> {
    let content = json!({"metadata": {"labels": {"example.com/serial": "s1"}}});
    returns_under_another_name(s, "label:example.com/serial", "label:example.com/serial=s1", content).await
}

pub async fn what_an_annotation_says_is_known_again_under_another_name(s: &Scenario) -> Result<()> {
    let content = json!({"metadata": {"annotations": {"example.com/rack": "7 / 3"}}});
    returns_under_another_name(s, "annotation:example.com/rack", "annotation:example.com/rack=7 / 3", content)
        .await
}

pub async fn a_node_that_is_nobody_yet_waits_until_it_is_somebody(s: &Scenario) -> Result<()> {
    let (storer, _restorer) = pair(s, &["--rules", "identity: {by: providerID}"])?;
    let (node, instance) = (s.node("a"), format!("gce://p/z/{}", s.namespace));
    let identity = format!("providerID={instance}");
    s.create(&node, labels([("pool", "gold")])).await?;
    s.has_decided(&storer, &node, "no-identity").await?;
    assert!(s.config_map(&node).await?.is_none());
    s.patch(&node, json!({"spec": {"providerID": instance}})).await?;
    eventually_filed(s, &identity, &node, labels([("pool", "gold")])).await?;
    // The cloud's controller sets the identity a while after the node is back.
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    s.patch(&node, json!({"spec": {"providerID": instance}})).await?;
    s.eventually_labelled(&node, labels([("pool", "gold")])).await
}

pub async fn two_nodes_that_claim_one_identity_are_reported_and_left_alone(s: &Scenario) -> Result<()> {
    s.list_often();
    let serial = |serial: &str| labels([("example.com/serial", serial)]);
    let flags = ["--rules", "identity: {by: 'label:example.com/serial'}", "--admin-address", "127.0.0.1:0"];
    let (storer, restorer) = pair(s, &flags)?;
    let (node, one, other) = (s.node("a"), s.node("one"), s.node("other"));
    let identity = "label:example.com/serial=s1";
    let gold = labels([("example.com/serial", "s1"), ("pool", "gold")]);
    s.create(&node, gold.clone()).await?;
    eventually_filed(s, identity, &node, gold.clone()).await?;
    for daemon in [storer, restorer] {
        daemon.process.signal(sandbox::process::Signal::TERM)?;
        daemon.exit().await?;
    }
    s.delete(&node).await?;
    s.create(&one, serial("s1")).await?;
    s.create(&other, serial("s1")).await?;
    let (storer, restorer) = pair(s, &flags)?;
    for (node, rival) in [(&one, &other), (&other, &one)] {
        eventually_told(s, node, "restorer", "IdentityContested", rival).await?;
        eventually_told(s, node, "storer", "IdentityContested", rival).await?;
    }
    s.label(&one, [("pool", Some("silver"))]).await?;
    s.label(&other, [("pool", Some("bronze"))]).await?;
    // Whatever was to be done with these would have been done before what is seen later.
    let witness = s.node("witness");
    s.create(&witness, serial("s9")).await?;
    eventually_filed(s, "label:example.com/serial=s9", &witness, serial("s9")).await?;
    s.has_decided(&restorer, "label:example.com/serial=s9", "same-incarnation").await?;
    for daemon in [&storer, &restorer] {
        s.has_acted(daemon, "label:example.com/serial=s9").await?;
        let skipped = async || daemon.metric("nodes_skipped", &["reason=\"identity-contested\""]).await;
        s.eventually("contested nodes", 1.0, skipped).await?;
    }
    let record = filed(s, identity).await?.context("no record")?;
    assert_eq!((record.labels, record.node), (gold, node), "nothing is stored of either");
    assert_eq!(s.labels(&one).await?, labels([("example.com/serial", "s1"), ("pool", "silver")]));
    // One of them says that it is another, and is.
    s.label(&other, [("example.com/serial", Some("s2")), ("pool", None)]).await?;
    eventually_filed(s, identity, &one, labels([("example.com/serial", "s1"), ("pool", "silver")])).await?;
    eventually_filed(s, "label:example.com/serial=s2", &other, serial("s2")).await
}

pub async fn an_excluded_machine_is_neither_stored_nor_restored(s: &Scenario) -> Result<()> {
    s.list_often();
    let (storer, restorer) = pair(s, &["--rules", "identity: {otherMachine: none}"])?;
    let node = s.node("a");
    let gold = labels([("pool", "gold")]);
    s.create_as(&node, on("m1", json!({"pool": "gold"}))).await?;
    s.eventually_stored(&node, gold.clone()).await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    s.create_as(&node, on("m2", json!({"own": "1"}))).await?;
    eventually_told(s, &node, "restorer", "OtherMachine", "delete configmap label-storage.").await?;
    for daemon in [&storer, &restorer] {
        s.has_acted(daemon, &node).await?;
    }
    assert_eq!(s.labels(&node).await?, labels([("own", "1")]));
    assert_eq!(s.record(&node).await?.context("no record")?.labels, gold, "it waits for its machine");
    // Which returns, and has nothing of what the other had.
    s.delete(&node).await?;
    s.create_as(&node, on("m1", json!({}))).await?;
    s.eventually_labelled(&node, gold.clone()).await?;
    s.eventually_stored(&node, gold).await?;
    // Or a person decides that it does not.
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    s.create_as(&node, on("m3", json!({"own": "3"}))).await?;
    eventually_told(s, &node, "restorer", "OtherMachine", "delete configmap label-storage.").await?;
    s.delete_record(&node).await?;
    s.eventually_stored(&node, labels([("own", "3")])).await
}

pub async fn trust_labels_are_withheld_from_another_machine(s: &Scenario) -> Result<()> {
    s.list_often();
    let (storer, _restorer) = pair(s, &["--rules", "identity: {otherMachine: untrusted}"])?;
    let node = s.node("a");
    let trusted = labels([("pool", "gold"), (TRUST, "secret")]);
    s.create_as(&node, on("m1", json!({"pool": "gold", TRUST: "secret"}))).await?;
    s.eventually_stored(&node, trusted.clone()).await?;
    // The same machine.
    s.delete(&node).await?;
    s.create_as(&node, on("M1", json!({}))).await?;
    s.eventually_labelled(&node, trusted.clone()).await?;
    s.eventually_stored(&node, trusted.clone()).await?;
    // Other machines, one of them twice.
    for machine in ["m2", "m2", "m3"] {
        s.delete(&node).await?;
        s.create_as(&node, on(machine, json!({}))).await?;
        s.eventually_labelled(&node, labels([("pool", "gold")])).await?;
        let marker = s.get(&node).await?.metadata.annotations.unwrap_or_default().remove(RESTORED);
        assert!(marker.context("no marker")?.ends_with(&format!("/other-machine:{TRUST}")));
        eventually_told(s, &node, "restorer", "LabelsWithheld", TRUST).await?;
        s.eventually_stored(&node, labels([("pool", "gold")])).await?;
        s.has_acted(&storer, &node).await?;
        let withheld = s.record(&node).await?.context("no record")?.more.withheld;
        assert_eq!(withheld.get(TRUST).map(|kept| kept.value.as_str()), Some("secret"), "it is kept");
    }
    // The first one is back. Then an unknown machine, which counts as the same.
    for machine in ["m1", ""] {
        s.delete(&node).await?;
        s.create_as(&node, on(machine, json!({}))).await?;
        s.eventually_labelled(&node, trusted.clone()).await?;
        s.eventually_stored(&node, trusted.clone()).await?;
    }
    assert!(s.record(&node).await?.context("no record")?.more.withheld.is_empty());
    Ok(())
}

/// Nodes as in a first try, such as from `kubectl create -f -`: nothing is known of their machines.
pub async fn all_labels_of_a_bare_node_come_back(s: &Scenario) -> Result<()> {
    let _daemons = pair(s, &[])?;
    let node = s.node("a");
    let all = labels([
        ("node-role.kubernetes.io/db", ""),
        ("node-restriction.kubernetes.io/t", "secret"),
        ("example.kubernetes.io/x", "1"),
        ("pool", "gold"),
    ]);
    s.create(&node, all.clone()).await?;
    s.eventually_stored(&node, all.clone()).await?;
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, all.clone()).await?;
    s.eventually_stored(&node, all).await
}

/// As in a repair on GKE: another VM gets the name and the `providerID`.
pub async fn another_machine_of_the_same_name_gets_all_labels(s: &Scenario) -> Result<()> {
    let _daemons = pair(s, &[])?;
    let node = s.node("a");
    let all = labels([("pool", "gold"), (TRUST, "secret"), ("node-role.kubernetes.io/db", "")]);
    let vm = |uuid: &str, labels: &Labels| {
        json!({
            "metadata": {"labels": labels},
            "spec": {"providerID": "gce://project/eu-1a/a"},
            "status": {"nodeInfo": {"systemUUID": uuid}},
        })
    };
    s.create_as(&node, vm("vm-1", &all)).await?;
    s.eventually_stored(&node, all.clone()).await?;
    s.delete(&node).await?;
    s.create_as(&node, vm("vm-2", &Labels::new())).await?;
    s.eventually_labelled(&node, all.clone()).await?;
    s.eventually_stored(&node, all).await
}

/// With an identity of its own, another machine of the same name is not excluded: it has another record.
pub async fn another_machine_is_another_identity(s: &Scenario) -> Result<()> {
    let by_machine = ["--rules", "identity: {by: systemUUID, otherMachine: none}"];
    let (m1, m2) = (format!("m1-{}", s.namespace), format!("m2-{}", s.namespace));
    let _daemons = pair(s, &by_machine)?;
    let (node, other) = (s.node("a"), s.node("other"));
    let trusted = labels([("pool", "gold"), (TRUST, "secret")]);
    s.create_as(&node, on(&m1, json!({"pool": "gold", TRUST: "secret"}))).await?;
    eventually_filed(s, &format!("systemUUID={m1}"), &node, trusted).await?;
    s.delete(&node).await?;
    // Another machine has the name, and the machine another name.
    s.create_as(&node, on(&m2, json!({"own": "1"}))).await?;
    s.create_as(&other, on(&m1, json!({}))).await?;
    s.eventually_labelled(&other, labels([("pool", "gold")])).await?;
    eventually_filed(s, &format!("systemUUID={m2}"), &node, labels([("own", "1")])).await?;
    assert_eq!(s.labels(&node).await?, labels([("own", "1")]));
    Ok(())
}

/// A kubelet can change the label that its machine is known by: it gets nothing of a machine that is gone, and stores nothing in its place.
pub async fn a_machine_that_claims_another_identity_gets_nothing_and_stores_nothing(
    s: &Scenario,
) -> Result<()> {
    let (storer, restorer) = pair(s, &["--rules", "identity: {by: 'label:example.com/slot'}"])?;
    let (victim, thief) = (s.node("victim"), s.node("thief"));
    let slot = |number: &str| format!("label:example.com/slot={number}");
    let gold = labels([("example.com/slot", "7"), ("pool", "gold")]);
    s.create(&victim, gold.clone()).await?;
    eventually_filed(s, &slot("7"), &victim, gold.clone()).await?;
    let uid = s.get(&victim).await?.metadata.uid;
    let own = labels([("example.com/slot", "8"), ("own", "1")]);
    s.create(&thief, own.clone()).await?;
    eventually_filed(s, &slot("8"), &thief, own).await?;
    s.delete(&victim).await?;
    s.eventually("the victim is gone", Some(true), async || {
        Ok(filed(s, &slot("7")).await?.map(|record| record.departed_at.is_some()))
    })
    .await?;

    s.label(&thief, [("example.com/slot", Some("7"))]).await?;
    for (daemon, name) in [(&storer, "storer"), (&restorer, "restorer")] {
        s.has_decided(daemon, &slot("7"), "identity-contested").await?;
        eventually_told(s, &thief, name, "IdentityContested", "stored under another identity before").await?;
    }
    // With a marker that says that it was restored.
    let config_map = s.config_maps.get(&record_name(&slot("7"))).await?.metadata.uid.context("a uid")?;
    let marker = format!("{}/99@{config_map}", s.get(&thief).await?.metadata.uid.context("a uid")?);
    s.annotate(&thief, [(RESTORED, Some(marker.as_str()))]).await?;
    s.label(&thief, [("own", Some("2"))]).await?;
    // Nor after a restart, nor with its last labels.
    for daemon in [storer, restorer] {
        daemon.process.signal(sandbox::process::Signal::TERM)?;
        daemon.exit().await?;
    }
    let (storer, restorer) = pair(s, &["--rules", "identity: {by: 'label:example.com/slot'}"])?;
    for daemon in [&storer, &restorer] {
        s.has_decided(daemon, &slot("7"), "identity-contested").await?;
    }
    assert_eq!(s.labels(&thief).await?, labels([("example.com/slot", "7"), ("own", "2")]));
    s.delete(&thief).await?;
    s.create(&victim, labels([("example.com/slot", "7")])).await?;
    s.eventually_labelled(&victim, gold.clone()).await?;
    let record = filed(s, &slot("7")).await?.context("a record")?;
    assert_eq!(record.labels, gold);
    assert_ne!(uid, s.get(&victim).await?.metadata.uid);
    Ok(())
}

/// A kubelet can report any `systemUUID`, so a Node of another name does not get trust labels because of it: neither when it registers for
/// the first time, nor later, when the record is its own.
pub async fn a_trust_label_is_withheld_from_another_name(s: &Scenario) -> Result<()> {
    const ROLE: &str = "node-role.kubernetes.io/database";
    let _daemons = pair(s, &["--rules", "identity: {by: systemUUID}"])?;
    let (one, other) = (s.node("one"), s.node("other"));
    let machine = format!("m-{}", s.namespace);
    let identity = format!("systemUUID={machine}");
    s.create_as(&one, on(&machine, json!({"pool": "gold", ROLE: ""}))).await?;
    eventually_filed(s, &identity, &one, labels([("pool", "gold"), (ROLE, "")])).await?;
    s.delete(&one).await?;
    for registration in 1..=3 {
        s.create_as(&other, on(&machine, json!({}))).await?;
        eventually_filed(s, &identity, &other, labels([("pool", "gold")])).await?;
        assert_eq!(s.labels(&other).await?, labels([("pool", "gold")]), "registration {registration}");
        eventually_told(s, &other, "restorer", "LabelsWithheld", &format!("{ROLE} (other-name)")).await?;
        let record = filed(s, &identity).await?.context("a record")?;
        assert!(record.more.withheld.contains_key(ROLE), "it is kept: {record:?}");
        s.delete(&other).await?;
    }
    s.create_as(&one, on(&machine, json!({}))).await?;
    s.eventually_labelled(&one, labels([("pool", "gold"), (ROLE, "")])).await
}

/// Whichever of them it is, it is there.
pub async fn a_contested_identity_is_not_said_to_be_gone(s: &Scenario) -> Result<()> {
    let storer = s.storer(&["--rules", "identity: {by: 'label:example.com/serial'}"])?;
    let serial = labels([("example.com/serial", "s1")]);
    let (node, identity) = (s.node("a"), "label:example.com/serial=s1");
    let is_gone = async || Ok(filed(s, identity).await?.map(|record| record.departed_at.is_some()));
    s.create(&node, serial.clone()).await?;
    eventually_filed(s, identity, &node, serial.clone()).await?;
    s.delete(&node).await?;
    s.eventually("it is gone", Some(true), is_gone).await?;
    storer.process.signal(sandbox::process::Signal::TERM)?;
    storer.exit().await?;
    for name in ["one", "other"] {
        s.create(&s.node(name), serial.clone()).await?;
    }
    let _storer = s.storer(&["--rules", "identity: {by: 'label:example.com/serial'}"])?;
    s.eventually_after("it is not", Some(false), is_gone).await?;
    let record = filed(s, identity).await?.context("no record")?;
    assert_eq!((record.node, record.labels), (node, serial), "nothing else is stored of either");
    Ok(())
}
