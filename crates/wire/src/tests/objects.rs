use proptest::prelude::*;
use serde_json::json;

use super::{CONFIG_MAP, METADATA, NODE, any_sample, event, node_sample, sample};
use crate::fixtures::{self, Sample, head};
use crate::{Error, Event, Object, Status, Undecodable, read_event, read_list, read_object, read_status};

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
    for (kind, asked, sample) in [
        ("PartialObjectMetadata", METADATA, sample("a")),
        ("ConfigMap", CONFIG_MAP, sample("a")),
        ("Node", NODE, node_sample("a")),
    ] {
        let bytes = fixtures::object(kind, &sample);
        let object = read_object(&asked, &bytes).expect("a good object");
        assert_eq!(object, sample.object);
        assert_eq!(read_object(&asked, &fixtures::object("", &sample)).expect("no kind"), object);
    }
}

#[test]
fn another_kind_of_object_is_refused() {
    for (asked, right) in [(METADATA, "PartialObjectMetadata"), (CONFIG_MAP, "ConfigMap"), (NODE, "Node")] {
        for kind in ["PartialObjectMetadata", "ConfigMap", "Node", "NodeList", "ConfigMapList", "node", "Pod"]
        {
            let bytes = fixtures::object(kind, &sample("a"));
            let result = read_object(&asked, &bytes);
            if kind == right {
                result.expect("the requested kind");
            } else {
                assert!(matches!(&result, Err(Error::Kind(found)) if found == kind), "{result:?}");
            }
        }
    }
}

#[test]
fn an_object_that_is_cut_anywhere_is_an_error() {
    for (asked, bytes) in [
        (CONFIG_MAP, fixtures::object("ConfigMap", &sample("a"))),
        (NODE, fixtures::object("Node", &node_sample("a"))),
    ] {
        for end in 0..bytes.len() {
            let result = read_object(&asked, &bytes[..end]);
            assert!(matches!(result, Err(Error::BrokeOff)), "cut at {end}: {result:?}");
        }
    }
}

#[test]
fn an_object_without_a_name_can_not_be_read() {
    let nameless = sample("");
    let error = "the answer is malformed: an object without a name";
    let result = read_object(&CONFIG_MAP, &fixtures::object("ConfigMap", &nameless));
    assert_eq!(result.expect_err("no name").to_string(), error);
    let undecodable = Undecodable { part: Box::new(nameless.object.clone()), error: error.to_owned() };
    let (mut found, list) = (Vec::new(), fixtures::list(&head(), std::slice::from_ref(&nameless)));
    read_list(&METADATA, &list[..], |object| found.push(object)).expect("a list");
    assert_eq!(found, [Err(undecodable.clone())]);
    for r#type in ["ADDED", "MODIFIED", "DELETED"] {
        let event = read_event(&CONFIG_MAP, &event(r#type, &nameless)).expect("an event");
        assert_eq!(event, Event::Undecodable(undecodable.clone()));
    }
}

#[test]
fn of_an_object_that_can_not_be_read_the_start_is_known() {
    let good = sample("a");
    // A number in the place of a ConfigMap's data.
    let bytes = [fixtures::item(&good), b"\x10\x01".to_vec()].concat();
    let frame = fixtures::event("MODIFIED", fixtures::enveloped("ConfigMap", bytes));
    let Ok(Event::Undecodable(Undecodable { part, error })) = read_event(&CONFIG_MAP, &frame) else {
        panic!("it was read");
    };
    assert_eq!((*part, &*error), (good.object, "the answer is malformed: a number instead of a string"));
}

#[test]
fn text_that_is_not_utf8_is_read_with_replacements() {
    let (mut good, mut node) = (sample("a"), node_sample("b"));
    good.object.data = [("pool".to_owned(), "gold".to_owned())].into();
    good.object.annotations = [("label-storage/keep".to_owned(), "gold".to_owned())].into();
    node.object.annotations.clone_from(&good.object.annotations);
    let part = node.object.node.as_mut().expect("a Node");
    (part.provider_id, part.system_uuid) = ("gold".to_owned(), "gold".to_owned());
    for (kind, asked, sample) in [("ConfigMap", CONFIG_MAP, good), ("Node", NODE, node)] {
        let mut bytes = fixtures::object(kind, &sample);
        let places: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"gold")).collect();
        assert!(places.len() > 1);
        places.into_iter().for_each(|at| bytes[at + 2] = 0xff);
        let text = "go\u{fffd}d".to_owned();
        let mut expected = sample.object.clone();
        let values = expected.annotations.values_mut().chain(expected.data.values_mut());
        values.for_each(|value| value.clone_from(&text));
        if let Some(part) = &mut expected.node {
            (part.provider_id, part.system_uuid) = (text.clone(), text.clone());
        }
        assert_eq!(read_object(&asked, &bytes).expect("an object"), expected);
    }
}

