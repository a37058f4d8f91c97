//! Ways to lose a label that were found by attacking the daemons, each as the least that shows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use faults::{Fault, Request, Verb};
use futures::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use sandbox::process::Signal;
use serde_json::json;

use crate::daemon::Daemon;
use crate::scenario::{Labels, NO_LISTS, Scenario, labels};

fn pool(value: &str) -> Labels {
    labels([("pool", value)])
}

async fn kill(daemon: &Daemon) -> Result<()> {
    daemon.process.signal(Signal::KILL)?;
    daemon.exit().await?;
    Ok(())
}

async fn eventually_recorded(s: &Scenario, node: &str, expected: Labels) -> Result<()> {
    let recorded = async || Ok(s.record(node).await?.map(|record| record.labels));
    s.eventually_after(&format!("record of {node}"), Some(expected), recorded).await
}

/// A server that answers with this code for a while still has the history of before.
async fn is_refused_for_a_while(s: &Scenario, code: u16) -> Result<()> {
    let proxy = s.proxy(|_: &Request| Fault::None).await?;
    let storer = s.daemon_through(&proxy, "storer", &[])?;
    for seconds in [10, 30, 60] {
        let node = s.node(&format!("n{seconds}"));
        s.create(&node, pool("gold")).await?;
        s.eventually_stored(&node, pool("gold")).await?;
        s.is_watching(&storer).await?;
        let until = Instant::now() + Duration::from_secs(seconds);
        proxy.set_script(move |_: &Request| {
            let is_over = Instant::now() >= until;
            if is_over { Fault::None } else { Fault::Status { code, retry_after: None } }
        });
        proxy.cut();
        s.label(&node, [("pool", Some("silver"))]).await?;
        s.delete(&node).await?;
        eventually_recorded(s, &node, pool("silver")).await?;
        assert!(Instant::now() >= until, "nothing was refused");
    }
    Ok(())
}

pub async fn final_labels_survive_502_for_a_while(s: &Scenario) -> Result<()> {
    is_refused_for_a_while(s, 502).await
}

pub async fn final_labels_survive_500_for_a_while(s: &Scenario) -> Result<()> {
    is_refused_for_a_while(s, 500).await
}

pub async fn final_labels_survive_403_for_a_while(s: &Scenario) -> Result<()> {
    is_refused_for_a_while(s, 403).await
}

/// Waits until the storer has written its lease twice more, so that it says where it is now.
async fn eventually_renewed(s: &Scenario) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(s.client.clone(), &s.namespace);
    let version = async || {
        let lease =
            leases.list(&ListParams::default()).await?.items.into_iter().next().context("no lease")?;
        lease.metadata.resource_version.context("no version")
    };
    for _ in 0..2 {
        let before = version().await?;
        s.eventually("another renewal", true, async || Ok(version().await? != before)).await?;
    }
    Ok(())
}

pub async fn a_node_that_can_not_be_stored_undoes_nothing_that_was_done_to_others(
    s: &Scenario,
) -> Result<()> {
    let storer = s.storer(&NO_LISTS)?;
    let [stuck, edited, deleted, set, forgotten] =
        ["stuck", "edited", "deleted", "set", "forgotten"].map(|name| s.node(name));
    let all = [&stuck, &edited, &deleted, &set, &forgotten];
    for node in all {
        s.create(node, pool("gold")).await?;
        s.eventually_stored(node, pool("gold")).await?;
    }
    s.is_watching(&storer).await?;
    s.patch_record(&stuck, json!({"immutable": true})).await?;
    s.label(&stuck, [("pool", Some("silver"))]).await?;
    s.delete(&stuck).await?;
    let fails = async || Ok(storer.has_logged(&["WARN", "a node failed", &stuck]));
    s.eventually("it can't be stored", true, fails).await?;
    for node in &all[1..] {
        s.delete(node).await?;
        s.eventually_departed(node).await?;
    }
    s.patch_record(&edited, json!({"data": {"pool": "edited"}})).await?;
    s.delete_record(&deleted).await?;
    for command in [&["set", &set, "pool=set", "--yes"][..], &["forget", &forgotten, "--yes"]] {
        let told = s.plugin(command)?;
        ensure!(told.code == Some(0), "{told:?}");
    }
    eventually_renewed(s).await?;
    kill(&storer).await?;
    let storer = s.storer(&NO_LISTS)?;
    // The watch reports these after all that it repeats.
    s.is_watching(&storer).await?;
    let (later, last) = (s.node("later"), s.node("last"));
    for node in [&later, &last] {
        s.create(node, pool("gold")).await?;
        s.eventually_stored(node, pool("gold")).await?;
        s.delete(node).await?;
        s.eventually_departed(node).await?;
    }
    let fails = async || Ok(storer.has_logged(&["WARN", "a node failed", &stuck]));
    s.eventually("it still can't be stored", true, fails).await?;
    assert_eq!(s.record(&edited).await?.map(|record| record.labels), Some(pool("edited")));
    assert_eq!(s.record(&set).await?.map(|record| record.labels), Some(pool("set")));
    for node in [&deleted, &forgotten] {
        assert!(s.config_map(node).await?.is_none(), "{node} is back");
    }
    // The stuck node is handled in the end.
    s.delete_record(&stuck).await?;
    eventually_recorded(s, &stuck, pool("silver")).await
}

