//! Answers that come with success and are not true: lists that lack something, and what was true once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use faults::{Class, Fault, Proxy, Request, Verb};
use label_storage::name::record_name;
use label_storage::record::{DEPARTED_AT, GENERATION, MANAGED_BY, NODE, NODE_UID};
use sandbox::process::Signal;
use serde_json::json;

use crate::daemon::Daemon;
use crate::scenario::{Labels, NO_LISTS, Scenario, labels};

/// Lists of this resource have this fault, and nothing else has any.
fn lists_of(resource: &'static str, fault: Fault) -> impl FnMut(&Request) -> Fault + Send + 'static {
    move |request| if request.is(Verb::List, resource) { fault } else { Fault::None }
}

/// Waits until so many more of these have happened.
async fn more(s: &Scenario, proxy: &Proxy, class: Class, times: u64) -> Result<()> {
    let count = || proxy.counts().get(&class).copied().unwrap_or_default();
    let enough = count() + times;
    s.eventually(&format!("{times} more: {class}"), true, async || Ok(count() >= enough)).await
}

/// Waits until a daemon has used this many more lists of nodes.
async fn lists(s: &Scenario, daemon: &Daemon, times: usize) -> Result<()> {
    let count = || daemon.log().matches("listed kind=Nodes").count();
    let enough = count() + times;
    s.eventually("some lists", true, async || Ok(count() >= enough)).await
}

/// Nodes that are stored, and what is stored of them, versions and all.
async fn some_nodes(s: &Scenario, count: usize) -> Result<BTreeMap<String, String>> {
    let mut versions = BTreeMap::new();
    for number in 0..count {
        let node = s.node(&format!("n{number}"));
        if s.nodes.get_opt(&node).await?.is_none() {
            s.create(&node, labels([("pool", "gold")])).await?;
        }
        s.eventually_stored(&node, labels([("pool", "gold")])).await?;
        let version = version(s, &node).await?;
        versions.insert(node, version);
    }
    Ok(versions)
}

async fn version(s: &Scenario, node: &str) -> Result<String> {
    Ok(s.config_map(node).await?.and_then(|record| record.metadata.resource_version).unwrap_or_default())
}

/// True if all records are unchanged.
async fn assert_untouched(s: &Scenario, versions: &BTreeMap<String, String>) -> Result<()> {
    for (node, before) in versions {
        assert_eq!(version(s, node).await?, *before, "{node}");
    }
    Ok(())
}

/// Counts the calls for single nodes and records from now on, while nothing goes wrong.
fn count_calls(proxy: &Proxy) -> Arc<Mutex<usize>> {
    let calls = Arc::new(Mutex::new(0));
    let counter = Arc::clone(&calls);
    proxy.set_script(move |request: &Request| {
        let is_single = !matches!(request.verb, Verb::List | Verb::Watch);
        if is_single && ["nodes", "configmaps"].contains(&&*request.resource) {
            *counter.lock().expect("no panic in here") += 1;
        }
        Fault::None
    });
    calls
}

/// Waits until some lists in a row were followed by no call at all: so the daemon knows again what there is.
async fn comes_to_rest(s: &Scenario, proxy: &Proxy, daemon: &Daemon) -> Result<()> {
    s.eventually("lists without a call", true, async || {
        let calls = count_calls(proxy);
        // Tidying waits for two seconds.
        lists(s, daemon, 16).await?;
        Ok(*calls.lock().expect("no panic in here") == 0)
    })
    .await
}

/// A few nodes may be missing in a list; each is read by name first. A list that lacks more is not used.
pub async fn an_empty_list_of_nodes_is_no_departure(s: &Scenario) -> Result<()> {
    s.list_often();
    let proxy = s.proxy(|_: &Request| Fault::None).await?;
    let storer = s.daemon_through(&proxy, "storer", &[])?;
    for count in [2, 8] {
        let versions = some_nodes(s, count).await?;
        proxy.set_script(lists_of("nodes", Fault::EmptyList));
        if count == 2 {
            let looks = |node: &str| storer.has_logged(&["nothing to write after a fresh read", node]);
            let by_name = async || Ok(versions.keys().all(|node| looks(node)));
            s.eventually("each is asked for by name", true, by_name).await?;
        } else {
            let tells = async || Ok(storer.has_logged(&["a large share of the nodes is missing"]));
            s.eventually("it is told", true, tells).await?;
        }
        more(s, &proxy, Class::EmptyList, 10).await?;
        assert_untouched(s, &versions).await?;
        comes_to_rest(s, &proxy, &storer).await?;
        assert_untouched(s, &versions).await?;
    }
    let node = s.node("n0");
    s.label(&node, [("pool", Some("silver"))]).await?;
    s.eventually_stored(&node, labels([("pool", "silver")])).await
}

pub async fn a_list_without_a_third_of_the_nodes_is_no_departure(s: &Scenario) -> Result<()> {
    s.list_often();
    let proxy = s.proxy(|_: &Request| Fault::None).await?;
    let storer = s.daemon_through(&proxy, "storer", &[])?;
    let versions = some_nodes(s, 9).await?;
    proxy.set_script(lists_of("nodes", Fault::PartialList));
    // A third is not too many to be gone.
    let looks = |node: &str| storer.has_logged(&["nothing to write after a fresh read", node]);
    let by_name = async || Ok(versions.keys().filter(|node| looks(node)).count() >= 3);
    s.eventually("those are asked for by name", true, by_name).await?;
    assert_untouched(s, &versions).await?;
    comes_to_rest(s, &proxy, &storer).await?;
    assert_untouched(s, &versions).await
}

/// A list that lacked a node must not stand against all later ones that have it.
pub async fn a_node_that_a_list_lacked_is_known_again_from_the_next(s: &Scenario) -> Result<()> {
    s.list_often();
    let proxy = s.proxy(|_: &Request| Fault::None).await?;
    let restorer = s.daemon_through(&proxy, "restorer", &[])?;
    let node = s.node("a");
    s.create(&node, Labels::new()).await?;
    // Of this very incarnation, so there is nothing to restore.
    let record = json!({
        "metadata": {
            "name": record_name(&node),
            "labels": {MANAGED_BY.0: MANAGED_BY.1},
            "annotations": {NODE: node, NODE_UID: s.get(&node).await?.metadata.uid, GENERATION: "1"},
        },
        "data": {"pool": "gold"},
    });
    s.config_maps.create(&Default::default(), &serde_json::from_value(record)?).await?;
    s.has_acted(&restorer, &node).await?;
    proxy.set_script(lists_of("nodes", Fault::EmptyList));
    more(s, &proxy, Class::EmptyList, 3).await?;
    proxy.set_script(|_: &Request| Fault::None);
    lists(s, &restorer, 3).await?;
    assert_eq!(s.labels(&node).await?, Labels::new());
    // A person says that it is to be restored.
    s.patch_record(&node, json!({"metadata": {"annotations": {NODE_UID: null}}})).await?;
    s.eventually_labelled(&node, labels([("pool", "gold")])).await
}

/// Without records every node seems new, and none to be restored.
pub async fn an_empty_list_of_records_changes_nothing(s: &Scenario) -> Result<()> {
    s.list_often();
    let proxy = s.proxy(|_: &Request| Fault::None).await?;
    let storer = s.daemon_through(&proxy, "storer", &[])?;
    let restorer = s.daemon_through(&proxy, "restorer", &[])?;
    let away = s.node("away");
    s.create(&away, labels([("pool", "silver")])).await?;
    s.eventually_stored(&away, labels([("pool", "silver")])).await?;
    s.delete(&away).await?;
    s.eventually_departed(&away).await?;
    let mut versions = some_nodes(s, 4).await?;
    versions.insert(away.clone(), version(s, &away).await?);
    proxy.set_script(lists_of("configmaps", Fault::EmptyList));
    more(s, &proxy, Class::EmptyList, 10).await?;
    assert_untouched(s, &versions).await?;
    comes_to_rest(s, &proxy, &storer).await?;
    lists(s, &restorer, 3).await?;
    assert_untouched(s, &versions).await?;
    s.create(&away, Labels::new()).await?;
    s.eventually_labelled(&away, labels([("pool", "silver")])).await
}

/// Lists that stay older than earlier ones may be of another cluster: the daemon starts over, and nothing is lost.
pub async fn lists_that_stay_stale_lose_nothing(s: &Scenario) -> Result<()> {
    s.list_often();
    let proxy = s.proxy(|_: &Request| Fault::None).await?;
    let start =
        || anyhow::Ok([s.daemon_through(&proxy, "storer", &[])?, s.daemon_through(&proxy, "restorer", &[])?]);
    let daemons = start()?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold"), ("keep", "yes")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold"), ("keep", "yes")])).await?;
    for daemon in &daemons {
        lists(s, daemon, 10).await?;
    }
    proxy.set_script(|request: &Request| {
        let is_ours = ["nodes", "configmaps"].contains(&&*request.resource);
        if request.verb == Verb::List && is_ours { Fault::Stale } else { Fault::None }
    });
    s.label(&node, [("pool", None)]).await?;
    for daemon in &daemons {
        let starts_over =
            async || Ok(daemon.has_logged(&["WARN", "the cluster went back to an earlier version"]));
        s.eventually("it starts over", true, starts_over).await?;
    }
    s.eventually_stored(&node, labels([("keep", "yes")])).await?;
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    // Those that know of nothing but what is stale.
    for daemon in &daemons {
        daemon.process.signal(Signal::TERM)?;
        daemon.exit().await?;
    }
    let daemons = start()?;
    for daemon in &daemons {
        lists(s, daemon, 3).await?;
    }
    proxy.set_script(|_: &Request| Fault::None);
    s.eventually_labelled(&node, labels([("keep", "yes")])).await?;
    s.label(&node, [("late", Some("yes"))]).await?;
    s.eventually_stored(&node, labels([("keep", "yes"), ("late", "yes")])).await
}

