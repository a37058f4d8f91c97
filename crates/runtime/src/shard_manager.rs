//! Decides which shards this process works on, and runs one engine for each.
//!
//! ```text
//!   keep_leases: list ─► decide about each ─► renew, take, release       every 30 s, and when a lease changes hands or would end
//!      │ a ShardContext with a deadline and a position      ▲
//!      ▼                                                    │ position
//!   engines: one for each shard that is held ───────────────┘
//! ```
//!
//! Both run in one task: a process whose engines are stuck does not renew its leases either.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::channel::mpsc;
use futures::future::join_all;
use futures::stream::{self, FuturesUnordered};
use jiff::Timestamp;
use tokio::sync::watch;

use crate::args::Share;
use crate::backoff;
use crate::boot_time::BootTime;
use crate::call::{Error, FailureKind};
use crate::health::HEARTBEAT;
use crate::lease::deadline::LeaseDeadline;
use crate::lease::tracker::{ABSENCE, LeaseAction, LeaseTracker, Me, decide};
use crate::lease::{
    self, All, Claim, LIFETIME, LeaseEvent, Leases, PAGE, RENEW_DEADLINE, RENEWAL, SeenLease, Shard,
};
use crate::shard_context::ShardContext;
use crate::shutdown::Shutdown;

/// The pause while every shard is held and the watch reports the renewals.
const LIST_EVERY: Duration = Duration::from_secs(30);
/// The pause while the watch reports nothing, and the longest one while calls fail. The watch reports this replica's own renewals, too. Even
/// without the watch, an adoption takes 25 s at most.
const LIST_EVERY_UNWATCHED: Duration = Duration::from_secs(7);
const LIST_EVERY_UNSETTLED: Duration = Duration::from_secs(1);

/// The time to delete old leases after a list. Renewals wait for it.
const RETIREMENT_LIMIT: Duration = Duration::from_secs(1);

/// At shutdown, the engines go on until others have adopted their shards, but no longer than this.
const LINGER: Duration = Duration::from_secs(5);
const LIST_EVERY_LINGERING: Duration = Duration::from_millis(250);

struct ShardManager {
    /// Each engine gets a copy, with its own share, shutdown, deadline and position.
    context: ShardContext,
    me: Me,
    shards: watch::Receiver<NonZeroU32>,
    starter: mpsc::UnboundedSender<ShardContext>,
    api: Leases,
    /// The leases as last listed or written.
    leases: All,
    tracker: LeaseTracker,
    held: BTreeMap<Shard, Held>,
    /// The earliest and the latest time of the next list.
    list_at: [Instant; 2],
    events: mpsc::UnboundedReceiver<LeaseEvent>,
    /// The renewal times of the last writes, and when each was sent.
    sent: Vec<(Timestamp, BootTime)>,
    /// The shards whose lease is to be written, and whose last write failed.
    refused: BTreeSet<Shard>,
    failing: Option<Failing>,
    /// True if another process was started for the same shard and holds its lease.
    is_doubled: bool,
}

/// Lists or writes of leases fail.
struct Failing {
    since: Instant,
    is_logged: bool,
}

struct Held {
    context: ShardContext,
    renew_at: Instant,
    /// True after a failed write: the next list counts, even if it is older than the last write.
    is_in_doubt: bool,
}

/// Works on all shards that this process holds, until the shutdown of `context`.
pub(crate) async fn run(
    context: ShardContext,
    daemon: &str,
    identity: String,
    shards: watch::Receiver<NonZeroU32>,
    work: impl AsyncFn(ShardContext),
) {
    let client = context.nodes.clone().into_client();
    let namespace = context.records.namespace().unwrap_or_default();
    let api = Leases::new(client, namespace, daemon, &context.share);
    let ((starter, started), (reporter, events)) = (mpsc::unbounded(), mpsc::unbounded());
    let (stop, watching) = (context.shutdown.stop.clone(), watch_leases(api.clone(), reporter));
    let manager = ShardManager::new(context, api, identity, shards, starter, events);
    let engines = started.for_each_concurrent(None, |context| work(context));
    tokio::join!(manager.keep_leases(), engines, stop.run_until_cancelled(watching));
}

/// Reports changes until the end of the process. Without the watch, lists find them a little later.
async fn watch_leases(api: Leases, reporter: mpsc::UnboundedSender<LeaseEvent>) {
    loop {
        // The receiver is dropped only at the end of the process.
        if let Err(error) = api.watch(|event| _ = reporter.unbounded_send(event)).await {
            tracing::debug!(%error, "the watch of leases broke");
        }
        tokio::time::sleep(backoff::around(LIST_EVERY_UNWATCHED)).await;
    }
}