pub async fn a_write_that_arrives_late_does_not_undo_the_final_labels(s: &Scenario) -> Result<()> {
    let proxy = s.proxy(|_: &Request| Fault::None).await?;
    let storer = s.daemon_through(&proxy, "storer", &NO_LISTS)?;
    s.is_watching(&storer).await?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold"), ("keep", "yes")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold"), ("keep", "yes")])).await?;
    let (is_sent, mut is_first) = (Arc::new(AtomicBool::new(false)), true);
    let sent = Arc::clone(&is_sent);
    proxy.set_script(move |request: &Request| {
        let is_late = request.is(Verb::Update, "configmaps") && std::mem::take(&mut is_first);
        sent.fetch_or(is_late, Ordering::Relaxed);
        if is_late { Fault::Late(Duration::from_secs(7)) } else { Fault::None }
    });
    s.label(&node, [("pool", None)]).await?;
    s.eventually("the write is under way", true, async || Ok(is_sent.load(Ordering::Relaxed))).await?;
    s.label(&node, [("pool", Some("gold"))]).await?;
    // The storer gives up on its write, and finds the record as the node is.
    let gives_up = async || Ok(storer.has_logged(&["no answer within 5 s"]));
    s.eventually("no answer", true, gives_up).await?;
    s.has_acted_again(&storer, &node).await?;
    s.delete(&node).await?;
    s.eventually("the late write arrives", true, async || Ok(proxy.late_arrivals() == 1)).await?;
    s.eventually_departed(&node).await?;
    let record = s.record(&node).await?.context("no record")?;
    assert_eq!(record.labels, labels([("pool", "gold"), ("keep", "yes")]));
    Ok(())
}

pub async fn bare_incarnations_do_not_push_out_the_final_labels(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    s.occupy_record(&node).await?;
    let storer = s.storer(&NO_LISTS)?;
    s.is_watching(&storer).await?;
    s.create(&node, pool("gold")).await?;
    s.delete(&node).await?;
    for _ in 0..6 {
        s.create(&node, Labels::new()).await?;
        s.delete(&node).await?;
    }
    let heard = async || Ok(storer.log().lines().filter(|line| line.contains("DEBUG deleted ")).count());
    s.eventually("all deletions are heard of", 7, heard).await?;
    s.delete_record(&node).await?;
    eventually_recorded(s, &node, pool("gold")).await
}

