//! Installing, upgrading and uninstalling with the real helm.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use label_storage::name::record_name;
use sandbox::assets::{self, Binary};
use sandbox::{Options, Sandbox};
use serde_json::{Value, json};

use super::manifests::{self, NAMESPACE, apply, dry_run, helm, of_kind, rendered};
use crate::scenario::Scenario;

/// The values of all-values.yaml.
fn all_values() -> Result<Value> {
    Ok(serde_saphyr::from_str(include_str!("all-values.yaml"))?)
}

/// The paths of all values that are no maps, but for those whose keys are free.
fn paths(values: &Value, path: &str) -> Vec<String> {
    match values.as_object().filter(|map| !map.is_empty()) {
        None => vec![path.to_owned()],
        Some(map) => map
            .iter()
            .flat_map(|(key, value)| paths(value, &format!("{path}/{}", key.replace('/', "~1"))))
            .collect(),
    }
}

pub async fn all_values_together_are_accepted(s: &Scenario) -> Result<()> {
    let all = all_values()?;
    let defaults: Value = serde_saphyr::from_str(&manifests::text("chart/values.yaml")?)?;
    for path in paths(&defaults, "") {
        // Those of security contexts are Kubernetes' own.
        let is_there = all.pointer(&path).is_some() || path.contains("ecurityContext/");
        assert!(is_there, "all-values.yaml lacks {path}");
    }
    let file = s.file("all-values.yaml");
    std::fs::write(&file, include_str!("all-values.yaml"))?;
    let documents = rendered(s, &["--values", file.to_str().context("a path")?])?;
    // The namespace must be there before anything can be judged that is in it.
    apply(&s.client, &documents[..2]).await?;
    for document in &documents {
        let metadata = &document["metadata"];
        let is_extra = metadata["name"] == "label-storage-notes" || metadata["name"] == "label-storage-text";
        for owner in [&metadata["labels"]["owner"], &metadata["annotations"]["owner"]] {
            assert!(owner == "us" || is_extra, "{document}");
        }
    }
    let (operators, ours): (Vec<_>, Vec<_>) = documents.iter().partition(|document| {
        document["apiVersion"].as_str().is_some_and(|it| it.starts_with("monitoring."))
    });
    for document in ours {
        dry_run(&s.client, document).await?;
    }
    // The API server knows no such kinds without the operator.
    let kinds: Vec<_> = operators.iter().map(|document| &document["kind"]).collect();
    for kind in ["ServiceMonitor", "PrometheusRule"] {
        assert!(kinds.contains(&&json!(kind)), "{kinds:?}");
    }
    let rules = operators.iter().find(|document| document["kind"] == "PrometheusRule");
    let groups = rules.and_then(|rules| rules["spec"]["groups"].as_array()).map_or(0, Vec::len);
    assert!(groups > 0, "no groups of rules");
    let mut maps: Vec<_> = of_kind(&documents, "ConfigMap").map(|map| &map["metadata"]["name"]).collect();
    maps.sort_by_key(ToString::to_string);
    // It may be in a namespace with those of other installations.
    let dashboard = format!("kept-labels-{}-dashboard", s.namespace);
    assert_eq!(maps, [&dashboard, "label-storage-notes", "label-storage-rules", "label-storage-text"]);
    let rules: Value = serde_saphyr::from_str(manifests::rules(&documents)?)?;
    assert_eq!(rules, all["rules"]);

    let storer = manifests::set(&documents, "storer")?;
    let container = &storer["spec"]["template"]["spec"]["containers"][0];
    let args = [
        "--admin-address=[::]:8080",
        "--probe-address=[::]:8081",
        "--log-format=text",
        "--log-level=debug",
        "--events=false",
        "--config=/etc/label-storage/rules.yaml",
        "--dry-run",
        "--nodes=pool-a-*",
    ];
    assert_eq!(container["args"], json!(args));
    assert!(container["image"].as_str().is_some_and(|image| image.contains("@sha256:")), "{container}");
    // The restorer must tolerate the start-up taint, whatever other tolerations there are.
    let tolerations = &storer["spec"]["template"]["spec"]["tolerations"];
    let start = json!({"key": "label-storage/restoring", "operator": "Exists"});
    let own = json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
    assert_eq!(*tolerations, json!([{"operator": "Exists"}, own, start]));

    for (daemon, trusted) in [("storer", "no"), ("restorer", "yes")] {
        let pod = &manifests::set(&documents, daemon)?["spec"]["template"]["spec"];
        let expected = json!({"disk": "ssd", "kubernetes.io/os": "linux", "trusted": trusted});
        assert_eq!(pod["nodeSelector"], expected, "{daemon}");
    }

    values_are_where_they_belong(&documents)?;

    // Other rules roll the pods.
    let checksum = |documents: &[Value]| {
        let set = of_kind(documents, "StatefulSet").next().cloned().unwrap_or_default();
        set["spec"]["template"]["metadata"]["annotations"]["checksum/rules"].clone()
    };
    assert!(checksum(&documents).is_string());
    assert_ne!(checksum(&documents), checksum(&rendered(s, &[])?));

    // Off means off, and what is not known is refused.
    let off = [
        "--set=admissionPolicies.enabled=false,networkPolicy.enabled=false,flowControl.enabled=false",
        "--set=priorityClassName=system-cluster-critical,rules.labels=null,rules.retention=null,events=false",
        "--set=podDisruptionBudget.enabled=false,rbac.create=false,storer.serviceAccount.create=false",
        "--set=storer.serviceAccount.name=theirs,restorer.serviceAccount.create=false,restorer.serviceAccount.name=others",
    ];
    let documents = rendered(s, &off)?;
    let mut kinds: Vec<_> = documents.iter().filter_map(|document| document["kind"].as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, ["ConfigMap", "Namespace", "Service", "StatefulSet"]);
    assert_eq!(manifests::rules(&documents)?.trim(), "{}");
    for wrong in [
        "storer.replica=3",
        "storer.replicas=0",
        "storer.replicas=101",
        "storer.replicas=two",
        "restorer.extraArgs={--replicas=3}",
        "storer.serviceAccount.create=false",
        "storer.serviceAccount.name=default",
        "storer.resources.requests.memory=much",
        "restorer.tolerations[0].effect=Never",
        "topologySpreadConstraints[0].maxSkew=1",
        "affinity.nodeAntiAffinity.a=b",
        "commonLabels.helm\\.sh/chart=mine",
        "fullnameOverride=Kept",
        "namespaceOverride=a.b",
        "dryRun=perhaps",
        "dnsPolicy=Sometimes",
        "extraEnv[0].value=a",
        "podDisruptionBudget.maxUnavailable=half",
        "startupProbe.failureThreshold=0",
        "readinessProbe.path=/other",
        "networkPolicy.apiServerCIDRs={api.example.com}",
        "networkPolicy.apiServerPorts={0}",
        "image.digest=latest",
        "metrics.monitor=podmonitor",
        "excludeLabels={machine-facts}",
        "rules=null",
        "rules.labels={pool}",
        "rules.label.include={pool}",
        "rules.annotations.include={a b}",
        "rules.identity.by=serial",
        "rules.identity.by=label:",
        "rules.cleanupShare=10",
        "rules.history=21",
        "rules.retention=never",
        "rules.conflicts[0].wins=record",
        "admissionPolicies.stillAllow={taints}",
    ] {
        let error = rendered(s, &["--set", wrong]).expect_err(wrong);
        assert!(format!("{error:#}").contains("schema"), "{wrong}: {error:#}");
    }
    Ok(())
}