/// Waits until an engine has a position and its lease has none. That position is written at once: a successor without one would miss the
/// deletions between a crash and its own first list.
async fn first_position(held: &BTreeMap<Shard, Held>, leases: &All) -> Option<Shard> {
    let has_position = |shard| leases.get(shard).is_some_and(|seen| seen.claim.position.is_some());
    // A failed write is repeated after the next list.
    let lacking = held.iter().filter(|(shard, held)| !held.is_in_doubt && !has_position(shard));
    let mut known: FuturesUnordered<_> = lacking
        .map(|(shard, held)| async move {
            held.context.position.subscribe().wait_for(Option::is_some).await.ok().map(|_| *shard)
        })
        .collect();
    known.next().await?
}

impl ShardManager {
    fn new(
        context: ShardContext,
        api: Leases,
        identity: String,
        shards: watch::Receiver<NonZeroU32>,
        starter: mpsc::UnboundedSender<ShardContext>,
        events: mpsc::UnboundedReceiver<LeaseEvent>,
    ) -> Self {
        let Share { index, replicas, .. } = context.share;
        Self {
            context,
            me: Me { identity, home: Shard { index, replicas } },
            shards,
            starter,
            api,
            leases: All::new(),
            tracker: LeaseTracker::default(),
            held: BTreeMap::new(),
            list_at: [Instant::now(); 2],
            events,
            sent: Vec::new(),
            refused: BTreeSet::new(),
            failing: None,
            is_doubled: false,
        }
    }

    async fn keep_leases(mut self) {
        let shutdown = self.context.shutdown.clone();
        let pulse = self.context.health.pulse("the renewal of leases");
        while !shutdown.stop.is_cancelled() {
            pulse.send_replace(Instant::now());
            self.turn().await;
            let latest = self.list_due().min(Instant::now() + HEARTBEAT);
            let next = self.held.values().map(|held| held.renew_at).fold(latest, Instant::min);
            tokio::select! {
                _ = shutdown.stop.run_until_cancelled(tokio::time::sleep_until(next.into())) => (),
                Some(event) = self.events.next() => self.changed(event, Instant::now()),
                Some(shard) = first_position(&self.held, &self.leases) => {
                    self.held.entry(shard).and_modify(|held| held.renew_at = Instant::now());
                }
            }
        }
        self.leave().await;
    }

    fn changed(&mut self, event: LeaseEvent, now: Instant) {
        let LeaseEvent { shard, seen, is_deleted, has_new_holder } = event;
        self.tracker.changed(shard, seen.version(), now);
        let is_known = self.leases.get(&shard).and_then(SeenLease::version) >= seen.version();
        if let Some(sent_at) = self.landed(shard, &seen).filter(|_| !is_deleted) {
            self.claimed(shard, sent_at, seen);
        } else if has_new_holder && !is_known && self.failing.is_none() {
            self.list_at = [now; 2];
        }
    }

    /// The time at which this process sent a write of this lease that was not known to be carried out.
    fn landed(&self, shard: Shard, seen: &SeenLease) -> Option<BootTime> {
        let is_known = self.leases.get(&shard).and_then(SeenLease::version) >= seen.version();
        let is_mine = seen.claim.holder.as_ref() == Some(&self.me.identity);
        let is_same = |(renewed_at, _): &&(Timestamp, BootTime)| seen.claim.renewed_at == Some(*renewed_at);
        let (_, sent_at) = self.sent.iter().filter(|_| is_mine && !is_known).find(is_same)?;
        Some(*sent_at).filter(|sent_at| sent_at.elapsed() < RENEW_DEADLINE)
    }

