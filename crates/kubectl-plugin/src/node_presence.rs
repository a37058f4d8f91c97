//! The presence of the Node of a record.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1 as core;
use kube::{Api, ResourceExt, api::ListParams};
use label_storage::{ResourceVersion, rules::IdentityBy};
use label_storage_runtime::{call, projection::Detail};

use crate::cluster::{Cluster, fold_with_version};
use crate::find::Found;

pub(crate) const NOT_DEPARTED: &str =
    "no storer has stored the deletion of the node yet, so its final labels may be missing";

impl Cluster {
    /// A version of the cluster at which the Node did not exist; `None` if it exists. An error if several
    /// Nodes claim the record: nothing follows from any of them then.
    pub(crate) async fn absence(&self, found: &Found) -> Result<Option<ResourceVersion>> {
        let is_by_name = self.rules.identity == IdentityBy::Name;
        let key = if is_by_name { &found.name } else { &found.filed_under };
        let (names, version) = self.claimants(key).await?;
        if names.len() > 1 {
            bail!("nodes {} all have {key}: delete all but one of them", names.join(" and "));
        }
        Ok(names.is_empty().then_some(version))
    }

    /// The Nodes of the record with this key, and the version of the cluster, which only a list has.
    pub(crate) async fn claimants(&self, key: &str) -> Result<(Vec<String>, ResourceVersion)> {
        if self.rules.identity == IdentityBy::Name {
            let params = ListParams::default().fields(&format!("metadata.name={key}"));
            let nodes: Api<core::Node> = Api::all(self.client.clone());
            let listed = call::one("list nodes", nodes.list_metadata(&params)).await?;
            let version = listed.metadata.resource_version.and_then(|version| version.parse().ok());
            let version = version.context("the API server sent a list of nodes without resourceVersion")?;
            return Ok((listed.items.iter().map(ResourceExt::name_any).collect(), version));
        }
        let (key, projection) = (key.to_owned(), self.projection(Detail::WhatIsThere));
        let source = self.node_source(Detail::WhatIsThere);
        let listed = fold_with_version(source, Vec::new(), move |names, object| {
            let node = projection.node(object).ok().filter(|node| node.filed_under() == key);
            names.extend(node.map(|node| node.name));
        });
        Ok(listed.await?)
    }

    /// The other Nodes with the identity of this one.
    pub(crate) async fn rivals(&self, found: &Found) -> Result<Vec<String>> {
        let Some(node) = found.node.as_ref().filter(|node| node.extras.identity.is_some()) else {
            return Ok(Vec::new());
        };
        let (mut names, _) = self.claimants(node.filed_under()).await?;
        names.retain(|name| *name != node.name);
        Ok(names)
    }

    /// Waits until a storer has stored the deletion of the Node and its final labels: it would not store them
    /// after a person's edit. An error if no storer does in time, unless that is forced.
    pub(crate) async fn once_departed(&self, mut found: Found, is_forced: bool) -> Result<Found> {
        // A living storer needs 5 s at most. If one has just died, another has to adopt its shard first.
        let seconds = if is_forced { 5 } else { 35 };
        let (began, patience) = (Instant::now(), Duration::from_secs(seconds));
        if found.is_departing() {
            eprintln!("waiting for up to {seconds} s until a storer has stored the deletion of the node");
        }
        while found.is_departing() && began.elapsed() < patience {
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
