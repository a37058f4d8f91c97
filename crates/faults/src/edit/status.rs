//! The errors of the API server.

use prost::Message;
use serde_json::{Value, json};

use super::{Format, MAGIC};

/// The reason and the message of a real error.
pub(crate) fn status(format: Format, code: u16, retry_after: Option<u32>) -> Vec<u8> {
    let (reason, message) = match code {
        404 => ("NotFound", "the object is not found"),
        406 => ("NotAcceptable", "only the following media types are accepted: application/json"),
        409 => (
            "Conflict",
            "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest version and try again",
        ),
        410 => ("Expired", "too old resource version: 1 (2)"),
        422 => ("Invalid", "it is invalid: metadata.uid: Invalid value: \"0\": field is immutable"),
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        ),
        500 => ("InternalError", "Internal error occurred: etcdserver: leader changed"),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504 => ("Timeout", "Timeout: request did not complete within the allotted time"),
        _ => ("Unknown", "the server refused the request"),
    };
    match format {
        Format::Json => json(code, reason, message, retry_after).to_string().into_bytes(),
        Format::Protobuf => protobuf(code, reason, message, retry_after),
    }
}

/// The last event of an expired watch, with its length prefix.
pub(crate) fn expired_event() -> Vec<u8> {
    let object = Some(RawExtension { raw: status(Format::Protobuf, 410, None) });
    let event = WatchEvent { r#type: "ERROR".to_owned(), object }.encode_to_vec();
    // Such an event has some hundred bytes.
    let length = u32::try_from(event.len()).unwrap_or_default().to_be_bytes();
    [&length[..], &event].concat()
}

/// True if this event, which has a length prefix, ends a watch with 410.
pub(crate) fn is_expired(event: &[u8]) -> bool {
    expired(event).unwrap_or(false)
}

fn expired(event: &[u8]) -> Option<bool> {
    let event = WatchEvent::decode(event.get(4..)?).ok()?;
    if event.r#type != "ERROR" {
        return Some(false);
    }
    let envelope = event.object?.raw;
    let envelope = Unknown::decode(envelope.strip_prefix(MAGIC)?).ok()?;
    Some(Status::decode(&*envelope.raw).ok()?.code == 410)
}

fn json(code: u16, reason: &str, message: &str, retry_after: Option<u32>) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": retry_after.map(|seconds| json!({"retryAfterSeconds": seconds})),
        "code": code,
    })
}

fn protobuf(code: u16, reason: &str, message: &str, retry_after: Option<u32>) -> Vec<u8> {
    let details = retry_after
        .map(|seconds| StatusDetails { retry_after_seconds: i32::try_from(seconds).unwrap_or(i32::MAX) });
    let status = Status {
        status: "Failure".to_owned(),
        message: message.to_owned(),
        reason: reason.to_owned(),
        details,
        code: code.into(),
    };
    let kind = TypeMeta { api_version: "v1".to_owned(), kind: "Status".to_owned() };
    [&MAGIC[..], &Unknown::new(kind, status.encode_to_vec()).encode_to_vec()].concat()
}

/// The envelope of every object. Its last two fields are always written, even if they are empty.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Unknown {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
    #[prost(string, optional, tag = "3")]
    content_encoding: Option<String>,
    #[prost(string, optional, tag = "4")]
    content_type: Option<String>,
}

impl Unknown {
    pub(super) fn new(kind: TypeMeta, raw: Vec<u8>) -> Self {
        let empty = Some(String::new());
        Self { type_meta: Some(kind), raw, content_encoding: empty.clone(), content_type: empty }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TypeMeta {
    #[prost(string, tag = "1")]
    pub(super) api_version: String,
    #[prost(string, tag = "2")]
    pub(super) kind: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WatchEvent {
    #[prost(string, tag = "1")]
    r#type: String,
    #[prost(message, optional, tag = "2")]
    object: Option<RawExtension>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RawExtension {
    #[prost(bytes = "vec", tag = "1")]
    raw: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Status {
    #[prost(string, tag = "2")]
    status: String,
    #[prost(string, tag = "3")]
    message: String,
    #[prost(string, tag = "4")]
    reason: String,
    #[prost(message, optional, tag = "5")]
    details: Option<StatusDetails>,
    #[prost(int32, tag = "6")]
    code: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StatusDetails {
    #[prost(int32, tag = "5")]
    retry_after_seconds: i32,
}

#[cfg(test)]
mod tests {
    use label_storage_wire as wire;

    use super::*;

    #[test]
    fn a_refusal_reads_as_one() {
        for format in [Format::Protobuf, Format::Json] {
            for (code, retry_after) in [(429, Some(3)), (429, None), (500, None), (422, None)] {
                let read = wire::read_status(&status(format, code, retry_after));
                assert_eq!((read.code, read.retry_after_seconds), (code, retry_after), "{format:?}");
                assert!(!read.message.is_empty());
            }
        }
    }

    #[test]
    fn an_expired_watch_says_so_in_its_last_event() {
        let event = expired_event();
        assert!(is_expired(&event));
        assert_eq!(event[..4], u32::try_from(event.len() - 4).expect("short").to_be_bytes());
        let asked = wire::Asked { content: wire::Content::Node, annotations: &|_| false };
        let event = wire::read_event(&asked, &event[4..]).expect("an event");
        let wire::Event::Error(status) = event else {
            panic!("another event");
        };
        assert_eq!((status.code, &*status.reason), (410, "Expired"));
    }

    #[test]
    fn an_event_that_says_anything_else_has_not_expired() {
        let refused = WatchEvent {
            r#type: "ERROR".to_owned(),
            object: Some(RawExtension { raw: status(Format::Protobuf, 500, None) }),
        };
        let added = WatchEvent { r#type: "ADDED".to_owned(), ..refused.clone() };
        let empty = WatchEvent { object: None, ..refused.clone() };
        for event in [refused, added, empty].map(|event| event.encode_to_vec()) {
            assert!(!is_expired(&[&[0; 4][..], &event].concat()));
        }
        for event in [&b""[..], b"\0\0", b"\0\0\0\x01{"] {
            assert!(!is_expired(event), "{event:?}");
        }
    }
}
