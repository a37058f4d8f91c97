//! A Node and its record, by the Node's name.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1 as core;
use kube::{Api, ResourceExt, api::ListParams};
use label_storage::restore::{Reason, decide};
use label_storage::{Node, Record, ResourceVersion, Rules, rules::IdentityBy, store::Stored};
use label_storage_runtime::{call, projection::Detail, records};

use crate::cluster::{Cluster, fold, fold_with_version};
use crate::hints::quoted;

pub(crate) const NOT_DEPARTED: &str =
    "no storer has stored the deletion of the node yet, so its final labels may be missing";

/// A Node and its record. The Node was read first and the record last, as the restorer does it.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) name: String,
    /// The key of its record.
    pub(crate) filed_under: String,
    /// The whole Node, if it exists.
    pub(crate) node: Option<Node>,
    /// The ConfigMap, if it exists; not seen through any rules.
    pub(crate) record: Option<records::Found>,
}

impl Found {
    /// The record, if it exists and can be read.
    pub(crate) fn record(&self) -> Option<&Record> {
        self.require_record().ok()
    }

    pub(crate) fn require_record(&self) -> Result<&Record> {
        match self.record.as_ref().map(|found| &found.content) {
            Some(Ok(decoded)) => Ok(&decoded.record),
            Some(Err(error)) => bail!("the record of node {} can't be used: {error}", self.name),
            None => bail!("nothing is stored for node {}", self.name),
        }
    }

    /// The record, for the decision functions of the restorer.
    pub(crate) fn stored(&self) -> Stored<&Record> {
        records::Found::stored(self.record.as_ref())
    }

    /// The restorer's reason to restore the Node or not, if it exists.
    pub(crate) fn restore_reason(&self) -> Option<Reason> {
        self.node.as_ref().map(|node| decide(&node.summary(), self.stored().map(Record::summary)))
    }

    /// True if the Node was deleted and no storer has stored that yet.
    pub(crate) fn is_departing(&self) -> bool {
        let record = self.record().filter(|_| self.node.is_none());
        record.is_some_and(|record| record.uid.is_some() && record.departed_at.is_none())
    }

    /// Both as the storer sees them, for its decision functions.
    pub(crate) fn seen_by_storer(&self, rules: &Rules) -> (Option<Node>, Option<records::Found>) {
        let node = self.node.clone().map(|node| node.seen_through(rules));
        let record = self.record.clone().map(|record| record.seen_through(rules, node.as_ref()));
        (node, record)
    }
}

impl Cluster {
    /// Finds a Node and its record, either of which may be missing. A record can also be named by its key
    /// (`providerID=…`): several Nodes may have had the same name, and a Node may have another one now.
    pub(crate) async fn find(&self, name: &str) -> Result<Found> {
        let (is_key, is_by_name) = (name.contains('='), self.rules.identity == IdentityBy::Name);
        let node_name = match is_key {
            true if is_by_name => None,
            true => self.claimants(name).await?.0.into_iter().next(),
            false if is_name(name) => Some(name.to_owned()),
            false => bail!("{name:?} is not a valid node name"),
        };
        let node = match &node_name {
            Some(name) => self.node_source(Detail::WhatIsThere).get_node(name).await?,
            None => None,
        };
        let node = node.filter(|node| !is_key || node.filed_under() == name);
        let filed_under = match &node {
            _ if is_key || is_by_name => name.to_owned(),
            Some(node) if !node.extras.is_unidentified => node.filed_under().to_owned(),
            _ => match self.filed_for(name).await? {
                Some(key) if node.is_none() => return Box::pin(self.find(&key)).await,
                key => key.unwrap_or_else(|| name.to_owned()),
            },
        };
        let record = records::get(&self.records, &filed_under).await?;
        let recorded = record.as_ref().and_then(|found| found.content.as_ref().ok());
        let recorded = recorded.map_or(name, |decoded| &decoded.record.node);
        let name = node.as_ref().map_or(recorded, |node| &node.name).to_owned();
        Ok(Found { name, filed_under, node, record })
    }

    /// Finds a Node and its record; an error if both are missing.
    pub(crate) async fn find_known(&self, name: &str) -> Result<Found> {
        let found = self.find(name).await?;
        if found.node.is_none() && found.record.is_none() {
            let (namespace, get) = (&self.namespace, self.hints.plugin("get"));
            bail!("there is no node {name:?} and no record of one in namespace {namespace}: see `{get}`");
        }
        Ok(found)
    }

    /// A version of the cluster at which the Node did not exist; `None` if it exists. An error if several
    /// Nodes have the identity of the record.
    pub(crate) async fn absence(&self, found: &Found) -> Result<Option<ResourceVersion>> {
        let is_by_name = self.rules.identity == IdentityBy::Name;
        let key = if is_by_name { &found.name } else { &found.filed_under };
        let (names, version) = self.claimants(key).await?;
        if names.len() > 1 {
            bail!("nodes {} have the same identity, {key}: delete all but one of them", names.join(" and "));
        }
        Ok(names.is_empty().then_some(version))
    }

    /// The Nodes with the identity of this record, and the version of the cluster, which only a list has.
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
        // A running storer needs 5 s at most. If it has just failed, another one has to adopt its shard first.
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
            bail!(
                "{NOT_DEPARTED}: check that a storer runs (`{status}`) and try again, or give --force to continue without"
            );
        }
        Ok(found)
    }

    /// The key of the record that was made from an absent Node of this name.
    async fn filed_for(&self, name: &str) -> Result<Option<String>> {
        let wanted = name.to_owned();
        let all = fold(self.record_source(), BTreeSet::new(), move |keys, object| {
            let record = records::Found::from(object).content.ok().map(|decoded| decoded.record);
            let record = record.filter(|record| record.node == wanted);
            keys.extend(record.and_then(|record| record.more.identity));
        });
        let mut keys = all.await?;
        if keys.len() > 1 {
            let all: Vec<_> = keys.iter().map(|key| quoted(key)).collect();
            bail!("several records were made from nodes named {name}: choose one of {}", all.join(", "));
        }
        Ok(keys.pop_first())
    }
}

/// True if a Node can have this name.
pub(crate) fn is_name(text: &str) -> bool {
    let is_part = |part: &str| {
        let is_allowed = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        !part.is_empty() && !part.starts_with('-') && !part.ends_with('-') && part.bytes().all(is_allowed)
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_be_a_name_is_not_asked_for() {
        for name in ["a", "node-1", "ip-10-0-1-23.ec2.internal", "1"] {
            assert!(is_name(name), "{name}");
        }
        let long = "n".repeat(254);
        for text in
            ["", "..", "../pods", "a b", "a/b", "a?watch=1", "-a", "a-", "a..b", "A", "a_b", "ä", &long]
        {
            assert!(!is_name(text), "{text}");
        }
    }
}
