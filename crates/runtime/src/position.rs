//! The engine of a shard publishes its position, and the shard manager writes it into the Lease.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use label_storage::Position;

/// The last position of one shard; `None` while it is not known.
#[derive(Debug, Default)]
pub(crate) struct Published(Mutex<Option<Position>>);

impl Published {
    pub(crate) fn new(position: Option<Position>) -> Self {
        Self(Mutex::new(position))
    }

    pub(crate) fn get(&self) -> Option<Position> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub(crate) struct Publisher {
    published: Arc<Published>,
    last: Option<Instant>,
}

impl Publisher {
    pub(crate) fn new(published: &Arc<Published>) -> Self {
        Self { published: Arc::clone(published), last: None }
    }

    /// True if a position with this many pending deletions is worth its cost now.
    pub(crate) fn is_due(&self, pending: usize) -> bool {
        const EVERY: Duration = Duration::from_millis(250);
        const MANY: usize = 64;
        pending <= MANY || self.last.is_none_or(|at| at.elapsed() >= EVERY)
    }

    pub(crate) fn publish(&mut self, position: Position) {
        self.last = Some(Instant::now());
        *self.published.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(position);
    }
}
