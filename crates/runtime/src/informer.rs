//! When to list all objects, and how each resource is watched between two lists.
//!
//! A list has all that a watch has missed. While both watches work, lists are rare; while one does not, they come every `--interval`.

use std::time::{Duration, Instant};

use label_storage::final_labels::FinalLabels;
use label_storage::watch_progress::WatchProgress;
use label_storage::{Position, ResourceVersion};
use tokio::task::{AbortHandle, JoinSet};

use crate::api_source::{Listed, Resource};
use crate::backoff::{self, Pace};
use crate::cache::{Cache, Count};
use crate::call::{self, Error};
use crate::list_watch::{self, Audience};
use crate::shard_context::ShardContext;

/// The watch of Nodes resumes after this time even if records can't be listed: the API server keeps events for 75 s.
const RESUME_WITHOUT_RECORDS: Duration = Duration::from_secs(30);

/// The lists and watches of one shard. They end when it is dropped.
pub(crate) struct Informers<'a> {
    pub(crate) replica: &'a ShardContext,
    audience: Audience,
    tasks: JoinSet<()>,
    informers: [Informer; 2],
    /// How far the watch of Nodes has come.
    progress: WatchProgress,
    /// The version at which the holder before has stopped, and the time until which the watch from there waits for the first list of records.
    resume: Option<(ResourceVersion, Instant)>,
    published_at: Option<Instant>,
    /// While a list runs, the time that the lists of this round took so far.
    listing: Option<Duration>,
    due: Instant,
    /// After a failed list, the next one does not begin before this.
    not_before: Option<Instant>,
    /// False if another list is needed, because the last one was unclear.
    is_settled: bool,
    /// True if a list of records lacked one whose deletion no watch has reported.
    is_surprised: bool,
    pace: Pace,
    /// Failed lists in a row.
    failures: u32,
}

#[derive(Debug)]
struct Informer {
    watching: Watching,
    /// Ends the watch.
    watch: Option<AbortHandle>,
    latest: ResourceVersion,
    /// Lists in a row that were older than one before.
    older: u32,
    listed_at: Option<Instant>,
    /// The number of objects in the last list, of all shards.
    items: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watching {
    /// A list has to come first.
    Off,
    /// The watch is broken, and will be resumed where it was.
    Broken,
    On,
}

impl Informer {
    const NEW: Self = Self {
        watching: Watching::Off,
        watch: None,
        latest: ResourceVersion(0),
        older: 0,
        listed_at: None,
        items: 0,
    };
}

impl<'a> Informers<'a> {
    pub(crate) fn new(replica: &'a ShardContext, audience: Audience) -> Self {
        let resume = replica.resume.first().map(Position::resume_from);
        Self {
            replica,
            audience,
            tasks: JoinSet::new(),
            informers: [Informer::NEW; 2],
            progress: WatchProgress::new(&replica.resume),
            resume: resume.map(|from| (from, Instant::now() + RESUME_WITHOUT_RECORDS)),
            published_at: None,
            listing: None,
            due: Instant::now(),
            not_before: None,
            is_settled: true,
            is_surprised: false,
            pace: Pace::default(),
            failures: 0,
        }
    }

    pub(crate) fn due(&self) -> Instant {
        // The end of a list wakes the loop.
        let list = self.listing.map_or(self.due, |_| Instant::now() + Duration::from_secs(60));
        self.resume.map_or(list, |(_, until)| list.min(until))
    }

    /// Resumes the watch of Nodes where the holder before has stopped. Without the records, each repeated deletion would count as not stored,
    /// and the first of too many final labels would be lost.
    fn resume_if(&mut self, is_time: impl FnOnce(Instant) -> bool) {
        if let Some((from, _)) = self.resume.take_if(|(_, until)| is_time(*until)) {
            self.watch_from(Resource::Nodes, from);
        }
    }

    /// True while a list runs: it may still have objects whose deletion a watch has reported.
    pub(crate) fn is_listing(&self) -> bool {
        self.listing.is_some()
    }

    pub(crate) fn has_listed(&self, kind: Resource) -> bool {
        self.informers[kind as usize].listed_at.is_some()
    }

