//! Hundreds of malformed ConfigMaps with the names of records.
//!
//! Every label value names the node that it belongs to, so that one on the wrong node shows.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams};
use label_storage::name::record_name;
use label_storage::record::{
    CAPTURED_AT, DEPARTED_AT, GENERATION, LABELS_GENERATION, MANAGED_BY, NODE, NODE_RESOURCE_VERSION,
    NODE_UID,
};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::scenario::{Labels, SEED, Scenario, labels, seed};

const COUNT: usize = 240;

/// An edit of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It is as it should be.
    Valid,
    /// One label is; all else is noise.
    Noise,
    /// As large as they get.
    Huge,
    /// A ConfigMap that is not a record.
    Foreign,
    /// It claims to be another node's.
    Claim,
}

/// One node and its record.
struct Case {
    node: String,
    /// The value of each of its labels.
    mark: String,
    kind: Kind,
    /// There from the beginning, or back later, or never.
    is_there: bool,
    returns: bool,
}

impl Case {
    fn is_restored(&self) -> bool {
        (self.is_there || self.returns) && !matches!(self.kind, Kind::Foreign | Kind::Claim)
    }
}

const TEXTS: [&str; 16] = [
    "",
    " ",
    "0",
    "1",
    "-1",
    "18446744073709551615",
    "18446744073709551616",
    "many",
    "../../etc/passwd",
    "$(reboot)",
    "\u{0}",
    "\u{202e}gold",
    "💥",
    "a/b/c",
    "2026-11-16T06:48:56Z",
    "+999999999-01-01T00:00:00Z",
];

/// All that the API server takes as a key, and that is no label's.
const KEYS: [&str; 12] = [
    "-SLASH-",
    "-SLASH-a",
    "a-SLASH-",
    "-DASH-",
    "-X2A-",
    "-XZZ-",
    "-LONG-00",
    "-DOT-",
    "_",
    "-",
    ".a",
    "a-SLASH-b-SLASH-c",
];

