//! Decodes Nodes, records and Leases from etcd: protobuf in an envelope.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use anyhow::Context;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use label_storage::item::Item;
use label_storage::name::is_record_name;
use label_storage::node::{RESTORED, STARTUP_TAINT};
use label_storage::{Labels, Position, Record, Rules};
use prost::Message;

/// The first bytes of every object.
const MAGIC: &[u8] = b"k8s\0";

/// A version of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenNode {
    /// The name of the Node.
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) revision: u64,
    /// The items that the rules keep, by name (see [`Item`]).
    pub(crate) kept: Labels,
    /// The labels, annotations, taints and cordon that the rules do not keep.
    pub(crate) rest: Labels,
    /// The restorer's marker, if there is one.
    pub(crate) marker: Option<String>,
    /// True while it has the start-up taint.
    pub(crate) has_startup_taint: bool,
}

/// A version of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenRecord {
    pub(crate) revision: u64,
    /// The content, as the daemons decode it.
    pub(crate) record: Record,
}

/// A version of a storer's Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenLease {
    pub(crate) holder: Option<String>,
    /// The resume position of the shard.
    pub(crate) position: Option<Position>,
}

/// A shard: its index, and the number of shards.
pub(crate) type Shard = (u32, NonZeroU32);

/// The object of an event in etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A Node, by name.
    Node(String),
    /// A record, by the name of its ConfigMap.
    Record(String),
    /// The Lease of a shard of the storers.
    Lease(Shard),
}

/// The namespace and the names of the objects of one soak.
#[derive(Debug, Clone)]
pub struct Place {
    /// The namespace of the records.
    pub namespace: String,
    /// The prefix of the names of Nodes.
    pub prefix: String,
}

impl Place {
    /// The range of keys to watch, without its end. There are few other objects in between.
    pub(crate) fn range(&self) -> (String, String) {
        (format!("{CONFIG_MAPS}{}/", self.namespace), "/registry/minions0".to_owned())
    }

    /// The object at this key.
    pub(crate) fn subject(&self, key: &str) -> Option<Subject> {
        let own = |node: &str| node.starts_with(&self.prefix).then(|| node.to_owned());
        if let Some(node) = key.strip_prefix(NODES) {
            return own(node).map(Subject::Node);
        }
        if let Some(name) = key.strip_prefix(LEASES) {
            return storers_shard(name.strip_prefix(&self.namespace)?.strip_prefix('/')?).map(Subject::Lease);
        }
        let name = key.strip_prefix(CONFIG_MAPS)?.strip_prefix(&self.namespace)?.strip_prefix('/')?;
        is_record_name(name).then(|| Subject::Record(name.to_owned()))
    }
}

/// The prefix of the keys of Nodes in etcd. Nodes were once called minions.
const NODES: &str = "/registry/minions/";
const CONFIG_MAPS: &str = "/registry/configmaps/";
const LEASES: &str = "/registry/leases/";

/// The annotations of a storer's Lease: its resume position, and the pending deletions before that.
const POSITION: &str = "label-storage/position";
const PENDING: &str = "label-storage/pending";

/// The shard of a Lease: `label-storage.storer.0-of-3`, perhaps with a suffix after a dot.
fn storers_shard(name: &str) -> Option<Shard> {
    let (index, rest) = name.strip_prefix("label-storage.storer.")?.split_once("-of-")?;
    let replicas = rest.split('.').next()?;
    Some((index.parse().ok()?, replicas.parse().ok()?))
}

