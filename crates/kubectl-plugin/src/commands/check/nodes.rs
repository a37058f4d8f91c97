//! Nodes: what they say of themselves, where it can't be used.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use label_storage::Node;
use label_storage::node::KEEP;
use label_storage::rules::Patterns;
use label_storage_runtime::call;
use label_storage_runtime::projection::Detail;

use super::{Checked, Finding};
use crate::cluster::Cluster;

/// How many are named.
const ENOUGH: usize = 5;

/// What was seen of all Nodes.
#[derive(Default)]
struct Tally {
    /// Those whose list of what to keep can't be read, and why.
    unread: Vec<(String, String)>,
    unread_count: usize,
    /// Those that don't have what they would be filed under.
    unidentified: Vec<String>,
    unidentified_count: usize,
    /// By what they are filed under, where that is not the name: the first of each.
    filed: HashMap<String, String>,
    /// Pairs that claim the same.
    contested: Vec<(String, String, String)>,
    contested_count: usize,
}

pub(super) async fn check(cluster: &Cluster) -> Checked {
    let tally = Arc::new(Mutex::new(Tally::default()));
    let (seen, eyes) = (Arc::clone(&tally), cluster.projection(Detail::WhatIsKept));
    let source = cluster.node_source(Detail::WhatIsKept);
    let listed = source.list(move |object| {
        // One that can't be read at all has no uid, or no version: no API server has such.
        if let Ok(node) = eyes.node(object) {
            seen.lock().unwrap_or_else(PoisonError::into_inner).see(node);
        }
    });
    let listed = listed.await;
    let tally = std::mem::take(&mut *tally.lock().unwrap_or_else(PoisonError::into_inner));
    let mut findings = tally.findings(&cluster.rules.identity.to_string());
    let summary = match listed {
        Ok(listed) => format!("{} nodes, and what they ask for can be read", listed.items),
        Err(call::Error { message, .. }) => {
            findings.push(Finding::unknown("what nodes ask for", message));
            String::new()
        }
    };
    Checked::new("nodes", summary, findings)
}

impl Tally {
    fn see(&mut self, node: Node) {
        if let Some(Err(error)) = node.keep_list().map(str::parse::<Patterns>) {
            self.unread_count += 1;
            if self.unread.len() < ENOUGH {
                self.unread.push((node.name.clone(), error.to_string()));
            }
        }
        if node.extras.is_unidentified {
            self.unidentified_count += 1;
            if self.unidentified.len() < ENOUGH {
                self.unidentified.push(node.name);
            }
        } else if let Some(identity) = node.extras.identity {
            match self.filed.entry(identity) {
                Entry::Vacant(place) => _ = place.insert(node.name),
                Entry::Occupied(first) => {
                    self.contested_count += 1;
                    if self.contested.len() < ENOUGH {
                        self.contested.push((first.get().clone(), node.name, first.key().clone()));
                    }
                }
            }
        }
    }

    fn findings(self, identity: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (node, error) in &self.unread {
            let message = format!(
                "node {node}: its annotation {KEEP} can't be read, so all its labels are kept: {error}"
            );
            findings.push(
                Finding::warning(message)
                    .mend(format!("kubectl annotate node {node} --overwrite {KEEP}=KEYS")),
            );
        }
        if self.unread_count > self.unread.len() {
            let more = self.unread_count - self.unread.len();
            findings.push(Finding::warning(format!(
                "and {more} more nodes whose annotation {KEEP} can't be read"
            )));
        }
        if self.unidentified_count > 0 {
            let message = format!(
                "{} nodes have no {identity}, by which the rules know nodes, such as {}: they are left alone",
                self.unidentified_count,
                self.unidentified.join(", ")
            );
            findings.push(
                Finding::warning(message)
                    .mend(format!("kubectl get node {} --output yaml", self.unidentified[0])),
            );
        }
        for (one, other, identity) in &self.contested {
            let message = format!(
                "nodes {one} and {other} both claim {identity}: nothing is stored of them, nor restored to them"
            );
            findings
                .push(Finding::error(message).mend(format!("kubectl get node {one} {other} --output yaml")));
        }
        if self.contested_count > self.contested.len() {
            let more = self.contested_count - self.contested.len();
            findings.push(Finding::error(format!("and {more} more nodes that claim what others claim")));
        }
        findings
    }
}