/// A node that has annotations, and one that has none.
pub async fn a_node_that_changes_all_the_time_is_restored(s: &Scenario) -> Result<()> {
    for what in ["annotations", "labels"] {
        let node = s.node(what);
        let storer = s.storer(&[])?;
        s.create(&node, labels([("pool", "gold"), ("rack", "7")])).await?;
        s.eventually_stored(&node, labels([("pool", "gold"), ("rack", "7")])).await?;
        s.delete(&node).await?;
        s.eventually_departed(&node).await?;
        kill(&storer).await?;
        s.create(&node, labels([("own", "yes"), ("rack", "own")])).await?;
        let (is_over, changes) = (AtomicBool::new(false), AtomicUsize::new(0));
        let busy = async |number: usize| {
            let key = format!("example.com/busy-{number}");
            while !is_over.load(Ordering::Relaxed) {
                let value = changes.fetch_add(1, Ordering::Relaxed).to_string();
                let patch = Patch::Merge(json!({"metadata": {what: {&key: value}}}));
                s.nodes.patch(&node, &PatchParams::default(), &patch).await?;
            }
            anyhow::Ok(())
        };
        let restored = async {
            let started = async || Ok(changes.load(Ordering::Relaxed) > 20);
            s.eventually("changes", true, started).await?;
            let restorer = s.restorer(&[])?;
            let own = async || {
                let mut labels = s.labels(&node).await?;
                labels.retain(|key, _| !key.starts_with("example.com/"));
                Ok(labels)
            };
            let expected = labels([("pool", "gold"), ("rack", "own"), ("own", "yes")]);
            let restored = s.eventually("labels of the node", expected, own).await;
            is_over.store(true, Ordering::Relaxed);
            restored?;
            // A test that fails is no refusal.
            ensure!(!restorer.has_logged(&["(422)", "a node failed"]), "{}", restorer.log());
            Ok(())
        };
        let (changed, restored) = futures::join!(join_all((0..4).map(busy)), restored);
        changed.into_iter().collect::<Result<Vec<_>>>()?;
        restored?;
    }
    Ok(())
}

pub async fn a_position_from_the_future_does_not_make_daemons_deaf(s: &Scenario) -> Result<()> {
    for position in ["999999999999", "18446744073709551615", "no number"] {
        let leases: Api<Lease> = Api::namespaced(s.client.clone(), &s.namespace);
        let (storer, restorer) = (s.storer(&NO_LISTS)?, s.restorer(&NO_LISTS)?);
        for daemon in [&storer, &restorer] {
            s.is_watching(daemon).await?;
            daemon.process.signal(Signal::TERM)?;
            daemon.exit().await?;
        }
        for lease in leases.list(&ListParams::default()).await?.items {
            let name = lease.metadata.name.context("a name")?;
            let patch = json!({"metadata": {"annotations": {"label-storage/position": position}}});
            leases.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        let (storer, restorer) = (s.storer(&NO_LISTS)?, s.restorer(&NO_LISTS)?);
        for daemon in [&storer, &restorer] {
            let lists = async || Ok(daemon.has_logged(&["listed all nodes and records"]));
            s.eventually("the first list", true, lists).await?;
            s.is_watching(daemon).await?;
        }
        let node = s.node(&format!("n{}", position.len()));
        s.leaves_and_returns(&node, &pool("gold")).await?;
        s.eventually_labelled(&node, pool("gold")).await?;
        s.label(&node, [("pool", Some("silver"))]).await?;
        s.eventually_stored(&node, pool("silver")).await?;
        let version: u64 = s.get(&node).await?.metadata.resource_version.context("a version")?.parse()?;
        s.eventually("positions of this cluster", true, async || {
            let leases = leases.list(&ListParams::default()).await?.items;
            let position =
                |lease: Lease| lease.metadata.annotations?.remove("label-storage/position")?.parse().ok();
            let positions: Option<Vec<u64>> = leases.into_iter().map(position).collect();
            let is_near = |position: &u64| (version..version + 10_000).contains(position);
            Ok(positions.is_some_and(|all| all.iter().all(is_near)))
        })
        .await?;
    }
    Ok(())
}

pub async fn a_record_that_is_being_deleted_takes_no_final_labels_along(s: &Scenario) -> Result<()> {
    let storer = s.storer(&NO_LISTS)?;
    s.is_watching(&storer).await?;
    let node = s.node("a");
    s.create(&node, pool("gold")).await?;
    s.eventually_stored(&node, pool("gold")).await?;
    s.patch_record(&node, json!({"metadata": {"finalizers": ["example.com/backup"]}})).await?;
    s.delete_record(&node).await?;
    s.label(&node, [("pool", Some("silver"))]).await?;
    s.delete(&node).await?;
    let waits = async || Ok(storer.has_logged(&["WARN", &node, "is being deleted"]));
    s.eventually("it waits", true, waits).await?;
    s.patch_record(&node, json!({"metadata": {"finalizers": null}})).await?;
    eventually_recorded(s, &node, pool("silver")).await
}
