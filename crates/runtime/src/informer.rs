//! When to list all objects, and what is watched between two lists.
//!
//! A list has all that a watch has missed. While both watches work, lists are rare; while one does not, they come every `--interval`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use label_storage::ResourceVersion;
use tokio::task::{AbortHandle, JoinSet};

use crate::api_source::{ApiSource, Listed, Resource};
use crate::backoff::{self, Pace};
use crate::cache::{Cache, Count};
use crate::call::{self, Error};
use crate::list_watch::{self, Audience};
use crate::shard_context::ShardContext;

/// The lists and watches of one shard. They end when it is dropped.
pub(crate) struct Informers<'a> {
    replica: &'a ShardContext,
    audience: Audience,
    tasks: JoinSet<()>,
    nodes: Followed,
    records: Followed,
    state: State,
    due: Instant,
    /// When records are listed again, even without a watch.
    audit_due: Instant,
    has_listed_records: bool,
    /// True if a list lacked an object whose deletion no watch has told of: another list has to tell.
    pub(crate) is_surprised: bool,
    /// The end of the last list of Nodes.
    last: Option<Instant>,
    /// After a failed list, the next one does not begin before this.
    not_before: Option<Instant>,
    /// True if the last list left nothing open that only another list can tell.
    is_settled: bool,
    pace: Pace,
    /// Failed lists in a row.
    failures: u32,
}

/// How one resource is followed.
#[derive(Debug)]
struct Followed {
    watching: Watching,
    /// Ends the watch.
    watch: Option<AbortHandle>,
    /// The version of the last list.
    latest: ResourceVersion,
    /// Lists in a row that were older than one before.
    older: u32,
}

impl Followed {
    const NOT_YET: Self = Self { watching: Watching::Off, watch: None, latest: ResourceVersion(0), older: 0 };
}

/// The state of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watching {
    /// A list has to come first.
    Off,
    /// The watch is broken, and will be resumed where it was.
    Broken,
    On,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Resting,
    Listing { so_far: Duration },
}

impl<'a> Informers<'a> {
    pub(crate) fn new(replica: &'a ShardContext, audience: Audience) -> Self {
        let now = Instant::now();
        let mut informers = Self {
            replica,
            audience,
            tasks: JoinSet::new(),
            nodes: Followed::NOT_YET,
            records: Followed::NOT_YET,
            state: State::Resting,
            due: now,
            audit_due: now,
            has_listed_records: false,
            is_surprised: false,
            last: None,
            not_before: None,
            is_settled: true,
            pace: Pace::default(),
            failures: 0,
        };
        // The watch resumes where the holder before has stopped. A list runs meanwhile.
        if let Some(position) = replica.resume.first() {
            informers.watch_from(Resource::Nodes, position.resume_from());
        }
        informers
    }

    pub(crate) fn due(&self) -> Instant {
        match self.state {
            State::Resting => self.due,
            // The end of the list wakes the loop.
            State::Listing { .. } => Instant::now() + Duration::from_secs(60),
        }
    }

    /// True while a list runs: it may still have objects whose deletion a watch has reported.
    pub(crate) fn is_listing(&self) -> bool {
        self.state != State::Resting
    }

    /// True once a list of all records is complete.
    pub(crate) fn has_listed_records(&self) -> bool {
        self.has_listed_records
    }

    /// True once a list of all Nodes is complete.
    pub(crate) fn has_listed_nodes(&self) -> bool {
        self.last.is_some()
    }

    /// True if the watch of this resource works.
    pub(crate) fn is_watching(&self, kind: Resource) -> bool {
        self.of(kind).watching == Watching::On
    }

    /// True if the watch of this resource works, or will be resumed.
    pub(crate) fn is_following(&self, kind: Resource) -> bool {
        self.of(kind).watching != Watching::Off
    }

    fn watches_all(&self) -> bool {
        self.is_watching(Resource::Nodes) && self.is_watching(Resource::Records)
    }

    /// True if the cache has all records up to now.
    pub(crate) fn knows_records(&self) -> bool {
        // The first list of Nodes follows the list of records at once; before a later list, records may have changed.
        self.is_watching(Resource::Records) || self.last.is_none()
    }

