//! Several replicas: the holders of the shards when replicas end, return, or change their number.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use faults::{Fault, Request, Verb};
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{ListParams, PostParams};
use sandbox::process::Signal;
use serde_json::json;

use crate::daemon::Daemon;
use crate::scenario::{Labels, NO_LISTS, Scenario, labels};

/// Starts one replica of many.
fn replica(s: &Scenario, kind: &str, index: u32, replicas: u32) -> Result<Daemon> {
    s.daemon(kind, &["--replicas", &replicas.to_string(), "--replica-index", &index.to_string()])
}

/// The holders of the shards, as in `0-of-3`, by the index of the holder's home.
pub async fn holders(s: &Scenario, kind: &str) -> Result<BTreeMap<String, Option<String>>> {
    let leases: Api<Lease> = Api::namespaced(s.client.clone(), &s.namespace);
    let prefix = format!("label-storage.{kind}.");
    let all = leases.list(&ListParams::default()).await?.items.into_iter().filter_map(|lease| {
        let name = lease.metadata.name?.strip_prefix(&prefix)?.split('.').next()?.to_owned();
        let holder = lease.spec?.holder_identity.filter(|holder| !holder.is_empty());
        let index = holder.and_then(|holder| Some(holder.rsplit_once('-')?.1.to_owned()));
        Some((name, index))
    });
    Ok(all.collect())
}

fn held<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, Option<String>> {
    pairs.map(|(shard, holder)| (shard.to_owned(), Some(holder.to_owned()))).into()
}

pub async fn eventually_held<const N: usize>(
    s: &Scenario,
    kind: &str,
    pairs: [(&str, &str); N],
) -> Result<()> {
    s.eventually("holders", held(pairs), async || holders(s, kind).await).await
}

/// Waits until every shard of so many is held by one of these.
async fn eventually_held_by(s: &Scenario, kind: &str, replicas: u32, by: &[&str]) -> Result<()> {
    s.eventually(&format!("{replicas} shards held by {by:?}"), true, async || {
        let holders = holders(s, kind).await?;
        let mut shards = (0..replicas).map(|index| holders.get(&format!("{index}-of-{replicas}")));
        Ok(shards.all(|holder| matches!(holder, Some(Some(holder)) if by.contains(&holder.as_str()))))
    })
    .await
}

/// Enough nodes for some in each shard.
pub fn names(s: &Scenario) -> Vec<String> {
    (0..12).map(|number| s.node(&number.to_string())).collect()
}

pub async fn relabel(s: &Scenario, nodes: &[String], value: &str) -> Result<()> {
    try_join_all(nodes.iter().map(|node| s.label(node, [("pool", Some(value))]))).await?;
    Ok(())
}

pub fn pool(value: &str) -> Labels {
    labels([("pool", value)])
}

pub async fn eventually_all_stored(s: &Scenario, nodes: &[String], value: &str) -> Result<()> {
    for node in nodes {
        s.eventually_stored(node, pool(value)).await?;
    }
    Ok(())
}

pub async fn create_all(s: &Scenario, nodes: &[String], labels: Labels) -> Result<()> {
    try_join_all(nodes.iter().map(|node| s.create(node, labels.clone()))).await?;
    Ok(())
}

pub async fn a_shard_whose_replica_was_killed_is_adopted_and_given_back(s: &Scenario) -> Result<()> {
    let nodes = names(s);
    create_all(s, &nodes, pool("gold")).await?;
    let (_storers, _restorers) = (
        [replica(s, "storer", 0, 3)?, replica(s, "storer", 1, 3)?],
        [replica(s, "restorer", 1, 3)?, replica(s, "restorer", 2, 3)?],
    );
    let (storer, restorer) = (replica(s, "storer", 2, 3)?, replica(s, "restorer", 0, 3)?);
    let home = [("0-of-3", "0"), ("1-of-3", "1"), ("2-of-3", "2")];
    eventually_held(s, "storer", home).await?;
    eventually_held(s, "restorer", home).await?;
    eventually_all_stored(s, &nodes, "gold").await?;
    for daemon in [storer, restorer] {
        daemon.process.signal(Signal::KILL)?;
    }
    relabel(s, &nodes, "silver").await?;
    eventually_all_stored(s, &nodes, "silver").await?;
    eventually_held_by(s, "storer", 3, &["0", "1"]).await?;
    try_join_all(nodes.iter().map(|node| s.delete(node))).await?;
    create_all(s, &nodes, Labels::new()).await?;
    for node in &nodes {
        s.eventually_labelled(node, pool("silver")).await?;
    }
    eventually_held_by(s, "restorer", 3, &["1", "2"]).await?;
    let _back = (replica(s, "storer", 2, 3)?, replica(s, "restorer", 0, 3)?);
    eventually_held(s, "storer", home).await?;
    eventually_held(s, "restorer", home).await?;
    relabel(s, &nodes, "bronze").await?;
    eventually_all_stored(s, &nodes, "bronze").await
}

