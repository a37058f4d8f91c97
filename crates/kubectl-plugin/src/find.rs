//! A Node and its record, by the Node's name.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use label_storage::restore::{Reason, decide};
use label_storage::{Node, Record, Rules, rules::IdentityBy, store::Stored};
use label_storage_runtime::{projection::Detail, records};

use crate::cluster::{Cluster, fold};
use crate::hints::quoted;

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
    /// The record, where there is one that can be read.
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

    /// The record, for a decision of the restorer's.
    pub(crate) fn stored(&self) -> Stored<&Record> {
        records::Found::stored(self.record.as_ref())
    }

    /// The restorer's reason to restore the Node or not, if it exists.
    pub(crate) fn restore_reason(&self) -> Option<Reason> {
        self.node.as_ref().map(|node| decide(&node.summary(), self.stored().map(Record::summary)))
    }

    /// Both as the storer sees them, for a decision of its own.
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
            false => bail!("{name:?} is not the name of a node"),
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
