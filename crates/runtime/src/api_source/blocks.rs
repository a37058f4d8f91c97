//! Passes the body of an answer to the thread that decodes it, in blocks.
//!
//! A server that compresses sends thousands of small chunks, and waking another thread for each costs more than decoding
//! it. At most a few blocks are in memory at a time.

use std::io::{self, BufRead, BufReader};

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use tokio::sync::mpsc;
use tokio_util::io::{StreamReader, SyncIoBridge};

/// The least size of a block, except for the last.
pub(super) const BLOCK: usize = 1 << 16;

type Block = io::Result<Bytes>;

/// A channel for blocks. The reader is for a thread that may block.
pub(super) fn channel() -> (mpsc::Sender<Block>, impl BufRead + Send) {
    let (sender, mut receiver) = mpsc::channel(2);
    let blocks = stream::poll_fn(move |context| receiver.poll_recv(context));
    // Buffered, because every read from the bridge enters the async runtime.
    (sender, BufReader::with_capacity(BLOCK, SyncIoBridge::new(StreamReader::new(blocks))))
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
