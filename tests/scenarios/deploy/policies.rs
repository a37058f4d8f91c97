//! The requests that the admission policies refuse and allow.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use label_storage::name::record_name;
use label_storage::rules::builtin_exclusions::is_lifecycle_taint;
use serde_json::{Value, json};

use super::manifests::{apply, client_as, rendered};
use crate::scenario::{Labels, Scenario, labels};

/// True if a policy refused the request with these words. Any other error fails the test.
pub fn refused<T>(words: &str, result: kube::Result<T>) -> Result<bool> {
    match result {
        Ok(_) => Ok(false),
        Err(kube::Error::Api(status)) if status.message.contains(words) => Ok(true),
        Err(error) => Err(error).context(format!("not refused with {words:?}")),
    }
}

fn patching() -> PatchParams {
    PatchParams::default()
}

/// As a dry run.
fn trying() -> PatchParams {
    PatchParams { dry_run: true, ..PatchParams::default() }
}

/// Binds a role to one of the test's accounts, in the test's namespace.
pub async fn bind(s: &Scenario, account: &str, cluster_role: &str) -> Result<()> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": format!("{account}-{cluster_role}"), "namespace": s.namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": cluster_role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": s.namespace}],
    });
    apply(&s.client, &[binding]).await
}

/// Allows one of the test's accounts to write leases in the test's namespace.
pub async fn allow_leases(s: &Scenario, account: &str) -> Result<()> {
    let grant = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "leases", "namespace": s.namespace},
        "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}],
    });
    let bound = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "leases", "namespace": s.namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "leases"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": s.namespace}],
    });
    apply(&s.client, &[grant, bound]).await
}

/// A ConfigMap under a record's name, with its label.
fn record(node: &str) -> ConfigMap {
    let mut config_map = ConfigMap::default();
    config_map.metadata.name = Some(record_name(node));
    config_map.metadata.labels = Some(labels([("app.kubernetes.io/managed-by", "label-storage")]));
    config_map.data = Some(labels([("pool", "gold")]));
    config_map
}

