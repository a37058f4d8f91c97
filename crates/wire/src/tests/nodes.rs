//! Fields that only Nodes have, and the annotations that are kept.

use proptest::prelude::*;

use super::hostile::{delimited, varint};
use super::{CONFIG_MAP, METADATA, NODE, any_node_sample, event, node_sample, sample};
use crate::fixtures::{self, Head, Sample, enveloped, head};
use crate::{Asked, Content, Error, Event, NodePart, Object, read_event, read_list, read_object};

/// A Node with these fields and a name.
fn node_with(fields: &[u8]) -> Result<NodePart, Error> {
    let bytes = enveloped("Node", [&delimited(1, &delimited(1, b"a")), fields].concat());
    Ok(read_object(&NODE, &bytes)?.node.expect("a Node was asked for"))
}

fn taint_with(fields: &[u8]) -> Vec<u8> {
    delimited(2, &delimited(5, fields))
}

#[test]
fn a_node_is_read_as_a_node_only_where_one_was_asked_for() {
    let sample = node_sample("a");
    let unsaid = fixtures::object("", &sample);
    assert_eq!(read_object(&NODE, &unsaid).expect("a Node"), sample.object);
    let metadata = read_object(&METADATA, &unsaid).expect("its metadata");
    assert_eq!(metadata, Object { node: None, ..sample.object });
}

#[test]
fn a_node_that_says_nothing_of_itself_is_still_a_node() {
    let empty = Some(NodePart::default());
    let node = super::sample("a");
    let sample = Sample { object: Object { node: empty.clone(), ..node.object }, ..node };
    let object = read_object(&NODE, &fixtures::object("Node", &sample)).expect("a Node");
    assert_eq!(object, sample.object);
    assert_eq!(node_with(&[]).ok(), empty, "without spec and status");
    assert_eq!(node_with(&[delimited(2, b""), delimited(3, b"")].concat()).ok(), empty);
}