    pub(crate) fn is_watching(&self, kind: Resource) -> bool {
        self.informers[kind as usize].watching == Watching::On
    }

    fn watches_all(&self) -> bool {
        self.is_watching(Resource::Nodes) && self.is_watching(Resource::Records)
    }

    /// How far the watch of Nodes has come; `None` if there is no watch.
    pub(crate) fn heard(&self) -> Option<ResourceVersion> {
        (self.informers[Resource::Nodes as usize].watching != Watching::Off).then_some(self.progress.seen())
    }

    /// True if the holder before has stored this deletion.
    pub(crate) fn is_stored(&self, key: &str, deleted_at: ResourceVersion) -> bool {
        self.progress.is_settled(key, deleted_at)
    }

    /// Begins a list if one is due. Records come first if they are due, too: then each Node can be decided upon as it is read.
    pub(crate) fn begin_if_due(&mut self, cache: &mut Cache) {
        let now = Instant::now();
        self.resume_if(|until| now >= until);
        if self.listing.is_some() || now < self.due {
            return;
        }
        let args = &self.replica.args;
        let is_blind = args.watch && !self.is_watching(Resource::Records);
        let listed_at = self.informers[Resource::Records as usize].listed_at;
        let is_due = listed_at.is_none_or(|at| now >= at + args.audit_interval);
        // A Node in the first list may have got its record after the first list of records.
        let records = is_due || self.watches_all() || is_blind || !self.is_settled;
        self.listing = Some(Duration::ZERO);
        while self.tasks.try_join_next().is_some() {}
        let lists = [records.then_some(Resource::Records), Some(Resource::Nodes)].into_iter().flatten();
        let lists: Vec<_> = lists.map(|kind| (self.replica.source(kind), cache.begin_list())).collect();
        let (share, audience) = (self.replica.share.clone(), self.audience.clone());
        let needs_records = !self.has_listed(Resource::Records);
        self.tasks.spawn(async move {
            for (source, list) in lists {
                let is_complete = list_watch::list(source, share.clone(), list, audience.clone()).await;
                if !is_complete && needs_records {
                    return;
                }
            }
        });
    }

    /// Refuses a list that is older than one before: it comes from a server that lags.
    pub(crate) fn require_newer(&mut self, kind: Resource, listed: Listed) -> Result<Listed, Error> {
        let informer = &mut self.informers[kind as usize];
        if listed.version < informer.latest {
            informer.older += 1;
            let message =
                format!("it is at version {}, and one before was at {}", listed.version, informer.latest);
            return Err(Error::unclear("believe a list", message));
        }
        (informer.latest, informer.older) = (listed.version, 0);
        Ok(listed)
    }

    /// True if lists stay older than one before: the cluster itself went back, as when etcd is restored from a backup.
    pub(crate) fn is_another_cluster(&self) -> bool {
        self.informers.iter().any(|informer| informer.older >= 5)
    }

    /// Drops everything, ends all watches and lists again.
    pub(crate) fn start_over(&mut self) {
        self.tasks.abort_all();
        (self.informers, self.listing, self.resume) = ([Informer::NEW; 2], None, None);
        self.progress = WatchProgress::new(&[]);
        self.due = Instant::now() + backoff::jittered(self.replica.args.interval);
    }

    /// A list has failed. Records that were listed once are known well enough, because each is read before it is written.
    pub(crate) fn list_failed(&mut self, kind: Resource, error: &Error, took: Duration) {
        let Some(so_far) = self.listing else { return };
        self.replica.metrics.listed(kind, Err(error), took);
        let took = so_far + took;
        if kind == Resource::Records && self.has_listed(Resource::Records) {
            tracing::warn!(%error, "a list of records failed");
            self.listing = Some(took);
            return;
        }
        // Not much longer than the interval: a failed list costs the server no more than another.
        const LONGEST: Duration = Duration::from_secs(10);
        self.failures = self.failures.saturating_add(1);
        let first = self.replica.args.interval.min(Duration::from_secs(1));
        // A server that was down needs no pause.
        let is_away = error.kind == call::FailureKind::NotConnected;
        let rest = if is_away { Duration::ZERO } else { backoff::rest_after_failure(took) };
        let pause = backoff::exponential(first, self.failures, LONGEST)
            .max(error.retry_after().map(backoff::a_little_more).unwrap_or_default())
            .max(rest);
        tracing::warn!(%error, failures = self.failures, ?pause, "a list failed");
        (self.listing, self.due) = (None, Instant::now() + pause);
        self.not_before = Some(self.due);
    }

