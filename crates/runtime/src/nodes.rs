//! Reads one Node by name.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use kube::{Api, Client};
use label_storage::Node;

use crate::api_source::ApiSource;
use crate::call::Error;

pub struct Nodes {
    api: Api<core::Node>,
    source: Arc<ApiSource>,
}

impl Nodes {
    pub fn new(client: Client, source: Arc<ApiSource>) -> Self {
        Self { api: Api::all(client), source }
    }

    /// The API to write them with.
    pub fn api(&self) -> &Api<core::Node> {
        &self.api
    }

    /// The keys of all labels that a Node has, including those that no rule keeps.
    pub async fn label_keys(&self, name: &str) -> Result<Vec<String>, Error> {
        let found = self.source.get(name).await?;
        Ok(found.map(|object| object.labels.into_keys().collect()).unwrap_or_default())
    }

    pub async fn get(&self, name: &str) -> Result<Option<Node>, Error> {
        let node = self.source.get(name).await?.map(|object| self.source.projection().node(object));
        node.transpose().map_err(|error| Error::refused("get node", error))
    }
}
