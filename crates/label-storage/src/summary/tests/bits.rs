//! Digests that are kept somewhere else.

use super::*;

#[test]
fn a_digest_survives_being_kept_as_bits() {
    for text in ["189fb836-0000-4000-8000-0123456789ab", "u1"] {
        let digest = uid(text).digest();
        assert_eq!(UidDigest::from_bits(digest.to_bits()), Some(digest));
    }
    assert_eq!(UidDigest::from_bits(0), None, "no uid has these");
    let labels = |value: &str| digest(&Labels::from([("pool".to_owned(), value.to_owned())]));
    for digest in [labels("gold"), labels("silver"), LabelsDigest::EMPTY] {
        assert_eq!(LabelsDigest::from_bits(digest.to_bits()), digest);
    }
    assert_ne!(labels("gold").to_bits(), labels("silver").to_bits());
}

#[test]
fn a_uuid_is_told_by_its_bits() {
    let digest = uid("00000000-0000-4000-8000-0000000000a7").digest();
    assert_eq!(digest.to_bits(), 0x4000_8000_0000_0000_00a7);
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
        assert_eq!(uid(other).digest().to_bits(), xxh3_128(other.as_bytes()), "{other}");
        assert_ne!(uid(other).digest(), uid(uuid).digest());
    }
}

#[test]
fn both_halves_of_a_uid_tell_one_config_map_from_another() {
    let id = |text: &str| RecordId::of(&uid(text));
    assert_eq!(id("00000000-0000-0001-0000-000000000003").to_bits(), 2);
    assert_eq!(id("00000000-0000-0003-0000-000000000003").to_bits(), u64::MAX, "zero is no id");
    let one = id("189fb836-0000-4000-8000-0123456789ab");
    assert_eq!(RecordId::from_bits(one.to_bits()), Some(one));
    assert_eq!(RecordId::from_bits(0), None);
}
