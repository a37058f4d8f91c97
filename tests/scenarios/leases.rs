//! Leases that are hidden, slow to write, or impossible to write.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, ensure};
use faults::{Fault, Request, Verb};
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use label_storage_runtime::{args, lease};
use sandbox::process::Signal;
use serde_json::json;

use crate::daemon::Daemon;
use crate::ownership::pool;
use crate::scenario::{NO_LISTS, Scenario};

const ADMIN: [&str; 2] = ["--admin-address", "127.0.0.1:0"];

async fn all(s: &Scenario) -> Result<Vec<Lease>> {
    let leases: Api<Lease> = Api::namespaced(s.client.clone(), &s.namespace);
    Ok(leases.list(&ListParams::default()).await?.items)
}

/// The name of a node in this shard.
fn in_shard(s: &Scenario, shard: u32, replicas: u32) -> Result<String> {
    let of = NonZeroU32::new(replicas).context("no replicas")?;
    let mut names = (0..).map(|number| s.node(&number.to_string()));
    names.find(|name| label_storage::shard(name, of) == shard).context("no name")
}

/// Waits until the storer is not ready because of its leases, and a metric shows that, too.
async fn eventually_not_ready(s: &Scenario, storer: &Daemon) -> Result<()> {
    s.eventually("not ready", true, async || {
        let (code, why) = storer.get("/readyz").await?;
        Ok(code == 503 && why.contains("leases have not been renewed for"))
    })
    .await?;
    ensure!(storer.metric("lease_errors_total", &[]).await? > 0.0, "no lease error is counted");
    storer.eventually_counted(s, "shards_held", &[], 0.0).await
}

/// As many replicas as there may be, after a scale-down from even more.
pub async fn leftover_leases_hide_no_shard(s: &Scenario) -> Result<()> {
    const REPLICAS: u32 = 100;
    const LEFTOVER: usize = 300;
    let flags = ["--replicas", "100", "--replica-index", "99"];
    let flags = [&flags[..], &NO_LISTS, &ADMIN, &["--log-level", "info"]].concat();
    let first = s.daemon("storer", &flags)?;
    let count = async || Ok(all(s).await?.len());
    s.eventually("each shard has a lease", REPLICAS as usize, count).await?;
    let nodes = [in_shard(s, 0, REPLICAS)?, in_shard(s, REPLICAS - 1, REPLICAS)?];
    for node in &nodes {
        s.create(node, pool("gold")).await?;
        s.eventually_stored(node, pool("gold")).await?;
    }
    first.process.signal(Signal::KILL)?;
    first.exit().await?;

    let leases: Api<Lease> = Api::namespaced(s.client.clone(), &s.namespace);
    let lease = all(s).await?.pop().context("no lease")?;
    let name = lease.metadata.name.context("no name")?;
    let (_, scope) = name.split_once("-of-100").context("no scope")?;
    let create = async |index: usize| -> Result<()> {
        let leftover = json!({"metadata": {
            "name": format!("label-storage.storer.{index}-of-{LEFTOVER}{scope}"),
            "labels": lease.metadata.labels,
        }});
        leases.create(&PostParams::default(), &serde_json::from_value(leftover)?).await?;
        Ok(())
    };
    stream::iter(0..LEFTOVER).map(create).buffer_unordered(8).try_collect::<()>().await?;

    let second = s.daemon("storer", &flags)?;
    for node in &nodes {
        s.label(node, [("pool", Some("silver"))]).await?;
        // All leases of the first have to expire.
        let stored = async || Ok(s.record(node).await?.map(|record| record.labels));
        s.eventually_after("it is stored", Some(pool("silver")), stored).await?;
    }
    second.eventually_counted(s, "shards_held", &[], f64::from(REPLICAS)).await?;
    second.process.signal(Signal::KILL)?;
    second.exit().await?;

    let _third = s.daemon("storer", &[&flags[..], &["--lease-retirement", "1s"]].concat())?;
    s.eventually_after("the leftovers are deleted", REPLICAS as usize, count).await
}

pub async fn a_lease_without_its_labels_is_found_by_its_name(s: &Scenario) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(s.client.clone(), &s.namespace);
    let flags = [&NO_LISTS[..], &ADMIN].concat();
    let storer = s.storer(&flags)?;
    let node = s.node("a");
    s.create(&node, pool("gold")).await?;
    s.eventually_stored(&node, pool("gold")).await?;
    let name = all(s).await?.pop().and_then(|lease| lease.metadata.name).context("no lease")?;
    let bare = Patch::Merge(json!({"metadata": {"labels": null}}));
    let holder = |lease: Lease| lease.spec.and_then(|spec| spec.holder_identity);
    let before = leases.patch(&name, &PatchParams::default(), &bare).await?;
    let labels = async || Ok(leases.get(&name).await?.metadata.labels.unwrap_or_default().len());
    s.eventually("the labels are back", 2, labels).await?;
    // The same while the storer restarts.
    storer.process.signal(Signal::KILL)?;
    storer.exit().await?;
    leases.patch(&name, &PatchParams::default(), &bare).await?;
    let storer = s.storer(&flags)?;
    s.eventually("the labels are back after a restart", 2, labels).await?;
    let ok = (200, "ok\n".to_owned());
    s.eventually("ready", ok, async || storer.get("/readyz").await).await?;
    ensure!(holder(leases.get(&name).await?) == holder(before), "the lease has another holder");
    Ok(())
}

