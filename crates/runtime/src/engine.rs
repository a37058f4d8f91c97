//! The loop of one shard, for both daemons.
//!
//! ```text
//!   informers ─► cache (newest wins) ─► decide ─► work queue ─► attempt (reads fresh, plans, writes)
//!                  ▲                                               │
//!                  └─────────────── the answer ────────────────────┘
//! ```
//!
//! The cache only tells where to look. An attempt writes what follows from its own fresh read.

mod dry_run;
mod node_states;
mod progress_log;
mod reports;

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use label_storage::decision::{Urgency, When};
use label_storage::{Node, RecordKey, ResourceVersion};
use tokio::sync::mpsc;

use self::dry_run::DryRun;
use self::node_states::NodeStates;
use self::progress_log::ProgressLog;
use self::reports::Reports;
use crate::api_source::{Listed, Resource};
use crate::backoff;
use crate::cache::{Cache, Entry, Reading};
use crate::call::{self, Error};
use crate::fresh::{BulkReads, FreshReads};
use crate::health::HEARTBEAT;
use crate::informer::Informers;
use crate::limiter::Limiter;
use crate::list_watch::{Audience, Observed, Update};
use crate::reconciler::{Done, Look, Planner, Worker};
use crate::record_key::Filed;
use crate::shard_context::ShardContext;
use crate::work_queue::WorkQueue;

/// The messages that wait for the engine. There are few, so that a list takes little memory.
const WAITING: usize = 4;
/// The least time between two attempts at a key that is still due: the watch has to report the first one.
const AGAIN: Duration = Duration::from_millis(100);

/// Runs until the shutdown. Then it finishes the attempts in flight, and makes the urgent ones that are due, within the time limit of the
/// shutdown. Other final labels stay pending in the position, for the next holder.
///
/// `planner` makes the state of the daemon, again if the history of the cluster goes back. `cache` is empty.
pub async fn run<P: Planner>(
    replica: &ShardContext,
    cache: Cache,
    planner: impl Fn() -> P,
    worker: &impl Worker<P::Task>,
) {
    let (audience, mut observed) = mpsc::channel(WAITING);
    let mut engine = Engine::new(replica, cache, planner, audience);
    let mut in_flight = FuturesUnordered::new();
    let shutdown = &replica.shutdown;
    let mut drained = std::pin::pin!(shutdown.drained());
    let mut deadline = replica.deadline.clone();
    let mut is_ending = false;
    let pulse = replica.health.pulse(format!("the loop of shard {}", replica.share.index));
    loop {
        pulse.send_replace(Instant::now());
        if !is_ending && shutdown.stop.is_cancelled() {
            is_ending = true;
            while let Ok(observed) = observed.try_recv() {
                engine.observe(observed);
            }
        }
        let now = Instant::now();
        engine.bulk.keep_to_term(deadline.term());
        if !is_ending {
            engine.informers.begin_if_due(&mut engine.cache);
            if deadline.holds() {
                engine.list_for_many(now);
            }
        }
        engine.progress.tell_if_due(&engine.queue, now);
        engine.states.tell_if_due(&engine.cache, &engine.queue, &engine.informers, now);
        let least = if is_ending { Urgency::Urgent } else { Urgency::Tidy };
        while deadline.holds()
            && let Some(ticket) = engine.next(least, now)
        {
            let deadline = deadline.clone();
            in_flight.push(async move {
                let began = Instant::now();
                let Ticket { key, task, reads, earlier_tries, .. } = &ticket;
                let attempt =
                    async |tries| worker.attempt(key, task, reads, earlier_tries.saturating_add(tries)).await;
                let outcome = deadline.within(call::settle(shutdown, attempt)).await;
                let outcome = outcome.unwrap_or_else(|| Err(Error::expired("continue without a lease")));
                (ticket, began, outcome)
            });
        }
        if is_ending && in_flight.is_empty() {
            return;
        }
        let wake_at = engine.wake_at(now).into();
        tokio::select! {
            Some(observed) = observed.recv(), if !is_ending => engine.observe(observed),
            () = engine.bulk.next() => (),
            Some((ticket, began, outcome)) = in_flight.next() => engine.finish(ticket, began, outcome),
            () = tokio::time::sleep_until(wake_at), if !is_ending => (),
            () = deadline.renewed(), if !deadline.holds() => (),
            () = shutdown.stop.cancelled(), if !is_ending => (),
            () = &mut drained => {
                tracing::warn!("attempts in flight did not end in time: stopping anyway");
                return;
            }
        }
    }
}

