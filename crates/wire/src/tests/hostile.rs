//! Hostile input: an answer may have any content, but reading it must not cost more than its length.

use proptest::collection::vec;
use proptest::prelude::*;
use prost::encoding::encode_varint;

use super::{CONFIG_MAP, METADATA, NODE, any_node_sample, any_sample, event};
use crate::fixtures::{self, Head, Unknown, enveloped, head, sealed};
use crate::{Error, Listed, Undecodable, read_event, read_list, read_object, read_status};

fn list(bytes: &[u8]) -> Result<Listed, Error> {
    read_list(&CONFIG_MAP, bytes, drop)
}

/// The error in the only item of a list that is itself without an error.
fn error_in_item(bytes: &[u8]) -> Option<String> {
    let mut error = None;
    let each = |item: Result<_, Undecodable>| error = item.err().map(|undecodable| undecodable.error);
    let listed = read_list(&CONFIG_MAP, bytes, each).expect("a list");
    assert_eq!(listed.items, 1);
    error
}

fn is_malformed(error: Option<String>) -> bool {
    error.is_some_and(|error| error.starts_with("the answer is malformed"))
}

/// Reads the bytes as every type of answer.
fn read_as_anything(bytes: &[u8]) {
    for asked in [METADATA, CONFIG_MAP, NODE] {
        let mut items = 0;
        let listed = read_list(&asked, bytes, |object| {
            assert!(object.is_err() || object.is_ok_and(|object| !object.name.is_empty()));
            items += 1;
        });
        assert!(listed.is_err() || items <= bytes.len());
        let _ = read_object(&asked, bytes);
        let _ = read_event(&asked, bytes);
    }
    assert!(read_status(bytes).message.len() <= 8 * bytes.len().max(1));
}

pub(super) fn varint(value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_varint(value, &mut bytes);
    bytes
}

pub(super) fn delimited(key: u64, content: &[u8]) -> Vec<u8> {
    [&varint(key << 3 | 2)[..], &varint(content.len() as u64), content].concat()
}

/// A list with a version, and with these fields after it.
fn list_with(fields: &[u8]) -> Vec<u8> {
    enveloped("ConfigMapList", [&delimited(1, &delimited(2, b"1")), fields].concat())
}

#[test]
fn whatever_is_no_protobuf_says_so() {
    for bytes in [&b"{\"kind\":\"List\"}"[..], b"k9s\0", b"<html>", b"\0\0\0\0", b"k8s\n"] {
        let result = list(bytes);
        assert!(matches!(result, Err(Error::NotProtobuf(_))), "{result:?}");
    }
    let message = list(b"404 page\nnot found").unwrap_err().to_string();
    assert_eq!(message, "the answer is not protobuf: it begins with \"404 page not found\"");
}

#[test]
fn a_claimed_length_is_never_believed() {
    for length in [1 << 20, 1 << 31, 1 << 60, u64::MAX - 1, u64::MAX] {
        let claim = varint(length);
        let raw = [b"k8s\0\x12", &claim[..], b"\x0a\x03\x12\x011\x12\x01"].concat();
        assert!(matches!(list(&raw), Err(Error::BrokeOff)), "raw of {length}: {:?}", list(&raw));
        let item_in_raw = [b"k8s\0\x12", &claim[..], b"\x12", &varint(length - 20)].concat();
        assert!(matches!(list(&item_in_raw), Err(Error::BrokeOff | Error::TooLarge)));
        let skipped_in_raw = [b"k8s\0\x12", &claim[..], b"\x7a", &varint(length - 20)].concat();
        assert!(matches!(list(&skipped_in_raw), Err(Error::BrokeOff)));
        let kind = [b"k8s\0\x0a", &claim[..], b"ab"].concat();
        assert!(matches!(list(&kind), Err(Error::BrokeOff | Error::TooLarge)));

        for field in [b"\x0a", b"\x12", b"\x1a", b"\x7a"] {
            let in_list = list_with(&[field, &claim[..]].concat());
            assert!(matches!(list(&in_list), Err(Error::Malformed(_) | Error::TooLarge)));
            let in_item = list_with(&delimited(2, &[field, &claim[..]].concat()));
            assert!(is_malformed(error_in_item(&in_item)));
            let in_meta = list_with(&delimited(2, &delimited(1, &[field, &claim[..]].concat())));
            assert!(is_malformed(error_in_item(&in_meta)));
        }
    }
}

#[test]
fn fields_that_there_can_not_be_are_malformed() {
    let overlong = [0xff; 11];
    let too_many_bits = [&[0xff; 9][..], &[2]].concat();
    for (what, bytes) in [
        ("field number 0", &b"\x02\x00"[..]),
        ("a field number of more than 32 bits", &varint(1 << 40)),
        ("wire type 6", b"\x7e\0"),
        ("wire type 7", b"\x7f\0"),
        ("a group", b"\x7b\x08\x01\x7c"),
        ("the end of a group", b"\x7c"),
        ("a key that does not end", &overlong),
        ("a key of 65 bits", &too_many_bits),
        ("a number that does not end", &[&b"\x78"[..], &overlong].concat()),
        ("a number of 65 bits", &[&b"\x78"[..], &too_many_bits].concat()),
        ("4 bytes that are 3", b"\x7d123"),
        ("8 bytes that are 7", b"\x791234567"),
        ("a key without a value", b"\x78"),
    ] {
        let entry = [&delimited(1, b"k"), bytes].concat();
        let result = list(&list_with(bytes));
        assert!(matches!(result, Err(Error::Malformed(_))), "{what}: {result:?}");
        for place in [
            delimited(2, bytes),
            delimited(2, &delimited(1, bytes)),
            delimited(2, &delimited(1, &delimited(11, &entry))),
            delimited(2, &delimited(1, &delimited(12, &entry))),
            delimited(2, &delimited(3, &entry)),
        ] {
            let error = error_in_item(&list_with(&place));
            assert!(is_malformed(error.clone()), "{what} in {place:?}: {error:?}");
        }
    }
}

