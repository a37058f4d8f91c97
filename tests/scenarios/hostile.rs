//! Malformed ConfigMaps with the names of records, and objects with text that is not UTF-8.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams};
use kube::client::Body;
use label_storage::name::record_name;
use label_storage::record::{
    CAPTURED_AT, DEPARTED_AT, GENERATION, LABELS_GENERATION, MANAGED_BY, NODE, NODE_RESOURCE_VERSION,
    NODE_UID,
};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use sandbox::process::Signal;
use serde_json::json;

use crate::daemon::Daemon;
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

/// One node and its record. Every label value names the node that it belongs to, so that one on the wrong node shows.
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
    s.list_often();
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

/// The API server accepts this value in protobuf, which kubelets speak.
const NOT_UTF8: &[u8] = b"gold\xff\xfe";

/// A field of a protobuf message.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(content);
    bytes
}

/// An entry of a map.
fn entry(number: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
    field(number, &[field(1, key), field(2, value)].concat())
}

/// Creates an object in protobuf.
async fn create_in_protobuf(s: &Scenario, path: &str, kind: &str, object: Vec<u8>) -> Result<()> {
    let type_meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
    let body = [b"k8s\0".to_vec(), field(1, &type_meta), field(2, &object), field(3, b""), field(4, b"")];
    let request = http::Request::post(path)
        .header("content-type", "application/vnd.kubernetes.protobuf")
        .header("accept", "application/json")
        .body(Body::from(body.concat()))?;
    let code = s.client.send(request).await?.status();
    ensure!(code == http::StatusCode::CREATED, "the API server answers {code}");
    Ok(())
}

/// Creates a node with these labels and taints, and with annotations and a machine that are not UTF-8.
async fn create_node_in_protobuf(s: &Scenario, node: &str, own: &Labels, taints: &[&str]) -> Result<()> {
    let own = own.iter().map(|(key, value)| entry(11, key.as_bytes(), value.as_bytes()));
    let annotations = [b"example.com/motd", &b"label-storage/keep"[..]].map(|key| entry(12, key, NOT_UTF8));
    let meta = [field(1, node.as_bytes()), own.collect::<Vec<_>>().concat(), annotations.concat()];
    let taint = |key: &&str| field(5, &[field(1, key.as_bytes()), field(3, b"NoSchedule")].concat());
    let spec = [field(3, NOT_UTF8), taints.iter().map(taint).collect::<Vec<_>>().concat()];
    let status = field(7, &field(2, NOT_UTF8));
    let object = [field(1, &meta.concat()), field(2, &spec.concat()), field(3, &status)];
    create_in_protobuf(s, "/api/v1/nodes", "Node", object.concat()).await
}

/// Creates a record with this entry, and one that is not UTF-8.
async fn create_record_in_protobuf(s: &Scenario, node: &str, rack: &str) -> Result<()> {
    let meta = [
        field(1, record_name(node).as_bytes()),
        entry(11, MANAGED_BY.0.as_bytes(), MANAGED_BY.1.as_bytes()),
        entry(12, NODE.as_bytes(), node.as_bytes()),
    ];
    let data = [entry(2, b"pool", NOT_UTF8), entry(2, b"rack", rack.as_bytes())];
    let path = format!("/api/v1/namespaces/{}/configmaps", s.namespace);
    create_in_protobuf(s, &path, "ConfigMap", [field(1, &meta.concat()), data.concat()].concat()).await
}

async fn end(daemon: &Daemon) -> Result<()> {
    daemon.process.signal(Signal::KILL)?;
    daemon.exit().await.map(drop)
}

