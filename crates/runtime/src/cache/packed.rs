//! Summaries without the gaps that options and alignment leave: half the size.

use jiff::Timestamp;
use label_storage::ResourceVersion;
use label_storage::store::{LastSeen, Stored};
use label_storage::summary::{
    LabelsDigest, NodeSummary, RecordId, RecordSummary, RestoredFrom, Traits, UidDigest,
};

/// 128 bits that need not lie where 128 bits want to.
#[derive(Debug, Clone, Copy, Default)]
struct Bits([u64; 2]);

impl From<u128> for Bits {
    fn from(bits: u128) -> Self {
        Self([bits as u64, (bits >> 64) as u64])
    }
}

impl From<Bits> for u128 {
    fn from(Bits([low, high]): Bits) -> Self {
        Self::from(high) << 64 | Self::from(low)
    }
}

/// A Node, or that there is none.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PackedNode {
    uid: Bits,
    labels: Bits,
    /// One more than the generation that the Node was restored from. The largest two are the same: more than any record
    /// has.
    restored_from: u64,
    /// And the ConfigMap.
    restored_record: u64,
    /// What it is.
    traits: u8,
}

const IS_PRESENT: u8 = 16;
const IS_IGNORED: u8 = 1;
const IS_UNSELECTED: u8 = 2;
const IS_UNIDENTIFIED: u8 = 4;
const HAS_STARTUP_TAINT: u8 = 8;

fn flag(flag: u8, is_set: bool) -> u8 {
    if is_set { flag } else { 0 }
}

impl PackedNode {
    pub(super) fn pack(node: &NodeSummary) -> Self {
        Self {
            uid: node.uid.to_bits().into(),
            labels: node.labels.to_bits().into(),
            restored_from: node.restored_from.map_or(0, |from| from.generation.saturating_add(1)),
            restored_record: node.restored_from.and_then(|from| from.record).map_or(0, RecordId::to_bits),
            traits: IS_PRESENT
                | flag(IS_IGNORED, node.traits.is_ignored)
                | flag(IS_UNSELECTED, node.traits.is_unselected)
                | flag(IS_UNIDENTIFIED, node.traits.is_unidentified)
                | flag(HAS_STARTUP_TAINT, node.traits.has_startup_taint),
        }
    }

    pub(super) fn is_there(self) -> bool {
        self.traits & IS_PRESENT != 0
    }

    /// The same Node, gone: what is left is which it was, and what it had last.
    pub(super) fn gone(self) -> Self {
        Self { uid: self.uid, labels: self.labels, ..Self::default() }
    }

    /// The Node as it was last seen, if it is gone.
    pub(super) fn last_seen(self, version: ResourceVersion) -> Option<LastSeen> {
        let uid = UidDigest::from_bits(self.uid.into()).filter(|_| !self.is_there())?;
        Some(LastSeen { uid, version, labels: LabelsDigest::from_bits(self.labels.into()) })
    }

    pub(super) fn unpack(self, version: ResourceVersion) -> Option<NodeSummary> {
        let generation = match self.restored_from {
            0 => None,
            u64::MAX => Some(u64::MAX),
            more => Some(more - 1),
        };
        let record = RecordId::from_bits(self.restored_record);
        let restored_from = generation.map(|generation| RestoredFrom { record, generation });
        let labels = LabelsDigest::from_bits(self.labels.into());
        let traits = Traits {
            is_ignored: self.traits & IS_IGNORED != 0,
            is_unselected: self.traits & IS_UNSELECTED != 0,
            is_unidentified: self.traits & IS_UNIDENTIFIED != 0,
            has_startup_taint: self.traits & HAS_STARTUP_TAINT != 0,
        };
        let uid = UidDigest::from_bits(self.uid.into()).filter(|_| self.is_there())?;
        Some(NodeSummary { uid, version, labels, restored_from, traits })
    }
}

/// A record, or that there is none.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PackedRecord {
    id: u64,
    uid: Bits,
    labels: Bits,
    node_version: u64,
    labels_generation: u64,
    /// In seconds: that is how it is written.
    departed_at: i64,
    /// What of the above is there.
    flags: u8,
}

const IS_THERE: u8 = 1;
const IS_READABLE: u8 = 2;
const IS_EMPTY: u8 = 4;
const HAS_NODE_VERSION: u8 = 8;
const HAS_LABELS_GENERATION: u8 = 16;
const HAS_DEPARTED: u8 = 32;

