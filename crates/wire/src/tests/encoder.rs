//! What the API server does: whole objects as protobuf and as JSON, with all that is not read here.

mod node;

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use prost::Message;
use serde_json::{Value, json};

use super::Sample;
use crate::{Format, Status};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Unknown {
    #[prost(message, optional, tag = "1")]
    pub(super) type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(super) raw: Option<Vec<u8>>,
    #[prost(string, optional, tag = "3")]
    pub(super) content_encoding: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub(super) content_type: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TypeMeta {
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

/// What stands around the items of a list.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) kind: &'static str,
    pub(super) resource_version: String,
    pub(super) continues: String,
    pub(super) remaining: Option<i64>,
    pub(super) is_last: bool,
}

pub(super) fn head() -> Head {
    Head {
        kind: "PartialObjectMetadataList",
        resource_version: "1000".to_owned(),
        continues: String::new(),
        remaining: None,
        is_last: false,
    }
}

pub(super) fn list(format: Format, head: &Head, samples: &[Sample]) -> Vec<u8> {
    let Head { kind, resource_version, continues, remaining, is_last } = head.clone();
    match format {
        Format::Protobuf => {
            let meta = ListMeta {
                resource_version,
                r#continue: continues,
                remaining_item_count: remaining,
                ..ListMeta::default()
            };
            let mut parts = [
                List { metadata: Some(meta), ..List::default() },
                List { items: samples.iter().map(item).collect(), ..List::default() },
                List { junk: Some(junk(7)), ..List::default() },
            ];
            if is_last {
                parts.reverse();
            }
            enveloped(kind, parts.iter().flat_map(Message::encode_to_vec).collect())
        }
        Format::Json => {
            let items: Vec<_> = samples.iter().map(json_item).collect();
            let mut meta = json!({ "resourceVersion": resource_version });
            if !continues.is_empty() {
                meta["continue"] = continues.into();
            }
            if let Some(remaining) = remaining {
                meta["remainingItemCount"] = remaining.into();
            }
            let mut fields =
                [("kind", json!(kind)), ("metadata", meta), ("junk", json!([{}])), ("items", json!(items))];
            if is_last {
                fields.reverse();
            }
            let fields = fields.map(|(key, value)| format!("{key:?}:{value}"));
            format!("{{{}}}\n", fields.join(",")).into_bytes()
        }
    }
}

pub(super) fn object(format: Format, kind: &str, sample: &Sample) -> Vec<u8> {
    match format {
        Format::Protobuf => enveloped(kind, item(sample)),
        Format::Json => json_object(kind, sample).to_string().into_bytes(),
    }
}

pub(super) fn event(format: Format, r#type: &str, sample: &Sample) -> Vec<u8> {
    let kind = if sample.object.node.is_some() { "Node" } else { "ConfigMap" };
    match format {
        Format::Protobuf => watch_event(r#type, object(format, kind, sample)),
        Format::Json => {
            json!({ "type": r#type, "object": json_object(kind, sample) }).to_string().into_bytes()
        }
    }
}

pub(super) fn error_event(format: Format, status: &Status) -> Vec<u8> {
    match format {
        Format::Protobuf => watch_event("ERROR", self::status(format, status)),
        Format::Json => json!({ "type": "ERROR", "object": json_status(status) }).to_string().into_bytes(),
    }
}

pub(super) fn status(format: Format, status: &Status) -> Vec<u8> {
    match format {
        Format::Protobuf => {
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
        Format::Json => json_status(status).to_string().into_bytes(),
    }
}

/// An object as the API server puts it into its envelope: `contentEncoding` and `contentType` are empty, and there.
pub(super) fn enveloped(kind: &str, raw: Vec<u8>) -> Vec<u8> {
    sealed(&Unknown {
        type_meta: Some(TypeMeta { api_version: "v1".to_owned(), kind: kind.to_owned() }),
        raw: Some(raw),
        content_encoding: Some(String::new()),
        content_type: Some(String::new()),
    })
}

pub(super) fn sealed(envelope: &Unknown) -> Vec<u8> {
    [&b"k8s\0"[..], &envelope.encode_to_vec()].concat()
}

fn watch_event(r#type: &str, raw: Vec<u8>) -> Vec<u8> {
    WatchEvent { r#type: r#type.to_owned(), object: Some(RawExtension { raw }) }.encode_to_vec()
}

fn junk(number: i64) -> Junk {
    Junk { varint: number, fixed_64: number, fixed_32: 1.5, bytes: vec![0xff; 40] }
}

/// A Node, or else a ConfigMap.
fn item(Sample { object, foreign_annotations, managed_fields, number }: &Sample) -> Vec<u8> {
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
        // Where there is none, Go writes one without any bytes.
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
        Some(part) => node::message(metadata, part, *number).encode_to_vec(),
        None => {
            let (data, binary_data) = (object.data, object.binary_data);
            let junk = Some(junk(*number));
            ConfigMap { metadata: Some(metadata), data, binary_data, immutable: Some(true), junk }
                .encode_to_vec()
        }
    }
}

fn json_item(Sample { object, foreign_annotations, managed_fields, number }: &Sample) -> Value {
    let annotations: BTreeMap<_, _> =
        object.annotations.clone().into_iter().chain(foreign_annotations.clone()).collect();
    let binary_data: BTreeMap<_, _> =
        object.binary_data.iter().map(|(key, bytes)| (key, BASE64_STANDARD.encode(bytes))).collect();
    let mut item = json!({
        "metadata": {
            "name": object.name,
            "namespace": "default",
            "uid": object.uid,
            "resourceVersion": object.resource_version,
            "generation": number,
            "creationTimestamp": object.created_at.map(|time| time.to_string()),
            "deletionTimestamp": object.is_terminating.then_some("2026-01-01T00:00:00Z"),
            "labels": object.labels,
            "annotations": annotations,
            "managedFields": [{ "manager": "kubelet", "fieldsV1": { "f:metadata": managed_fields } }],
        },
        "data": (!object.data.is_empty()).then_some(&object.data),
        "binaryData": binary_data,
        "immutable": true,
    });
    if let Some(part) = &object.node {
        item["spec"] = node::json_spec(part);
        item["status"] = node::json_status(part);
    }
    item
}

fn json_object(kind: &str, sample: &Sample) -> Value {
    let mut value = json_item(sample);
    value["kind"] = kind.into();
    value
}

fn json_status(Status { code, reason, message, retry_after_seconds }: &Status) -> Value {
    let details = retry_after_seconds.map(|seconds| json!({ "name": "nodes", "retryAfterSeconds": seconds }));
    json!({
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code,
    })
}
