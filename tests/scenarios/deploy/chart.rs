//! Installing, upgrading and uninstalling with the real helm.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use label_storage::name::record_name;
use serde_json::{Value, json};

use super::manifests::{self, apply, dry_run, helm, of_kind, rendered};
use crate::scenario::Scenario;

/// Every value is another than its default, or on.
const ALL: &[&str] = &[
    "--set=image.repository=registry.example.com/label-storage,image.pullPolicy=Always",
    "--set=image.digest=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "--set=imagePullSecrets[0].name=registry",
    "--set=storer.replicas=5,storer.extraArgs={--nodes=pool-a-*}",
    "--set=restorer.replicas=1,restorer.extraArgs={--nodes=pool-a-*,--concurrency=8}",
    "--set=events=false,log.level=debug,log.format=text",
    "--set=rules.labels.include={pool,persist.demo/*},rules.labels.exclude={machine-facts,example.com/*},rules.cordon=true",
    "--set=rules.annotations.include={example.com/*},rules.annotations.exclude={example.com/seen},rules.taints.include={*}",
    "--set=rules.nodes.selector=pool,rules.nodes.optIn=true,rules.startupTaint.enabled=true,rules.startupTaint.atMost=5m",
    "--set=rules.identity.by=name,rules.identity.fence=true,rules.identity.trustLabels=name",
    "--set=rules.retention=forever,rules.cleanupShare=2.5%,rules.history=0",
    "--set-json=rules.conflicts=[{\"keys\":[\"pool\",\"taint:*\"],\"wins\":\"record\"},{\"keys\":[\"*\"],\"wins\":\"report\"}]",
    "--set=podLabels.team=a,podAnnotations.note=b,nodeSelector.disk=ssd,restorer.nodeSelector.trusted=yes",
    "--set-json=affinity={\"nodeAffinity\":{\"requiredDuringSchedulingIgnoredDuringExecution\":{\"nodeSelectorTerms\":[{\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"Exists\"}]}]}}}",
    "--set-json=tolerations=[{\"operator\":\"Exists\"}]",
    "--set=priorityClass.value=7",
    "--set=networkPolicy.apiServerPorts={6443},networkPolicy.apiServerCIDRs={10.0.0.1/32}",
    "--set-json=networkPolicy.scrapeFrom=[{\"namespaceSelector\":{\"matchLabels\":{\"team\":\"monitoring\"}}}]",
    "--set=flowControl.concurrencyShares=5",
    "--set=metrics.monitor=ServiceMonitor,metrics.interval=10s,metrics.labels.release=prometheus",
    "--set=alerts.enabled=true,dashboard.enabled=true,dashboard.labels.folder=nodes",
];

/// What [`ALL`] makes of the rule file.
fn all_rules() -> Value {
    json!({
        "labels": {"include": ["pool", "persist.demo/*"], "exclude": ["machine-facts", "example.com/*"]},
        "annotations": {"include": ["example.com/*"], "exclude": ["example.com/seen"]},
        "taints": {"include": ["*"]},
        "cordon": true,
        "nodes": {"selector": "pool", "optIn": true},
        "conflicts": [{"keys": ["pool", "taint:*"], "wins": "record"}, {"keys": ["*"], "wins": "report"}],
        "identity": {"by": "name", "fence": true, "trustLabels": "name"},
        "startupTaint": {"enabled": true, "atMost": "5m"},
        "retention": "forever",
        "cleanupShare": "2.5%",
        "history": 0,
    })
}

pub async fn all_values_together_are_accepted(s: &Scenario) -> Result<()> {
    let documents = rendered(s, ALL)?;
    // The namespace must be there before anything can be judged that is in it.
    apply(&s.client, &documents[..2]).await?;
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
    assert!(of_kind(&documents, "ConfigMap").count() == 2, "no dashboard");
    let rules: Value = serde_saphyr::from_str(manifests::rules(&documents)?)?;
    assert_eq!(rules, all_rules());

    let storer = of_kind(&documents, "StatefulSet").find(|set| set["metadata"]["name"] == "storer");
    let container = &storer.context("a storer")?["spec"]["template"]["spec"]["containers"][0];
    let args = [
        "--admin-address=0.0.0.0:8080",
        "--probe-address=0.0.0.0:8081",
        "--log-format=text",
        "--log-level=debug",
        "--events=false",
        "--config=/etc/label-storage/rules.yaml",
        "--nodes=pool-a-*",
    ];
    assert_eq!(container["args"], json!(args));
    assert!(container["image"].as_str().is_some_and(|image| image.contains("@sha256:")), "{container}");
    // Who takes the start-up taint off must be able to run where it is, whatever is tolerated beside it.
    let tolerations = &storer.context("a storer")?["spec"]["template"]["spec"]["tolerations"];
    let start = json!({"key": "label-storage/restoring", "operator": "Exists"});
    assert_eq!(*tolerations, json!([{"operator": "Exists"}, start]));

    for (daemon, selector) in
        [("storer", json!({"disk": "ssd"})), ("restorer", json!({"disk": "ssd", "trusted": "yes"}))]
    {
        let set = of_kind(&documents, "StatefulSet").find(|set| set["metadata"]["name"] == daemon);
        let pod = &set.context("a StatefulSet")?["spec"]["template"]["spec"];
        assert_eq!(pod["nodeSelector"], selector, "{daemon}");
    }

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
        "--set=priorityClass.create=false,priorityClass.name=system-cluster-critical,rules.labels=null,rules.retention=null,events=false",
    ];
    let documents = rendered(s, &off)?;
    let mut kinds: Vec<_> = documents.iter().filter_map(|document| document["kind"].as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let expected = [
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "Namespace",
        "PodDisruptionBudget",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
        "StatefulSet",
    ];
    assert_eq!(kinds, expected);
    assert_eq!(manifests::rules(&documents)?.trim(), "{}");
    for wrong in [
        "storer.replica=3",
        "storer.replicas=0",
        "storer.replicas=two",
        "restorer.extraArgs={--replicas=3}",
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

pub async fn upgrade_and_uninstall_keep_the_records(s: &Scenario) -> Result<()> {
    let sets: Api<StatefulSet> = Api::namespaced(s.client.clone(), &s.namespace);
    let pods: Api<Pod> = Api::namespaced(s.client.clone(), &s.namespace);
    let storers = ListParams::default().labels("app.kubernetes.io/name=storer");
    // Each pod's uid, by its name.
    let running = async || -> Result<BTreeMap<String, Option<String>>> {
        let pods = pods.list(&storers).await?.items.into_iter();
        Ok(pods.map(|pod| (pod.name_any(), pod.uid())).collect())
    };
    let has_pods = async |replicas: i32| {
        let names: Vec<_> = (0..replicas).map(|index| format!("storer-{index}")).collect();
        s.eventually("a pod for each replica", (Some(replicas), names), async || {
            let wanted = sets.get("storer").await?.spec.and_then(|spec| spec.replicas);
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
    let scale = Patch::Merge(json!({"spec": {"replicas": 4}}));
    sets.patch_scale("storer", &PatchParams::default(), &scale).await?;
    has_pods(4).await?;
    assert!(is_kept().await?, "after an upgrade");

    helm(s, &["uninstall", "label-storage"])?;
    s.eventually("the daemons are gone", (true, true), async || {
        let none = async |name: &str| anyhow::Ok(sets.get_opt(name).await?.is_none());
        Ok((none("storer").await?, none("restorer").await?))
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