/// Checks the values of all-values.yaml that are not checked elsewhere.
fn values_are_where_they_belong(documents: &[Value]) -> Result<()> {
    let [storer, restorer] = [manifests::set(documents, "storer")?, manifests::set(documents, "restorer")?];
    assert_eq!(storer["metadata"]["name"], "kept-labels-storer");
    let own = |daemon: &str| {
        json!({
            "app.kubernetes.io/name": "labels",
            "app.kubernetes.io/instance": "label-storage",
            "app.kubernetes.io/component": daemon,
        })
    };
    assert_eq!(storer["spec"]["selector"]["matchLabels"], own("storer"));
    assert_eq!(storer["spec"]["revisionHistoryLimit"], 2);
    let (pod, other) = (&storer["spec"]["template"]["spec"], &restorer["spec"]["template"]["spec"]);
    assert_eq!([&pod["serviceAccountName"], &other["serviceAccountName"]], ["theirs", "ours"]);
    let accounts: Vec<_> = of_kind(documents, "ServiceAccount").map(|it| &it["metadata"]).collect();
    assert_eq!((accounts.len(), &accounts[0]["name"]), (1, &json!("ours")));
    assert_eq!(accounts[0]["annotations"], json!({"owner": "us", "role": "reader"}));
    let keys: Vec<_> = pod["affinity"].as_object().into_iter().flat_map(|it| it.keys()).collect();
    assert_eq!(keys, ["nodeAffinity", "podAffinity", "podAntiAffinity"]);
    assert!(other["affinity"]["podAffinity"].is_null());
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    assert!(other["affinity"]["nodeAffinity"][required].is_object(), "both count: {}", other["affinity"]);
    let spread = &pod["topologySpreadConstraints"];
    assert_eq!([&spread[0]["topologyKey"], &spread[1]["topologyKey"]], ["a", "b"]);
    assert_eq!(
        (&spread[0]["labelSelector"]["matchLabels"], &spread[1]["labelSelector"]),
        (&own("storer"), &json!({}))
    );
    assert_eq!(other["topologySpreadConstraints"][1]["topologyKey"], "c");
    assert_eq!([&pod["dnsPolicy"], &pod["priorityClassName"]], ["ClusterFirst", "label-keepers"]);
    let class = of_kind(documents, "PriorityClass").next().context("a class")?;
    assert_eq!((&class["metadata"]["name"], &class["value"]), (&json!("label-keepers"), &json!(7)));
    assert_eq!(pod["securityContext"]["runAsUser"], 1000);
    let container = &pod["containers"][0];
    assert_eq!(container["securityContext"]["runAsGroup"], 1000);
    assert_eq!(container["env"][2], json!({"name": "HTTPS_PROXY", "value": "http://proxy"}));
    assert_eq!(pod["volumes"][1]["name"], "certificates");
    assert_eq!(container["volumeMounts"][1]["mountPath"], "/etc/ssl/theirs");
    let probes = [
        (&container["startupProbe"]["failureThreshold"], 90),
        (&container["livenessProbe"]["periodSeconds"], 20),
        (&container["livenessProbe"]["timeoutSeconds"], 9),
        (&container["readinessProbe"]["periodSeconds"], 3),
        (&container["readinessProbe"]["initialDelaySeconds"], 1),
    ];
    for (value, expected) in probes {
        assert_eq!(*value, expected, "{container}");
    }
    for budget in of_kind(documents, "PodDisruptionBudget") {
        assert_eq!(
            (&budget["spec"]["minAvailable"], &budget["spec"]["maxUnavailable"]),
            (&json!("50%"), &Value::Null)
        );
    }
    Ok(())
}

