//! The bench's own calls to the API server. They ask for metadata only, so that answers are small.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use sandbox::progress::Progress;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::machine::{Dress, Machine, heartbeat};
use crate::meta::Meta;

/// Requests in flight when many objects are created or deleted. Fewer than a daemon's: all clients share one server, and
/// kubelets that register by the thousand do not use all of its capacity.
pub(crate) const AT_ONCE: usize = 16;
/// Requests in flight where the bench itself does the work of a daemon, for comparison.
pub(crate) const AS_A_DAEMON: usize = 32;

/// The API path of Nodes.
pub(crate) const NODES: &str = "/api/v1/nodes";

const JSON: &str = "application/json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
/// The API server answers a write with the whole object, unless the client accepts its metadata instead.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// A call is retried for this long while the server is too busy.
const PATIENCE: Duration = Duration::from_secs(120);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// An object of any kind.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Object {
    pub(crate) metadata: Meta,
}

/// The control plane, as the bench uses it.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) client: Client,
}

impl Cluster {
    pub(crate) async fn connect(kubeconfig: &Path) -> anyhow::Result<Self> {
        let mut config = sandbox::client_config(kubeconfig).await?;
        // Kube's own retries would hide how long a call really took.
        config.default_retry = false;
        Ok(Self { client: Client::try_from(config)? })
    }

    pub(crate) async fn create_namespace(&self, name: &str) -> anyhow::Result<()> {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.create("/api/v1/namespaces", name, &body).await.map(drop)
    }

    pub(crate) async fn create_node(&self, machine: Machine, dress: Dress) -> anyhow::Result<Meta> {
        self.create(&format!("{NODES}?fieldManager=kubelet"), &machine.name(), &machine.node(dress)).await
    }

    pub(crate) async fn create_record(&self, namespace: &str, record: &ConfigMap) -> anyhow::Result<Meta> {
        let name = record.metadata.name.as_deref().unwrap_or_default();
        let path = format!("{}?fieldManager=label-storage-storer", config_maps(namespace));
        self.create(&path, name, &serde_json::to_value(record)?).await
    }

    pub(crate) async fn delete_node(&self, machine: Machine) -> anyhow::Result<()> {
        let path = format!("{NODES}/{}", machine.name());
        let deleted = persist(|| self.call::<Value>(Method::DELETE, &path, JSON, None)).await;
        match deleted {
            Err(error) if is(&error, 404) => Ok(()),
            other => other.map(drop).with_context(|| format!("deleting node {}", machine.name())),
        }
    }

    /// Patches a Node's metadata as the restorer and as `kubectl label` do it.
    pub(crate) async fn patch_node(
        &self,
        machine: Machine,
        manager: &str,
        patch: &Value,
    ) -> anyhow::Result<Meta> {
        let path = format!("{NODES}/{}?fieldManager={manager}", machine.name());
        let patched =
            persist(|| self.call::<Object>(Method::PATCH, &path, STRATEGIC_PATCH, Some(patch))).await;
        Ok(patched.with_context(|| format!("patching node {}", machine.name()))?.metadata)
    }

    /// Sends a status update, as a kubelet does. It is not retried.
    pub(crate) async fn beat(&self, machine: Machine) -> Result<(), kube::Error> {
        let path = format!("{NODES}/{}/status?fieldManager=kubelet", machine.name());
        let body = heartbeat(jiff::Timestamp::now());
        self.call::<Object>(Method::PATCH, &path, STRATEGIC_PATCH, Some(&body)).await.map(drop)
    }

