//! Leases record which replica handles which shard.
//!
//! A lease avoids double work, and shows the others when a shard has no holder. Safety does not depend on it: two replicas
//! that handle the same shard do no harm, since every write is guarded by the version that was read.
//!
//! ```text
//!   label-storage.storer.0-of-3     held by its home, storer-0, and renewed every 6 s
//!   label-storage.storer.1-of-3     not renewed for 15 s: adopted, by storer-0 or storer-2
//!   label-storage.storer.2-of-3     released: adopted at once
//! ```

pub(crate) mod deadline;
pub(crate) mod tracker;

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::num::NonZeroU32;
use std::pin::pin;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use globset::GlobMatcher;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions, WatchEvent, WatchParams};
use kube::{Api, Client};
use label_storage::record::MANAGED_BY;
use label_storage::{Position, ResourceVersion};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use crate::args::Share;
use crate::call::{self, Error};

/// A lease that was not renewed for this long may be adopted.
pub const LIFETIME: Duration = Duration::from_secs(15);

/// A holder stops writing this long after its last renewal was sent, well before its lease can be adopted.
pub(crate) const RENEW_DEADLINE: Duration = Duration::from_secs(12);

pub(crate) const RENEWAL: Duration = Duration::from_secs(6);

/// The time to wait for an answer: several calls fit into a deadline.
const LIMIT: Duration = Duration::from_secs(2);

/// A watch without any renewal for this long is broken.
const SILENCE: Duration = Duration::from_secs(60);

/// The number of leases in a page, and of calls at the same time.
pub(crate) const PAGE: u32 = 16;
/// The most leases in a list: one for each replica, and those of an earlier number of replicas.
const MOST: usize = 256;
/// The most bytes of a lease that are kept. A position with all of its pending deletions has less.
const LARGEST: usize = 64 << 10;

const DAEMON: &str = "app.kubernetes.io/name";

/// The annotation with the index of the holder's own shard, its home.
const HOME: &str = "label-storage/holder-index";

