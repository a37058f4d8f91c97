//! The health, the metrics and the log of the daemons.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use faults::{Fault, Request};
use futures::future::try_join_all;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::daemon::get;
use crate::scenario::{Labels, Scenario, labels};

/// Any port that is free.
const ADMIN: [&str; 2] = ["--admin-address", "127.0.0.1:0"];

pub async fn a_daemon_is_ready_when_it_has_listed_all_and_keeps_its_lease(s: &Scenario) -> Result<()> {
    let is_open = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let opened = std::sync::Arc::clone(&is_open);
    let proxy = s.proxy(move |request: &Request| {
        let is_shut = !opened.load(std::sync::atomic::Ordering::Relaxed);
        let is_list = request.resource == "nodes" && request.name.is_none();
        if is_shut && is_list { Fault::Status { code: 500, retry_after: None } } else { Fault::None }
    });
    let proxy = proxy.await?;
    let storer = s.daemon_through(&proxy, "storer", &ADMIN)?;
    let unlisted = (503, "nodes and records have not been listed yet\n".to_owned());
    s.eventually("not ready", unlisted, async || storer.get("/readyz").await).await?;
    assert_eq!(storer.get("/livez").await?, (200, "ok\n".to_owned()));
    is_open.store(true, std::sync::atomic::Ordering::Relaxed);
    let ok = (200, "ok\n".to_owned());
    s.eventually("ready", ok.clone(), async || storer.get("/readyz").await).await?;
    // The API server does not answer any more: the storer can't work, and a restart would not help.
    proxy.set_script(|_: &Request| Fault::ResetBefore);
    s.eventually("why it is not ready", true, async || {
        let (code, why) = storer.get("/readyz").await?;
        Ok(code == 503 && why.starts_with("leases have not been renewed for"))
    })
    .await?;
    assert_eq!(storer.get("/livez").await?, ok);
    proxy.set_script(|_: &Request| Fault::None);
    s.eventually("ready again", ok, async || storer.get("/readyz").await).await
}

pub async fn what_happens_is_counted(s: &Scenario) -> Result<()> {
    let (storer, restorer) = (s.storer(&ADMIN)?, s.restorer(&ADMIN)?);
    let nodes: Vec<_> = ["a", "b", "c"].map(|name| s.node(name)).into();
    let kept = labels([("pool", "gold"), ("zone", "1")]);
    try_join_all(nodes.iter().map(|node| s.create(node, kept.clone()))).await?;
    storer.eventually_counted(s, "nodes_stored", &[], 3.0).await?;
    for (name, labels, value) in [
        ("nodes", &[][..], 3.0),
        ("records", &[], 3.0),
        ("record_writes_total", &["action=\"created\""], 3.0),
        ("labels_stored_total", &[], 6.0),
        ("reconciliations_total", &["outcome=\"stored\""], 3.0),
        ("store_latency_seconds_count", &[], 3.0),
        ("shards", &[], 1.0),
        ("shards_held", &[], 1.0),
        ("build_info", &["version=\""], 1.0),
        ("api_requests_total", &["verb=\"create\"", "resource=\"configmaps\"", "code=\"201\""], 3.0),
    ] {
        storer.eventually_counted(s, name, labels, value).await?;
    }
    assert!(storer.metric("list_bytes_total", &["resource=\"nodes\""]).await? > 0.0);
    let taken = "api_request_duration_seconds_count";
    assert!(storer.metric(taken, &["verb=\"list\"", "resource=\"nodes\""]).await? > 0.0);

    // One of them goes and comes back, with a label of its own.
    s.delete(&nodes[0]).await?;
    s.create(&nodes[0], labels([("zone", "2")])).await?;
    s.eventually_labelled(&nodes[0], labels([("pool", "gold"), ("zone", "2")])).await?;
    for (name, value) in [
        ("nodes_restored_total", 1.0),
        ("labels_restored_total", 1.0),
        ("restore_latency_seconds_count", 1.0),
        ("restores_pending", 0.0),
        ("restore_pending_oldest_seconds", 0.0),
    ] {
        restorer.eventually_counted(s, name, &[], value).await?;
    }
    // And a label is removed from one.
    s.label(&nodes[1], [("zone", None)]).await?;
    storer.eventually_counted(s, "labels_removed_total", &[], 1.0).await?;
    storer.eventually_counted(s, "nodes_stored", &[], 3.0).await
}

pub async fn changes_of_stored_labels_are_counted(s: &Scenario) -> Result<()> {
    let storer = s.storer(&ADMIN)?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    for pool in ["gold", "silver", "gold", "silver"] {
        s.label(&node, [("pool", Some(pool))]).await?;
        s.eventually_stored(&node, labels([("pool", pool)])).await?;
    }
    storer.eventually_counted(s, "label_changes_total", &[], 3.0).await
}

pub async fn nodes_that_are_not_restored_are_told_of(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    let storer = s.storer(&ADMIN)?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    storer.eventually_counted(s, "nodes_skipped", &["reason=\"awaiting-restore\""], 1.0).await?;
    // A restorer that is not allowed to.
    let proxy = s.proxy(|request: &Request| match request.verb {
        faults::Verb::Patch => Fault::Status { code: 500, retry_after: None },
        _ => Fault::None,
    });
    let proxy = proxy.await?;
    let restorer = s.daemon_through(&proxy, "restorer", &ADMIN)?;
    restorer.eventually_counted(s, "restores_pending", &[], 1.0).await?;
    s.eventually("its age and its failures", true, async || {
        let age = restorer.metric("restore_pending_oldest_seconds", &[]).await?;
        let failed = restorer.metric("restore_attempts_max", &[]).await?;
        let errors = restorer.metric("errors_total", &["kind=\"unclear\""]).await?;
        Ok(age > 0.0 && failed >= 1.0 && errors >= 1.0)
    })
    .await?;
    proxy.set_script(|_: &Request| Fault::None);
    restorer.eventually_counted(s, "restores_pending", &[], 0.0).await
}

/// Pods can open any number of connections to the admin port. The kubelet's probes come to another.
pub async fn probes_answer_beside_half_open_requests(s: &Scenario) -> Result<()> {
    let storer = s.storer(&["--admin-address", "127.0.0.1:0", "--probe-address", "127.0.0.1:0"])?;
    s.eventually("ready", 200, async || Ok(storer.get("/readyz").await?.0)).await?;
    let log = storer.log();
    let line = log.lines().rfind(|line| line.contains("serving health")).context("a probe address")?;
    let probes: SocketAddr = line.rsplit_once("address=").context("an address")?.1.trim().parse()?;
    let mut half_open = Vec::new();
    for _ in 0..250 {
        let mut stream = TcpStream::connect(storer.admin_address()?).await?;
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: ").await?;
        half_open.push(stream);
    }
    for path in ["/livez", "/readyz"] {
        assert_eq!(get(probes, path).await?.0, 200, "{path}");
    }
    assert_ne!(probes, storer.admin_address()?);
    Ok(())
}
