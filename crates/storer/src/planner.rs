//! Decides when a Node is stored, from the cache.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use label_storage::final_labels::FinalLabels;
use label_storage::mass_absence::MassAbsence;
use label_storage::node_state::{NodeState, Skip};
use label_storage::store::{self, Circumstances, Reason, Sighting, Stored, TOMBSTONE_LIFETIME};
use label_storage::{Node, ResourceVersion, Rules};
use label_storage_runtime::cache::{Cache, Entry, Missing};
use label_storage_runtime::reconciler::{Decision, Done, Look, NotYet, Planner, When};
use label_storage_runtime::record_key::RecordKey;
use label_storage_runtime::server_clock::ServerClock;
use label_storage_runtime::watch_lag::{LOOK_AGAIN, WatchLag};
use label_storage_runtime::work_queue::Urgency;

use crate::deletion_budget::DeletionBudget;
use crate::in_doubt::InDoubt;
use crate::metrics::StorerMetrics;
use crate::task::{News, StoreTask, Unchanged, WOULD_WRITE};

/// A new incarnation does not take over a record before the watch has come to it: the final labels of the incarnation before may still be on
/// their way. The wait ends after this time without progress, because the watch may be broken.
const PATIENCE: Duration = Duration::from_secs(10);

/// A write that only makes a record tidier waits this long. Often the Node is back or restored by then, and several writes become one.
const TIDY: Duration = Duration::from_secs(2);

/// A Node that is back is usually restored, and its record written, sooner than this. Only a Node that nobody restores is worth a write to
/// remove `departed-at`.
const UNRESTORED: Duration = Duration::from_secs(30);

/// A record whose retention ends later than this is decided upon again with the next list.
const SOON: Duration = Duration::from_secs(600);

/// The storer's own state: what can't be listed.
pub(crate) struct StorePlanner {
    rules: Arc<Rules>,
    cleanup: DeletionBudget,
    clock: Arc<ServerClock>,
    final_labels: FinalLabels,
    /// True once it was logged that final labels were given up.
    has_given_up: bool,
    in_doubt: Arc<InDoubt>,
    counts: Arc<StorerMetrics>,
    watch_lag: WatchLag,
    absence: MassAbsence,
    /// In a dry run: what was logged, by key.
    said: Option<HashMap<RecordKey, News>>,
}

impl StorePlanner {
    pub(crate) fn new(
        rules: Arc<Rules>,
        dry_run: bool,
        clock: Arc<ServerClock>,
        in_doubt: Arc<InDoubt>,
        counts: Arc<StorerMetrics>,
    ) -> Self {
        Self {
            cleanup: DeletionBudget::new(rules.cleanup_share, Arc::clone(&counts)),
            rules,
            clock,
            final_labels: FinalLabels::default(),
            has_given_up: false,
            in_doubt,
            watch_lag: WatchLag::new(PATIENCE),
            absence: MassAbsence::default(),
            said: dry_run.then(HashMap::new),
            counts,
        }
    }

    fn circumstances(&self, entry: &Entry) -> Circumstances {
        let unchanged_for = entry.record_since().elapsed();
        let (retention, last_seen) = (self.rules.retention, entry.last_seen());
        Circumstances { unchanged_for, retention, last_seen, ..Circumstances::at(self.clock.now()) }
    }

    /// The reason for this entry; `None` if it is not certain that the Node is gone.
    fn reason(&self, entry: &Entry) -> Option<Reason> {
        let sighting = match entry.node() {
            Some(node) => Sighting::Live(node),
            None if entry.is_surely_gone() => Sighting::Gone,
            None => return None,
        };
        Some(store::decide(sighting, entry.stored(), self.circumstances(entry)))
    }

    /// True if the Node would take over the record of an incarnation whose final labels may still be on their way.
    fn is_too_early(&mut self, look: &Look<'_>) -> bool {
        let has_words = self.final_labels.contains(look.entry.key());
        let takes_over = self.reason(look.entry).is_some_and(Reason::takes_over)
            && !has_words
            && !matches!((look.entry.node(), look.entry.stored()), (Some(node), Stored::Record(record)) if record.is_of(&node));
        if !takes_over {
            self.watch_lag.forget(look.entry.key());
        }
        takes_over && self.watch_lag.must_wait(look)
    }

