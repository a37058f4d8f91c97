//! Reading any bytes as an event, an object or a status never panics, and an object always has a name.

#![no_main]

use label_storage_wire::{Asked, Content, Event, read_event, read_object, read_status};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for content in [Content::Metadata, Content::ConfigMap, Content::Node] {
        let asked = Asked { content, annotations: &|_| true };
        if let Ok(Event::Changed(object) | Event::Deleted(object)) = read_event(&asked, bytes) {
            assert!(!object.name.is_empty());
        }
        if let Ok(object) = read_object(&asked, bytes) {
            assert!(!object.name.is_empty());
        }
    }
    read_status(bytes);
});
