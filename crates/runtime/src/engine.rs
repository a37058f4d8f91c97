//! The loop of one shard, for both daemons.
//!
//! ```text
//!   informers ─► cache (newest wins) ─► decide ─► work queue ─► attempt (reads fresh, plans, writes)
//!                  ▲                                               │
//!                  └─────────────── the answer ────────────────────┘
//! ```
//!
//! The cache only tells where to look. An attempt writes what follows from its own fresh read.

mod moves;
mod node_states;
mod progress_log;
mod reports;

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use label_storage::summary::NodeSummary;
use label_storage::watch_progress::WatchProgress;
use label_storage::{Node, ResourceVersion};
use tokio::sync::mpsc;

use self::node_states::NodeStates;
use self::progress_log::ProgressLog;
use self::reports::Reports;
use crate::api_source::Resource;
use crate::backoff;
use crate::cache::{Cache, Entry};
use crate::call::{self, Error};
use crate::health::HEARTBEAT;
use crate::informer::Informers;
use crate::limiter::Limiter;
use crate::list_watch::{Item, Observed};
use crate::position::Publisher;
use crate::reconciler::{Done, Look, NotYet, Planner, Reading, When, Worker};
use crate::record_key::RecordKey;
use crate::shard_context::ShardContext;
use crate::work_queue::{Urgency, WorkQueue};

/// Runs until the shutdown. Then it finishes the attempts in flight, and makes the urgent ones, within the time limit of the shutdown.
pub async fn run<P: Planner>(replica: &ShardContext, planner: P, worker: &impl Worker<P::Task>) {
    let (audience, mut observed) = mpsc::channel(64);
    let informers = Informers::new(replica, audience);
    let mut engine = Engine::new(replica, planner, informers);
    let mut in_flight = FuturesUnordered::new();
    let shutdown = &replica.shutdown;
    let mut drained = std::pin::pin!(shutdown.drained());
    let mut deadline = replica.deadline.clone();
    let mut is_ending = false;
    let pulse = replica.health.pulse(format!("the loop of shard {}", replica.share.index));
    loop {
        pulse.beat();
        if !is_ending && shutdown.is_requested() {
            is_ending = true;
            while let Ok(observed) = observed.try_recv() {
                engine.observe(observed);
            }
        }
        let now = Instant::now();
        if !is_ending {
            engine.informers.begin_if_due(&mut engine.cache);
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
                let attempt = async |tries| {
                    worker
                        .attempt(&ticket.node, &ticket.task, ticket.earlier_tries.saturating_add(tries))
                        .await
                };
                let outcome = deadline.within(call::settle(shutdown, attempt)).await;
                let outcome = outcome.unwrap_or_else(|| Err(Error::expired("go on without a lease")));
                (ticket, began, outcome)
            });
        }
        if is_ending && in_flight.is_empty() {
            return;
        }
        tokio::select! {
            Some(observed) = observed.recv(), if !is_ending => engine.observe(observed),
            Some((ticket, began, outcome)) = in_flight.next() => engine.finish(ticket, began, outcome),
            () = tokio::time::sleep_until(engine.wake_at(now).into()), if !is_ending => (),
            () = deadline.renewed(), if !deadline.holds() => (),
            () = shutdown.requested(), if !is_ending => (),
            () = &mut drained => {
                tracing::warn!("leaving unfinished what did not end in time");
                return;
            }
        }
    }
}

/// An attempt in flight.
struct Ticket<T> {
    node: RecordKey,
    /// The Node's name, if the key is another identity.
    asked_for: Option<RecordKey>,
    task: T,
    /// Failures in a row before this attempt.
    earlier_tries: u32,
    /// The versions of Node and record in the cache at the start.
    versions: (ResourceVersion, ResourceVersion),
    /// Since when the Node is due.
    due_since: Option<Instant>,
}

struct Engine<'a, P: Planner> {
    planner: P,
    cache: Cache,
    queue: WorkQueue,
    limiter: Limiter,
    informers: Informers<'a>,
    progress: ProgressLog,
    states: NodeStates,
    /// How far the watch of Nodes has come.
    watch: WatchProgress,
    publisher: Publisher,
    reports: Reports,
}

/// The least time between two attempts at a Node that is still due: the watch has to report the first one.
const AGAIN: Duration = Duration::from_millis(100);