/// The record as it was before the label was removed, although the restorer has seen a later version.
pub async fn a_stale_record_brings_no_removed_label_back(s: &Scenario) -> Result<()> {
    s.list_often();
    let proxy = s.proxy(|_: &Request| Fault::None).await?;
    let _storer = s.storer(&[])?;
    let restorer = s.daemon_through(&proxy, "restorer", &[])?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold"), ("keep", "yes")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold"), ("keep", "yes")])).await?;
    s.delete(&node).await?;
    // Has the restorer read the record with the label in it, which is what is answered later.
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, labels([("pool", "gold"), ("keep", "yes")])).await?;
    s.label(&node, [("pool", None)]).await?;
    s.eventually_stored(&node, labels([("keep", "yes")])).await?;
    lists(s, &restorer, 3).await?;
    let mut stale = 0;
    proxy.set_script(move |request: &Request| {
        let is_read = request.is(Verb::Get, "configmaps");
        stale += usize::from(is_read);
        if is_read && stale <= 3 { Fault::Stale } else { Fault::None }
    });
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, labels([("keep", "yes")])).await?;
    assert!(proxy.counts().contains_key(&Class::Stale), "{:?}", proxy.counts());
    // The storer stores the node again, and the node has the expected labels.
    s.label(&node, [("late", Some("yes"))]).await?;
    s.eventually_stored(&node, labels([("keep", "yes"), ("late", "yes")])).await
}

