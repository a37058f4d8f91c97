//! What a decision needs to know of a Node, read from one answer of the API server.

use std::fmt;
use std::str::FromStr;

use crate::summary::{RecordId, RestoredFrom};
use crate::{Labels, Record};

/// The annotation with which the restorer marks a Node, in the same patch as the labels: `<node uid>/<generation>@<ConfigMap uid>`, and
/// what it withheld, if anything: `/<why>:<name>,<why>:<name>`.
pub const RESTORED: &str = "label-storage/restored";
/// The name that stands for all that a Node lacks of its record, where there is no room to name each.
pub const EVERYTHING: &str = "*";
/// The annotation with which a person takes a Node out of all this: `"true"`.
pub const IGNORE: &str = "label-storage/ignore";
/// The annotation that says which labels of this very Node are kept. It is kept itself.
pub const KEEP: &str = "label-storage/keep";
/// The taint that a Node may register with, so that no pod comes before its labels.
pub const STARTUP_TAINT: &str = "label-storage/restoring";

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
    /// What else there is to it, as far as anyone has asked.
    pub extras: Extras,
}

/// What a Node has beside labels. Most clusters keep labels alone, and then none of this is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extras {
    /// What its record is filed under, where that is not its name.
    pub identity: Option<String>,
    /// Those annotations that were asked for: what the rules want and our own, or all of them.
    pub annotations: Labels,
    /// All of its taints, in their order: the list can only be written as a whole.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub is_unschedulable: bool,
    /// Whether it does not have what its record would be filed under, or does not have it yet.
    pub is_unidentified: bool,
    /// Which machine it is.
    pub machine: Machine,
    /// Whether all of it was read, not its metadata alone. If not, nothing is known of taints, cordon and machine, nor of annotations
    /// that the rules do not ask for. For a restorer *all* annotations are to be read then: it may be a record from other rules that
    /// it restores, and it must not overwrite what it has not seen.
    pub is_whole: bool,
    /// Whether the rules have no record made of it. See [`Node::seen_through`].
    pub is_unselected: bool,
}

/// A taint, with all that has to be written back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    /// A key, as labels have it.
    pub key: String,
    /// A value, as labels have it; empty where there is none.
    pub value: String,
    /// What it does to pods.
    pub effect: String,
    /// Since when, for those that evict.
    pub time_added: Option<String>,
}

/// Which machine a Node is, by what cloud and kubelet say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// `spec.providerID`: the instance, by the cloud's name for it.
    pub provider_id: Option<String>,
    /// `status.nodeInfo.systemUUID`: the machine, by its own.
    pub system_uuid: Option<String>,
}

impl Machine {
    /// Whether this is another machine beyond doubt: a name for it that both have differs.
    pub fn differs_from(&self, other: &Self) -> bool {
        let differ = |one: &Option<String>, other: &Option<String>| match (one, other) {
            (Some(one), Some(other)) => !one.eq_ignore_ascii_case(other),
            _ => false,
        };
        differ(&self.provider_id, &other.provider_id) || differ(&self.system_uuid, &other.system_uuid)
    }

    /// Whether this is the same machine beyond doubt. The cloud's name alone proves nothing: some clouds make it of the instance's
    /// name, which the next instance has again.
    pub fn is_surely(&self, other: &Self) -> bool {
        let is_proven = match (&self.system_uuid, &other.system_uuid) {
            (Some(one), Some(other)) => is_proof(one, other),
            _ => false,
        };
        is_proven && !self.differs_from(other)
    }

    /// Without names that are longer than any: a record has to hold them.
    pub(crate) fn checked(self) -> Self {
        let check = |name: Option<String>| name.filter(|name| name.len() <= MAX_IDENTITY);
        Self { provider_id: check(self.provider_id), system_uuid: check(self.system_uuid) }
    }

    /// Whether nothing is known of it.
    pub fn is_unknown(&self) -> bool {
        self.provider_id.is_none() && self.system_uuid.is_none()
    }
}

/// The longest name that a machine, or anything else that a record is filed under, can have. Whoever writes it may write much more, and
/// a record has to hold it.
pub const MAX_IDENTITY: usize = 1024;

/// What boards say whose maker gave them no UUID of their own.
const NOBODYS: [&str; 4] = [
    "00020003-0004-0005-0006-000700080009",
    "03000200-0400-0500-0006-000700080009",
    "07090201-0103-0301-0807-060504030201",
    "12345678-1234-5678-90AB-CDDEEFAABBCC",
];

