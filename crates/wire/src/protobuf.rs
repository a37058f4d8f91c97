//! Protobuf as the API server writes it.
//!
//! Most of an answer is not kept. So objects are read by hand from the bytes of one item ([`object`]), and lists straight
//! from the stream ([`source`]). The readers of small and rare messages are derived ([`messages`]).

mod fields;
mod messages;
mod node;
mod object;
mod source;

use std::io::BufRead;

use prost::Message;
use prost::encoding::WireType;

use crate::{Asked, Error, Event, Listed, Object, Status, Undecodable, status};
use messages::{ListMeta, StatusMessage, TypeMeta, WatchEvent};
use source::Source;

/// The first bytes of every answer. A `runtime.Unknown` follows; its `raw` is the object.
const MAGIC: &[u8; 4] = b"k8s\0";

/// Reads a whole list, and calls `each` for every object as soon as it has arrived. An object that can't be decoded is not an
/// error of the list.
///
/// Returns [`Listed`] only at the end of the list and of the input, so that the checksum of a compressed answer is checked
/// too. After an error, the objects that `each` got must be discarded, because the list is incomplete.
pub fn read_list(
    asked: &Asked<'_>,
    input: impl BufRead,
    mut each: impl FnMut(Result<Object, Undecodable>),
) -> Result<Listed, Error> {
    unwrapped(input, |kind, source| {
        let mut buffer = Vec::new();
        if kind == "Status" {
            return Err(Error::Status(StatusMessage::decode(source.rest(&mut buffer)?)?.into()));
        }
        check_kind(kind, asked.content.list_kind())?;

        let mut meta = ListMeta::default();
        let mut items = 0;
        while source.is_inside() {
            match source.key()? {
                (1, WireType::LengthDelimited) => meta.merge(source.delimited(&mut buffer)?)?,
                (2, WireType::LengthDelimited) => {
                    let (bytes, is_whole) = source.start(&mut buffer)?;
                    each(read_item(asked, bytes, is_whole));
                    items += 1;
                }
                (field @ (1 | 2), _) => return Err(Error::malformed(format!("field {field} of a list"))),
                (_, other) => source.skip(other)?,
            }
        }
        if !meta.r#continue.is_empty() || meta.remaining_item_count != 0 {
            return Err(Error::Partial);
        }
        if meta.resource_version.is_empty() {
            return Err(Error::NoVersion);
        }
        Ok(Listed { resource_version: meta.resource_version, items })
    })
}

/// Reads one object.
pub fn read_object(asked: &Asked<'_>, bytes: &[u8]) -> Result<Object, Error> {
    let mut object = Object::default();
    opened(asked, bytes, |raw| object::read(asked, raw, &mut object).and_then(|()| check_name(&object)))?;
    Ok(object)
}

/// Reads an object of a list or a watch. If it is not whole, only its start is given.
fn read_item(asked: &Asked<'_>, bytes: &[u8], is_whole: bool) -> Result<Object, Undecodable> {
    let mut part = Object::default();
    let read = object::read(asked, bytes, &mut part).and_then(|()| check_name(&part));
    match if is_whole { read } else { Err(Error::TooLarge) } {
        Ok(()) => Ok(part),
        Err(error) => Err(Undecodable { part: Box::new(part), error: error.to_string() }),
    }
}

/// Opens the envelope of one object, and calls `read` with its content.
fn opened<T>(
    asked: &Asked<'_>,
    bytes: &[u8],
    read: impl FnOnce(&[u8]) -> Result<T, Error>,
) -> Result<T, Error> {
    unwrapped(bytes, |kind, source| {
        let mut buffer = Vec::new();
        let raw = source.rest(&mut buffer)?;
        if kind == "Status" {
            return Err(Error::Status(StatusMessage::decode(raw)?.into()));
        }
        check_kind(kind, asked.content.kind())?;
        read(raw)
    })
}

/// Reads one event of a watch, without its length prefix of 4 bytes.
pub fn read_event(asked: &Asked<'_>, frame: &[u8]) -> Result<Event, Error> {
    let WatchEvent { r#type, object } = WatchEvent::decode(frame)?;
    let raw = object.unwrap_or_default().raw;
    let read = || opened(asked, &raw, |raw| Ok(read_item(asked, raw, true)));
    match r#type.as_str() {
        "ADDED" | "MODIFIED" => Ok(read()?.map_or_else(Event::Undecodable, Event::Changed)),
        "DELETED" => Ok(read()?.map_or_else(Event::Undecodable, Event::Deleted)),
        // It has no name.
        "BOOKMARK" => match read()?.unwrap_or_else(|undecodable| *undecodable.part).resource_version {
            version if version.is_empty() => Err(Error::NoVersion),
            resource_version => Ok(Event::Bookmark { resource_version }),
        },
        "ERROR" => Ok(Event::Error(read_status(&raw)?)),
        other => Err(Error::malformed(format!("an event of type {:?}", status::excerpt(other.as_bytes())))),
    }
}

pub(crate) fn read_status(bytes: &[u8]) -> Result<Status, Error> {
    unwrapped(bytes, |kind, source| {
        check_kind(kind, "Status")?;
        Ok(StatusMessage::decode(source.rest(&mut Vec::new())?)?.into())
    })
}

/// Opens the envelope around an object, and calls `read` with its kind and with the source bounded to `raw`.
///
/// The envelope has no length. It ends with the field `contentType`, which the API server always writes, empty or not.
/// Without it the answer is incomplete, and nothing may follow it.
fn unwrapped<R: BufRead, T>(
    input: R,
    read: impl FnOnce(&str, &mut Source<R>) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut source = Source::new(input);
    source.magic(MAGIC)?;

    let mut buffer = Vec::new();
    let mut kind = String::new();
    let mut read = Some(read);
    let mut content = None;
    let mut previous = 0;
    loop {
        let (field, wire_type) = source.key()?;
        if field <= previous || wire_type != WireType::LengthDelimited {
            return Err(Error::malformed(format!("field {field} after field {previous} of the envelope")));
        }
        previous = field;
        match field {
            1 => kind = TypeMeta::decode(source.delimited(&mut buffer)?)?.kind,
            2 => {
                source.enter()?;
                content = read.take().map(|read| read(&kind, &mut source)).transpose()?;
                source.leave()?;
            }
            3 => {
                if !source.delimited(&mut buffer)?.is_empty() {
                    return Err(Error::malformed("its content has another encoding"));
                }
            }
            4 => {
                source.delimited(&mut buffer)?;
                break;
            }
            _ => return Err(Error::malformed(format!("field {field} of the envelope"))),
        }
    }
    source.end()?;
    content.ok_or_else(|| Error::malformed("an envelope without content"))
}

fn check_name(object: &Object) -> Result<(), Error> {
    if object.name.is_empty() { Err(Error::malformed("an object without a name")) } else { Ok(()) }
}

/// Refuses another kind than the requested one. An answer without a kind is accepted.
fn check_kind(kind: &str, wanted: &str) -> Result<(), Error> {
    if kind.is_empty() || kind == wanted {
        Ok(())
    } else {
        Err(Error::Kind(status::excerpt(kind.as_bytes())))
    }
}