pub async fn with_all_but_one_gone_that_one_does_all_the_work(s: &Scenario) -> Result<()> {
    let nodes = names(s);
    create_all(s, &nodes, pool("gold")).await?;
    let storer = replica(s, "storer", 1, 3)?;
    // The others never come.
    eventually_held(s, "storer", [("0-of-3", "1"), ("1-of-3", "1"), ("2-of-3", "1")]).await?;
    eventually_all_stored(s, &nodes, "gold").await?;
    relabel(s, &nodes, "silver").await?;
    eventually_all_stored(s, &nodes, "silver").await?;
    ensure!(storer.has_logged(&["adopted a shard", "shard=0"]), "it says so");
    Ok(())
}

pub async fn a_replica_that_is_asked_to_end_hands_its_shard_over(s: &Scenario) -> Result<()> {
    let nodes = names(s);
    create_all(s, &nodes, pool("gold")).await?;
    let (_first, second) = (replica(s, "storer", 0, 2)?, replica(s, "storer", 1, 2)?);
    eventually_held(s, "storer", [("0-of-2", "0"), ("1-of-2", "1")]).await?;
    eventually_all_stored(s, &nodes, "gold").await?;
    second.process.signal(Signal::TERM)?;
    let exit = second.exit().await?;
    ensure!(exit.success(), "{exit:?}");
    // It has ended only after the other one took over, so no lease had to expire.
    eventually_held(s, "storer", [("0-of-2", "0"), ("1-of-2", "0")]).await?;
    relabel(s, &nodes, "silver").await?;
    eventually_all_stored(s, &nodes, "silver").await
}

/// The replicas of one daemon while their number changes, as a StatefulSet rolls them.
struct Rolling<'a> {
    s: &'a Scenario,
    running: BTreeMap<(u32, u32), Daemon>,
    /// The last holder of each shard, as `(index, N)`. It keeps working until another replica has adopted the shard.
    last: BTreeMap<String, (u32, u32)>,
    looks: usize,
}

impl Rolling<'_> {
    fn start(&mut self, index: u32, replicas: u32) -> Result<()> {
        self.running.insert((index, replicas), replica(self.s, "storer", index, replicas)?);
        Ok(())
    }

    /// True if every node has a running replica: all shards of one of the numbers have a holder.
    async fn look(&mut self) -> Result<()> {
        let holders = holders(self.s, "storer").await?;
        self.running.retain(|_, daemon| daemon.process.try_wait().is_none());
        let mut is_covered = false;
        for replicas in [2, 3, 5] {
            let mut is_complete = true;
            for shard in (0..replicas).map(|index| format!("{index}-of-{replicas}")) {
                if let Some(Some(holder)) = holders.get(&shard) {
                    self.last.insert(shard.clone(), (holder.parse()?, replicas));
                }
                is_complete &= self.last.get(&shard).is_some_and(|holder| self.running.contains_key(holder));
            }
            is_covered |= is_complete;
        }
        ensure!(is_covered, "some nodes are nobody's: {holders:?}, running: {:?}", self.running.keys());
        self.looks += 1;
        Ok(())
    }

    async fn look_until(&mut self, mut is_true: impl AsyncFnMut(&Self) -> Result<bool>) -> Result<()> {
        while !is_true(self).await? {
            self.look().await?;
        }
        Ok(())
    }

    /// Waits until this replica holds what is its own.
    async fn until_home(&mut self, index: u32, replicas: u32) -> Result<()> {
        let (shard, home) = (format!("{index}-of-{replicas}"), Some(index.to_string()));
        self.look_until(async |rolling| Ok(holders(rolling.s, "storer").await?.get(&shard) == Some(&home)))
            .await
    }

    /// Waits until all of so many shards are held.
    async fn until_complete(&mut self, replicas: u32) -> Result<()> {
        self.look_until(async |rolling| {
            let holders = holders(rolling.s, "storer").await?;
            let mut shards = (0..replicas).map(|index| holders.get(&format!("{index}-of-{replicas}")));
            Ok(shards.all(|holder| matches!(holder, Some(Some(_)))))
        })
        .await
    }

    async fn stop(&mut self, index: u32, replicas: u32) -> Result<()> {
        let daemon = self.running.get(&(index, replicas)).context("it runs")?;
        daemon.process.signal(Signal::TERM)?;
        self.look_until(async |rolling| Ok(!rolling.running.contains_key(&(index, replicas)))).await
    }
}

