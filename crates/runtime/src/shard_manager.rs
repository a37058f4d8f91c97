//! Which shards this process works on: its own, and those that nobody else works on.
//!
//! ```text
//!   keeper: list leases ─► decide about each ─► renew, take, release        every second
//!      │ Start { shard, deadline, position }            ▲
//!      ▼                                              │ position
//!   runner: one engine for each shard that is held ───┘
//! ```
//!
//! An adopted shard has an engine of its own, with its own lists and watches: the API server has as much to do as if
//! its home were there, and what is adopted is given back by ending that engine.
//!
//! Both parts run in one task: a process whose engines stand still does not renew its leases either.
//!
//! When the number of shards changes, the keeper takes its own shard of the new number at once, and adopts others that nobody takes within
//! 15 s. It keeps the shards of the former number until every shard of the new one is held, renewed and has a position. Then it releases them
//! and ends their engines.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use kube::Client;
use label_storage::Position;
use tokio::sync::{mpsc, watch};

use crate::args::Share;
use crate::backoff;
use crate::call::{Error, FailureKind};
use crate::health::{HEARTBEAT, Health};
use crate::lease::deadline::LeaseRenewals;
use crate::lease::tracker::{ABSENCE, LeaseTracker, Me, Step, decide};
use crate::lease::{self, All, Claim, LIFETIME, Leases, RENEWAL, Seen, Shard};
use crate::metrics::Metrics;
use crate::position::Published;
use crate::server_clock::ServerClock;
use crate::shard_context::ShardContext;
use crate::shutdown::Shutdown;

/// How often to look at the leases of the others.
const LOOK: Duration = Duration::from_secs(1);

/// How often, where there are no others.
const LOOK_ALONE: Duration = Duration::from_secs(30);

/// After the end was asked for, shards are worked on until somebody has adopted them, but not for longer than this.
const LINGER: Duration = Duration::from_secs(5);

/// How often to look whether somebody has.
const LOOK_LINGERING: Duration = Duration::from_millis(250);

/// What the engines of a process have in common.
pub(crate) struct ShardManager<'a> {
    pub(crate) replica: &'a dyn Fn(Share, Shutdown) -> ShardContext,
    pub(crate) client: Client,
    pub(crate) namespace: &'a str,
    /// The daemon's name.
    pub(crate) daemon: &'a str,
    /// The name that stands in a lease.
    pub(crate) identity: String,
    /// The share that it was started for.
    pub(crate) share: Share,
    /// The number of shards, which may change.
    pub(crate) shards: watch::Receiver<NonZeroU32>,
    /// After how long a lease of another number of replicas is deleted that nobody renews.
    pub(crate) retirement: Duration,
    /// Whether what happens to Nodes meanwhile is to be caught up with.
    pub(crate) resumes: bool,
    pub(crate) clock: Arc<ServerClock>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    pub(crate) shutdown: Shutdown,
}

impl ShardManager<'_> {
    /// Works on all shards that are held, until the shutdown.
    pub(crate) async fn run(self, work: impl AsyncFn(ShardContext)) {
        let (orders, mut received) = mpsc::unbounded_channel();
        let keeper = Keeper::new(&self, orders).run();
        let runner = async {
            let mut engines = FuturesUnordered::new();
            loop {
                tokio::select! {
                    replica = received.recv() => match replica {
                        Some(replica) => engines.push(work(replica)),
                        None => break,
                    },
                    Some(()) = engines.next() => (),
                }
            }
            while engines.next().await.is_some() {}
        };
        tokio::join!(keeper, runner);
    }
}

/// A lease that this process holds.
struct Held {
    renewals: LeaseRenewals,
    position: Arc<Published>,
    /// Ends its engine.
    shutdown: Shutdown,
    renew_at: Instant,
}

/// Looks after the leases.
struct Keeper<'a> {
    manager: &'a ShardManager<'a>,
    me: Me,
    leases: Leases,
    tracker: LeaseTracker,
    /// As they were last seen, or written.
    all: All,
    /// Of these, the next look knows better, whatever its version.
    doubted: BTreeSet<Shard>,
    look_at: Instant,
    held: BTreeMap<Shard, Held>,
    engines: mpsc::UnboundedSender<ShardContext>,
    /// So many looks or renewals in a row have failed.
    failures: u32,
    /// Somebody else holds the lease of this process's own shard, and was started for it too.
    is_doubled: bool,
}