struct Ticket<T> {
    key: RecordKey,
    /// The name that the Node is read by.
    node: String,
    task: T,
    reads: FreshReads,
    /// Failures in a row before this attempt.
    earlier_tries: u32,
    /// The versions of Node and record in the cache at the start.
    versions: (ResourceVersion, ResourceVersion),
    /// Since when the Node is due.
    due_since: Option<Instant>,
}

struct Engine<'a, P, F> {
    new_planner: F,
    planner: P,
    cache: Cache,
    queue: WorkQueue,
    limiter: Limiter,
    bulk: BulkReads,
    informers: Informers<'a>,
    progress: ProgressLog,
    states: NodeStates,
    reports: Reports,
    dry_run: Option<DryRun>,
    /// The last list with an object whose key is not known, because it can't be decoded.
    unclear_list: Option<u32>,
}

impl<'a, P: Planner, F: Fn() -> P> Engine<'a, P, F> {
    fn new(replica: &'a ShardContext, cache: Cache, new_planner: F, audience: Audience) -> Self {
        Self {
            planner: new_planner(),
            new_planner,
            cache,
            queue: WorkQueue::default(),
            limiter: match replica.args.fixed_concurrency {
                Some(limit) => Limiter::fixed(limit.get()),
                None => Limiter::new(replica.args.concurrency.get()),
            },
            bulk: BulkReads::default(),
            informers: Informers::new(replica, audience),
            progress: ProgressLog::new(&replica.metrics),
            states: NodeStates::new(replica.metrics.node_gauges.seat()),
            reports: Reports::new(&replica.events, &replica.metrics),
            dry_run: replica.args.dry_run.then(DryRun::default),
            unclear_list: None,
        }
    }

    /// The next attempt, if a key is due that is urgent enough and the limiter has room.
    fn next(&mut self, least: Urgency, now: Instant) -> Option<Ticket<P::Task>> {
        let heard = self.informers.heard();
        let is_held = self.bulk.holds_until().is_some_and(|until| now < until.into_std());
        let least = if is_held { Urgency::Urgent } else { least };
        while self.limiter.has_room(self.queue.in_flight(), now) {
            let key = self.queue.pop(least, now)?;
            let Some(entry) = self.cache.get(&key) else {
                self.queue.done(&key);
                continue;
            };
            let look = Look { entry: &entry, view: None, is_event: false, is_unsure: false, heard };
            match self.planner.begin(look) {
                Ok(task) => {
                    let (node, versions) = (entry.node_name().to_owned(), entry.versions());
                    let reads = self.bulk.reads(&key, &node, entry.known().after(self.queue.doubts(&key)));
                    let (earlier_tries, due_since) = (self.queue.failures(&key), self.states.due_since(&key));
                    return Some(Ticket { key, node, task, reads, earlier_tries, versions, due_since });
                }
                Err(pause) => self.queue.put_back(&key, pause.map(|pause| now + pause)),
            }
        }
        None
    }