pub async fn while_their_number_changes_every_node_is_some_replicas(s: &Scenario) -> Result<()> {
    let nodes = names(s);
    create_all(s, &nodes, pool("gold")).await?;
    let mut rolling = Rolling { s, running: BTreeMap::new(), last: BTreeMap::new(), looks: 0 };
    for index in 0..3 {
        rolling.start(index, 3)?;
    }
    eventually_held(s, "storer", [("0-of-3", "0"), ("1-of-3", "1"), ("2-of-3", "2")]).await?;
    rolling.look().await?;
    // Three become five: two more, and then one after the other is replaced, the last first.
    for index in [3, 4] {
        rolling.start(index, 5)?;
    }
    rolling.until_complete(5).await?;
    for index in [2, 1, 0] {
        rolling.stop(index, 3).await?;
        rolling.start(index, 5)?;
        rolling.until_home(index, 5).await?;
    }
    relabel(s, &nodes, "silver").await?;
    eventually_all_stored(s, &nodes, "silver").await?;
    // Five become two.
    for index in [4, 3, 2] {
        rolling.stop(index, 5).await?;
    }
    rolling.stop(1, 5).await?;
    rolling.start(1, 2)?;
    rolling.until_complete(2).await?;
    rolling.stop(0, 5).await?;
    rolling.start(0, 2)?;
    rolling.until_home(0, 2).await?;
    relabel(s, &nodes, "bronze").await?;
    eventually_all_stored(s, &nodes, "bronze").await
}

/// Changes each node's label and deletes it at once.
async fn change_and_delete(s: &Scenario, nodes: &[String]) -> Result<()> {
    relabel(s, nodes, "silver").await?;
    try_join_all(nodes.iter().map(|node| s.delete(node))).await?;
    Ok(())
}

async fn eventually_remembered(s: &Scenario, nodes: &[String]) -> Result<()> {
    for node in nodes {
        s.eventually(&format!("last label of {node}"), pool("silver"), async || {
            Ok(s.record(node).await?.context("no record")?.labels)
        })
        .await?;
    }
    Ok(())
}

/// Waits until the position in each lease is beyond this.
async fn eventually_beyond(s: &Scenario, node: &str) -> Result<()> {
    let version: u64 = s.get(node).await?.metadata.resource_version.context("a version")?.parse()?;
    s.eventually("a position beyond the last change", true, async || {
        let leases: Api<Lease> = Api::namespaced(s.client.clone(), &s.namespace);
        let positions = leases.list(&ListParams::default()).await?.items.into_iter().map(|lease| {
            let position = lease.metadata.annotations?.remove("label-storage/position")?;
            Some(position.parse::<u64>().ok()? >= version)
        });
        Ok(positions.collect::<Option<Vec<_>>>().is_some_and(|all| all.iter().all(|is_beyond| *is_beyond)))
    })
    .await
}

pub async fn a_lease_has_a_position_before_its_first_renewal(s: &Scenario) -> Result<()> {
    let _storer = s.storer(&[])?;
    let leases: Api<Lease> = Api::namespaced(s.client.clone(), &s.namespace);
    // Without a renewal, the lease is at most this old.
    let renewal = SignedDuration::from_secs(5);
    s.eventually("a position before the first renewal", true, async || {
        let is_early = |lease: Lease| {
            let (spec, annotations) = (lease.spec?, lease.metadata.annotations?);
            let age = spec.renew_time?.0.duration_since(spec.acquire_time?.0);
            Some(annotations.contains_key("label-storage/position") && age < renewal)
        };
        Ok(leases
            .list(&ListParams::default())
            .await?
            .items
            .into_iter()
            .any(|lease| is_early(lease) == Some(true)))
    })
    .await
}

