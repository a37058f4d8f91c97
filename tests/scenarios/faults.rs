//! The same little history, with something going wrong all the time. Both daemons are behind the proxy, and at the end
//! the labels are right.
//!
//! Single objects: every fault has a node of its own, and all of them live at the same time. Lists and watches are of all
//! nodes at once: every fault has daemons of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use faults::{Class, Fault, Proxy, Request, Script, Seeded, Verb};
use futures::{StreamExt, TryStreamExt};
use label_storage::name::record_name;

use crate::daemon::Daemon;
use crate::scenario::{Labels, Scenario, labels};

/// Labelled, stored, relabelled, deleted, re-created, restored, unlabelled: what was removed stays so. `step` is called
/// before each step.
async fn lives(s: &Scenario, node: &str, step: impl Fn()) -> Result<()> {
    step();
    s.create(node, labels([("keep", "yes"), ("pool", "gold")])).await?;
    s.eventually_stored(node, labels([("keep", "yes"), ("pool", "gold")])).await?;
    step();
    s.label(node, [("pool", Some("silver"))]).await?;
    s.eventually_stored(node, labels([("keep", "yes"), ("pool", "silver")])).await?;
    step();
    s.delete(node).await?;
    s.create(node, Labels::new()).await?;
    s.eventually_labelled(node, labels([("keep", "yes"), ("pool", "silver")])).await?;
    step();
    s.label(node, [("pool", None)]).await?;
    s.eventually_stored(node, labels([("keep", "yes")])).await?;
    step();
    s.delete(node).await?;
    s.create(node, Labels::new()).await?;
    s.eventually_labelled(node, labels([("keep", "yes")])).await?;
    step();
    // Once this is stored, the storer stores the node's own labels again, so a resurrected label would be stored, too.
    s.label(node, [("late", Some("yes"))]).await?;
    s.eventually_stored(node, labels([("keep", "yes"), ("late", "yes")])).await?;
    assert_eq!(s.labels(node).await?, labels([("keep", "yes"), ("late", "yes")]), "{node}");
    Ok(())
}

/// The writes, and the reads before them.
const SINGLE: [(Verb, &str); 5] = [
    (Verb::Get, "nodes"),
    (Verb::Get, "configmaps"),
    (Verb::Create, "configmaps"),
    (Verb::Update, "configmaps"),
    (Verb::Patch, "nodes"),
];

/// Every other request of these verbs, for the objects of these names, has this fault.
struct EveryOther(HashMap<(Verb, String), (Fault, usize)>);

impl Script for EveryOther {
    fn fault(&mut self, request: &Request) -> Fault {
        let Some(name) = &request.name else { return Fault::None };
        match self.0.get_mut(&(request.verb, name.clone())) {
            Some((fault, seen)) => {
                *seen += 1;
                if *seen % 2 == 1 { *fault } else { Fault::None }
            }
            None => Fault::None,
        }
    }
}

/// All of these faults side by side, each to a node of its own.
async fn each_on_its_own_node(
    s: &Scenario,
    faults: impl Fn(Verb) -> Vec<Fault>,
    expected: &[Class],
) -> Result<()> {
    let (mut script, mut nodes) = (HashMap::new(), Vec::new());
    for (verb, resource) in SINGLE {
        for fault in faults(verb) {
            let name: String = format!("{verb:?}-{resource}-{fault:?}")
                .to_lowercase()
                .split(|c: char| !c.is_ascii_alphanumeric())
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join("-");
            let node = s.node(&name);
            let object = if resource == "nodes" { node.clone() } else { record_name(&node) };
            script.insert((verb, object), (fault, 0));
            nodes.push(node);
        }
    }
    let proxy = s.proxy(EveryOther(script)).await?;
    let _daemons = pair(s, &proxy, &[])?;
    let lives = nodes.iter().map(async |node| lives(s, node, || ()).await.context(node.clone()));
    // Not more: daemons that fail all the time work on one node at a time, and each is to have its turn.
    futures::stream::iter(lives).buffer_unordered(8).try_collect::<()>().await?;
    happened(&proxy, expected)
}

fn pair(s: &Scenario, proxy: &Proxy, flags: &[&str]) -> Result<(Daemon, Daemon)> {
    Ok((s.daemon_through(proxy, "storer", flags)?, s.daemon_through(proxy, "restorer", flags)?))
}

/// A test in which nothing went wrong shows nothing.
fn happened(proxy: &Proxy, expected: &[Class]) -> Result<()> {
    let counts = proxy.counts();
    for class in expected {
        assert!(counts.contains_key(class), "{class} never happened: {counts:?}");
    }
    Ok(())
}

