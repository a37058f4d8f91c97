//! The manifests in deploy/ do what they say.

use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams, TypeMeta};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::command_line::token;
use crate::scenario::{Labels, Scenario, labels};

const NAMESPACE: &str = "label-storage";

/// Every document of every manifest, in the order in which `kubectl apply -f deploy/` takes them.
fn manifests() -> Result<Vec<Value>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let mut files: Vec<_> = std::fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    files.sort_by_key(std::fs::DirEntry::file_name);
    let mut documents = Vec::new();
    for file in files.iter().filter(|file| file.path().extension().is_some_and(|end| end == "yaml")) {
        let text = std::fs::read_to_string(file.path())?;
        let parsed: Vec<Value> =
            serde_saphyr::from_multiple(&text).with_context(|| format!("{:?}", file.file_name()))?;
        documents.extend(parsed.into_iter().filter(|document| !document.is_null()));
    }
    Ok(documents)
}

/// As `kubectl apply --server-side` does.
async fn apply(client: &Client, document: &Value) -> kube::Result<DynamicObject> {
    let types: TypeMeta = serde_json::from_value(document.clone()).expect("kind and apiVersion");
    let kind = GroupVersionKind::try_from(types).expect("a group, a version and a kind");
    let resource = ApiResource::from_gvk(&kind);
    let name = document["metadata"]["name"].as_str().expect("a name");
    let api: Api<DynamicObject> = match document["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let strict = PatchParams {
        field_validation: Some(kube::api::ValidationDirective::Strict),
        ..PatchParams::apply("test").force()
    };
    api.patch(name, &strict, &Patch::Apply(document)).await
}

async fn apply_all(s: &Scenario) -> Result<()> {
    for document in manifests()? {
        let what = format!("{} {}", document["kind"], document["metadata"]["name"]);
        apply(&s.client, &document).await.context(what)?;
    }
    Ok(())
}

pub async fn every_manifest_is_accepted_and_the_daemons_work_with_its_accounts(s: &Scenario) -> Result<()> {
    let kinds: Vec<String> = manifests()?
        .iter()
        .map(|document| document["kind"].as_str().unwrap_or_default().to_owned())
        .collect();
    for kind in ["Namespace", "ServiceAccount", "ClusterRole", "Role", "StatefulSet"] {
        assert!(kinds.iter().any(|found| found == kind), "no {kind} in {kinds:?}");
    }
    apply_all(s).await?;

    for (account, verb, resource, allowed) in [
        ("storer", "list", "nodes", true),
        ("storer", "create", "configmaps", true),
        ("storer", "delete", "configmaps", true),
        ("storer", "patch", "nodes", false),
        ("storer", "update", "nodes", false),
        ("storer", "delete", "nodes", false),
        ("storer", "list", "secrets", false),
        ("restorer", "patch", "nodes", true),
        ("restorer", "get", "configmaps", true),
        ("restorer", "create", "configmaps", false),
        ("restorer", "update", "configmaps", false),
        ("restorer", "patch", "configmaps", false),
        ("restorer", "delete", "configmaps", false),
        ("restorer", "delete", "nodes", false),
        ("restorer", "list", "secrets", false),
    ] {
        let review = json!({"spec": {
            "user": format!("system:serviceaccount:{NAMESPACE}:{account}"),
            "resourceAttributes": {"verb": verb, "resource": resource, "namespace": NAMESPACE},
        }});
        let review: SubjectAccessReview = serde_json::from_value(review)?;
        let reviews: Api<SubjectAccessReview> = Api::all(s.client.clone());
        // The authorizer learns of new roles by watching.
        s.eventually(&format!("{account} {verb} {resource}"), allowed, async || {
            let answer = reviews.create(&PostParams::default(), &review).await?;
            Ok(answer.status.is_some_and(|status| status.allowed))
        })
        .await?;
    }

    // The daemons with these accounts, as their pods run them.
    let mut daemons = Vec::new();
    for kind in ["storer", "restorer"] {
        let kubeconfig =
            s.sandbox.kubeconfig_with_token(&token(s, NAMESPACE, kind).await?, Some(NAMESPACE))?;
        let nodes = format!("{}.*", s.namespace);
        let args = ["--nodes", &nodes, "--interval", "150ms", "--log-format=json"].map(str::to_owned);
        daemons.push(s.run_binary(kind, &args, Some(kubeconfig))?);
    }
    let node = s.node("a");
    let kept = labels([("pool", "gold")]);
    s.create(&node, kept.clone()).await?;
    let records: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(s.client.clone(), NAMESPACE);
    let name = label_storage::name::record_name(&node);
    s.eventually("stored", true, async || Ok(records.get_opt(&name).await?.is_some())).await?;
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, kept).await?;
    // A line that is still being written is no JSON yet.
    for daemon in &daemons {
        daemon.process.stop();
    }
    for line in daemons.iter().flat_map(|daemon| daemon.log().lines().map(str::to_owned).collect::<Vec<_>>())
    {
        serde_json::from_str::<Value>(&line).with_context(|| format!("not JSON: {line}"))?;
    }
    Ok(())
}

pub async fn replicas_and_shards_can_not_drift_apart(s: &Scenario) -> Result<()> {
    apply_all(s).await?;
    let sets: Api<StatefulSet> = Api::namespaced(s.client.clone(), NAMESPACE);
    let is_refused = |result: kube::Result<_>| matches!(result, Err(kube::Error::Api(status)) if status.message.contains("LABEL_STORAGE_REPLICAS"));
    for name in ["storer", "restorer"] {
        let set = sets.get(name).await?;
        let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).context("no replicas")?;
        let patch = |replicas: i32, told: i32| {
            let env = json!([{"name": "LABEL_STORAGE_REPLICAS", "value": told.to_string()}]);
            let containers = json!([{"name": name, "env": env}]);
            Patch::Strategic(
                json!({"spec": {"replicas": replicas, "template": {"spec": {"containers": containers}}}}),
            )
        };
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        // A new policy takes a moment to be in force.
        s.eventually("drift is refused", true, async || {
            Ok(is_refused(sets.patch(name, &params, &patch(replicas, replicas + 1)).await.map(drop)))
        })
        .await?;
        let index = json!([{"name": name, "env": [{"name": "LABEL_STORAGE_REPLICA_INDEX", "value": "0"}]}]);
        let index = Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": index}}}}));
        assert!(is_refused(sets.patch(name, &params, &index).await.map(drop)), "one index for all pods");
        let scale = Patch::Merge(json!({"spec": {"replicas": replicas + 1}}));
        s.eventually("scaling is refused", true, async || {
            Ok(is_refused(sets.patch_scale(name, &params, &scale).await.map(drop)))
        })
        .await?;
        sets.patch(name, &params, &patch(replicas + 3, replicas + 3)).await.context("both in one step")?;
    }
    Ok(())
}