/// Reads a Node, and sorts its items by the rules.
pub(crate) fn node(bytes: &[u8], revision: u64, rules: &Rules) -> anyhow::Result<SeenNode> {
    let Node { meta, spec } = unwrapped(bytes)?;
    let mut meta = meta.context("an object without metadata")?;
    let mut spec = spec.unwrap_or_default();
    let marker = meta.annotations.remove(RESTORED);
    let startup_taint = spec.taints.extract_if(.., |taint| taint.key == STARTUP_TAINT);
    let has_startup_taint = startup_taint.count() > 0;
    let mut all = meta.labels;
    let annotations = meta.annotations.into_iter();
    all.extend(annotations.map(|(key, value)| (Item::Annotation(&key).to_string(), value)));
    let taints = spec.taints.into_iter();
    all.extend(
        taints.map(|Taint { key, value, effect }| {
            (Item::Taint { effect: &effect, key: &key }.to_string(), value)
        }),
    );
    all.extend(spec.is_unschedulable.then(|| (Item::Cordon.to_string(), "true".to_owned())));
    let (kept, rest) = all.into_iter().partition(|(name, _)| rules.keeps(name, None));
    Ok(SeenNode { name: meta.name, uid: meta.uid, revision, kept, rest, marker, has_startup_taint })
}

pub(crate) fn lease(bytes: &[u8]) -> anyhow::Result<SeenLease> {
    let Lease { meta, spec } = unwrapped(bytes)?;
    let meta = meta.context("an object without metadata")?;
    let version = meta.annotations.get(POSITION).map(|text| text.parse()).transpose()?;
    let pending = meta.annotations.get(PENDING).map(|text| serde_json::from_str(text)).transpose()?;
    let position = version.map(|version| Position { version, pending: pending.unwrap_or_default() });
    let holder = spec.and_then(|spec| spec.holder).filter(|holder| !holder.is_empty());
    Ok(SeenLease { holder, position })
}

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
    #[prost(message, optional, tag = "2")]
    spec: Option<NodeSpec>,
}

#[derive(Clone, PartialEq, Message)]
struct NodeSpec {
    #[prost(bool, tag = "4")]
    is_unschedulable: bool,
    #[prost(message, repeated, tag = "5")]
    taints: Vec<Taint>,
}

#[derive(Clone, PartialEq, Message)]
struct Taint {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
    #[prost(string, tag = "3")]
    effect: String,
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
            (
                "/registry/configmaps/ns/label-storage.ns.a",
                Some(Subject::Record("label-storage.ns.a".to_owned())),
            ),
            (
                "/registry/configmaps/ns/label-storage-id.a",
                Some(Subject::Record("label-storage-id.a".to_owned())),
            ),
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

    #[test]
    fn a_node_is_what_the_rules_keep_of_it_and_the_rest() {
        let named = |names: [&str; 2]| names.map(|name| (name.to_owned(), "1".to_owned())).into();
        let taint =
            |key: &str| Taint { key: key.to_owned(), value: "1".to_owned(), effect: "NoSchedule".to_owned() };
        let mut meta = Meta { name: "a".to_owned(), uid: "u1".to_owned(), ..Meta::default() };
        (meta.labels, meta.annotations) = (named(["pool", "tier"]), named([RESTORED, "note"]));
        let taints = vec![taint("dedicated"), taint(STARTUP_TAINT), taint("node.kubernetes.io/not-ready")];
        let spec = NodeSpec { is_unschedulable: true, taints };
        let raw = Node { meta: Some(meta), spec: Some(spec) }.encode_to_vec();
        let bytes = [MAGIC, &Envelope { raw }.encode_to_vec()].concat();
        let rules = Rules::from_yaml("{labels: {exclude: [tier]}, taints: {include: ['*']}, cordon: true}");
        let seen = node(&bytes, 7, &rules.expect("rules")).expect("a node");
        let names = |labels: &Labels| labels.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&seen.kept), ["cordon:", "pool", "taint:NoSchedule:dedicated"]);
        let rest = ["annotation:note", "taint:NoSchedule:node.kubernetes.io/not-ready", "tier"];
        assert_eq!(names(&seen.rest), rest);
        assert_eq!((seen.marker.as_deref(), seen.has_startup_taint), (Some("1"), true));
    }
}
