//! A Node and its record, by the Node's name.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use label_storage::record::Decoded;
use label_storage::rules::IdentityBy;
use label_storage::store::Stored;
use label_storage::{Node, Record, Rules};
use label_storage_runtime::projection::Detail;
use label_storage_runtime::records;

use crate::cluster::{Cluster, fold};
use crate::hints::quoted;

/// A Node and its record. The Node was read first and the record last, as the restorer does it.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// The Node's name.
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
        match self.stored() {
            Stored::Record(record) => Some(record),
            Stored::Nothing | Stored::Unreadable => None,
        }
    }

    /// The same, and an error where there is none.
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

    /// Both as the storer sees them, for a decision of its own.
    pub(crate) fn seen_by_storer(&self, rules: &Rules) -> (Option<Node>, Option<records::Found>) {
        let node = self.node.clone().map(|node| node.seen_through(rules));
        let record = self.record.clone().map(|record| record.seen_through(rules, node.as_ref()));
        (node, record)
    }
}

impl Cluster {
    /// Finds a Node and its record, either of which may be missing. A record can also be named by its key (`providerID=…`): several
    /// records may have been made from Nodes of one name.
    pub(crate) async fn find(&self, name: &str) -> Result<Found> {
        if name.contains('=') {
            return self.find_filed(name).await;
        }
        if !is_name(name) {
            bail!("{name:?} is not the name of a node");
        }
        let node = self.node_source(Detail::WhatIsThere).get_node(name).await?;
        let filed_under = match &node {
            _ if self.rules.identity == IdentityBy::Name => name.to_owned(),
            Some(node) if !node.extras.is_unidentified => node.filed_under().to_owned(),
            _ => match (self.filed_for(name).await?, &node) {
                (Some(identity), None) => return self.find_filed(&identity).await,
                (Some(identity), Some(_)) => identity,
                (None, _) => name.to_owned(),
            },
        };
        let record = records::get(&self.records, &filed_under).await?;
        Ok(Found { name: name.to_owned(), filed_under, node, record })
    }

    /// Finds a Node and its record; an error if both are missing.
    pub(crate) async fn find_known(&self, name: &str) -> Result<Found> {
        let found = self.find(name).await?;
        if found.node.is_none() && found.record.is_none() {
            bail!(
                "there is no node {name:?} and no record of one in namespace {}: `{}` lists the records",
                self.namespace,
                self.hints.plugin("get")
            );
        }
        Ok(found)
    }

    /// Finds a record by its key. Its Node may have another name than the record says.
    async fn find_filed(&self, filed_under: &str) -> Result<Found> {
        // The Node first, so that the record is not older than it.
        let node = match self.claimants(filed_under).await?.0.first() {
            Some(name) => self.node_source(Detail::WhatIsThere).get_node(name).await?,
            None => None,
        };
        let node = node.filter(|node| node.filed_under() == filed_under);
        let record = records::get(&self.records, filed_under).await?;
        let recorded = match records::Found::stored(record.as_ref()) {
            Stored::Record(record) => record.node.clone(),
            Stored::Nothing | Stored::Unreadable => filed_under.to_owned(),
        };
        let name = node.as_ref().map_or(recorded, |node| node.name.clone());
        Ok(Found { name, filed_under: filed_under.to_owned(), node, record })
    }

    /// The key of the record that was made from an absent Node of this name.
    async fn filed_for(&self, name: &str) -> Result<Option<String>> {
        let wanted = name.to_owned();
        let mut found = fold(self.record_source(), BTreeSet::new(), move |found, object| {
            if let Ok(Decoded { record, .. }) = records::Found::from(object).content
                && record.node == wanted
            {
                found.extend(record.more.identity);
            }
        })
        .await?;
        if found.len() > 1 {
            let all: Vec<_> = found.iter().map(|identity| quoted(identity)).collect();
            bail!("several records were made from nodes named {name}: choose one of {}", all.join(", "));
        }
        Ok(found.pop_first())
    }
}

/// True if a Node can have this name.
pub(crate) fn is_name(text: &str) -> bool {
    let is_end = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        bytes.first().is_some_and(|first| is_end(*first))
            && bytes.last().is_some_and(|last| is_end(*last))
            && bytes.iter().all(|byte| is_end(*byte) || *byte == b'-')
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