pub async fn what_was_changed_and_deleted_while_the_storer_was_replaced_is_stored(
    s: &Scenario,
) -> Result<()> {
    let nodes = names(s);
    create_all(s, &nodes, pool("gold")).await?;
    let storer = s.storer(&[])?;
    eventually_all_stored(s, &nodes, "gold").await?;
    eventually_beyond(s, &nodes[11]).await?;
    storer.process.signal(Signal::KILL)?;
    storer.exit().await?;
    let (first, rest) = nodes.split_at(4);
    change_and_delete(s, first).await?;
    let storer = s.storer(&[])?;
    eventually_remembered(s, first).await?;
    // Of another number of replicas, too.
    storer.process.signal(Signal::KILL)?;
    storer.exit().await?;
    let (second, third) = rest.split_at(4);
    change_and_delete(s, second).await?;
    let (one, two) = (replica(s, "storer", 0, 2)?, replica(s, "storer", 1, 2)?);
    eventually_remembered(s, second).await?;
    // And an adopter.
    eventually_held(s, "storer", [("0-of-1", "0"), ("0-of-2", "0"), ("1-of-2", "1")]).await?;
    two.process.signal(Signal::KILL)?;
    two.exit().await?;
    change_and_delete(s, third).await?;
    eventually_remembered(s, third).await?;
    ensure!(one.has_logged(&["adopted a shard", "shard=1"]));
    Ok(())
}

pub async fn history_that_the_server_has_forgotten_is_missed_aloud(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    s.create(&node, pool("gold")).await?;
    let storer = s.storer(&[])?;
    s.eventually_stored(&node, pool("gold")).await?;
    eventually_beyond(s, &node).await?;
    storer.process.signal(Signal::TERM)?;
    storer.exit().await?;
    s.label(&node, [("pool", Some("silver"))]).await?;
    let mut is_first = true;
    let proxy = s.proxy(move |request: &Request| {
        let resumes = request.verb == Verb::Watch && request.resource == "nodes";
        if resumes && std::mem::take(&mut is_first) { Fault::ExpiredWatch } else { Fault::None }
    });
    let proxy = proxy.await?;
    let storer = s.daemon_through(&proxy, "storer", &["--admin-address", "127.0.0.1:0"])?;
    s.eventually("a word about it", true, async || {
        Ok(storer.has_logged(&["WARN", "can't be resumed", "may be lost"]))
    })
    .await?;
    storer.eventually_counted(s, "watch_history_lost_total", &[], 1.0).await?;
    s.eventually_stored(&node, pool("silver")).await?;
    eventually_beyond(s, &node).await
}

pub async fn a_replica_that_sleeps_longer_than_its_lease_does_no_harm(s: &Scenario) -> Result<()> {
    let nodes = names(s);
    create_all(s, &nodes, pool("gold")).await?;
    let (one, two) = (replica(s, "storer", 0, 2)?, replica(s, "storer", 1, 2)?);
    let (_three, four) = (replica(s, "restorer", 0, 2)?, replica(s, "restorer", 1, 2)?);
    let home = [("0-of-2", "0"), ("1-of-2", "1")];
    eventually_held(s, "storer", home).await?;
    eventually_held(s, "restorer", home).await?;
    eventually_all_stored(s, &nodes, "gold").await?;
    for daemon in [&two, &four] {
        daemon.process.signal(Signal::STOP)?;
    }
    // The others see the changes of this time.
    relabel(s, &nodes, "silver").await?;
    eventually_held(s, "storer", [("0-of-2", "0"), ("1-of-2", "0")]).await?;
    eventually_held(s, "restorer", [("0-of-2", "0"), ("1-of-2", "0")]).await?;
    eventually_all_stored(s, &nodes, "silver").await?;
    relabel(s, &nodes, "bronze").await?;
    eventually_all_stored(s, &nodes, "bronze").await?;
    try_join_all(nodes.iter().map(|node| s.delete(node))).await?;
    create_all(s, &nodes, Labels::new()).await?;
    for node in &nodes {
        s.eventually_labelled(node, pool("bronze")).await?;
    }
    for daemon in [&two, &four] {
        daemon.process.signal(Signal::CONT)?;
    }
    eventually_held(s, "storer", home).await?;
    eventually_held(s, "restorer", home).await?;
    s.eventually("the adopter gives it back", true, async || Ok(one.has_logged(&["handed a shard over"])))
        .await?;
    for node in &nodes {
        s.eventually_labelled(node, pool("bronze")).await?;
        s.eventually_stored(node, pool("bronze")).await?;
    }
    Ok(())
}

