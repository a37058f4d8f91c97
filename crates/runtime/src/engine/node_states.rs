//! How Nodes stand: which of them are not as they should be, and since when.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use label_storage::RecordKey;
use label_storage::node_state::NodeState;
use tokio::sync::watch;

use crate::api_source::Resource;
use crate::cache::{Cache, Count, Entry};
use crate::informer::Informers;
use crate::metrics::node_gauges::Snapshot;
use crate::work_queue::WorkQueue;

/// This many failures in a row are more than bad luck.
const FAILING: u32 = 5;

/// The least time after which the gauges are set again. Counting a hundred thousand entries takes a millisecond.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// The Nodes that are not settled: few, unless much has just happened.
pub(super) struct NodeStates {
    exceptions: HashMap<RecordKey, Exception>,
    gauges: watch::Sender<Snapshot>,
    /// True if something has changed since the gauges were set. They may be set again from `set_from` on.
    is_changed: bool,
    set_from: Instant,
}

struct Exception {
    state: NodeState,
    since: Instant,
    is_there: bool,
}

impl NodeStates {
    pub(super) fn new(gauges: watch::Sender<Snapshot>) -> Self {
        Self { exceptions: HashMap::new(), gauges, is_changed: false, set_from: Instant::now() }
    }

    pub(super) fn note(&mut self, entry: &Entry<'_>, state: NodeState) {
        self.is_changed = true;
        let known = self.exceptions.remove(entry.key()).filter(|known| known.state == state);
        if state != NodeState::Settled {
            let since = known.map_or_else(Instant::now, |known| known.since);
            let exception = Exception { state, since, is_there: entry.node().is_some() };
            self.exceptions.insert(entry.key().clone(), exception);
        }
    }

    pub(super) fn due_since(&self, name: &str) -> Option<Instant> {
        let exception = self.exceptions.get(name).filter(|known| known.state == NodeState::Due);
        exception.map(|known| known.since)
    }

    pub(super) fn changed(&mut self) {
        self.is_changed = true;
    }

    pub(super) fn retain(&mut self, concerns: impl Fn(&str) -> bool) {
        self.exceptions.retain(|name, _| concerns(name));
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.is_changed.then_some(self.set_from)
    }

    pub(super) fn tell_if_due(
        &mut self,
        cache: &Cache,
        queue: &WorkQueue,
        informers: &Informers<'_>,
        now: Instant,
    ) {
        if self.due().is_none_or(|due| due > now) {
            return;
        }
        (self.is_changed, self.set_from) = (false, now + TELL_EVERY);
        let Count { nodes, records, unreadable, withheld } = cache.count();
        let queued = queue.len();
        let mut snapshot = Snapshot { nodes, records, unreadable, withheld, queued, ..Snapshot::default() };
        for Exception { state, since, is_there } in self.exceptions.values() {
            let is_behind = match state {
                NodeState::Settled => false,
                NodeState::Due => {
                    snapshot.due += 1;
                    snapshot.due_since = Some(snapshot.due_since.map_or(*since, |first| first.min(*since)));
                    true
                }
                NodeState::Skipped(skip) => {
                    *snapshot.skipped.entry(skip.as_str()).or_default() += 1;
                    skip.is_behind()
                }
            };
            snapshot.behind += usize::from(is_behind && *is_there);
        }
        for failures in queue.all_failures() {
            snapshot.failing += usize::from(failures >= FAILING);
            snapshot.most_failures = snapshot.most_failures.max(failures);
        }
        let watched = Resource::ALL.into_iter().filter(|kind| informers.is_watching(*kind));
        snapshot.watching = watched.map(|kind| (kind.resource(), 1)).collect();
        self.gauges.send_replace(snapshot);
    }
}