pub async fn connections_that_break_lose_nothing(s: &Scenario) -> Result<()> {
    s.list_often();
    let faults = [
        Fault::Latency(Duration::from_millis(300)),
        Fault::ResetBefore,
        Fault::ResetAfter,
        Fault::Truncated,
        Fault::Shortened,
        Fault::BlackHole,
    ];
    let expected: Vec<_> = faults.iter().filter_map(|fault| fault.class()).collect();
    each_on_its_own_node(s, |_| faults.to_vec(), &expected).await
}

pub async fn refusals_and_errors_lose_nothing(s: &Scenario) -> Result<()> {
    s.list_often();
    let instead = |code| Fault::Status { code, retry_after: None };
    let faults = |verb: Verb| {
        let mut faults = vec![instead(500), instead(504)];
        if verb.is_write() {
            faults.extend([409, 422].map(instead));
            faults.extend([500, 503, 504].map(Fault::StatusAfter));
        }
        faults
    };
    let mut expected = vec![Class::StatusAfter(500), Class::StatusAfter(503), Class::StatusAfter(504)];
    expected.extend([409, 422, 500, 504].map(Class::Status));
    each_on_its_own_node(s, faults, &expected).await
}

/// A server that is busy is left alone by all, so these have a test of their own.
pub async fn a_busy_server_is_waited_for(s: &Scenario) -> Result<()> {
    s.list_often();
    let busy = |code, retry_after| Fault::Status { code, retry_after };
    let faults = vec![busy(429, None), busy(429, Some(1)), busy(503, None), busy(503, Some(1))];
    each_on_its_own_node(s, |_| faults.clone(), &[Class::Status(429), Class::Status(503)]).await
}

pub async fn stale_answers_bring_nothing_back(s: &Scenario) -> Result<()> {
    s.list_often();
    each_on_its_own_node(s, |_| vec![Fault::Stale], &[Class::Stale]).await
}

/// Every other request of this verb has this fault: of those for nodes, and of those for records.
fn every_other(verb: Verb, fault: Fault) -> impl Script {
    let mut seen = [("nodes", 0), ("configmaps", 0)];
    move |request: &Request| {
        let counts = seen.iter_mut().find(|(resource, _)| request.is(verb, resource));
        match counts {
            Some((_, count)) => {
                *count += 1;
                if *count % 2 == 1 { fault } else { Fault::None }
            }
            None => Fault::None,
        }
    }
}

/// Each of these faults to every other such request, with daemons of its own.
async fn each_with_its_own_daemons(
    s: &Scenario,
    verb: Verb,
    faults: Vec<Fault>,
    flags: &[&str],
    cuts: bool,
) -> Result<()> {
    let cases = faults.into_iter().enumerate().map(async |(number, fault)| {
        // Each with a proxy of its own, or the one might have all the faults.
        let proxies = [s.proxy(every_other(verb, fault)).await?, s.proxy(every_other(verb, fault)).await?];
        let node = s.node(&format!("n{number}"));
        let flags = [flags, &["--nodes", node.as_str()]].concat();
        let _storer = s.daemon_through(&proxies[0], "storer", &flags)?;
        let _restorer = s.daemon_through(&proxies[1], "restorer", &flags)?;
        let step = || proxies.iter().filter(|_| cuts).for_each(Proxy::cut);
        lives(s, &node, step).await.with_context(|| format!("{fault:?}"))?;
        let expected: Vec<_> = fault.class().into_iter().collect();
        proxies.iter().try_for_each(|proxy| happened(proxy, &expected))
    });
    // Each has two daemons.
    futures::stream::iter(cases).buffer_unordered(4).try_collect().await
}

/// Only lists show changes here.
pub async fn lists_that_fail_lose_nothing(s: &Scenario) -> Result<()> {
    s.list_often();
    let mut faults = Fault::usual(Verb::List);
    // Lists may take long: that one is waited for for a minute.
    faults.retain(|fault| *fault != Fault::BlackHole);
    each_with_its_own_daemons(s, Verb::List, faults, &["--watch=false"], false).await
}

/// Lists come only where a watch can't go on.
pub async fn watches_that_fail_lose_nothing(s: &Scenario) -> Result<()> {
    s.list_often();
    let mut faults = Fault::usual(Verb::Watch);
    // Noticed after almost a minute: it has a test of its own.
    faults.retain(|fault| *fault != Fault::SilentWatch);
    // Else a watch lasts for most of a minute, and there would be only one.
    each_with_its_own_daemons(s, Verb::Watch, faults, &["--audit-interval", "1h"], true).await
}