impl<'a> Keeper<'a> {
    fn new(manager: &'a ShardManager<'a>, engines: mpsc::UnboundedSender<ShardContext>) -> Self {
        let (index, replicas) = (manager.share.index, manager.share.replicas);
        Self {
            manager,
            me: Me { identity: manager.identity.clone(), home: Shard { index, replicas } },
            leases: Leases::new(manager.client.clone(), manager.namespace, manager.daemon, &manager.share),
            tracker: LeaseTracker::default(),
            all: All::new(),
            doubted: BTreeSet::new(),
            look_at: Instant::now(),
            held: BTreeMap::new(),
            engines,
            failures: 0,
            is_doubled: false,
        }
    }

    async fn run(mut self) {
        let shutdown = &self.manager.shutdown;
        self.manager.health.keeps_leases();
        let pulse = self.manager.health.pulse("the keeper of the leases");
        while !shutdown.is_requested() {
            pulse.beat();
            self.tick().await;
            let latest = self.look_at.min(Instant::now() + HEARTBEAT);
            let next = self.held.values().map(|held| held.renew_at).fold(latest, Instant::min);
            tokio::select! {
                () = tokio::time::sleep_until(next.into()) => (),
                () = shutdown.requested() => (),
            }
        }
        drop(pulse);
        self.leave().await;
    }

    /// One look, and what follows from it.
    async fn tick(&mut self) {
        self.count_shards();
        let now = Instant::now();
        if now >= self.look_at {
            self.look_at = now + backoff::around(self.look_every());
            match self.leases.list().await {
                Ok(all) => {
                    self.see(all).await;
                    // Where there are leases to be written, it takes that to say so.
                    if self.held.is_empty() {
                        self.recovered();
                    }
                }
                Err(error) => {
                    self.failed(&error);
                    self.look_at = Instant::now() + backoff::jittered(LOOK);
                }
            }
        }
        let now = Instant::now();
        let shards = self.shards().chain(self.former());
        let steps: Vec<_> = shards.map(|shard| (self.step(&shard, now), shard)).collect();
        let due = |(step, shard): &(Step, Shard)| match step {
            Step::Renew => self.held.get(shard).is_none_or(|held| held.renew_at <= now),
            Step::Take => true,
            Step::Leave => false,
        };
        let due: Vec<_> = steps.iter().filter(|step| due(step)).map(|(_, shard)| shard.clone()).collect();
        let writes = due.into_iter().map(|shard| {
            let (claim, seen) = (self.claim(&shard, Some(&self.me.identity)), self.all.get(&shard));
            let leases = &self.leases;
            async move {
                let began = Instant::now();
                let outcome = leases.write(&shard, seen, &claim).await;
                (shard, began, outcome)
            }
        });
        let written = join_all(writes.collect::<Vec<_>>()).await;
        for (shard, began, outcome) in written {
            self.written(shard, began, outcome);
        }
        for (step, shard) in steps {
            if step == Step::Leave {
                self.lose(&shard);
            }
        }
        self.give_up_former().await;
        let covered = self.shards().filter(|shard| self.is_covered(shard, now)).count();
        self.manager.metrics.shards_held.set(self.held.len() as i64);
        self.manager.metrics.shards_covered.set(covered as i64);
        if self.failures == 0 {
            self.manager.health.kept_leases(self.held.len());
        }
    }

    /// Whether somebody works on a shard, as far as can be seen from here.
    fn is_covered(&self, shard: &Shard, now: Instant) -> bool {
        match self.held.get(shard) {
            Some(held) => held.renewals.deadline().holds(),
            None => {
                let is_held = self.all.get(shard).is_some_and(|seen| seen.claim.holder.is_some());
                is_held && self.tracker.is_renewed(shard, now)
            }
        }
    }

    /// Takes note of the number of shards.
    fn count_shards(&mut self) {
        let (from, to) = (self.me.home.replicas, *self.manager.shards.borrow());
        if from != to {
            tracing::info!(from, to, "the number of shards changed");
            self.me.home.replicas = to;
            self.manager.metrics.shards.set(to.get().into());
            self.look_at = Instant::now();
        }
    }

    /// The shards of a former number that this process still holds.
    fn former(&self) -> Vec<Shard> {
        let replicas = self.me.home.replicas;
        self.held.keys().filter(|shard| shard.replicas != replicas).cloned().collect()
    }

