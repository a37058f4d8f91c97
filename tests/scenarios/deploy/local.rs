//! The monitoring that deploy/local/local.sh installs. Its images are not available here, so the tests check that the API server accepts all
//! objects, that the pods pass Pod Security, and that the parts match each other and the daemons' pods.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::manifests::{self, apply, of_kind};
use crate::scenario::Scenario;

const NAMESPACE: &str = "monitoring";
/// The ConfigMaps that local.sh makes of files: their names, and the files.
const FROM_FILES: [(&str, &str); 2] =
    [("prometheus-rules", "chart/files/alerts.yaml"), ("grafana-dashboards", "chart/files/dashboard.json")];

pub async fn prometheus_and_grafana_are_accepted_and_find_what_they_are_to_show(s: &Scenario) -> Result<()> {
    let ours = manifests::committed()?;
    apply(&s.client, &ours).await?;
    let mut theirs = manifests::file("local/monitoring.yaml")?;
    let script = manifests::text("local/local.sh")?;
    for (name, path) in FROM_FILES {
        let line = format!("config_map {NAMESPACE} {name} deploy/{path}");
        assert!(script.contains(&line), "local.sh has no line: {line}");
        let (_, key) = path.rsplit_once('/').context("a folder")?;
        theirs.push(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "data": {key: manifests::text(path)?},
        }));
    }
    apply(&s.client, &theirs).await?;

    // The pods pass Pod Security, and every volume is there.
    let pods: Api<Pod> = Api::namespaced(s.client.clone(), NAMESPACE);
    s.eventually("a pod of each", 2, async || Ok(pods.list(&ListParams::default()).await?.items.len()))
        .await?;
    for pod in pods.list(&ListParams::default()).await? {
        let name = pod.name_any();
        for volume in pod.spec.and_then(|spec| spec.volumes).unwrap_or_default() {
            let Some(source) = volume.config_map else { continue };
            let found = of_kind(&theirs, "ConfigMap").any(|map| map["metadata"]["name"] == source.name);
            assert!(found, "{name} mounts ConfigMap {}, which is not there", source.name);
        }
    }

    // Prometheus looks where the daemons are, for the port that they have.
    let configuration = entry(&theirs, "prometheus", "prometheus.yml")?;
    let job = &configuration["scrape_configs"][0];
    assert_eq!(job["kubernetes_sd_configs"][0]["namespaces"]["names"], json!([manifests::NAMESPACE]));
    let keep = &job["relabel_configs"][0];
    for set in of_kind(&ours, "StatefulSet") {
        let port = &set["spec"]["template"]["spec"]["containers"][0]["ports"][0]["name"];
        assert_eq!(keep["regex"], *port, "{}", set["metadata"]["name"]);
    }
    assert_eq!(keep["action"], "keep");
    let account = manifests::client_as(s, NAMESPACE, "prometheus").await?;
    let daemons: Api<Pod> = Api::namespaced(account.clone(), manifests::NAMESPACE);
    s.eventually("prometheus may list the daemons' pods", true, async || {
        Ok(daemons.list(&ListParams::default()).await.is_ok())
    })
    .await?;
    let others: Api<Pod> = Api::all(account);
    assert!(others.list(&ListParams::default()).await.is_err(), "prometheus may list all pods");

    // Grafana reads the dashboard from where it is mounted, and Prometheus from where it serves.
    let dashboards = entry(&theirs, "grafana", "dashboards.yaml")?;
    let folder = dashboards["providers"][0]["options"]["path"].as_str().context("a folder")?.to_owned();
    let grafana = of_kind(&theirs, "Deployment").find(|it| it["metadata"]["name"] == "grafana");
    let container = &grafana.context("no Deployment grafana")?["spec"]["template"]["spec"]["containers"][0];
    let mounted = |name: &str, path: &str| {
        let mounts = container["volumeMounts"].as_array().into_iter().flatten();
        mounts.filter(|mount| mount["name"] == name && mount["mountPath"] == path).count() == 1
    };
    assert!(mounted("dashboards", &folder), "{folder}");
    for kind in ["dashboards", "datasources"] {
        assert!(mounted("provisioning", &format!("/etc/grafana/provisioning/{kind}/{kind}.yaml")), "{kind}");
    }
    let home = json!({
        "name": "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH",
        "value": format!("{folder}/dashboard.json"),
    });
    assert!(container["env"].as_array().is_some_and(|env| env.contains(&home)), "{home}");
    let sources = entry(&theirs, "grafana", "datasources.yaml")?;
    let service = of_kind(&theirs, "Service").find(|it| it["metadata"]["name"] == "prometheus");
    let port = &service.context("no Service prometheus")?["spec"]["ports"][0]["port"];
    assert_eq!(sources["datasources"][0]["url"], format!("http://prometheus.{NAMESPACE}.svc:{port}"));
    Ok(())
}

/// An entry of a ConfigMap, which is YAML itself.
fn entry(documents: &[Value], map: &str, key: &str) -> Result<Value> {
    let found = of_kind(documents, "ConfigMap").find(|document| document["metadata"]["name"] == map);
    let text = found.and_then(|map| map["data"][key].as_str()).with_context(|| format!("{map}: no {key}"))?;
    serde_saphyr::from_str(text).with_context(|| format!("{map}: {key}"))
}