    async fn turn(&mut self) {
        self.update_shards();
        let has_listed = Instant::now() >= self.list_due() && self.list().await;
        let Some(listed_at) = self.tracker.last else { return };
        let now = Instant::now();
        // While shards of a former number are held, those of the new one can wait for their homes to start.
        let absence = if self.former().is_empty() { ABSENCE } else { LIFETIME };
        let mut due = Vec::new();
        for shard in self.shards().chain(self.former()) {
            let unchanged_for = self.tracker.unchanged_for(shard, listed_at);
            match decide(&self.me, shard, self.leases.get(&shard), unchanged_for, absence) {
                LeaseAction::Renew if self.held.get(&shard).is_some_and(|held| now < held.renew_at) => (),
                // A silent watch does not prove that a lease is not renewed: a list has to confirm it.
                LeaseAction::Take if !has_listed => (),
                LeaseAction::Renew | LeaseAction::Take => due.push(shard),
                LeaseAction::Leave => self.hand_over(shard),
            }
        }
        if has_listed {
            self.refused.retain(|shard| due.contains(shard));
        }
        // With leases to renew or to take, only a write shows that they can be kept.
        if has_listed && due.is_empty() && self.held.is_empty() {
            self.recovered();
        }
        let (holder, renewed_at, sent_at) = (self.me.identity.as_str(), self.renewal_time(), BootTime::now());
        self.sent.retain(|(_, sent_at)| sent_at.elapsed() < RENEW_DEADLINE);
        if !due.is_empty() {
            self.sent.push((renewed_at, sent_at));
        }
        let writes = due.iter().map(|shard| self.write(*shard, Some(holder), renewed_at));
        let outcomes = join_all(writes).await;
        for (shard, outcome) in due.into_iter().zip(outcomes) {
            match outcome {
                Ok(seen) => self.claimed(shard, sent_at, seen),
                Err(error) => self.refused(shard, &error),
            }
        }
        self.give_up_former().await;
        let is_held = |shard: &Shard| self.held.get(shard).is_some_and(|held| held.context.deadline.holds());
        self.context.metrics.shards_held.set(self.shards().filter(is_held).count() as i64);
        if self.failing.is_none() {
            self.context.health.kept_leases(self.held.len());
        }
    }

    fn hand_over(&mut self, shard: Shard) {
        if let Some(held) = self.held.remove(&shard) {
            let holder = self.holder(shard);
            tracing::info!(shard = shard.index, of = shard.replicas, holder, "handed a shard over");
            held.context.shutdown.stop.cancel();
        }
    }

    fn update_shards(&mut self) {
        let (from, to) = (self.me.home.replicas, *self.shards.borrow());
        if from != to {
            tracing::info!(from, to, "the number of shards changed");
            self.me.home.replicas = to;
            self.context.metrics.shards.set(to.get().into());
            self.list_at = [Instant::now(); 2];
        }
    }

    /// Lists the leases. Returns false if that fails.
    async fn list(&mut self) -> bool {
        let mut leases = match self.api.list(self.shards(), &self.refused).await {
            Ok(leases) => leases,
            Err(error) => {
                self.failed(&error);
                self.list_at = [Instant::now() + self.pause(); 2];
                return false;
            }
        };
        for (shard, seen) in &leases {
            if let Some(sent_at) = self.landed(*shard, seen) {
                self.claimed(*shard, sent_at, seen.clone());
            }
        }
        // A stale answer may be behind this process's own writes.
        for (shard, held) in &mut self.held {
            if let Some(known) = self.leases.remove(shard)
                && !held.is_in_doubt
                && leases.get(shard).is_none_or(|seen| seen.version() < known.version())
            {
                leases.insert(*shard, known);
            }
            held.is_in_doubt = false;
        }
        self.leases = leases;
        let (pause, now) = (backoff::around(self.list_every()), Instant::now());
        self.tracker.look(&self.leases, self.shards(), now);
        self.list_at = [pause.min(LIST_EVERY_UNSETTLED), pause].map(|pause| now + pause);
        self.retire().await;
        self.warn_of_double();
        true
    }

    fn warn_of_double(&mut self) {
        let Me { home, .. } = self.me;
        let is_double = |seen: &SeenLease| seen.claim.home == Some(home.index) && self.me.is_anothers(seen);
        let is_doubled = self.leases.get(&home).is_some_and(is_double);
        if is_doubled && !self.is_doubled {
            let holder = self.holder(home);
            tracing::warn!(holder, "another replica was started for the same shard: waiting until it ends");
        }
        self.is_doubled = is_doubled;
    }

    /// Deletes the leases of other numbers of shards that are not renewed any more.
    async fn retire(&self) {
        let (now, limit) = (Instant::now(), self.context.args.lease_retirement);
        let is_over =
            |shard| self.tracker.unchanged_for(shard, now) >= limit && !self.held.contains_key(&shard);
        let former = self.leases.iter().filter(|(shard, _)| shard.replicas != self.me.home.replicas);
        let old = former.filter(|(shard, _)| is_over(**shard));
        let delete = async |(shard, seen): (&Shard, &SeenLease)| {
            let deleted = self.api.delete(*shard, seen).await;
            match deleted {
                Ok(()) => tracing::info!(shard = shard.index, of = shard.replicas, "deleted an old lease"),
                Err(error) => tracing::debug!(%error, "an old lease can't be deleted"),
            }
        };
        let deletions = stream::iter(old).for_each_concurrent(PAGE as usize, delete);
        // Those that are left are deleted after the next list.
        let _ = tokio::time::timeout(RETIREMENT_LIMIT, deletions).await;
    }

