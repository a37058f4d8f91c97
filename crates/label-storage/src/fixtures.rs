//! Builders for the tests: `node("a").label("k", "v")`, `record("a", "u1").departed(600)`.

use std::str::FromStr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;

use crate::node::{Machine, Taint};
use crate::record::{Decoded, Leftovers, WithheldValue};
use crate::rules::{Conflicts, InvalidRule, Selection};
use crate::{Node, Record, ResourceVersion, Rules, Uid};

pub(crate) fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

pub(crate) fn uid(text: &str) -> Uid {
    Uid::new(text).expect("a uid")
}

/// A record as a ConfigMap.
pub(crate) fn encode(record: &Record) -> ConfigMap {
    let mut config_map = ConfigMap::default();
    record.encode_into(&mut config_map).expect("it fits");
    config_map
}

/// A ConfigMap as the record that it is.
pub(crate) fn decode(config_map: &ConfigMap) -> Decoded {
    Record::decode(config_map).expect("readable")
}

/// A record as the next one who reads it finds it.
pub(crate) fn written(record: &Record) -> Record {
    decode(&encode(record)).record
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
        config_map: None,
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

    pub(crate) fn annotated(mut self, key: &str, value: &str) -> Self {
        self.extras.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// With a taint, written `key=value:Effect`.
    pub(crate) fn taint(mut self, text: &str) -> Self {
        self.extras.taints.push(taint(text));
        self
    }

    /// All of it was read.
    pub(crate) fn whole(mut self) -> Self {
        self.extras.is_whole = true;
        self
    }

    /// All of it was read, and it is this machine.
    pub(crate) fn machine(mut self, system_uuid: &str) -> Self {
        self.extras.machine.system_uuid = Some(system_uuid.to_owned());
        self.whole()
    }
}

/// A taint, of `key=value:Effect`.
pub(crate) fn taint(text: &str) -> Taint {
    let (rest, effect) = text.rsplit_once(':').expect("an effect");
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned(), time_added: None }
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

    /// Read from this machine.
    pub(crate) fn machine(mut self, system_uuid: &str) -> Self {
        self.more.machine.system_uuid = Some(system_uuid.to_owned());
        self
    }

    /// With a withheld item of this machine.
    pub(crate) fn withheld(mut self, name: &str, value: &str, system_uuid: Option<&str>) -> Self {
        let machine = Machine { provider_id: None, system_uuid: system_uuid.map(str::to_owned) };
        let withheld = WithheldValue { value: value.to_owned(), node: Some(self.node.clone()), machine };
        self.more.withheld.insert(name.to_owned(), withheld);
        self
    }
}

impl FromStr for Conflicts {
    type Err = InvalidRule;

    /// Reads `NAME=WINNER`, with commas between them.
    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let mut conflicts = Self::default();
        for part in text.split(',').filter(|_| !text.trim().is_empty()) {
            let (name, winner) = part.split_once('=').unwrap_or((part, "node"));
            conflicts.add(name, winner.trim().parse()?)?;
        }
        Ok(conflicts)
    }
}

/// Some choice of what is kept, and of which Nodes; all else as by default.
pub(crate) fn some_choice() -> impl Strategy<Value = Rules> {
    let patterns = |some: &[&'static str]| {
        let some = proptest::sample::subsequence(some.to_vec(), 0..=some.len());
        some.prop_map(|some| some.join(",").parse().expect("patterns"))
    };
    let selection = move |some: &[&'static str]| {
        (patterns(some), patterns(some)).prop_map(|(include, exclude)| Selection { include, exclude })
    };
    let labels = selection(&["*", "pool", "a/*", "*/*", "machine-facts"]);
    let annotations = selection(&["*", "owner", "example.com/*"]);
    let taints = selection(&["*", "gpu", "example.com/*"]);
    let selector = proptest::sample::select(vec!["", "pool", "pool!=x", "a/b in (x,y)", "!pool"]);
    (labels, annotations, taints, selector, any::<[bool; 2]>(), 0..4usize).prop_map(
        |(labels, annotations, taints, selector, [cordon, opt_in], history)| Rules {
            labels,
            annotations,
            taints,
            selector: selector.parse().expect("a selector"),
            cordon,
            opt_in,
            history,
            ..Rules::default()
        },
    )
}
