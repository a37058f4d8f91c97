//! The daemon's side of the loop: a planner decides, and a worker reads, plans and writes.

use std::time::Duration;

use label_storage::node_state::NodeState;
use label_storage::store::Stored;
use label_storage::summary::{NodeSummary, RecordSummary};
use label_storage::{Node, ResourceVersion};

use crate::cache::{Cache, Entry};
use crate::call::Error;
use crate::record_key::RecordKey;
use crate::work_queue::Urgency;

/// Decides when a Node is reconciled, from the cache.
pub trait Planner {
    /// The input of an attempt.
    type Task;

    /// Decides about a Node from what is known of it, without a call. If several Nodes claim its key, nothing is stored or restored, and what
    /// was seen of the Node is not used any more.
    fn decide(&mut self, look: Look<'_>) -> Decision;

    /// A Node was deleted, and looked like this just before. `is_unsettled`: a write of its record may be in flight.
    fn deleted(&mut self, last: Node, entry: &Entry, is_unsettled: bool);

    /// Makes the task of a Node whose turn has come.
    fn task(&mut self, look: Look<'_>) -> Result<Self::Task, NotYet>;

    /// An attempt has ended. `None`: it failed, and will be repeated.
    fn done(&mut self, node: &RecordKey, task: Self::Task, done: Option<&Done>);

    /// Deletions whose final labels are not stored yet: the key, and the version of the first deletion.
    fn pending_deletions(&self) -> Vec<(RecordKey, ResourceVersion)> {
        Vec::new()
    }

    /// A list of all Nodes is complete. Returns false if it is not to be used, and another one is needed soon.
    fn listed(&mut self, cache: &mut Cache) -> bool;

    /// The cluster has another history, such as etcd restored from a backup: forgets what followed from the old one.
    fn start_over(&mut self);
}

/// Reads fresh, plans and writes.
#[expect(async_fn_in_trait, reason = "never used behind a pointer, nor sent to another thread")]
pub trait Worker<Task> {
    /// One attempt at a key. If an object has changed since it was read, another attempt follows at once. `tries` counts the failures in a row
    /// before this one.
    async fn attempt(&self, filed_under: &RecordKey, task: &Task, tries: u32) -> Result<Done, Error>;
}

/// The input of a decision.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    pub entry: &'a Entry,
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

impl Look<'_> {
    /// True if a list or a read has shown the Node before the watch did.
    pub fn is_ahead_of_the_watch(&self) -> bool {
        self.entry.node().is_some_and(|node| self.heard.is_some_and(|heard| heard < node.version))
    }
}

/// A decision about a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// When to reconcile it.
    pub when: When,
    /// The state that gauges show.
    pub state: NodeState,
}

/// A Node whose turn came too early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotYet {
    /// Its turn comes again after this time.
    After(Duration),
    /// Its turn comes again when something changes.
    UntilChanged,
}

/// When to reconcile a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Never,
    Now(Urgency),
    After(Duration, Urgency),
}

/// The result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// The word for metrics and logs; `None` if there was nothing to do.
    pub outcome: Option<&'static str>,
    /// The Node of that name ([`Entry::node_name`]), as last read or written. It is absent if it has another key by now.
    pub node: Reading<NodeSummary>,
    pub record: Reading<(ResourceVersion, Stored<RecordSummary>)>,
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading<T> {
    /// It was not read.
    None,
    Absent,
    Present(T),
}
