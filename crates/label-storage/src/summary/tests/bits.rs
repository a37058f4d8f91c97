//! The bits of digests.

use super::*;

#[test]
fn a_uuid_is_told_by_its_bits() {
    let digest = uid("00000000-0000-4000-8000-0000000000a7").digest();
    assert_eq!(bits(digest), 0x4000_8000_0000_0000_00a7);
    assert_eq!(uid("u1").digest(), uid("u1").digest());
}

#[test]
fn only_no_labels_are_empty() {
    assert!(LabelsDigest::EMPTY.is_empty() && digest(&Labels::new()).is_empty());
    assert!(!digest(&Labels::from([(String::new(), String::new())])).is_empty());
}

#[test]
fn what_is_almost_a_uuid_is_told_by_all_of_its_text() {
    let uuid = "189fb836-0000-4000-8000-0123456789ab";
    let others = [
        "189fb836-0000-4000-8000-0123456789a",
        "189fb836-0000-4000-8000-0123456789ab0",
        "189fb836_0000-4000-8000-0123456789ab",
        "189fb836-0000_4000-8000-0123456789ab",
        "189fb836-0000-4000_8000-0123456789ab",
        "189fb836-0000-4000-8000_0123456789ab",
        "189fb836-0000-4000-8000-0123456789aB",
        "189fb836-0000-4000-8000-0123456789ag",
        "189fb83600004000800000123456789ab",
    ];
    for other in others {
        assert_eq!(bits(uid(other).digest()), xxh3_128(other.as_bytes()), "{other}");
        assert_ne!(uid(other).digest(), uid(uuid).digest());
    }
}

#[test]
fn both_halves_of_a_uid_tell_one_config_map_from_another() {
    let id = |text: &str| RecordId::of(&uid(text));
    assert_eq!(id("00000000-0000-0001-0000-000000000003").0.get(), 2);
    assert_eq!(id("00000000-0000-0003-0000-000000000003").0.get(), u64::MAX, "zero is no id");
}

#[test]
fn a_departure_is_known_to_the_second() {
    for second in [1, 1_700_000_000] {
        let time = Timestamp::from_second(second).expect("a time");
        assert_eq!(Timestamp::from(Second::from(time)), time);
    }
    let last = Timestamp::from_second(u32::MAX.into()).expect("a time");
    for nonsense in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
        assert_eq!(Timestamp::from(Second::from(nonsense)), last, "nobody departed then");
    }
}

#[test]
fn a_summary_is_small() {
    assert_eq!((size_of::<NodeSummary>(), size_of::<RecordSummary>()), (56, 56));
}
