//! Attempts to get a label, or to stop one, that the installation refuses, and those that must go on.

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::manifests::{apply, client_as, rendered};
use super::policies::{allow_leases, bind, refused};
use crate::kubelet;
use crate::scenario::{Scenario, labels};

fn trying() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

pub async fn a_kubelet_can_not_write_the_annotations_of_label_storage(s: &Scenario) -> Result<()> {
    const REFUSED: &str = "a kubelet may not set or change the annotations";
    apply(&s.client, &rendered(s, &[])?).await?;
    let name = s.node("a");
    let nodes: Api<Node> = Api::all(kubelet::client(s, &name).await?);
    let with = |annotations: Value| json!({"metadata": {"name": name, "annotations": annotations}});
    let forged = [
        json!({"label-storage/restored": "u/1"}),
        json!({"label-storage/ignore": "true"}),
        json!({"label-storage/keep": "*"}),
    ];
    let registers = async |annotations: &Value| -> Result<bool> {
        let node = serde_json::from_value(with(annotations.clone()))?;
        refused(REFUSED, nodes.create(&trying(), &node).await)
    };
    s.eventually("the policy is in force", true, async || registers(&forged[0]).await).await?;
    for annotations in &forged {
        assert!(registers(annotations).await?, "{annotations}: at registration");
    }
    // A kubelet registers, and writes its other annotations and its status.
    let node = with(json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"}));
    nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await.context("a registration")?;
    let params = PatchParams::default();
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "m"}]}});
    nodes.patch_status(&name, &params, &Patch::Strategic(&ready)).await.context("a status")?;
    // People set them, and then the kubelet keeps them as they are.
    let own = with(
        json!({"label-storage/ignore": "false", "label-storage/keep": "pool", "label-storage/restored": "u/1"}),
    );
    s.nodes.patch(&name, &params, &Patch::Merge(&own)).await.context("a person")?;
    nodes.patch_status(&name, &params, &Patch::Strategic(&ready)).await.context("a status beside them")?;
    let other = with(json!({"example.com/other": "1"}));
    nodes.patch(&name, &params, &Patch::Merge(&other)).await.context("another annotation")?;
    for key in ["label-storage/restored", "label-storage/ignore", "label-storage/keep"] {
        for value in [json!("true"), Value::Null] {
            let change = Patch::Merge(with(json!({key: value})));
            assert!(refused(REFUSED, nodes.patch(&name, &params, &change).await)?, "{key}: {value}");
            assert!(
                refused(REFUSED, nodes.patch_status(&name, &params, &change).await)?,
                "{key}: {value}: status"
            );
        }
    }
    Ok(())
}

pub async fn each_daemon_writes_its_own_leases(s: &Scenario) -> Result<()> {
    const REFUSED: &str = "each daemon of label-storage writes its own leases";
    apply(&s.client, &rendered(s, &[])?).await?;
    let lease = |name: &str, is_labelled: bool| -> Result<Lease> {
        let labels =
            if is_labelled { json!({"app.kubernetes.io/managed-by": "label-storage"}) } else { json!({}) };
        Ok(serde_json::from_value(
            json!({"metadata": {"name": name, "labels": labels}, "spec": {"holderIdentity": "x"}}),
        )?)
    };
    let leases = |client: Client| -> Api<Lease> { Api::namespaced(client, &s.namespace) };
    let editor = leases(client_as(s, &s.namespace, "editor").await?);
    bind(s, "editor", "edit").await?;
    allow_leases(s, "editor").await?;
    let shard = lease("label-storage.storer.0-of-2", true)?;
    s.eventually("the policy is in force", true, async || {
        Ok(refused(REFUSED, editor.create(&trying(), &shard).await).unwrap_or(false))
    })
    .await?;
    for (daemon, other) in [("storer", "restorer"), ("restorer", "storer")] {
        let own = leases(client_as(s, &s.namespace, &format!("label-storage-{daemon}")).await?);
        let name = format!("label-storage.{daemon}.0-of-2");
        own.create(&PostParams::default(), &lease(&name, true)?).await.with_context(|| name.clone())?;
        let foreign = lease(&format!("label-storage.{other}.1-of-2"), true)?;
        assert!(refused(REFUSED, own.create(&trying(), &foreign).await)?, "{daemon}: a lease of the {other}");
        assert!(
            refused(REFUSED, own.create(&trying(), &lease("another", false)?).await)?,
            "{daemon}: any lease"
        );
        let taken = Patch::Merge(json!({"spec": {"holderIdentity": "theirs"}}));
        assert!(
            refused(REFUSED, editor.patch(&name, &PatchParams::default(), &taken).await)?,
            "a foreign holder"
        );
        assert!(refused(REFUSED, editor.delete(&name, &DeleteParams::default()).await)?, "a deletion");
        let unlabelled = Patch::Merge(json!({"metadata": {"labels": null}}));
        assert!(
            refused(REFUSED, editor.patch(&name, &PatchParams::default(), &unlabelled).await)?,
            "no label"
        );
    }
    assert!(refused(REFUSED, editor.create(&trying(), &lease("innocent", true)?).await)?, "with the label");
    editor.create(&PostParams::default(), &lease("innocent", false)?).await.context("a lease of others")?;
    bind(s, "editor", &format!("label-storage-{}-records-editor", s.namespace)).await?;
    s.eventually("with the role", true, async || {
        Ok(!refused(REFUSED, editor.delete("label-storage.storer.0-of-2", &DeleteParams::default()).await)?)
    })
    .await
}