    /// Lists for the keys whose turn comes next, if there are many. Those that have failed are read by name.
    fn list_for_many(&mut self, now: Instant) {
        let has_listed = self.informers.has_listed(Resource::Nodes);
        if has_listed && self.limiter.has_room(0, now) && self.bulk.is_due() {
            let upcoming = self.queue.upcoming().filter(|key| self.queue.failures(key) == 0);
            let entries = upcoming.filter_map(|key| self.cache.get(key));
            let needs = entries
                .map(|entry| (entry.key().clone(), entry.node_name().to_owned(), self.planner.needs(&entry)));
            self.bulk.begin(self.informers.replica, needs, |kind| self.informers.all(kind));
        }
    }

    /// The time at which the loop has to wake up, even if nothing happens.
    fn wake_at(&self, now: Instant) -> Instant {
        // A key that is due by now has begun, or waits for room: the end of another attempt makes room.
        let queue = self.queue.next_due(now).filter(|due| *due > now);
        let pause = self.limiter.paused_until.filter(|until| *until > now);
        let hold = self.bulk.holds_until().map(tokio::time::Instant::into_std).filter(|until| *until > now);
        let telling = [self.progress.due(&self.queue), self.states.due()];
        let latest = self.informers.due().min(now + HEARTBEAT);
        [queue, pause, hold].into_iter().chain(telling).flatten().fold(latest, Instant::min)
    }

    fn observe(&mut self, observed: Observed) {
        match observed {
            Observed::Listed { list, items } => items.into_iter().for_each(|item| self.see(Some(list), item)),
            Observed::ListEnded { kind, list, outcome, took } => {
                match outcome.and_then(|listed| self.informers.require_newer(kind, listed)) {
                    Ok(listed) if self.cache.is_of_another_history(list, listed.version) => self.start_over(),
                    Ok(listed) => self.listed(kind, list, &listed, took),
                    Err(_) if self.informers.is_another_cluster() => self.start_over(),
                    Err(error) => self.informers.list_failed(kind, &error, took),
                }
            }
            Observed::Changed(update)
            | Observed::Deleted(update @ (Update::Elsewhere { .. } | Update::Undecodable { .. })) => {
                self.see(None, update);
            }
            Observed::Deleted(Update::Node(last)) => self.deleted(last),
            Observed::Deleted(Update::Record(record)) => {
                if self.cache.lose_record(&record.filed_under, record.version) {
                    self.consider(&record.filed_under, None, true, false);
                }
            }
            Observed::Deleted(Update::RecordElsewhere { filed_under, uid }) => {
                self.cache.forget_stored(uid, &filed_under);
            }
            Observed::Watching(kind, at) => {
                self.informers.watching(kind);
                self.informers.advance(kind, at, &self.cache.final_labels);
                self.states.changed();
            }
            Observed::At(kind, at) => self.informers.advance(kind, at, &self.cache.final_labels),
            Observed::NotWatching(kind, error) => {
                self.informers.not_watching(kind, &error);
                self.states.changed();
            }
            Observed::Skipped(kind, until) => {
                if kind == Resource::Nodes {
                    self.cache.note_gap(until);
                }
                self.informers.skipped(kind);
            }
            Observed::Expired(kind) => self.informers.expired(kind),
        }
        self.consider_left();
    }

