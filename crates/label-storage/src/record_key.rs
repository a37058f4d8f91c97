//! The names of Nodes, and the keys of their records.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The key of a record: the Node's name or, if the rules say so, another identity of the Node, such as `providerID=i-1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordKey(Arc<str>);

/// The name of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeName(Arc<str>);

impl RecordKey {
    /// True if the key is an identity. No Node's name has a `=`.
    pub fn is_identity(&self) -> bool {
        crate::name::is_identity(self)
    }
}

impl From<&NodeName> for RecordKey {
    fn from(name: &NodeName) -> Self {
        Self(Arc::clone(&name.0))
    }
}

macro_rules! text {
    ($name:ty) => {
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                self
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self)
            }
        }
    };
}

text!(RecordKey);
text!(NodeName);
