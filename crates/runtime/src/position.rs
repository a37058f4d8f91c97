//! How far the work on a shard has come, as its Lease says it.

use std::sync::{Mutex, PoisonError};

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