#[test]
fn a_known_field_of_another_type_is_malformed() {
    for bytes in [&b"\x08\x01"[..], b"\x15\x01\x01\x01\x01"] {
        let result = list(&list_with(bytes));
        assert!(matches!(result, Err(Error::Malformed(_))), "{bytes:?}: {result:?}");
    }
    for bytes in [
        delimited(2, b"\x08\x01"),
        delimited(2, b"\x10\x01"),
        delimited(2, &delimited(1, b"\x08\x01")),
        delimited(2, &delimited(1, b"\x48\x01")),
        delimited(2, &delimited(1, b"\x58\x01")),
        delimited(2, &delimited(1, &delimited(11, b"\x08\x01"))),
    ] {
        let error = error_in_item(&list_with(&bytes));
        assert!(is_malformed(error.clone()), "{bytes:?}: {error:?}");
    }
}

#[test]
fn an_envelope_is_as_the_api_server_makes_it_or_refused() {
    let raw = delimited(1, &delimited(2, b"1"));
    let good = Unknown {
        type_meta: None,
        raw: Some(raw.clone()),
        content_encoding: Some(String::new()),
        content_type: Some("application/vnd.kubernetes.protobuf".to_owned()),
    };
    list(&sealed(&good)).expect("a good list without a kind");
    let encoded = Unknown { content_encoding: Some("gzip".to_owned()), ..good.clone() };
    assert!(matches!(list(&sealed(&encoded)), Err(Error::Malformed(_))));
    let empty = Unknown { raw: None, ..good.clone() };
    assert!(matches!(list(&sealed(&empty)), Err(Error::Malformed(_))));
    let endless = Unknown { content_type: None, ..good };
    assert!(matches!(list(&sealed(&endless)), Err(Error::BrokeOff)));

    let twice = [b"k8s\0", &delimited(2, &raw)[..], &delimited(2, &raw), b"\x22\0"].concat();
    assert!(matches!(list(&twice), Err(Error::Malformed(_))));
    let kind_last = [b"k8s\0", &delimited(2, &raw)[..], b"\x0a\0", b"\x22\0"].concat();
    assert!(matches!(list(&kind_last), Err(Error::Malformed(_))));
}

#[test]
fn deep_nesting_overflows_no_stack() {
    const DEEP: usize = 1_000_000;
    // A status may be JSON.
    for open in ["[", "{\"x\":", "{\"details\":"] {
        read_as_anything(open.repeat(DEEP).as_bytes());
    }
    let junk = format!("{}{}", "[".repeat(DEEP), "]".repeat(DEEP));
    let text = format!(r#"{{"junk":{junk},"kind":"Status","message":"no"}}"#);
    read_as_anything(text.as_bytes());

    let groups = [0x0b_u8, 0x0c].map(|key| vec![key; DEEP]).concat();
    read_as_anything(&list_with(&groups));
    read_as_anything(&enveloped("Status", groups.clone()));
    read_as_anything(&groups);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn garbage_is_an_error_and_nothing_worse(bytes in vec(any::<u8>(), 0..300)) {
        read_as_anything(&bytes);
        read_as_anything(&enveloped("ConfigMapList", bytes.clone()));
        read_as_anything(&enveloped("Status", bytes.clone()));
        read_as_anything(&enveloped("Node", [2, 3].map(|part| delimited(part, &bytes)).concat()));
        read_as_anything(&list_with(&delimited(2, &bytes)));
        read_as_anything(&[b"k8s\0", &bytes[..]].concat());
    }

    #[test]
    fn an_answer_with_wrong_bytes_in_it_is_read_safely(
        sample in prop_oneof![any_sample(), any_node_sample()],
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        for mut bytes in [
            fixtures::list(&head(), &[sample.clone(), sample.clone()]),
            fixtures::list(&Head { kind: "NodeList", ..head() }, &[sample.clone(), sample.clone()]),
            fixtures::object("ConfigMap", &sample),
            fixtures::object("Node", &sample),
            event("MODIFIED", &sample),
        ] {
            for (place, byte) in &changes {
                let place = place.index(bytes.len());
                bytes[place] = *byte;
            }
            read_as_anything(&bytes);
        }
    }

    #[test]
    fn one_bad_item_of_a_list_keeps_no_other_away(
        samples in vec(any_sample(), 1..5),
        place in any::<prop::sample::Index>(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut items: Vec<_> = samples.iter().map(fixtures::item).collect();
        let place = place.index(items.len());
        for (at, byte) in &changes {
            let at = at.index(items[place].len());
            items[place][at] = *byte;
        }
        let bytes = fixtures::list_of_items(&Head { kind: "ConfigMapList", ..head() }, items);
        let mut found = Vec::new();
        let listed = read_list(&CONFIG_MAP, &bytes[..], |object| found.push(object)).expect("a list");
        prop_assert_eq!((listed.items, found.len()), (samples.len(), samples.len()));
        for (number, sample) in samples.iter().enumerate().filter(|(number, _)| *number != place) {
            prop_assert_eq!(found[number].as_ref(), Ok(&sample.object));
        }
    }
}