pub async fn only_the_storer_and_those_who_may_write_records(s: &Scenario) -> Result<()> {
    const REFUSED: &str = "only the storer may write records";
    apply(&s.client, &rendered(s, &[])?).await?;
    let maps = |client: Client| -> Api<ConfigMap> { Api::namespaced(client, &s.namespace) };
    let (create, delete) = (PostParams::default(), DeleteParams::default());

    // The storer, as itself.
    let storer = maps(client_as(s, &s.namespace, "label-storage-storer").await?);
    s.eventually("the storer's rights", true, async || Ok(storer.list(&ListParams::default()).await.is_ok()))
        .await?;
    let [a, b, long] = ["a".to_owned(), "b".to_owned(), "n".repeat(253)].map(|node| record(&node));
    for record in [&a, &b, &long] {
        let mut created = storer.create(&create, record).await.context("the storer creates")?;
        created.data = Some(labels([("pool", "silver")]));
        storer.replace(&record.name_any(), &create, &created).await.context("the storer updates")?;
    }
    storer.delete(&b.name_any(), &delete).await.context("the storer deletes")?;

    // An account that may write every ConfigMap in the namespace.
    let editor = maps(client_as(s, &s.namespace, "editor").await?);
    bind(s, "editor", "admin").await?;
    s.eventually("the editor's rights", true, async || Ok(editor.list(&ListParams::default()).await.is_ok()))
        .await?;
    s.eventually("making a record is refused", true, async || {
        refused(REFUSED, editor.create(&PostParams { dry_run: true, ..create.clone() }, &b).await)
    })
    .await?;
    let mut generated = record("x");
    generated.metadata.name = None;
    generated.metadata.labels = None;
    generated.metadata.generate_name = Some("label-storage.x".to_owned());
    assert!(refused(REFUSED, editor.create(&create, &generated).await)?, "under a name that is made up");
    let mut labelled = b.clone();
    labelled.metadata.name = Some("innocent".to_owned());
    assert!(refused(REFUSED, editor.create(&create, &labelled).await)?, "with its label");
    let value = Patch::Merge(json!({"data": {"pool": "theirs"}}));
    for record in [&a, &long] {
        let name = record.name_any();
        assert!(refused(REFUSED, editor.patch(&name, &patching(), &value).await)?, "a value");
        let unlabelled =
            Patch::Merge(json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}));
        assert!(refused(REFUSED, editor.patch(&name, &patching(), &unlabelled).await)?, "no record any more");
        assert!(refused(REFUSED, editor.delete(&name, &delete).await)?, "a deletion");
    }
    let all = editor.delete_collection(&delete, &ListParams::default()).await;
    assert!(refused(REFUSED, all)?, "the deletion of all");
    assert_eq!(storer.get(&a.name_any()).await?.data, Some(labels([("pool", "silver")])));

    // The policy ignores ConfigMaps that are not records.
    let mut plain = labelled.clone();
    plain.metadata.labels = None;
    editor.create(&create, &plain).await.context("another ConfigMap")?;
    editor.patch("innocent", &patching(), &value).await.context("another ConfigMap")?;
    let label = Patch::Merge(json!({"metadata": {"labels": labelled.metadata.labels}}));
    assert!(refused(REFUSED, editor.patch("innocent", &patching(), &label).await)?, "a record from now on");
    editor.delete("innocent", &delete).await.context("another ConfigMap")?;

    // The rules say what comes of records.
    let rules = Patch::Merge(json!({"data": {"rules.yaml": "retention: 1m"}}));
    for (who, account) in [("the editor", &editor), ("the storer", &storer)] {
        let mut changed = account.get("label-storage-rules").await?;
        changed.data = Some(labels([("rules.yaml", "retention: 1m")]));
        let replaced = account.replace("label-storage-rules", &create, &changed).await;
        assert!(refused(REFUSED, replaced)?, "{who} writes rules");
    }
    assert!(refused(REFUSED, editor.delete("label-storage-rules", &delete).await)?, "rules are deleted");
    let filed = json!({"metadata": {"name": "label-storage-id.i-1-0123"}});
    let filed = editor.create(&create, &serde_json::from_value(filed)?).await;
    assert!(refused(REFUSED, filed)?, "a record that is filed by something else than a name");

    // The restorer has no permission to write records, and the policy would refuse them, too.
    let restorer = maps(client_as(s, &s.namespace, "label-storage-restorer").await?);
    assert!(refused("cannot patch resource", restorer.patch(&a.name_any(), &patching(), &value).await)?);
    bind(s, "label-storage-restorer", "admin").await?;
    s.eventually("the restorer is refused by the policy, too", true, async || {
        Ok(refused(REFUSED, restorer.patch(&a.name_any(), &patching(), &value).await).unwrap_or(false))
    })
    .await?;

    // The explicit role.
    bind(s, "editor", &format!("label-storage-{}-records-editor", s.namespace)).await?;
    s.eventually("with the role, a value is changed", true, async || {
        Ok(!refused(REFUSED, editor.patch(&a.name_any(), &patching(), &value).await)?)
    })
    .await?;
    editor.create(&create, &b).await.context("with the role, one is made")?;
    editor.delete(&b.name_any(), &delete).await.context("with the role, one is deleted")?;
    editor
        .patch("label-storage-rules", &patching(), &rules)
        .await
        .context("with the role, rules are changed")?;
    Ok(())
}

pub async fn a_namespace_with_records_can_be_deleted(s: &Scenario) -> Result<()> {
    apply(&s.client, &rendered(s, &[])?).await?;
    let create = PostParams::default();
    // One that the garbage collector takes away: with what owns it, and by a finalizer that it has to take off.
    let owner: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "owner"}}))?;
    let owner = s.config_maps.create(&create, &owner).await?;
    let mut owned = record("owned");
    let reference = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid(), "blockOwnerDeletion": true,
    }]);
    owned.metadata.owner_references = serde_json::from_value(reference)?;
    s.config_maps.create(&create, &owned).await?;
    let foreground = record("foreground");
    s.config_maps.create(&create, &foreground).await?;
    s.config_maps.create(&create, &record("kept")).await?;
    s.config_maps.delete("owner", &DeleteParams::foreground()).await?;
    s.config_maps.delete(&foreground.name_any(), &DeleteParams::foreground()).await?;
    let expected = vec!["kept".to_owned()];
    s.eventually("what is garbage is collected", expected, async || {
        let params = ListParams::default().labels("app.kubernetes.io/managed-by=label-storage");
        let records = s.config_maps.list(&params).await?;
        let name = |record: &ConfigMap| record.name_any().trim_start_matches("label-storage.").to_owned();
        Ok(records.items.iter().map(name).collect())
    })
    .await?;

    let namespaces: Api<Namespace> = Api::all(s.client.clone());
    namespaces.delete(&s.namespace, &DeleteParams::default()).await?;
    s.eventually("the namespace is gone", true, async || {
        Ok(namespaces.get_opt(&s.namespace).await?.is_none())
    })
    .await
}

