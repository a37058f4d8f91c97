//! The key of a record: the Node's name or, by the rules, another identity of the Node.

use label_storage::Node;
pub use label_storage::{NodeName, RecordKey};

/// Which entry something belongs to, and which Node it is, or was, about. By default these are one and the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filed<'a> {
    /// What it is filed under: the row's key.
    pub under: &'a str,
    /// The Node's name. The same as the key where that is all that is known.
    pub name: &'a str,
}

impl<'a> From<&'a str> for Filed<'a> {
    /// By name.
    fn from(name: &'a str) -> Self {
        Self { under: name, name }
    }
}

impl<'a> From<&'a String> for Filed<'a> {
    fn from(name: &'a String) -> Self {
        name.as_str().into()
    }
}

impl<'a> From<&'a RecordKey> for Filed<'a> {
    fn from(name: &'a RecordKey) -> Self {
        (&**name).into()
    }
}

impl<'a> From<&'a Node> for Filed<'a> {
    fn from(node: &'a Node) -> Self {
        Self { under: node.filed_under(), name: &node.name }
    }
}

impl Filed<'_> {
    /// Whether the Node's name is given, beside a key that is none.
    pub(crate) fn names_the_node(&self) -> bool {
        self.under != self.name
    }
}
