//! The committed file and the chart, and applying them as `kubectl` does.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, TypeMeta};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use sandbox::assets::{self, Binary};
use serde_json::Value;

use crate::command_line::token;
use crate::scenario::Scenario;

/// The namespace of the committed file.
pub const NAMESPACE: &str = "label-storage";

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

pub fn documents(text: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    let objects = |document: Value| match document["items"].as_array() {
        Some(items) => items.clone(),
        None => vec![document],
    };
    Ok(documents.into_iter().filter(|document| !document.is_null()).flat_map(objects).collect())
}

/// The objects of deploy/label-storage.yaml.
pub fn committed() -> Result<Vec<Value>> {
    file("label-storage.yaml")
}

/// The objects of a file in deploy/.
pub fn file(path: &str) -> Result<Vec<Value>> {
    documents(&text(path)?).context(path.to_owned())
}

pub fn path(path: &str) -> PathBuf {
    deploy().join(path)
}

/// A file in deploy/.
pub fn text(path: &str) -> Result<String> {
    std::fs::read_to_string(deploy().join(path)).with_context(|| format!("deploy/{path}"))
}

/// Runs helm, with the chart's folder where an argument is `CHART`; returns what it prints.
pub fn helm(s: &Scenario, arguments: &[&str]) -> Result<String> {
    let chart = deploy().join("chart");
    let mut helm = Command::new(assets::find(Binary::Helm)?);
    for argument in arguments {
        match *argument {
            "CHART" => helm.arg(&chart),
            other => helm.arg(other),
        };
    }
    if !arguments.contains(&"--namespace") {
        helm.args(["--namespace", &s.namespace]);
    }
    helm.env("KUBECONFIG", s.sandbox.kubeconfig());
    // Nothing of the person who runs the tests: no plugins, no repositories.
    helm.env("HOME", s.file("home")).env_remove("HELM_DRIVER");
    let output = helm.output().context("helm")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "helm {arguments:?}: {stderr}");
    Ok(String::from_utf8(output.stdout)?)
}

/// The chart, rendered for the test's own namespace.
pub fn rendered(s: &Scenario, flags: &[&str]) -> Result<Vec<Value>> {
    let template = ["template", "label-storage", "CHART", "--skip-tests", "--set", "namespace.create=true"];
    documents(&helm(s, &[&template, flags].concat())?)
}

/// As `kubectl apply --server-side` does.
async fn apply_with(client: &Client, document: &Value, dry_run: bool) -> kube::Result<DynamicObject> {
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
        dry_run,
        ..PatchParams::apply("test").force()
    };
    api.patch(name, &strict, &Patch::Apply(document)).await
}

/// Applies all, in their order.
pub async fn apply(client: &Client, documents: &[Value]) -> Result<()> {
    for document in documents {
        apply_with(client, document, false).await.with_context(|| title(document))?;
    }
    Ok(())
}

/// As `kubectl apply --dry-run=server` does: the API server judges, and nothing is written.
pub async fn dry_run(client: &Client, document: &Value) -> Result<()> {
    apply_with(client, document, true).await.with_context(|| title(document))?;
    Ok(())
}

fn title(document: &Value) -> String {
    format!("{} {}", document["kind"], document["metadata"]["name"])
}

/// The documents of a kind.
pub fn of_kind<'a>(documents: &'a [Value], kind: &str) -> impl Iterator<Item = &'a Value> {
    documents.iter().filter(move |document| document["kind"] == kind)
}

/// The StatefulSet of a daemon.
pub fn set<'a>(documents: &'a [Value], daemon: &str) -> Result<&'a Value> {
    let is_its = |set: &&Value| set["metadata"]["labels"]["app.kubernetes.io/component"] == daemon;
    of_kind(documents, "StatefulSet").find(is_its).with_context(|| format!("no {daemon}"))
}

/// The rule file that the pods find.
pub fn rules(documents: &[Value]) -> Result<&str> {
    let map = of_kind(documents, "ConfigMap").find(|map| map["metadata"]["name"] == "label-storage-rules");
    map.context("no ConfigMap")?["data"]["rules.yaml"].as_str().context("no rules.yaml in it")
}

/// A client that is known to the API server as this account.
pub async fn client_as(s: &Scenario, namespace: &str, account: &str) -> Result<Client> {
    let token = token(s, namespace, account).await?;
    let kubeconfig = s.sandbox.kubeconfig_with_token(&token, Some(namespace))?;
    Ok(Client::try_from(sandbox::client_config(&kubeconfig).await?)?)
}