/// A write is carried out, but nobody waits for its answer; or it is abandoned if nobody does.
pub async fn slow_lease_writes_leave_no_shard_uncovered(s: &Scenario) -> Result<()> {
    const COVERED_WITHIN: Duration = Duration::from_secs(30);
    const LIFETIME: SignedDuration = SignedDuration::from_secs(15);
    let slow = async |number: usize, fault: Fault| -> Result<()> {
        let node = s.node(&format!("n{number}"));
        let flags = [&NO_LISTS[..], &ADMIN, &["--nodes", &node]].concat();
        s.create(&node, pool("gold")).await?;
        let slow = move |request: &Request| {
            let is_write =
                matches!(request.verb, Verb::Create | Verb::Update) && request.resource == "leases";
            if is_write { fault } else { Fault::None }
        };
        // From the first write on.
        let proxy = s.proxy(slow).await?;
        let storer = s.daemon_through(&proxy, "storer", &flags)?;
        s.eventually_stored(&node, pool("gold")).await?;
        // For longer than a lease lasts.
        let scope = lease::scope(&args::glob(&node).map_err(Error::msg)?);
        let began = Timestamp::now();
        s.eventually("later renewals", true, async || {
            let own = all(s)
                .await?
                .into_iter()
                .find(|lease| lease.metadata.name.as_ref().is_some_and(|name| name.ends_with(&scope)));
            let renewed_at = own.and_then(|lease| lease.spec?.renew_time).context("no lease")?;
            Ok(renewed_at.0.duration_since(began) > LIFETIME)
        })
        .await?;
        let began = Instant::now();
        s.label(&node, [("pool", Some("silver"))]).await?;
        s.eventually_stored(&node, pool("silver")).await?;
        let took = began.elapsed();
        ensure!(took < COVERED_WITHIN, "stored after {took:?}");
        ensure!(storer.get("/readyz").await?.0 == 200, "not ready");
        Ok(())
    };
    let delays = [2050, 4000, 6000, 9000].map(Duration::from_millis);
    let faults = delays.into_iter().flat_map(|delay| [Fault::Late(delay), Fault::Latency(delay)]);
    let each = faults
        .enumerate()
        .map(async |(number, fault)| slow(number, fault).await.with_context(|| format!("{fault:?}")));
    try_join_all(each).await?;
    Ok(())
}

pub async fn a_replica_whose_lease_is_refused_again_and_again_is_not_ready(s: &Scenario) -> Result<()> {
    let refused = async |code: u16| -> Result<()> {
        let proxy = s.proxy(|_: &Request| Fault::None).await?;
        let node = s.node(&code.to_string());
        let storer = s.daemon_through(&proxy, "storer", &[&ADMIN[..], &["--nodes", &node]].concat())?;
        let ok = (200, "ok\n".to_owned());
        s.eventually("ready", ok.clone(), async || storer.get("/readyz").await).await?;
        // Lists and the watch go on.
        proxy.set_script(move |request: &Request| {
            let is_write = request.verb.is_write() && request.resource == "leases";
            if is_write { Fault::Status { code, retry_after: None } } else { Fault::None }
        });
        eventually_not_ready(s, &storer).await?;
        proxy.set_script(|_: &Request| Fault::None);
        s.eventually("ready again", ok, async || storer.get("/readyz").await).await
    };
    try_join_all([403, 404, 409].map(refused)).await?;
    Ok(())
}

pub async fn a_replica_whose_namespace_is_deleted_is_not_ready(s: &Scenario) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(s.client.clone());
    let name = format!("{}-gone", s.namespace);
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    namespaces.create(&PostParams::default(), &namespace).await?;
    let storer = s.storer(&[&ADMIN[..], &["--namespace", &name]].concat())?;
    let ok = (200, "ok\n".to_owned());
    s.eventually("ready", ok, async || storer.get("/readyz").await).await?;
    // No controller removes its objects here.
    namespaces.delete(&name, &DeleteParams::default()).await?;
    let leases: Api<Lease> = Api::namespaced(s.client.clone(), &name);
    leases.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    let finalize = http::Request::put(format!("/api/v1/namespaces/{name}/finalize"));
    let body = json!({"metadata": {"name": name}, "spec": {"finalizers": []}});
    let body = serde_json::to_vec(&body)?;
    s.client.request_text(finalize.header("content-type", "application/json").body(body)?).await?;
    let is_gone = async || Ok(namespaces.get_opt(&name).await?.is_none());
    s.eventually("the namespace is gone", true, is_gone).await?;
    eventually_not_ready(s, &storer).await
}