/// On AKS the API server's address is a name.
pub async fn names_can_be_looked_up(s: &Scenario) -> Result<()> {
    let egress = |flags: &[&str]| -> Result<Vec<Value>> {
        let documents = rendered(s, flags)?;
        let policy = of_kind(&documents, "NetworkPolicy").next().context("a policy")?;
        Ok(policy["spec"]["egress"].as_array().context("egress")?.clone())
    };
    let dns = json!({"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]});
    let limited = ["--set=networkPolicy.apiServerCIDRs={10.0.0.1/32}"];
    for flags in [&[][..], &limited] {
        assert!(egress(flags)?.contains(&dns), "{flags:?}: {:?}", egress(flags)?);
    }
    let [api_server] = &egress(&["--set=networkPolicy.dns=false"])?[..] else {
        panic!("more than the API server")
    };
    assert_eq!(api_server["ports"][0], json!({"port": 443, "protocol": "TCP"}));
    // By the node's own resolver: those of the cluster may be what is being restored.
    let documents = rendered(s, &[])?;
    for set in of_kind(&documents, "StatefulSet") {
        assert_eq!(set["spec"]["template"]["spec"]["dnsPolicy"], "Default");
    }
    for policy in of_kind(&documents, "NetworkPolicy") {
        dry_run(&s.client, policy).await?;
    }
    Ok(())
}

/// The file has a field that Kubernetes 1.29 does not know.
pub async fn kubectl_apply_installs_everything_or_nothing(s: &Scenario) -> Result<()> {
    const FIELD: &str = "recursiveReadOnly";
    let kubectl = |file: &Path, sandbox: &Sandbox, flags: &[&str]| -> Result<(bool, String)> {
        let mut kubectl = Command::new(assets::find(Binary::Kubectl)?);
        kubectl.args(["apply", "--filename"]).arg(file).args(flags);
        let output = kubectl.env("KUBECONFIG", sandbox.kubeconfig()).env("HOME", s.file("home")).output()?;
        Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
    };
    let file = manifests::path("label-storage.yaml");
    let sandbox = tokio::task::spawn_blocking(|| Sandbox::start(Options::default())).await??;
    let client = Client::try_from(sandbox::client_config(sandbox.kubeconfig()).await?)?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let sets: Api<StatefulSet> = Api::namespaced(client, NAMESPACE);

    // A server that does not know a field, and one that does not know the name of this one: it is the same to kubectl.
    let older = s.file("older.yaml");
    let text = std::fs::read_to_string(&file)?;
    assert_eq!(text.matches(&format!("{FIELD}: Disabled")).count(), 2);
    std::fs::write(&older, text.replace(FIELD, "recursiveWriteOnly"))?;
    for flags in [&[][..], &["--server-side"]] {
        let (is_applied, said) = kubectl(&older, &sandbox, flags)?;
        let words = "unknown field \"recursiveWriteOnly\" in io.k8s.api.core.v1.VolumeMount";
        assert!(!is_applied && said.contains(words), "{said}");
        assert!(namespaces.get_opt(NAMESPACE).await?.is_none(), "{flags:?}");
        assert!(roles.get_opt("label-storage-storer").await?.is_none(), "{flags:?}");
    }
    for flags in [&[][..], &["--server-side", "--force-conflicts"]] {
        let (is_applied, said) = kubectl(&file, &sandbox, flags)?;
        assert!(is_applied, "{flags:?}: {said}");
        sets.get("label-storage-storer").await?;
    }
    Ok(())
}

pub async fn upgrade_and_uninstall_keep_the_records(s: &Scenario) -> Result<()> {
    let sets: Api<StatefulSet> = Api::namespaced(s.client.clone(), &s.namespace);
    let pods: Api<Pod> = Api::namespaced(s.client.clone(), &s.namespace);
    let storers = ListParams::default().labels("app.kubernetes.io/component=storer");
    // Each pod's uid, by its name.
    let running = async || -> Result<BTreeMap<String, Option<String>>> {
        let pods = pods.list(&storers).await?.items.into_iter();
        Ok(pods.map(|pod| (pod.name_any(), pod.uid())).collect())
    };
    let has_pods = async |replicas: i32| {
        let names: Vec<_> = (0..replicas).map(|index| format!("label-storage-storer-{index}")).collect();
        s.eventually("a pod for each replica", (Some(replicas), names), async || {
            let wanted = sets.get("label-storage-storer").await?.spec.and_then(|spec| spec.replicas);
            Ok((wanted, running().await?.into_keys().collect()))
        })
        .await
    };
    helm(s, &["install", "label-storage", "CHART"])?;
    has_pods(2).await?;
    let before = running().await?;
    let record = json!({
        "metadata": {
            "name": record_name("a"),
            "labels": {"app.kubernetes.io/managed-by": "label-storage"},
        },
        "data": {"pool": "gold"},
    });
    let record: ConfigMap = serde_json::from_value(record)?;
    let record = s.config_maps.create(&PostParams::default(), &record).await?;
    let is_kept = async || -> Result<bool> {
        Ok(s.config_maps.get(&record.name_any()).await?.resource_version() == record.resource_version())
    };

    helm(s, &["upgrade", "label-storage", "CHART", "--set=storer.replicas=3"])?;
    has_pods(3).await?;
    let after = running().await?;
    assert!(before.iter().all(|(name, uid)| after.get(name) == Some(uid)), "no pod is replaced: {after:?}");
    // As kubectl scale and autoscalers do.
    let scale = async |replicas: i32| {
        let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        sets.patch_scale("label-storage-storer", &PatchParams::default(), &scale).await?;
        has_pods(replicas).await
    };
    scale(4).await?;
    let number = "--set=storer.replicas=3";
    let refused = helm(s, &["upgrade", "label-storage", "CHART", number]).expect_err("Helm 4 refuses it");
    assert!(refused.to_string().contains(".spec.replicas"), "{refused}");
    helm(s, &["upgrade", "label-storage", "CHART", "--set=storer.replicas=null"])?;
    has_pods(4).await?;
    scale(5).await?;
    helm(s, &["upgrade", "label-storage", "CHART", "--reset-then-reuse-values"])?;
    has_pods(5).await?;
    helm(s, &["upgrade", "label-storage", "CHART", number, "--force-conflicts"])?;
    has_pods(3).await?;
    helm(s, &["upgrade", "label-storage", "CHART", "--set=storer.replicas=null"])?;
    has_pods(1).await?;
    assert!(is_kept().await?, "after an upgrade");

    helm(s, &["uninstall", "label-storage"])?;
    s.eventually("the daemons are gone", (true, true), async || {
        let none = async |name: &str| anyhow::Ok(sets.get_opt(name).await?.is_none());
        Ok((none("label-storage-storer").await?, none("label-storage-restorer").await?))
    })
    .await?;
    assert!(is_kept().await?, "after an uninstall");

    helm(s, &["install", "label-storage", "CHART"])?;
    has_pods(2).await?;
    assert!(is_kept().await?, "after another install");
    // As a controller such as Argo CD does, where the namespace is part of it.
    let namespace = manifests::rendered(s, &[])?;
    let namespace = of_kind(&namespace, "Namespace").next().context("a namespace")?;
    assert_eq!(namespace["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    helm(s, &["uninstall", "label-storage"])?;
    Ok(())
}