#[test]
fn events_and_bookmarks_of_nodes_are_read() {
    let sample = node_sample("a");
    for (r#type, expected) in [
        ("ADDED", Event::Changed(sample.object.clone())),
        ("MODIFIED", Event::Changed(sample.object.clone())),
        ("DELETED", Event::Deleted(sample.object.clone())),
        ("BOOKMARK", Event::Bookmark { resource_version: "42".to_owned() }),
    ] {
        let frame = event(r#type, &sample);
        assert_eq!(read_event(&NODE, &frame).expect("a good event"), expected);
        for asked in [METADATA, CONFIG_MAP] {
            let result = read_event(&asked, &frame);
            assert!(matches!(&result, Err(Error::Kind(kind)) if kind == "Node"), "{result:?}");
        }
    }
}

#[test]
fn the_time_of_a_taint_is_written_as_json_has_it() {
    let seconds = |seconds: i64| [&b"\x08"[..], &varint(seconds.cast_unsigned())].concat();
    for (bytes, expected) in [
        (seconds(1_767_225_600), Some("2026-01-01T00:00:00Z")),
        (seconds(0), Some("1970-01-01T00:00:00Z")),
        (seconds(-1), Some("1969-12-31T23:59:59Z")),
        (seconds(951_782_400), Some("2000-02-29T00:00:00Z")),
        // Fractions of a second are dropped, as in Kubernetes.
        ([seconds(1_767_225_601), b"\x10\x07".to_vec()].concat(), Some("2026-01-01T00:00:01Z")),
        (b"\x10\0".to_vec(), Some("1970-01-01T00:00:00Z")),
        (Vec::new(), None),
        (seconds(-62_135_596_799), Some("0001-01-01T00:00:01Z")),
        (seconds(-62_135_596_800), None),
        (seconds(253_402_207_200), Some("9999-12-30T22:00:00Z")),
        (seconds(253_402_300_800), None),
        (seconds(i64::MIN), None),
        (seconds(i64::MAX), None),
    ] {
        let node = node_with(&taint_with(&delimited(4, &bytes))).expect("a Node");
        assert_eq!(node.taints[0].time_added.as_deref(), expected, "{bytes:?}");
    }
    assert_eq!(node_with(&taint_with(b"")).expect("a Node").taints[0].time_added, None);
}

#[test]
fn those_annotations_are_kept_that_are_asked_for() {
    type Wants = &'static (dyn Fn(&str) -> bool + Sync);
    let wants: [Wants; 3] = [&|_| false, &|key| key == "example.com/huge", &|_| true];
    for (kind, list_kind, content, sample) in [
        ("PartialObjectMetadata", "PartialObjectMetadataList", Content::Metadata, sample("a")),
        ("ConfigMap", "ConfigMapList", Content::ConfigMap, sample("a")),
        ("Node", "NodeList", Content::Node, node_sample("a")),
    ] {
        let huge = ("example.com/huge".to_owned(), "x".repeat(300));
        let ours = ("label-storage/node".to_owned(), "a".to_owned());
        for (annotations, kept) in wants.into_iter().zip([vec![], vec![huge.clone()], vec![huge, ours]]) {
            let asked = Asked { content, annotations };
            let expected = Object { annotations: kept.into_iter().collect(), ..sample.object.clone() };
            let object = fixtures::object(kind, &sample);
            assert_eq!(read_object(&asked, &object).expect("an object"), expected);
            let list = Head { kind: list_kind, ..head() };
            let list = fixtures::list(&list, std::slice::from_ref(&sample));
            let mut found = Vec::new();
            read_list(&asked, &list[..], |object| found.push(object)).expect("a list");
            assert_eq!(found, [Ok(expected)]);
        }
    }
}

#[test]
fn fields_of_a_node_that_are_of_another_type_are_malformed() {
    let number = |field: u8| vec![field << 3, 1];
    let fixed = |field: u8| [&[field << 3 | 5][..], b"1234"].concat();
    let status = |fields: &[u8]| delimited(3, &delimited(7, fields));
    for bytes in [
        number(2),
        fixed(3),
        delimited(2, &number(3)),
        delimited(2, &delimited(4, b"\x01")),
        delimited(2, &fixed(4)),
        delimited(2, &number(5)),
        taint_with(&number(1)),
        taint_with(&number(2)),
        taint_with(&number(3)),
        taint_with(&number(4)),
        taint_with(&delimited(4, &delimited(1, b"\x01"))),
        taint_with(&delimited(4, &fixed(1))),
        taint_with(&delimited(4, &delimited(2, b"\x01"))),
        delimited(3, &number(7)),
        status(&number(2)),
    ] {
        let result = node_with(&bytes);
        assert!(matches!(result, Err(Error::Malformed(_))), "{bytes:?}: {result:?}");
    }
}

#[test]
fn a_length_that_a_part_of_a_node_claims_is_never_believed() {
    for length in [100, 1 << 31, 1 << 60, u64::MAX] {
        for field in [1_u8, 2, 3, 4, 5, 7, 15] {
            let claim = [&[field << 3 | 2][..], &varint(length)].concat();
            for bytes in [
                claim.clone(),
                delimited(2, &claim),
                taint_with(&claim),
                taint_with(&delimited(4, &claim)),
                delimited(3, &claim),
                delimited(3, &delimited(7, &claim)),
            ] {
                let result = node_with(&bytes);
                assert!(matches!(result, Err(Error::Malformed(_))), "{bytes:?}: {result:?}");
            }
        }
    }
}

proptest! {
    #[test]
    fn a_node_is_read_as_it_was_written(sample in any_node_sample()) {
        let object = read_object(&NODE, &fixtures::object("Node", &sample)).expect("a Node");
        prop_assert_eq!(&object, &sample.object);
        let event = read_event(&NODE, &event("ADDED", &sample)).expect("an event");
        prop_assert_eq!(event, Event::Changed(object));
    }

    #[test]
    fn no_cut_node_is_ever_a_whole_one(
        sample in any_node_sample(),
        cut in any::<proptest::sample::Index>(),
    ) {
        let bytes = fixtures::object("Node", &sample);
        prop_assert!(read_object(&NODE, &bytes[..cut.index(bytes.len())]).is_err());
    }
}