    fn until_retention_is_over(&self, entry: &Entry) -> When {
        let Stored::Record(record) = entry.stored() else { return When::Never };
        let away = record.departed_at.map(|departed_at| self.clock.now().duration_since(departed_at));
        let away = away.and_then(|away| Duration::try_from(away).ok()).unwrap_or_default();
        let unchanged_for = entry.record_since().elapsed();
        let rest =
            self.rules.retention.saturating_sub(away).max(TOMBSTONE_LIFETIME.saturating_sub(unchanged_for));
        if rest < SOON { When::After(rest, Urgency::Tidy) } else { When::Never }
    }

    fn when(&self, look: &Look<'_>, reason: Reason, state: NodeState, is_said: bool) -> When {
        match reason {
            Reason::EmptyForNow => {
                let rest = TOMBSTONE_LIFETIME.saturating_sub(look.entry.record_since().elapsed());
                When::After(rest, Urgency::Tidy)
            }
            Reason::Away => self.until_retention_is_over(look.entry),
            _ if is_said => When::Never,
            _ if state == NodeState::Due => {
                When::Now(if look.is_event { Urgency::Soon } else { Urgency::Routine })
            }
            // A view that is older than the record may stay so for ever: it is read by name.
            Reason::Restored | Reason::NotGone | Reason::Departed | Reason::ViewOlderThanRecord => {
                When::After(TIDY, Urgency::Tidy)
            }
            Reason::Returned => When::After(UNRESTORED, Urgency::Tidy),
            Reason::EmptyForGood | Reason::RetentionOver => When::Now(Urgency::Tidy),
            _ => When::Never,
        }
    }

    /// One of the claimants exists, so `departed-at` is wrong.
    fn decide_contested(entry: &Entry) -> Decision {
        let rest = UNRESTORED.saturating_sub(entry.record_since().elapsed());
        let when = if is_said_to_be_gone(entry) { When::After(rest, Urgency::Soon) } else { When::Never };
        Decision { when, state: NodeState::Skipped(Skip::Contested) }
    }

    fn contested_task(&self, entry: &Entry) -> Option<StoreTask> {
        let is_time = entry.record_since().elapsed() >= UNRESTORED;
        (is_said_to_be_gone(entry) && is_time && self.said.is_none()).then(|| StoreTask {
            may_clean_up: false,
            node: None,
            is_contested: true,
            final_labels: None,
            uid: None,
            is_unrecorded: false,
            unchanged: Unchanged { version: entry.record_version(), since: entry.record_since() },
            last_seen: None,
            known: entry.known(),
            news: None,
        })
    }

    /// In a dry run: logs that the rules store nothing of a Node.
    fn leave_alone(&mut self, entry: &Entry, reason: Reason) {
        if let Some(said) = &mut self.said {
            tracing::info!(node = entry.node_name(), reason = reason.as_str(), "would leave the node alone");
            said.insert(RecordKey::clone(entry.key()), news(entry, reason));
        }
    }
}

impl Planner for StorePlanner {
    type Task = StoreTask;

    fn decide(&mut self, look: Look<'_>) -> Decision {
        let (entry, node) = (look.entry, look.entry.key());
        if entry.is_contested() {
            return Self::decide_contested(entry);
        }
        if self.final_labels.contains(node) {
            tracing::debug!(node = &**node, reason = Reason::LastWords.as_str(), "decided");
            return Decision { when: When::Now(Urgency::Urgent), state: NodeState::Due };
        }
        let Some(reason) = self.reason(entry) else {
            return Decision { when: When::Never, state: NodeState::Settled };
        };
        tracing::debug!(node = &**node, reason = reason.as_str(), "decided");
        let is_said = self.said.as_ref().is_some_and(|said| said.get(node) == Some(&news(entry, reason)));
        if !is_said && matches!(reason, Reason::Ignored | Reason::NotSelected | Reason::NoIdentity) {
            self.leave_alone(entry, reason);
        }
        let state = reason.state(has_labels_of_record(entry));
        Decision { when: self.when(&look, reason, state, is_said), state }
    }

