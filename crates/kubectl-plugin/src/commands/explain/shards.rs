//! Who works on a Node.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use jiff::Timestamp;
use label_storage::shard;
use label_storage_runtime::call::Error;

use crate::advice::Advice;
use crate::cluster::Cluster;
use crate::leases::Held;
use crate::liveness::Vigil;
use crate::output::age;

/// The daemons, as they call themselves.
const DAEMONS: [&str; 2] = ["storer", "restorer"];

/// For how long to look whether a lease is renewed that does not seem to be: holders do that every two seconds.
const PATIENCE: Duration = Duration::from_secs(6);

/// The leases of the shards that a Node is in.
pub(super) struct Holders {
    namespace: String,
    advice: Advice,
    filed_under: String,
    leases: Result<Vigil, Error>,
}

/// Replicas that share their work: of one daemon, one number and one `--nodes`.
type Group<'a> = (NonZeroU32, &'a str);

impl Holders {
    /// Reads all leases; where that is not allowed, it is said where they would be shown.
    pub(super) async fn read(cluster: &Cluster, filed_under: &str) -> Self {
        let is_clear = |vigil: &Vigil| {
            !DAEMONS.iter().any(|daemon| {
                let own: Vec<_> = own(vigil, daemon, filed_under).filter_map(|(_, held)| held).collect();
                let is_held = own.iter().any(|held| held.claim.holder.is_some());
                is_held && !own.iter().any(|held| vigil.is_alive(held))
            })
        };
        let waits = || eprintln!("looking for up to {} s whether leases are renewed", PATIENCE.as_secs());
        let (client, namespace) = (&cluster.client, &cluster.namespace);
        let leases = Vigil::keep(client, namespace, Timestamp::now, is_clear, PATIENCE, waits).await;
        let (namespace, advice) = (cluster.namespace.clone(), cluster.advice.clone());
        Self { namespace, advice, filed_under: filed_under.to_owned(), leases }
    }

    /// Whether they could be read.
    pub(super) fn are_known(&self) -> bool {
        self.leases.is_ok()
    }

    /// Whether both daemons work on it.
    pub(super) fn is_worked_on(&self) -> bool {
        let Ok(vigil) = &self.leases else { return false };
        let is_alive = |held: Option<&Held>| held.is_some_and(|held| vigil.is_alive(held));
        DAEMONS.iter().all(|daemon| own(vigil, daemon, &self.filed_under).any(|(_, held)| is_alive(held)))
    }

    /// In words.
    pub(super) fn sentences(&self, now: Timestamp) -> Vec<String> {
        let vigil = match &self.leases {
            Ok(vigil) => vigil,
            Err(error) => return vec![format!("Nobody can tell from here: {error}.")],
        };
        let is_alive = |held: Option<&Held>| held.is_some_and(|held| vigil.is_alive(held));
        let mut lines = Vec::new();
        for daemon in DAEMONS {
            let all: Vec<_> = own(vigil, daemon, &self.filed_under).collect();
            let is_some_alive = all.iter().any(|(_, held)| is_alive(*held));
            // Those of another number of replicas are left from before.
            let shown = all.iter().filter(|(_, held)| !is_some_alive || is_alive(*held));
            lines.extend(shown.map(|(group, held)| {
                sentence(daemon, *group, shard(&self.filed_under, group.0), *held, is_alive(*held), now)
            }));
            if all.is_empty() {
                lines.push(format!(
                    "No {daemon} has a lease in namespace {}: none runs there.",
                    self.namespace
                ));
            } else if !is_some_alive {
                let look = self.advice.in_namespace("get pods,leases");
                lines.push(format!("So no {daemon} works on it: see `{look}`."));
            }
        }
        lines
    }
}

/// The leases of the shards that something is in: for each group of replicas one, unless nobody ever took it.
fn own<'a>(
    vigil: &'a Vigil,
    daemon: &str,
    filed_under: &str,
) -> impl Iterator<Item = (Group<'a>, Option<&'a Held>)> + use<'a> {
    let mut own = BTreeMap::<Group<'_>, Option<&Held>>::new();
    for held in vigil.all.iter().filter(|held| held.daemon == daemon) {
        let mine = own.entry((held.replicas, &held.scope)).or_default();
        if held.index == shard(filed_under, held.replicas) {
            *mine = Some(held);
        }
    }
    own.into_iter()
}

fn sentence(
    daemon: &str,
    (replicas, scope): Group<'_>,
    index: u32,
    held: Option<&Held>,
    is_alive: bool,
    now: Timestamp,
) -> String {
    let only = if scope.is_empty() { "" } else { ", for nodes that its --nodes matches" };
    let shard = format!("The {daemon}s' shard {index} of {replicas}{only}");
    let Some(held) = held else { return format!("{shard}: nobody has taken it.") };
    let renewed = held.claim.renewed_at.map(|at| format!("{} ago", age(now.duration_since(at))));
    let renewed = renewed.unwrap_or_else(|| "at no known time".to_owned());
    match &held.claim.holder {
        None => format!("{shard}: released {renewed}, and nobody has taken it since."),
        Some(holder) if is_alive => {
            let adopted = if held.claim.home == Some(index) { "" } else { ", which has adopted it" };
            let since = held.acquired_at.map(|at| format!(" for {}", age(now.duration_since(at))));
            format!("{shard}: held by {holder}{}{adopted}, renewed {renewed}.", since.unwrap_or_default())
        }
        Some(holder) => format!("{shard}: last held by {holder}, and last renewed {renewed}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness::tests::held;

    const NOW: i64 = 1000;

    fn told(leases: Vec<Held>) -> (bool, Vec<String>) {
        let now = Timestamp::from_second(NOW).expect("a time");
        let mut vigil = Vigil::default();
        vigil.look(leases, now);
        let (namespace, filed_under) = ("ns".to_owned(), "node-1".to_owned());
        let holders = Holders { namespace, advice: Advice::default(), filed_under, leases: Ok(vigil) };
        (holders.is_worked_on(), holders.sentences(now))
    }

    #[test]
    fn only_the_nodes_own_shard_counts_and_only_while_it_is_renewed() {
        // Of two shards, the second is its own.
        assert_eq!(shard("node-1", NonZeroU32::new(2).expect("not zero")), 1);
        let restorer = || held("restorer", (0, 1), Some("r"), NOW);
        let storer = Held {
            acquired_at: Timestamp::from_second(NOW - 300).ok(),
            ..held("storer", (1, 2), Some("s"), NOW - 3)
        };
        let (is_worked_on, lines) = told(vec![storer, restorer()]);
        assert!(is_worked_on);
        assert_eq!(
            lines,
            [
                "The storers' shard 1 of 2: held by s for 5m, which has adopted it, renewed 3s ago.",
                "The restorers' shard 0 of 1: held by r, renewed 0s ago."
            ]
        );
        for (storer, says) in [
            (held("storer", (0, 2), Some("s"), NOW), "The storers' shard 1 of 2: nobody has taken it."),
            (
                held("storer", (1, 2), Some("s"), NOW - 16),
                "The storers' shard 1 of 2: last held by s, and last renewed 16s ago.",
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
