//! How far the work on a shard has come, as its Lease says it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use label_storage::Position;

/// The position of one shard. The engine publishes it, and whoever keeps the Lease writes it down.
#[derive(Debug, Default)]
pub(crate) struct Published(Mutex<Option<Position>>);

impl Published {
    pub(crate) fn set(&self, position: Position) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(position);
    }

    /// `None` while it is not known.
    pub(crate) fn get(&self) -> Option<Position> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Publishes the position of one shard.
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
        self.published.set(position);
    }
}