#[test]
fn an_event_is_read_as_its_type_says() {
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
        let event = read_event(&CONFIG_MAP, &event(r#type, sample)).expect("a good event");
        assert_eq!(event, expected);
    }
    let event = read_event(&CONFIG_MAP, &fixtures::event("ERROR", fixtures::status(&refusal())))
        .expect("a good event");
    assert_eq!(event, Event::Error(refusal()));
}

#[test]
fn an_event_that_says_nothing_of_use_is_an_error() {
    let version = read_event(&CONFIG_MAP, &event("BOOKMARK", &Sample::default()));
    assert!(matches!(version, Err(Error::NoVersion)), "{version:?}");
    let r#type = read_event(&CONFIG_MAP, &event("RENAMED", &sample("a")));
    assert!(matches!(r#type, Err(Error::Malformed(_))), "{type:?}");
    let no_status = read_event(&CONFIG_MAP, &event("ERROR", &sample("a")));
    assert!(matches!(no_status, Err(Error::Kind(_))), "{no_status:?}");
    assert!(read_event(&CONFIG_MAP, b"").is_err());
}

fn json_status(Status { code, reason, message, retry_after_seconds }: &Status) -> Vec<u8> {
    let details = retry_after_seconds.map(|seconds| json!({ "name": "nodes", "retryAfterSeconds": seconds }));
    let status = json!({
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code,
    });
    status.to_string().into_bytes()
}

#[test]
fn a_status_is_read_in_the_format_that_it_has() {
    for status in [refusal(), Status { retry_after_seconds: None, ..refusal() }] {
        assert_eq!(read_status(&fixtures::status(&status)), status);
        assert_eq!(read_status(&json_status(&status)), status);
    }
}

#[test]
fn whatever_is_no_status_becomes_a_message_of_one_short_line() {
    let long = format!("no healthy upstream\r\n\tat \u{1b}[1m<proxy>\0 {}", "é".repeat(1000));
    for (body, message) in [
        (&b""[..], ""),
        (b"Unauthorized\n", "Unauthorized"),
        (b"{\"error\": \"no\"}", "{\"error\": \"no\"}"),
        (b"{\"kind\": \"Node\"}", "{\"kind\": \"Node\"}"),
        (b"k8s\0\x12\xff", "k8s \u{fffd}"),
    ] {
        assert_eq!(read_status(body), Status { message: message.to_owned(), ..Status::default() });
    }
    let status = read_status(long.as_bytes());
    assert!(status.message.starts_with("no healthy upstream at [1m<proxy> éé"), "{status}");
    assert!(status.message.ends_with("é…") && status.message.chars().count() == 201, "{status}");
}

#[test]
fn a_status_in_the_place_of_what_was_asked_for_is_an_error_that_carries_it() {
    let bytes = fixtures::status(&refusal());
    for result in [METADATA, CONFIG_MAP, NODE].iter().flat_map(|asked| {
        [read_list(asked, &bytes[..], drop).map(drop), read_object(asked, &bytes).map(drop)]
    }) {
        let Err(Error::Status(status)) = &result else { panic!("{result:?}") };
        assert_eq!(*status, refusal());
        assert_eq!(
            result.unwrap_err().to_string(),
            "the API server answered with a status: too old resource version: 1 (2) (410 Expired)"
        );
    }
}

proptest! {
    #[test]
    fn an_object_is_read_as_it_was_written(sample in any_sample()) {
        let bytes = fixtures::object("ConfigMap", &sample);
        let object = read_object(&CONFIG_MAP, &bytes).expect("a good object");
        prop_assert_eq!(&object, &sample.object);
        let event = read_event(&CONFIG_MAP, &event("ADDED", &sample)).expect("a good event");
        prop_assert_eq!(event, Event::Changed(object));
    }
}
