//! Random histories against an oracle.
//!
//! A thousand nodes are created, labelled, unlabelled, deleted and re-created at random while daemons are killed and
//! started again. Beside them the oracle, a map in memory, says what each node's labels must be. It promises only what
//! Label Storage does: a change survives if it was stored before the node was deleted, so a node is deleted only once
//! its record holds what the oracle says.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt};
use kube::api::ListParams;
use label_storage::Record;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use sandbox::process::Signal;

use crate::scenario::{Daemon, Labels, Scenario};

/// Names the seed of a run that is to be repeated.
pub const SEED: &str = "LABEL_STORAGE_TEST_SEED";
const NODES: usize = 1000;
const ROUNDS: usize = 8;
/// How many nodes something happens to in one round.
const EVENTS: usize = 250;
const SHARDS: usize = 2;
const KEYS: [&str; 6] = ["pool", "example.com/rack", "a-SLASH-b", "a/b", "topology.example.com/zone", "tier"];
const VALUES: [&str; 4] = ["", "gold", "silver", "x-1"];

/// The seed of this run: from the environment, or else a new one.
pub fn seed() -> u64 {
    std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random)
}

/// What the oracle knows of one node.
#[derive(Default, Clone)]
struct Fate {
    /// The labels that it must have in the end.
    labels: Labels,
    lives: bool,
}

/// What happens to one node.
#[derive(Debug, Clone)]
enum Event {
    Set(&'static str, &'static str),
    Remove(&'static str),
    Delete,
    /// With labels of its own, as a kubelet's.
    Create(Labels),
    /// Deleted and at once created, faster than any loop.
    Blink,
}

struct Oracle {
    fates: BTreeMap<String, Fate>,
    random: SmallRng,
}

impl Oracle {
    fn labels(&mut self) -> Labels {
        let mut labels = Labels::new();
        for key in KEYS {
            if self.random.random_ratio(1, 3) {
                labels.insert(key.to_owned(), self.value().to_owned());
            }
        }
        labels
    }

    fn value(&mut self) -> &'static str {
        VALUES.choose(&mut self.random).expect("some")
    }

    fn event(&mut self, node: &str) -> Event {
        if !self.fates[node].lives {
            return Event::Create(if self.random.random_ratio(1, 2) { Labels::new() } else { self.labels() });
        }
        let (key, value) = (KEYS.choose(&mut self.random).expect("some"), self.value());
        match self.random.random_range(0..10) {
            0..4 => Event::Set(key, value),
            4..6 => Event::Remove(key),
            6..9 => Event::Delete,
            _ => Event::Blink,
        }
    }

    fn foresee(&mut self, node: &str, event: &Event) {
        let fate = self.fates.entry(node.to_owned()).or_default();
        match event {
            Event::Set(key, value) => drop(fate.labels.insert((*key).to_owned(), (*value).to_owned())),
            Event::Remove(key) => drop(fate.labels.remove(*key)),
            Event::Delete => fate.lives = false,
            Event::Create(own) => {
                fate.lives = true;
                // What the node brings along is never overwritten.
                fate.labels.extend(own.clone());
            }
            Event::Blink => (),
        }
    }
}

pub async fn random_histories_of_a_thousand_nodes_end_as_an_oracle_says(s: &Scenario) -> Result<()> {
    let seed = seed();
    let history =
        format!("to repeat this history: {SEED}={seed} cargo test --test scenarios random_histories");
    println!("{history}");
    histories(s, seed).await.context(history)
}

