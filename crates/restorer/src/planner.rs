//! Decides when a Node is restored, from the cache.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use label_storage::node_state::{NodeState, Skip};
use label_storage::restore::{self, Reason};
use label_storage::store::{self, Stored};
use label_storage::summary::{NodeSummary, RecordSummary, UidDigest};
use label_storage::{Node, ResourceVersion, Rules};
use label_storage_runtime::cache::{Cache, Entry};
use label_storage_runtime::reconciler::{Decision, Done, Look, NotYet, Planner, When};
use label_storage_runtime::record_key::RecordKey;
use label_storage_runtime::watch_lag::{LOOK_AGAIN, WatchLag};
use label_storage_runtime::work_queue::Urgency;

use tokio::time::Instant;

use crate::taints::Taints;
use crate::task::{FENCED, News, Refused, RestoreTask, WOULD_RESTORE};

/// The most Nodes that are kept as they were seen, which saves a read for each. The others are read when their turn comes.
const MOST_VIEWS: usize = 8192;

/// A Node is not restored before the watch has reported the deletion of the incarnation before, and the storer has stored its final labels:
/// a label that was restored is never overwritten. The wait ends after this time, a little longer than a replica needs to adopt a shard.
const PATIENCE: Duration = Duration::from_secs(20);

const SOON: When = When::Now(Urgency::Soon);

/// The restorer's own state: what can't be listed.
pub(crate) struct RestorePlanner {
    /// The rules of the storer: it stores nothing else of final labels.
    rules: Arc<Rules>,
    /// Final labels that their records did not have at the deletion.
    owed: HashMap<RecordKey, Owed>,
    watch_lag: WatchLag,
    /// Nodes that wait to be restored, as they were seen, and when.
    views: HashMap<RecordKey, (Node, Instant)>,
    /// Nodes whose records may have changed unseen, until they are read.
    unsure: HashSet<RecordKey>,
    /// In a dry run: what was logged, by key.
    said: Option<HashMap<RecordKey, News>>,
    /// Nodes that are other machines than their records', and are not restored.
    fenced: HashMap<RecordKey, Refused>,
    /// Nodes with the start-up taint, by name.
    tainted: Taints,
}

/// The final labels that a storer has to store.
struct Owed {
    last: NodeSummary,
    since: Instant,
}

impl Owed {
    /// True if the record does not have them yet.
    fn is_awaited(&self, stored: Stored<RecordSummary>) -> bool {
        let Stored::Record(record) = stored else { return false };
        let is_older = record.node_version.is_some_and(|version| version < self.last.version);
        is_older && record.labels != self.last.labels && self.since.elapsed() < PATIENCE
    }
}

impl RestorePlanner {
    pub(crate) fn new(rules: Arc<Rules>, dry_run: bool) -> Self {
        Self {
            tainted: Taints::new(rules.startup_taint),
            rules,
            owed: HashMap::new(),
            watch_lag: WatchLag::new(PATIENCE),
            views: HashMap::new(),
            unsure: HashSet::new(),
            said: dry_run.then(HashMap::new),
            fenced: HashMap::new(),
        }
    }

    /// How long a Node may still have the start-up taint; `None` if it has none.
    fn taint_left(&self, entry: &Entry) -> Option<Duration> {
        let node = entry.node().filter(|node| node.traits.has_startup_taint)?;
        self.tainted.left(entry.node_name(), node.uid)
    }

    fn is_fenced(&self, entry: &Entry) -> bool {
        self.fenced.get(entry.key()).is_some_and(|refused| Some(*refused) == Refused::of(entry))
    }

    fn state(&self, entry: &Entry, reason: Option<Reason>) -> NodeState {
        match reason.map_or(NodeState::Settled, Reason::state) {
            NodeState::Due if self.is_fenced(entry) => NodeState::Skipped(Skip::OtherMachine),
            state => state,
        }
    }