    /// Keeps the final labels until they are stored, unless the record has them for certain. 100,000 Nodes may be deleted at once.
    fn deleted(&mut self, last: Node, entry: &Entry, is_unsettled: bool) {
        let node = entry.key();
        let is_worth_keeping = store::is_worth_keeping(last.summary(), entry.stored());
        // A write in flight may still change the record.
        let is_unsettled = is_unsettled || self.in_doubt.contains(node);
        tracing::debug!(node = &**node, is_worth_keeping, is_unsettled, "deleted");
        if !is_worth_keeping && !is_unsettled {
            return;
        }
        if let Some(given_up) = self.final_labels.push(node, last) {
            self.counts.final_labels_given_up.inc();
            if !std::mem::replace(&mut self.has_given_up, true) {
                let (node, kept) = (&*given_up, self.final_labels.len());
                tracing::error!(node, kept, "too many final labels can't be stored: giving up the oldest");
            }
        }
    }

    fn task(&mut self, look: Look<'_>) -> Result<StoreTask, NotYet> {
        let entry = look.entry;
        if entry.is_contested() {
            return self.contested_task(entry).ok_or_else(|| match Self::decide_contested(entry).when {
                When::After(rest, _) => NotYet::After(rest.max(LOOK_AGAIN)),
                When::Now(_) | When::Never => NotYet::UntilChanged,
            });
        }
        if self.is_too_early(&look) {
            return Err(NotYet::After(LOOK_AGAIN));
        }
        let has_words = self.final_labels.contains(entry.key());
        let reason = self.reason(entry);
        let is_over = reason == Some(Reason::RetentionOver) && !has_words;
        if is_over && let Some(pause) = self.cleanup.wait(entry.key(), Instant::now()) {
            return Err(NotYet::After(pause));
        }
        Ok(StoreTask {
            may_clean_up: is_over,
            // The versions in the entry are those of this Node.
            node: (entry.node().is_some() || entry.node_name() != &**entry.key())
                .then(|| entry.node_name().to_owned()),
            is_contested: false,
            final_labels: self.final_labels.first(entry.key()).cloned(),
            uid: entry.node().map(|node| node.uid),
            is_unrecorded: entry.stored() == Stored::Nothing,
            unchanged: Unchanged { version: entry.record_version(), since: entry.record_since() },
            last_seen: entry.last_seen(),
            known: entry.known(),
            news: self.said.as_ref().and(reason).map(|reason| news(entry, reason)),
        })
    }

    fn done(&mut self, node: &RecordKey, task: StoreTask, done: Option<&Done>) {
        let Some(done) = done else { return };
        self.watch_lag.forget(node);
        self.cleanup.done(node);
        if let Some(last) = &task.final_labels {
            self.final_labels.stored(node, last);
        }
        if let (Some(said), Some(news), Some(WOULD_WRITE)) = (&mut self.said, task.news, done.outcome) {
            said.insert(RecordKey::clone(node), news);
        }
    }

    fn pending_deletions(&self) -> Vec<(RecordKey, ResourceVersion)> {
        self.final_labels.unstored().map(|(key, version)| (RecordKey::clone(key), version)).collect()
    }

    fn listed(&mut self, cache: &mut Cache) -> bool {
        self.cleanup.counted(cache.count().records, |node| cache.get(node).is_some());
        let Missing { nodes, known } = cache.missing();
        let is_accepted = self.absence.accepts(nodes, known);
        if is_accepted {
            cache.believe_absence();
        } else {
            self.counts.brakings.inc();
            tracing::error!(
                missing = nodes,
                known,
                "a large share of the nodes is missing: the list is not used unless the next one agrees"
            );
        }
        let concerns = |node: &str| cache.get(node).is_some();
        if let Some(said) = &mut self.said {
            said.retain(|node, _| concerns(node));
        }
        self.watch_lag.retain(|node| concerns(node));
        is_accepted
    }

    fn start_over(&mut self) {
        // Deletions of the old history happened all the same, and nothing else has their labels.
        let counts = Arc::clone(&self.counts);
        self.cleanup = DeletionBudget::new(self.rules.cleanup_share, counts);
        (self.watch_lag, self.absence) = (WatchLag::new(PATIENCE), MassAbsence::default());
        self.said.iter_mut().for_each(HashMap::clear);
    }
}

fn news(entry: &Entry, reason: Reason) -> News {
    let node_version = entry.node().map_or(ResourceVersion(0), |node| node.version);
    (reason, node_version, entry.record_version())
}

fn is_said_to_be_gone(entry: &Entry) -> bool {
    matches!(entry.stored(), Stored::Record(record) if record.departed_at.is_some())
}

fn has_labels_of_record(entry: &Entry) -> bool {
    match (entry.node(), entry.stored()) {
        (Some(node), Stored::Record(record)) => node.labels == record.labels,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
