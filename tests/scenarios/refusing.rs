//! A cluster that refuses a part of what a Node would get back.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use faults::{Fault, Request, Verb};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::{Api, Client};
use serde_json::json;

use crate::events::events_of;
use crate::scenario::{Labels, Scenario, labels};

/// A Node has no label `forbidden`.
pub const FORBIDDEN: &str = "!('forbidden' in object.metadata.?labels.orValue({}))";
/// A Node has no marker.
pub const MARKER: &str = "!('label-storage/restored' in object.metadata.?annotations.orValue({}))";
/// A Node has no label of a system, and none with the value `no`.
const SEVERAL: &str = "object.metadata.?labels.orValue({}).all(key, !key.startsWith('system.example.com/') \
                       && object.metadata.labels[key] != 'no')";
/// A Node has not more than three labels.
const FEW: &str = "size(object.metadata.?labels.orValue({})) <= 3";

/// A third-party policy for the Nodes of a test.
pub struct Policy {
    client: Client,
    name: String,
}

impl Policy {
    pub async fn lift(self) -> Result<()> {
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        bindings.delete(&self.name, &Default::default()).await?;
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.client);
        policies.delete(&self.name, &Default::default()).await?;
        Ok(())
    }
}

/// Has the API server refuse Nodes of this test, unless the expression is true of them.
pub async fn forbid(s: &Scenario, expression: &str) -> Result<Policy> {
    let nodes = json!({"resourceRules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"], "operations": ["CREATE", "UPDATE"],
    }]});
    let is_ours = format!("object.metadata.name.startsWith('{}.')", s.namespace);
    // A label by which it is seen to be in force.
    let has_probe = "'probed' in object.metadata.?labels.orValue({})";
    let policy = json!({
        "metadata": {"name": s.namespace},
        "spec": {
            "matchConstraints": nodes,
            "matchConditions": [{"name": "ours", "expression": is_ours}],
            "validations": [
                {"expression": expression, "message": "this is not allowed here"},
                {"expression": format!("!({has_probe})")},
            ],
        },
    });
    let binding = json!({
        "metadata": {"name": s.namespace},
        "spec": {"policyName": s.namespace, "validationActions": ["Deny"]},
    });
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(s.client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(s.client.clone());
    policies.create(&Default::default(), &serde_json::from_value(policy)?).await?;
    bindings.create(&Default::default(), &serde_json::from_value(binding)?).await?;
    let probe = s.node("probe");
    s.create(&probe, Labels::new()).await?;
    s.eventually("the policy is in force", true, async || {
        Ok(s.label(&probe, [("probed", Some("1"))]).await.is_err())
    })
    .await?;
    Ok(Policy { client: s.client.clone(), name: s.namespace.clone() })
}

/// Stores a Node with these labels, and deletes it.
async fn store(s: &Scenario, node: &str, all: Labels) -> Result<()> {
    s.create(node, all.clone()).await?;
    s.eventually_stored(node, all).await?;
    s.delete(node).await?;
    s.eventually_departed(node).await
}

/// The items that the marker of a Node calls refused.
async fn refused(s: &Scenario, node: &str) -> Result<Vec<String>> {
    let annotations = s.get(node).await?.metadata.annotations.unwrap_or_default();
    let marker = annotations.get("label-storage/restored").context("no marker")?;
    let list = marker.splitn(3, '/').nth(2).unwrap_or_default();
    Ok(list.split(',').filter_map(|entry| entry.strip_prefix("refused:")).map(str::to_owned).collect())
}