    /// The time of a renewal, by which it is found again. Leases have microseconds.
    fn renewal_time(&self) -> Timestamp {
        let now = self.context.clock.now();
        Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
    }

    /// Writes a lease that this process holds or takes, or releases if `holder` is `None`.
    async fn write(
        &self,
        shard: Shard,
        holder: Option<&str>,
        renewed_at: Timestamp,
    ) -> Result<SeenLease, Error> {
        let position = match self.held.get(&shard) {
            Some(held) => held.context.position.borrow().clone(),
            None => lease::positions(&self.leases, shard).into_iter().next(),
        };
        let claim = Claim {
            holder: holder.map(str::to_owned),
            home: Some(self.me.home.index),
            position: position.filter(|_| self.context.args.watch),
            renewed_at: Some(renewed_at),
        };
        self.api.write(shard, self.leases.get(&shard), claim).await
    }

    fn refused(&mut self, shard: Shard, error: &Error) {
        let is_repeated = !self.refused.insert(shard);
        if error.kind == FailureKind::Moved && !is_repeated {
            tracing::debug!(%error, shard = shard.index, "another writer changed the lease");
        } else {
            self.failed(error);
        }
        // Not at once: the list may be as old as the lease that was just refused, and all replicas would try for ever.
        let list_at = Instant::now() + self.pause();
        self.list_at = [list_at; 2];
        // Not before the list: a write whose answer was lost may have changed the lease.
        if let Some(held) = self.held.get_mut(&shard) {
            (held.renew_at, held.is_in_doubt) = (list_at, true);
        }
    }

    /// Notes that a write that was sent at `sent_at` has renewed or taken a lease.
    fn claimed(&mut self, shard: Shard, sent_at: BootTime, seen: SeenLease) {
        let renew_at = Instant::now() + backoff::around(RENEWAL).saturating_sub(sent_at.elapsed());
        match self.held.get_mut(&shard) {
            Some(held) => {
                held.context.deadline.renew(sent_at);
                (held.renew_at, held.is_in_doubt) = (renew_at, false);
            }
            // This needs the lease as the holder before left it.
            None => self.start(shard, sent_at, renew_at),
        }
        self.leases.insert(shard, seen);
        self.refused.remove(&shard);
        if self.refused.is_empty() {
            self.recovered();
            self.context.health.kept_leases(self.held.len());
        }
    }

    fn start(&mut self, shard: Shard, sent_at: BootTime, renew_at: Instant) {
        let resume = if self.context.args.watch { lease::positions(&self.leases, shard) } else { Vec::new() };
        let position = resume.first().map(|position| position.version.0);
        let (index, of, former) = (shard.index, shard.replicas, self.holder(shard));
        if shard == self.me.home {
            tracing::info!(shard = index, of, former, position, "holding the lease of this shard");
        } else {
            self.context.metrics.adoptions.inc();
            tracing::info!(shard = index, of, former, position, "adopted a shard without a holder");
        }
        let context = ShardContext {
            share: Share { index, replicas: of, ..self.context.share.clone() },
            shutdown: Shutdown::default(),
            deadline: LeaseDeadline::new(sent_at),
            position: watch::Sender::new(resume.first().cloned()),
            resume,
            ..self.context.clone()
        };
        // The receiver is dropped only at the end of the process.
        let _ = self.starter.unbounded_send(context.clone());
        self.held.insert(shard, Held { context, renew_at, is_in_doubt: false });
    }

    /// Gives up the shards of a former number once every shard of the present one has a holder and a position. No Node is
    /// without a replica meanwhile, and no deletion is missed.
    async fn give_up_former(&mut self) {
        let (former, now, needs_position) = (self.former(), Instant::now(), self.context.args.watch);
        // True if the shard has a holder, as far as this process can see, and its position is known.
        let is_taken = |shard| match (self.held.get(&shard), self.leases.get(&shard)) {
            (Some(Held { context, .. }), _) => {
                context.deadline.holds() && (!needs_position || context.position.borrow().is_some())
            }
            (None, Some(SeenLease { claim, .. })) => {
                let is_held = claim.holder.is_some() && self.tracker.is_renewed(shard, now);
                is_held && (!needs_position || claim.position.is_some())
            }
            (None, None) => false,
        };
        if former.is_empty() || !self.shards().all(is_taken) {
            return;
        }
        self.release(&former).await;
        for shard in former {
            tracing::info!(
                shard = shard.index,
                of = shard.replicas,
                "released a shard of the former number of replicas"
            );
            self.held.remove(&shard).inspect(|held| held.context.shutdown.stop.cancel());
        }
    }

