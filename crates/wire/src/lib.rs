//! What the API server answers, as objects: bytes in, objects out. No client, no clock.
//!
//! A list of 100,000 Nodes is 116 MB of protobuf, half of it `managedFields` that nobody here reads. So a list is read
//! as a stream: one object at a time, kept only as far as [`Object`] goes, and in memory that does not grow with
//! the list. JSON is the fallback for whatever does not speak protobuf.
//!
//! ```text
//!   protobuf: k8s\0 Unknown { kind, raw: List { metadata, item, item, … } }  ─┐
//!                                                                             ├─► Object, Object, … Listed
//!   JSON:     { "kind", "metadata", "items": [ item, item, … ] }             ─┘
//! ```
//!
//! What an object is kept of depends on what was asked for ([`Asked`]): the same fields are a ConfigMap's `data` or a
//! Node's `spec`. An answer that says that it is something else is refused.
//!
//! Nothing in the input is believed. A length that it claims is never memory that is set aside for it, and input that
//! ends early is an error at every byte: half a list that passes for a whole one says that half of the Nodes are gone.

mod error;
#[cfg(any(test, feature = "testing"))]
pub mod fixtures;
mod json;
mod protobuf;
mod status;

use std::collections::BTreeMap;
use std::io::BufRead;

use jiff::Timestamp;

pub use error::Error;
pub use status::{Status, read_status};

/// How the keys of our own annotations begin.
pub const OURS: &str = "label-storage/";

/// The most bytes that one object may have. etcd takes a request of 1.5 MiB, and JSON is longer than protobuf.
pub const MAX_ITEM: usize = 8 << 20;

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
    /// `application/json`
    Json,
}

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

/// Reads a whole list, calling `each` for every object as soon as it is there.
///
/// Returns [`Listed`] only at a proper end of the list and of the input, so that a checksum around it is checked too.
/// After an error, what `each` was given is to be forgotten: it is not all, and JSON may say last of what kind it was.
pub fn read_list(
    format: Format,
    asked: &Asked<'_>,
    input: impl BufRead,
    each: impl FnMut(Object),
) -> Result<Listed, Error> {
    match format {
        Format::Protobuf => protobuf::read_list(asked, input, each),
        Format::Json => json::read_list(asked, input, each),
    }
}

/// Reads one object.
pub fn read_object(format: Format, asked: &Asked<'_>, bytes: &[u8]) -> Result<Object, Error> {
    match format {
        Format::Protobuf => protobuf::read_object(asked, bytes)?.named(),
        Format::Json => json::read_object(asked, bytes)?.named(),
    }
}

/// Reads one frame of a watch, without its length prefix of 4 bytes (protobuf) or its newline (JSON).
pub fn read_event(format: Format, asked: &Asked<'_>, frame: &[u8]) -> Result<Event, Error> {
    match format {
        Format::Protobuf => protobuf::read_event(asked, frame),
        Format::Json => json::read_event(asked, frame),
    }
}

/// What a frame of a watch holds, as its type says: `object` or `status` reads the rest of it.
fn event<T>(
    kind: &str,
    source: T,
    object: impl FnOnce(T) -> Result<Object, Error>,
    status: impl FnOnce(T) -> Result<Status, Error>,
) -> Result<Event, Error> {
    match kind {
        "ADDED" | "MODIFIED" => Ok(Event::Changed(object(source)?.named()?)),
        "DELETED" => Ok(Event::Deleted(object(source)?.named()?)),
        // The only object without a name: it has nothing but its version.
        "BOOKMARK" => match object(source)?.resource_version {
            version if version.is_empty() => Err(Error::NoVersion),
            resource_version => Ok(Event::Bookmark { resource_version }),
        },
        "ERROR" => Ok(Event::Error(status(source)?)),
        other => Err(Error::malformed(format!("an event of type {:?}", status::excerpt(other.as_bytes())))),
    }
}

/// The end of a list, if nothing of it is missing.
fn listed(resource_version: String, continues: &str, remaining: i64, items: usize) -> Result<Listed, Error> {
    if !continues.is_empty() || remaining != 0 {
        return Err(Error::Partial);
    }
    if resource_version.is_empty() {
        return Err(Error::NoVersion);
    }
    Ok(Listed { resource_version, items })
}

/// Whether it is of the kind that was asked for. An answer that does not say is taken for it.
fn check_kind(kind: &str, wanted: &str) -> Result<(), Error> {
    if kind.is_empty() || kind == wanted {
        Ok(())
    } else {
        Err(Error::Kind(status::excerpt(kind.as_bytes())))
    }
}

#[cfg(test)]
mod tests;
