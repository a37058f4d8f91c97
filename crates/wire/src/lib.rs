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
//! The input is not trusted. Memory is never allocated for a claimed length, and input that ends early is an error at
//! every byte: half a list that is taken for a whole one means that half of the Nodes are gone.

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

/// How the keys of our own annotations begin.
pub const OURS: &str = "label-storage/";

/// The most bytes that one object may have. etcd takes a request of 1.5 MiB by default.
pub const MAX_ITEM: usize = 8 << 20;

/// What was asked for, and what of that is kept.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// What the objects are.
    pub content: Content,
    /// Which annotations are kept, by their keys. To pass over one costs no memory.
    pub annotations: &'a (dyn Fn(&str) -> bool + Sync),
}

/// What an object is. Each has other things where the others have theirs, so an answer is read as what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// `PartialObjectMetadata`: any object's metadata, and nothing else.
    Metadata,
    /// Whole ConfigMaps.
    ConfigMap,
    /// Whole Nodes.
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

/// What we keep of a Kubernetes object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Object {
    /// Never empty.
    pub name: String,
    /// Which incarnation of that name this is.
    pub uid: String,
    /// When, in the history of the cluster, it looked like this.
    pub resource_version: String,
    /// Since when it is there, to the second.
    pub created_at: Option<Timestamp>,
    /// Whether it has a `deletionTimestamp`.
    pub is_terminating: bool,
    /// All of its labels.
    pub labels: BTreeMap<String, String>,
    /// Those of its annotations that were [asked for](Asked::annotations).
    pub annotations: BTreeMap<String, String>,
    /// A ConfigMap's `data`; empty where something else was asked for.
    pub data: BTreeMap<String, String>,
    /// A ConfigMap's `binaryData`; empty where something else was asked for.
    pub binary_data: BTreeMap<String, Vec<u8>>,
    /// What only a Node has. `None` where something else was asked for: that a Node has no taints, and that nobody
    /// looked, are two things.
    pub node: Option<NodePart>,
}

/// What we keep of a Node's `spec` and `status`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePart {
    /// The machine, as its cloud calls it; empty where the Node does not say.
    pub provider_id: String,
    /// Whether it is cordoned.
    pub is_unschedulable: bool,
    /// All of its taints, in their order.
    pub taints: Vec<Taint>,
    /// The machine, as its firmware calls it; empty where no kubelet has said so yet.
    pub system_uuid: String,
}

/// A taint of a Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value, which may be empty.
    pub value: String,
    /// What it does to Pods: `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// When it was added, as JSON has it: RFC 3339, in UTC, to the second.
    pub time_added: Option<String>,
}

impl Object {
    /// Itself if it has a name: all that is known of an object is filed under it.
    fn named(self) -> Result<Self, Error> {
        if self.name.is_empty() { Err(Error::malformed("an object without a name")) } else { Ok(self) }
    }
}

/// The end of a list: it is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Where in the history of the cluster the list was taken: where a watch goes on from.
    pub resource_version: String,
    /// How many objects there were.
    pub items: usize,
}

/// One event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// `ADDED` or `MODIFIED`: this is how the object looks now.
    Changed(Object),
    /// This is how the object looked last.
    Deleted(Object),
    /// Nothing happened up to here.
    Bookmark {
        /// Where a new watch may go on from.
        resource_version: String,
    },
    /// The watch is over, most often because its resourceVersion is too old (410).
    Error(Status),
}

#[cfg(test)]
mod tests;
