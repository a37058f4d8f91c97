//! Everything of a Node and of a record that a decision needs, and no more: a daemon has 100,000 of each in memory.
//!
//! Labels and uids are only ever compared with each other, so 64 bits stand for labels and 128 for a uid. A change of labels has the digest of
//! the labels before once in 18 quintillion changes.

use std::num::{NonZeroU32, NonZeroU64};

use jiff::Timestamp;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::withheld::WithheldCounts;
use crate::{Labels, Node, Record, ResourceVersion, Uid};

/// Stands for a uid: the 16 bytes of a UUID, which is all that the API server makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UidDigest {
    high: NonZeroU64,
    low: u64,
}

impl UidDigest {
    /// Stands for a uid that is not known.
    pub const UNKNOWN: Self = Self { high: NonZeroU64::MAX, low: u64::MAX };

    fn new(bits: u128) -> Self {
        // No UUID has zero in its upper half.
        Self { high: NonZeroU64::new((bits >> 64) as u64).unwrap_or(NonZeroU64::MAX), low: bits as u64 }
    }

    /// The uid that it stands for, if that is a UUID, as those of the API server are.
    pub fn to_uuid(self) -> String {
        let hex = format!("{:016x}{:016x}", self.high, self.low);
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }
}

/// Stands for the uid of a ConfigMap. It is only compared with the one that a Node's marker names, so 64 bits are enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordId(NonZeroU64);

impl RecordId {
    /// The id of a ConfigMap whose uid is not known.
    pub const UNKNOWN: Self = Self(NonZeroU64::MAX);

    /// The id of a ConfigMap with this uid.
    pub fn of(uid: &Uid) -> Self {
        let UidDigest { high, low } = uid.digest();
        Self(NonZeroU64::new(low ^ high.get()).unwrap_or(NonZeroU64::MAX))
    }
}

/// A time of day in whole seconds, up to the year 2106.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Second(NonZeroU32);

impl From<Timestamp> for Second {
    fn from(time: Timestamp) -> Self {
        Self(u32::try_from(time.as_second()).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX))
    }
}

impl From<Second> for Timestamp {
    fn from(Second(second): Second) -> Self {
        Self::from_second(second.get().into()).unwrap_or(Self::MAX)
    }
}

/// The record that a Node was restored from, by the Node's own marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoredFrom {
    /// The ConfigMap. Generations of two ConfigMaps can't be compared, also if one has taken the place of the other.
    pub record: RecordId,
    /// Its generation.
    pub generation: u64,
}

/// Stands for a set of labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LabelsDigest(u64);

impl LabelsDigest {
    /// No labels.
    pub const EMPTY: Self = Self(0);

    /// True if it stands for no labels.
    pub fn is_empty(self) -> bool {
        self == Self::EMPTY
    }
}

/// A Node, as far as a decision goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeSummary {
    /// Which incarnation it is.
    pub uid: UidDigest,
    /// The version of this state.
    pub version: ResourceVersion,
    /// All of its labels.
    pub labels: LabelsDigest,
    /// See [`Node::restored_from`].
    pub restored_from: Option<RestoredFrom>,
    /// Its traits.
    pub traits: Traits,
}

impl NodeSummary {
    /// A Node of which only the version is known.
    pub fn unknown(version: ResourceVersion) -> Self {
        let (uid, traits) = (UidDigest::UNKNOWN, Traits::default());
        Self { uid, version, labels: LabelsDigest::EMPTY, restored_from: None, traits }
    }
}

/// Traits of a Node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traits {
    /// See [`Node::is_ignored`].
    pub is_ignored: bool,
    /// True if the rules select other Nodes.
    pub is_unselected: bool,
    /// True if it lacks the identity that its record would be filed under.
    pub is_unidentified: bool,
    /// See [`Node::has_startup_taint`].
    pub has_startup_taint: bool,
    /// The items that its marker names as withheld, and that it lacks.
    pub withheld: WithheldCounts,
}

/// A record, as far as a decision goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordSummary {
    /// The ConfigMap that it is.
    pub id: RecordId,
    /// The incarnation that the labels were read from.
    pub uid: Option<UidDigest>,
    /// The version of the Node that the labels were read from.
    pub node_version: Option<NonZeroU64>,
    /// The generation in which the labels last changed.
    pub labels_generation: Option<NonZeroU64>,
    /// The time at which the Node was found deleted.
    pub departed_at: Option<Second>,
    /// The labels that are restored.
    pub labels: LabelsDigest,
    /// True if it has nothing to restore.
    pub is_empty: bool,
    /// True if it has withheld items.
    pub has_withheld: bool,
    /// True if it has more than labels, so that a whole Node has to be read to restore it.
    pub needs_whole: bool,
    /// True if the ConfigMap has lost the label of records.
    pub is_unlabelled: bool,
}

impl RecordSummary {
    /// The version of the Node that the labels were read from.
    pub fn node_version(&self) -> Option<ResourceVersion> {
        self.node_version.map(|version| ResourceVersion(version.get()))
    }

