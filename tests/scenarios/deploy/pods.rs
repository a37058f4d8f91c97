//! The StatefulSets, with the real controller that creates their pods.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::manifests::{self, NAMESPACE, apply};
use crate::scenario::Scenario;

pub async fn the_pods_pass_admission_and_know_their_place(s: &Scenario) -> Result<()> {
    let documents = manifests::committed()?;
    apply(&s.client, &documents).await?;
    let pods: Api<Pod> = Api::namespaced(s.client.clone(), NAMESPACE);

    let expected = ["restorer-0", "restorer-1", "storer-0", "storer-1"];
    let expected = expected.map(|pod| format!("label-storage-{pod}")).to_vec();
    s.eventually("a pod for each replica", expected, async || {
        let mut names: Vec<_> =
            pods.list(&ListParams::default()).await?.items.iter().map(ResourceExt::name_any).collect();
        names.sort();
        Ok(names)
    })
    .await?;

    for pod in pods.list(&ListParams::default()).await? {
        let name = pod.name_any();
        let (set, _ordinal) = name.rsplit_once('-').context("an ordinal")?;
        let daemon = set.strip_prefix("label-storage-").context("the release")?;
        let pod = serde_json::to_value(&pod)?;
        let spec = &pod["spec"];
        assert_eq!(spec["serviceAccountName"], set);
        assert_eq!(spec["priority"], 0, "{name}");
        assert_eq!(spec["terminationGracePeriodSeconds"], 20, "{name}");
        assert_eq!(
            spec["securityContext"],
            json!({
                "runAsNonRoot": true,
                "seccompProfile": {"type": "RuntimeDefault"},
            }),
            "{name}: OpenShift refuses a fixed user"
        );
        // Constraints would leave out nodes without a zone, and then spread over no nodes at all.
        assert!(spec["topologySpreadConstraints"].is_null(), "{name}");
        let preferred =
            &spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
        let apart: Vec<_> = preferred.as_array().into_iter().flatten().collect();
        let apart: Vec<_> = apart.iter().map(|it| (&it["weight"], &it["podAffinityTerm"])).collect();
        let term = |key: &str| {
            let labels = json!({
                "app.kubernetes.io/name": "label-storage",
                "app.kubernetes.io/instance": "label-storage",
                "app.kubernetes.io/component": daemon,
            });
            json!({"topologyKey": key, "labelSelector": {"matchLabels": labels}})
        };
        let (host, zone) = (term("kubernetes.io/hostname"), term("topology.kubernetes.io/zone"));
        assert_eq!(apart, [(&json!(100), &host), (&json!(50), &zone)], "{name}");

        let container = &spec["containers"][0];
        assert_eq!(spec["containers"].as_array().map(Vec::len), Some(1), "{name}");
        assert_eq!(container["command"], json!([format!("/{daemon}")]), "{name}");
        assert_eq!(
            container["securityContext"],
            json!({
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            }),
            "{name}"
        );
        let environment: BTreeMap<String, Value> = container["env"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|variable| {
                let from = variable["valueFrom"]["fieldRef"]["fieldPath"].clone();
                let value = if from.is_null() { variable["value"].clone() } else { from };
                (variable["name"].as_str().unwrap_or_default().to_owned(), value)
            })
            .collect();
        let told = [
            ("LABEL_STORAGE_NAMESPACE", json!("metadata.namespace")),
            // Its ordinal is the index, and the rest is the StatefulSet that has the number of shards.
            ("POD_NAME", json!("metadata.name")),
        ];
        assert_eq!(environment, told.map(|(name, value)| (name.to_owned(), value)).into(), "{name}");
        for (probe, path) in
            [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")]
        {
            let get = json!({"path": path, "port": "probes", "scheme": "HTTP"});
            assert_eq!(container[probe]["httpGet"], get, "{name}");
        }
        assert_eq!(container["ports"][0]["name"], "admin", "{name}");
        assert_eq!(container["ports"][1]["name"], "probes", "{name}");
        // The rules, and the token, which the pod asks for itself: its account does not hand it out.
        let mounts: Vec<_> = container["volumeMounts"].as_array().into_iter().flatten().collect();
        let paths: Vec<_> = mounts.iter().map(|mount| &mount["mountPath"]).collect();
        assert_eq!(paths, ["/etc/label-storage", "/var/run/secrets/kubernetes.io/serviceaccount"], "{name}");
        // Kubernetes 1.30 drops the field that makes older ones refuse the file.
        let mut rules = mounts[0].clone();
        rules.as_object_mut().context("a mount")?.remove("recursiveReadOnly");
        assert_eq!(rules, json!({"name": "rules", "mountPath": "/etc/label-storage", "readOnly": true}));
        let volumes = spec["volumes"].as_array().into_iter().flatten();
        let rules: Vec<_> = volumes.filter(|volume| volume["name"] == "rules").collect();
        assert_eq!(rules[0]["configMap"]["name"], "label-storage-rules", "{name}");
        // A change of rules replaces the pod.
        assert!(pod["metadata"]["annotations"]["checksum/rules"].is_string(), "{name}");
        assert!(container["resources"]["requests"]["memory"].is_string(), "{name}");
    }

    // The account's token goes to no pod that does not ask for it, and what could do more is not let in.
    let other = |name: &str, context: Value| {
        let container = json!({"name": "other", "image": "other", "securityContext": context});
        json!({
            "metadata": {"name": name},
            "spec": {"serviceAccountName": "label-storage-storer", "containers": [container]},
        })
    };
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let restricted = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": true,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    let plain = pods.create(&params, &serde_json::from_value(other("plain", restricted))?).await?;
    assert_eq!(plain.spec.and_then(|spec| spec.volumes).unwrap_or_default(), Vec::new());
    let privileged = serde_json::from_value(other("privileged", json!({"privileged": true})))?;
    let refused = pods.create(&params, &privileged).await.map(drop).expect_err("pod security").to_string();
    assert!(refused.contains("violates PodSecurity \"restricted"), "{refused}");
    Ok(())
}