/// The annotations with the position: all deletions of Nodes up to this version are stored, except the pending ones.
const POSITION: &str = "label-storage/position";
const PENDING: &str = "label-storage/pending";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shard {
    pub index: u32,
    pub replicas: NonZeroU32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// `None` if the lease was released.
    pub holder: Option<String>,
    /// The index of the holder's own shard.
    pub home: Option<u32>,
    pub position: Option<Position>,
    /// By the API server's clock.
    pub renewed_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SeenLease {
    pub claim: Claim,
    /// As the API server sent it, unless it is too large: a write keeps the fields that it does not know.
    lease: Lease,
}

fn size(part: &impl Serialize) -> usize {
    serde_json::to_vec(part).map_or(usize::MAX, |bytes| bytes.len())
}

impl SeenLease {
    pub fn new(mut lease: Lease) -> Self {
        // The API server keeps them when a write leaves them out.
        lease.metadata.managed_fields = None;
        if size(&lease) > LARGEST {
            let ObjectMeta { name, uid, resource_version, .. } = lease.metadata;
            lease.metadata = ObjectMeta { name, uid, resource_version, ..ObjectMeta::default() };
            lease.spec = lease.spec.filter(|spec| size(spec) <= LARGEST);
        }
        let annotation = |key| lease.metadata.annotations.as_ref()?.get(key).map(String::as_str);
        let position = annotation(POSITION).and_then(|version| {
            // Without a readable list of pending deletions, no deletion is known to be stored.
            let pending = annotation(PENDING).map(serde_json::from_str).transpose().ok()?.unwrap_or_default();
            Some(Position { version: version.parse().ok()?, pending })
        });
        let LeaseSpec { holder_identity, renew_time, .. } = lease.spec.clone().unwrap_or_default();
        let claim = Claim {
            holder: holder_identity.filter(|holder| !holder.is_empty()),
            home: annotation(HOME).and_then(|text| text.parse().ok()),
            position,
            renewed_at: renew_time.map(|time| time.0),
        };
        Self { claim, lease }
    }

    /// The version of the lease itself: every renewal changes it.
    pub fn version(&self) -> Option<ResourceVersion> {
        self.lease.metadata.resource_version.as_deref()?.parse().ok()
    }
}

/// A change that the watch reports.
pub(crate) struct LeaseEvent {
    pub(crate) shard: Shard,
    pub(crate) seen: SeenLease,
    pub(crate) is_deleted: bool,
    /// True if the lease was created or deleted, too. False if it was renewed.
    pub(crate) has_new_holder: bool,
}

#[derive(Clone)]
pub(crate) struct Leases {
    api: Api<Lease>,
    daemon: String,
    /// The end of their names, which differs for each `--nodes`.
    scope: String,
}

/// All leases of a daemon, of every number of shards.
pub(crate) type All = BTreeMap<Shard, SeenLease>;

impl Leases {
    pub(crate) fn new(client: Client, namespace: &str, daemon: &str, share: &Share) -> Self {
        let scope = share.nodes.as_ref().map(|glob| format!(".{}", scope(glob))).unwrap_or_default();
        Self { api: Api::namespaced(client, namespace), daemon: daemon.to_owned(), scope }
    }

    fn name(&self, shard: Shard) -> String {
        format!("label-storage.{}.{}-of-{}{}", self.daemon, shard.index, shard.replicas, self.scope)
    }

    fn shard(&self, name: &str) -> Option<Shard> {
        let (_, shard, _) = parse_name(name)?;
        (shard.index < shard.replicas.get() && self.name(shard) == name).then_some(shard)
    }

    fn selector(&self) -> String {
        format!("{}={},{DAEMON}={}", MANAGED_BY.0, MANAGED_BY.1, self.daemon)
    }

    /// Watches them, and reports every change.
    pub(crate) async fn watch(&self, report: impl Fn(LeaseEvent)) -> Result<(), Error> {
        const WHAT: &str = "watch leases";
        let params = WatchParams::default().labels(&self.selector());
        let mut events = pin!(call::limited(LIMIT, WHAT, self.api.watch(&params, "0")).await?);
        let mut holders = BTreeMap::new();
        while let Some(event) = call::limited(SILENCE, WHAT, events.try_next()).await? {
            let (lease, is_deleted) = match event {
                WatchEvent::Added(lease) | WatchEvent::Modified(lease) => (lease, false),
                WatchEvent::Deleted(lease) => (lease, true),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => {
                    return Err(Error::answered(WHAT, status.code, &status.message, None));
                }
            };
            let name = lease.metadata.name.as_deref();
            let Some(shard) = name.and_then(|name| self.shard(name)) else { continue };
            let seen = SeenLease::new(lease);
            let holder = seen.claim.holder.clone().filter(|_| !is_deleted);
            let has_room = holders.len() < MOST || holders.contains_key(&shard);
            let has_new_holder = has_room && holders.insert(shard, holder.clone()) != Some(holder);
            report(LeaseEvent { shard, seen, is_deleted, has_new_holder });
        }
        Ok(())
    }

    /// Lists them in small pages, and not more than [`MOST`]: otherwise an account that may create leases could fill the memory. Those of `wanted`
    /// that a longer list lacks are read by name, and so are the `doubtful` ones: they may have lost the labels that lists select by.
    pub(crate) async fn list(
        &self,
        wanted: impl Iterator<Item = Shard>,
        doubtful: &BTreeSet<Shard>,
    ) -> Result<All, Error> {
        let mut params = ListParams::default().labels(&self.selector()).limit(PAGE);
        let of_shard =
            |lease: Lease| Some((self.shard(lease.metadata.name.as_deref()?)?, SeenLease::new(lease)));
        let (mut all, mut seen, mut is_complete) = (All::new(), 0, false);
        while !is_complete && seen < MOST {
            let page = call::limited(LIMIT, "list leases", self.api.list(&params)).await?;
            seen += page.items.len();
            all.extend(page.items.into_iter().filter_map(of_shard));
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            is_complete = params.continue_token.is_none();
        }
        let is_lacking =
            |shard: &Shard| !all.contains_key(shard) && (!is_complete || doubtful.contains(shard));
        let lacking: Vec<_> = wanted.filter(is_lacking).collect();
        let read = stream::iter(lacking).map(|shard| self.read(shard)).buffer_unordered(PAGE as usize);
        let found: Vec<_> = read.try_collect().await?;
        all.extend(found.into_iter().flatten());
        Ok(all)
    }

    /// Reads one by its name. This needs the permission to list alone.
    async fn read(&self, shard: Shard) -> Result<Option<(Shard, SeenLease)>, Error> {
        let params = ListParams::default().fields(&format!("metadata.name={}", self.name(shard)));
        let found = call::limited(LIMIT, "read a lease", self.api.list(&params)).await?;
        Ok(found.items.into_iter().next().map(|lease| (shard, SeenLease::new(lease))))
    }

    /// Replaces a lease if it is still as it was read, or creates it if there was none. A request that is not answered in time goes on: it may be
    /// carried out, and a list or the watch then shows it.
    pub(crate) async fn write(
        &self,
        shard: Shard,
        over: Option<&SeenLease>,
        claim: Claim,
    ) -> Result<SeenLease, Error> {
        let mut lease = over.map(|seen| seen.lease.clone()).unwrap_or_default();
        self.fill(&mut lease, shard, claim);
        let field_manager = Some(format!("label-storage-{}", self.daemon));
        let params = PostParams { field_manager, ..PostParams::default() };
        let (api, name, is_there) = (self.api.clone(), self.name(shard), over.is_some());
        let request = async move {
            if is_there {
                api.replace(&name, &params, &lease).await
            } else {
                api.create(&params, &lease).await
            }
        };
        let request = tokio::spawn(tokio::time::timeout(RENEW_DEADLINE, request));
        let answer = async {
            match request.await {
                Ok(Ok(answer)) => answer,
                _ => pending().await,
            }
        };
        let what = if is_there { "renew the lease" } else { "create the lease" };
        call::limited(LIMIT, what, answer).await.map(SeenLease::new)
    }

    fn fill(&self, lease: &mut Lease, shard: Shard, claim: Claim) {
        let ObjectMeta { name, labels, annotations, .. } = &mut lease.metadata;
        *name = Some(self.name(shard));
        let labels = labels.get_or_insert_default();
        labels.insert(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned());
        labels.insert(DAEMON.to_owned(), self.daemon.clone());
        let position = claim.position.as_ref();
        let pending = position.map(|position| &position.pending).filter(|pending| !pending.is_empty());
        let values = [
            (HOME, claim.home.map(|home| home.to_string())),
            (POSITION, position.map(|position| position.version.to_string())),
            (PENDING, pending.and_then(|pending| serde_json::to_string(pending).ok())),
        ];
        let annotations = annotations.get_or_insert_default();
        annotations.retain(|key, _| values.iter().all(|(ours, _)| key != ours));
        annotations.extend(values.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        let renewed_at = claim.renewed_at.map(MicroTime);
        if spec.holder_identity != claim.holder {
            spec.acquire_time.clone_from(&renewed_at);
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        }
        spec.holder_identity = claim.holder;
        spec.renew_time = renewed_at;
        spec.lease_duration_seconds = Some(LIFETIME.as_secs() as i32);
    }

    /// Deletes a lease if it is still as it was read.
    pub(crate) async fn delete(&self, shard: Shard, seen: &SeenLease) -> Result<(), Error> {
        let ObjectMeta { resource_version, uid, .. } = seen.lease.metadata.clone();
        let preconditions = Some(Preconditions { resource_version, uid });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        call::limited(LIMIT, "delete a lease", self.api.delete(&self.name(shard), &params)).await.map(drop)
    }
}

/// The end of the names of the leases of daemons with this `--nodes`.
pub fn scope(nodes: &GlobMatcher) -> String {
    format!("{:08x}", xxh3_64(nodes.glob().glob().as_bytes()) as u32)
}

pub fn parse_name(name: &str) -> Option<(&str, Shard, &str)> {
    let (daemon, rest) = name.strip_prefix("label-storage.")?.split_once('.')?;
    let (index, rest) = rest.split_once("-of-")?;
    let (replicas, scope) = rest.split_once('.').unwrap_or((rest, ""));
    Some((daemon, Shard { index: index.parse().ok()?, replicas: replicas.parse().ok()? }, scope))
}

/// The positions from which a shard can be resumed, the newest first: the position in its own lease and, for each N with a
/// lease for every shard, the earliest of theirs. Anyone may edit a lease, so a position is checked against the cluster.
pub(crate) fn positions(all: &All, shard: Shard) -> Vec<Position> {
    let own = all.get(&shard).and_then(|seen| seen.claim.position.clone());
    let numbers: BTreeSet<_> = all.keys().map(|shard| shard.replicas).collect();
    let of_all = |replicas: NonZeroU32| {
        let each =
            (0..replicas.get()).map(|index| all.get(&Shard { index, replicas })?.claim.position.clone());
        each.collect::<Option<Vec<_>>>()?.into_iter().reduce(Position::join)
    };
    let mut positions: Vec<_> = own.into_iter().chain(numbers.into_iter().filter_map(of_all)).collect();
    positions.sort_by_key(|position| std::cmp::Reverse(position.version));
    positions.dedup();
    positions
}

#[cfg(test)]
mod tests;
