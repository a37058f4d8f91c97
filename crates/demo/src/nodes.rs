//! Nodes, their records, and the labels that they lack.

use std::collections::BTreeMap;

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use label_storage::name::record_name;
use label_storage::{Labels, Record};
use serde_json::json;

use crate::stage::NAMESPACE;

/// The number of requests in flight while many nodes are changed.
const AT_ONCE: usize = 50;

/// A machine, and the labels that its Node should have.
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) labels: Labels,
}

impl Machine {
    pub(crate) fn new<const N: usize>(name: impl Into<String>, labels: [(&str, String); N]) -> Self {
        let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        Self { name: name.into(), labels }
    }

    /// The Node as a kubelet registers it: without the labels that a person sets.
    fn bare_node(&self) -> Node {
        let own = [("hostname", self.name.as_str()), ("os", "linux"), ("arch", "amd64")];
        let labels = own.map(|(key, value)| (format!("kubernetes.io/{key}"), value.to_owned()));
        let metadata = ObjectMeta {
            name: Some(self.name.clone()),
            labels: Some(labels.into_iter().collect()),
            ..ObjectMeta::default()
        };
        Node { metadata, ..Node::default() }
    }

    /// Adds a line for each label that `found` lacks, or has with another value.
    fn missing_from(&self, found: &Labels, lines: &mut Vec<String>) {
        for (key, value) in &self.labels {
            match found.get(key) {
                Some(same) if same == value => {}
                Some(other) => lines.push(format!("{}: {key} is {other:?} and not {value:?}", self.name)),
                None => lines.push(format!("{}: {key}={value}", self.name)),
            }
        }
    }
}

/// The number of machines with all their labels, and the labels that the others lack.
pub(crate) struct Comparison {
    pub(crate) complete: u64,
    pub(crate) missing: Vec<String>,
}

/// Changes Nodes, and reads Nodes and records.
pub(crate) struct Cluster {
    nodes: Api<Node>,
    records: Api<ConfigMap>,
}

impl Cluster {
    pub(crate) fn new(client: &Client) -> Self {
        Self { nodes: Api::all(client.clone()), records: Api::namespaced(client.clone(), NAMESPACE) }
    }

    /// Creates the Nodes without the labels of their machines.
    pub(crate) async fn create_bare(&self, machines: &[Machine]) -> anyhow::Result<()> {
        each(machines, async |machine| {
            self.nodes.create(&PostParams::default(), &machine.bare_node()).await.map(drop)
        })
        .await
    }

    /// Adds the labels of the machines to their Nodes, as `kubectl label` does.
    pub(crate) async fn label(&self, machines: &[Machine]) -> anyhow::Result<()> {
        each(machines, async |machine| {
            let patch = Patch::Merge(json!({ "metadata": { "labels": machine.labels } }));
            self.nodes.patch_metadata(&machine.name, &PatchParams::default(), &patch).await.map(drop)
        })
        .await
    }

    pub(crate) async fn delete(&self, machines: &[Machine]) -> anyhow::Result<()> {
        each(machines, async |machine| {
            self.nodes.delete(&machine.name, &DeleteParams::default()).await.map(drop)
        })
        .await
    }

    pub(crate) async fn record(&self, machine: &Machine) -> anyhow::Result<ConfigMap> {
        let name = record_name(&machine.name);
        self.records.get(&name).await.with_context(|| format!("reading ConfigMap {name}"))
    }

    /// Compares every label of every machine with its Node.
    pub(crate) async fn on_nodes(&self, machines: &[Machine]) -> anyhow::Result<Comparison> {
        let nodes = self.nodes.list_metadata(&ListParams::default()).await.context("listing nodes")?;
        let found =
            nodes.items.into_iter().map(|mut node| (node.name_any(), std::mem::take(node.labels_mut())));
        Ok(compare(machines, &found.collect()))
    }

    /// Compares every label of every machine with its record.
    pub(crate) async fn in_records(&self, machines: &[Machine]) -> anyhow::Result<Comparison> {
        let records = self.records.list(&ListParams::default()).await.context("listing ConfigMaps")?;
        // The namespace also has ConfigMaps that are not records, such as the cluster's root certificate.
        let decoded = records.items.iter().filter_map(|record| Record::decode(record).ok());
        let found = decoded.map(|decoded| (decoded.record.node, decoded.record.labels));
        Ok(compare(machines, &found.collect()))
    }
}

fn compare(machines: &[Machine], found: &BTreeMap<String, Labels>) -> Comparison {
    let mut comparison = Comparison { complete: 0, missing: Vec::new() };
    for machine in machines {
        let before = comparison.missing.len();
        let nothing = Labels::new();
        machine.missing_from(found.get(&machine.name).unwrap_or(&nothing), &mut comparison.missing);
        comparison.complete += u64::from(comparison.missing.len() == before);
    }
    comparison
}

async fn each(
    machines: &[Machine],
    change: impl AsyncFn(&Machine) -> Result<(), kube::Error>,
) -> anyhow::Result<()> {
    stream::iter(machines)
        .map(|machine| async {
            let changed = change(machine).await;
            changed.with_context(|| format!("changing node {}", machine.name))
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<const N: usize>(nodes: [Machine; N]) -> BTreeMap<String, Labels> {
        nodes.into_iter().map(|node| (node.name, node.labels)).collect()
    }

    #[test]
    fn every_label_of_every_machine_is_compared() {
        let label = |value: &str| ("team", value.to_owned());
        let machines = ["whole", "bare", "other", "gone"]
            .map(|name| Machine::new(name, [label("search"), ("role", String::new())]));
        let nodes = found([
            Machine::new("whole", [label("search"), ("role", String::new()), ("more", String::new())]),
            Machine::new("bare", []),
            Machine::new("other", [label("storage"), ("role", String::new())]),
        ]);
        let comparison = compare(&machines, &nodes);
        assert_eq!(comparison.complete, 1);
        assert_eq!(
            comparison.missing,
            [
                "bare: role=",
                "bare: team=search",
                "other: team is \"storage\" and not \"search\"",
                "gone: role=",
                "gone: team=search",
            ]
        );
    }
}