    /// Begins a list if one is due. Records come first if they are due, too: then each Node can be decided upon as it is read.
    pub(crate) fn begin_if_due(&mut self, cache: &mut Cache) {
        let now = Instant::now();
        if self.state != State::Resting || now < self.due {
            return;
        }
        let is_blind = self.replica.args.watch && !self.is_watching(Resource::Records);
        let is_due = !self.has_listed_records || now >= self.audit_due;
        // A Node in the first list may have got its record after the first list of records.
        let records = is_due || self.watches_all() || is_blind || !self.is_settled;
        self.state = State::Listing { so_far: Duration::ZERO };
        while self.tasks.try_join_next().is_some() {}
        let lists = [records.then_some(Resource::Records), Some(Resource::Nodes)].into_iter().flatten();
        let lists: Vec<_> = lists.map(|kind| (self.source(kind), cache.begin_list())).collect();
        let (share, audience) = (self.replica.share.clone(), self.audience.clone());
        let needs_records = !self.has_listed_records;
        self.tasks.spawn(async move {
            for (source, list) in lists {
                let is_complete = list_watch::list(source, share.clone(), list, audience.clone()).await;
                if !is_complete && needs_records {
                    return;
                }
            }
        });
    }

    /// A list has ended: the watch begins there.
    pub(crate) fn ended(
        &mut self,
        kind: Resource,
        outcome: Result<Listed, Error>,
        took: Duration,
        is_settled: bool,
        cache: &Cache,
    ) {
        let State::Listing { so_far } = self.state else { return };
        self.replica.metrics.listed(kind, outcome.as_ref(), took);
        let took = so_far + took;
        let listed = match outcome {
            Ok(listed) => listed,
            // Records that were listed once are known well enough, because each is read before it is written. Nodes do not wait for them.
            Err(error) if kind == Resource::Records && self.has_listed_records => {
                tracing::warn!(%error, "a list of records failed");
                self.state = State::Listing { so_far: took };
                return;
            }
            Err(error) => return self.failed(&error, took),
        };
        tracing::debug!(?kind, items = listed.items, bytes = listed.bytes, ?took, "listed");
        self.watch_from(kind, listed.version);
        if kind == Resource::Records {
            self.has_listed_records = true;
            self.audit_due = Instant::now() + self.replica.args.audit_interval;
            self.state = State::Listing { so_far: took };
            return;
        }
        if self.last.is_none() || self.failures > 0 {
            let Count { nodes, records, .. } = cache.count();
            let failures = self.failures;
            tracing::info!(
                all_nodes = listed.items,
                nodes,
                records,
                ?took,
                failures,
                "listed all nodes and records"
            );
        }
        (self.state, self.failures) = (State::Resting, 0);
        self.last = Some(Instant::now());
        self.replica.health.listed();
        self.pace.note(took);
        (self.not_before, self.is_settled) = (self.last, is_settled);
        self.schedule();
    }

    /// Refuses a list that is older than one before: it comes from a server that lags.
    pub(crate) fn require_newer(
        &mut self,
        kind: Resource,
        outcome: Result<Listed, Error>,
    ) -> Result<Listed, Error> {
        let listed = outcome?;
        let followed = self.followed(kind);
        if listed.version < followed.latest {
            followed.older += 1;
            let message =
                format!("it is at version {}, and one before was at {}", listed.version, followed.latest);
            return Err(Error::unclear("believe a list", message));
        }
        (followed.latest, followed.older) = (listed.version, 0);
        Ok(listed)
    }

    /// True if lists stay older than one before: the cluster itself went back, as when etcd is restored from a backup.
    pub(crate) fn is_another_cluster(&self) -> bool {
        self.nodes.older.max(self.records.older) >= 5
    }

    /// Forgets everything, ends all watches and lists again.
    pub(crate) fn start_over(&mut self) {
        self.tasks.abort_all();
        (self.nodes, self.records, self.state) = (Followed::NOT_YET, Followed::NOT_YET, State::Resting);
        (self.has_listed_records, self.last) = (false, None);
        self.due = Instant::now() + backoff::jittered(self.replica.args.interval);
    }