/// Whether a machine of this UUID can be told from others: many boards have none, and say what many others say.
pub(crate) fn is_own_uuid(uuid: &str) -> bool {
    // All zeroes, or all ones: there is none, says the standard.
    let digits: Vec<_> =
        uuid.bytes().filter(|byte| *byte != b'-').map(|byte| byte.to_ascii_lowercase()).collect();
    let is_one_byte = digits.len() == 32 && digits.chunks(2).all(|byte| byte == &digits[..2]);
    !is_one_byte && !NOBODYS.iter().any(|nobodys| nobodys.eq_ignore_ascii_case(uuid))
}

/// Whether two UUIDs prove that it is one machine.
pub(crate) fn is_proof(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other) && is_own_uuid(one)
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
        Ok(Self { name, uid, version, labels, marker, extras: Extras::default() })
    }

    /// What its record is filed under: its name, or what the rules say makes it the same Node when it returns.
    pub fn filed_under(&self) -> &str {
        self.extras.identity.as_deref().unwrap_or(&self.name)
    }

    /// Whether a person has taken it out of all this.
    pub fn is_ignored(&self) -> bool {
        self.annotation(IGNORE) == Some("true")
    }

    /// Which of its labels are to be kept, where a person has said so on the Node itself.
    pub fn keep_list(&self) -> Option<&str> {
        self.annotation(KEEP)
    }

    /// Whether it still has the taint that keeps pods away until its labels are back.
    pub fn has_startup_taint(&self) -> bool {
        self.extras.taints.iter().any(|taint| taint.key == STARTUP_TAINT)
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.extras.annotations.get(key).map(String::as_str)
    }

    /// The record that this incarnation was restored from, if it was. A marker that names another uid was copied from an earlier
    /// incarnation (a Node re-created from saved YAML) and counts as none, and so does one without a generation.
    pub fn restored_from(&self) -> Option<RestoredFrom> {
        let mut marker = self.marker.as_deref()?.split('/');
        let is_own = marker.next() == Some(self.uid.as_str());
        let source = marker.next().filter(|_| is_own)?;
        let (generation, record) = source.split_once('@').unwrap_or((source, ""));
        Some(RestoredFrom {
            record: Uid::new(record).as_ref().map(RecordId::of),
            generation: generation.parse().ok()?,
        })
    }

    /// The names of what the restorer has not given this incarnation back, though its record had it; or [`EVERYTHING`].
    pub fn withheld(&self) -> impl Iterator<Item = &str> {
        let own = self.restored_from().and_then(|_| self.marker.as_deref()?.splitn(3, '/').nth(2));
        own.into_iter()
            .flat_map(|list| list.split(','))
            .filter_map(|entry| entry.split_once(':').map(|(_, name)| name))
    }

    /// The marker that says: restored from this record, but for what is named with the reason.
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
    fn machines_are_the_same_or_others_or_nobody_knows() {
        let machine = |provider_id: &str, system_uuid: &str| {
            let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            Machine { provider_id: some(provider_id), system_uuid: some(system_uuid) }
        };
        for (one, other, is_surely, differs) in [
            (machine("p", "S"), machine("p", "s"), true, false),
            (machine("", "s"), machine("p", "s"), true, false),
            (machine("p", "s"), machine("q", "s"), false, true),
            (machine("p", "s"), machine("p", "t"), false, true),
            (machine("p", ""), machine("p", "s"), false, false),
            (machine("", ""), machine("", ""), false, false),
            // Nobody's names prove nothing.
            (machine("p", NOBODYS[1]), machine("p", NOBODYS[1]), false, false),
            (machine("", &NOBODYS[3].to_lowercase()), machine("", NOBODYS[3]), false, false),
            (machine("", &"0".repeat(32)), machine("", &"0".repeat(32)), false, false),
            (
                machine("", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
                machine("", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"),
                false,
                false,
            ),
            (machine("", NOBODYS[0]), machine("", NOBODYS[1]), false, true),
            (machine("", "0"), machine("", "0"), true, false),
        ] {
            assert_eq!(
                (one.is_surely(&other), one.differs_from(&other)),
                (is_surely, differs),
                "{one:?} {other:?}"
            );
            assert_eq!((other.is_surely(&one), other.differs_from(&one)), (is_surely, differs));
        }
    }
}
