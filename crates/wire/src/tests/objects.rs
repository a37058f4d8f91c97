use proptest::prelude::*;

use super::{BOTH, Sample, any_sample, encoder, format, sample};
use crate::{Error, Event, Format, Object, Status, read_event, read_list, read_object, read_status};

fn refusal() -> Status {
    Status {
        code: 410,
        reason: "Expired".to_owned(),
        message: "too old resource version: 1 (2)".to_owned(),
        retry_after_seconds: Some(3),
    }
}

#[test]
fn an_object_is_read_as_what_it_is() {
    for format in BOTH {
        for kind in ["PartialObjectMetadata", "ConfigMap"] {
            let sample = sample("a");
            let object = read_object(format, &encoder::object(format, kind, &sample)).expect("a good object");
            assert_eq!(object, sample.object);
        }
    }
}

#[test]
fn another_kind_of_object_is_refused() {
    for format in BOTH {
        for kind in ["Node", "ConfigMapList", "configmap"] {
            let result = read_object(format, &encoder::object(format, kind, &sample("a")));
            assert!(matches!(&result, Err(Error::Kind(found)) if found == kind), "{result:?}");
        }
    }
}

#[test]
fn an_object_that_is_cut_anywhere_is_an_error() {
    for format in BOTH {
        let bytes = encoder::object(format, "ConfigMap", &sample("a"));
        for end in 0..bytes.len() {
            let result = read_object(format, &bytes[..end]);
            assert!(matches!(result, Err(Error::BrokeOff)), "{format:?} cut at {end}: {result:?}");
        }
    }
}

#[test]
fn an_object_without_a_name_is_malformed() {
    for format in BOTH {
        let nameless = sample("");
        for result in [
            read_object(format, &encoder::object(format, "ConfigMap", &nameless)).map(drop),
            read_list(
                format,
                &encoder::list(format, &encoder::head(), std::slice::from_ref(&nameless))[..],
                drop,
            )
            .map(drop),
            read_event(format, &encoder::event(format, "ADDED", &nameless)).map(drop),
        ] {
            assert!(
                matches!(&result, Err(Error::Malformed(what)) if what.contains("without a name")),
                "{result:?}"
            );
        }
    }
}

#[test]
fn an_event_is_read_as_its_type_says() {
    for format in BOTH {
        let sample = sample("a");
        let bookmark = Sample {
            object: Object { resource_version: "77".to_owned(), ..Object::default() },
            ..Sample::default()
        };
        for (r#type, sample, expected) in [
            ("ADDED", &sample, Event::Changed(sample.object.clone())),
            ("MODIFIED", &sample, Event::Changed(sample.object.clone())),
            ("DELETED", &sample, Event::Deleted(sample.object.clone())),
            ("BOOKMARK", &bookmark, Event::Bookmark { resource_version: "77".to_owned() }),
        ] {
            let event = read_event(format, &encoder::event(format, r#type, sample)).expect("a good event");
            assert_eq!(event, expected);
        }
        let event = read_event(format, &encoder::error_event(format, &refusal())).expect("a good event");
        assert_eq!(event, Event::Error(refusal()));
    }
}

#[test]
fn an_event_that_says_nothing_of_use_is_an_error() {
    for format in BOTH {
        let version = read_event(format, &encoder::event(format, "BOOKMARK", &Sample::default()));
        assert!(matches!(version, Err(Error::NoVersion)), "{version:?}");
        let r#type = read_event(format, &encoder::event(format, "RENAMED", &sample("a")));
        assert!(matches!(r#type, Err(Error::Malformed(_))), "{type:?}");
        let no_status = read_event(format, &encoder::event(format, "ERROR", &sample("a")));
        assert!(matches!(no_status, Err(Error::Kind(_))), "{no_status:?}");
        assert!(read_event(format, b"").is_err());
    }
}

#[test]
fn a_status_is_read_in_the_format_that_it_has() {
    for format in BOTH {
        for status in [refusal(), Status { retry_after_seconds: None, ..refusal() }] {
            assert_eq!(read_status(format, &encoder::status(format, &status)), status);
        }
    }
    let json = encoder::status(Format::Json, &refusal());
    assert_eq!(read_status(Format::Protobuf, &json), refusal(), "the API server falls back to JSON");
}

#[test]
fn whatever_is_no_status_becomes_a_message_of_one_short_line() {
    let long = format!("no healthy upstream\r\n\tat \u{1b}[1m<proxy>\0 {}", "é".repeat(1000));
    for format in BOTH {
        for (body, message) in [
            (&b""[..], ""),
            (b"Unauthorized\n", "Unauthorized"),
            (b"{\"error\": \"no\"}", "{\"error\": \"no\"}"),
            (b"{\"kind\": \"Node\"}", "{\"kind\": \"Node\"}"),
            (b"k8s\0\x12\xff", "k8s \u{fffd}"),
        ] {
            assert_eq!(
                read_status(format, body),
                Status { message: message.to_owned(), ..Status::default() }
            );
        }
        let status = read_status(format, long.as_bytes());
        assert!(status.message.starts_with("no healthy upstream at [1m<proxy> éé"), "{status}");
        assert!(status.message.ends_with("é…") && status.message.chars().count() == 201, "{status}");
    }
}

#[test]
fn a_status_in_the_place_of_what_was_asked_for_is_an_error_that_carries_it() {
    for format in BOTH {
        let bytes = encoder::status(format, &refusal());
        let list = read_list(format, &bytes[..], drop).map(drop);
        let object = read_object(format, &bytes).map(drop);
        for result in [list, object] {
            let Err(Error::Status(status)) = &result else { panic!("{result:?}") };
            assert_eq!(*status, refusal());
            assert_eq!(
                result.unwrap_err().to_string(),
                "the API server answered with a status: too old resource version: 1 (2) (410 Expired)"
            );
        }
    }
}

proptest! {
    #[test]
    fn an_object_is_read_as_it_was_written(format in format(), sample in any_sample()) {
        let object = read_object(format, &encoder::object(format, "ConfigMap", &sample)).expect("a good object");
        prop_assert_eq!(&object, &sample.object);
        let event = read_event(format, &encoder::event(format, "ADDED", &sample)).expect("a good event");
        prop_assert_eq!(event, Event::Changed(object));
    }
}
