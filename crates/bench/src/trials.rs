//! Single changes, and the time until each has its effect.

use std::collections::HashMap;
use std::future::Future;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use sandbox::process::Guarded;
use sandbox::progress::Progress;
use serde_json::json;

use crate::cluster::Cluster;
use crate::machine::{Dress, Machine};
use crate::stage::Stage;
use crate::watch::{Sight, Watch};

/// The average time from the start of one trial to the start of the next. Trials overlap: a slow one does not delay the others.
const APART: Duration = Duration::from_millis(100);
/// A Node of a trial is absent for this long. Clouds do not delete and re-create a Node at the same instant.
const AWAY: Duration = Duration::from_secs(2);
/// The time limit for the effect of a change.
const LIMIT: Duration = Duration::from_secs(300);

/// A change, and the state of its Node afterwards.
struct Change {
    machine: Machine,
    /// The time of the request.
    sent: Instant,
    /// The incarnation and the version of the Node after the change.
    uid: String,
    version: u64,
}

impl Change {
    /// True if this sight shows the effect: it is of this incarnation, and of this version or a later one.
    fn shows_in(&self, sight: &Sight) -> bool {
        sight.machine == self.machine && sight.uid == self.uid && sight.version >= self.version
    }
}

/// From a label change to the record with that label, for each of these machines.
pub(crate) async fn label_changes(
    stage: &Stage,
    namespace: &str,
    machines: &[Machine],
    daemons: &[&Guarded],
) -> anyhow::Result<Vec<Duration>> {
    let mut watch = Watch::records(&stage.cluster, namespace).await?;
    // A new value for each run of the trials.
    let value = jiff::Timestamp::now().as_millisecond().to_string();
    let change = |machine| change_label(stage.cluster.clone(), machine, value.clone());
    run(stage, "label changes", machines, daemons, &mut watch, change).await
}

/// From a label change to its event on the bench's own watch, for each of these machines: the part of the API server.
pub(crate) async fn echoes(
    stage: &Stage,
    machines: &[Machine],
    daemons: &[&Guarded],
) -> anyhow::Result<Vec<Duration>> {
    let mut watch = Watch::whole_nodes(&stage.cluster).await?;
    let value = jiff::Timestamp::now().as_millisecond().to_string();
    let change = |machine| change_label(stage.cluster.clone(), machine, value.clone());
    run(stage, "label changes on a watch", machines, daemons, &mut watch, change).await
}

/// From the create of an absent Node to its restored labels, for each of these machines.
pub(crate) async fn returns(
    stage: &Stage,
    machines: &[Machine],
    daemons: &[&Guarded],
) -> anyhow::Result<Vec<Duration>> {
    let mut watch = Watch::whole_nodes(&stage.cluster).await?;
    let change = |machine| go_and_return(stage.cluster.clone(), machine);
    run(stage, "returns of nodes", machines, daemons, &mut watch, change).await
}

async fn change_label(cluster: Cluster, machine: Machine, value: String) -> anyhow::Result<Change> {
    let patch = json!({"metadata": {"labels": {"example.com/trial": value}}});
    let sent = Instant::now();
    let node = cluster.patch_node(machine, "kubectl-label", &patch).await?;
    Ok(Change { machine, sent, uid: node.uid, version: node.version })
}

async fn go_and_return(cluster: Cluster, machine: Machine) -> anyhow::Result<Change> {
    cluster.delete_node(machine).await?;
    tokio::time::sleep(AWAY).await;
    let sent = Instant::now();
    let node = cluster.create_node(machine, Dress::Bare).await?;
    Ok(Change { machine, sent, uid: node.uid, version: node.version })
}

