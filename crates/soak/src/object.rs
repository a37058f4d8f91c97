//! Nodes and records as the API server keeps them in etcd: protobuf, in an envelope.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use anyhow::Context;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use label_storage::name::node_in_record_name;
use label_storage::node::RESTORED;
use label_storage::{Labels, Position, Record};
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

/// A storer's Lease at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenLease {
    /// Who holds it, if anybody does.
    pub(crate) holder: Option<String>,
    /// How far its holder has dealt with the deletions of the shard's Nodes, as it says.
    pub(crate) position: Option<Position>,
}

/// A shard: its index, and of how many it is one.
pub(crate) type Shard = (u32, NonZeroU32);

/// Which object an event in etcd is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A Node, by name.
    Node(String),
    /// The record of a Node, by the Node's name.
    Record(String),
    /// The Lease of a shard of the storers.
    Lease(Shard),
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
        if let Some(name) = key.strip_prefix(LEASES) {
            return storers_shard(name.strip_prefix(&self.namespace)?.strip_prefix('/')?).map(Subject::Lease);
        }
        let name = key.strip_prefix(CONFIG_MAPS)?.strip_prefix(&self.namespace)?.strip_prefix('/')?;
        own(node_in_record_name(name)?).map(Subject::Record)
    }
}

/// Where the API server keeps Nodes, as it has done since they were called minions.
const NODES: &str = "/registry/minions/";
const CONFIG_MAPS: &str = "/registry/configmaps/";
const LEASES: &str = "/registry/leases/";

/// Where the storers say how far they have come.
const POSITION: &str = "label-storage/position";
const PENDING: &str = "label-storage/pending";

/// Which shard this Lease is of: `label-storage.storer.0-of-3`, and perhaps a dot and more.
fn storers_shard(name: &str) -> Option<Shard> {
    let (index, rest) = name.strip_prefix("label-storage.storer.")?.split_once("-of-")?;
    let replicas = rest.split('.').next()?;
    Some((index.parse().ok()?, replicas.parse().ok()?))
}

/// Reads a Node.
pub(crate) fn node(bytes: &[u8], revision: u64) -> anyhow::Result<SeenNode> {
    let Node { meta } = unwrapped(bytes)?;
    let mut meta = meta.context("an object without metadata")?;
    let marker = meta.annotations.remove(RESTORED);
    Ok(SeenNode { uid: meta.uid, revision, labels: meta.labels, marker })
}

/// Reads a Lease.
pub(crate) fn lease(bytes: &[u8]) -> anyhow::Result<SeenLease> {
    let Lease { meta, spec } = unwrapped(bytes)?;
    let meta = meta.context("an object without metadata")?;
    let version = meta.annotations.get(POSITION).map(|text| text.parse()).transpose()?;
    let pending = meta.annotations.get(PENDING).map(|text| serde_json::from_str(text)).transpose()?;
    let position = version.map(|version| Position { version, pending: pending.unwrap_or_default() });
    let holder = spec.and_then(|spec| spec.holder).filter(|holder| !holder.is_empty());
    Ok(SeenLease { holder, position })
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
struct Lease {
    #[prost(message, optional, tag = "1")]
    meta: Option<Meta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<LeaseSpec>,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseSpec {
    #[prost(string, optional, tag = "1")]
    holder: Option<String>,
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
        let three = NonZeroU32::new(3).expect("not zero");
        for (key, subject) in [
            ("/registry/minions/ns.a", Some(Subject::Node("ns.a".to_owned()))),
            ("/registry/minions/another", None),
            ("/registry/configmaps/ns/label-storage.ns.a", Some(Subject::Record("ns.a".to_owned()))),
            ("/registry/configmaps/ns/kube-root-ca.crt", None),
            ("/registry/configmaps/ns2/label-storage.ns.a", None),
            ("/registry/leases/ns/storer-0", None),
            ("/registry/leases/ns/label-storage.storer.1-of-3.0a1b2c3d", Some(Subject::Lease((1, three)))),
            ("/registry/leases/ns/label-storage.storer.1-of-3", Some(Subject::Lease((1, three)))),
            ("/registry/leases/ns/label-storage.restorer.1-of-3", None),
            ("/registry/leases/ns2/label-storage.storer.1-of-3", None),
        ] {
            assert_eq!(place.subject(key), subject, "{key}");
        }
    }
}
