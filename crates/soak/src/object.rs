//! Nodes and records as the API server keeps them in etcd: protobuf, in an envelope.

use std::collections::BTreeMap;

use anyhow::Context;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use label_storage::name::node_in_record_name;
use label_storage::node::RESTORED;
use label_storage::{Labels, Record};
use prost::Message;

/// What every object begins with.
const MAGIC: &[u8] = b"k8s\0";

/// A Node at one moment of its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenNode {
    /// Which incarnation.
    pub(crate) uid: String,
    /// When.
    pub(crate) revision: u64,
    /// Its labels.
    pub(crate) labels: Labels,
    /// The restorer's mark, if it has one.
    pub(crate) marker: Option<String>,
}

/// A record at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenRecord {
    /// When.
    pub(crate) revision: u64,
    /// What it says, as the daemons read it.
    pub(crate) record: Record,
}

/// Which object an event in etcd is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A Node, by name.
    Node(String),
    /// The record of a Node, by the Node's name.
    Record(String),
}

/// Where the objects of one soak are.
#[derive(Debug, Clone)]
pub struct Place {
    /// Where the records are.
    pub namespace: String,
    /// How the names of the Nodes begin.
    pub prefix: String,
}

impl Place {
    /// The keys to watch, from the first to before the last. What else lies in between is not many.
    pub(crate) fn range(&self) -> (String, String) {
        (format!("{CONFIG_MAPS}{}/", self.namespace), "/registry/minions0".to_owned())
    }

    /// What lies at this key.
    pub(crate) fn subject(&self, key: &str) -> Option<Subject> {
        let own = |node: &str| node.starts_with(&self.prefix).then(|| node.to_owned());
        if let Some(node) = key.strip_prefix(NODES) {
            return own(node).map(Subject::Node);
        }
        let name = key.strip_prefix(CONFIG_MAPS)?.strip_prefix(&self.namespace)?.strip_prefix('/')?;
        own(node_in_record_name(name)?).map(Subject::Record)
    }
}

/// Where the API server keeps Nodes, as it has done since they were called minions.
const NODES: &str = "/registry/minions/";
const CONFIG_MAPS: &str = "/registry/configmaps/";

/// Reads a Node.
pub(crate) fn node(bytes: &[u8], revision: u64) -> anyhow::Result<SeenNode> {
    let Node { meta } = unwrapped(bytes)?;
    let mut meta = meta.context("an object without metadata")?;
    let marker = meta.annotations.remove(RESTORED);
    Ok(SeenNode { uid: meta.uid, revision, labels: meta.labels, marker })
}

/// Reads a record.
pub(crate) fn record(bytes: &[u8], revision: u64) -> anyhow::Result<SeenRecord> {
    let RawConfigMap { meta, data } = unwrapped(bytes)?;
    let meta = meta.context("an object without metadata")?;
    let metadata = ObjectMeta {
        name: Some(meta.name),
        uid: Some(meta.uid),
        labels: Some(meta.labels),
        annotations: Some(meta.annotations),
        ..ObjectMeta::default()
    };
    let config_map = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
    let decoded = Record::decode(&config_map)?;
    anyhow::ensure!(decoded.damage.is_empty(), "a damaged record: {:?}", decoded.damage);
    Ok(SeenRecord { revision, record: decoded.record })
}

fn unwrapped<M: Message + Default>(bytes: &[u8]) -> anyhow::Result<M> {
    let envelope = bytes.strip_prefix(MAGIC).context("an object in another encoding than protobuf")?;
    Ok(M::decode(Envelope::decode(envelope)?.raw.as_slice())?)
}

#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(message, optional, tag = "1")]
    meta: Option<Meta>,
}

#[derive(Clone, PartialEq, Message)]
struct RawConfigMap {
    #[prost(message, optional, tag = "1")]
    meta: Option<Meta>,
    #[prost(btree_map = "string, string", tag = "2")]
    data: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct Meta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_whose_object_it_is() {
        let place = Place { namespace: "ns".to_owned(), prefix: "ns.".to_owned() };
        for (key, subject) in [
            ("/registry/minions/ns.a", Some(Subject::Node("ns.a".to_owned()))),
            ("/registry/minions/another", None),
            ("/registry/configmaps/ns/label-storage.ns.a", Some(Subject::Record("ns.a".to_owned()))),
            ("/registry/configmaps/ns/kube-root-ca.crt", None),
            ("/registry/configmaps/ns2/label-storage.ns.a", None),
            ("/registry/leases/ns/storer-0", None),
        ] {
            assert_eq!(place.subject(key), subject, "{key}");
        }
    }
}