    /// Gives up the shards of a former number, if all shards of the present one are worked on, from a position on: no Node is without a
    /// replica meanwhile, and no deletion is missed.
    async fn give_up_former(&mut self) {
        let (former, now) = (self.former(), Instant::now());
        let has_position = |shard: &Shard| match self.held.get(shard) {
            Some(held) => held.position.get().is_some(),
            None => self.all.get(shard).is_some_and(|seen| seen.claim.position.is_some()),
        };
        let is_taken =
            |shard: &Shard| self.is_covered(shard, now) && (!self.manager.resumes || has_position(shard));
        if former.is_empty() || !self.shards().all(|shard| is_taken(&shard)) {
            return;
        }
        self.release(&former).await;
        for shard in former {
            tracing::info!(shard = shard.index, of = shard.replicas, "gave up a shard of the former number");
            self.held.remove(&shard).inspect(|held| held.shutdown.request());
        }
    }

    /// Writes that nobody holds these leases any more.
    async fn release(&self, shards: &[Shard]) {
        let releases = shards.iter().filter_map(|shard| {
            let (seen, claim) = (self.all.get(shard)?, self.claim(shard, None));
            Some(async move { self.leases.write(shard, Some(seen), &claim).await })
        });
        let released = join_all(releases.collect::<Vec<_>>()).await;
        for error in released.iter().filter_map(|outcome| outcome.as_ref().err()) {
            tracing::warn!(%error, "a shard was not released: the others will take it when its lease ends");
        }
    }

    /// A replica whose index is too large for the present number of shards is not alone.
    fn look_every(&self) -> Duration {
        let is_alone =
            self.me.home.replicas.get() == 1 && self.me.home.index == 0 && self.former().is_empty();
        if is_alone { LOOK_ALONE } else { LOOK }
    }

    fn step(&self, shard: &Shard, now: Instant) -> Step {
        // Where nobody has looked yet, nothing is known.
        if self.tracker.is_new() {
            return Step::Leave;
        }
        // While shards of a former number are held, no Node waits for those of the new one: their replicas get the time to start.
        let absence = if self.former().is_empty() { ABSENCE } else { LIFETIME };
        decide(&self.me, shard, self.all.get(shard), self.tracker.unchanged_for(shard, now), absence)
    }

    /// The shards of as many replicas as there are now.
    fn shards(&self) -> impl Iterator<Item = Shard> + use<> {
        let replicas = self.me.home.replicas;
        (0..replicas.get()).map(move |index| Shard { index, replicas })
    }

    /// Takes note of what there is. The API server's cache may be behind: what this process wrote itself is newer then.
    async fn see(&mut self, mut all: All) {
        for shard in self.held.keys() {
            if let Some(known) = self.all.remove(shard)
                && !self.doubted.contains(shard)
                && all.get(shard).is_none_or(|seen| seen.version() < known.version())
            {
                all.insert(shard.clone(), known);
            }
        }
        self.all = all;
        self.doubted.clear();
        self.tracker.look(&self.all, self.shards(), self.look_every(), Instant::now());
        self.retire().await;
        let home = self.all.get(&self.me.home).map(|seen| &seen.claim);
        let is_doubled = home.is_some_and(|claim| {
            claim.home == Some(self.me.home.index)
                && claim.holder.as_ref().is_some_and(|holder| *holder != self.me.identity)
        });
        if is_doubled && !self.is_doubled {
            let holder = home.and_then(|claim| claim.holder.as_deref());
            tracing::warn!(
                shard = self.me.home.index,
                holder,
                "another replica was started for the same shard: waiting until it ends"
            );
        }
        self.is_doubled = is_doubled;
    }

    /// Deletes what is left of another number of replicas.
    async fn retire(&mut self) {
        let now = Instant::now();
        let is_over = |shard: &Shard| {
            shard.replicas != self.me.home.replicas
                && !self.held.contains_key(shard)
                && self.tracker.unchanged_for(shard, now) >= self.manager.retirement
        };
        for (shard, seen) in self.all.iter().filter(|(shard, _)| is_over(shard)) {
            match self.leases.delete(shard, seen).await {
                Ok(()) => tracing::info!(shard = shard.index, of = shard.replicas, "deleted an old lease"),
                Err(error) => tracing::debug!(%error, "an old lease stays"),
            }
        }
    }

    fn claim(&self, shard: &Shard, holder: Option<&str>) -> Claim {
        let position = match self.held.get(shard) {
            Some(held) => held.position.get(),
            None => lease::positions(&self.all, shard).into_iter().next(),
        };
        Claim {
            holder: holder.map(str::to_owned),
            home: Some(self.me.home.index),
            position: position.filter(|_| self.manager.resumes),
            renewed_at: Some(self.manager.clock.now()),
        }
    }

