//! What a decision needs to know of a Node, read from one answer of the API server.

use std::fmt;
use std::str::FromStr;

use crate::Labels;

/// The annotation with which the restorer marks a Node, in the same patch as the labels: `<node uid>/<generation>`.
pub const RESTORED: &str = "label-storage/restored";

/// Names one incarnation of a Node: a Node that is deleted and re-created has another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Uid(String);

impl Uid {
    /// Takes any text that can be written into a marker and read back; the API server only makes UUIDs.
    pub fn new(uid: impl Into<String>) -> Option<Self> {
        let uid = uid.into();
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':');
        (!uid.is_empty() && uid.len() <= 128 && uid.bytes().all(legal)).then_some(Self(uid))
    }

    /// As the API server writes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where in the history of the cluster an object was read. Kubernetes counts upwards in it, which is what lets a
/// record refuse a view that is older than what it was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceVersion(pub u64);

impl FromStr for ResourceVersion {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A Node as it was in one read: uid, labels and resourceVersion always belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The Node's name: what a record is found by when the Node returns.
    pub name: String,
    /// Which incarnation this is.
    pub uid: Uid,
    /// When, in the history of the cluster, it looked like this.
    pub version: ResourceVersion,
    /// All of its labels.
    pub labels: Labels,
    /// The value of the [`RESTORED`] annotation, as found: it may be a copy from an earlier incarnation.
    pub marker: Option<String>,
}

/// Why an answer of the API server can't be used as a Node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Without a name there is no record to look for.
    #[error("the API server sent a node without a name")]
    NoName,
    /// Without a uid it can't be told from another incarnation.
    #[error("the API server sent node {0} without a usable uid")]
    NoUid(String),
    /// Without a number it can't be told what is newer.
    #[error("the API server sent node {0} with a resourceVersion that is no number")]
    NoVersion(String),
}

impl Node {
    /// A Node of what the API server sent, as text.
    pub fn new(
        name: String,
        uid: String,
        resource_version: &str,
        labels: Labels,
        marker: Option<String>,
    ) -> Result<Self, Error> {
        if name.is_empty() {
            return Err(Error::NoName);
        }
        let Some(uid) = Uid::new(uid) else { return Err(Error::NoUid(name)) };
        let Ok(version) = resource_version.parse() else { return Err(Error::NoVersion(name)) };
        Ok(Self { name, uid, version, labels, marker })
    }

    /// The generation of the record that the restorer has given this incarnation back, if it has: that of a record
    /// that can't be older than any where the marker does not say. A marker that names another uid was copied from
    /// an earlier incarnation (a Node re-created from saved YAML) and says nothing.
    pub fn restored_from(&self) -> Option<u64> {
        let mut marker = self.marker.as_deref()?.split('/');
        let is_own = marker.next() == Some(self.uid.as_str());
        let generation = marker.next().and_then(|generation| generation.parse().ok());
        is_own.then_some(generation.unwrap_or(u64::MAX))
    }

    /// The marker that says: restored, from this generation of the record.
    pub fn marker_for(&self, generation: u64) -> String {
        format!("{}/{generation}", self.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, uid: &str, version: &str) -> Result<Node, Error> {
        let labels = [("k".to_owned(), "v".to_owned())].into();
        Node::new(name.to_owned(), uid.to_owned(), version, labels, Some("u1/3".to_owned()))
    }

    #[test]
    fn a_node_that_the_api_server_can_not_have_meant_is_refused() {
        assert_eq!(read("", "u1", "7"), Err(Error::NoName));
        assert_eq!(read("a", "", "7"), Err(Error::NoUid("a".to_owned())));
        for version in ["", "x", "-1", "99999999999999999999"] {
            assert_eq!(read("a", "u1", version), Err(Error::NoVersion("a".to_owned())));
        }
    }

    #[test]
    fn only_a_marker_with_the_nodes_own_uid_counts() {
        let node = read("a", "u1", "7").expect("a good node");
        assert_eq!(node.marker_for(9), "u1/9");
        for (marker, restored_from) in [
            (Some("u1/3"), Some(3)),
            (Some("u1/3/withheld"), Some(3)),
            (Some("u1"), Some(u64::MAX)),
            (Some("u1/x"), Some(u64::MAX)),
            (Some("u2/3"), None),
            (Some("u11/3"), None),
            (Some(""), None),
            (Some("/3"), None),
            (None, None),
        ] {
            let node = Node { marker: marker.map(str::to_owned), ..node.clone() };
            assert_eq!(node.restored_from(), restored_from, "{marker:?}");
        }
    }
}