fn record(case: &Case, random: &mut SmallRng) -> ConfigMap {
    let mut annotations = BTreeMap::from([(NODE.to_owned(), case.node.clone())]);
    let mut data = BTreeMap::from([("own".to_owned(), case.mark.clone())]);
    let mut binary = BTreeMap::new();
    match case.kind {
        Kind::Valid => {
            let sound = [
                (NODE_UID, "nobody"),
                (NODE_RESOURCE_VERSION, "1"),
                (GENERATION, "3"),
                (LABELS_GENERATION, "2"),
            ];
            annotations.extend(sound.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        Kind::Noise => {
            for name in
                [NODE_UID, NODE_RESOURCE_VERSION, GENERATION, LABELS_GENERATION, CAPTURED_AT, DEPARTED_AT]
            {
                if random.random_ratio(3, 4) {
                    annotations.insert(name.to_owned(), text(random));
                }
            }
            if random.random_ratio(1, 4) {
                annotations.remove(NODE);
            }
            for _ in 0..random.random_range(0..8) {
                let key = KEYS.choose(random).copied().unwrap_or_default();
                data.insert(key.to_owned(), text(random));
            }
            data.insert("value".to_owned(), format!("{} {}", case.mark, text(random)));
            if random.random_ratio(1, 3) {
                let bytes = (0..random.random_range(0..64)).map(|_| random.random()).collect();
                binary.insert("blob".to_owned(), ByteString(bytes));
            }
        }
        Kind::Huge => {
            data.insert("huge".to_owned(), "x".repeat(1_000_000));
        }
        Kind::Foreign => annotations.clear(),
        Kind::Claim => {
            annotations.insert(NODE.to_owned(), format!("{}-another", case.node));
        }
    }
    let mut config_map = ConfigMap { data: Some(data), ..ConfigMap::default() };
    config_map.binary_data = (!binary.is_empty()).then_some(binary);
    config_map.metadata.name = Some(record_name(&case.node));
    config_map.metadata.annotations = Some(annotations);
    config_map.metadata.labels = (case.kind != Kind::Foreign)
        .then(|| BTreeMap::from([(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned())]));
    config_map
}

fn text(random: &mut SmallRng) -> String {
    let text = TEXTS.choose(random).copied().unwrap_or_default();
    if random.random_ratio(1, 6) { text.repeat(200) } else { text.to_owned() }
}

pub async fn hundreds_of_hostile_records_do_no_harm(s: &Scenario) -> Result<()> {
    let seed = seed();
    among_hostile_records(s, seed).await.with_context(|| {
        format!("to repeat this: {SEED}={seed} cargo test --test scenarios hundreds_of_hostile")
    })
}

async fn among_hostile_records(s: &Scenario, seed: u64) -> Result<()> {
    let mut random = SmallRng::seed_from_u64(seed);
    let cases: Vec<Case> = (0..COUNT)
        .map(|number| {
            let kind = match number % 20 {
                0 => Kind::Foreign,
                1 => Kind::Claim,
                2..5 => Kind::Valid,
                5 if number < 60 => Kind::Huge,
                _ => Kind::Noise,
            };
            let (is_there, returns) = (number % 3 == 0, number % 3 == 1);
            Case { node: s.node(&format!("n{number}")), mark: format!("n{number}"), kind, is_there, returns }
        })
        .collect();
    let records: Vec<ConfigMap> = cases.iter().map(|case| record(case, &mut random)).collect();
    let create = async |record: &ConfigMap| {
        s.config_maps.create(&PostParams::default(), record).await.map(drop).context("create a record")
    };
    futures::stream::iter(&records).map(create).buffer_unordered(8).try_collect::<()>().await?;
    let appear = async |case: &Case| s.create(&case.node, labels([("mine", &case.mark)])).await;
    let there = cases.iter().filter(|case| case.is_there);
    futures::stream::iter(there).map(appear).buffer_unordered(8).try_collect::<()>().await?;

    let (storer, restorer) = s.pair()?;
    let returning = cases.iter().filter(|case| case.returns);
    futures::stream::iter(returning).map(appear).buffer_unordered(8).try_collect::<()>().await?;

    // The valid entry of each, and nothing else: whatever is no label, or another's, stays where it is.
    let expected: BTreeMap<String, Labels> = cases
        .iter()
        .filter(|case| case.is_there || case.returns)
        .map(|case| {
            let mut expected = labels([("mine", &case.mark)]);
            if case.is_restored() {
                expected.insert("own".to_owned(), case.mark.clone());
            }
            (case.node.clone(), expected)
        })
        .collect();
    s.eventually("what can be restored, is", expected, async || {
        let mut nodes = s.nodes.list(&ListParams::default()).await?.items;
        nodes.retain(|node| node.metadata.name.as_ref().is_some_and(|name| name.starts_with(&s.node(""))));
        let labels = nodes
            .into_iter()
            .map(|node| (node.metadata.name.unwrap_or_default(), node.metadata.labels.unwrap_or_default()));
        Ok(labels.collect::<BTreeMap<_, _>>())
    })
    .await?;

    for (case, before) in cases.iter().zip(&records).filter(|(case, _)| !case.is_restored()) {
        let after = s.config_map(&case.node).await?.context("a record is gone")?;
        ensure!(after.data == before.data, "{:?} record of {} has changed", case.kind, case.node);
    }
    for daemon in [&storer, &restorer] {
        let log = daemon.log();
        ensure!(!log.contains("panicked"), "a panic");
        ensure!(!log.contains("(422)"), "something was sent that is no label");
        ensure!(daemon.process.try_wait().is_none(), "a daemon has ended");
    }
    // And they still work.
    let node = s.node("last");
    s.leaves_and_returns(&node, &labels([("pool", "gold")])).await?;
    s.eventually_labelled(&node, labels([("pool", "gold")])).await
}