    /// Releases all shards, and ends their engines when others have taken them.
    async fn leave(self) {
        let has_others = self.leases.values().any(|seen| self.me.is_anothers(seen));
        let began = Instant::now();
        self.release(self.held.keys()).await;
        while has_others && began.elapsed() < LINGER {
            let is_taken = |all: &All, shard| all.get(shard).is_some_and(|seen| self.me.is_anothers(seen));
            match self.api.list(self.held.keys().copied(), &BTreeSet::new()).await {
                Ok(all) if self.held.keys().all(|shard| is_taken(&all, shard)) => break,
                Ok(_) => tokio::time::sleep(LIST_EVERY_LINGERING).await,
                Err(error) => {
                    tracing::debug!(%error, "the leases can't be listed, so other replicas may not have adopted the shards yet");
                    break;
                }
            }
        }
        for held in self.held.values() {
            held.context.shutdown.stop.cancel();
        }
    }

    async fn release(&self, shards: impl IntoIterator<Item = &Shard>) {
        let known = shards.into_iter().filter(|shard| self.leases.contains_key(shard));
        let renewed_at = self.renewal_time();
        let released = join_all(known.map(|shard| self.write(*shard, None, renewed_at))).await;
        for error in released.into_iter().filter_map(Result::err) {
            tracing::warn!(%error, "a shard can't be released: another replica adopts it when its lease expires");
        }
    }

    fn list_every(&self) -> Duration {
        let is_settled = self.former().is_empty() && self.shards().all(|shard| self.holder(shard).is_some());
        if is_settled { LIST_EVERY } else { LIST_EVERY_UNSETTLED }
    }

    /// The time of the next list: early if the watch is silent, or if the lease of another replica would end.
    fn list_due(&self) -> Instant {
        let [earliest, latest] = self.list_at;
        let silent_at = self.tracker.last.map_or(earliest, |last| last + LIST_EVERY_UNWATCHED);
        let others = self.shards().filter(|shard| !self.held.contains_key(shard));
        let ends = others.filter_map(|shard| self.tracker.ends_at(shard));
        ends.fold(silent_at, Instant::min).clamp(earliest, latest)
    }

    fn shards(&self) -> impl Iterator<Item = Shard> + use<> {
        let replicas = self.me.home.replicas;
        (0..replicas.get()).map(move |index| Shard { index, replicas })
    }

    /// The shards of a former number that this process still holds.
    fn former(&self) -> Vec<Shard> {
        let replicas = self.me.home.replicas;
        self.held.keys().copied().filter(|shard| shard.replicas != replicas).collect()
    }

    fn holder(&self, shard: Shard) -> Option<&str> {
        self.leases.get(&shard)?.claim.holder.as_deref()
    }

    /// The pause until the next list. It grows for as long as calls fail. The first tries come quickly, so that a short outage costs no lease.
    fn pause(&self) -> Duration {
        let lasted = self.failing.as_ref().map_or(Duration::ZERO, |failing| failing.since.elapsed());
        backoff::jittered(LIST_EVERY_UNSETTLED).max(backoff::around((lasted / 2).min(LIST_EVERY_UNWATCHED)))
    }

    fn failed(&mut self, error: &Error) {
        self.context.metrics.lease_errors.inc();
        let failing = self.failing.get_or_insert_with(|| Failing { since: Instant::now(), is_logged: false });
        // A write that is merely slow is soon seen to have landed.
        if failing.is_logged || failing.since.elapsed() < RENEWAL / 2 {
            tracing::debug!(%error, "leases can't be renewed");
        } else {
            failing.is_logged = true;
            tracing::warn!(%error, "leases can't be renewed: writes stop when they expire, within seconds");
        }
    }