    fn see(&mut self, list: Option<u32>, update: Update) {
        let is_event = list.is_none();
        if is_event && let Update::Node(Node { version, .. }) | Update::Elsewhere { version, .. } = &update {
            self.informers.advance(Resource::Nodes, *version, &self.cache.final_labels);
        }
        match update {
            Update::Node(node) => {
                let summary = node.summary();
                let known = self.cache.get(node.filed_under()).and_then(|entry| entry.node());
                let is_new = known.is_none_or(|known| known.uid != summary.uid);
                let is_first = !is_event && !self.informers.has_listed(Resource::Nodes);
                let is_unsure = is_new && !is_first && !self.informers.is_watching(Resource::Records);
                if is_new && !is_first {
                    self.queue.note_change(Instant::now());
                }
                if self.cache.see_node(list, &node, summary) {
                    self.consider(node.filed_under(), Some(&node), is_event, is_unsure);
                }
            }
            Update::Elsewhere { name, version } => {
                let may_be_listed = is_event && self.informers.is_listing();
                self.cache.see_elsewhere(list, &name, version, may_be_listed);
            }
            Update::RecordElsewhere { filed_under, uid } => self.cache.see_stored(list, uid, &filed_under),
            Update::Undecodable { kind, name, why } => {
                match (list, kind) {
                    (Some(list), Resource::Nodes) if !name.is_empty() => self.cache.keep_node(list, &name),
                    (Some(list), _) => self.unclear_list = Some(list),
                    (None, _) => (),
                }
                self.reports.undecodable(kind, name, why);
            }
            Update::Record(record) => {
                let filed = Filed { under: &record.filed_under, name: &record.node };
                if self.cache.see_record(list, filed, record.version, record.stored) {
                    self.reports.record(&record);
                    // Each Node of the list that follows is decided upon.
                    if is_event {
                        self.consider(&record.filed_under, None, true, false);
                    }
                }
            }
        }
    }

    fn listed(&mut self, kind: Resource, list: u32, listed: &Listed, took: Duration) {
        if kind == Resource::Nodes {
            self.informers.check_position(listed.version);
        }
        let lacked = match kind {
            // The list may have any of those that it seems to lack.
            _ if self.unclear_list == Some(list) => false,
            Resource::Records => self.cache.end_list_of_records(list, listed.version),
            Resource::Nodes => self.cache.end_list_of_nodes(list, listed.version),
        };
        let is_used = kind == Resource::Records || self.planner.listed(&mut self.cache);
        self.informers.listed(kind, listed, took, lacked, is_used, &self.cache);
        if kind == Resource::Nodes {
            self.review();
        }
    }

    /// The cluster has another history, such as etcd restored from a backup.
    fn start_over(&mut self) {
        tracing::warn!("the cluster went back to an earlier version: starting over");
        self.cache.start_over();
        self.planner = (self.new_planner)();
        self.reports.start_over();
        self.bulk = BulkReads::default();
        self.dry_run = self.dry_run.take().map(|_| DryRun::default());
        self.informers.start_over();
    }

    /// A Node was deleted, and looked like this just before.
    fn deleted(&mut self, last: Node) {
        self.queue.note_change(Instant::now());
        let (key, version) = (RecordKey::from(last.filed_under()), last.version);
        // If other Nodes had the same key, nobody knows whose labels belong in the record.
        let is_contested =
            |entry: Entry<'_>| entry.had_others(&last.name, version) || entry.is_stranger(last.uid.digest());
        let was_contested = self.cache.get(&key).is_some_and(is_contested);
        self.cache.see_node(None, &last, last.summary());
        self.cache.lose_node(&last, version);
        if !was_contested && !self.informers.is_stored(&key, version) {
            self.planner.deleted(&mut self.cache, &key, last, self.queue.writes(&key));
        }
        self.informers.advance(Resource::Nodes, version, &self.cache.final_labels);
        self.consider(&key, None, true, false);
    }

    /// Decides about keys whose Nodes have just left for another key or shard.
    fn consider_left(&mut self) {
        for key in self.cache.take_left() {
            self.consider(&key, None, true, false);
        }
    }

    /// Decides about all keys: some decisions change with time alone.
    fn review(&mut self) {
        let keys: Vec<RecordKey> = self.cache.keys().collect();
        for key in &keys {
            self.consider(key, None, false, false);
        }
        self.reports.listed(&self.cache);
        self.cache.forget_gone(|key| self.queue.contains(key));
        let cache = &self.cache;
        self.queue.retain(|key| cache.get(key).is_some());
        self.states.retain(|key| cache.get(key).is_some());
        self.dry_run.iter_mut().for_each(|it| it.retain(|key| cache.get(key).is_some()));
        self.states.changed();
    }