pub async fn a_refused_label_keeps_no_other_away(s: &Scenario) -> Result<()> {
    let flags = ["--admin-address", "127.0.0.1:0"];
    let (_storer, restorer) = (s.storer(&[])?, s.restorer(&flags)?);
    let node = s.node("a");
    let all = labels([("forbidden", "1"), ("example.com/rack", "7"), ("pool", "gold"), ("team", "blue")]);
    store(s, &node, all.clone()).await?;
    let policy = forbid(s, FORBIDDEN).await?;
    s.create(&node, Labels::new()).await?;
    let rest = labels([("example.com/rack", "7"), ("pool", "gold"), ("team", "blue")]);
    s.eventually_labelled(&node, rest.clone()).await?;
    assert_eq!(refused(s, &node).await?, ["forbidden"]);
    let key = ("label-storage/restorer".to_owned(), "LabelsWithheld".to_owned());
    s.eventually("an Event names it, and the reason", Some(true), async || {
        let note = events_of(s, &node).await?.remove(&key);
        Ok(note
            .map(|note| note.contains("forbidden (refused: ") && note.contains("this is not allowed here")))
    })
    .await?;
    restorer.eventually_counted(s, "labels_withheld_total", &["\"refused\""], 1.0).await?;
    restorer.eventually_counted(s, "items_withheld", &["\"refused\""], 1.0).await?;
    // The storer goes on with the node, and keeps what was refused.
    s.label(&node, [("pool", Some("silver"))]).await?;
    let mut kept = all.clone();
    kept.insert("pool".to_owned(), "silver".to_owned());
    let stored = async || {
        let record = s.record(&node).await?.context("no record")?;
        Ok(record.all().map(|(name, value, _)| (name.to_owned(), value.to_owned())).collect::<Labels>())
    };
    s.eventually("the record has all", kept.clone(), stored).await?;
    // It is tried again with the next return.
    policy.lift().await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    let probe = s.node("probe");
    s.eventually("the policy is gone", true, async || {
        Ok(s.label(&probe, [("forbidden", Some("1"))]).await.is_ok())
    })
    .await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, kept).await?;
    restorer.eventually_counted(s, "items_withheld", &["\"refused\""], 0.0).await
}

pub async fn of_many_labels_those_that_are_refused_are_found(s: &Scenario) -> Result<()> {
    let flags = ["--rules", "{startupTaint: {enabled: true}, taints: {include: ['*']}}"];
    let (_storer, _restorer) = (s.storer(&flags)?, s.restorer(&flags)?);
    let node = s.node("a");
    let mut all: Labels = (0..40).map(|n| (format!("example.com/n{n}"), n.to_string())).collect();
    all.extend(labels([("system.example.com/a", "1"), ("system.example.com/z", "1"), ("team", "no")]));
    s.create(&node, all.clone()).await?;
    let gpu = json!({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"});
    s.patch(&node, json!({"spec": {"taints": [gpu]}})).await?;
    let mut stored = all.clone();
    stored.insert("taint:NoSchedule:dedicated".to_owned(), "gpu".to_owned());
    s.eventually_stored(&node, stored).await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    let no_gpu = "object.spec.?taints.orValue([]).all(taint, taint.key != 'dedicated')";
    let _policy = forbid(s, &format!("{SEVERAL} && {no_gpu}")).await?;
    let restoring = json!({"key": "label-storage/restoring", "effect": "NoSchedule"});
    s.create_as(&node, json!({"spec": {"taints": [restoring]}})).await?;
    let names = ["system.example.com/a", "system.example.com/z", "team"];
    all.retain(|name, _| !names.contains(&name.as_str()));
    s.eventually_labelled(&node, all).await?;
    let found: BTreeSet<_> = refused(s, &node).await?.into_iter().collect();
    assert_eq!(found, names.into_iter().chain(["taint:NoSchedule:dedicated"]).map(str::to_owned).collect());
    let taints = s.get(&node).await?.spec.and_then(|spec| spec.taints).unwrap_or_default();
    assert!(taints.iter().all(|taint| taint.key != "label-storage/restoring"), "pods may come: {taints:?}");
    Ok(())
}

pub async fn labels_that_are_refused_only_together_come_back_in_part(s: &Scenario) -> Result<()> {
    let (_storer, _restorer) = s.pair()?;
    let node = s.node("a");
    let all = labels([("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"), ("e", "1")]);
    store(s, &node, all).await?;
    let _policy = forbid(s, FEW).await?;
    s.create(&node, Labels::new()).await?;
    s.eventually("as many as are allowed", 3, async || Ok(s.labels(&node).await?.len())).await?;
    assert_eq!(refused(s, &node).await?.len(), 2);
    Ok(())
}

pub async fn a_refusal_that_passes_withholds_no_label(s: &Scenario) -> Result<()> {
    let _storer = s.storer(&[])?;
    let (node, all) = (s.node("a"), labels([("pool", "gold"), ("rack", "7")]));
    store(s, &node, all.clone()).await?;
    let (mut patches, name) = (0, node.clone());
    let proxy = s.proxy(move |request: &Request| {
        patches += usize::from(request.is(Verb::Patch, "nodes") && request.name.as_ref() == Some(&name));
        // The patch, and two of the dry runs that follow.
        let is_refused = request.is(Verb::Patch, "nodes") && [1, 3, 5].contains(&patches);
        if is_refused { Fault::Status { code: 403, retry_after: None } } else { Fault::None }
    });
    let proxy = proxy.await?;
    let _restorer = s.daemon_through(&proxy, "restorer", &[])?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, all).await?;
    assert_eq!(refused(s, &node).await?, [""; 0]);
    Ok(())
}
