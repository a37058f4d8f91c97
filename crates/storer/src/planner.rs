//! Decides when a record is written, from the cache.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use label_storage::decision::{Decision, When};
use label_storage::mass_absence::MassAbsence;
use label_storage::rules::IdentityBy;
use label_storage::store::deletion_budget::DeletionBudget;
use label_storage::store::{Circumstances, Stored, View, Writes, keeps_final_labels};
use label_storage::watch_lag::{LOOK_AGAIN, WatchLag};
use label_storage::{Node, RecordKey, Rules};
use label_storage_runtime::cache::{Cache, Entry};
use label_storage_runtime::fresh::{Extent, Needs};
use label_storage_runtime::reconciler::{Done, Look, Planner};
use label_storage_runtime::server_clock::ServerClock;

use crate::apply::StoreTask;
use crate::metrics::StorerMetrics;

/// A new incarnation does not take over a record before the watch has come to it: the final labels of the incarnation before may still be on
/// their way. The wait ends after this time without progress, because the watch may be broken.
const PATIENCE: Duration = Duration::from_secs(10);
/// The label of a record is added once in this time, because something may remove it each time.
const LABEL_AGAIN: Duration = Duration::from_secs(3600);

/// The storer's own state: what can't be listed.
pub(crate) struct StorePlanner {
    rules: Arc<Rules>,
    is_dry_run: bool,
    clock: Arc<ServerClock>,
    budget: DeletionBudget,
    metrics: Arc<StorerMetrics>,
    watch_lag: WatchLag,
    absence: MassAbsence,
    /// True once it was logged that final labels were given up.
    has_given_up: bool,
    /// When the label of a record was last added again.
    labelled: HashMap<RecordKey, Instant>,
    /// The records that have to wait for their deletion, as the gauge has them.
    held_back: i64,
}

impl StorePlanner {
    pub(crate) fn new(
        rules: Arc<Rules>,
        is_dry_run: bool,
        clock: Arc<ServerClock>,
        metrics: Arc<StorerMetrics>,
    ) -> Self {
        Self {
            budget: DeletionBudget::new(rules.cleanup_share),
            rules,
            is_dry_run,
            clock,
            metrics,
            watch_lag: WatchLag::new(PATIENCE),
            absence: MassAbsence::default(),
            has_given_up: false,
            labelled: HashMap::new(),
            held_back: 0,
        }
    }

    fn view(&self, look: &Look<'_>) -> View {
        let entry = look.entry;
        View {
            node: entry.node(),
            is_surely_gone: entry.is_surely_gone(),
            is_contested: entry.is_contested(),
            stored: entry.stored(),
            has_final_labels: entry.final_labels().is_some(),
            is_event: look.is_event,
            at: Circumstances {
                unchanged_for: entry.record_since().elapsed(),
                retention: self.rules.retention,
                last_seen: entry.last_seen(),
                may_add_label: !self.labelled.contains_key(entry.key()),
                ..Circumstances::at(self.clock.now())
            },
        }
    }

    /// Updates the gauge, which all shards of the process share.
    fn tell_held_back(&mut self) {
        let held_back = self.budget.waiting() as i64;
        if self.held_back == 0 && held_back > 0 {
            tracing::info!("the retention of some records has expired: deleting them one after the other");
        }
        self.metrics.cleanups_held_back.inc_by(held_back - self.held_back);
        self.held_back = held_back;
    }
}

impl Drop for StorePlanner {
    fn drop(&mut self) {
        self.metrics.cleanups_held_back.dec_by(self.held_back);
    }
}

impl Planner for StorePlanner {
    type Task = StoreTask;

    fn decide(&mut self, look: Look<'_>) -> Decision {
        let (view, key) = (self.view(&look), look.entry.key());
        let decision = view.decide(|| self.budget.pause(key, Instant::now()));
        self.tell_held_back();
        decision
    }

