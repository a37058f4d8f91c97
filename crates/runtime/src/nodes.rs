//! Reading Nodes: their metadata alone, which is all that a decision needs and a tenth of the bytes.

use k8s_openapi::api::core::v1 as core;
use kube::api::ListParams;
use kube::{Api, Client};
use label_storage::Node;

use crate::call::{self, Error};

/// All Nodes of the cluster.
pub struct Nodes {
    api: Api<core::Node>,
}

impl Nodes {
    /// Reads with this client.
    pub fn new(client: Client) -> Self {
        Self { api: Api::all(client) }
    }

    /// For writing to them.
    pub fn api(&self) -> &Api<core::Node> {
        &self.api
    }

    /// Lists all Nodes, in one consistent read: without a resourceVersion, so that it is never answered from a cache
    /// that lags, and without pages, which cost the server more and can end early.
    pub async fn list(&self) -> Result<Vec<Node>, Error> {
        const WHAT: &str = "list nodes";
        let list = call::all(WHAT, self.api.list_metadata(&ListParams::default())).await?;
        require_complete(WHAT, list.metadata.continue_.as_deref())?;
        let mut nodes = Vec::with_capacity(list.items.len());
        for item in list.items {
            match Node::try_from(item.metadata) {
                Ok(node) => nodes.push(node),
                Err(error) => tracing::warn!(%error, "skipping a node"),
            }
        }
        Ok(nodes)
    }

    /// Reads one Node, as it is now.
    pub async fn get(&self, name: &str) -> Result<Option<Node>, Error> {
        const WHAT: &str = "get node";
        match call::one(WHAT, self.api.get_metadata_opt(name)).await? {
            Some(found) => {
                Node::try_from(found.metadata).map(Some).map_err(|error| Error::refused(WHAT, error))
            }
            None => Ok(None),
        }
    }
}

/// A list that goes on elsewhere is not all there is: nothing may be concluded from what it lacks.
pub(crate) fn require_complete(what: &'static str, continues: Option<&str>) -> Result<(), Error> {
    match continues {
        None | Some("") => Ok(()),
        Some(_) => Err(Error::refused(
            what,
            "the API server sent a part of the list, though all of it was asked for",
        )),
    }
}
