//! Rules and policies go together: what the rules have the restorer do, the API server lets it.

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::accounts::{Audit, await_rights, granted, replica};
use super::manifests::{self, apply, client_as, rendered};
use super::policies::{FIELDS, attempt, refused};
use crate::daemon::Daemon;
use crate::scenario::{Labels, Scenario, labels};

/// Everything that can be kept, and a record whose word counts.
const RULES: &[&str] = &[
    "--set=rules.annotations.include={example.com/*},rules.taints.include={*}",
    "--set=rules.cordon=true,rules.startupTaint.enabled=true",
    "--set-json=rules.conflicts=[{\"keys\":[\"pool\",\"taint:*\"],\"wins\":\"record\"}]",
];

/// Applies the chart with these flags, and gives the daemons its rules.
async fn install(s: &Scenario, flags: &[&str]) -> Result<Vec<Value>> {
    let documents = rendered(s, flags)?;
    apply(&s.client, &documents).await?;
    std::fs::write(s.file("rules.yaml"), manifests::rules(&documents)?)?;
    Ok(documents)
}

async fn start(s: &Scenario, documents: &[Value], kind: &str) -> Result<Daemon> {
    replica(s, manifests::set(documents, kind)?, 0, &["--replicas=1"]).await
}

/// The items of a Node: labels, annotations, taints and the cordon, without those that the control plane sets.
fn kept(node: &Node) -> (Labels, Labels, Vec<(String, String)>, bool) {
    let mut annotations = node.annotations().clone();
    annotations.retain(|key, _| key.starts_with("example.com/"));
    let spec = node.spec.clone().unwrap_or_default();
    let is_theirs = |taint: &Taint| !taint.key.starts_with("node.kubernetes.io/");
    let taints = spec.taints.unwrap_or_default().into_iter().filter(is_theirs);
    let mut taints: Vec<_> = taints
        .map(|taint| (taint.key, format!("{}:{}", taint.value.unwrap_or_default(), taint.effect)))
        .collect();
    taints.sort();
    (node.labels().clone(), annotations, taints, spec.unschedulable.unwrap_or_default())
}

pub async fn what_the_rules_ask_for_passes_the_policies(s: &Scenario) -> Result<()> {
    let documents = install(s, RULES).await?;
    await_rights(s, &s.namespace, &granted(&documents)?).await?;
    let daemons = [start(s, &documents, "storer").await?, start(s, &documents, "restorer").await?];

    let name = s.node("a");
    let node = |labels: Value, spec: Value| {
        let owner =
            if spec["unschedulable"] == true { json!({"example.com/owner": "me"}) } else { json!({}) };
        serde_json::from_value(
            json!({"metadata": {"name": name, "labels": labels, "annotations": owner}, "spec": spec}),
        )
    };
    let gpu = json!({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"});
    s.create_from(node(json!({"pool": "gold"}), json!({"taints": [gpu], "unschedulable": true}))?).await?;
    let stored = labels([
        ("annotation:example.com/owner", "me"),
        ("cordon:", "true"),
        ("pool", "gold"),
        ("taint:NoSchedule:dedicated", "gpu"),
    ]);
    s.eventually_stored(&name, stored.clone()).await?;
    let whole = (
        labels([("pool", "gold")]),
        labels([("example.com/owner", "me")]),
        vec![("dedicated".to_owned(), "gpu:NoSchedule".to_owned())],
        true,
    );

    // With a value of its own, and two taints: one of another value, one to keep pods away until now.
    let back = json!({"taints": [
        {"key": "dedicated", "value": "none", "effect": "NoSchedule"},
        {"key": "label-storage/restoring", "effect": "NoSchedule"},
    ]});
    s.delete(&name).await?;
    s.create_from(node(json!({"pool": "default"}), back)?).await?;
    s.eventually("it has all back", whole.clone(), async || Ok(kept(&s.get(&name).await?))).await?;
    s.eventually_stored(&name, stored).await?;
    let log = s.sandbox.audit_log();
    assert_eq!(Audit::read(&log, &s.namespace)?.forbidden, Vec::<Value>::new());

    // The rules keep labels alone from now on. The record has more, and the policy does not let that pass.
    let documents = install(s, &[]).await?;
    for daemon in daemons {
        daemon.process.signal(sandbox::process::Signal::TERM)?;
        daemon.exit().await?;
    }
    let (_storer, restorer) =
        (start(s, &documents, "storer").await?, start(s, &documents, "restorer").await?);
    let nodes: Api<Node> = Api::all(client_as(s, &s.namespace, "label-storage-restorer").await?);
    s.eventually("the new policy is in force", true, async || {
        refused(FIELDS, attempt(&nodes, &name, &json!({"spec": {"taints": [], "unschedulable": true}})).await)
    })
    .await?;
    s.delete(&name).await?;
    s.create_from(node(json!({}), json!({}))?).await?;
    let labels_alone = (labels([("pool", "gold")]), Labels::new(), Vec::new(), false);
    s.eventually("it has its labels back", labels_alone, async || Ok(kept(&s.get(&name).await?))).await?;
    for item in ["annotation:example.com/owner", "taint:NoSchedule:dedicated", "cordon:"] {
        assert!(restorer.has_logged(&["refuses some items", item]), "{item}");
    }
    Ok(())
}