pub async fn during_an_outage_leases_are_asked_for_ever_more_rarely(s: &Scenario) -> Result<()> {
    // Pauses are random: with fewer shards, chance decides.
    const SHARDS: usize = 6;
    const CALLS: usize = 8;
    let (is_down, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(BTreeMap::new())));
    let (down, at) = (Arc::clone(&is_down), Arc::clone(&asked));
    let proxy = s.proxy(move |request: &Request| {
        if !down.load(Ordering::Relaxed) {
            return Fault::None;
        }
        if request.resource == "leases" {
            let mut at = at.lock().expect("no panic");
            at.entry(request.name.clone()).or_insert_with(Vec::new).push(Instant::now());
        }
        Fault::ResetBefore
    });
    let proxy = proxy.await?;
    let replicas = SHARDS.to_string();
    let storer = s.daemon_through(&proxy, "storer", &["--replicas", &replicas, "--replica-index", "0"])?;
    let leases: [_; SHARDS] = std::array::from_fn(|index| format!("{index}-of-{SHARDS}"));
    eventually_held(s, "storer", leases.each_ref().map(|lease| (lease.as_str(), "0"))).await?;
    is_down.store(true, Ordering::Relaxed);
    // Of each lease, the first and the last pause between calls.
    let pauses = || {
        let asked = asked.lock().expect("no panic");
        let enough = asked.values().filter_map(|at| at.first_chunk::<CALLS>());
        enough.map(|at| (at[1] - at[0], at[CALLS - 1] - at[CALLS - 2])).collect::<Vec<_>>()
    };
    s.eventually("many calls have failed", true, async || Ok(pauses().len() >= SHARDS)).await?;
    is_down.store(false, Ordering::Relaxed);
    let (first, last): (Vec<_>, Vec<_>) = pauses().into_iter().unzip();
    let (first, last): (Duration, Duration) = (first.iter().sum(), last.iter().sum());
    ensure!(last >= 2 * first, "the first pauses are {first:?} in all, the last {last:?}");
    s.eventually("the leases are kept again", true, async || {
        Ok(storer.has_logged(&["leases can be renewed again"]))
    })
    .await
}

/// Four replicas renew their leases 40 times in a minute. In pods there are 12 requests more: they read their StatefulSet.
pub async fn idle_replicas_make_few_requests_beside_renewals(s: &Scenario) -> Result<()> {
    const RENEWALS: u32 = 40;
    const OTHERS: u32 = 32;
    let counts = Arc::new(Mutex::new(BTreeMap::<_, u32>::new()));
    let counted = Arc::clone(&counts);
    let proxy = s.proxy(move |request: &Request| {
        let call = format!("{:?} {}", request.verb, request.resource);
        *counted.lock().expect("no panic").entry(call).or_default() += 1;
        Fault::None
    });
    let proxy = proxy.await?;
    let mut daemons = Vec::new();
    for kind in ["storer", "restorer"] {
        for index in ["0", "1"] {
            let flags = [&["--replicas", "2", "--replica-index", index][..], &NO_LISTS].concat();
            daemons.push(s.daemon_through(&proxy, kind, &flags)?);
        }
        eventually_held(s, kind, [("0-of-2", "0"), ("1-of-2", "1")]).await?;
    }
    for daemon in &daemons {
        s.is_watching(daemon).await?;
    }
    let renewals = || counts.lock().expect("no panic").get("Update leases").copied().unwrap_or_default();
    // Two lists of leases follow when a lease has changed hands.
    let before = renewals();
    s.eventually("each renews its lease", true, async || Ok(renewals() >= before + 4)).await?;
    counts.lock().expect("no panic").clear();
    s.eventually_after("some renewals", true, async || Ok(renewals() >= RENEWALS)).await?;
    let counts = counts.lock().expect("no panic").clone();
    let others = counts.values().sum::<u32>() - counts["Update leases"];
    ensure!(others <= OTHERS, "{others} requests beside {RENEWALS} renewals: {counts:?}");
    Ok(())
}

/// An account that may create leases can create many large ones, with the names of shards.
pub async fn many_large_leases_do_not_fill_the_memory(s: &Scenario) -> Result<()> {
    const MOST_KB: u64 = 120_000;
    let leases: Api<Lease> = Api::namespaced(s.client.clone(), &s.namespace);
    let filler = "x".repeat(200_000);
    let create = async |index: u32| -> Result<()> {
        let lease = json!({
            "metadata": {
                "name": format!("label-storage.storer.{index}-of-280"),
                "labels": {"app.kubernetes.io/managed-by": "label-storage", "app.kubernetes.io/name": "storer"},
                "annotations": {"filler": filler},
            },
        });
        leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
        Ok(())
    };
    let created = stream::iter(0..280).map(create).buffer_unordered(8);
    created.try_collect::<()>().await?;
    let storer = s.storer(&[])?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", storer.process.pid()))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("a peak")?;
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse()?;
    ensure!(peak < MOST_KB, "{peak} kB");
    Ok(())
}