/// A list that hangs takes a minute to be given up. Meanwhile there are the watches.
pub async fn a_list_that_is_never_answered_holds_up_nothing(s: &Scenario) -> Result<()> {
    s.list_often();
    let proxy = s.proxy(|_: &Request| Fault::None).await?;
    let (storer, restorer) = pair(s, &proxy, &[])?;
    for daemon in [&storer, &restorer] {
        let is_watching = async || Ok(daemon.log().matches(" INFO watching ").count() >= 2);
        s.eventually("both watches", true, is_watching).await?;
    }
    proxy.set_script(|request: &Request| {
        let is_ours = ["nodes", "configmaps"].contains(&&*request.resource);
        if request.verb == Verb::List && is_ours { Fault::BlackHole } else { Fault::None }
    });
    let both = async || Ok(proxy.counts().get(&Class::BlackHole).copied() >= Some(2));
    s.eventually("a list of each hangs", true, both).await?;
    lives(s, &s.node("a"), || ()).await
}

/// Of all requests for nodes, records and leases one in ten fails, in whatever way it can.
pub async fn everything_at_random_loses_nothing(s: &Scenario) -> Result<()> {
    s.list_often();
    // Those are waited for for a minute.
    let takes_long = |request: &Request, fault: Fault| {
        fault == Fault::SilentWatch || fault == Fault::BlackHole && request.verb == Verb::List
    };
    let script = Seeded::new(1, 0.1).resources(["nodes", "configmaps", "leases"]).excluding(takes_long);
    let proxy = s.proxy(script).await?;
    let _daemons = pair(s, &proxy, &[])?;
    let nodes: Vec<_> = (0..12).map(|number| s.node(&format!("n{number}"))).collect();
    let lives = nodes.iter().map(|node| async { lives(s, node, || ()).await.context(node.clone()) });
    futures::future::try_join_all(lives).await?;
    Ok(())
}

/// An empty record is deleted after its time, once.
pub async fn deletions_that_fail_are_made_again(s: &Scenario) -> Result<()> {
    s.list_often();
    let mut script = HashMap::new();
    let faults = Fault::usual(Verb::Delete);
    let nodes: Vec<_> = (0..faults.len()).map(|number| s.node(&format!("n{number}"))).collect();
    for (node, fault) in nodes.iter().zip(&faults) {
        script.insert((Verb::Delete, record_name(node)), (*fault, 0));
    }
    let proxy = s.proxy(EveryOther(script)).await?;
    let _storer = s.daemon_through(&proxy, "storer", &[])?;
    for node in &nodes {
        s.create(node, labels([("pool", "gold")])).await?;
        s.eventually_stored(node, labels([("pool", "gold")])).await?;
        s.label(node, [("pool", None)]).await?;
    }
    for node in &nodes {
        let is_gone = async || Ok(s.config_map(node).await?.is_none());
        s.eventually_after("the record is gone", true, is_gone).await?;
        assert_eq!(s.labels(node).await?, Labels::new());
    }
    happened(&proxy, &faults.into_iter().filter_map(Fault::class).collect::<Vec<_>>())
}

/// A server that is in trouble already is not asked all the time.
pub async fn leases_that_can_not_be_written_are_no_reason_to_hurry(s: &Scenario) -> Result<()> {
    s.list_often();
    for (number, (verb, fault)) in [
        (Verb::Create, Fault::Status { code: 500, retry_after: None }),
        (Verb::Create, Fault::Status { code: 409, retry_after: None }),
        (Verb::List, Fault::EmptyList),
    ]
    .into_iter()
    .enumerate()
    {
        let proxy = s.proxy(|_: &Request| Fault::None).await?;
        let node = s.node(&format!("n{number}"));
        let own = ["--nodes", node.as_str()];
        let holder = s.storer(&own)?;
        let holds = async || Ok(holder.log().contains("listed kind=Nodes"));
        s.eventually("somebody holds the lease", true, holds).await?;
        let counter = Arc::new(AtomicUsize::new(0));
        let writes = Arc::clone(&counter);
        proxy.set_script(move |request: &Request| {
            writes.fetch_add(usize::from(request.is(Verb::Create, "leases")), Ordering::Relaxed);
            if request.is(verb, "leases") { fault } else { Fault::None }
        });
        // One that never works: of another kind, where the lease must not be there.
        let kind = if fault == Fault::EmptyList { "storer" } else { "restorer" };
        let _blocked = s.daemon_through(&proxy, kind, &own)?;
        let tried = async || Ok(counter.load(Ordering::Relaxed) > 0);
        s.eventually("it is tried", true, tried).await?;
        // Lists come every 150 ms, and later where there is much to do.
        let (began, lists) = (Instant::now(), || holder.log().matches("listed kind=Nodes").count());
        let (before, enough) = (counter.load(Ordering::Relaxed), lists() + 8);
        s.eventually("some lists", true, async || Ok(lists() >= enough)).await?;
        let (tries, took) = (counter.load(Ordering::Relaxed) - before, began.elapsed());
        assert!(tries as f64 <= 10.0 + 8.0 * took.as_secs_f64(), "{fault:?}: {tries} tries in {took:?}");
    }
    Ok(())
}
