//! From a connection to the thread that reads what comes over it, in large pieces.
//!
//! A server that compresses sends thousands of small chunks, and to wake another thread for each costs more than to read
//! it. Memory stays bounded: a few blocks are under way at a time.

use std::io::{self, BufRead, Read};

use bytes::{Buf, Bytes, BytesMut};
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;

/// How large a piece is, at least, but for the last.
const BLOCK: usize = 1 << 16;

/// A way for pieces to go, and its other end.
pub(super) fn channel() -> (Blocks, Input) {
    let (sender, receiver) = mpsc::channel(2);
    (Blocks { sender }, Input { receiver, present: Bytes::new() })
}

/// Where pieces go in. Dropped before the end of the stream, it ends the input early.
pub(super) struct Blocks {
    sender: mpsc::Sender<io::Result<Bytes>>,
}

impl Blocks {
    /// Passes on all that a stream has, or the error that ends it. Returns how many bytes there were.
    pub(super) async fn send_all(self, chunks: impl Stream<Item = io::Result<Bytes>>) -> u64 {
        let (mut chunks, mut block, mut bytes) = (std::pin::pin!(chunks), BytesMut::new(), 0);
        while let Some(chunk) = chunks.next().await {
            let is_sent = match chunk {
                Ok(chunk) => {
                    bytes += chunk.len() as u64;
                    block.extend_from_slice(&chunk);
                    block.len() < BLOCK || self.sender.send(Ok(block.split().freeze())).await.is_ok()
                }
                Err(error) => self.sender.send(Err(error)).await.is_ok(),
            };
            // Whoever reads has seen enough, and says why.
            if !is_sent {
                return bytes;
            }
        }
        let _ = self.sender.send(Ok(block.freeze())).await;
        bytes
    }
}

/// Where they come out, on a thread that may wait.
pub(super) struct Input {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
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
