//! Waiting for the watch: a list or an answer may show a Node before the watch has come to it, and what the watch is still to
//! tell may be the deletion of the one before it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::engine::Look;
use crate::table::Name;

/// How often to look whether there is still something to wait for.
pub const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Nodes that were seen before the watch has come to them, and since when.
#[derive(Debug)]
pub struct Ahead {
    since: HashMap<Name, Instant>,
    patience: Duration,
}

impl Ahead {
    /// Waits for this long at most: a watch may be broken.
    pub fn new(patience: Duration) -> Self {
        Self { since: HashMap::new(), patience }
    }

    /// Whether to wait for the watch before anything is done with this Node.
    pub fn must_wait(&mut self, look: &Look<'_>) -> bool {
        if !look.is_ahead_of_the_watch() {
            self.forget(look.row.name());
            return false;
        }
        let since = self.since.entry(Name::clone(look.row.name())).or_insert_with(Instant::now);
        since.elapsed() < self.patience
    }

    /// The next wait of this Node is another one.
    pub fn forget(&mut self, node: &Name) {
        self.since.remove(node);
    }

    /// Forgets all but these.
    pub fn retain(&mut self, concerns: impl Fn(&Name) -> bool) {
        self.since.retain(|node, _| concerns(node));
    }
}