pub const FIELDS: &str = "may not change the spec";
const LABELS: &str = "may add labels to a Node, but not remove or change them";
const ANNOTATIONS: &str = "may set the annotation label-storage/restored of a Node";

pub async fn the_restorer_adds_labels_and_its_marker_alone(s: &Scenario) -> Result<()> {
    const WHOLE: &str = "may not create or delete Nodes";
    apply(&s.client, &rendered(s, &[])?).await?;
    let name = s.node("a");
    let node = json!({
        "metadata": {
            "name": name,
            "labels": {"pool": "gold"},
            "annotations": {"example.com/theirs": "1"},
        },
        "spec": {"taints": [{"key": "example.com/dedicated", "effect": "NoSchedule"}]},
    });
    s.create_from(serde_json::from_value(node)?).await?;

    let client = client_as(s, &s.namespace, "label-storage-restorer").await?;
    let nodes: Api<Node> = Api::all(client);
    let patch = async |patch: Value| nodes.patch(&name, &patching(), &Patch::Merge(patch)).await;
    let cordon = json!({"spec": {"unschedulable": true}});
    s.eventually("its rights are known, and the policy is in force", true, async || {
        refused(FIELDS, nodes.patch(&name, &trying(), &Patch::Merge(&cordon)).await)
    })
    .await?;

    let metadata = |metadata: Value| json!({"metadata": metadata});
    for (what, words, change) in [
        ("cordoned", FIELDS, cordon.clone()),
        ("another taint", FIELDS, json!({"spec": {"taints": [{"key": "other", "effect": "NoExecute"}]}})),
        ("no taint", FIELDS, json!({"spec": {"taints": null}})),
        ("a provider", FIELDS, json!({"spec": {"providerID": "made-up://1"}})),
        ("a finalizer", FIELDS, metadata(json!({"finalizers": ["example.com/hold"]}))),
        (
            "an owner",
            FIELDS,
            metadata(
                json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "1"}]}),
            ),
        ),
        ("another value of a label", LABELS, metadata(json!({"labels": {"pool": "silver"}}))),
        ("no label", LABELS, metadata(json!({"labels": {"pool": null}}))),
        ("another annotation", ANNOTATIONS, metadata(json!({"annotations": {"example.com/ours": "1"}}))),
        (
            "a marker of 20 KB",
            ANNOTATIONS,
            metadata(json!({"annotations": {"label-storage/restored": "x".repeat(20_000)}})),
        ),
        (
            "their annotation changed",
            ANNOTATIONS,
            metadata(json!({"annotations": {"example.com/theirs": "2"}})),
        ),
        (
            "their annotation gone",
            ANNOTATIONS,
            metadata(json!({"annotations": {"example.com/theirs": null}})),
        ),
        (
            "a label and a taint",
            FIELDS,
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"taints": null}}),
        ),
    ] {
        assert!(refused(words, patch(change).await)?, "{what}");
    }
    // The status is not part of an update of the Node itself.
    patch(json!({"status": {"phase": "Terminated"}})).await?;
    assert_eq!(s.get(&name).await?.status.and_then(|status| status.phase), None);

    let restored = metadata(json!({
        "labels": {"pool": "gold", "zone": "a"},
        "annotations": {"label-storage/restored": "u/1", "label-storage/keep": "pool"},
    }));
    patch(restored).await.context("labels, the marker, and what to keep")?;
    assert_eq!(s.labels(&name).await?, labels([("pool", "gold"), ("zone", "a")]));
    patch(metadata(json!({"annotations": {"label-storage/restored": "u/2"}})))
        .await
        .context("the marker again")?;
    patch(metadata(json!({"annotations": {"label-storage/restored": null}}))).await.context("no marker")?;

    // Also with all permissions for Nodes that RBAC can grant.
    let everything = format!("{}-everything", s.namespace);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": everything},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["*"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": everything},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": everything},
        "subjects": [{"kind": "ServiceAccount", "name": "label-storage-restorer", "namespace": s.namespace}],
    });
    apply(&s.client, &[role, binding]).await?;
    s.eventually("the deletion of a Node is refused", true, async || {
        refused(WHOLE, nodes.delete(&name, &DeleteParams { dry_run: true, ..DeleteParams::default() }).await)
            .or(Ok(false))
    })
    .await?;
    let other: Node = serde_json::from_value(json!({"metadata": {"name": s.node("b")}}))?;
    assert!(refused(WHOLE, nodes.create(&PostParams::default(), &other).await)?, "a Node is made");

    // Other accounts are not affected.
    s.nodes.patch(&name, &patching(), &Patch::Merge(cordon)).await.context("a person cordons")?;
    let wanted = Labels::from([("a".to_owned(), "b".to_owned())]);
    s.nodes.patch(&name, &patching(), &Patch::Merge(metadata(json!({"annotations": wanted})))).await?;
    Ok(())
}