async fn run<F: Future<Output = anyhow::Result<Change>>>(
    stage: &Stage,
    what: &str,
    machines: &[Machine],
    daemons: &[&Guarded],
    watch: &mut Watch,
    change: impl Fn(Machine) -> F,
) -> anyhow::Result<Vec<Duration>> {
    let mut progress = Progress::new(what, machines.len() as u64);
    let mut under_way = FuturesUnordered::new();
    let mut made: HashMap<Machine, Change> = HashMap::new();
    // An effect may be visible before the answer to its request.
    let mut seen: HashMap<Machine, Vec<Sight>> =
        machines.iter().map(|&machine| (machine, Vec::new())).collect();
    let mut times = Vec::with_capacity(machines.len());
    let mut to_start = machines.iter().enumerate();
    let mut next = Some(Instant::now());
    let mut check = tokio::time::interval(Duration::from_secs(1));
    let mut last_news = Instant::now();
    while times.len() < machines.len() {
        let start_at = next.unwrap_or_else(|| Instant::now() + LIMIT);
        let machine = tokio::select! {
            () = tokio::time::sleep_until(start_at.into()), if next.is_some() => {
                next = to_start.next().map(|(index, &machine)| {
                    under_way.push(change(machine));
                    start_at + pause(index)
                });
                continue;
            }
            Some(result) = under_way.next(), if !under_way.is_empty() => {
                let change: Change = result?;
                let machine = change.machine;
                made.insert(machine, change);
                machine
            }
            sight = watch.next() => {
                let sight = sight?;
                let machine = sight.machine;
                match seen.get_mut(&machine) {
                    Some(sights) => sights.push(sight),
                    None => continue,
                }
                machine
            }
            _ = check.tick() => {
                stage.check(daemons)?;
                let so_far = times.len();
                anyhow::ensure!(
                    last_news.elapsed() < LIMIT,
                    "{what}: {so_far} of {} had an effect, no progress for {} s", machines.len(), LIMIT.as_secs()
                );
                continue;
            }
        };
        let Some(change) = made.get(&machine) else { continue };
        let effect = seen.get(&machine).and_then(|sights| sights.iter().find(|sight| change.shows_in(sight)));
        if let Some(effect) = effect {
            times.push(effect.at.saturating_duration_since(change.sent));
            made.remove(&machine);
            seen.remove(&machine);
            last_news = Instant::now();
            progress.set(times.len() as u64);
        }
    }
    progress.clear();
    Ok(times)
}

/// Irregular, so that trials do not fall in step with periodic work.
fn pause(index: usize) -> Duration {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    APART.mul_f64(0.5 + (index as f64 * GOLDEN).fract())
}

/// `count` machines out of `nodes`, spread evenly, starting with number `from`.
pub(crate) fn spread(nodes: u32, count: u32, from: u32) -> Vec<Machine> {
    let count = count.min(nodes);
    let stride = nodes.checked_div(count).unwrap_or(1).max(1);
    (0..count).map(|index| Machine((index * stride + from % stride).min(nodes.saturating_sub(1)))).collect()
}

/// One machine in the shard of each replica, to check that all replicas work.
pub(crate) fn one_per_replica(nodes: u32, replicas: NonZeroU32) -> Vec<Machine> {
    let handles = |index| {
        Machine::first(nodes)
            .into_iter()
            .find(move |machine| label_storage::shard(&machine.name(), replicas) == index)
    };
    (0..replicas.get()).filter_map(handles).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn trials_are_spread_over_all_nodes() {
        assert_eq!(spread(1_000, 4, 0), [0, 250, 500, 750].map(Machine));
        assert_eq!(spread(1_000, 4, 251), [1, 251, 501, 751].map(Machine));
        assert_eq!(spread(3, 200, 5), [0, 1, 2].map(Machine));
        assert_eq!(spread(0, 5, 0), []);
        assert_eq!(spread(100_000, 200, 7).into_iter().collect::<HashSet<_>>().len(), 200);
    }

    #[test]
    fn pauses_are_uneven_and_right_on_average() {
        let total: Duration = (0..1_000).map(pause).sum();
        assert!((95.0..105.0).contains(&total.as_secs_f64()), "{total:?}");
        assert_ne!(pause(1), pause(2));
    }

    #[test]
    fn every_replica_has_a_machine() {
        let four = NonZeroU32::new(4).unwrap();
        let machines = one_per_replica(1_000, four);
        let shards: Vec<u32> =
            machines.iter().map(|machine| label_storage::shard(&machine.name(), four)).collect();
        assert_eq!(shards, [0, 1, 2, 3]);
    }

    #[test]
    fn an_effect_is_of_the_same_incarnation_and_no_older() {
        let now = Instant::now();
        let change = Change { machine: Machine(1), sent: now, uid: "u".to_owned(), version: 10 };
        let sight = |uid: &str, version| Sight { at: now, machine: Machine(1), uid: uid.to_owned(), version };
        assert!(change.shows_in(&sight("u", 10)));
        assert!(change.shows_in(&sight("u", 11)));
        assert!(!change.shows_in(&sight("u", 9)));
        assert!(!change.shows_in(&sight("v", 11)));
        assert!(!change.shows_in(&Sight { machine: Machine(2), ..sight("u", 10) }));
    }
}