    /// True if a deleted Node was another machine than its record's: then no storer stores its final labels.
    fn was_fenced(&self, last: &NodeSummary, entry: &Entry) -> bool {
        let refused = self.fenced.get(entry.key());
        refused.is_some_and(|it| (it.uid, it.record_version) == (last.uid, entry.record_version()))
    }

    /// True if the record may still get the final labels of the incarnation before.
    fn is_too_early(&mut self, look: &Look<'_>) -> bool {
        let name = look.entry.key();
        // Only the deletion event has the final labels.
        if look.is_ahead_of_the_watch() {
            return self.watch_lag.must_wait(look);
        }
        self.watch_lag.forget(name);
        let is_awaited = self.owed.get(name).is_some_and(|owed| owed.is_awaited(look.entry.stored()));
        if !is_awaited {
            self.owed.remove(name);
        }
        is_awaited
    }

    /// When the start-up taint of a Node with a contested key has to come off, if one has it.
    fn decide_contested(&mut self, entry: &Entry) -> Decision {
        self.views.remove(entry.key());
        for (name, uid) in entry.tainted_claimants() {
            self.tainted.note(name, Some(uid));
        }
        let left = entry.tainted_claimants().filter_map(|(name, uid)| self.tainted.left(name, uid)).min();
        let when = left.map_or(When::Never, |left| When::After(left, Urgency::Soon));
        Decision { when, state: NodeState::Skipped(Skip::Contested) }
    }

    /// It is not known what to restore, but the start-up taint has to come off in time.
    fn contested_task(&self, entry: &Entry) -> Option<RestoreTask> {
        let is_overdue =
            |(name, uid): &(&RecordKey, UidDigest)| self.tainted.left(name, *uid) == Some(Duration::ZERO);
        let (name, uid) = entry.tainted_claimants().find(is_overdue)?;
        Some(RestoreTask {
            node: name.to_string(),
            contested: Some(uid),
            is_overdue: true,
            view: None,
            known: entry.known(),
            news: None,
            refused: None,
        })
    }

    fn remember(&mut self, name: &RecordKey, node: &Node) {
        if self.views.len() < MOST_VIEWS || self.views.contains_key(name) {
            self.views.insert(RecordKey::clone(name), (node.clone(), Instant::now()));
        }
    }
}

fn news(entry: &Entry) -> Option<News> {
    Some((entry.node()?.uid, entry.record_version()))
}

impl Planner for RestorePlanner {
    type Task = RestoreTask;

    fn decide(&mut self, look: Look<'_>) -> Decision {
        if look.entry.is_contested() {
            return self.decide_contested(look.entry);
        }
        let name = look.entry.key();
        let reason = look.entry.node().map(|node| restore::decide(&node, look.entry.stored()));
        if let Some(reason) = reason {
            tracing::debug!(node = &**name, reason = reason.as_str(), "decided");
        }
        let tainted = look.entry.node().filter(|node| node.traits.has_startup_taint);
        self.tainted.note(look.entry.node_name(), tainted.map(|node| node.uid));
        let is_said = self.said.as_ref().is_some_and(|said| said.get(name) == news(look.entry).as_ref());
        if look.is_unsure {
            self.unsure.insert(RecordKey::clone(name));
        }
        let taint_left = self.taint_left(look.entry).filter(|_| !is_said);
        let state = self.state(look.entry, reason);
        let when = match (reason, taint_left) {
            (None, _) => When::Never,
            _ if state == NodeState::Due && !is_said => SOON,
            _ if self.unsure.contains(name) => SOON,
            (Some(_), None) => When::Never,
            // There is nothing to restore, so the start-up taint can come off.
            (Some(reason), Some(_)) if reason.is_final() => SOON,
            (Some(_), Some(left)) if left.is_zero() => SOON,
            (Some(_), Some(left)) => When::After(left, Urgency::Soon),
        };
        match (when == SOON, look.view) {
            (false, _) => drop(self.views.remove(name)),
            (true, Some(node)) => self.remember(name, node),
            (true, None) => (),
        }
        Decision { when, state }
    }

