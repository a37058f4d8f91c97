//! Reads the `spec` of a Node, and one field of its `status`.

use jiff::Timestamp;

use super::fields::Fields;
use super::object::text;
use crate::{Error, NodePart, Taint};

/// The earliest time, in seconds: one after Go's zero time. RFC 3339 has no earlier year.
const FIRST: i64 = -62_135_596_799;

/// Reads a `NodeSpec`.
pub(super) fn read_spec(bytes: &[u8], node: &mut NodePart) -> Result<(), Error> {
    let mut fields = Fields(bytes);
    while let Some((field, value)) = fields.next()? {
        match field {
            3 => node.provider_id = text(value.bytes()?),
            4 => node.is_unschedulable = value.number()? != 0,
            5 => node.taints.push(read_taint(value.bytes()?)?),
            _ => {}
        }
    }
    Ok(())
}

/// Reads a `NodeStatus`.
pub(super) fn read_status(bytes: &[u8], node: &mut NodePart) -> Result<(), Error> {
    let mut fields = Fields(bytes);
    while let Some((field, value)) = fields.next()? {
        if field == 7 {
            read_info(value.bytes()?, node)?;
        }
    }
    Ok(())
}

/// Reads a `NodeSystemInfo`.
fn read_info(bytes: &[u8], node: &mut NodePart) -> Result<(), Error> {
    let mut fields = Fields(bytes);
    while let Some((field, value)) = fields.next()? {
        if field == 2 {
            node.system_uuid = text(value.bytes()?);
        }
    }
    Ok(())
}

fn read_taint(bytes: &[u8]) -> Result<Taint, Error> {
    let mut taint = Taint::default();
    let mut fields = Fields(bytes);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => taint.key = text(value.bytes()?),
            2 => taint.value = text(value.bytes()?),
            3 => taint.effect = text(value.bytes()?),
            4 => taint.time_added = read_time(value.bytes()?)?.map(|time| time.to_string()),
            _ => {}
        }
    }
    Ok(taint)
}

/// Reads the seconds of a `Time`. It is `None` if there are no bytes, or if RFC 3339 can't express it: one Node with a bad
/// time must not make the whole list undecodable.
pub(super) fn read_time(bytes: &[u8]) -> Result<Option<Timestamp>, Error> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut seconds = 0;
    let mut fields = Fields(bytes);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => seconds = value.number()?.cast_signed(),
            2 => drop(value.number()?),
            _ => {}
        }
    }
    Ok(Timestamp::from_second(seconds).ok().filter(|_| seconds >= FIRST))
}
