//! The presence of the Node of a record.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1 as core;
use kube::Api;
use kube::api::ListParams;
use label_storage::ResourceVersion;
use label_storage::rules::IdentityBy;
use label_storage_runtime::call;
use label_storage_runtime::projection::Detail;

use crate::cluster::{Cluster, fold_with_version};
use crate::find::Found;

/// The time that the storers need at most to store a deletion. If one has just died, another has to adopt its shard first.
const PATIENCE: Duration = Duration::from_secs(35);

/// The time that a living storer needs at most. After it the wait is reported, or ends if that is forced.
const SHORT_PATIENCE: Duration = Duration::from_secs(5);

pub(crate) const NOT_DEPARTED: &str =
    "no storer has stored the deletion of the node yet, so its final labels may be missing";

impl Cluster {
    /// A version of the cluster at which the Node did not exist; `None` if it exists.
    pub(crate) async fn absence(&self, found: &Found) -> Result<Option<ResourceVersion>> {
        if self.rules.identity != IdentityBy::Name {
            let (names, version) = self.claimants(&found.filed_under).await?;
            return Ok(names.is_empty().then_some(version));
        }
        // Only a list has the version of the cluster.
        let params = ListParams::default().fields(&format!("metadata.name={}", found.name));
        let nodes: Api<core::Node> = Api::all(self.client.clone());
        let listed = call::one("list nodes", nodes.list_metadata(&params)).await?;
        let version = listed.metadata.resource_version.and_then(|version| version.parse().ok());
        let version = version.context("the API server sent a list of nodes without resourceVersion")?;
        Ok(listed.items.is_empty().then_some(version))
    }

    /// An error if several Nodes claim the record: nothing follows from any of them then.
    pub(crate) async fn require_uncontested(&self, found: &Found) -> Result<()> {
        let identity = &found.filed_under;
        match self.rules.identity {
            IdentityBy::Name => Ok(()),
            _ => match self.claimants(identity).await?.0.as_slice() {
                [] | [_] => Ok(()),
                all => bail!("nodes {} all have {identity}: delete all but one of them", all.join(" and ")),
            },
        }
    }

    /// The Nodes with this identity, and the version of the cluster.
    pub(crate) async fn claimants(&self, filed_under: &str) -> Result<(Vec<String>, ResourceVersion)> {
        let (wanted, projection) = (filed_under.to_owned(), self.projection(Detail::WhatIsThere));
        let source = self.node_source(Detail::WhatIsThere);
        let listed = fold_with_version(source, Vec::new(), move |names, object| {
            let node = projection.node(object).ok().filter(|node| node.filed_under() == wanted);
            names.extend(node.map(|node| node.name));
        });
        Ok(listed.await?)
    }

    /// The other Nodes with the identity of this one.
    pub(crate) async fn rivals(&self, found: &Found) -> Result<Vec<String>> {
        match &found.node {
            Some(node) if self.rules.identity != IdentityBy::Name && !node.extras.is_unidentified => {
                let (mut names, _) = self.claimants(node.filed_under()).await?;
                names.retain(|name| *name != node.name);
                Ok(names)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Waits until a storer has stored the deletion of the Node and its final labels: it would not store them after a person's edit.
    /// An error if no storer does in time, unless that is forced.
    pub(crate) async fn once_departed(&self, mut found: Found, is_forced: bool) -> Result<Found> {
        let patience = if is_forced { SHORT_PATIENCE } else { PATIENCE };
        let (began, mut is_silent) = (Instant::now(), true);
        while found.is_departing() && began.elapsed() < patience {
            if is_silent && began.elapsed() >= SHORT_PATIENCE {
                let seconds = patience.as_secs();
                eprintln!("waiting for up to {seconds} s until a storer has stored the deletion of the node");
                is_silent = false;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            found = self.find(&found.filed_under).await?;
        }
        if found.is_departing() && !is_forced {
            let status = self.hints.plugin("status");
            bail!("{NOT_DEPARTED}: start a storer (`{status}` shows them), or give --force to go on without");
        }
        Ok(found)
    }
}

impl Found {
    /// True if the Node is gone and no storer has stored that yet.
    pub(crate) fn is_departing(&self) -> bool {
        let record = self.record().filter(|_| self.node.is_none());
        record.is_some_and(|record| record.uid.is_some() && record.departed_at.is_none())
    }
}
