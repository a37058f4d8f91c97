//! The key of a record: the Node's name or, by the rules, another identity of the Node.

use label_storage::Node;

/// A record key and the name of its Node. By default they are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filed<'a> {
    pub under: &'a str,
    /// The same as the key if the Node's name is not known.
    pub name: &'a str,
}

impl<'a> From<&'a str> for Filed<'a> {
    fn from(name: &'a str) -> Self {
        Self { under: name, name }
    }
}

impl<'a> From<&'a Node> for Filed<'a> {
    fn from(node: &'a Node) -> Self {
        Self { under: node.filed_under(), name: &node.name }
    }
}
