//! Iterates over the fields of a message in memory, without copying.

use prost::encoding::{WireType, decode_key, decode_varint};

use crate::Error;

pub(super) struct Fields<'a>(pub(super) &'a [u8]);

pub(super) enum Value<'a> {
    /// A string, bytes or a message.
    Bytes(&'a [u8]),
    /// An integer or a boolean.
    Number(u64),
    /// A number of fixed length. No such field is read here.
    Fixed,
}

impl<'a> Value<'a> {
    pub(super) fn bytes(self) -> Result<&'a [u8], Error> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) | Self::Fixed => Err(Error::malformed("a number instead of a string")),
        }
    }

    pub(super) fn number(self) -> Result<u64, Error> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Bytes(_) | Self::Fixed => Err(Error::malformed("another type instead of a number")),
        }
    }
}

impl<'a> Fields<'a> {
    /// The next field, if there is one.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, Error> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (field, wire_type) = decode_key(&mut self.0)?;
        let value = match wire_type {
            WireType::LengthDelimited => {
                let length = decode_varint(&mut self.0)?;
                Value::Bytes(self.take(length)?)
            }
            WireType::Varint => Value::Number(decode_varint(&mut self.0)?),
            WireType::SixtyFourBit => self.take(8).map(|_| Value::Fixed)?,
            WireType::ThirtyTwoBit => self.take(4).map(|_| Value::Fixed)?,
            // Kubernetes has never used groups.
            WireType::StartGroup | WireType::EndGroup => return Err(Error::malformed("a group")),
        };
        Ok(Some((field, value)))
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Error> {
        let (taken, rest) = usize::try_from(length)
            .ok()
            .and_then(|length| self.0.split_at_checked(length))
            .ok_or_else(|| Error::malformed("a field that is longer than its message"))?;
        self.0 = rest;
        Ok(taken)
    }
}
