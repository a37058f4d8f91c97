//! JSON, for whatever does not speak protobuf.
//!
//! What it is it says itself, and not always at the beginning. Where all of it is in memory, that is looked for first; a
//! [`list`] is read as what was asked for, and refused at its end if it was something else.

mod list;
mod node;
mod object;

use serde::Deserialize;
use serde::de::DeserializeSeed;
use serde_json::value::RawValue;

use crate::{Asked, Error, Event, Object, Status, check_kind, event, status};

pub(crate) use list::read_list;

pub(crate) fn read_object(asked: &Asked<'_>, bytes: &[u8]) -> Result<Object, Error> {
    let Answer { kind, .. } = serde_json::from_slice(bytes).map_err(error)?;
    let kind = kind.unwrap_or_default();
    if kind == "Status" {
        return Err(Error::Status(status_of(bytes)?));
    }
    check_kind(&kind, asked.content.kind())?;
    let mut json = serde_json::Deserializer::from_slice(bytes);
    object::Whole(asked).deserialize(&mut json).map_err(error)
}

pub(crate) fn read_event(asked: &Asked<'_>, frame: &[u8]) -> Result<Event, Error> {
    let WatchEvent { r#type, object } = serde_json::from_slice(frame).map_err(error)?;
    event(&r#type, object.get().as_bytes(), |bytes| read_object(asked, bytes), status_of)
}

pub(crate) fn read_status(bytes: &[u8]) -> Result<Status, Error> {
    let Answer { kind, .. } = serde_json::from_slice(bytes).map_err(error)?;
    // Without a kind it may be anybody's JSON, of which an excerpt says more.
    if kind.is_none() { Err(Error::Kind(String::new())) } else { status_of(bytes) }
}

fn status_of(bytes: &[u8]) -> Result<Status, Error> {
    serde_json::from_slice::<Refusal>(bytes).map_err(error)?.status()
}

/// Whatever the API server may send.
#[derive(Deserialize)]
struct Answer {
    kind: Option<String>,
}

#[derive(Deserialize)]
struct WatchEvent<'a> {
    r#type: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// A status in the place of what was asked for.
#[derive(Default, Deserialize)]
struct Refusal {
    kind: Option<String>,
    message: Option<String>,
    reason: Option<String>,
    details: Option<Details>,
    code: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    retry_after_seconds: Option<i32>,
}

impl Refusal {
    fn status(self) -> Result<Status, Error> {
        check_kind(self.kind.as_deref().unwrap_or_default(), "Status")?;
        let retry_after = self.details.unwrap_or_default().retry_after_seconds;
        let reason = self.reason.unwrap_or_default();
        let message = self.message.unwrap_or_default();
        Ok(Status::new(self.code.unwrap_or_default(), reason, message, retry_after.unwrap_or_default()))
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
