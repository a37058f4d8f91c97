use std::io::{BufRead, BufReader, Read};

use proptest::prelude::*;

use super::{CONFIG_MAP, METADATA, NODE, any_node_sample, any_sample, node_sample, sample};
use crate::fixtures::{self, Head, Sample, head};
use crate::{Asked, Error, Listed, MAX_ITEM, Object, read_list};

fn read(input: impl BufRead) -> Result<(Listed, Vec<Object>), Error> {
    read_as(&METADATA, input)
}

fn read_as(asked: &Asked<'_>, input: impl BufRead) -> Result<(Listed, Vec<Object>), Error> {
    let mut objects = Vec::new();
    let listed = read_list(asked, input, |object| objects.push(object.expect("a good object")))?;
    assert_eq!(listed.items, objects.len());
    Ok((listed, objects))
}

fn objects(samples: &[Sample]) -> Vec<Object> {
    samples.iter().map(|sample| sample.object.clone()).collect()
}

/// Returns the input in pieces of these lengths, over and over.
struct Pieces<'a> {
    input: &'a [u8],
    lengths: std::iter::Cycle<std::slice::Iter<'a, usize>>,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.lengths.next().copied().unwrap_or(1).min(buffer.len());
        self.input.read(&mut buffer[..length])
    }
}

#[test]
fn a_list_gives_its_objects_and_its_version() {
    for is_last in [false, true] {
        let samples = [sample("a"), sample("b")];
        let bytes = fixtures::list(&Head { is_last, ..head() }, &samples);
        let (listed, found) = read(&bytes[..]).expect("a good list");
        assert_eq!(listed, Listed { resource_version: "1000".to_owned(), items: 2 });
        assert_eq!(found, objects(&samples));
    }
}

#[test]
fn a_list_that_is_cut_anywhere_broke_off() {
    let metadata = ("PartialObjectMetadataList", METADATA, [sample("a"), sample("b")]);
    let nodes = ("NodeList", NODE, [node_sample("a"), node_sample("b")]);
    for (kind, asked, samples) in &[metadata, nodes] {
        for is_last in [false, true] {
            let head = Head { is_last, kind, ..head() };
            let bytes = fixtures::list(&head, samples);
            for end in 0..bytes.len() {
                let result = read_as(asked, &bytes[..end]);
                assert!(matches!(result, Err(Error::BrokeOff)), "cut at {end}: {result:?}");
            }
            read_as(asked, &bytes[..]).expect("a good list");
        }
    }
}

#[test]
fn a_page_of_a_list_is_no_list() {
    let continued = Head { continues: "eyJ2".to_owned(), ..head() };
    let remaining = Head { remaining: Some(3), ..head() };
    for head in [&continued, &remaining, &Head { is_last: true, ..continued.clone() }] {
        let result = read(&fixtures::list(head, &[sample("a")])[..]);
        assert!(matches!(result, Err(Error::Partial)), "{result:?}");
    }
    let none = Head { remaining: Some(0), ..head() };
    read(&fixtures::list(&none, &[sample("a")])[..]).expect("a whole list");
}

#[test]
fn a_list_without_a_version_is_an_error() {
    let head = Head { resource_version: String::new(), ..head() };
    let result = read(&fixtures::list(&head, &[sample("a")])[..]);
    assert!(matches!(result, Err(Error::NoVersion)), "{result:?}");
}

#[test]
fn a_list_of_another_kind_is_refused() {
    for (asked, right) in
        [(METADATA, "PartialObjectMetadataList"), (CONFIG_MAP, "ConfigMapList"), (NODE, "NodeList")]
    {
        for kind in ["PartialObjectMetadataList", "ConfigMapList", "NodeList", "PodList", "Node", "ConfigMap"]
        {
            let bytes = fixtures::list(&Head { kind, ..head() }, &[]);
            let result = read_as(&asked, &bytes[..]);
            if kind == right {
                result.expect("the requested kind");
            } else {
                assert!(matches!(&result, Err(Error::Kind(found)) if found == kind), "{result:?}");
            }
        }
        let unsaid = fixtures::list(&Head { kind: "", ..head() }, &[]);
        read_as(&asked, &unsaid[..]).expect("a list without a kind");
    }
}

