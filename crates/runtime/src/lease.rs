//! Leases: who handles which shard.
//!
//! A lease avoids double work, and tells the others when nobody does the work. Safety does not rest on it: two replicas
//! that handle the same shard do no harm, since every write is guarded by what was read.
//!
//! ```text
//!   label-storage.storer.0-of-3     held by its home, storer-0, and renewed every 2 s
//!   label-storage.storer.1-of-3     not renewed for 15 s: adopted, by storer-0 or storer-2
//!   label-storage.storer.2-of-3     released: adopted at once
//! ```
//!
//! There is one for each index *and* each N: while N changes, the shards of the old number are held until all of the new one are.

pub(crate) mod deadline;
pub(crate) mod tracker;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use globset::GlobMatcher;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client};
use label_storage::record::MANAGED_BY;
use label_storage::{Position, ResourceVersion};
use xxhash_rust::xxh3::xxh3_64;

use crate::args::Share;
use crate::call::{self, Error};

/// A lease that was not renewed for this long may be adopted.
pub const LIFETIME: Duration = Duration::from_secs(15);

/// Its holder stops writing this long after it began to renew it for the last time: well before it can be adopted.
pub(crate) const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// How often it is renewed.
pub(crate) const RENEWAL: Duration = Duration::from_secs(2);

/// The limit for one call: several fit into a deadline.
const LIMIT: Duration = Duration::from_secs(2);

/// Which daemon a lease belongs to.
const DAEMON: &str = "app.kubernetes.io/name";

/// The shard that its holder was started for: its home. Its home takes a lease back from anyone else.
const HOME: &str = "label-storage/holder-index";

/// All deletions of the shard's Nodes up to this version have been dealt with,
const POSITION: &str = "label-storage/position";

/// but for these: what their record is filed under, and the version.
const PENDING: &str = "label-storage/pending";

/// The name that a lease goes by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shard {
    pub(crate) index: u32,
    pub(crate) replicas: NonZeroU32,
}

/// What a lease says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Who holds it; `None`: nobody, it was released.
    pub holder: Option<String>,
    /// The shard that its holder was started for.
    pub home: Option<u32>,
    /// How far the deletions of the shard's Nodes have been dealt with.
    pub position: Option<Position>,
    /// When it was last renewed, by the API server's clock.
    pub renewed_at: Option<Timestamp>,
}

/// A lease as it was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    pub(crate) claim: Claim,
    /// As the API server sent it: whoever writes it keeps what it does not know.
    lease: Lease,
}

impl Seen {
    fn new(lease: Lease) -> Self {
        let annotation =
            |key| lease.metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str);
        let spec = lease.spec.as_ref();
        let claim = Claim {
            holder: spec.and_then(|spec| spec.holder_identity.clone()).filter(|holder| !holder.is_empty()),
            home: annotation(HOME).and_then(|text| text.parse().ok()),
            // Where it can't be read what is pending, nothing is known to be dealt with.
            position: annotation(POSITION).and_then(|text| {
                let pending = annotation(PENDING).map(serde_json::from_str).transpose().ok()?;
                Some(Position { version: text.parse().ok()?, pending: pending.unwrap_or_default() })
            }),
            renewed_at: spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0),
        };
        Self { claim, lease }
    }

    /// The version of the lease itself: another one means that somebody has renewed it.
    pub(crate) fn version(&self) -> Option<ResourceVersion> {
        self.lease.metadata.resource_version.as_deref()?.parse().ok()
    }
}

/// The leases of one daemon in one namespace.
pub(crate) struct Leases {
    api: Api<Lease>,
    daemon: String,
    /// What daemons with another `--nodes` don't share with this one.
    scope: String,
}

/// All leases of the daemon, by shard, of every number of replicas.
pub(crate) type All = BTreeMap<Shard, Seen>;

impl Leases {
    pub(crate) fn new(client: Client, namespace: &str, daemon: &str, share: &Share) -> Self {
        let scope = share.nodes.as_ref().map(|glob| format!(".{}", scope(glob))).unwrap_or_default();
        Self { api: Api::namespaced(client, namespace), daemon: daemon.to_owned(), scope }
    }

    fn name(&self, shard: &Shard) -> String {
        format!("label-storage.{}.{}-of-{}{}", self.daemon, shard.index, shard.replicas, self.scope)
    }

    fn shard(&self, name: &str) -> Option<Shard> {
        let (index, rest) = name
            .strip_prefix("label-storage.")?
            .strip_prefix(&self.daemon)?
            .strip_prefix('.')?
            .split_once("-of-")?;
        let (index, replicas) = (index.parse().ok()?, rest.strip_suffix(&self.scope)?.parse().ok()?);
        let shard = Shard { index, replicas };
        // A name that is written in another way, as in 00-of-3, is somebody else's.
        (index < replicas.get() && self.name(&shard) == name).then_some(shard)
    }

    /// Reads all of them. What the API server has in its cache is new enough: whether it is the newest shows when it is
    /// written.
    pub(crate) async fn list(&self) -> Result<All, Error> {
        let selector = format!("{}={},{DAEMON}={}", MANAGED_BY.0, MANAGED_BY.1, self.daemon);
        let params = ListParams::default().labels(&selector).match_any();
        let list = call::limited(LIMIT, "list leases", self.api.list(&params)).await?;
        let of_shard = |lease: Lease| Some((self.shard(lease.metadata.name.as_deref()?)?, Seen::new(lease)));
        Ok(list.items.into_iter().filter_map(of_shard).collect())
    }

