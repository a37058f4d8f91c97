//! Other installations, and other people's objects in the same namespace.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::manifests::{client_as, documents, helm, of_kind};
use super::policies::{allow_leases, bind, refused};
use crate::scenario::Scenario;

/// Names that other people may have chosen: some were those of earlier versions, some look like ours.
const SETS: [&str; 5] = ["my-db", "storer", "restorer", "label-storage", "my-label-storage-storer"];
const CONFIG_MAPS: [&str; 4] = ["my-config", "label-storage", "label-storage-notes", "my-label-storage.a"];
const LEASES: [&str; 4] = ["my-lease", "label-storage", "storer", "my-label-storage.storer.0-of-2"];

fn set(name: &str, image: &str) -> Value {
    let labels = json!({"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "label-storage"});
    let container = json!({"name": "main", "image": image});
    let template = json!({"metadata": {"labels": labels}, "spec": {"serviceAccountName": "storer", "containers": [container]}});
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name},
        "spec": {"replicas": 1, "serviceName": name, "selector": {"matchLabels": labels}, "template": template},
    })
}

/// Annotates, changes and deletes an object.
async fn change(
    client: &Client,
    namespace: &str,
    kind: &ApiResource,
    name: &str,
    change: Value,
) -> Result<()> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, kind);
    for patch in [json!({"metadata": {"annotations": {"theirs": "1"}, "labels": {"theirs": "1"}}}), change] {
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    api.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

pub async fn objects_of_others_are_left_alone(s: &Scenario) -> Result<()> {
    // The role `admin` has no permission for leases.
    allow_leases(s, "admin").await?;
    let admin = client_as(s, &s.namespace, "admin").await?;
    bind(s, "admin", "admin").await?;
    let sets: Api<StatefulSet> = Api::namespaced(admin.clone(), &s.namespace);
    let config_maps: Api<ConfigMap> = Api::namespaced(admin.clone(), &s.namespace);
    let leases: Api<Lease> = Api::namespaced(admin.clone(), &s.namespace);
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), &s.namespace);
    let create = PostParams::default();
    let named = |name: &str| json!({"metadata": {"name": name}});
    s.eventually("the admin's rights", true, async || {
        let trying = PostParams { dry_run: true, ..PostParams::default() };
        let lease = leases.create(&trying, &serde_json::from_value(named("x"))?).await;
        Ok(lease.is_ok() && config_maps.create(&trying, &serde_json::from_value(named("x"))?).await.is_ok())
    })
    .await?;
    accounts.create(&create, &serde_json::from_value(named("storer"))?).await.context("an account")?;
    // Some are there before the installation.
    for name in SETS {
        sets.create(&create, &serde_json::from_value(set(name, "a"))?).await.context(name)?;
    }
    for name in CONFIG_MAPS {
        config_maps.create(&create, &serde_json::from_value(named(name))?).await.context(name)?;
    }
    for name in LEASES {
        leases.create(&create, &serde_json::from_value(named(name))?).await.context(name)?;
    }

    helm(s, &["install", "label-storage", "CHART"])?;
    let record: ConfigMap = serde_json::from_value(named("label-storage.a"))?;
    s.eventually("the policies are in force", true, async || {
        let trying = PostParams { dry_run: true, ..PostParams::default() };
        refused("only the storer may write records", config_maps.create(&trying, &record).await)
    })
    .await?;
    let lease: Lease = serde_json::from_value(named("label-storage.storer.0-of-2"))?;
    s.eventually("that for leases, too", true, async || {
        let trying = PostParams { dry_run: true, ..PostParams::default() };
        refused("writes its own leases", leases.create(&trying, &lease).await)
    })
    .await?;
    let restart = Patch::Merge(json!({"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}));
    s.eventually("and that for StatefulSets", true, async || {
        let trying = PatchParams { dry_run: true, ..PatchParams::default() };
        refused(
            "only the StatefulSets of label-storage may use",
            sets.patch("label-storage-storer", &trying, &restart).await,
        )
    })
    .await?;

    // And some come after it.
    let account = accounts.create_token_request("storer", &create, &TokenRequest::default()).await;
    account.context("a token of another account")?;
    let container = json!({"name": "main", "image": "a"});
    let pod = json!({
        "metadata": {"name": "my-pod", "labels": {"app.kubernetes.io/part-of": "label-storage"}},
        "spec": {"serviceAccountName": "storer", "containers": [container]},
    });
    let pods: Api<Pod> = Api::namespaced(admin.clone(), &s.namespace);
    pods.create(&PostParams { dry_run: true, ..create.clone() }, &serde_json::from_value(pod)?).await?;
    for name in SETS {
        let scaled = Patch::Merge(json!({"spec": {"replicas": 2}}));
        sets.patch_scale(name, &PatchParams::default(), &scaled).await.context(name)?;
        sets.patch(name, &PatchParams::default(), &restart).await.context(name)?;
        let other = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "b"}]}}}});
        change(&admin, &s.namespace, &ApiResource::erase::<StatefulSet>(&()), name, other)
            .await
            .context(name)?;
        let again = set(&format!("{name}-2"), "a");
        sets.create(&create, &serde_json::from_value(again)?).await.context(name)?;
    }
    for name in CONFIG_MAPS {
        let other = json!({"data": {"a": "b"}});
        change(&admin, &s.namespace, &ApiResource::erase::<ConfigMap>(&()), name, other)
            .await
            .context(name)?;
        config_maps.create(&create, &serde_json::from_value(named(name))?).await.context(name)?;
    }
    for name in LEASES {
        let other = json!({"spec": {"holderIdentity": "me"}});
        change(&admin, &s.namespace, &ApiResource::erase::<Lease>(&()), name, other).await.context(name)?;
        leases.create(&create, &serde_json::from_value(named(name))?).await.context(name)?;
    }

    // No selector of ours matches pods of others, even if those call themselves part of label-storage.
    let documents = documents(&helm(s, &["get", "manifest", "label-storage"])?)?;
    for (kind, path) in [
        ("StatefulSet", "/spec/selector/matchLabels"),
        ("PodDisruptionBudget", "/spec/selector/matchLabels"),
        ("NetworkPolicy", "/spec/podSelector/matchLabels"),
        ("Service", "/spec/selector"),
    ] {
        let mut found = of_kind(&documents, kind).peekable();
        assert!(found.peek().is_some(), "no {kind}");
        for document in found {
            let selector = document.pointer(path).context("a selector")?;
            assert_eq!(selector["app.kubernetes.io/instance"], "label-storage", "{document}");
            assert_eq!(selector["app.kubernetes.io/name"], "label-storage", "{document}");
        }
    }
    helm(s, &["uninstall", "label-storage"])?;
    Ok(())
}