impl<'a, P: Planner> Engine<'a, P> {
    fn new(replica: &ShardContext, planner: P, informers: Informers<'a>) -> Self {
        let limiter = Limiter::new(replica.args.concurrency.get());
        let files_by_name = replica.node_source.projection().files_by_name();
        let cache = if files_by_name { Cache::default() } else { Cache::by_identity() };
        Self {
            planner,
            cache,
            queue: WorkQueue::default(),
            limiter,
            informers,
            progress: ProgressLog::new(&replica.metrics),
            states: NodeStates::new(replica.metrics.node_gauges.seat()),
            watch: WatchProgress::new(&replica.resume),
            publisher: Publisher::new(&replica.position),
            reports: Reports::new(&replica.events),
        }
    }

    /// The next attempt, if a Node is due that is urgent enough and the limiter has room.
    fn next(&mut self, least: Urgency, now: Instant) -> Option<Ticket<P::Task>> {
        let heard = self.heard_so_far();
        while self.limiter.has_room(self.queue.in_flight(), now) {
            let node = self.queue.pop(least, now)?;
            let Some(entry) = self.cache.get(&node) else {
                self.queue.done(&node);
                continue;
            };
            let look = Look { entry, view: None, is_event: false, is_unsure: false, heard };
            match self.planner.task(look) {
                Ok(task) => {
                    let (versions, earlier_tries) = (entry.versions(), self.queue.failures(&node));
                    let due_since = self.states.due_since(&node);
                    let asked_for = entry.asked_for().cloned();
                    return Some(Ticket { node, asked_for, task, earlier_tries, versions, due_since });
                }
                Err(NotYet::After(pause)) => self.queue.put_back(&node, Some(now + pause)),
                Err(NotYet::UntilChanged) => self.queue.put_back(&node, None),
            }
        }
        None
    }

    /// The time at which the loop has to wake up, even if nothing happens.
    fn wake_at(&self, now: Instant) -> Instant {
        // A Node that is due by now has begun, or waits for room: the end of another attempt makes room.
        let queue = self.queue.next_due().filter(|due| *due > now);
        let pause = self.limiter.paused_until().filter(|until| *until > now);
        let telling = [self.progress.due(), self.states.due()];
        let latest = self.informers.due().min(now + HEARTBEAT);
        [queue, pause].into_iter().chain(telling).flatten().fold(latest, Instant::min)
    }

    fn observe(&mut self, observed: Observed) {
        match observed {
            Observed::Listed { list, items } => items.into_iter().for_each(|item| self.list(list, item)),
            Observed::ListEnded { kind, list, outcome, took } => {
                let outcome = self.informers.require_newer(kind, outcome);
                if self.informers.is_another_cluster() {
                    tracing::warn!("the history of the cluster goes back: starting over");
                    self.cache = self.cache.emptied();
                    self.reports.start_over();
                    self.planner.start_over();
                    self.watch = WatchProgress::new(&[]);
                    // A key without an entry would never be attempted.
                    for (key, _) in self.planner.pending_deletions() {
                        self.cache.miss_record(&key);
                    }
                    return self.informers.start_over();
                }
                let mut is_settled = true;
                match (kind, &outcome) {
                    (_, Err(_)) => (),
                    (Resource::Records, Ok(listed)) => {
                        let lacked = self.cache.end_list_of_records(list, listed.version);
                        // Only the next list shows what the first one lacked, so it has to come soon.
                        let is_first = !self.informers.has_listed_records();
                        self.informers.is_surprised = is_first || lacked && self.informers.is_watching(kind);
                    }
                    (Resource::Nodes, Ok(listed)) => {
                        self.check_position(listed.version);
                        // Without a watch to resume, the watch begins here.
                        if !self.informers.is_following(Resource::Nodes) {
                            self.watch.begin(listed.version);
                        }
                        let lacked = self.cache.end_list_of_nodes(list, listed.version);
                        // What is watched does not just disappear.
                        let is_surprised = lacked && self.informers.is_watching(kind);
                        let is_used = self.planner.listed(&mut self.cache);
                        let was_surprised = std::mem::take(&mut self.informers.is_surprised);
                        is_settled = is_used && !is_surprised && !was_surprised;
                    }
                }
                let is_list_of_nodes = kind == Resource::Nodes && outcome.is_ok();
                self.informers.ended(kind, outcome, took, is_settled, &self.cache);
                if is_list_of_nodes {
                    self.review();
                }
            }
            Observed::Changed(Item::Node(node)) => {
                self.heard(Resource::Nodes, node.version);
                let (summary, is_new) = self.summary(&node);
                if self.cache.see_node(&node, summary) {
                    let is_unsure = is_new && !self.informers.is_watching(Resource::Records);
                    self.consider(node.filed_under(), Some(&node), true, is_unsure);
                }
                self.consider_left();
            }
            Observed::Changed(Item::Other(node)) | Observed::Deleted(Item::Other(node)) => {
                self.elsewhere(node.as_elsewhere());
            }
            Observed::Changed(Item::Record(record)) => {
                if self.cache.see_record(record.filed(), record.version, record.stored) {
                    self.reports.record(&record);
                    self.consider(&record.filed_under, None, true, false);
                }
            }
            Observed::Deleted(Item::Node(last)) => self.deleted(last),
            Observed::Deleted(Item::Record(record)) => {
                if self.cache.lose_record(&record.filed_under, record.version) {
                    self.consider(&record.filed_under, None, true, false);
                }
            }
            Observed::Watching(kind, at) => {
                self.informers.watching(kind);
                self.states.changed();
                if kind == Resource::Nodes {
                    self.watch.watching();
                }
                self.heard(kind, at);
            }
            Observed::At(kind, at) => self.heard(kind, at),
            Observed::NotWatching(kind, error) => {
                self.informers.not_watching(kind, &error);
                self.states.changed();
            }
            Observed::Skipped(kind) => self.informers.skipped(kind),
            Observed::Expired(Resource::Nodes) if self.gives_up_pending() => (),
            Observed::Expired(kind) => self.informers.expired(kind),
        }
    }

