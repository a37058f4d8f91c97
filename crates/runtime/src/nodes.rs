//! Nodes: reading one by name.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use kube::{Api, Client};
use label_storage::Node;

use crate::api_source::ApiSource;
use crate::call::Error;

/// All Nodes of the cluster.
pub struct Nodes {
    api: Api<core::Node>,
    source: Arc<ApiSource>,
}

impl Nodes {
    /// Reads from this source.
    pub fn new(client: Client, source: Arc<ApiSource>) -> Self {
        Self { api: Api::all(client), source }
    }

    /// For writing to them.
    pub fn api(&self) -> &Api<core::Node> {
        &self.api
    }

    /// The keys of all labels that a Node has, whatever is made of them.
    pub async fn label_keys(&self, name: &str) -> Result<Vec<String>, Error> {
        let found = self.source.get(name).await?;
        Ok(found.map(|object| object.labels.into_keys().collect()).unwrap_or_default())
    }

    /// Reads one Node, as it is now.
    pub async fn get(&self, name: &str) -> Result<Option<Node>, Error> {
        let found = self.source.get(name).await?.map(|object| self.source.projection().node(object));
        let found = found.transpose();
        found.map_err(|error| Error::refused("get node", error))
    }
}
