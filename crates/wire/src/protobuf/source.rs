//! Reads the fields of a message from a stream, because it is too long for memory.

use std::io::{self, BufRead};

use prost::encoding::WireType;

use crate::{Error, MAX_ITEM, status};

/// Reads up to the end of the stream, or up to the end of the message that was [entered](Self::enter).
///
/// An early end of the stream is [`Error::BrokeOff`]. A field that does not fit into the message is malformed.
pub(super) struct Source<R> {
    input: R,
    /// The bytes left of the message.
    left: u64,
}

/// The value of `left` outside of a message.
const UNBOUNDED: u64 = u64::MAX;

impl<R: BufRead> Source<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, left: UNBOUNDED }
    }

    /// Reads the bytes that distinguish protobuf from other formats.
    pub(super) fn magic(&mut self, magic: &[u8]) -> Result<(), Error> {
        let mut start = Vec::new();
        for expected in magic {
            start.push(self.byte()?);
            if start.last() != Some(expected) {
                // Up to 200 more bytes, so that the error message shows the sender.
                let _ = self.chunks(200, |chunk| start.extend_from_slice(chunk));
                return Err(Error::NotProtobuf(status::excerpt(&start)));
            }
        }
        Ok(())
    }

    /// The number and type of the next field.
    pub(super) fn key(&mut self) -> Result<(u32, WireType), Error> {
        let key = self.varint()?;
        let wire_type = WireType::try_from(key & 7)?;
        match u32::try_from(key >> 3) {
            Ok(field) if field > 0 => Ok((field, wire_type)),
            _ => Err(Error::malformed("an invalid field number")),
        }
    }

    /// The content of the field whose key was just read, in a reused buffer.
    pub(super) fn delimited<'b>(&mut self, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], Error> {
        let length = self.varint()?;
        self.bytes(length, buffer)
    }

    /// The same, or only the first [`MAX_ITEM`] bytes. Returns true if that is all.
    pub(super) fn start<'b>(&mut self, buffer: &'b mut Vec<u8>) -> Result<(&'b [u8], bool), Error> {
        let length = self.varint()?;
        let kept = length.min(MAX_ITEM as u64);
        buffer.clear();
        self.chunks(kept, |chunk| buffer.extend_from_slice(chunk))?;
        self.chunks(length - kept, |_| {})?;
        Ok((buffer, kept == length))
    }

    /// The rest of the message.
    pub(super) fn rest<'b>(&mut self, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], Error> {
        self.bytes(self.left, buffer)
    }

    /// Skips the content of the field whose key was just read.
    pub(super) fn skip(&mut self, wire_type: WireType) -> Result<(), Error> {
        let length = match wire_type {
            WireType::Varint => return self.varint().map(drop),
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => self.varint()?,
            // Kubernetes has never used groups.
            WireType::StartGroup | WireType::EndGroup => return Err(Error::malformed("a group")),
        };
        self.chunks(length, |_| {})
    }

    /// Enters the message in the field whose key was just read.
    pub(super) fn enter(&mut self) -> Result<(), Error> {
        self.left = self.varint()?;
        Ok(())
    }

    /// True if the message is not read to its end.
    pub(super) fn is_inside(&self) -> bool {
        self.left > 0
    }

    /// Skips the rest of the message.
    pub(super) fn leave(&mut self) -> Result<(), Error> {
        self.chunks(self.left, |_| {})?;
        self.left = UNBOUNDED;
        Ok(())
    }

    /// Fails unless the stream is at its end.
    pub(super) fn end(mut self) -> Result<(), Error> {
        loop {
            match self.input.fill_buf() {
                Ok([]) => return Ok(()),
                Ok(_) => return Err(Error::malformed("more bytes after its end")),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            // The tenth byte has room only for the last bit.
            if shift == 63 && byte > 1 {
                break;
            }
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Error::malformed("a number of more than 64 bits"))
    }

    fn byte(&mut self) -> Result<u8, Error> {
        let mut byte = 0;
        self.chunks(1, |chunk| byte = chunk[0])?;
        Ok(byte)
    }

    /// Grows the buffer by the bytes that arrive, never by the claimed length.
    fn bytes<'b>(&mut self, length: u64, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], Error> {
        if length > MAX_ITEM as u64 {
            return Err(Error::TooLarge);
        }
        buffer.clear();
        self.chunks(length, |chunk| buffer.extend_from_slice(chunk))?;
        Ok(buffer)
    }

    fn chunks(&mut self, mut length: u64, mut each: impl FnMut(&[u8])) -> Result<(), Error> {
        if length > self.left {
            return Err(Error::malformed("a field that is longer than its message"));
        }
        self.left -= length;
        while length > 0 {
            let available = match self.input.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let fitting = usize::try_from(length).unwrap_or(usize::MAX).min(available.len());
            if fitting == 0 {
                return Err(Error::BrokeOff);
            }
            each(&available[..fitting]);
            self.input.consume(fitting);
            length -= fitting as u64;
        }
        Ok(())
    }
}
