//! A control plane that fails itself, or has thousands of nodes. Each of these tests has one of its own.

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use kube::api::{DeleteParams, ListParams};
use label_storage::Record;
use sandbox::process::Signal;
use sandbox::{Options, Sandbox};

use crate::scenario::{Labels, Scenario, labels};

/// The same test, on a control plane of its own.
pub async fn on_its_own(s: &Scenario, options: Options) -> Result<Scenario> {
    let sandbox = tokio::task::spawn_blocking(|| Sandbox::start(options)).await??;
    Scenario::new(&Arc::new(sandbox), &s.namespace, s.watch).await
}

async fn restart(s: &Scenario, restart: fn(&Sandbox) -> Result<(), sandbox::Error>) -> Result<()> {
    let sandbox = Arc::clone(&s.sandbox);
    Ok(tokio::task::spawn_blocking(move || restart(&sandbox)).await??)
}

/// Changes by people while the control plane is restarted: each step is repeated until it succeeds.
async fn insist(mut step: impl AsyncFnMut() -> Result<()>) -> Result<()> {
    for _ in 0..600 {
        if step().await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    step().await
}

/// A kubelet, which goes on until its node is there.
async fn register(s: &Scenario, node: &str, labels: &Labels) -> Result<()> {
    insist(async || match s.create(node, labels.clone()).await {
        Err(error) if format!("{error:#}").contains("already exists") => Ok(()),
        outcome => outcome,
    })
    .await
}

/// Changes labels and replaces nodes, over and over; each value is stored before its node goes.
async fn live(s: &Scenario, nodes: &[String], rounds: std::ops::Range<u32>) -> Result<()> {
    for round in rounds {
        let round = round.to_string();
        for node in nodes {
            insist(async || s.label(node, [("round", Some(&*round))]).await).await?;
        }
        for node in nodes {
            s.eventually_after("the round is stored", true, async || {
                let record = s.record(node).await?.context("no record")?;
                Ok(record.labels.get("round") == Some(&round))
            })
            .await?;
            insist(async || match s.nodes.delete(node, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                outcome => Ok(outcome.map(drop)?),
            })
            .await?;
            register(s, node, &Labels::new()).await?;
        }
        for node in nodes {
            let expected = labels([("pool", "gold"), ("round", &round)]);
            s.eventually_after("labels", Some(expected), async || {
                Ok(s.nodes.get(node).await?.metadata.labels)
            })
            .await?;
        }
    }
    Ok(())
}

pub async fn killed_and_restarted_under_load_it_loses_no_label(s: &Scenario) -> Result<()> {
    let s = &on_its_own(s, Options::default()).await?;
    let nodes: Vec<_> = (0..8).map(|number| s.node(&number.to_string())).collect();
    for node in &nodes {
        s.create(node, labels([("pool", "gold")])).await?;
    }
    let (storer, restorer) = s.pair()?;
    // A daemon that can't reach its server at start logs an error and ends.
    for daemon in [&storer, &restorer] {
        s.eventually("a start", true, async || Ok(daemon.decisions(&nodes[0]) > 0)).await?;
    }
    let blows = async {
        for part in [Sandbox::restart_api_server, Sandbox::restart_etcd] {
            restart(s, part).await?;
        }
        // The watched history is dropped: first by etcd, then by the API server, too.
        let etcd = s.sandbox.etcd_client()?;
        etcd.compact(etcd.revision().await?).await?;
        restart(s, Sandbox::restart_api_server).await?;
        anyhow::Ok(())
    };
    let (lived, blown) = tokio::join!(live(s, &nodes, 0..6), blows);
    blown?;
    if let Err(error) = lived {
        return Err(error.context(s.describe().await));
    }
    for daemon in [&storer, &restorer] {
        ensure!(daemon.process.try_wait().is_none(), "{} has ended", daemon.process.name());
    }
    // And once more in peace.
    live(s, &nodes, 6..7).await
}

async fn with_etcd_stopped(
    s: &Scenario,
    change: impl FnOnce(&Path) -> io::Result<()> + Send + 'static,
) -> Result<()> {
    let sandbox = Arc::clone(&s.sandbox);
    Ok(tokio::task::spawn_blocking(move || sandbox.with_etcd_stopped(change)).await??)
}

/// Copies a folder with everything in it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (from, to) = (entry?.path(), to);
        let to = to.join(from.file_name().unwrap_or_default());
        if from.is_dir() { copy(&from, &to)? } else { fs::copy(&from, &to).map(drop)? }
    }
    Ok(())
}

