//! An event, an object or a status of any bytes never panics, and an object always has a name.

#![no_main]

use label_storage_wire::{Event, Format, read_event, read_object, read_status};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for format in [Format::Protobuf, Format::Json] {
        if let Ok(Event::Changed(object) | Event::Deleted(object)) = read_event(format, bytes) {
            assert!(!object.name.is_empty());
        }
        if let Ok(object) = read_object(format, bytes) {
            assert!(!object.name.is_empty());
        }
        read_status(format, bytes);
    }
});