pub async fn a_record_that_is_not_utf8_holds_up_no_other(s: &Scenario) -> Result<()> {
    s.list_often();
    let (node, hostile) = (s.node("zz"), s.node("hostile"));
    let (storer, restorer) = s.pair()?;
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    create_record_in_protobuf(s, &hostile, "7").await?;
    s.label(&node, [("pool", Some("silver"))]).await?;
    s.eventually_stored(&node, labels([("pool", "silver")])).await?;
    end(&storer).await?;
    end(&restorer).await?;
    // The first list has the record.
    let (storer, restorer) = s.pair()?;
    s.label(&node, [("pool", Some("bronze"))]).await?;
    s.eventually_stored(&node, labels([("pool", "bronze")])).await?;
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, labels([("pool", "bronze")])).await?;
    // The valid entry is used; the other one is kept and reported.
    s.create(&hostile, Labels::new()).await?;
    s.eventually_labelled(&hostile, labels([("rack", "7")])).await?;
    s.eventually_stored(&hostile, labels([("rack", "7")])).await?;
    let data = s.config_map(&hostile).await?.and_then(|record| record.data).context("no record")?;
    ensure!(data.get("pool").is_some_and(|value| value.starts_with("gold\u{fffd}")), "{data:?}");
    for daemon in [&storer, &restorer] {
        let parts = ["WARN", &hostile, "damaged", "pool"];
        s.eventually("the damage is logged", true, async || Ok(daemon.has_logged(&parts))).await?;
    }
    Ok(())
}

pub async fn a_node_that_is_not_utf8_holds_up_no_other(s: &Scenario) -> Result<()> {
    s.list_often();
    beside_a_node_that_is_not_utf8(s, &[], &[]).await
}

pub async fn a_node_that_is_not_utf8_holds_up_no_startup_taint(s: &Scenario) -> Result<()> {
    s.list_often();
    let rules = ["--rules", "{startupTaint: {enabled: true}}"];
    beside_a_node_that_is_not_utf8(s, &rules, &["label-storage/restoring"]).await
}

async fn beside_a_node_that_is_not_utf8(s: &Scenario, flags: &[&str], taints: &[&str]) -> Result<()> {
    let (node, hostile) = (s.node("zz"), s.node("hostile"));
    let is_restored = async |node: &str, expected: Labels| {
        s.eventually_labelled(node, expected).await?;
        s.eventually("no start-up taint", false, async || {
            let taints = s.get(node).await?.spec.and_then(|spec| spec.taints).unwrap_or_default();
            Ok(taints.iter().any(|taint| taint.key == "label-storage/restoring"))
        })
        .await
    };
    let (storer, restorer) = (s.storer(flags)?, s.restorer(flags)?);
    s.create(&node, labels([("pool", "gold")])).await?;
    // The watches report the hostile node.
    create_node_in_protobuf(s, &hostile, &labels([("pool", "iron")]), taints).await?;
    is_restored(&hostile, labels([("pool", "iron")])).await?;
    s.eventually_stored(&hostile, labels([("pool", "iron")])).await?;
    ensure!(storer.has_logged(&["WARN", &hostile, "not UTF-8"]), "it is not reported");
    s.delete(&hostile).await?;
    create_node_in_protobuf(s, &hostile, &Labels::new(), taints).await?;
    is_restored(&hostile, labels([("pool", "iron")])).await?;
    s.label(&node, [("pool", Some("silver"))]).await?;
    s.eventually_stored(&node, labels([("pool", "silver")])).await?;
    end(&storer).await?;
    end(&restorer).await?;
    // The first lists have it. (A patch may have replaced its text.)
    create_node_in_protobuf(s, &s.node("another"), &Labels::new(), taints).await?;
    let _daemons = (s.storer(flags)?, s.restorer(flags)?);
    s.label(&node, [("pool", Some("bronze"))]).await?;
    s.eventually_stored(&node, labels([("pool", "bronze")])).await?;
    s.delete(&node).await?;
    let all = taints.iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect::<Vec<_>>();
    s.create_as(&node, json!({"spec": {"taints": all}})).await?;
    is_restored(&node, labels([("pool", "bronze")])).await
}