    fn written(&mut self, shard: Shard, began: Instant, outcome: Result<Seen, Error>) {
        let seen = match outcome {
            Ok(seen) => seen,
            Err(error) => {
                // Somebody was quicker, or nobody knows: then the next look tells. Not at once: what it tells may be as wrong
                // as what was just refused, and all replicas would go round and round.
                self.look_at = Instant::now() + backoff::jittered(LOOK);
                self.doubted.insert(shard.clone());
                match error.kind {
                    FailureKind::Moved => {
                        tracing::debug!(%error, shard = shard.index, "a lease was written by somebody else");
                    }
                    _ => self.failed(&error),
                }
                // And not before it: a write that was applied, and whose answer was lost, has changed what there is.
                if let Some(held) = self.held.get_mut(&shard) {
                    held.renew_at = self.look_at;
                }
                return;
            }
        };
        self.recovered();
        let renew_at = began + backoff::around(RENEWAL);
        match self.held.get_mut(&shard) {
            Some(held) => {
                held.renewals.renewed(began);
                held.renew_at = renew_at;
            }
            None => self.begin(&shard, began, renew_at),
        }
        self.all.insert(shard, seen);
    }

    /// Begins to work on a shard, whose lease was just taken by a call that began then.
    fn begin(&mut self, shard: &Shard, began: Instant, renew_at: Instant) {
        let is_home = *shard == self.me.home;
        let former = self.all.get(shard).and_then(|seen| seen.claim.holder.as_deref());
        let resume = if self.manager.resumes { lease::positions(&self.all, shard) } else { Vec::new() };
        let position = resume.first().map(|position| position.version.0);
        if is_home {
            tracing::info!(
                shard = shard.index,
                of = shard.replicas,
                former,
                position,
                "holding the lease of this shard"
            );
        } else {
            self.manager.metrics.adoptions.inc();
            tracing::info!(
                shard = shard.index,
                of = shard.replicas,
                former,
                position,
                "adopted a shard that nobody works on"
            );
        }
        let shutdown = Shutdown::default();
        let share =
            Share { index: shard.index, replicas: shard.replicas, nodes: self.manager.share.nodes.clone() };
        let renewals = LeaseRenewals::new(began);
        let position = Arc::new(Published::default());
        if let Some(resume) = resume.first() {
            position.set(Position::clone(resume));
        }
        let replica = (self.manager.replica)(share, shutdown.clone()).on_lease(
            renewals.deadline(),
            resume,
            Arc::clone(&position),
        );
        // Nobody receives it any more only at the end of the process.
        let _ = self.engines.send(replica);
        self.held.insert(shard.clone(), Held { renewals, position, shutdown, renew_at });
    }

    /// Ends the work on a shard that is somebody else's by now.
    fn lose(&mut self, shard: &Shard) {
        let Some(held) = self.held.remove(shard) else { return };
        let holder = self.all.get(shard).and_then(|seen| seen.claim.holder.as_deref());
        tracing::info!(shard = shard.index, of = shard.replicas, holder, "handed a shard over");
        held.shutdown.request();
    }

    /// Gives all shards back, works on until somebody has taken them, and then ends.
    async fn leave(mut self) {
        let mut holders = self.all.values().filter_map(|seen| seen.claim.holder.as_ref());
        let has_others = holders.any(|holder| *holder != self.me.identity);
        let began = Instant::now();
        self.release(&self.held.keys().cloned().collect::<Vec<_>>()).await;
        while has_others && began.elapsed() < LINGER {
            match self.leases.list().await {
                Ok(all) if self.held.keys().all(|shard| self.is_anothers(&all, shard)) => break,
                Ok(_) => (),
                Err(error) => {
                    tracing::debug!(%error, "nobody can tell whether the shards are taken");
                    break;
                }
            }
            tokio::time::sleep(LOOK_LINGERING).await;
        }
        for held in std::mem::take(&mut self.held).into_values() {
            held.shutdown.request();
        }
    }

    /// Whether somebody else holds a lease. The answer may be from before it was released.
    fn is_anothers(&self, all: &All, shard: &Shard) -> bool {
        let holder = all.get(shard).and_then(|seen| seen.claim.holder.as_ref());
        holder.is_some_and(|holder| *holder != self.me.identity)
    }

    fn failed(&mut self, error: &Error) {
        self.failures = self.failures.saturating_add(1);
        self.manager.metrics.lease_errors.inc();
        if self.failures == 1 {
            tracing::warn!(%error, "leases can't be kept: without them the work stops in a few seconds");
        } else {
            tracing::debug!(%error, failures = self.failures, "leases can't be kept");
        }
    }

    fn recovered(&mut self) {
        if self.failures > 0 {
            tracing::info!(failures = self.failures, "leases can be kept again");
            self.failures = 0;
        }
    }
}