    /// The storer stores the final labels. The restorer only waits for them.
    fn deleted(&mut self, last: Node, entry: &Entry, _: bool) {
        let (name, last) = (entry.key(), last.seen_through(&self.rules).summary());
        self.views.remove(name);
        let owed = Owed { last, since: Instant::now() };
        // An incarnation that was not restored only adds labels of its own.
        let is_owed = match entry.stored() {
            // Final labels that no storer stores are not waited for.
            stored if !store::is_worth_keeping(last, stored) || self.was_fenced(&last, entry) => false,
            Stored::Record(record) => {
                let is_its_word = record.is_of(&last) || record.is_restored_to(&last);
                (is_its_word || !last.labels.is_empty()) && owed.is_awaited(entry.stored())
            }
            // The record may not have been seen yet: the first event may be a deletion that an earlier replica left.
            Stored::Nothing => !last.labels.is_empty(),
            Stored::Unreadable => false,
        };
        if is_owed && self.owed.len() < MOST_VIEWS {
            self.owed.insert(RecordKey::clone(name), owed);
        }
    }

    /// The next holder has to wait for the same final labels.
    fn pending_deletions(&self) -> Vec<(RecordKey, ResourceVersion)> {
        let awaited = self.owed.iter().filter(|(_, owed)| owed.since.elapsed() < PATIENCE);
        awaited.map(|(name, owed)| (RecordKey::clone(name), owed.last.version)).collect()
    }

    fn task(&mut self, look: Look<'_>) -> Result<RestoreTask, NotYet> {
        let entry = look.entry;
        if entry.is_contested() {
            return self.contested_task(entry).ok_or_else(|| match self.decide_contested(entry).when {
                When::After(left, _) => NotYet::After(left.max(LOOK_AGAIN)),
                When::Now(_) | When::Never => NotYet::UntilChanged,
            });
        }
        if self.is_too_early(&look) {
            return Err(NotYet::After(LOOK_AGAIN));
        }
        let news = self.said.as_ref().and_then(|_| news(entry));
        Ok(RestoreTask {
            node: entry.node_name().to_owned(),
            contested: None,
            is_overdue: self.taint_left(entry).is_some_and(|left| left.is_zero()),
            view: self.views.remove(entry.key()),
            known: entry.known(),
            news,
            refused: Refused::of(entry),
        })
    }

    fn done(&mut self, name: &RecordKey, task: RestoreTask, done: Option<&Done>) {
        if done.is_some() {
            self.watch_lag.forget(name);
            self.unsure.remove(name);
        }
        if let (Some(uid), Some(_)) = (task.contested, done) {
            self.tainted.lifted(&task.node, uid);
        }
        let outcome = done.and_then(|done| done.outcome);
        match (outcome, task.refused) {
            (Some(FENCED), Some(refused)) => _ = self.fenced.insert(RecordKey::clone(name), refused),
            (Some(_), _) => _ = self.fenced.remove(name),
            _ => (),
        }
        if let (Some(said), Some(news), Some(WOULD_RESTORE)) = (&mut self.said, task.news, outcome) {
            said.insert(RecordKey::clone(name), news);
        }
    }

    fn listed(&mut self, cache: &mut Cache) -> bool {
        let is_there = |name: &RecordKey| cache.get(name).is_some_and(|entry| entry.node().is_some());
        self.unsure.retain(is_there);
        self.watch_lag.retain(is_there);
        self.fenced.retain(|name, _| is_there(name));
        self.tainted.forget_old();
        self.owed.retain(|_, owed| owed.since.elapsed() < PATIENCE);
        if let Some(said) = &mut self.said {
            said.retain(|name, _| is_there(name));
        }
        true
    }

    fn start_over(&mut self) {
        *self = Self::new(Arc::clone(&self.rules), self.said.is_some());
    }
}

#[cfg(test)]
mod tests;
