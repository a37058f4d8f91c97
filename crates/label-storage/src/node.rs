//! A Node, as far as decisions depend on it, read from one answer of the API server.

use std::fmt;
use std::str::FromStr;

use crate::summary::{RecordId, RestoredFrom};
use crate::{Labels, Record};

/// The marker: the annotation that the restorer adds in the same patch as the labels. Its value is
/// `<node uid>/<generation>@<ConfigMap uid>`, followed by the withheld items, if any: `/<why>:<name>,<why>:<name>`.
pub const RESTORED: &str = "label-storage/restored";
/// The annotation that makes both daemons ignore a Node: `"true"`.
pub const IGNORE: &str = "label-storage/ignore";
/// The annotation with a Node's own list of labels to keep. It is kept itself.
pub const KEEP: &str = "label-storage/keep";
/// The taint that a Node may register with, so that no pod is scheduled before its labels are back.
pub const STARTUP_TAINT: &str = "label-storage/restoring";

/// The uid of one incarnation of an object: a re-created Node has another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Uid(String);

impl Uid {
    /// Accepts any text that can be written into a marker and read back. The API server only makes UUIDs.
    pub fn new(uid: impl Into<String>) -> Option<Self> {
        let uid = uid.into();
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':');
        (!uid.is_empty() && uid.len() <= 128 && uid.bytes().all(legal)).then_some(Self(uid))
    }

    /// The text that the API server uses.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A point in the history of the cluster. Of two versions, the greater one is the later.
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
    /// The Node's name.
    pub name: String,
    /// The uid of this incarnation.
    pub uid: Uid,
    /// The resourceVersion of this read.
    pub version: ResourceVersion,
    /// All labels; for a storer, all items that it stores (see [`Node::seen_through`]).
    pub labels: Labels,
    /// The unchecked value of the [`RESTORED`] annotation. It may be a copy from an earlier incarnation.
    pub marker: Option<String>,
    /// Everything else.
    pub extras: Extras,
}

/// The parts of a Node other than its labels. Most clusters keep labels alone, and then only metadata is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extras {
    /// The identity that its record is filed under, if that is not its name.
    pub identity: Option<String>,
    /// Label Storage's own annotations and those that the rules need, or all annotations if a restorer read the whole Node.
    pub annotations: Labels,
    /// All taints in their order: the list can only be written as a whole.
    pub taints: Vec<Taint>,
    /// True if it is cordoned.
    pub is_unschedulable: bool,
    /// True if it lacks the identity that the rules file its record under.
    pub is_unidentified: bool,
    /// The machine that the Node runs on.
    pub machine: Machine,
    /// True if more than its metadata was read. If not, its taints, cordon and machine are unknown.
    pub is_whole: bool,
    /// True if the rules do not select it. A storer then creates no record for it.
    pub is_unselected: bool,
    /// The items of its record that the cluster refused to put on it, with the API server's messages.
    pub refused: Labels,
}

/// A taint with all fields that have to be written back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    /// A key like those of labels.
    pub key: String,
    /// A value like those of labels, or empty.
    pub value: String,
    /// One of [`EFFECTS`](crate::item::EFFECTS).
    pub effect: String,
    /// The time at which a taint that evicts pods was added.
    pub time_added: Option<String>,
}

/// The names of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// `spec.providerID`, the cloud's name for it.
    pub provider_id: Option<String>,
    /// `status.nodeInfo.systemUUID`, its own name.
    pub system_uuid: Option<String>,
}

impl Machine {
    /// True if this is certainly another machine: both have a name of the same kind, and the names differ.
    pub fn differs_from(&self, other: &Self) -> bool {
        let differ = |one: &Option<String>, other: &Option<String>| {
            one.as_ref().zip(other.as_ref()).is_some_and(|(one, other)| !one.eq_ignore_ascii_case(other))
        };
        differ(&self.provider_id, &other.provider_id) || differ(&self.system_uuid, &other.system_uuid)
    }

    /// Drops names that are too long for a record.
    pub(crate) fn checked(self) -> Self {
        let check = |name: Option<String>| name.filter(|name| name.len() <= MAX_IDENTITY);
        Self { provider_id: check(self.provider_id), system_uuid: check(self.system_uuid) }
    }

