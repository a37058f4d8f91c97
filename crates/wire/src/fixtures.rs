//! Answers as the API server writes them, for tests: whole objects in protobuf, with the fields that are not read here.
//!
//! The field numbers are those of `generated.proto` in `k8s.io/api/core/v1` and `k8s.io/apimachinery`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use prost::Message;

use crate::{NodePart, Object, Status};

/// An object, and the other fields that the API server sends with it.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// The fields that are read.
    pub object: Object,
    /// Annotations that were not requested.
    pub foreign_annotations: Vec<(String, String)>,
    /// The content of `managedFields`.
    pub managed_fields: Vec<u8>,
    /// The value of the numbers that are not read.
    pub number: i64,
}

impl From<Object> for Sample {
    fn from(object: Object) -> Self {
        Self { object, ..Self::default() }
    }
}

/// The fields around the items of a list.
#[derive(Debug, Clone)]
pub struct Head {
    /// The kind in the envelope, as in `NodeList`.
    pub kind: &'static str,
    /// The version of the list.
    pub resource_version: String,
    /// The `continue` token.
    pub continues: String,
    /// The `remainingItemCount`.
    pub remaining: Option<i64>,
    /// True if these fields follow the items.
    pub is_last: bool,
}

/// The head of a whole list of metadata.
pub fn head() -> Head {
    Head {
        kind: "PartialObjectMetadataList",
        resource_version: "1000".to_owned(),
        continues: String::new(),
        remaining: None,
        is_last: false,
    }
}

/// A list, in its envelope.
pub fn list(head: &Head, samples: &[Sample]) -> Vec<u8> {
    list_of_items(head, samples.iter().map(item).collect())
}

/// A list of these items, which may be malformed, in its envelope.
pub fn list_of_items(head: &Head, items: Vec<Vec<u8>>) -> Vec<u8> {
    let Head { kind, resource_version, continues, remaining, is_last } = head.clone();
    let meta = ListMeta {
        resource_version,
        r#continue: continues,
        remaining_item_count: remaining,
        ..ListMeta::default()
    };
    let mut parts = [
        List { metadata: Some(meta), ..List::default() },
        List { items, ..List::default() },
        List { junk: Some(junk(7)), ..List::default() },
    ];
    if is_last {
        parts.reverse();
    }
    enveloped(kind, parts.iter().flat_map(Message::encode_to_vec).collect())
}

/// An object of this kind, in its envelope.
pub fn object(kind: &str, sample: &Sample) -> Vec<u8> {
    enveloped(kind, item(sample))
}

/// An event of a watch, from its type and the object or status in it, without a length prefix.
pub fn event(r#type: &str, raw: Vec<u8>) -> Vec<u8> {
    WatchEvent { r#type: r#type.to_owned(), object: Some(RawExtension { raw }) }.encode_to_vec()
}

/// An event as in the stream of a watch: with a length prefix.
pub fn frame(event: &[u8]) -> Vec<u8> {
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], event].concat()
}

/// A status, in its envelope.
pub fn status(status: &Status) -> Vec<u8> {
    let message = StatusMessage {
        metadata: Some(ListMeta::default()),
        status: "Failure".to_owned(),
        message: status.message.clone(),
        reason: status.reason.clone(),
        details: status.retry_after_seconds.map(|seconds| StatusDetails {
            name: "nodes".to_owned(),
            retry_after_seconds: seconds.try_into().unwrap_or(i32::MAX),
        }),
        code: status.code.into(),
    };
    enveloped("Status", message.encode_to_vec())
}

/// An envelope as the API server writes it: `contentEncoding` and `contentType` are present and empty.
pub fn enveloped(kind: &str, raw: Vec<u8>) -> Vec<u8> {
    sealed(&Unknown {
        type_meta: Some(TypeMeta { api_version: "v1".to_owned(), kind: kind.to_owned() }),
        raw: Some(raw),
        content_encoding: Some(String::new()),
        content_type: Some(String::new()),
    })
}

pub(crate) fn sealed(envelope: &Unknown) -> Vec<u8> {
    [&b"k8s\0"[..], &envelope.encode_to_vec()].concat()
}

fn junk(number: i64) -> Junk {
    Junk { varint: number, fixed_64: number, fixed_32: 1.5, bytes: vec![0xff; 40] }
}

