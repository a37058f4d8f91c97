//! The nodes that a command is about.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, bail};
use label_storage::restore::{Reason, decide};
use label_storage::rules::Selector;
use label_storage::store::Stored;
use label_storage::summary::NodeSummary;
use label_storage_runtime::projection::Detail;
use label_storage_runtime::records;

use crate::cluster::Cluster;

/// Names of nodes, or a selection among the records.
#[derive(Debug, clap::Args)]
pub(crate) struct Which {
    /// Names of nodes
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,

    /// Select records by stored labels, as in pool=gold,tier!=1
    #[arg(long, short = 'l', value_name = "SELECTOR", conflicts_with = "nodes")]
    selector: Option<Selector>,

    /// Select records of nodes that do not exist
    #[arg(long, conflicts_with_all = ["nodes", "pending"])]
    departed: bool,

    /// Select records of nodes that exist and are not restored yet
    #[arg(long, conflicts_with = "nodes")]
    pending: bool,

    /// Select all records
    #[arg(long, conflicts_with = "nodes")]
    all: bool,
}

impl Which {
    /// True if the nodes are given by name.
    pub(crate) fn are_named(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Names, or identities (`kind=value`), that [`Cluster::find`] takes: each once, sorted.
    pub(crate) async fn names(&self, cluster: &Cluster) -> Result<Vec<String>> {
        if self.are_named() {
            return Ok(BTreeSet::from_iter(self.nodes.clone()).into_iter().collect());
        }
        if !(self.all || self.departed || self.pending || self.selector.is_some()) {
            bail!("give names of nodes, -l SELECTOR, --departed, --pending or --all");
        }
        let nodes = Arc::new(Mutex::new(HashMap::<String, (String, NodeSummary)>::new()));
        let (collected, projection) = (Arc::clone(&nodes), cluster.projection(Detail::WhatIsThere));
        let each = move |object| {
            if let Ok(node) = projection.node(object) {
                let mut nodes = collected.lock().unwrap_or_else(PoisonError::into_inner);
                nodes.insert(node.filed_under().to_owned(), (node.name.clone(), node.summary()));
            }
        };
        cluster.node_source(Detail::WhatIsThere).list(each).await?;
        let nodes = std::mem::take(&mut *nodes.lock().unwrap_or_else(PoisonError::into_inner));
        let names = Arc::new(Mutex::new(BTreeSet::new()));
        let collected = Arc::clone(&names);
        let (selector, departed, pending) = (self.selector.clone(), self.departed, self.pending);
        let each = move |object| {
            let Ok(decoded) = records::Found::from(object).content else { return };
            let record = decoded.record;
            let node = nodes.get(record.filed_under());
            let is_pending = || {
                let reason = node.map(|(_, node)| decide(node, Stored::Record(record.summary())));
                reason == Some(Reason::Returned)
            };
            let is_selected = selector.as_ref().is_none_or(|selector| selector.matches(&record.labels));
            if is_selected && (!departed || node.is_none()) && (!pending || is_pending()) {
                let name = node.map_or(record.filed_under(), |(name, _)| name);
                collected.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
            }
        };
        cluster.record_source().list(each).await?;
        let names = std::mem::take(&mut *names.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(names.into_iter().collect())
    }
}