    /// True if it has no name.
    pub fn is_unknown(&self) -> bool {
        self.provider_id.is_none() && self.system_uuid.is_none()
    }
}

/// The longest identity, and the longest name of a machine. They have to fit into a record.
pub const MAX_IDENTITY: usize = 1024;

/// UUIDs of boards whose maker gave them none of their own.
const NOBODYS: [&str; 4] = [
    "00020003-0004-0005-0006-000700080009",
    "03000200-0400-0500-0006-000700080009",
    "07090201-0103-0301-0807-060504030201",
    "12345678-1234-5678-90AB-CDDEEFAABBCC",
];

/// True if this UUID belongs to one machine only.
pub(crate) fn is_own_uuid(uuid: &str) -> bool {
    // By the standard, all zeroes or all ones mean that there is none.
    let digits = uuid.replace('-', "").to_ascii_lowercase();
    let is_one_byte =
        digits.len() == 32 && digits.as_bytes().chunks(2).all(|byte| *byte == digits.as_bytes()[..2]);
    !is_one_byte && !NOBODYS.iter().any(|nobodys| nobodys.eq_ignore_ascii_case(uuid))
}

/// An answer of the API server that can't be used as a Node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The name is missing.
    #[error("the API server sent a node without a name")]
    NoName,
    /// The uid is missing, or can't be written into a marker.
    #[error("the API server sent node {0} without a usable uid")]
    NoUid(String),
    /// The resourceVersion can't be compared with others.
    #[error("the API server sent node {0} with a resourceVersion that is not a number")]
    NoVersion(String),
}