/// Tries to patch a Node, beside what the control plane does to it: whatever taints it has put there stay there.
pub async fn attempt(nodes: &Api<Node>, name: &str, change: &Value) -> kube::Result<Node> {
    loop {
        let mut change = change.clone();
        if let Some(taints) = change.pointer_mut("/spec/taints").and_then(Value::as_array_mut) {
            let node = nodes.get(name).await?;
            let all = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
            let theirs = all.filter(|taint| CONTROLLERS.contains(&taint.key.as_str()));
            taints.extend(theirs.map(|taint| json!(taint)));
            change["metadata"]["resourceVersion"] = json!(node.resource_version());
        }
        match nodes.patch(name, &trying(), &Patch::Merge(change)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => (),
            answer => return answer,
        }
    }
}

/// Taints of Nodes without a kubelet.
const CONTROLLERS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Rules that have the restorer do everything that it can.
const RULES: &[&str] = &[
    "--set=rules.annotations.include={example.com/*,node.alpha.kubernetes.io/*},rules.taints.include={*}",
    "--set=rules.cordon=true,rules.startupTaint.enabled=true",
    "--set-json=rules.conflicts=[{\"keys\":[\"pool\",\"annotation:example.com/*\",\"taint:*:dedicated\",\"machine-facts\"],\"wins\":\"record\"}]",
];

