//! Decodes the answers of the API server: bytes in, objects out. No client, no clock.
//!
//! A list of 100,000 Nodes is 116 MB of protobuf, and half of it is `managedFields`, which are not read here. So a list is
//! read as a stream, one object at a time. Only the fields of [`Object`] are kept, and memory does not grow with the list.
//!
//! ```text
//!   k8s\0 Unknown { kind, raw: List { metadata, item, item, … } }  ──►  Object, Object, … Listed
//! ```
//!
//! [`Asked`] decides how an object is read: the same field is `data` in a ConfigMap and `spec` in a Node. An answer of
//! another kind is refused.
//!
//! The input is not trusted. Memory is never allocated for a claimed length. Input that ends early is an error at every
//! byte: if half a list passed for a whole one, half of the Nodes would count as deleted.
//!
//! One object must not keep the others away. Text that is not UTF-8, which the API server accepts in protobuf, is read with
//! U+FFFD in place of what is not text. An object that can't be decoded is [`Undecodable`], and the list or the watch goes on.

mod error;
#[cfg(any(test, feature = "testing"))]
pub mod fixtures;
mod protobuf;
mod status;

use std::collections::BTreeMap;

use jiff::Timestamp;

pub use error::Error;
pub use protobuf::{read_event, read_list, read_object};
pub use status::{Status, read_status};

/// The most bytes that one object may have. etcd takes a request of 1.5 MiB by default.
pub const MAX_ITEM: usize = 8 << 20;

/// The requested content of an answer, and the annotations that are kept.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub content: Content,
    /// True for the keys of annotations that are kept. The others take no memory.
    pub annotations: &'a (dyn Fn(&str) -> bool + Sync),
}

/// The type of the objects. Field numbers differ by type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// `PartialObjectMetadata`: any object's metadata, and nothing else.
    Metadata,
    ConfigMap,
    Node,
}

impl Content {
    const fn kind(self) -> &'static str {
        match self {
            Self::Metadata => "PartialObjectMetadata",
            Self::ConfigMap => "ConfigMap",
            Self::Node => "Node",
        }
    }

    const fn list_kind(self) -> &'static str {
        match self {
            Self::Metadata => "PartialObjectMetadataList",
            Self::ConfigMap => "ConfigMapList",
            Self::Node => "NodeList",
        }
    }
}

/// The parts of a Kubernetes object that are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Object {
    /// Never empty.
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    /// To the second.
    pub created_at: Option<Timestamp>,
    /// True if it has a `deletionTimestamp`.
    pub is_terminating: bool,
    pub labels: BTreeMap<String, String>,
    /// The annotations that were [asked for](Asked::annotations).
    pub annotations: BTreeMap<String, String>,
    /// Empty unless it is a ConfigMap.
    pub data: BTreeMap<String, String>,
    pub binary_data: BTreeMap<String, Vec<u8>>,
    /// `None` unless whole Nodes were requested. This is not the same as a Node without taints.
    pub node: Option<NodePart>,
}

/// The parts of a Node's `spec` and `status` that are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePart {
    /// The cloud's name of the machine. May be empty.
    pub provider_id: String,
    pub is_unschedulable: bool,
    pub taints: Vec<Taint>,
    /// The firmware's name of the machine. Empty until a kubelet has reported it.
    pub system_uuid: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taint {
    pub key: String,
    /// May be empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// RFC 3339, in UTC, to the second, as in JSON.
    pub time_added: Option<String>,
}

/// An object of a list or a watch that can't be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecodable {
    /// The fields before the error. The metadata comes first. The name may be empty.
    pub part: Box<Object>,
    pub error: String,
}

/// The end of a complete list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The version from which a watch continues.
    pub resource_version: String,
    /// Their number, with those that can't be decoded.
    pub items: usize,
}

/// One event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// `ADDED` or `MODIFIED`.
    Changed(Object),
    /// The last state of a deleted object.
    Deleted(Object),
    /// An object was changed or deleted, and can't be decoded.
    Undecodable(Undecodable),
    /// There was no event up to this version.
    Bookmark { resource_version: String },
    /// The end of the watch, most often because its resourceVersion is too old (410).
    Error(Status),
}

#[cfg(test)]
mod tests;