    fn failed(&mut self, error: &Error, took: Duration) {
        // Not much longer than the interval: a failed list costs the server no more than another.
        const LONGEST: Duration = Duration::from_secs(10);
        self.failures = self.failures.saturating_add(1);
        let first = self.replica.args.interval.min(Duration::from_secs(1));
        // A server that was away needs no rest.
        let is_away = error.kind == call::FailureKind::NotConnected;
        let rest = if is_away { Duration::ZERO } else { backoff::rest_after_failure(took) };
        let pause = backoff::exponential(first, self.failures, LONGEST)
            .max(error.retry_after().map(backoff::a_little_more).unwrap_or_default())
            .max(rest);
        tracing::warn!(%error, failures = self.failures, ?pause, "a list failed");
        (self.state, self.due) = (State::Resting, Instant::now() + pause);
        self.not_before = Some(self.due);
    }

    /// Schedules the next list: later while all is watched, and not before the server has rested from the last one.
    fn schedule(&mut self) {
        let Some(last) = self.last else { return };
        let args = &self.replica.args;
        let has_time = self.watches_all() && self.is_settled;
        let interval = if has_time { args.audit_interval } else { args.interval };
        self.due = (last + self.pace.pause(interval)).max(self.not_before.unwrap_or(last));
    }

    fn watch_from(&mut self, kind: Resource, version: ResourceVersion) {
        if !self.replica.args.watch || self.followed(kind).watching != Watching::Off {
            return;
        }
        self.followed(kind).watching = Watching::Broken;
        let (source, share, audience) =
            (self.source(kind), self.replica.share.clone(), self.audience.clone());
        let watch = self.tasks.spawn(list_watch::watch(source, share, version, audience));
        self.followed(kind).watch = Some(watch);
    }

    /// Replaces a watch by one from this version.
    pub(crate) fn watch_instead(&mut self, kind: Resource, version: ResourceVersion) {
        if let Some(watch) = self.followed(kind).watch.take() {
            watch.abort();
        }
        self.followed(kind).watching = Watching::Off;
        self.replica.metrics.history_lost.inc();
        self.watch_from(kind, version);
    }

    pub(crate) fn watching(&mut self, kind: Resource) {
        if self.followed(kind).watching != Watching::On {
            self.followed(kind).watching = Watching::On;
            tracing::info!(?kind, "watching");
            self.schedule();
        }
    }

    pub(crate) fn not_watching(&mut self, kind: Resource, error: &Error) {
        if self.followed(kind).watching == Watching::On {
            tracing::warn!(?kind, %error, "a watch broke: trying to go on where it was, and listing meanwhile");
            self.replica.metrics.failed(error);
            self.replica.metrics.watch_broke(kind);
            self.followed(kind).watching = Watching::Broken;
            self.hurry();
        }
    }

    /// A watch can't be resumed where it was, but at a later version.
    pub(crate) fn skipped(&mut self, kind: Resource) {
        tracing::warn!(
            ?kind,
            "a watch can't go on where it was: what the API server has forgotten shows in a list only, and the last change of \
             a node that was deleted then may be lost"
        );
        self.replica.metrics.watch_broke(kind);
        if kind == Resource::Nodes {
            self.replica.metrics.history_lost.inc();
        }
        // Only a list shows what happened in between.
        self.is_settled = false;
        self.hurry();
    }

    /// A watch can't be resumed: a list has to come first.
    pub(crate) fn expired(&mut self, kind: Resource) {
        self.followed(kind).watching = Watching::Off;
        self.skipped(kind);
    }

    /// Brings the next list forward, at a random time: not all replicas at once.
    fn hurry(&mut self) {
        let usual = self.due;
        self.schedule();
        let soonest = Instant::now() + backoff::jittered(self.replica.args.interval);
        self.due = usual.min(self.due.max(soonest)).max(self.not_before.unwrap_or(soonest));
    }

    fn of(&self, kind: Resource) -> &Followed {
        match kind {
            Resource::Nodes => &self.nodes,
            Resource::Records => &self.records,
        }
    }

    fn followed(&mut self, kind: Resource) -> &mut Followed {
        match kind {
            Resource::Nodes => &mut self.nodes,
            Resource::Records => &mut self.records,
        }
    }

    fn source(&self, kind: Resource) -> Arc<ApiSource> {
        Arc::clone(match kind {
            Resource::Nodes => &self.replica.node_source,
            Resource::Records => &self.replica.record_source,
        })
    }
}

#[cfg(test)]
impl Informers<'_> {
    /// Begins a list at once.
    pub(crate) fn begin_now(&mut self, cache: &mut Cache) {
        self.due = Instant::now();
        self.begin_if_due(cache);
    }
}