    /// Takes note of how far a watch has come.
    fn heard(&mut self, kind: Resource, at: ResourceVersion) {
        if kind == Resource::Nodes {
            self.watch.advance(at, self.informers.has_listed_nodes());
            self.publish_position();
        }
    }

    fn check_position(&mut self, listed: ResourceVersion) {
        let Some(dropped) = self.watch.check(listed) else { return };
        let from = self.watch.seen();
        tracing::warn!(
            position = dropped.version.0,
            list = listed.0,
            from = from.0,
            "the position in the lease is ahead of the cluster, and is dropped"
        );
        self.informers.watch_instead(Resource::Nodes, from);
    }

    fn gives_up_pending(&mut self) -> bool {
        let Some(pending) = self.watch.give_up_pending() else { return false };
        tracing::warn!(?pending, "the API server has forgotten deletions that were not stored");
        self.informers.watch_instead(Resource::Nodes, self.watch.seen());
        true
    }

    fn heard_so_far(&self) -> Option<ResourceVersion> {
        self.informers.is_following(Resource::Nodes).then_some(self.watch.seen())
    }

    /// Publishes the resume position: just before the oldest deletion that is neither stored nor named.
    fn publish_position(&mut self) {
        let pending = self.planner.pending_deletions();
        if self.publisher.is_due(pending.len()) {
            let pending = pending.iter().map(|(key, version)| (&**key, *version));
            self.watch.position(pending).into_iter().for_each(|position| self.publisher.publish(position));
        }
    }

    fn list(&mut self, list: u32, item: Item) {
        match item {
            Item::Node(node) => {
                let (summary, is_new) = self.summary(&node);
                if self.cache.list_node(list, &node, summary) {
                    let is_unsure = is_new && !self.informers.knows_records();
                    self.consider(node.filed_under(), Some(&node), false, is_unsure);
                }
                self.consider_left();
            }
            Item::Other(node) => {
                self.cache.list_elsewhere(list, node.as_elsewhere());
                self.consider_left();
            }
            Item::Record(record) => {
                if self.cache.list_record(list, record.filed(), record.version, record.stored) {
                    self.reports.record(&record);
                }
            }
        }
    }

    /// The summary of a Node, and true if the cache has another incarnation or none.
    fn summary(&self, node: &Node) -> (NodeSummary, bool) {
        let summary = node.summary();
        let known = self.cache.get(node.filed_under()).and_then(Entry::node);
        (summary, known.is_none_or(|known| known.uid != summary.uid))
    }

