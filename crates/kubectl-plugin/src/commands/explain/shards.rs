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
        Some(holder) => format!("{shard}: last held by {holder}, and last renewed {renewed}."),
    }
}

#[cfg(test)]
mod tests {
    use label_storage_runtime::lease::Claim;

    use super::*;

    const NOW: i64 = 1000;

    /// A lease of a shard of so many, renewed at this second.
    fn held(daemon: &str, (index, replicas): (u32, u32), holder: Option<&str>, renewed_at: i64) -> Held {
        let claim = Claim {
            holder: holder.map(str::to_owned),
            home: Some(0),
            position: None,
            steady_since: None,
            renewed_at: Timestamp::from_second(renewed_at).ok(),
        };
        let replicas = NonZeroU32::new(replicas).expect("not zero");
        Held {
            name: String::new(),
            version: None,
            daemon: daemon.to_owned(),
            index,
            replicas,
            scope: String::new(),
            claim,
        }
    }

    fn told(leases: Vec<Held>) -> (bool, Vec<String>) {
        let (namespace, filed_under) = ("ns".to_owned(), "node-1".to_owned());
        let (holders, now) =
            (Holders { namespace, filed_under, leases: Ok(leases) }, Timestamp::from_second(NOW));
        let now = now.expect("a time");
        (holders.is_worked_on(now), holders.sentences(now))
    }

    #[test]
    fn only_the_nodes_own_shard_counts_and_only_while_it_is_renewed() {
        // Of two shards, the second is its own.
        assert_eq!(shard("node-1", NonZeroU32::new(2).expect("not zero")), 1);
        let restorer = || held("restorer", (0, 1), Some("r"), NOW);
        let (is_worked_on, lines) = told(vec![held("storer", (1, 2), Some("s"), NOW - 3), restorer()]);
        assert!(is_worked_on);
        assert_eq!(
            lines,
            [
                "The storers' shard 1 of 2: held by s, which has adopted it, renewed 3s ago.",
                "The restorers' shard 0 of 1: held by r, renewed 0s ago."
            ]
        );
        for (storer, says) in [
            (held("storer", (0, 2), Some("s"), NOW), "The storers' shard 1 of 2: nobody has taken it."),
            (
                held("storer", (1, 2), Some("s"), NOW - 15),
                "The storers' shard 1 of 2: last held by s, and last renewed 15s ago.",
            ),
            (
                held("storer", (1, 2), None, NOW - 1),
                "The storers' shard 1 of 2: released 1s ago, and nobody has taken it since.",
            ),
        ] {
            let (is_worked_on, lines) = told(vec![storer, restorer()]);
            assert!(!is_worked_on, "{says}");
            assert_eq!(lines[0], says);
            assert!(lines[1].starts_with("So no storer works on it"), "{lines:?}");
        }
        assert!(told(vec![restorer()]).1[0].starts_with("No storer has a lease in namespace ns"));
    }

    #[test]
    fn what_is_left_of_another_number_of_replicas_is_not_told_of_while_somebody_is_at_work() {
        let storers = [held("storer", (1, 2), Some("old"), 0), held("storer", (0, 1), Some("new"), NOW)];
        let (is_worked_on, lines) =
            told([&storers[..], &[held("restorer", (0, 1), Some("r"), NOW)]].concat());
        assert!(is_worked_on);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("held by new"), "{lines:?}");
    }
}
