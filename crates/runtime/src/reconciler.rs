//! The daemon's side of the loop: a planner decides, and a worker reads, plans and writes.

use std::time::Duration;

use label_storage::decision::Decision;
use label_storage::store::{Stored, Writes};
use label_storage::summary::{NodeSummary, RecordSummary};
use label_storage::{Node, RecordKey, ResourceVersion};

use crate::cache::{Cache, Entry, Reading};
use crate::call::Error;
use crate::fresh::{FreshReads, Needs};

/// Decides when a key is reconciled, and keeps the state of the daemon that can't be listed.
pub trait Planner {
    type Task;

    /// Decides about a key from the cache, without a call. If several Nodes have the key, nothing is stored or restored, and the view of the
    /// Node is not used any more.
    fn decide(&mut self, look: Look<'_>) -> Decision;

    /// A Node was deleted, and looked like this just before.
    fn deleted(&mut self, cache: &mut Cache, key: &RecordKey, last: Node, writes: Writes);

    /// Makes the task for a key whose turn has come. `Err`: its turn comes again after this time or, if there is none, when something changes.
    fn begin(&mut self, look: Look<'_>) -> Result<Self::Task, Option<Duration>>;

    /// The objects that an attempt at a key that waits would read by name.
    fn needs(&self, entry: &Entry<'_>) -> Needs;

    fn done(&mut self, cache: &mut Cache, key: &RecordKey, task: Self::Task, done: &Done);

    /// A list of all Nodes is complete. Returns false if it is not to be used, and another one is needed soon.
    fn listed(&mut self, cache: &mut Cache) -> bool;
}

#[expect(async_fn_in_trait, reason = "never used behind a pointer, nor sent to another thread")]
pub trait Worker<Task> {
    /// One attempt at a key. If an object has changed since it was read, another attempt follows at once. `tries` counts the failures in a row
    /// before this one.
    async fn attempt(
        &self,
        key: &RecordKey,
        task: &Task,
        reads: &FreshReads,
        tries: u32,
    ) -> Result<Done, Error>;
}

#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    pub entry: &'a Entry<'a>,
    /// The Node, if it was just seen.
    pub view: Option<&'a Node>,
    /// True if it has changed just now.
    pub is_event: bool,
    /// True if the record may have changed unseen: the Node is a new incarnation, and records are not watched.
    pub is_unsure: bool,
    /// How far the watch of Nodes has come. A Node with a later version may follow upon a deletion that the watch has not reported yet.
    /// `None`: there is no watch.
    pub heard: Option<ResourceVersion>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// The word for metrics and logs; `None` if there was nothing to do.
    pub outcome: Option<&'static str>,
    /// The Node of that name ([`Entry::node_name`]), as last read or written. It is absent if it has another key by now.
    pub node: Reading<NodeSummary>,
    pub record: Reading<(ResourceVersion, Stored<RecordSummary>)>,
}