    /// Writes a claim: over the lease that was read, if it is still the same; where none was read, if there is none.
    pub(crate) async fn write(
        &self,
        shard: &Shard,
        over: Option<&Seen>,
        claim: &Claim,
    ) -> Result<Seen, Error> {
        let mut lease = over.map(|seen| seen.lease.clone()).unwrap_or_default();
        self.fill(&mut lease, shard, claim);
        let params = PostParams {
            field_manager: Some(format!("label-storage-{}", self.daemon)),
            ..PostParams::default()
        };
        let written = if over.is_some() {
            let name = self.name(shard);
            call::limited(LIMIT, "renew the lease", self.api.replace(&name, &params, &lease)).await?
        } else {
            call::limited(LIMIT, "create the lease", self.api.create(&params, &lease)).await?
        };
        Ok(Seen::new(written))
    }

    fn fill(&self, lease: &mut Lease, shard: &Shard, claim: &Claim) {
        let ObjectMeta { name, labels, annotations, .. } = &mut lease.metadata;
        *name = Some(self.name(shard));
        let labels = labels.get_or_insert_default();
        labels.insert(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned());
        labels.insert(DAEMON.to_owned(), self.daemon.clone());
        let annotations = annotations.get_or_insert_default();
        let mut annotate = |key: &str, value: Option<String>| match value {
            Some(value) => _ = annotations.insert(key.to_owned(), value),
            None => _ = annotations.remove(key),
        };
        annotate(HOME, claim.home.map(|home| home.to_string()));
        let position = claim.position.as_ref();
        let pending = position.map(|position| &position.pending).filter(|pending| !pending.is_empty());
        annotate(POSITION, position.map(|position| position.version.to_string()));
        annotate(PENDING, pending.and_then(|pending| serde_json::to_string(pending).ok()));
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        let renewed_at = claim.renewed_at.map(MicroTime);
        if spec.holder_identity != claim.holder {
            spec.acquire_time.clone_from(&renewed_at);
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        }
        spec.holder_identity.clone_from(&claim.holder);
        spec.renew_time = renewed_at;
        spec.lease_duration_seconds = Some(LIFETIME.as_secs() as i32);
    }

    /// Deletes a lease, if it is still as it was read.
    pub(crate) async fn delete(&self, shard: &Shard, seen: &Seen) -> Result<(), Error> {
        let meta = &seen.lease.metadata;
        let preconditions =
            Preconditions { resource_version: meta.resource_version.clone(), uid: meta.uid.clone() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        call::limited(LIMIT, "delete a lease", self.api.delete(&self.name(shard), &params)).await?;
        Ok(())
    }
}

/// What the names of leases end with where daemons handle only Nodes whose names match.
pub fn scope(nodes: &GlobMatcher) -> String {
    format!("{:08x}", xxh3_64(nodes.glob().glob().as_bytes()) as u32)
}

/// A lease, for who only wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The lease's own name.
    pub name: String,
    /// Which daemon's.
    pub daemon: String,
    /// Which shard.
    pub index: u32,
    /// Of so many.
    pub replicas: NonZeroU32,
    /// What daemons with another `--nodes` don't share with these; empty for those that are for all Nodes.
    pub scope: String,
    /// Who holds it, and when they last said so.
    pub claim: Claim,
    /// Since when its holder has it, by the API server's clock.
    pub acquired_at: Option<Timestamp>,
    /// The version of the lease itself: another one means that somebody has renewed it.
    pub version: Option<ResourceVersion>,
}

impl Held {
    fn new(lease: Lease) -> Option<Self> {
        let name = lease.metadata.name.clone()?;
        let (daemon, rest) = name.strip_prefix("label-storage.")?.split_once('.')?;
        let (index, rest) = rest.split_once("-of-")?;
        let (replicas, scope) = rest.split_once('.').unwrap_or((rest, ""));
        let (daemon, scope) = (daemon.to_owned(), scope.to_owned());
        let (index, replicas) = (index.parse().ok()?, replicas.parse().ok()?);
        let acquired_at = lease.spec.as_ref().and_then(|spec| spec.acquire_time.as_ref()).map(|time| time.0);
        let seen = Seen::new(lease);
        let version = seen.version();
        Some(Self { daemon, index, replicas, scope, version, claim: seen.claim, acquired_at, name })
    }
}

/// All leases in a namespace, of both daemons and of every number of replicas.
pub async fn all_held(client: Client, namespace: &str) -> Result<Vec<Held>, Error> {
    let api: Api<Lease> = Api::namespaced(client, namespace);
    let params = ListParams::default().labels(&format!("{}={}", MANAGED_BY.0, MANAGED_BY.1));
    let list = call::one("list leases", api.list(&params)).await?;
    Ok(list.items.into_iter().filter_map(Held::new).collect())
}

/// Where a shard's Nodes can be followed from, the best first: where its own holders have left off and, for each other N, where those of
/// all the shards have. Somebody may have written what is not true: a position is to be checked against the cluster.
pub(crate) fn positions(all: &All, shard: &Shard) -> Vec<Position> {
    let own = all.get(shard).and_then(|seen| seen.claim.position.clone());
    let numbers: std::collections::BTreeSet<_> = all.keys().map(|shard| shard.replicas).collect();
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
