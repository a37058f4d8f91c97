//! Decides when a Node is restored, from the cache.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use label_storage::decision::{Decision, Urgency, When};
use label_storage::restore::{
    Baseline, StartupTaints, View, can_anticipate, decide_contested, keeps_final_labels,
};
use label_storage::store::{Stored, Writes};
use label_storage::summary::{NodeSummary, RecordSummary, UidDigest};
use label_storage::watch_lag::{LOOK_AGAIN, WatchLag};
use label_storage::{Node, NodeName, RecordKey, Rules};
use label_storage_runtime::backoff;
use label_storage_runtime::cache::{Cache, Entry};
use label_storage_runtime::fresh::{Extent, Needs};
use label_storage_runtime::reconciler::{Done, Look, Planner};

use crate::apply::{Decided, OTHER_MACHINE, RestoreTask, is_young};

/// The most Nodes that are kept as they were seen, which saves a read for each. The others are read when their turn comes.
const MOST_VIEWS: usize = 8192;
/// Final labels that no storer has stored after this time are dropped.
pub(crate) const FINAL_LABELS_LIFETIME: Duration = Duration::from_secs(3600);
/// The pause before a key that waits for final labels is looked at again, if its record does not change before.
const LOOK_FOR_FINAL_LABELS: Duration = Duration::from_secs(1);

/// Withheld items are tried again after this time, or less.
const RETRY: Duration = Duration::from_secs(6 * 3600);

/// The restorer's own state: what can't be listed.
pub(crate) struct RestorePlanner {
    /// The rules of the storer: it stores nothing else of final labels.
    rules: Arc<Rules>,
    watch_lag: WatchLag,
    /// Nodes that wait to be restored, as they were seen, and when.
    views: HashMap<RecordKey, (Node, tokio::time::Instant)>,
    /// Keys whose records may have changed unseen, until they are read.
    unsure: HashSet<RecordKey>,
    /// Nodes that are other machines than their records', and by the rules get nothing.
    other_machines: HashMap<RecordKey, Decided>,
    taints: StartupTaints,
    /// When to try withheld items again.
    retries: HashMap<RecordKey, Instant>,
    /// True if Nodes are not watched.
    polls: bool,
    /// Without a watch: Nodes with labels that their records lack, as the last list had them, seen through the rules.
    unstored: HashMap<RecordKey, Node>,
    /// The records that lack labels, as they were last seen; `None` if a person has edited them since.
    baselines: HashMap<RecordKey, Option<Baseline>>,
    /// Since when Nodes wait for final labels.
    waiting: HashMap<RecordKey, Instant>,
}

impl RestorePlanner {
    pub(crate) fn new(rules: Arc<Rules>, polls: bool) -> Self {
        Self {
            taints: StartupTaints::new(rules.startup_taint),
            watch_lag: WatchLag::new(rules.patience),
            rules,
            views: HashMap::new(),
            unsure: HashSet::new(),
            other_machines: HashMap::new(),
            retries: HashMap::new(),
            polls,
            unstored: HashMap::new(),
            baselines: HashMap::new(),
            waiting: HashMap::new(),
        }
    }

    /// How long a Node may still have the start-up taint; `None` if it has none.
    fn taint_left(&self, entry: &Entry<'_>) -> Option<Duration> {
        let node = entry.node().filter(|node| node.traits.has_startup_taint)?;
        self.taints.left(entry.node_name(), node.uid, Instant::now())
    }

    /// The time until withheld items are tried again; `None` if there are none.
    fn until_retry(&mut self, entry: &Entry<'_>) -> Option<Duration> {
        entry.node().filter(|node| !entry.stored().withheld_from(node).is_empty())?;
        let now = Instant::now();
        let at = self.retries.entry(entry.key().clone()).or_insert_with(|| now + backoff::jittered(RETRY));
        Some(at.saturating_duration_since(now))
    }

    /// Several Nodes have this key, so it is not known what to restore.
    fn decide_contested(&mut self, entry: &Entry<'_>) -> Decision {
        self.views.remove(entry.key());
        for (name, uid) in entry.tainted_claimants() {
            self.taints.note(name, Some(uid), Instant::now());
        }
        let left = |(name, uid): (&NodeName, _)| self.taints.left(name, uid, Instant::now());
        decide_contested(entry.tainted_claimants().filter_map(left).min())
    }

    fn contested_task(&self, entry: &Entry<'_>) -> Option<RestoreTask> {
        let is_overdue = |(name, uid): &(&NodeName, UidDigest)| {
            self.taints.left(name, *uid, Instant::now()) == Some(Duration::ZERO)
        };
        let (name, uid) = entry.tainted_claimants().find(is_overdue)?;
        Some(RestoreTask {
            node: name.to_string(),
            contested: Some(uid),
            is_overdue: true,
            view: None,
            decided: None,
            final_labels: Vec::new(),
        })
    }

