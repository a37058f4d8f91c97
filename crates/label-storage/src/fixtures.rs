//! Builders for the tests: `node("a").label("k", "v")`, `record("a", "u1").departed(600)`.

use jiff::Timestamp;

use crate::record::Leftovers;
use crate::{Node, Record, ResourceVersion, Uid};

pub(crate) fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

pub(crate) fn uid(text: &str) -> Uid {
    Uid::new(text).expect("a uid")
}

/// A Node of incarnation `u1` at version 10, without labels.
pub(crate) fn node(name: &str) -> Node {
    let labels = Default::default();
    Node {
        name: name.to_owned(),
        uid: uid("u1"),
        version: ResourceVersion(10),
        labels,
        marker: None,
        extras: Default::default(),
    }
}

/// A record of generation 4, made from version 10 of the given incarnation, without labels.
pub(crate) fn record(node: &str, incarnation: &str) -> Record {
    Record {
        node: node.to_owned(),
        uid: Some(uid(incarnation)),
        node_version: Some(ResourceVersion(10)),
        generation: 4,
        labels_generation: Some(4),
        captured_at: Some(second(500)),
        departed_at: None,
        labels: Default::default(),
        more: Default::default(),
        leftovers: Leftovers::default(),
    }
}

impl Node {
    pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn incarnation(mut self, incarnation: &str) -> Self {
        self.uid = uid(incarnation);
        self
    }

    pub(crate) fn at(mut self, version: u64) -> Self {
        self.version = ResourceVersion(version);
        self
    }

    pub(crate) fn marked(mut self, marker: &str) -> Self {
        self.marker = Some(marker.to_owned());
        self
    }
}

impl Record {
    pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn departed(mut self, at: i64) -> Self {
        self.departed_at = Some(second(at));
        self
    }

    pub(crate) fn leftover(mut self, key: &str, value: &str) -> Self {
        self.leftovers.data.insert(key.to_owned(), value.to_owned());
        self
    }
}