/// The first two of these requests are answered that there is no such object.
fn absent_twice(verb: Verb, resource: &'static str) -> impl FnMut(&Request) -> Fault + Send + 'static {
    let mut lies = 0;
    move |request| {
        let fits = request.is(verb, resource);
        lies += usize::from(fits);
        let absent = Fault::Status { code: 404, retry_after: None };
        if fits && lies <= 2 { absent } else { Fault::None }
    }
}

pub async fn a_record_that_is_said_to_be_absent_is_asked_for_again(s: &Scenario) -> Result<()> {
    let proxy = s.proxy(|_: &Request| Fault::None).await?;
    let _storer = s.storer(&[])?;
    let restorer = s.daemon_through(&proxy, "restorer", &NO_LISTS)?;
    s.is_watching(&restorer).await?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.has_decided(&restorer, &node, "same-incarnation").await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    proxy.set_script(absent_twice(Verb::Get, "configmaps"));
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, labels([("pool", "gold")])).await?;
    assert_eq!(proxy.counts().get(&Class::Status(404)), Some(&2));
    Ok(())
}

pub async fn a_node_that_is_said_to_be_absent_is_asked_for_again(s: &Scenario) -> Result<()> {
    let proxy = s.proxy(|_: &Request| Fault::None).await?;
    let storer = s.daemon_through(&proxy, "storer", &NO_LISTS)?;
    s.is_watching(&storer).await?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.has_decided(&storer, &node, "up-to-date").await?;
    proxy.set_script(absent_twice(Verb::Get, "nodes"));
    s.label(&node, [("pool", Some("silver"))]).await?;
    s.eventually_stored(&node, labels([("pool", "silver")])).await?;
    assert_eq!(proxy.counts().get(&Class::Status(404)), Some(&2));
    assert!(s.record(&node).await?.is_some_and(|record| record.departed_at.is_none()));
    Ok(())
}

/// Times from a clock that jumped: a departure in the future, or long before the first write.
pub async fn a_departure_at_the_wrong_time_loses_nothing(s: &Scenario) -> Result<()> {
    s.list_often();
    let (_storer, _restorer) = s.pair()?;
    for (name, when) in [("future", "2999-01-01T00:00:00Z"), ("past", "1970-01-01T00:00:00Z")] {
        let node = s.node(name);
        s.create(&node, labels([("pool", "gold")])).await?;
        s.eventually_stored(&node, labels([("pool", "gold")])).await?;
        s.delete(&node).await?;
        s.eventually_departed(&node).await?;
        s.patch_record(&node, json!({"metadata": {"annotations": {DEPARTED_AT: when}}})).await?;
        s.create(&node, Labels::new()).await?;
        s.eventually_labelled(&node, labels([("pool", "gold")])).await?;
        s.label(&node, [("pool", Some("silver"))]).await?;
        s.eventually_stored(&node, labels([("pool", "silver")])).await?;
        let departed_at = s.record(&node).await?.and_then(|record| record.departed_at);
        assert_eq!(departed_at, None, "{node}");
    }
    Ok(())
}