    /// Without a watch, no deletion is received: the labels in the last list before it are the best substitute for the final labels.
    fn note_unstored(&mut self, entry: &Entry<'_>, node: &Node) {
        let (key, node) = (entry.key(), node.clone().seen_through(&self.rules));
        let summary = node.summary();
        let is_own = |record: RecordSummary| record.is_of(&summary) || record.is_restored_to(&summary);
        if matches!(entry.stored(), Stored::Record(record) if is_own(record) && record.labels != summary.labels)
        {
            if self.unstored.len() < MOST_VIEWS || self.unstored.contains_key(key) {
                self.baselines.insert(key.clone(), Some(Baseline::of(entry.stored(), None)));
                self.unstored.insert(key.clone(), node);
            }
        } else if self.unstored.get(key).is_some_and(|unstored| unstored.uid == node.uid) {
            self.unstored.remove(key);
        }
    }

    /// Notes a record that may have changed. A person who has edited it decides: the labels that were kept count no more.
    fn note_record(&mut self, entry: &Entry<'_>) {
        let Some(baseline) = self.baselines.get_mut(entry.key()) else { return };
        let known = baseline.filter(|known| !known.is_edited(entry.stored()));
        *baseline = known.map(|known| Baseline::of(entry.stored(), Some(known)));
    }

    /// The final labels that the record of this key lacks, the oldest first.
    fn final_labels(&self, entry: &Entry<'_>) -> Vec<Node> {
        let is_edited = self.baselines.get(entry.key()) == Some(&None);
        let is_later = |unstored: &&Node| entry.node().is_some_and(|node| node.uid != unstored.uid.digest());
        let unstored = self.unstored.get(entry.key()).filter(is_later);
        let mut kept = Vec::new();
        for last in entry.all_final_labels().chain(unstored).filter(|_| !is_edited) {
            if keeps_final_labels(last.summary(), !kept.is_empty(), entry.node(), entry.stored()) {
                kept.push(last.clone());
            }
        }
        kept
    }

    /// The pause until it is known which labels belong to a returning Node; `None` if they are known, or if the wait is over: a label that was
    /// restored is never overwritten. Only the deletion event has the final labels of the incarnation before, so the watch has to come to the
    /// Node first.
    fn wait(&mut self, look: &Look<'_>, final_labels: &[Node]) -> Option<Duration> {
        let (entry, now) = (look.entry, Instant::now());
        let node = entry.node()?;
        if self.watch_lag.must_wait(entry.key(), node, look.heard, now) {
            return Some(LOOK_AGAIN);
        }
        let is_unreadable = entry.stored() == Stored::Unreadable;
        if final_labels.is_empty() || is_unreadable || can_anticipate(entry.stored(), &self.rules) {
            return None;
        }
        let since = *self.waiting.entry(entry.key().clone()).or_insert(now);
        (now.duration_since(since) < self.rules.patience).then_some(LOOK_FOR_FINAL_LABELS)
    }

    /// Drops the final labels of these keys that do not count any more. `deleted`: the incarnation that was deleted just now.
    fn retire_final_labels(
        &self,
        cache: &mut Cache,
        is_asked: impl Fn(&RecordKey) -> bool,
        deleted: Option<NodeSummary>,
    ) {
        let mut final_labels = std::mem::take(&mut cache.final_labels);
        final_labels.retain(|key, last, has_earlier| {
            let entry = cache.get(key);
            let stored = entry.as_ref().map_or(Stored::Nothing, Entry::stored);
            let live = deleted.or_else(|| entry.and_then(|entry| entry.node()));
            let is_edited = self.baselines.get(key) == Some(&None);
            !is_asked(key) || !is_edited && keeps_final_labels(last.summary(), has_earlier, live, stored)
        });
        cache.final_labels = final_labels;
    }
}

impl Planner for RestorePlanner {
    type Task = RestoreTask;

    fn decide(&mut self, look: Look<'_>) -> Decision {
        let (entry, key) = (look.entry, look.entry.key());
        if entry.is_contested() {
            return self.decide_contested(entry);
        }
        let tainted = entry.node().filter(|node| node.traits.has_startup_taint);
        self.taints.note(entry.node_name(), tainted.map(|node| node.uid), Instant::now());
        if look.is_unsure {
            self.unsure.insert(key.clone());
        }
        self.note_record(entry);
        if let Some(node) = look.view.filter(|_| self.polls && can_anticipate(entry.stored(), &self.rules)) {
            self.note_unstored(entry, node);
        }
        let view = View {
            node: entry.node(),
            stored: entry.stored(),
            is_unsure: self.unsure.contains(key),
            is_other_machine: self
                .other_machines
                .get(key)
                .is_some_and(|decided| Some(*decided) == Decided::of(entry)),
            taint_left: self.taint_left(entry),
            until_retry: self.until_retry(entry),
        };
        let decision = view.decide();
        let has_room = self.views.len() < MOST_VIEWS || self.views.contains_key(key);
        match (decision.when, look.view) {
            (When::Now(Urgency::Soon), Some(node))
                if has_room && (node.extras.is_whole || !needs_whole(entry)) =>
            {
                self.views.insert(key.clone(), (node.clone(), tokio::time::Instant::now()));
            }
            (When::Now(Urgency::Soon), _) => (),
            _ => drop(self.views.remove(key)),
        }
        decision
    }

