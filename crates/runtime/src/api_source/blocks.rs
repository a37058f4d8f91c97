//! Passes the body of an answer to the thread that decodes it, in blocks.
//!
//! A server that compresses sends thousands of small chunks, and waking another thread for each costs more than decoding
//! it. At most a few blocks are in memory at a time.

use std::io::{self, BufRead, Read};

use bytes::{Buf, Bytes, BytesMut};
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;

/// The least size of a block, except for the last.
const BLOCK: usize = 1 << 16;

type Block = io::Result<Bytes>;

pub(super) fn channel() -> (mpsc::Sender<Block>, Input) {
    let (sender, receiver) = mpsc::channel(2);
    (sender, Input { receiver, present: Bytes::new() })
}

/// Sends all of a stream, or the error that ends it. Returns the number of bytes.
pub(super) async fn send_all(blocks: mpsc::Sender<Block>, chunks: impl Stream<Item = Block>) -> u64 {
    let (mut chunks, mut block, mut bytes) = (std::pin::pin!(chunks), BytesMut::new(), 0);
    while let Some(chunk) = chunks.next().await {
        let is_sent = match chunk {
            Ok(chunk) => {
                bytes += chunk.len() as u64;
                block.extend_from_slice(&chunk);
                block.len() < BLOCK || blocks.send(Ok(block.split().freeze())).await.is_ok()
            }
            Err(error) => blocks.send(Err(error)).await.is_ok(),
        };
        // The reader has failed, and reports why.
        if !is_sent {
            return bytes;
        }
    }
    let _ = blocks.send(Ok(block.freeze())).await;
    bytes
}

/// The receiving end, for a thread that may block.
pub(super) struct Input {
    receiver: mpsc::Receiver<Block>,
    present: Bytes,
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.present.is_empty() {
            match self.receiver.blocking_recv() {
                Some(block) => self.present = block?,
                None => break,
            }
        }
        Ok(&self.present)
    }

    fn consume(&mut self, amount: usize) {
        self.present.advance(amount);
    }
}