/// As with `etcdutl snapshot restore --bump-revision`, or in a busy cluster: no list is older than one before, but its objects are.
pub async fn an_etcd_restored_with_a_later_revision_withholds_nothing(s: &Scenario) -> Result<()> {
    let s = &on_its_own(s, Options::default()).await?;
    let flags = ["--interval", "5s", "--audit-interval", "5m"];
    let (storer, restorer) = (s.storer(&flags)?, s.restorer(&flags)?);
    let (live, away) = (s.node("live"), s.node("away"));
    let pool = |value| labels([("pool", value)]);
    for node in [&live, &away] {
        s.create(node, pool("gold")).await?;
        s.eventually_stored(node, pool("gold")).await?;
    }
    let backup = |data: &Path| data.with_file_name("backup");
    with_etcd_stopped(s, move |data| copy(data, &backup(data))).await?;
    restart(s, Sandbox::restart_api_server).await?;
    for node in [&live, &away] {
        let before = restorer.decisions(node);
        insist(async || s.label(node, [("pool", Some("silver"))]).await).await?;
        s.eventually_stored(node, pool("silver")).await?;
        let seen = async || Ok(restorer.decisions(node) >= before + 2);
        s.eventually("the restorer has seen the node and its record", true, seen).await?;
    }

    let latest = s.sandbox.etcd_client()?.revision().await?;
    with_etcd_stopped(s, move |data| {
        fs::remove_dir_all(data)?;
        fs::rename(backup(data), data)
    })
    .await?;
    let etcd = s.sandbox.etcd_client()?;
    while etcd.put_all(&[("/bump".to_owned(), Vec::new())]).await? < latest + 100 {}
    restart(s, Sandbox::restart_api_server).await?;
    s.eventually("the backup is served", true, async || Ok(s.labels(&live).await? == pool("gold"))).await?;
    s.label(&live, [("pool", Some("bronze"))]).await?;
    s.delete(&away).await?;
    s.create(&away, Labels::new()).await?;
    s.eventually_stored(&live, pool("bronze")).await?;
    s.eventually_labelled(&away, pool("gold")).await?;
    for daemon in [&storer, &restorer] {
        ensure!(daemon.has_logged(&["WARN", "the cluster went back to an earlier version"]));
    }
    Ok(())
}

/// The number of concurrent calls.
const AT_ONCE: usize = 16;

/// Calls this for all nodes, some of them at the same time.
pub async fn each(nodes: &[String], call: impl AsyncFn(&str) -> Result<()>) -> Result<()> {
    let calls = futures::stream::iter(nodes).map(|node| call(node)).buffer_unordered(AT_ONCE);
    calls.try_collect::<()>().await
}

/// Labels that say whose they are.
fn own(node: &str) -> Labels {
    labels([("own", &node[node.len() - 4..]), ("pool", "gold")])
}

/// How many nodes have exactly the labels that are theirs.
async fn complete(s: &Scenario, nodes: usize) -> Result<bool> {
    let list = s.nodes.list(&ListParams::default()).await?;
    let is_complete = |node: &k8s_openapi::api::core::v1::Node| {
        node.metadata.name.as_ref().is_some_and(|name| node.metadata.labels == Some(own(name)))
    };
    Ok(list.items.iter().filter(|node| is_complete(node)).count() == nodes)
}

pub async fn five_thousand_nodes_deleted_at_once_come_back_with_their_labels(s: &Scenario) -> Result<()> {
    const NODES: usize = 5000;
    let s = &on_its_own(s, Options::default()).await?;
    let nodes: Vec<_> = (0..NODES).map(|number| s.node(&format!("n{number:04}"))).collect();
    // Quick enough to notice, and not so often that lists are all there is to do.
    let flags = |index| {
        [
            "--replicas",
            "2",
            "--replica-index",
            index,
            "--interval",
            "2s",
            "--audit-interval",
            "20s",
            "--log-level",
            "info",
        ]
    };
    let start = |kind, index| s.daemon(kind, &flags(index));
    let mut daemons =
        [start("storer", "0")?, start("storer", "1")?, start("restorer", "0")?, start("restorer", "1")?];
    each(&nodes, async |node| register(s, node, &own(node)).await).await?;
    let stored = async || {
        let records = s.config_maps.list(&ListParams::default()).await?;
        let is_stored = |record: &Record| record.labels == own(&record.node);
        let records = records.items.iter().filter_map(|record| Record::decode(record).ok());
        Ok(records.filter(|decoded| is_stored(&decoded.record)).count())
    };
    s.eventually_after("all are stored", NODES, stored).await?;
    // All of them at once, and daemons are killed while they go and while they return.
    for daemon in [&daemons[0], &daemons[2]] {
        daemon.process.signal(Signal::KILL)?;
    }
    // One call for so many may take longer than a busy server allows: then there is another.
    let delete_all = async || {
        s.nodes.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        Ok(())
    };
    insist(delete_all).await?;
    s.eventually("none is left", 0, async || Ok(s.nodes.list(&ListParams::default()).await?.items.len()))
        .await?;
    ensure!(stored().await? == NODES, "a record was lost with its node");
    daemons[0] = start("storer", "0")?;
    let (first, rest) = nodes.split_at(NODES / 2);
    each(first, async |node| register(s, node, &Labels::new()).await).await?;
    daemons[3].process.signal(Signal::KILL)?;
    daemons[2] = start("restorer", "0")?;
    each(rest, async |node| register(s, node, &Labels::new()).await).await?;
    s.eventually_after("all have their labels", true, async || complete(s, NODES).await).await?;
    ensure!(stored().await? == NODES, "a record was lost");
    Ok(())
}