/// A Node or a ConfigMap, without an envelope.
pub fn item(Sample { object, foreign_annotations, managed_fields, number }: &Sample) -> Vec<u8> {
    let object = object.clone();
    let time = Time { seconds: *number, nanos: 7 };
    let entry = ManagedFields {
        manager: "kubelet".to_owned(),
        operation: "Update".to_owned(),
        time: Some(time),
        fields: managed_fields.clone(),
    };
    let metadata = ObjectMeta {
        name: object.name,
        namespace: "default".to_owned(),
        uid: object.uid,
        resource_version: object.resource_version,
        generation: *number,
        // Go writes a missing time as a message without fields.
        creation_timestamp: Some(Time {
            seconds: object.created_at.map_or(0, Timestamp::as_second),
            nanos: if object.created_at.is_some() { 7 } else { 0 },
        }),
        deletion_timestamp: object.is_terminating.then_some(time),
        labels: object.labels,
        annotations: object.annotations.into_iter().chain(foreign_annotations.clone()).collect(),
        finalizers: vec!["example.com/keep".to_owned()],
        managed_fields: vec![entry.clone(), entry],
        junk: Some(junk(*number)),
    };
    match object.node {
        Some(part) => node(metadata, part, *number).encode_to_vec(),
        None => {
            let (data, binary_data) = (object.data, object.binary_data);
            let junk = Some(junk(*number));
            ConfigMap { metadata: Some(metadata), data, binary_data, immutable: Some(true), junk }
                .encode_to_vec()
        }
    }
}

