use std::io::{BufRead, BufReader, Read};

use proptest::prelude::*;

use super::encoder::{self, Head, head};
use super::{BOTH, Sample, any_sample, format, sample};
use crate::{Error, Format, Listed, Object, read_list};

fn read(format: Format, input: impl BufRead) -> Result<(Listed, Vec<Object>), Error> {
    let mut objects = Vec::new();
    let listed = read_list(format, input, |object| objects.push(object))?;
    assert_eq!(listed.items, objects.len());
    Ok((listed, objects))
}

fn objects(samples: &[Sample]) -> Vec<Object> {
    samples.iter().map(|sample| sample.object.clone()).collect()
}

/// Gives the input in pieces of these lengths, over and over.
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
    for format in BOTH {
        for is_last in [false, true] {
            let samples = [sample("a"), sample("b")];
            let bytes = encoder::list(format, &Head { is_last, ..head() }, &samples);
            let (listed, found) = read(format, &bytes[..]).expect("a good list");
            assert_eq!(listed, Listed { resource_version: "1000".to_owned(), items: 2 });
            assert_eq!(found, objects(&samples));
        }
    }
}

#[test]
fn a_list_that_is_cut_anywhere_broke_off() {
    for format in BOTH {
        for is_last in [false, true] {
            let head = Head { is_last, ..head() };
            let mut bytes = encoder::list(format, &head, &[sample("a"), sample("b")]);
            if format == Format::Json {
                // Nothing is missing without the newline.
                assert_eq!(bytes.pop(), Some(b'\n'));
            }
            for end in 0..bytes.len() {
                let result = read(format, &bytes[..end]);
                assert!(matches!(result, Err(Error::BrokeOff)), "{format:?} cut at {end}: {result:?}");
            }
            read(format, &bytes[..]).expect("a good list");
        }
    }
}

proptest! {
    #[test]
    fn a_list_is_read_as_it_was_written_however_it_arrives(
        format in format(),
        samples in proptest::collection::vec(any_sample(), 0..5),
        is_last in any::<bool>(),
        lengths in proptest::collection::vec(1_usize..300, 1..8),
        capacity in 1_usize..400,
    ) {
        let bytes = encoder::list(format, &Head { is_last, kind: "ConfigMapList", ..head() }, &samples);
        let pieces = Pieces { input: &bytes, lengths: lengths.iter().cycle() };
        let (listed, found) = read(format, BufReader::with_capacity(capacity, pieces)).expect("a good list");
        prop_assert_eq!(listed.resource_version, "1000");
        prop_assert_eq!(found, objects(&samples));
    }

    #[test]
    fn no_cut_list_is_ever_a_whole_one(
        format in format(),
        samples in proptest::collection::vec(any_sample(), 0..5),
        is_last in any::<bool>(),
        cut in any::<proptest::sample::Index>(),
    ) {
        let bytes = encoder::list(format, &Head { is_last, kind: "ConfigMapList", ..head() }, &samples);
        // The last byte of JSON is a newline, without which nothing is missing.
        let end = cut.index(bytes.trim_ascii_end().len());
        prop_assert!(read(format, &bytes[..end]).is_err());
    }
}