    /// The current resource version of a collection, from which a watch can start.
    pub(crate) async fn version(&self, collection: &str) -> anyhow::Result<String> {
        #[derive(Deserialize)]
        struct List {
            metadata: ListMeta,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ListMeta {
            resource_version: String,
        }
        let path = format!("{collection}?limit=1");
        let list = persist(|| self.list::<List>(&path)).await;
        Ok(list.with_context(|| format!("listing {collection}"))?.metadata.resource_version)
    }

    /// The metadata of all Nodes, by machine.
    pub(crate) async fn nodes(&self) -> anyhow::Result<BTreeMap<Machine, Meta>> {
        #[derive(Deserialize)]
        struct List {
            items: Vec<Object>,
        }
        let list = persist(|| self.list::<List>(NODES)).await;
        let nodes = list.context("listing nodes")?.items.into_iter().map(|node| node.metadata);
        Ok(nodes.filter_map(|node| Some((Machine::of_name(&node.name)?, node))).collect())
    }

    async fn create(&self, path: &str, name: &str, body: &Value) -> anyhow::Result<Meta> {
        let created = persist(|| self.call::<Object>(Method::POST, path, JSON, Some(body))).await;
        let object = match created {
            // An earlier attempt succeeded, and only its answer was lost.
            Err(error) if is(&error, 409) => {
                let collection = path.split('?').next().unwrap_or(path);
                let path = format!("{collection}/{name}");
                persist(|| self.call::<Object>(Method::GET, &path, JSON, None)).await
            }
            other => other,
        };
        Ok(object.with_context(|| format!("creating {name}"))?.metadata)
    }

    async fn call<T: serde::de::DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        content: &str,
        body: Option<&Value>,
    ) -> Result<T, kube::Error> {
        let request = Request::builder().method(method).uri(path).header(ACCEPT, METADATA);
        let body = match body {
            Some(body) => serde_json::to_vec(body).map_err(kube::Error::SerdeError)?,
            None => Vec::new(),
        };
        let request = request.header(CONTENT_TYPE, content).body(body).map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }

    async fn list<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, kube::Error> {
        let request = Request::get(path).header(ACCEPT, METADATA_LIST).body(Vec::new());
        self.client.request(request.map_err(kube::Error::HttpError)?).await
    }
}

/// The API path of the ConfigMaps of a namespace.
pub(crate) fn config_maps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

/// Retries a call, with a pause, while the server is too busy or can't be reached.
async fn persist<T, F: Future<Output = Result<T, kube::Error>>>(
    mut call: impl FnMut() -> F,
) -> Result<T, kube::Error> {
    let began = Instant::now();
    loop {
        match call().await {
            Err(error) if is_passing(&error) && began.elapsed() < PATIENCE => {
                tokio::time::sleep(PAUSE).await;
            }
            other => return other,
        }
    }
}

fn is_passing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::Service(_) | kube::Error::HyperError(_) => true,
        _ => false,
    }
}

fn is(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// Calls `act` for each machine, `at_once` of them at a time, and shows the progress. The results are in no particular order.
pub(crate) async fn each<T, F: Future<Output = anyhow::Result<T>>>(
    what: &str,
    machines: &[Machine],
    at_once: usize,
    act: impl FnMut(Machine) -> F,
) -> anyhow::Result<Vec<T>> {
    let mut progress = Progress::new(what, machines.len() as u64);
    let mut acting = stream::iter(machines.iter().copied().map(act)).buffer_unordered(at_once);
    let mut results = Vec::with_capacity(machines.len());
    while let Some(result) = acting.try_next().await? {
        results.push(result);
        progress.set(results.len() as u64);
    }
    progress.clear();
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read_without_what_nobody_needs() {
        let json = r#"{"kind": "Node", "metadata": {"name": "a", "uid": "u", "resourceVersion": "12",
            "managedFields": [{"fieldsV1": {"f:x": {}}}], "labels": {"k": "v"}}}"#;
        let meta = serde_json::from_str::<Object>(json).unwrap().metadata;
        assert_eq!((meta.name.as_str(), meta.uid.as_str(), meta.version), ("a", "u", 12));
        assert_eq!(meta.labels.get("k").map(String::as_str), Some("v"));
        assert!(meta.annotations.is_empty());
        assert!(
            serde_json::from_str::<Object>(r#"{"metadata": {"name": "a", "resourceVersion": "x"}}"#).is_err()
        );
    }
}
