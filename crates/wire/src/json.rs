//! JSON, for whatever does not speak protobuf.

mod list;

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::{Error, Event, OBJECTS, OURS, Object, Status, check_kind, event, status};

pub(crate) use list::read_list;

pub(crate) fn read_object(bytes: &[u8]) -> Result<Object, Error> {
    serde_json::from_slice::<Anything>(bytes).map_err(error)?.object()
}

pub(crate) fn read_event(frame: &[u8]) -> Result<Event, Error> {
    let WatchEvent { r#type, object } = serde_json::from_slice(frame).map_err(error)?;
    event(&r#type, object, Anything::object, Anything::status)
}

pub(crate) fn read_status(bytes: &[u8]) -> Result<Status, Error> {
    let anything: Anything = serde_json::from_slice(bytes).map_err(error)?;
    // Without a kind it may be anybody's JSON, of which an excerpt says more.
    if anything.kind.is_none() { Err(Error::Kind(String::new())) } else { anything.status() }
}

#[derive(Deserialize)]
struct WatchEvent {
    r#type: String,
    object: Anything,
}

/// Whatever the API server may send. What it is it says itself, and not always at the beginning.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Anything {
    kind: Option<String>,
    metadata: Option<Meta>,
    data: Option<BTreeMap<String, String>>,
    binary_data: Option<BTreeMap<String, Base64>>,
    // A status has these.
    message: Option<String>,
    reason: Option<String>,
    details: Option<Details>,
    code: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<IgnoredAny>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<Ours>,
    // A list has these.
    r#continue: Option<String>,
    remaining_item_count: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    retry_after_seconds: Option<i32>,
}

impl Anything {
    fn object(self) -> Result<Object, Error> {
        if self.kind.as_deref() == Some("Status") {
            return Err(Error::Status(self.status()?));
        }
        check_kind(self.kind.as_deref().unwrap_or_default(), OBJECTS)?;
        let meta = self.metadata.unwrap_or_default();
        let binary_data = self.binary_data.unwrap_or_default();
        Ok(Object {
            name: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            resource_version: meta.resource_version.unwrap_or_default(),
            is_terminating: meta.deletion_timestamp.is_some(),
            labels: meta.labels.unwrap_or_default(),
            annotations: meta.annotations.unwrap_or_default().0,
            data: self.data.unwrap_or_default(),
            binary_data: binary_data.into_iter().map(|(key, Base64(bytes))| (key, bytes)).collect(),
        })
    }

    fn status(self) -> Result<Status, Error> {
        check_kind(self.kind.as_deref().unwrap_or_default(), ["Status"; 2])?;
        let retry_after = self.details.unwrap_or_default().retry_after_seconds;
        let reason = self.reason.unwrap_or_default();
        let message = self.message.unwrap_or_default();
        Ok(Status::new(self.code.unwrap_or_default(), reason, message, retry_after.unwrap_or_default()))
    }
}

/// Those annotations that are ours. The others are passed over where they stand.
#[derive(Default)]
struct Ours(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Ours {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Annotations;

        impl<'de> Visitor<'de> for Annotations {
            type Value = Ours;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("annotations")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Ours, A::Error> {
                let mut ours = BTreeMap::new();
                while let Some(key) = entries.next_key::<String>()? {
                    if key.starts_with(OURS) {
                        ours.insert(key, entries.next_value()?);
                    } else {
                        entries.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Ours(ours))
            }
        }

        deserializer.deserialize_map(Annotations)
    }
}

struct Base64(Vec<u8>);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64_STANDARD.decode(text).map(Self).map_err(D::Error::custom)
    }
}

fn error(error: serde_json::Error) -> Error {
    if error.is_eof() {
        Error::BrokeOff
    } else if error.is_io() {
        list::input_error(error.into())
    } else {
        // It quotes what it does not understand, however long that is.
        Error::Malformed(status::excerpt(error.to_string().as_bytes()))
    }
}
