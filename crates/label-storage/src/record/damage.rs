//! Errors in records.

use super::{MAX_BYTES, Record};

/// A record, and the errors in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// The usable part of the ConfigMap.
    pub record: Record,
    /// The unusable entries, for a person to see.
    pub damage: Vec<Damage>,
}

/// An unusable entry of a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// An annotation that is missing, or has a bad value.
    #[error("annotation {0} is missing or unusable")]
    Annotation(&'static str),
    /// An entry of `data` whose key names no item.
    #[error("data key {0:?} is not a label key")]
    Key(String),
    /// An entry of `data` with a value that the item can't have.
    #[error("data key {0:?} can't have the value {1:?}")]
    Value(String, String),
    /// An entry of `binaryData`.
    #[error("binaryData {0:?} is not a label")]
    Binary(String),
}

/// A ConfigMap that can't be read as a record. It is left for a person, never overwritten.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It has neither the label of records nor an annotation that its name follows from.
    #[error(
        "configmap {0} is not a record, so nothing can be stored under this name: move it to another name; if it is a record, add the \
         label app.kubernetes.io/managed-by=label-storage"
    )]
    Foreign(String),
    /// Its name and its annotation disagree about the Node.
    #[error(
        "the annotation label-storage/node of configmap {record} names node {node:?}: correct or remove that annotation"
    )]
    AnotherNode {
        /// The ConfigMap's name.
        record: String,
        /// The Node's name in the annotation.
        node: String,
    },
    /// Its name is shortened, and the annotation with the full name is missing.
    #[error("configmap {0} does not name its node: put the name into the annotation label-storage/node")]
    NoNode(String),
    /// Its name and its annotation disagree about the identity.
    #[error(
        "the annotation label-storage/identity of configmap {record} is {identity:?}, which does not match its name: correct that annotation"
    )]
    AnotherIdentity {
        /// The ConfigMap's name.
        record: String,
        /// The identity in the annotation.
        identity: String,
    },
}

/// A record that does not fit into a ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the record of node {node} needs {bytes} bytes, and a ConfigMap has room for {MAX_BYTES}: remove labels or annotations from the node; \
     until then the record is not updated"
)]
pub struct TooLarge {
    /// The Node's name.
    pub node: String,
    /// The size of the record's keys and values.
    pub bytes: usize,
}
