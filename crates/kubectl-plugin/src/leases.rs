//! The Leases of both daemons, and of every number of shards.

use std::num::NonZeroU32;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};
use label_storage::ResourceVersion;
use label_storage::record::MANAGED_BY;
use label_storage_runtime::call::{self, Error};
use label_storage_runtime::lease::{Claim, SeenLease, Shard, parse_name};

/// A lease of any daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) name: String,
    pub(crate) daemon: String,
    pub(crate) index: u32,
    pub(crate) replicas: NonZeroU32,
    /// Empty for daemons without `--nodes`.
    pub(crate) scope: String,
    pub(crate) claim: Claim,
    /// By the API server's clock.
    pub(crate) acquired_at: Option<Timestamp>,
    /// The version of the lease itself: every renewal changes it.
    pub(crate) version: Option<ResourceVersion>,
}

impl Held {
    fn new(lease: Lease) -> Option<Self> {
        let name = lease.metadata.name.clone()?;
        let (daemon, Shard { index, replicas }, scope) = parse_name(&name)?;
        let (daemon, scope) = (daemon.to_owned(), scope.to_owned());
        let acquired_at = lease.spec.as_ref().and_then(|spec| Some(spec.acquire_time.as_ref()?.0));
        let seen = SeenLease::new(lease);
        let version = seen.version();
        Some(Self { name, daemon, index, replicas, scope, claim: seen.claim, acquired_at, version })
    }
}

/// Lists all leases in a namespace, of both daemons and of every number of shards.
pub(crate) async fn all_held(client: Client, namespace: &str) -> Result<Vec<Held>, Error> {
    let api: Api<Lease> = Api::namespaced(client, namespace);
    let params = ListParams::default().labels(&format!("{}={}", MANAGED_BY.0, MANAGED_BY.1));
    let list = call::one("list leases", api.list(&params)).await?;
    Ok(list.items.into_iter().filter_map(Held::new).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_told_apart_by_their_names() {
        let read = |name: &str| {
            let mut lease = Lease::default();
            lease.metadata.name = Some(name.to_owned());
            Held::new(lease).map(|held| (held.daemon, held.index, held.replicas.get(), held.scope))
        };
        let held = |daemon: &str, index, replicas, scope: &str| {
            Some((daemon.to_owned(), index, replicas, scope.to_owned()))
        };
        assert_eq!(read("label-storage.storer.0-of-3"), held("storer", 0, 3, ""));
        assert_eq!(read("label-storage.restorer.2-of-3.0abc1234"), held("restorer", 2, 3, "0abc1234"));
        for name in [
            "",
            "label-storage.storer",
            "label-storage.storer.x-of-3",
            "label-storage.storer.0-of-0",
            "other",
        ] {
            assert_eq!(read(name), None, "{name}");
        }
    }
}