async fn histories(s: &Scenario, seed: u64) -> Result<()> {
    let mut oracle = Oracle { fates: BTreeMap::new(), random: SmallRng::seed_from_u64(seed) };
    let names: Vec<_> = (0..NODES).map(|i| s.node(&format!("n{i:03}"))).collect();
    let mut daemons = Vec::new();
    for kind in ["storer", "restorer"] {
        for index in 0..SHARDS {
            daemons.push((kind, index, daemon(s, kind, index)?));
        }
    }
    let births = names.iter().map(|name| (name.clone(), Event::Create(oracle.labels()))).collect();
    carry_out(s, &mut oracle, births).await?;

    for _ in 0..ROUNDS {
        let mut chosen = BTreeSet::new();
        while chosen.len() < EVENTS {
            chosen.insert(oracle.random.random_range(0..NODES));
        }
        let events: Vec<_> = chosen.iter().map(|&i| (names[i].clone(), oracle.event(&names[i]))).collect();
        // A label is removed for good, and a node deleted without loss, once what went before is stored.
        let settled: BTreeSet<_> = events
            .iter()
            .filter(|(_, event)| !matches!(event, Event::Create(_) | Event::Set(..)))
            .map(|(node, _)| node.clone())
            .collect();
        until_right(s, &oracle, &settled).await?;

        let crash = oracle.random.random_range(0..daemons.len());
        daemons[crash].2.process.signal(Signal::KILL)?;
        carry_out(s, &mut oracle, events).await?;
        let (kind, index, _) = daemons[crash];
        daemons[crash].2 = daemon(s, kind, index)?;
    }

    let away: Vec<_> =
        oracle.fates.iter().filter(|(_, fate)| !fate.lives).map(|(node, _)| node.clone()).collect();
    ensure!(!away.is_empty(), "a history without a deletion says little");
    carry_out(s, &mut oracle, away.into_iter().map(|node| (node, Event::Create(Labels::new()))).collect())
        .await?;
    until_right(s, &oracle, &names.into_iter().collect()).await
}

fn daemon(s: &Scenario, kind: &str, index: usize) -> Result<Daemon> {
    let (replicas, index) = (SHARDS.to_string(), index.to_string());
    s.daemon(kind, &["--replicas", &replicas, "--replica-index", &index, "--log-level", "info"])
}

async fn carry_out(s: &Scenario, oracle: &mut Oracle, events: Vec<(String, Event)>) -> Result<()> {
    for (node, event) in &events {
        oracle.foresee(node, event);
    }
    let carried_out = futures::stream::iter(events).map(|(node, event)| async move {
        match event {
            Event::Set(key, value) => s.label(&node, [(key, Some(value))]).await,
            Event::Remove(key) => s.label(&node, [(key, None)]).await,
            Event::Delete => s.delete(&node).await,
            Event::Create(own) => s.create(&node, own).await,
            Event::Blink => {
                s.delete(&node).await?;
                s.create(&node, Labels::new()).await
            }
        }
    });
    carried_out.buffer_unordered(8).try_collect::<()>().await
}

/// Waits until these nodes, and what is stored of them, are as the oracle says.
async fn until_right(s: &Scenario, oracle: &Oracle, nodes: &BTreeSet<String>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(180);
    loop {
        let wrong = wrong(s, oracle, nodes).await?;
        if wrong.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!(
                "{} of {} nodes never became right, such as {:#?}",
                wrong.len(),
                nodes.len(),
                &wrong[..wrong.len().min(3)]
            );
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn wrong(s: &Scenario, oracle: &Oracle, nodes: &BTreeSet<String>) -> Result<Vec<String>> {
    let list = s.nodes.list_metadata(&ListParams::default()).await?.items;
    let live: HashMap<_, _> = list
        .into_iter()
        .map(|node| (node.metadata.name.clone().unwrap_or_default(), node.metadata))
        .collect();
    let records = s.config_maps.list(&ListParams::default()).await?.items;
    let records: HashMap<_, _> = records
        .iter()
        .filter_map(|config_map| Record::decode(config_map).ok())
        .map(|decoded| (decoded.record.node.clone(), decoded.record))
        .collect();
    let mut wrong = Vec::new();
    for name in nodes {
        let expected = &oracle.fates[name].labels;
        let Some(meta) = live.get(name) else {
            wrong.push(format!("{name} is missing"));
            continue;
        };
        let found = meta.labels.clone().unwrap_or_default();
        let record = records.get(name);
        let stored = record.map(|record| record.labels.clone()).unwrap_or_default();
        // A record of an earlier incarnation is right only by chance: what it says next is up to this one.
        let is_own = record.is_none_or(|record| record.uid.as_ref().map(ToString::to_string) == meta.uid);
        if found != *expected || stored != *expected || !is_own {
            wrong.push(format!(
                "{name}: expected {expected:?}, node has {found:?}, stored {stored:?}, own record {is_own}"
            ));
        }
    }
    Ok(wrong)
}