    /// A list is complete. `lacked`: it lacked a known object. `is_used`: false if it lacked so many that the next list must confirm it.
    pub(crate) fn listed(
        &mut self,
        kind: Resource,
        listed: &Listed,
        took: Duration,
        lacked: bool,
        is_used: bool,
        cache: &Cache,
    ) {
        let Some(so_far) = self.listing else { return };
        let took = so_far + took;
        self.replica.metrics.listed(kind, Ok(listed), took);
        tracing::debug!(?kind, items = listed.items, bytes = listed.bytes, ?took, "listed");
        // Watched objects do not just disappear. Only the next list shows what the first list of records lacked.
        let is_first = !self.has_listed(kind);
        let is_surprised = lacked && self.is_watching(kind) || is_first && kind == Resource::Records;
        self.watch_from(kind, listed.version);
        let informer = &mut self.informers[kind as usize];
        (informer.listed_at, informer.items) = (Some(Instant::now()), listed.items);
        if kind == Resource::Records {
            (self.is_surprised, self.listing) = (is_surprised, Some(took));
            self.resume_if(|_| true);
            return;
        }
        if is_first || self.failures > 0 {
            let (Count { nodes, records, .. }, failures) = (cache.count(), self.failures);
            let all_nodes = listed.items;
            tracing::info!(all_nodes, nodes, records, ?took, failures, "listed all nodes and records");
        }
        self.is_settled = is_used && !is_surprised && !std::mem::take(&mut self.is_surprised);
        (self.listing, self.failures, self.not_before) = (None, 0, Some(Instant::now()));
        self.replica.health.listed();
        self.pace.note(took);
        self.schedule();
    }

    /// Compares the position that the watch of Nodes was resumed from with the version of a list. Without a watch to resume, the watch begins
    /// at the list.
    pub(crate) fn check_position(&mut self, listed: ResourceVersion) {
        if let Some(dropped) = self.progress.check(listed) {
            let from = self.progress.seen();
            tracing::warn!(
                position = dropped.version.0,
                list = listed.0,
                from = from.0,
                "the position in the lease is ahead of the cluster: ignoring it"
            );
            self.watch_instead(Resource::Nodes, from);
        }
        if self.informers[Resource::Nodes as usize].watching == Watching::Off {
            self.progress.begin(listed);
        }
    }

    /// The watch of a resource has come to this version.
    pub(crate) fn advance(&mut self, kind: Resource, at: ResourceVersion, final_labels: &FinalLabels) {
        if kind == Resource::Nodes {
            self.progress.advance(at, self.has_listed(Resource::Nodes));
            self.publish_position(final_labels);
        }
    }

    /// Publishes the resume position: just before the oldest deletion that is neither stored nor named.
    pub(crate) fn publish_position(&mut self, final_labels: &FinalLabels) {
        // A position with many pending deletions is costly.
        const MANY: usize = 64;
        const EVERY: Duration = Duration::from_millis(250);
        let is_due = final_labels.len() <= MANY || self.published_at.is_none_or(|at| at.elapsed() >= EVERY);
        let pending = final_labels.unstored().map(|(key, version)| (&**key, version));
        if is_due && let Some(position) = self.progress.position(pending) {
            self.published_at = Some(Instant::now());
            self.replica.position.send_replace(Some(position));
        }
    }

