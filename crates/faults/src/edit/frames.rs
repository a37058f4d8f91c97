//! The events of a watch, while they stream in.

use bytes::{Buf, Bytes, BytesMut};

use super::Format;

/// Splits a stream into events, each with what delimits it.
pub(crate) struct Frames {
    format: Format,
    /// An event of which the rest is still to come.
    begun: BytesMut,
}

impl Frames {
    pub(crate) fn new(format: Format) -> Self {
        Self { format, begun: BytesMut::new() }
    }

    /// Takes what came in, and gives the events that are complete now.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Vec<Bytes> {
        self.begun.extend_from_slice(chunk);
        let mut complete = Vec::new();
        while let Some(length) = self.length().filter(|length| *length <= self.begun.len()) {
            complete.push(self.begun.split_to(length).freeze());
        }
        complete
    }

    /// How long the first event is, with what delimits it, if that is known.
    fn length(&self) -> Option<usize> {
        match self.format {
            Format::Protobuf => {
                let length = self.begun.get(..4)?.get_u32();
                usize::try_from(length).ok()?.checked_add(4)
            }
            Format::Json => self.begun.iter().position(|byte| *byte == b'\n').map(|end| end + 1),
        }
    }
}

/// Passes every event on twice.
pub(crate) fn doubled(events: &[Bytes]) -> Bytes {
    events.iter().flat_map(|event| [&event[..], &event[..]]).collect::<Vec<_>>().concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubled(format: Format, input: &[u8], chunk: usize) -> Vec<u8> {
        let mut frames = Frames::new(format);
        input.chunks(chunk).flat_map(|chunk| super::doubled(&frames.push(chunk))).collect()
    }

    #[test]
    fn every_event_comes_twice_however_it_is_cut() {
        let cases: [(Format, &[u8], &[u8]); 2] = [
            (
                Format::Protobuf,
                b"\0\0\0\x02ab\0\0\0\x01c\0\0\0\x05no",
                b"\0\0\0\x02ab\0\0\0\x02ab\0\0\0\x01c\0\0\0\x01c",
            ),
            (Format::Json, b"{a}\n{b}\n{", b"{a}\n{a}\n{b}\n{b}\n"),
        ];
        for (format, input, expected) in cases {
            for chunk in 1..=input.len() {
                assert_eq!(doubled(format, input, chunk), expected, "{format:?} by {chunk}");
            }
        }
    }
}
