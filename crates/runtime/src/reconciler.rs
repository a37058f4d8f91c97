//! What a daemon is to the engine: it says what is to be done with a Node, and does it.

use std::time::Duration;

use label_storage::node_state::NodeState;
use label_storage::store::Stored;
use label_storage::summary::{NodeSummary, RecordSummary};
use label_storage::{Node, ResourceVersion};

use crate::cache::{Cache, Entry};
use crate::call::Error;
use crate::record_key::RecordKey;
use crate::work_queue::Urgency;

/// What a daemon makes of what is seen.
pub trait Planner {
    /// What is to be done with one Node.
    type Task;

    /// Decides about a Node from what is known of it, without a call. If several Nodes claim its key, nothing is stored or restored, and what
    /// was seen of the Node is not used any more.
    fn decide(&mut self, look: Look<'_>) -> Decision;

    /// Takes note of a Node that was deleted, and looked like this just before. `is_unsettled`: a write of its record may
    /// be under way.
    fn deleted(&mut self, last: Node, entry: &Entry, is_unsettled: bool);

    /// Makes the task of a Node whose turn has come.
    fn task(&mut self, look: Look<'_>) -> Result<Self::Task, NotYet>;

    /// What became of that. `None`: it failed, and will be tried again.
    fn done(&mut self, node: &RecordKey, task: Self::Task, done: Option<&Done>);

    /// Deletions that are not dealt with yet: what their record is filed under, and the version of the first.
    fn pending_deletions(&self) -> Vec<(RecordKey, ResourceVersion)> {
        Vec::new()
    }

    /// A list of all Nodes is complete. Returns false if it is not to be used, and another one is needed soon.
    fn listed(&mut self, cache: &mut Cache) -> bool;

    /// The cluster's history is another than it was: forgets what was concluded from it.
    fn start_over(&mut self);
}

/// Does what is to be done: reads, decides again and writes.
#[expect(async_fn_in_trait, reason = "never used behind a pointer, nor sent to another thread")]
pub trait Worker<Task> {
    /// One attempt, at what is filed under this. One that fails because the world has moved is followed by another at once. `tries` counts all before it
    /// that failed in a entry.
    async fn attempt(&self, filed_under: &RecordKey, task: &Task, tries: u32) -> Result<Done, Error>;
}

/// A reason to decide about a Node.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// All that is known of it.
    pub entry: &'a Entry,
    /// The Node itself, where it was just seen.
    pub view: Option<&'a Node>,
    /// Whether it has changed just now, rather than at some time.
    pub is_event: bool,
    /// Whether the record may have changed without anyone telling: it is a new incarnation, and records are not
    /// watched.
    pub is_unsure: bool,
    /// How far the watch of Nodes has come: what a list or an answer shows from after that may have been preceded by a deletion
    /// that is still to be heard of. `None`: nobody watches.
    pub heard: Option<ResourceVersion>,
}

impl Look<'_> {
    /// Whether the Node was seen, in a list or by name, before the watch has come to it.
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

/// An attempt that came to an end, and what it read or wrote last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// A word for what was done; `None` where there was nothing to do.
    pub outcome: Option<&'static str>,
    /// The Node that was asked for, [`Entry::node_name`]. One that is there but filed under something else is absent here.
    pub node: Reading<NodeSummary>,
    /// Its record.
    pub record: Reading<(ResourceVersion, Stored<RecordSummary>)>,
}

/// What was found where something was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading<T> {
    /// Nobody looked.
    None,
    /// Nothing.
    Absent,
    /// This.
    Present(T),
}