#[test]
fn nothing_follows_a_list() {
    let good = fixtures::list(&head(), &[sample("a")]);
    for more in [&b"\x22\0"[..], b"\x12\0", b"x", b"{}", b"\0", &good] {
        let result = read(&[&good, more].concat()[..]);
        assert!(matches!(result, Err(Error::Malformed(_))), "{more:?}: {result:?}");
    }
}

#[test]
fn an_input_that_fails_after_the_list_fails_the_list() {
    struct Fails(std::io::ErrorKind);
    impl Read for Fails {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(self.0.into())
        }
    }
    let good = fixtures::list(&head(), &[sample("a")]);
    for end in [0, 30, good.len() / 2, good.len()] {
        let input = |kind| BufReader::new(good[..end].chain(Fails(kind)));
        // The error of a decompressor if the checksum at the end is missing or wrong.
        let cut = read(input(std::io::ErrorKind::UnexpectedEof));
        assert!(matches!(cut, Err(Error::BrokeOff)), "at {end}: {cut:?}");
        let wrong = read(input(std::io::ErrorKind::InvalidData));
        assert!(matches!(wrong, Err(Error::Io(_))), "at {end}: {wrong:?}");
    }
}

#[test]
fn an_interrupted_read_is_tried_again() {
    struct Interrupted<'a>(&'a [u8], bool);
    impl Read for Interrupted<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.1 = !self.1;
            if self.1 { Err(std::io::ErrorKind::Interrupted.into()) } else { self.0.read(buffer) }
        }
    }
    let good = fixtures::list(&head(), &[sample("a")]);
    read(BufReader::with_capacity(7, Interrupted(&good, false))).expect("a good list");
}

#[test]
fn an_object_may_be_as_large_as_allowed_and_no_larger() {
    let mut large = sample("large");
    large.foreign_annotations = vec![("x".to_owned(), "x".repeat(MAX_ITEM - 10_000))];
    let samples = [large.clone(), large.clone()];
    let (_, found) = read(&fixtures::list(&head(), &samples)[..]).expect("they just fit");
    assert_eq!(found, objects(&samples));

    large.foreign_annotations[0].1.push_str(&"x".repeat(10_000));
    let (mut found, bytes) = (Vec::new(), fixtures::list(&head(), &[sample("a"), large, sample("b")]));
    let listed = read_list(&METADATA, &bytes[..], |object| found.push(object)).expect("a list");
    assert_eq!((listed.items, found.len()), (3, 3));
    let undecodable = found.remove(1).expect_err("too large");
    assert_eq!(undecodable.error, Error::TooLarge.to_string());
    assert_eq!(found, [sample("a"), sample("b")].map(|sample| Ok(sample.object)));
}

proptest! {
    #[test]
    fn a_list_is_read_as_it_was_written_however_it_arrives(
        samples in proptest::collection::vec(any_sample(), 0..5),
        is_last in any::<bool>(),
        lengths in proptest::collection::vec(1_usize..300, 1..8),
        capacity in 1_usize..400,
    ) {
        let bytes = fixtures::list(&Head { is_last, kind: "ConfigMapList", ..head() }, &samples);
        let pieces = Pieces { input: &bytes, lengths: lengths.iter().cycle() };
        let input = BufReader::with_capacity(capacity, pieces);
        let (listed, found) = read_as(&CONFIG_MAP, input).expect("a good list");
        prop_assert_eq!(listed.resource_version, "1000");
        prop_assert_eq!(found, objects(&samples));
    }

    #[test]
    fn a_list_of_nodes_is_read_as_it_was_written(
        samples in proptest::collection::vec(any_node_sample(), 0..5),
        is_last in any::<bool>(),
    ) {
        let bytes = fixtures::list(&Head { is_last, kind: "NodeList", ..head() }, &samples);
        let (_, found) = read_as(&NODE, &bytes[..]).expect("a good list");
        prop_assert_eq!(found, objects(&samples));
    }

    #[test]
    fn no_cut_list_is_ever_a_whole_one(
        samples in proptest::collection::vec(any_sample(), 0..5),
        is_last in any::<bool>(),
        cut in any::<proptest::sample::Index>(),
    ) {
        let bytes = fixtures::list(&Head { is_last, kind: "ConfigMapList", ..head() }, &samples);
        let end = cut.index(bytes.len());
        prop_assert!(read_as(&CONFIG_MAP, &bytes[..end]).is_err());
    }
}