fn node(metadata: ObjectMeta, part: NodePart, number: i64) -> Node {
    let taints = part.taints.into_iter().map(|taint| Taint {
        key: taint.key,
        value: taint.value,
        effect: taint.effect,
        time_added: taint
            .time_added
            .map(|text| Time { seconds: text.parse().map_or(0, Timestamp::as_second), nanos: 0 }),
        junk: Some(junk(number)),
    });
    let spec = NodeSpec {
        pod_cidr: "10.0.0.0/24".to_owned(),
        external_id: "not this".to_owned(),
        provider_id: Some(part.provider_id),
        unschedulable: Some(part.is_unschedulable),
        taints: taints.collect(),
        pod_cidrs: vec!["10.0.0.0/24".to_owned()],
        junk: Some(junk(number)),
    };
    let info = NodeSystemInfo {
        machine_id: "nor this".to_owned(),
        system_uuid: Some(part.system_uuid),
        boot_id: "nor this".to_owned(),
        junk: Some(junk(number)),
    };
    let status = NodeStatus {
        capacity: [("cpu".to_owned(), Quantity { string: "8".to_owned() })].into(),
        phase: "Running".to_owned(),
        node_info: Some(info),
        images: vec![ContainerImage { names: vec!["example.com/image".to_owned()], size_bytes: number }],
        junk: Some(junk(number)),
    };
    Node { metadata: Some(metadata), spec: Some(spec), status: Some(status), junk: Some(junk(number)) }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Unknown {
    #[prost(message, optional, tag = "1")]
    pub(crate) type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(crate) raw: Option<Vec<u8>>,
    #[prost(string, optional, tag = "3")]
    pub(crate) content_encoding: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub(crate) content_type: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

#[derive(Clone, PartialEq, Message)]
struct ListMeta {
    #[prost(string, tag = "1")]
    self_link: String,
    #[prost(string, tag = "2")]
    resource_version: String,
    #[prost(string, tag = "3")]
    r#continue: String,
    #[prost(int64, optional, tag = "4")]
    remaining_item_count: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ListMeta>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    items: Vec<Vec<u8>>,
    #[prost(message, optional, tag = "99")]
    junk: Option<Junk>,
}

#[derive(Clone, PartialEq, Message)]
struct ConfigMap {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(btree_map = "string, string", tag = "2")]
    data: BTreeMap<String, String>,
    #[prost(btree_map = "string, bytes", tag = "3")]
    binary_data: BTreeMap<String, Vec<u8>>,
    #[prost(bool, optional, tag = "4")]
    immutable: Option<bool>,
    #[prost(message, optional, tag = "99")]
    junk: Option<Junk>,
}

#[derive(Clone, PartialEq, Message)]
struct ObjectMeta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(int64, tag = "7")]
    generation: i64,
    #[prost(message, optional, tag = "8")]
    creation_timestamp: Option<Time>,
    #[prost(message, optional, tag = "9")]
    deletion_timestamp: Option<Time>,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
    #[prost(string, repeated, tag = "14")]
    finalizers: Vec<String>,
    #[prost(message, repeated, tag = "17")]
    managed_fields: Vec<ManagedFields>,
    #[prost(message, optional, tag = "99")]
    junk: Option<Junk>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Time {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
struct ManagedFields {
    #[prost(string, tag = "1")]
    manager: String,
    #[prost(string, tag = "2")]
    operation: String,
    #[prost(message, optional, tag = "4")]
    time: Option<Time>,
    #[prost(bytes = "vec", tag = "7")]
    fields: Vec<u8>,
}

/// A field of each wire type, as a later version of Kubernetes may add.
#[derive(Clone, PartialEq, Message)]
struct Junk {
    #[prost(sint64, tag = "1")]
    varint: i64,
    #[prost(sfixed64, tag = "2")]
    fixed_64: i64,
    #[prost(float, tag = "3")]
    fixed_32: f32,
    #[prost(bytes = "vec", tag = "4")]
    bytes: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct WatchEvent {
    #[prost(string, tag = "1")]
    r#type: String,
    #[prost(message, optional, tag = "2")]
    object: Option<RawExtension>,
}

#[derive(Clone, PartialEq, Message)]
struct RawExtension {
    #[prost(bytes = "vec", tag = "1")]
    raw: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct StatusMessage {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ListMeta>,
    #[prost(string, tag = "2")]
    status: String,
    #[prost(string, tag = "3")]
    message: String,
    #[prost(string, tag = "4")]
    reason: String,
    #[prost(message, optional, tag = "5")]
    details: Option<StatusDetails>,
    #[prost(int32, tag = "6")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct StatusDetails {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "5")]
    retry_after_seconds: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<NodeSpec>,
    #[prost(message, optional, tag = "3")]
    status: Option<NodeStatus>,
    #[prost(message, optional, tag = "99")]
    junk: Option<Junk>,
}

#[derive(Clone, PartialEq, Message)]
struct NodeSpec {
    #[prost(string, tag = "1")]
    pod_cidr: String,
    #[prost(string, tag = "2")]
    external_id: String,
    // Go writes empty fields, too.
    #[prost(string, optional, tag = "3")]
    provider_id: Option<String>,
    #[prost(bool, optional, tag = "4")]
    unschedulable: Option<bool>,
    #[prost(message, repeated, tag = "5")]
    taints: Vec<Taint>,
    #[prost(string, repeated, tag = "7")]
    pod_cidrs: Vec<String>,
    #[prost(message, optional, tag = "99")]
    junk: Option<Junk>,
}

#[derive(Clone, PartialEq, Message)]
struct Taint {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
    #[prost(string, tag = "3")]
    effect: String,
    #[prost(message, optional, tag = "4")]
    time_added: Option<Time>,
    #[prost(message, optional, tag = "99")]
    junk: Option<Junk>,
}

#[derive(Clone, PartialEq, Message)]
struct NodeStatus {
    #[prost(btree_map = "string, message", tag = "1")]
    capacity: BTreeMap<String, Quantity>,
    #[prost(string, tag = "3")]
    phase: String,
    #[prost(message, optional, tag = "7")]
    node_info: Option<NodeSystemInfo>,
    #[prost(message, repeated, tag = "8")]
    images: Vec<ContainerImage>,
    #[prost(message, optional, tag = "99")]
    junk: Option<Junk>,
}

#[derive(Clone, PartialEq, Message)]
struct Quantity {
    #[prost(string, tag = "1")]
    string: String,
}

#[derive(Clone, PartialEq, Message)]
struct NodeSystemInfo {
    #[prost(string, tag = "1")]
    machine_id: String,
    #[prost(string, optional, tag = "2")]
    system_uuid: Option<String>,
    #[prost(string, tag = "3")]
    boot_id: String,
    #[prost(message, optional, tag = "99")]
    junk: Option<Junk>,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerImage {
    #[prost(string, repeated, tag = "1")]
    names: Vec<String>,
    #[prost(int64, tag = "2")]
    size_bytes: i64,
}
