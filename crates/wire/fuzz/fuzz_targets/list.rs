//! A list of any bytes never panics, and is the same however it arrives.

#![no_main]

use std::io::{BufRead, BufReader};

use label_storage_wire::{Format, Listed, Object, read_list};
use libfuzzer_sys::fuzz_target;

fn read(format: Format, input: impl BufRead) -> (Option<Listed>, Vec<Object>) {
    let mut objects = Vec::new();
    let listed = read_list(format, input, |object| objects.push(object));
    (listed.ok(), objects)
}

fuzz_target!(|bytes: &[u8]| {
    for format in [Format::Protobuf, Format::Json] {
        let (listed, objects) = read(format, bytes);
        assert!(listed.as_ref().is_none_or(|listed| listed.items == objects.len()));
        assert_eq!(read(format, BufReader::with_capacity(3, bytes)), (listed.clone(), objects));
        // A list that is cut is none. (JSON may lose blanks, and protobuf nothing.)
        if let (Some(_), Some((_, cut))) = (&listed, bytes.trim_ascii_end().split_last()) {
            let cut = if format == Format::Protobuf { &bytes[..bytes.len() - 1] } else { cut };
            assert!(read(format, cut).0.is_none());
        }
    }
});