    /// True if it only makes the API server refuse another create, and shows nothing of any Node.
    pub fn is_tombstone(&self) -> bool {
        self.uid.is_none() && self.is_empty
    }

    /// True if the labels were read from this very incarnation.
    pub fn is_of(&self, node: &NodeSummary) -> bool {
        self.uid == Some(node.uid)
    }

    /// True if this Node was restored from the labels of the record, by the Node's own marker. A marker with an older generation does
    /// not count: labels may have been stored since.
    pub fn is_restored_to(&self, node: &NodeSummary) -> bool {
        node.restored_from.is_some_and(|from| {
            from.record == self.id
                && self.labels_generation.is_none_or(|labels| from.generation >= labels.get())
        })
    }
}

impl Uid {
    /// 16 bytes to compare instead.
    pub fn digest(&self) -> UidDigest {
        let bits = uuid_bits(self.as_str()).unwrap_or_else(|| xxh3_128(self.as_str().as_bytes()));
        UidDigest::new(bits)
    }
}

fn uuid_bits(text: &str) -> Option<u128> {
    let is_right = |(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    };
    let is_uuid = text.len() == 36 && text.bytes().enumerate().all(is_right);
    u128::from_str_radix(&text.replace('-', ""), 16).ok().filter(|_| is_uuid)
}

/// The digest of labels, whatever their order.
pub fn digest(labels: &Labels) -> LabelsDigest {
    let mut entry = Vec::with_capacity(128);
    let sum = labels.iter().fold(0u64, |sum, (key, value)| {
        entry.clear();
        entry.extend_from_slice(key.as_bytes());
        // No name has this byte, so no two entries run together to the same bytes.
        entry.push(b'=');
        entry.extend_from_slice(value.as_bytes());
        sum.wrapping_add(xxh3_64(&entry))
    });
    LabelsDigest(sum)
}

impl Node {
    /// Its summary.
    pub fn summary(&self) -> NodeSummary {
        NodeSummary {
            uid: self.uid.digest(),
            version: self.version,
            labels: digest(&self.labels),
            restored_from: self.restored_from(),
            traits: Traits {
                is_ignored: self.is_ignored(),
                is_unselected: self.extras.is_unselected,
                is_unidentified: self.extras.is_unidentified,
                has_startup_taint: self.has_startup_taint(),
                withheld: WithheldCounts::of(self),
            },
        }
    }
}

impl Record {
    /// Its summary.
    pub fn summary(&self) -> RecordSummary {
        RecordSummary {
            id: self.config_map.as_ref().map_or(RecordId::UNKNOWN, RecordId::of),
            uid: self.uid.as_ref().map(Uid::digest),
            node_version: self.node_version.and_then(|version| NonZeroU64::new(version.0)),
            labels_generation: self.labels_generation.and_then(NonZeroU64::new),
            departed_at: self.departed_at.map(Second::from),
            labels: digest(&self.labels),
            // A Node that gets none of its labels back has to be marked, too: the record still has them.
            is_empty: self.is_empty() && !self.more.is_anticipated,
            has_withheld: !self.more.withheld.is_empty(),
            needs_whole: self.all().any(|(name, _, _)| name.contains(':')),
            is_unlabelled: self.more.is_unlabelled,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::uid;

    mod bits;

    fn bits(UidDigest { high, low }: UidDigest) -> u128 {
        u128::from(high.get()) << 64 | u128::from(low)
    }

    #[test]
    fn a_uuid_is_its_own_digest_and_any_other_text_has_one_too() {
        let bits = |text: &str| bits(uid(text).digest());
        assert_eq!(bits("189fb836-0000-4000-8000-0123456789ab"), 0x189f_b836_0000_4000_8000_0123_4567_89ab);
        for uuid in ["189fb836-0000-4000-8000-0123456789ab", "00000000-0000-4000-8000-000000000001"] {
            assert_eq!(uid(uuid).digest().to_uuid(), uuid);
        }
        let others =
            ["u1", "u2", "189FB836-0000-4000-8000-0123456789AB", "00000000-0000-0000-0000-000000000000"];
        for (at, one) in others.iter().enumerate() {
            assert!(others[at + 1..].iter().all(|other| bits(one) != bits(other)), "{one}");
        }
    }

    #[test]
    fn no_labels_have_the_empty_digest() {
        assert_eq!(digest(&Labels::new()), LabelsDigest::EMPTY);
    }

    #[test]
    fn the_bounds_of_keys_and_values_count() {
        let labels = |key: &str, value: &str| Labels::from([(key.to_owned(), value.to_owned())]);
        assert_ne!(digest(&labels("ab", "c")), digest(&labels("a", "bc")));
        assert_ne!(digest(&labels("a", "")), LabelsDigest::EMPTY);
    }

    proptest! {
        #[test]
        fn labels_are_the_same_where_their_digests_are(
            a in proptest::collection::btree_map("[ab]{1,2}", "[ab]{0,2}", 0..4),
            b in proptest::collection::btree_map("[ab]{1,2}", "[ab]{0,2}", 0..4),
        ) {
            prop_assert_eq!(a == b, digest(&a) == digest(&b));
        }
    }
}
