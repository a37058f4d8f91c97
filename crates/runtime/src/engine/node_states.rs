//! How Nodes stand: which of them are not as they should be, and since when.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use label_storage::RecordKey;
use label_storage::node_state::NodeState;

use crate::api_source::Resource;
use crate::cache::{Cache, Count, Entry};
use crate::informer::Informers;
use crate::metrics::node_gauges::{ShardGauges, Snapshot};
use crate::work_queue::WorkQueue;

/// This many failures in a row are more than bad luck.
const FAILING: u32 = 5;

/// How often the node_gauges is told, at most. Counting a hundred thousand entries takes a millisecond.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// The Nodes that are not settled: few, unless much has just happened.
pub(super) struct NodeStates {
    exceptions: HashMap<RecordKey, Exception>,
    seat: ShardGauges,
    /// When the node_gauges is to be told; `None` where it knows.
    tell_at: Option<Instant>,
    told_at: Option<Instant>,
}

struct Exception {
    state: NodeState,
    since: Instant,
    is_there: bool,
}

impl NodeStates {
    pub(super) fn new(seat: ShardGauges) -> Self {
        Self { exceptions: HashMap::new(), seat, tell_at: None, told_at: None }
    }

    /// Takes note of how a Node stands now.
    pub(super) fn note(&mut self, entry: &Entry<'_>, state: NodeState) {
        self.changed();
        let (name, is_there) = (entry.key(), entry.node().is_some());
        if state == NodeState::Settled {
            self.exceptions.remove(name);
            return;
        }
        match self.exceptions.get_mut(name) {
            Some(known) if known.state == state => known.is_there = is_there,
            _ => {
                let exception = Exception { state, since: Instant::now(), is_there };
                self.exceptions.insert(name.clone(), exception);
            }
        }
    }

    /// Since when a Node has needed work.
    pub(super) fn due_since(&self, name: &str) -> Option<Instant> {
        let exception = self.exceptions.get(name).filter(|known| known.state == NodeState::Due);
        exception.map(|known| known.since)
    }

    /// Something has changed that the node_gauges is to be told of.
    pub(super) fn changed(&mut self) {
        if self.tell_at.is_none() {
            let earliest = self.told_at.map(|at| at + TELL_EVERY);
            self.tell_at = earliest.or_else(|| Some(Instant::now()));
        }
    }

    /// Forgets about all Nodes that are of no concern any more.
    pub(super) fn retain(&mut self, concerns: impl Fn(&str) -> bool) {
        self.exceptions.retain(|name, _| concerns(name));
    }

    /// When the node_gauges is to be told next.
    pub(super) fn due(&self) -> Option<Instant> {
        self.tell_at
    }

    /// Tells the node_gauges, if that is due.
    pub(super) fn tell_if_due(
        &mut self,
        cache: &Cache,
        queue: &WorkQueue,
        informers: &Informers<'_>,
        now: Instant,
    ) {
        if self.tell_at.is_some_and(|at| at <= now) {
            (self.tell_at, self.told_at) = (None, Some(now));
            self.seat.tell(self.snapshot(cache, queue, informers));
        }
    }

    fn snapshot(&self, cache: &Cache, queue: &WorkQueue, informers: &Informers<'_>) -> Snapshot {
        let Count { nodes, records, unreadable } = cache.count();
        let queued = queue.len();
        let mut snapshot = Snapshot { nodes, records, unreadable, queued, ..Snapshot::default() };
        let mut skipped = BTreeMap::new();
        for Exception { state, since, is_there } in self.exceptions.values() {
            let is_behind = match state {
                NodeState::Settled => false,
                NodeState::Due => {
                    snapshot.due += 1;
                    snapshot.due_since = Some(snapshot.due_since.map_or(*since, |first| first.min(*since)));
                    true
                }
                NodeState::Skipped(skip) => {
                    *skipped.entry(skip.as_str()).or_default() += 1;
                    skip.is_behind()
                }
            };
            snapshot.behind += usize::from(is_behind && *is_there);
        }
        for failures in queue.all_failures() {
            snapshot.failing += usize::from(failures >= FAILING);
            snapshot.most_failures = snapshot.most_failures.max(failures);
        }
        let watched =
            [Resource::Nodes, Resource::Records].into_iter().filter(|kind| informers.is_watching(*kind));
        let watching = watched.map(|kind| (kind.resource(), 1)).collect();
        Snapshot { skipped, watching, ..snapshot }
    }
}
