//! ConfigMaps that can't be read as a record, or not all of them, and records that don't fit into one.

use std::fmt;

use super::{MAX_BYTES, Record};

/// A record that was read, and what was wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// All that could be used.
    pub record: Record,
    /// The entries that could not be used, for a person to see.
    pub damage: Vec<Damage>,
}

/// One thing in a record that could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Damage {
    /// An annotation that should be there is not, or does not say what it should.
    Annotation(&'static str),
    /// An entry of `data` whose key no label has.
    Key(String),
    /// An entry of `data` whose value no label has.
    Value(String),
    /// An entry of `binaryData`: labels are text.
    Binary(String),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotation(name) => write!(f, "annotation {name} is missing or unusable"),
            Self::Key(key) => write!(f, "data key {key:?} is no label key"),
            Self::Value(key) => write!(f, "the value of data key {key:?} is none that it can have"),
            Self::Binary(key) => write!(f, "binaryData {key:?} is no label"),
        }
    }
}

/// Why a ConfigMap can't be read as a record at all. It is left for a person, never overwritten.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Somebody else's ConfigMap is in the way.
    #[error(
        "configmap {0} lacks the label app.kubernetes.io/managed-by=label-storage: if it is a record, put the label back; \
         if it is not, move it to another name"
    )]
    Foreign(String),
    /// The record says that it belongs to another Node than its own name does.
    #[error(
        "configmap {record} says in its annotation label-storage/node that it belongs to node {node:?}: correct or remove that annotation"
    )]
    AnotherNode {
        /// The ConfigMap.
        record: String,
        /// The Node that it names.
        node: String,
    },
    /// The ConfigMap's name is shortened, and the annotation with the full name is gone.
    #[error(
        "configmap {0} does not say which node it belongs to: put its name into the annotation label-storage/node"
    )]
    NoNode(String),
    /// What it says that it is filed under is not what its name says.
    #[error(
        "configmap {record} says in its annotation label-storage/identity that it is filed under {identity:?}, which would have another \
         name: correct that annotation"
    )]
    AnotherIdentity {
        /// The ConfigMap.
        record: String,
        /// What it names.
        identity: String,
    },
}

/// The labels of a Node do not fit into a ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the labels of node {node}, and what else its record holds, need {bytes} bytes, and a configmap takes {MAX_BYTES}: remove \
     some of them; until then the record stays as it is"
)]
pub struct TooLarge {
    /// The Node.
    pub node: String,
    /// The size of its keys and values.
    pub bytes: usize,
}