    /// Decides about all entries: some decisions change with time alone.
    fn review(&mut self) {
        let names: Vec<RecordKey> = self.cache.iter().map(|entry| RecordKey::clone(entry.key())).collect();
        for name in &names {
            self.consider(name, None, false, false);
        }
        self.reports.listed(&self.cache);
        self.cache.forget_gone(|name| self.queue.contains(name));
        let cache = &self.cache;
        self.queue.retain(|node| cache.get(node).is_some());
        self.states.retain(|node| cache.get(node).is_some());
        self.states.changed();
    }

    /// Decides about a Node, but not before all records are known: each Node would seem to have none. With identities, all Nodes have to be
    /// known, too: a resumed watch shows two claimants of one identity one after the other.
    fn consider(&mut self, name: &str, view: Option<&Node>, is_event: bool, is_unsure: bool) {
        let heard = self.heard_so_far();
        if self.cache.is_by_identity() && !self.informers.has_listed_nodes() {
            return;
        }
        if !self.informers.has_listed_records() {
            return;
        }
        let Some(entry) = self.cache.get(name) else { return };
        let was_contested = self.reports.decided(entry, heard);
        // Its record may have changed while it was contested.
        let is_unsure = is_unsure || was_contested && !self.informers.is_watching(Resource::Records);
        let decision = self.planner.decide(Look { entry, view, is_event, is_unsure, heard });
        self.states.note(entry, decision.state);
        match decision.when {
            When::Never => self.queue.remove(name),
            When::Now(urgency) => self.queue.push(entry.key(), urgency, None),
            When::After(pause, urgency) => {
                self.queue.push(entry.key(), urgency, Some(Instant::now() + pause));
            }
        }
    }

    /// Puts the answers of an attempt into the cache, and decides again: the Node may have changed meanwhile.
    fn finish(&mut self, ticket: Ticket<P::Task>, began: Instant, outcome: Result<Done, Error>) {
        let (now, name) = (Instant::now(), &ticket.node);
        self.limiter.note(began, outcome.as_ref().err(), now);
        self.progress.count(&outcome, now.duration_since(began));
        self.states.changed();
        let done = match outcome {
            Ok(done) => done,
            Err(error) => {
                let node = ticket.asked_for.as_deref().unwrap_or(name);
                tracing::warn!(node, %error, "a node failed, it will be tried again");
                self.planner.done(name, ticket.task, None);
                self.queue.failed(name, error.retry_after(), now);
                return;
            }
        };
        // An object that was absent may have been created and seen since.
        let versions = self.cache.get(name).map(Entry::versions).unwrap_or(ticket.versions);
        match done.node {
            Reading::Absent if versions.0 == ticket.versions.0 => self.cache.miss_node(name),
            Reading::Present(node) => {
                let filed = self.cache.answered(name, ticket.asked_for.as_ref());
                filed.into_iter().for_each(|filed| _ = self.cache.see_node(filed, node));
            }
            Reading::Absent | Reading::None => (),
        }
        match done.record {
            Reading::Absent if versions.1 == ticket.versions.1 => self.cache.miss_record(name),
            Reading::Present((version, stored)) => _ = self.cache.see_record(name, version, stored),
            Reading::Absent | Reading::None => (),
        }
        self.planner.done(name, ticket.task, Some(&done));
        self.queue.done(name);
        self.publish_position();
        self.consider_left();
        let heard = self.heard_so_far();
        let Some(entry) = self.cache.get(name) else { return };
        if let Some(since) = ticket.due_since.filter(|_| done.outcome.is_some()) {
            self.progress.metrics.latency.0.observe(since.elapsed().as_secs_f64());
        }
        if entry.is_contested() {
            return self.consider(name, None, true, false);
        }
        let look = Look { entry, view: None, is_event: true, is_unsure: false, heard };
        let decision = self.planner.decide(look);
        self.states.note(entry, decision.state);
        match decision.when {
            When::Never => (),
            When::Now(Urgency::Urgent) => self.queue.push(name, Urgency::Urgent, None),
            When::Now(urgency) => {
                self.queue.push(name, urgency, Some(now + backoff::a_little_more(AGAIN)));
            }
            When::After(pause, urgency) => self.queue.push(name, urgency, Some(now + pause)),
        }
    }
}

#[cfg(test)]
mod tests;