    /// Schedules the next list: later while watches run, and not before the pause after the last one.
    fn schedule(&mut self) {
        let Some(last) = self.informers[Resource::Nodes as usize].listed_at else { return };
        let args = &self.replica.args;
        let has_time = self.watches_all() && self.is_settled;
        let interval = if has_time { args.audit_interval } else { args.interval };
        self.due = (last + self.pace.pause(interval)).max(self.not_before.unwrap_or(last));
    }

    fn watch_from(&mut self, kind: Resource, version: ResourceVersion) {
        if !self.replica.args.watch || self.informers[kind as usize].watching != Watching::Off {
            return;
        }
        let (share, audience) = (self.replica.share.clone(), self.audience.clone());
        let watch = self.tasks.spawn(list_watch::watch(self.replica.source(kind), share, version, audience));
        let informer = &mut self.informers[kind as usize];
        (informer.watching, informer.watch) = (Watching::Broken, Some(watch));
    }

    /// Replaces a watch by one from this version.
    fn watch_instead(&mut self, kind: Resource, version: ResourceVersion) {
        if let Some(watch) = self.informers[kind as usize].watch.take() {
            watch.abort();
        }
        self.informers[kind as usize].watching = Watching::Off;
        self.replica.metrics.history_lost.inc();
        self.watch_from(kind, version);
    }

    pub(crate) fn watching(&mut self, kind: Resource) {
        if kind == Resource::Nodes {
            self.progress.watching();
        }
        if self.informers[kind as usize].watching != Watching::On {
            self.informers[kind as usize].watching = Watching::On;
            tracing::info!(?kind, "watching");
            self.schedule();
        }
    }

    pub(crate) fn not_watching(&mut self, kind: Resource, error: &Error) {
        if self.informers[kind as usize].watching == Watching::On {
            tracing::warn!(?kind, %error, "a watch broke: resuming it, and listing meanwhile");
            self.replica.metrics.failed(error);
            self.replica.metrics.watch_broke(kind);
            self.informers[kind as usize].watching = Watching::Broken;
            self.hurry();
        }
    }

    /// A watch can't be resumed where it was, but at a later version.
    pub(crate) fn skipped(&mut self, kind: Resource) {
        tracing::warn!(
            ?kind,
            "a watch can't be resumed, because the API server has dropped that part of the history: listing instead. If a node \
             was deleted in that time, its last label changes may be lost"
        );
        self.replica.metrics.watch_broke(kind);
        if kind == Resource::Nodes {
            self.replica.metrics.history_lost.inc();
        }
        // Only a list shows what happened in between.
        self.is_settled = false;
        self.hurry();
    }

    /// A watch can't be resumed. If it was resumed from before pending deletions, it can be without these; otherwise a list has to come first.
    pub(crate) fn expired(&mut self, kind: Resource) {
        let pending = if kind == Resource::Nodes { self.progress.give_up_pending() } else { None };
        if let Some(pending) = pending {
            tracing::warn!(?pending, "the API server has dropped deletions that were not stored yet");
            self.watch_instead(Resource::Nodes, self.progress.seen());
        } else {
            self.informers[kind as usize].watching = Watching::Off;
            self.skipped(kind);
        }
    }

    /// Brings the next list forward, at a random time: not all replicas at once.
    fn hurry(&mut self) {
        let usual = self.due;
        self.schedule();
        let soonest = Instant::now() + backoff::jittered(self.replica.args.interval);
        self.due = usual.min(self.due.max(soonest)).max(self.not_before.unwrap_or(soonest));
    }

    /// The number of objects in the last list of this kind, of all shards.
    pub(crate) fn all(&self, kind: Resource) -> usize {
        self.informers[kind as usize].items
    }
}

#[cfg(test)]
impl Informers<'_> {
    pub(crate) fn seen(&self) -> ResourceVersion {
        self.progress.seen()
    }

    /// Ends the wait for the first list of records.
    pub(crate) fn resume_now(&mut self, cache: &mut Cache) {
        self.resume.iter_mut().for_each(|(_, until)| *until = Instant::now());
        self.begin_if_due(cache);
    }

    /// Begins a list at once.
    pub(crate) fn begin_now(&mut self, cache: &mut Cache) {
        self.due = Instant::now();
        self.begin_if_due(cache);
    }
}