    /// Keeps the final labels until they are stored, unless the record has them for certain. 100,000 Nodes may be deleted at once.
    fn deleted(&mut self, cache: &mut Cache, key: &RecordKey, last: Node, writes: Writes) {
        let stored = cache.get(key).map_or(Stored::Nothing, |entry| entry.stored());
        let writes = Writes { is_in_doubt: self.metrics.in_doubt.contains(key), ..writes };
        let is_kept = keeps_final_labels(last.summary(), stored, writes);
        tracing::debug!(node = &**key, is_kept, ?writes, "deleted");
        if !is_kept {
            return;
        }
        if let Some(given_up) = cache.final_labels.push(key, last, Instant::now()) {
            self.metrics.final_labels_given_up.inc();
            if !std::mem::replace(&mut self.has_given_up, true) {
                let (node, kept) = (&*given_up, cache.final_labels.len());
                tracing::error!(node, kept, "too many final labels are not stored yet: dropping the oldest");
            }
        }
    }

    fn begin(&mut self, look: Look<'_>) -> Result<StoreTask, Option<Duration>> {
        let (entry, view) = (look.entry, self.view(&look));
        if view.is_contested {
            match view.decide(Duration::default).when {
                When::After(rest, _) if rest.is_zero() && !self.is_dry_run => (),
                When::After(rest, _) => return Err(Some(rest.max(LOOK_AGAIN))),
                When::Now(_) | When::Never => return Err(None),
            }
        }
        match view.node.filter(|_| view.takes_over()) {
            Some(node) if self.watch_lag.must_wait(entry.key(), node, look.heard, Instant::now()) => {
                return Err(Some(LOOK_AGAIN));
            }
            Some(_) => (),
            None => self.watch_lag.forget(entry.key()),
        }
        Ok(StoreTask {
            node: entry.node_name().to_owned(),
            is_contested: view.is_contested,
            may_clean_up: self.budget.is_its_turn(entry.key(), Instant::now()),
            may_add_label: view.at.may_add_label
                && matches!(view.stored, Stored::Record(record) if record.is_unlabelled),
            final_labels: entry.final_labels().cloned(),
            uid: view.node.map(|node| node.uid),
            record_since: entry.record_since(),
            last_seen: entry.last_seen(),
        })
    }

    /// Only a create begins with the Node, and it needs the machine. Otherwise the record is read first, by name: all its fields have to be written back.
    fn needs(&self, entry: &Entry<'_>) -> Needs {
        let is_create = entry.stored() == Stored::Nothing && entry.final_labels().is_none();
        if is_create && !entry.is_contested() { Needs::Node(Extent::Whole) } else { Needs::Nothing }
    }

    fn done(&mut self, cache: &mut Cache, key: &RecordKey, task: StoreTask, done: &Done) {
        if task.may_add_label && done.outcome.is_some() {
            self.labelled.insert(key.clone(), Instant::now());
        }
        self.watch_lag.forget(key);
        self.budget.done(key);
        self.tell_held_back();
        if let Some(last) = &task.final_labels {
            cache.final_labels.stored(key, last);
        }
    }

    fn listed(&mut self, cache: &mut Cache) -> bool {
        self.metrics.in_doubt.expire();
        self.labelled.retain(|_, since| since.elapsed() < LABEL_AGAIN);
        self.budget.counted(cache.count().records, |key| cache.get(key).is_some());
        self.watch_lag.retain(|key| cache.get(key).is_some());
        // The record of another identity than the rules ask for has no Node.
        let by_name = self.rules.identity == IdentityBy::Name;
        let (missing, known) = cache.missing(|key| key.is_identity() != by_name);
        let is_accepted = self.absence.accepts(missing, known);
        if is_accepted {
            cache.believe_absence();
        } else {
            self.metrics.brakings.inc();
            tracing::error!(
                missing,
                known,
                "a large share of the nodes is missing: the list is not used until the next one confirms it"
            );
        }
        is_accepted
    }
}

#[cfg(test)]
mod tests;