pub async fn the_accounts_are_for_their_own_pods(s: &Scenario) -> Result<()> {
    const REFUSED: &str = "only the StatefulSets of label-storage may use its accounts";
    apply(&s.client, &rendered(s, &[])?).await?;
    let client = client_as(s, &s.namespace, "editor").await?;
    bind(s, "editor", "edit").await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &s.namespace);
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), &s.namespace);
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &s.namespace);
    let secure = json!({
        "allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    let pod = |account: &str, owner: Value| -> Result<Pod> {
        let metadata = json!({"generateName": "x-", "ownerReferences": owner});
        let containers = json!([{"name": "x", "image": "x", "securityContext": secure}]);
        let spec = json!({"serviceAccountName": account, "containers": containers});
        Ok(serde_json::from_value(json!({"metadata": metadata, "spec": spec}))?)
    };
    let owner = |name: &str| json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": "u", "controller": true}]);
    s.eventually("the policy is in force", true, async || {
        Ok(refused(REFUSED, pods.create(&trying(), &pod("label-storage-storer", json!([]))?).await)
            .unwrap_or(false))
    })
    .await?;
    for account in ["label-storage-storer", "label-storage-restorer"] {
        for owner in [json!([]), owner(account)] {
            assert!(
                refused(REFUSED, pods.create(&trying(), &pod(account, owner)?).await)?,
                "a pod with the account"
            );
        }
        let token = TokenRequest::default();
        let request = accounts.create_token_request(account, &PostParams::default(), &token).await;
        assert!(refused(REFUSED, request)?, "a token");
        let other = Patch::Merge(json!({"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}));
        assert!(
            refused(REFUSED, sets.patch(account, &PatchParams::default(), &other).await)?,
            "another pod template"
        );
        // The number of replicas can still be changed with the usual permissions.
        let scaled = Patch::Merge(json!({"spec": {"replicas": 3}}));
        sets.patch_scale(account, &PatchParams::default(), &scaled).await.context("scaled")?;
        // The StatefulSet controller makes pods for these two, and not for another in their place.
        let mut config = sandbox::client_config(s.sandbox.kubeconfig()).await?;
        config.auth_info.impersonate =
            Some("system:serviceaccount:kube-system:statefulset-controller".to_owned());
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
        config.auth_info.impersonate_groups = Some(groups.map(str::to_owned).into());
        let controller: Api<Pod> = Api::namespaced(Client::try_from(config)?, &s.namespace);
        controller.create(&trying(), &pod(account, owner(account))?).await.context("its own pod")?;
        let evil = controller.create(&trying(), &pod(account, owner("evil"))?).await;
        assert!(refused(REFUSED, evil)?, "a pod of another StatefulSet");
    }
    // Other pods and accounts are of no concern. A controller makes this one in each namespace.
    s.eventually("the account exists", true, async || Ok(accounts.get_opt("default").await?.is_some()))
        .await?;
    pods.create(&trying(), &pod("default", json!([]))?).await.context("another account")?;
    accounts
        .create_token_request("default", &PostParams::default(), &TokenRequest::default())
        .await
        .context("another token")?;
    Ok(())
}

pub async fn a_stolen_token_of_the_storer_writes_records_alone(s: &Scenario) -> Result<()> {
    apply(&s.client, &rendered(s, &[])?).await?;
    let storer = client_as(s, &s.namespace, "label-storage-storer").await?;
    let maps: Api<ConfigMap> = Api::namespaced(storer.clone(), &s.namespace);
    let map = |name: &str| -> Result<ConfigMap> {
        Ok(serde_json::from_value(json!({"metadata": {"name": name}}))?)
    };
    s.eventually("the policy is in force", true, async || {
        Ok(refused("it may write no other ConfigMap", maps.create(&trying(), &map("another")?).await)
            .unwrap_or(false))
    })
    .await?;
    s.eventually("the root certificate", true, async || {
        Ok(maps.get_opt("kube-root-ca.crt").await?.is_some())
    })
    .await?;
    let mut ca = maps.get("kube-root-ca.crt").await?;
    ca.data = Some(labels([("ca.crt", "theirs")]));
    let replaced = maps.replace("kube-root-ca.crt", &PostParams::default(), &ca).await;
    assert!(refused("it may write no other ConfigMap", replaced)?, "the root certificate");
    let deleted = maps.delete("kube-root-ca.crt", &DeleteParams::default()).await;
    assert!(refused("it may write no other ConfigMap", deleted)?, "the root certificate is deleted");

    // Events about Nodes, as itself.
    let events: Api<Event> = Api::namespaced(storer, "default");
    let event = |controller: &str, kind: &str| event(s, controller, kind);
    s.eventually("the policy for Events is in force", true, async || {
        Ok(refused("only under its own name", events.create(&trying(), &event("kubelet", "Node")?).await)
            .unwrap_or(false))
    })
    .await?;
    assert!(refused(
        "only under its own name",
        events.create(&trying(), &event("label-storage/restorer", "Node")?).await
    )?);
    assert!(refused(
        "only about Nodes",
        events.create(&trying(), &event("label-storage/storer", "Pod")?).await
    )?);
    events.create(&trying(), &event("label-storage/storer", "Node")?).await.context("its own Event")?;
    Ok(())
}

fn event(s: &Scenario, controller: &str, kind: &str) -> Result<Event> {
    let name = format!("{}.{}", s.node("a"), controller.len());
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "R", "action": "A",
        "reportingController": controller, "reportingInstance": "x",
        "regarding": {"apiVersion": "v1", "kind": kind, "name": s.node("a"), "namespace": if kind == "Node" { "" } else { "default" }},
    }))?)
}

