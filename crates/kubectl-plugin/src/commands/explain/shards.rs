//! Who works on a Node.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use jiff::{SignedDuration, Timestamp};
use label_storage::shard;
use label_storage_runtime::call::Error;
use label_storage_runtime::lease::{Held, LIFETIME, all_held};

use crate::cluster::Cluster;
use crate::output::age;

/// The daemons, as they call themselves.
const DAEMONS: [&str; 2] = ["storer", "restorer"];

/// The leases of the shards that a Node is in.
pub(super) struct Holders {
    namespace: String,
    filed_under: String,
    leases: Result<Vec<Held>, Error>,
}

/// Replicas that share their work: of one daemon, one number and one `--nodes`.
type Group<'a> = (NonZeroU32, &'a str);

impl Holders {
    /// Reads all leases; where that is not allowed, it is said where they would be shown.
    pub(super) async fn read(cluster: &Cluster, filed_under: &str) -> Self {
        let leases = all_held(cluster.client.clone(), &cluster.namespace).await;
        Self { namespace: cluster.namespace.clone(), filed_under: filed_under.to_owned(), leases }
    }

    /// Whether they could be read.
    pub(super) fn are_known(&self) -> bool {
        self.leases.is_ok()
    }

    /// Since when the clock of the storer that works on it goes right.
    pub(super) fn steady_since(&self) -> Option<Timestamp> {
        self.own("storer").filter_map(|(_, held)| held?.claim.steady_since).max()
    }

    /// Whether both daemons work on it.
    pub(super) fn is_worked_on(&self, now: Timestamp) -> bool {
        DAEMONS
            .iter()
            .all(|daemon| self.own(daemon).any(|(_, held)| held.is_some_and(|held| is_alive(held, now))))
    }

    /// The leases of its shards: for each group of replicas one, unless nobody ever took it.
    fn own(&self, daemon: &str) -> impl Iterator<Item = (Group<'_>, Option<&Held>)> {
        let mut own = BTreeMap::<Group<'_>, Option<&Held>>::new();
        for held in self.leases.iter().flatten().filter(|held| held.daemon == daemon) {
            let mine = own.entry((held.replicas, &held.scope)).or_default();
            if held.index == shard(&self.filed_under, held.replicas) {
                *mine = Some(held);
            }
        }
        own.into_iter()
    }

    /// In words.
    pub(super) fn sentences(&self, now: Timestamp) -> Vec<String> {
        if let Err(error) = &self.leases {
            return vec![format!("Nobody can tell from here: {error}.")];
        }
        let mut lines = Vec::new();
        for daemon in DAEMONS {
            let all: Vec<_> = self.own(daemon).collect();
            let is_some_alive = all.iter().any(|(_, held)| held.is_some_and(|held| is_alive(held, now)));
            // Those of another number of replicas are left from before.
            let shown =
                all.iter().filter(|(_, held)| !is_some_alive || held.is_some_and(|held| is_alive(held, now)));
            lines.extend(shown.map(|(group, held)| {
                sentence(daemon, *group, shard(&self.filed_under, group.0), *held, now)
            }));
            if all.is_empty() {
                lines.push(format!(
                    "No {daemon} has a lease in namespace {}: none runs there.",
                    self.namespace
                ));
            } else if !is_some_alive {
                lines.push(format!(
                    "So no {daemon} works on it: see `kubectl -n {} get pods,leases`.",
                    self.namespace
                ));
            }
        }
        lines
    }
}

/// As far as clocks agree: replicas do not go by them, and people may.
fn is_alive(held: &Held, now: Timestamp) -> bool {
    let lifetime = SignedDuration::try_from(LIFETIME).unwrap_or(SignedDuration::MAX);
    let is_fresh = |at: Timestamp| now.duration_since(at) < lifetime;
    held.claim.holder.is_some() && held.claim.renewed_at.is_some_and(is_fresh)
}

fn sentence(
    daemon: &str,
    (replicas, scope): Group<'_>,
    index: u32,
    held: Option<&Held>,
    now: Timestamp,
) -> String {
    let only = if scope.is_empty() { "" } else { ", for nodes that its --nodes matches" };
    let shard = format!("The {daemon}s' shard {index} of {replicas}{only}");
    let Some(held) = held else { return format!("{shard}: nobody has taken it.") };
    let renewed = held.claim.renewed_at.map(|at| format!("{} ago", age(now.duration_since(at))));
    let renewed = renewed.unwrap_or_else(|| "at no known time".to_owned());
    match &held.claim.holder {
        None => format!("{shard}: released {renewed}, and nobody has taken it since."),
        Some(holder) if is_alive(held, now) => {
            let adopted = if held.claim.home == Some(index) { "" } else { ", which has adopted it" };
            format!("{shard}: held by {holder}{adopted}, renewed {renewed}.")
        }
        Some(holder) => format!("{shard}: last held by {holder}, and not renewed since {renewed}."),
    }
}
