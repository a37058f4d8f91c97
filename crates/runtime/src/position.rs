//! The engine of a shard publishes its position, and the shard manager writes it into the Lease.

use std::time::{Duration, Instant};

use label_storage::Position;
use tokio::sync::watch;

pub(crate) struct Publisher {
    position: watch::Sender<Option<Position>>,
    last: Option<Instant>,
}

impl Publisher {
    pub(crate) fn new(position: &watch::Sender<Option<Position>>) -> Self {
        Self { position: position.clone(), last: None }
    }

    /// True if a position with this many pending deletions is worth its cost now.
    pub(crate) fn is_due(&self, pending: usize) -> bool {
        const EVERY: Duration = Duration::from_millis(250);
        const MANY: usize = 64;
        pending <= MANY || self.last.is_none_or(|at| at.elapsed() >= EVERY)
    }

    pub(crate) fn publish(&mut self, position: Position) {
        self.last = Some(Instant::now());
        self.position.send_replace(Some(position));
    }
}