    fn recovered(&mut self) {
        if self.failing.take().is_some_and(|failing| failing.is_logged) {
            tracing::info!("leases can be renewed again");
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use label_storage::{Position, ResourceVersion};
    use serde_json::json;

    use super::*;
    use crate::boot_time::suspend;
    use crate::fixtures::{Reply, replica};

    const HOME: Shard = Shard { index: 0, replicas: NonZeroU32::MIN };

    /// A manager with a server that answers each call with this.
    fn manager<F: Future<Output = Reply> + Send + 'static>(
        answer: impl Fn(String) -> F + Send + Sync + 'static,
    ) -> ShardManager {
        let (context, _) = replica(answer).expect("a replica");
        let api = Leases::new(context.nodes.clone().into_client(), "default", "storer", &context.share);
        let (_, shards) = watch::channel(HOME.replicas);
        let ((starter, _), (_, events)) = (mpsc::unbounded(), mpsc::unbounded());
        ShardManager::new(context, api, "storer-0".to_owned(), shards, starter, events)
    }

    fn renewed(holder: &str, renewed_at: Timestamp, version: u64) -> SeenLease {
        let mut lease = Lease::default();
        lease.metadata.resource_version = Some(version.to_string());
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            renew_time: Some(MicroTime(renewed_at)),
            ..LeaseSpec::default()
        });
        SeenLease::new(lease)
    }

    #[tokio::test]
    async fn a_write_without_an_answer_counts_from_when_it_was_sent_if_it_is_seen_to_have_landed() {
        let mut manager = manager(|_| std::future::pending());
        let (renewed_at, sent_at) = (manager.renewal_time(), BootTime::now());
        manager.sent.push((renewed_at, sent_at));
        let mut see = |holder, renewed_at, version| {
            let seen = renewed(holder, renewed_at, version);
            let event = LeaseEvent { shard: HOME, seen, is_deleted: false, has_new_holder: false };
            manager.changed(event, Instant::now());
            manager.held.get(&HOME).is_some_and(|held| held.context.deadline.holds())
        };
        let earlier = renewed_at - Duration::from_micros(1);
        assert!(!see("storer-0", earlier, 5), "it is that of another process of this name");
        assert!(!see("storer-1", renewed_at, 5), "it is that of another replica");
        assert!(see("storer-0", renewed_at, 5));
        assert_eq!(manager.landed(HOME, &renewed("storer-0", renewed_at, 5)), None, "it is known");
        suspend(RENEW_DEADLINE);
        assert!(manager.held.values().all(|held| !held.context.deadline.holds()));
        assert_eq!(
            manager.landed(HOME, &renewed("storer-0", renewed_at, 6)),
            None,
            "it was sent too long ago"
        );
    }

    #[tokio::test]
    async fn a_lease_that_is_refused_again_and_again_is_not_kept() {
        for code in [404, 409] {
            let mut manager = manager(move |call| async move {
                let list = json!({"metadata": {"resourceVersion": "1"}, "items": []});
                if call.starts_with("GET") { Reply::Json(200, list) } else { Reply::Refusal(code, "no") }
            });
            let mut errors = async || {
                manager.list_at = [Instant::now(); 2];
                manager.turn().await;
                manager.context.metrics.lease_errors.get()
            };
            assert_eq!(errors().await, 0, "{code}: another replica may have been quicker");
            assert_eq!(errors().await, 1, "{code}");
            assert!(manager.failing.is_some());
        }
    }

    #[tokio::test]
    async fn the_first_position_of_an_engine_is_not_kept_until_the_next_renewal() {
        let shard = HOME;
        let (context, _) = replica(|_| std::future::pending()).expect("a replica");
        let held = |is_in_doubt| {
            let held = Held { context: context.clone(), renew_at: Instant::now(), is_in_doubt };
            BTreeMap::from([(shard, held)])
        };
        let lease = |position| {
            let mut seen = SeenLease::new(Lease::default());
            seen.claim.position = position;
            All::from([(shard, seen)])
        };
        assert_eq!(first_position(&BTreeMap::new(), &lease(None)).now_or_never(), Some(None));
        assert_eq!(first_position(&held(false), &lease(None)).now_or_never(), None, "it has not watched yet");
        let position = Position::new(ResourceVersion(7), std::iter::empty());
        context.position.send_replace(Some(position.clone()));
        assert_eq!(first_position(&held(false), &lease(None)).now_or_never(), Some(Some(shard)));
        assert_eq!(
            first_position(&held(true), &lease(None)).now_or_never(),
            Some(None),
            "a list comes first"
        );
        assert_eq!(first_position(&held(false), &lease(Some(position))).now_or_never(), Some(None));
    }
}