impl PackedRecord {
    pub(super) fn pack(stored: Stored<RecordSummary>) -> Self {
        let record = match stored {
            Stored::Nothing => return Self::default(),
            Stored::Unreadable => return Self { flags: IS_THERE, ..Self::default() },
            Stored::Record(record) => record,
        };
        Self {
            id: record.id.map_or(0, RecordId::to_bits),
            uid: record.uid.map_or(0, UidDigest::to_bits).into(),
            labels: record.labels.to_bits().into(),
            node_version: record.node_version.map_or(0, |version| version.0),
            labels_generation: record.labels_generation.unwrap_or_default(),
            departed_at: record.departed_at.map_or(0, Timestamp::as_second),
            flags: IS_THERE
                | IS_READABLE
                | flag(IS_EMPTY, record.is_empty)
                | flag(HAS_NODE_VERSION, record.node_version.is_some())
                | flag(HAS_LABELS_GENERATION, record.labels_generation.is_some())
                | flag(HAS_DEPARTED, record.departed_at.is_some()),
        }
    }

    pub(super) fn is_there(self) -> bool {
        self.has(IS_THERE)
    }

    fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn unpack(self) -> Stored<RecordSummary> {
        if !self.is_there() {
            return Stored::Nothing;
        } else if !self.has(IS_READABLE) {
            return Stored::Unreadable;
        }
        let departed_at = || Timestamp::from_second(self.departed_at).unwrap_or(Timestamp::MAX);
        Stored::Record(RecordSummary {
            id: RecordId::from_bits(self.id),
            uid: UidDigest::from_bits(self.uid.into()),
            node_version: self.has(HAS_NODE_VERSION).then_some(ResourceVersion(self.node_version)),
            labels_generation: self.has(HAS_LABELS_GENERATION).then_some(self.labels_generation),
            departed_at: self.has(HAS_DEPARTED).then(departed_at),
            labels: LabelsDigest::from_bits(self.labels.into()),
            is_empty: self.has(IS_EMPTY),
        })
    }
}

#[cfg(test)]
mod tests {
    use label_storage::Uid;
    use proptest::prelude::*;

    use super::*;

    fn uid() -> impl Strategy<Value = UidDigest> {
        any::<u128>().prop_map(|bits| UidDigest::from_bits(bits.max(1)).expect("not zero"))
    }

    proptest! {
        #[test]
        fn a_node_is_what_it_was(
            uid in uid(),
            labels: u128,
            generation in prop_oneof![Just(None), Just(Some(0)), Just(Some(u64::MAX)), (0..u64::MAX - 1).prop_map(Some)],
            record: u64,
            version: u64,
            traits: [bool; 4],
        ) {
            let [is_ignored, is_unselected, is_unidentified, has_startup_taint] = traits;
            let traits = Traits { is_ignored, is_unselected, is_unidentified, has_startup_taint };
            let (version, labels) = (ResourceVersion(version), LabelsDigest::from_bits(labels));
            let record = RecordId::from_bits(record);
            let restored_from = generation.map(|generation| RestoredFrom { record, generation });
            let node = NodeSummary { uid, version, labels, restored_from, traits };
            let packed = PackedNode::pack(&node);
            prop_assert_eq!(packed.unpack(version), Some(node));
            prop_assert_eq!(packed.last_seen(version), None);
            prop_assert_eq!(packed.gone().unpack(version), None);
            prop_assert_eq!(packed.gone().last_seen(version), Some(LastSeen { uid, version, labels }));
        }

        #[test]
        fn a_record_is_what_it_was(
            id: u64,
            uid in proptest::option::of(uid()),
            labels: u128,
            node_version in proptest::option::of(any::<u64>().prop_map(ResourceVersion)),
            labels_generation: Option<u64>,
            departed_at in proptest::option::of(-1_000_000_000i64..=4_000_000_000),
            is_empty: bool,
        ) {
            let departed_at = departed_at.and_then(|second| Timestamp::from_second(second).ok());
            let labels = LabelsDigest::from_bits(labels);
            let id = RecordId::from_bits(id);
            let record = RecordSummary { id, uid, node_version, labels_generation, departed_at, labels, is_empty };
            prop_assert_eq!(PackedRecord::pack(Stored::Record(record)).unpack(), Stored::Record(record));
        }
    }

    #[test]
    fn what_is_not_there_stays_so() {
        assert_eq!(PackedNode::default().unpack(ResourceVersion(7)), None);
        for stored in [Stored::Nothing, Stored::Unreadable] {
            assert_eq!(PackedRecord::pack(stored).unpack(), stored);
        }
        let zero = Uid::new("00000000-0000-0000-0000-000000000000").expect("a uid").digest();
        assert_ne!(zero.to_bits(), 0);
    }
}