impl Node {
    /// Makes a Node from the texts that the API server sent.
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
        Ok(Self { name, uid, version, labels, marker, extras: Extras::default() })
    }

    /// The key of its record: its name, or another identity that the rules choose.
    pub fn filed_under(&self) -> &str {
        self.extras.identity.as_deref().unwrap_or(&self.name)
    }

    /// True if it has the annotation [`IGNORE`].
    pub fn is_ignored(&self) -> bool {
        self.extras.annotations.get(IGNORE).is_some_and(|value| value == "true")
    }

    /// The value of the annotation [`KEEP`].
    pub fn keep_list(&self) -> Option<&str> {
        self.extras.annotations.get(KEEP).map(String::as_str)
    }

    /// True if it has the taint [`STARTUP_TAINT`].
    pub fn has_startup_taint(&self) -> bool {
        self.extras.taints.iter().any(|taint| taint.key == STARTUP_TAINT)
    }

    /// The record that this incarnation was restored from, by its marker. A marker with another uid counts as none: it was
    /// copied from an earlier incarnation (a Node re-created from saved YAML).
    pub fn restored_from(&self) -> Option<RestoredFrom> {
        let mut marker = self.marker.as_deref()?.split('/');
        let is_own = marker.next() == Some(self.uid.as_str());
        let source = marker.next().filter(|_| is_own)?;
        let (generation, record) = source.split_once('@').unwrap_or((source, ""));
        let record = Uid::new(record).as_ref().map_or(RecordId::UNKNOWN, RecordId::of);
        Some(RestoredFrom { record, generation: generation.parse().ok()? })
    }

    /// The names of the record's items that the restorer withheld from this incarnation, or
    /// [`EVERYTHING`](crate::withheld::EVERYTHING).
    pub fn withheld(&self) -> impl Iterator<Item = &str> {
        self.withheld_with_reasons().map(|(_, name)| name)
    }

    /// The same, each after its reason.
    pub fn withheld_with_reasons(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = self.restored_from().and_then(|_| self.marker.as_deref()?.splitn(3, '/').nth(2));
        own.into_iter().flat_map(|list| list.split(',')).filter_map(|entry| entry.split_once(':'))
    }

    /// The marker for a Node that was restored from this record, without these items: (reason, name).
    pub fn marker_for<'a>(
        &self,
        record: &Record,
        withheld: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> String {
        let list: Vec<_> = withheld.into_iter().map(|(why, name)| format!("{why}:{name}")).collect();
        let list = if list.is_empty() { String::new() } else { format!("/{}", list.join(",")) };
        let at = record.config_map.as_ref().map(|uid| format!("@{uid}")).unwrap_or_default();
        format!("{}/{}{at}{list}", self.uid, record.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

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

    /// A record of this generation, in this ConfigMap.
    fn record(config_map: &str, generation: u64) -> Record {
        Record { generation, config_map: Uid::new(config_map), ..fixtures::record("a", "u0") }
    }

    #[test]
    fn only_a_marker_with_the_nodes_own_uid_and_a_generation_counts() {
        let node = read("a", "u1", "7").expect("a good node");
        assert_eq!(node.marker_for(&record("c1", 9), []), "u1/9@c1");
        for (marker, generation) in [
            (Some("u1/3@c1"), Some(3)),
            (Some("u1/3@c1/withheld"), Some(3)),
            (Some("u1"), None),
            (Some("u1/"), None),
            (Some("u1/x@c1"), None),
            (Some("u2/3@c1"), None),
            (Some("u11/3@c1"), None),
            (Some(""), None),
            (Some("/3@c1"), None),
            (None, None),
        ] {
            let node = Node { marker: marker.map(str::to_owned), ..node.clone() };
            assert_eq!(node.restored_from().map(|it| it.generation), generation, "{marker:?}");
        }
    }

    #[test]
    fn a_marker_holds_for_the_config_map_that_it_was_made_from() {
        let node = read("a", "u1", "7").expect("a good node");
        for made_from in ["c1", "c2"] {
            let marker = node.marker_for(&record(made_from, 5), [("never", "x")]);
            let node = Node { marker: Some(marker.clone()), ..node.clone() };
            for (config_map, generation) in [("c1", 5), ("c1", 6), ("c2", 4), ("c2", 5)] {
                let mut record = record(config_map, generation);
                record.labels_generation = Some(generation);
                assert_eq!(
                    record.summary().is_restored_to(&node.summary()),
                    config_map == made_from && generation <= 5,
                    "{marker} {config_map} {generation}"
                );
            }
        }
        let unnamed = Node { marker: Some("u1/9".to_owned()), ..node };
        assert!(!record("c1", 5).summary().is_restored_to(&unnamed.summary()), "it names no ConfigMap");
    }

    #[test]
    fn a_marker_names_what_was_withheld() {
        let node = read("a", "u1", "7").expect("a good node");
        let names = ["node-restriction.kubernetes.io/tier", "taint:NoSchedule:example.com/x"];
        let marker = node.marker_for(&record("c1", 9), names.map(|name| ("other-machine", name)));
        assert_eq!(
            marker,
            "u1/9@c1/other-machine:node-restriction.kubernetes.io/tier,other-machine:taint:NoSchedule:example.com/x"
        );
        let marked = |marker: &str| Node { marker: Some(marker.to_owned()), ..node.clone() };
        assert_eq!(marked(&marker).withheld().collect::<Vec<_>>(), names);
        assert_eq!(marked(&marker).restored_from().map(|it| it.generation), Some(9));
        for marker in ["u1/9", "u1", "u2/9/why:name", "u1/9/", "u1/9/name"] {
            assert_eq!(marked(marker).withheld().count(), 0, "{marker}");
        }
    }

    #[test]
    fn machines_differ_if_both_have_a_name_of_the_same_kind_and_the_names_differ() {
        let machine = |provider_id: &str, system_uuid: &str| {
            let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            Machine { provider_id: some(provider_id), system_uuid: some(system_uuid) }
        };
        for (one, other, differs) in [
            (machine("p", "S"), machine("p", "s"), false),
            (machine("", "s"), machine("p", "s"), false),
            (machine("p", ""), machine("", "s"), false),
            (machine("p", "s"), machine("q", "s"), true),
            (machine("p", "s"), machine("p", "t"), true),
            (machine("p", ""), machine("p", "s"), false),
            (machine("", ""), machine("", ""), false),
            (machine("", NOBODYS[0]), machine("", NOBODYS[1]), true),
        ] {
            assert_eq!(one.differs_from(&other), differs, "{one:?} {other:?}");
            assert_eq!(other.differs_from(&one), differs);
        }
    }
}