pub async fn the_restorer_may_do_what_the_rules_ask_for_and_no_more(s: &Scenario) -> Result<()> {
    const TAKEN_OFF: &str = "may not remove a taint from a Node";
    const PUT_ON: &str = "may not add a taint that describes the state of a Node";
    const UNCORDONED: &str = "may cordon a Node, but not uncordon it";
    apply(&s.client, &rendered(s, RULES)?).await?;
    let taint = |key: &str, value: &str| json!({"key": key, "value": value, "effect": "NoSchedule"});
    let [dedicated, other, ill] =
        // The last of them is one that no controller here takes off.
        [("dedicated", "a"), ("example.com/other", ""), ("karpenter.sh/unregistered", "")]
            .map(|(key, value)| taint(key, value));
    let restoring = taint("label-storage/restoring", "");
    let theirs = [dedicated.clone(), other.clone(), ill.clone(), restoring.clone()];
    let name = s.node("a");
    let node = json!({
        "metadata": {
            "name": name,
            "labels": {"pool": "gold", "zone": "1", "kubernetes.io/arch": "amd64"},
            "annotations": {"example.com/theirs": "1", "other.example.com/theirs": "1"},
        },
        "spec": {"taints": theirs},
    });
    s.create_from(serde_json::from_value(node)?).await?;
    let nodes: Api<Node> = Api::all(client_as(s, &s.namespace, "label-storage-restorer").await?);
    let attempt = async |change: &Value| attempt(&nodes, &name, change).await;
    let metadata = |metadata: Value| json!({"metadata": metadata});
    let annotations = |annotations: Value| metadata(json!({"annotations": annotations}));
    let taints = |taints: &[&Value]| json!({"spec": {"taints": taints}});
    let finalizer = metadata(json!({"finalizers": ["example.com/hold"]}));
    s.eventually("its rights are known, and the policy is in force", true, async || {
        refused(FIELDS, attempt(&finalizer).await)
    })
    .await?;

    let (kept, [dedicated, other, ill, restoring]) =
        ([&dedicated, &other, &ill], [&dedicated, &other, &ill, &restoring]);
    let new = taint("example.com/new", "1");
    let evicting = json!({"key": "dedicated", "value": "b", "effect": "NoExecute"});
    let [another, same_taint] =
        [("dedicated", "b"), ("example.com/other", "b")].map(|(key, value)| taint(key, value));
    for (what, change) in [
        (
            "labels and the marker",
            metadata(json!({"labels": {"a": "b"}, "annotations": {"label-storage/restored": "u/1"}})),
        ),
        (
            "a value that the record knows better",
            metadata(json!({"labels": {"pool": "silver", "kubernetes.io/arch": "x"}})),
        ),
        ("an annotation", annotations(json!({"example.com/owner": "a"}))),
        ("an annotation that the record knows better", annotations(json!({"example.com/theirs": "2"}))),
        ("a list of what to keep", annotations(json!({"label-storage/keep": "pool"}))),
        ("without the start-up taint", taints(&kept)),
        ("without it and with another", taints(&[dedicated, other, ill, &new])),
        ("one key with two effects", taints(&[dedicated, other, ill, restoring, &evicting])),
        ("a taint that the record knows better", taints(&[&another, other, ill, restoring])),
        ("cordoned", json!({"spec": {"unschedulable": true}})),
        (
            "all at once",
            json!({
                "metadata": {"labels": {"a": "b"}, "annotations": {"example.com/owner": "a", "label-storage/restored": "u/1"}},
                "spec": {"unschedulable": true, "taints": [dedicated, other, ill, new]},
            }),
        ),
    ] {
        attempt(&change).await.context(what)?;
    }
    for (what, words, change) in [
        ("another value", LABELS, metadata(json!({"labels": {"zone": "2"}}))),
        ("a label taken away", LABELS, metadata(json!({"labels": {"pool": null}}))),
        ("an annotation that is not kept", ANNOTATIONS, annotations(json!({"other.example.com/new": "1"}))),
        ("one that is never kept", ANNOTATIONS, annotations(json!({"node.alpha.kubernetes.io/ttl": "1"}))),
        ("one that is somebody else's", ANNOTATIONS, annotations(json!({"other.example.com/theirs": "2"}))),
        ("an annotation taken away", ANNOTATIONS, annotations(json!({"example.com/theirs": null}))),
        ("to be left alone", ANNOTATIONS, annotations(json!({"label-storage/ignore": "true"}))),
        ("no taints", TAKEN_OFF, json!({"spec": {"taints": null}})),
        ("a taint taken off", TAKEN_OFF, taints(&[dedicated, ill, restoring])),
        ("a lifecycle taint taken off", TAKEN_OFF, taints(&[dedicated, other, restoring])),
        ("another value of a taint", TAKEN_OFF, taints(&[dedicated, &same_taint, ill, restoring])),
        ("another effect", TAKEN_OFF, taints(&[&evicting, other, ill, restoring])),
        ("a provider", FIELDS, json!({"spec": {"providerID": "made-up://1"}})),
        ("a network", FIELDS, json!({"spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]}})),
    ] {
        assert!(refused(words, attempt(&change).await)?, "{what}");
    }
    // The daemons would not keep them either, and the policy is to know no others, lest a Node can't be restored.
    for key in [
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/out-of-service",
        "node.cloudprovider.kubernetes.io/shutdown",
        "node.cilium.io/agent-not-ready",
        "karpenter.sh/disrupted",
        "ToBeDeletedByClusterAutoscaler",
        "label-storage/another",
        "node-role.kubernetes.io/control-plane",
        "kubernetes.azure.com/scalesetpriority",
        "nodexkubernetes.io/not-ready",
    ] {
        let change = taints(&[dedicated, other, ill, restoring, &taint(key, "")]);
        assert_eq!(refused(PUT_ON, attempt(&change).await)?, is_lifecycle_taint(key), "{key}");
    }

    s.nodes.patch(&name, &patching(), &Patch::Merge(json!({"spec": {"unschedulable": true}}))).await?;
    for value in [json!(false), json!(null)] {
        let change = json!({"spec": {"unschedulable": value}});
        assert!(refused(UNCORDONED, attempt(&change).await)?, "uncordoned");
    }
    attempt(&metadata(json!({"labels": {"a": "b"}}))).await.context("a Node that is cordoned")?;
    Ok(())
}
