//! Whether the Node of a record is there.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1 as core;
use kube::Api;
use kube::api::ListParams;
use label_storage::ResourceVersion;
use label_storage::rules::IdentityBy;
use label_storage_runtime::call;
use label_storage_runtime::projection::Detail;

use crate::cluster::Cluster;
use crate::find::Found;

/// For how long a storer may need to write down that a Node is gone, and what it said last: where it has just died, another has to adopt
/// its shard first.
const PATIENCE: Duration = Duration::from_secs(35);

/// And for how long one is waited for by somebody who would go on without: one that is alive needs no longer.
const FORCED: Duration = Duration::from_secs(5);

/// After how long it is said what is waited for.
const SILENCE: Duration = Duration::from_secs(5);

/// Where a Node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodePresence {
    /// It is there, under this name, and perhaps others claim to be it.
    Present(Vec<String>),
    /// It was not there when the cluster was at this version.
    Absent(ResourceVersion),
}

impl Cluster {
    /// Where the Node is that this record is of, or would be.
    pub(crate) async fn node_presence(&self, found: &Found) -> Result<NodePresence> {
        let (claimants, version) = if self.rules.identity == IdentityBy::Name {
            self.named(&found.name).await?
        } else {
            self.claimants(&found.filed_under).await?
        };
        Ok(if claimants.is_empty() { NodePresence::Absent(version) } else { NodePresence::Present(claimants) })
    }

    /// An error where this Node is not the only one to claim its record: then nothing is concluded from any of them.
    pub(crate) async fn require_uncontested(&self, found: &Found) -> Result<()> {
        if self.rules.identity == IdentityBy::Name {
            return Ok(());
        }
        let (claimants, _) = self.claimants(&found.filed_under).await?;
        if claimants.len() > 1 {
            bail!(
                "nodes {} all claim to be {}: remove all but one of them first",
                claimants.join(" and "),
                found.filed_under
            );
        }
        Ok(())
    }

    /// The Node of this name, if there is one, and the version of the cluster at which that was so: a single Node that is not there has none.
    async fn named(&self, name: &str) -> Result<(Vec<String>, ResourceVersion)> {
        let params = ListParams::default().fields(&format!("metadata.name={name}"));
        let nodes: Api<core::Node> = Api::all(self.client.clone());
        let listed = call::one("list nodes", nodes.list_metadata(&params)).await?;
        let version = listed.metadata.resource_version.and_then(|version| version.parse().ok());
        let version = version.context("can't list nodes: the API server does not say at which version")?;
        Ok((listed.items.into_iter().filter_map(|node| node.metadata.name).collect(), version))
    }

    /// The Nodes that have this for their identity.
    pub(crate) async fn claimants(&self, filed_under: &str) -> Result<(Vec<String>, ResourceVersion)> {
        let claimants = Arc::new(Mutex::new(Vec::new()));
        let (collected, wanted) = (Arc::clone(&claimants), filed_under.to_owned());
        let eyes = self.projection(Detail::WhatIsThere);
        let each = move |object| {
            if let Ok(node) = eyes.node(object)
                && node.filed_under() == wanted
            {
                collected.lock().unwrap_or_else(PoisonError::into_inner).push(node.name);
            }
        };
        let listed = self.node_source(Detail::WhatIsThere).list(each).await?;
        let claimants = std::mem::take(&mut *claimants.lock().unwrap_or_else(PoisonError::into_inner));
        Ok((claimants, listed.version))
    }

    /// The same, once a storer has written down that the Node is gone, and with that what it said last. An error where none does, unless
    /// that is to be risked: what a person writes then counts for more than what the Node said before, all of it.
    pub(crate) async fn once_departed(&self, found: Found, wait: &Wait) -> Result<Found> {
        let began = Instant::now();
        let patience = match wait.is_forced {
            true if wait.is_over.get() => Duration::ZERO,
            true => FORCED,
            false => PATIENCE,
        };
        let mut found = found;
        let mut is_silent = true;
        while found.is_departing() && began.elapsed() < patience {
            if is_silent && began.elapsed() >= SILENCE {
                eprintln!(
                    "waiting for up to {} s, until a storer has noted that the node is gone",
                    patience.as_secs()
                );
                is_silent = false;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            found = self.find(&found.filed_under).await?;
        }
        wait.is_over.set(true);
        if found.is_departing() && !wait.is_forced {
            bail!(
                "{NOT_DEPARTED}: see that a storer runs (`kubectl label-storage status`), or give --force to do without them",
            );
        }
        Ok(found)
    }
}

impl Found {
    /// Whether the Node is gone, and no storer has written that down yet.
    pub(crate) fn is_departing(&self) -> bool {
        let record = self.record().filter(|_| self.node.is_none());
        record.is_some_and(|record| record.uid.is_some() && record.departed_at.is_none())
    }
}

/// How somebody waits for a storer.
#[derive(Debug)]
pub(crate) struct Wait {
    /// Whether to go on without, if it takes long.
    is_forced: bool,
    is_over: Cell<bool>,
}

impl Wait {
    pub(crate) fn new(is_forced: bool) -> Self {
        Self { is_forced, is_over: Cell::new(false) }
    }
}

/// What is to be said about a record that no storer has written the departure of its Node into.
pub(crate) const NOT_DEPARTED: &str =
    "no storer has noted yet that the node is gone: labels that it was given last may be missing here";
