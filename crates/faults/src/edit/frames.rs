//! The events of a watch in protobuf, as they arrive.

use bytes::{Buf, Bytes, BytesMut};

/// Splits a stream into events. Each has a length prefix.
#[derive(Default)]
pub(crate) struct Frames {
    /// The beginning of an incomplete event.
    begun: BytesMut,
}

impl Frames {
    /// Adds bytes, and returns the events that are complete now.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Vec<Bytes> {
        self.begun.extend_from_slice(chunk);
        let mut complete = Vec::new();
        while let Some(length) = self.length().filter(|length| *length <= self.begun.len()) {
            complete.push(self.begun.split_to(length).freeze());
        }
        complete
    }

    /// The length of the first event with its prefix, if the prefix has arrived.
    fn length(&self) -> Option<usize> {
        let length = self.begun.get(..4)?.get_u32();
        usize::try_from(length).ok()?.checked_add(4)
    }
}

/// Passes every event on twice.
pub(crate) fn doubled(events: &[Bytes]) -> Bytes {
    events.iter().flat_map(|event| [&event[..], &event[..]]).collect::<Vec<_>>().concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubled(input: &[u8], chunk: usize) -> Vec<u8> {
        let mut frames = Frames::default();
        input.chunks(chunk).flat_map(|chunk| super::doubled(&frames.push(chunk))).collect()
    }

    #[test]
    fn every_event_comes_twice_however_it_is_cut() {
        let input = b"\0\0\0\x02ab\0\0\0\x01c\0\0\0\x05no";
        let expected = b"\0\0\0\x02ab\0\0\0\x02ab\0\0\0\x01c\0\0\0\x01c";
        for chunk in 1..=input.len() {
            assert_eq!(doubled(input, chunk), expected, "by {chunk}");
        }
    }
}
