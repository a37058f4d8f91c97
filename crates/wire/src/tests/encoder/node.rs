//! A Node's own fields, with the numbers that `k8s.io/api/core/v1/generated.proto` gives them, among those that nobody reads.

use std::collections::BTreeMap;

use prost::Message;
use serde_json::{Value, json};

use super::{Junk, ObjectMeta, Time, junk};
use crate::NodePart;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<Spec>,
    #[prost(message, optional, tag = "3")]
    status: Option<Status>,
    #[prost(message, optional, tag = "99")]
    junk: Option<Junk>,
}

#[derive(Clone, PartialEq, Message)]
struct Spec {
    #[prost(string, tag = "1")]
    pod_cidr: String,
    #[prost(string, tag = "2")]
    external_id: String,
    // As Go does it, which writes what is empty, too.
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
struct Status {
    #[prost(btree_map = "string, message", tag = "1")]
    capacity: BTreeMap<String, Quantity>,
    #[prost(string, tag = "3")]
    phase: String,
    #[prost(message, optional, tag = "7")]
    node_info: Option<Info>,
    #[prost(message, repeated, tag = "8")]
    images: Vec<Image>,
    #[prost(message, optional, tag = "99")]
    junk: Option<Junk>,
}

#[derive(Clone, PartialEq, Message)]
struct Quantity {
    #[prost(string, tag = "1")]
    string: String,
}

#[derive(Clone, PartialEq, Message)]
struct Info {
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
struct Image {
    #[prost(string, repeated, tag = "1")]
    names: Vec<String>,
    #[prost(int64, tag = "2")]
    size_bytes: i64,
}

pub(super) fn message(metadata: ObjectMeta, part: NodePart, number: i64) -> Node {
    let taints = part.taints.into_iter().map(|taint| Taint {
        key: taint.key,
        value: taint.value,
        effect: taint.effect,
        time_added: taint.time_added.map(|text| {
            let time: jiff::Timestamp = text.parse().expect("a time");
            Time { seconds: time.as_second(), nanos: 0 }
        }),
        junk: Some(junk(number)),
    });
    let spec = Spec {
        pod_cidr: "10.0.0.0/24".to_owned(),
        external_id: "not this".to_owned(),
        provider_id: Some(part.provider_id),
        unschedulable: Some(part.is_unschedulable),
        taints: taints.collect(),
        pod_cidrs: vec!["10.0.0.0/24".to_owned()],
        junk: Some(junk(number)),
    };
    let info = Info {
        machine_id: "nor this".to_owned(),
        system_uuid: Some(part.system_uuid),
        boot_id: "nor this".to_owned(),
        junk: Some(junk(number)),
    };
    let status = Status {
        capacity: [("cpu".to_owned(), Quantity { string: "8".to_owned() })].into(),
        phase: "Running".to_owned(),
        node_info: Some(info),
        images: vec![Image { names: vec!["example.com/image".to_owned()], size_bytes: number }],
        junk: Some(junk(number)),
    };
    Node { metadata: Some(metadata), spec: Some(spec), status: Some(status), junk: Some(junk(number)) }
}

/// As Go does it, which leaves out what is empty.
pub(super) fn json_spec(part: &NodePart) -> Value {
    let taints: Vec<_> = part
        .taints
        .iter()
        .map(|taint| {
            let mut value = json!({ "key": taint.key, "effect": taint.effect });
            if !taint.value.is_empty() {
                value["value"] = json!(taint.value);
            }
            if let Some(time) = &taint.time_added {
                value["timeAdded"] = json!(time);
            }
            value
        })
        .collect();
    let mut spec = json!({ "podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "externalID": "not this" });
    if !part.provider_id.is_empty() {
        spec["providerID"] = json!(part.provider_id);
    }
    if part.is_unschedulable {
        spec["unschedulable"] = json!(true);
    }
    if !taints.is_empty() {
        spec["taints"] = json!(taints);
    }
    spec
}

pub(super) fn json_status(part: &NodePart) -> Value {
    json!({
        "capacity": { "cpu": "8" },
        "phase": "Running",
        "nodeInfo": { "machineID": "not this", "systemUUID": part.system_uuid, "bootID": "nor this" },
        "images": [{ "names": ["example.com/image"], "sizeBytes": 1 }],
    })
}