pub async fn accounts_can_have_any_name(s: &Scenario) -> Result<()> {
    let names = "--set=storer.serviceAccount.name=keeper,restorer.serviceAccount.name=giver";
    apply(&s.client, &rendered(s, &[names])?).await?;
    for (account, daemon, other) in [("keeper", "storer", "restorer"), ("giver", "restorer", "storer")] {
        let client = client_as(s, &s.namespace, account).await?;
        let events: Api<Event> = Api::namespaced(client.clone(), "default");
        s.eventually("the policy for Events is in force", true, async || {
            let theirs = event(s, &format!("label-storage/{other}"), "Node")?;
            Ok(refused("only under its own name", events.create(&trying(), &theirs).await).unwrap_or(false))
        })
        .await?;
        let own = event(s, &format!("label-storage/{daemon}"), "Node")?;
        events.create(&trying(), &own).await.context("its own Event")?;
        let leases: Api<Lease> = Api::namespaced(client, &s.namespace);
        let lease = |daemon: &str| -> Result<Lease> {
            let name = format!("label-storage.{daemon}.0-of-2");
            Ok(serde_json::from_value(json!({"metadata": {"name": name}}))?)
        };
        leases.create(&trying(), &lease(daemon)?).await.context("its own lease")?;
        let refusal = "writes its own leases";
        s.eventually("the policy for leases is in force", true, async || {
            refused(refusal, leases.create(&trying(), &lease(other)?).await)
        })
        .await?;
    }
    let keeper: Api<ConfigMap> = Api::namespaced(client_as(s, &s.namespace, "keeper").await?, &s.namespace);
    let record = json!({"metadata": {"name": "label-storage.a"}});
    keeper.create(&trying(), &serde_json::from_value(record)?).await.context("a record")?;
    let editor = client_as(s, &s.namespace, "editor").await?;
    bind(s, "editor", "edit").await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(editor, &s.namespace);
    for account in ["keeper", "giver"] {
        s.eventually("its tokens are guarded", true, async || {
            let token = TokenRequest::default();
            let request = accounts.create_token_request(account, &PostParams::default(), &token).await;
            Ok(refused("only the StatefulSets of label-storage", request).unwrap_or(false))
        })
        .await?;
    }
    Ok(())
}