    /// The storer stores the final labels. Until then, the restorer keeps them, and so does the next holder of the shard.
    fn deleted(&mut self, cache: &mut Cache, key: &RecordKey, last: Node, _: Writes) {
        self.views.remove(key);
        self.unstored.remove(key);
        let last = last.seen_through(&self.rules);
        let (uid, entry) = (last.uid.digest(), cache.get(key));
        let stored = entry.as_ref().map_or(Stored::Nothing, Entry::stored);
        // No storer stores the final labels of a Node that was another machine than its record's.
        let was_other_machine = self.other_machines.get(key).is_some_and(|decided| {
            let version = entry.map(|entry| entry.record_version());
            (decided.uid, Some(decided.record_version)) == (uid, version)
        });
        // Its own labels count, and not those of the incarnations before it.
        let live = last.summary();
        self.retire_final_labels(cache, |other| other == key, Some(live));
        let has_earlier = cache.final_labels.contains(key);
        let is_kept = keeps_final_labels(live, has_earlier, None, stored) && !was_other_machine;
        tracing::debug!(node = &**key, is_kept, "deleted");
        if is_kept {
            self.baselines.insert(key.clone(), Some(Baseline::of(stored, None)));
        }
        if is_kept && let Some(given_up) = cache.final_labels.push(key, last, Instant::now()) {
            tracing::debug!(
                node = &*given_up,
                "too many final labels are not stored yet: dropping the oldest"
            );
        }
    }

    fn begin(&mut self, look: Look<'_>) -> Result<RestoreTask, Option<Duration>> {
        let entry = look.entry;
        if entry.is_contested() {
            return self.contested_task(entry).ok_or_else(|| match self.decide_contested(entry).when {
                When::After(left, _) => Some(left.max(LOOK_AGAIN)),
                When::Now(_) | When::Never => None,
            });
        }
        let is_overdue = self.taint_left(entry).is_some_and(|left| left.is_zero());
        let final_labels = self.final_labels(entry);
        if let Some(pause) = self.wait(&look, &final_labels).filter(|_| !is_overdue) {
            return Err(Some(pause));
        }
        Ok(RestoreTask {
            node: entry.node_name().to_owned(),
            contested: None,
            is_overdue,
            view: self.views.remove(entry.key()),
            decided: Decided::of(entry),
            final_labels: if can_anticipate(entry.stored(), &self.rules) { final_labels } else { Vec::new() },
        })
    }

    fn needs(&self, entry: &Entry<'_>) -> Needs {
        // A record that is not known is read by name: no list has it.
        let is_stored = entry.stored() != Stored::Nothing;
        match self.views.get(entry.key()) {
            _ if entry.is_contested() => Needs::Nothing,
            Some((_, seen_at)) if is_young(*seen_at) && is_stored => Needs::Record,
            Some((_, seen_at)) if is_young(*seen_at) => Needs::Nothing,
            _ if !is_stored => Needs::Node(Extent::Listed),
            _ if needs_whole(entry) => Needs::NodeThenRecord(Extent::Whole),
            _ => Needs::NodeThenRecord(Extent::Listed),
        }
    }

    fn done(&mut self, cache: &mut Cache, key: &RecordKey, task: RestoreTask, done: &Done) {
        self.retire_final_labels(cache, |other| other == key, None);
        self.watch_lag.forget(key);
        self.waiting.remove(key);
        self.unsure.remove(key);
        self.retries.remove(key);
        if let Some(uid) = task.contested {
            self.taints.lifted(&task.node, uid);
        }
        match (done.outcome, task.decided) {
            (Some(OTHER_MACHINE), Some(decided)) => _ = self.other_machines.insert(key.clone(), decided),
            (Some(_), _) => _ = self.other_machines.remove(key),
            (None, _) => (),
        }
    }

    fn listed(&mut self, cache: &mut Cache) -> bool {
        let is_there = |key: &str| cache.get(key).is_some_and(|entry| entry.node().is_some());
        self.unsure.retain(|key| is_there(key));
        self.watch_lag.retain(is_there);
        self.other_machines.retain(|key, _| is_there(key));
        self.retries.retain(|key, _| is_there(key));
        self.waiting.retain(|key, _| is_there(key));
        self.unstored.retain(|key, last| {
            cache.get(key).is_some_and(|entry| {
                let live = entry.node().filter(|node| node.uid != last.uid.digest());
                self.baselines.get(key) != Some(&None)
                    && keeps_final_labels(last.summary(), false, live, entry.stored())
            })
        });
        self.taints.forget_old(Instant::now());
        cache.final_labels.expire(Instant::now());
        self.retire_final_labels(cache, |_| true, None);
        let is_needed = |key: &str| cache.final_labels.contains(key) || self.unstored.contains_key(key);
        self.baselines.retain(|key, _| is_needed(key));
        true
    }
}

/// True if its record can't be restored to a Node of which only the metadata was read.
fn needs_whole(entry: &Entry<'_>) -> bool {
    matches!(entry.stored(), Stored::Record(record) if record.needs_whole)
}

#[cfg(test)]
mod tests;