pub async fn two_installations_have_no_object_in_common(s: &Scenario) -> Result<()> {
    let all = "--set=namespace.create=true,flowControl.enabled=true,priorityClass.create=true,dashboard.enabled=true,alerts.enabled=true,metrics.monitor=PodMonitor";
    let objects = |release: &str, namespace: &str, flags: &[&str]| -> Result<Vec<Value>> {
        let words = [&["template", release, "CHART", all, "--namespace", namespace], flags].concat();
        documents(&helm(s, &words)?)
    };
    let names = |documents: &[Value]| -> BTreeSet<String> {
        let id =
            |it: &Value| format!("{} {}/{}", it["kind"], it["metadata"]["namespace"], it["metadata"]["name"]);
        documents.iter().map(id).collect()
    };
    let usual = objects("label-storage", "label-storage", &[])?;
    let others = [
        objects("label-storage", "other", &[])?,
        objects("prod", "other2", &[])?,
        objects("label-storage", "label-storage", &["--set=namespaceOverride=elsewhere"])?,
        objects("label-storage", "third", &["--set=fullnameOverride=kept"])?,
    ];
    let mut seen = names(&usual);
    for documents in &others {
        let names = names(documents);
        assert_eq!(names.len(), documents.len(), "an object is there twice");
        assert_eq!(seen.intersection(&names).collect::<Vec<_>>(), Vec::<&String>::new());
        seen.extend(names);
    }
    let set = |documents: &[Value]| -> Vec<String> {
        let sets = of_kind(documents, "StatefulSet");
        sets.map(|it| it["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(set(&usual), ["label-storage-restorer", "label-storage-storer"]);
    assert_eq!(set(&others[1]), ["prod-label-storage-restorer", "prod-label-storage-storer"]);
    assert_eq!(set(&others[3]), ["kept-restorer", "kept-storer"]);
    // A StatefulSet's pods have its name and a hash in a label, which has 63 characters at most.
    let long = objects(&"r".repeat(53), "label-storage", &[])?;
    assert!(set(&long).iter().all(|name| name.len() <= 52), "{:?}", set(&long));
    let is_elsewhere = |it: &Value| {
        let namespace = &it["metadata"]["namespace"];
        namespace.is_null() || namespace == "elsewhere" || namespace == "default"
    };
    assert!(others[2].iter().all(is_elsewhere), "namespaceOverride");
    let account = ["--set=storer.serviceAccount.name=one,restorer.serviceAccount.name=one"];
    let refused = objects("label-storage", "label-storage", &account).expect_err("one account for both");
    assert!(format!("{refused:#}").contains("must differ"), "{refused:#}");
    Ok(())
}