    /// Decides about a key, but not before all records are known: each Node would seem to have none. A key that is an identity needs all Nodes,
    /// too: a resumed watch shows two Nodes with one identity one after the other.
    fn consider(&mut self, key: &str, view: Option<&Node>, is_event: bool, is_unsure: bool) {
        let Some(entry) = self.cache.get(key) else { return };
        let needs_nodes = entry.key().is_identity() && !self.informers.has_listed(Resource::Nodes);
        if needs_nodes || !self.informers.has_listed(Resource::Records) {
            return;
        }
        let heard = self.informers.heard();
        let was_contested = self.reports.decided(&entry, heard);
        // Its record may have changed while it was contested.
        let is_unsure = is_unsure || was_contested && !self.informers.is_watching(Resource::Records);
        let decision = self.planner.decide(Look { entry: &entry, view, is_event, is_unsure, heard });
        tracing::debug!(node = key, reason = decision.reason, "decided");
        self.states.note(&entry, decision.state);
        let is_said = self.dry_run.as_mut().is_some_and(|it| it.is_said(&entry, &decision));
        match decision.when {
            _ if is_said && !is_unsure => self.queue.remove(key),
            When::Never => self.queue.remove(key),
            When::Now(urgency) => self.queue.push(entry.key(), urgency, None),
            When::After(pause, urgency) => {
                self.queue.push(entry.key(), urgency, Some(Instant::now() + pause));
            }
        }
    }

    /// Puts the answers of an attempt into the cache, and decides again: the Node may have changed meanwhile.
    fn finish(&mut self, ticket: Ticket<P::Task>, began: Instant, outcome: Result<Done, Error>) {
        let (now, key) = (Instant::now(), &ticket.key);
        self.limiter.note(began, outcome.as_ref().err(), now);
        self.progress.count(&outcome, now.duration_since(began));
        self.states.changed();
        let done = match outcome {
            Ok(done) => done,
            Err(error) => {
                tracing::warn!(node = ticket.node, %error, "a node failed: retrying later");
                let doubts = ticket.reads.known.doubts();
                return self.queue.failed(key, doubts, error.retry_after(), now);
            }
        };
        self.see_answers(&ticket, &done);
        self.planner.done(&mut self.cache, key, ticket.task, &done);
        self.queue.done(key);
        self.cache.final_labels.expire(now);
        self.informers.publish_position(&self.cache.final_labels);
        if let Some(since) = ticket.due_since.filter(|_| done.outcome.is_some()) {
            self.progress.metrics.latency.0.observe(since.elapsed().as_secs_f64());
        }
        if let (Some(entry), Some(dry_run), Some(_)) = (self.cache.get(key), &mut self.dry_run, done.outcome)
        {
            dry_run.said(&entry);
        }
        self.consider(key, None, true, false);
        self.queue.postpone(key, now + backoff::a_little_more(AGAIN));
        self.consider_left();
    }

    /// An object that was absent may have been created and seen since.
    fn see_answers(&mut self, ticket: &Ticket<P::Task>, done: &Done) {
        let key = &ticket.key;
        let entry = self.cache.get(key);
        let versions = entry.as_ref().map_or(ticket.versions, Entry::versions);
        let is_about = entry.is_some_and(|entry| entry.is_about(&ticket.node));
        match done.node {
            Reading::Absent if versions.0 == ticket.versions.0 => self.cache.miss_node(key),
            Reading::Present(node) if is_about => {
                self.cache.see_node(None, Filed { under: key, name: &ticket.node }, node);
            }
            Reading::Present(_) | Reading::Absent | Reading::None => (),
        }
        match done.record {
            Reading::Absent if versions.1 == ticket.versions.1 => self.cache.miss_record(key),
            Reading::Present((version, stored)) => _ = self.cache.see_record(None, &**key, version, stored),
            Reading::Absent | Reading::None => (),
        }
    }
}

#[cfg(test)]
mod tests;
