//! Changes that are interrupted by other writers or by network failures.

use std::sync::{Arc, Mutex};

use anyhow::{Result, ensure};
use faults::{Fault, Request, Verb};
use label_storage::name::record_name;

use super::{departed, does};
use crate::scenario::{Labels, Scenario, Told, labels};

/// Runs the plugin where the first request of this verb for a ConfigMap or a Node has this fault. After that it has to look before it writes.
async fn with_fault(s: &Scenario, verb: Verb, fault: Fault, args: &[&str]) -> Result<Told> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (log, mut is_over) = (Arc::clone(&seen), false);
    let script = move |request: &Request| {
        log.lock().expect("no panic in here").push((request.verb, request.name.clone()));
        let is_it = request.is(verb, "configmaps") || request.is(verb, "nodes");
        let is_first = is_it && !std::mem::replace(&mut is_over, true);
        if is_first { fault } else { Fault::None }
    };
    let proxy = s.proxy(script).await?;
    let kubeconfig = proxy.kubeconfig().to_str().expect("a path").to_owned();
    let told = s.plugin(&[args, &["--yes", "--kubeconfig", &kubeconfig]].concat())?;
    let seen = seen.lock().expect("no panic in here").clone();
    let failed = seen.iter().position(|(its, _)| *its == verb).expect("the one that failed");
    let name = &seen[failed].1;
    let next = seen[failed + 1..].iter().position(|(verb, _)| verb.is_write());
    if let Some(next) = next {
        let between = &seen[failed + 1..failed + 1 + next];
        ensure!(between.iter().any(|(verb, its)| *verb == Verb::Get && its == name), "{fault:?} {seen:?}");
    }
    Ok(told)
}

pub async fn a_write_of_unclear_effect_is_looked_for_and_made_once(s: &Scenario) -> Result<()> {
    let faults = [
        Fault::ResetBefore,
        Fault::ResetAfter,
        Fault::StatusAfter(504),
        Fault::Status { code: 409, retry_after: None },
        Fault::Status { code: 500, retry_after: None },
        Fault::Status { code: 429, retry_after: Some(1) },
    ];
    for (at, fault) in faults.into_iter().enumerate() {
        let name = |what: &str| s.node(&format!("{what}-{at}"));
        let done = |told: &Told| told.code == Some(0);
        // Set twice, it would have two more generations.
        let node = name("set");
        departed(s, &node, &labels([("pool", "gold")])).await?;
        let before = s.record(&node).await?.map(|record| record.generation);
        let told = with_fault(s, Verb::Update, fault, &["set", &node, "pool=silver"]).await?;
        ensure!(done(&told), "{fault:?} {told:?}");
        let after = s.record(&node).await?.map(|record| (record.generation, record.labels));
        assert_eq!(after, before.map(|before| (before + 1, labels([("pool", "silver")]))), "{fault:?}");
        // Renamed, forgotten, restored.
        let new = name("new");
        for verb in [Verb::Create, Verb::Delete] {
            let (from, to) = if verb == Verb::Create { (&node, &new) } else { (&new, &node) };
            let told = with_fault(s, verb, fault, &["rename", from, to]).await?;
            ensure!(done(&told), "{verb:?} {fault:?} {told:?}");
            assert!(s.record(from).await?.is_none());
            assert_eq!(s.record(to).await?.map(|record| record.labels), Some(labels([("pool", "silver")])));
        }
        s.create(&node, Labels::new()).await?;
        let told = with_fault(s, Verb::Patch, fault, &["restore", &node]).await?;
        ensure!(done(&told), "{fault:?} {told:?}");
        assert_eq!(s.labels(&node).await?, labels([("pool", "silver")]));
        let told = with_fault(s, Verb::Delete, fault, &["forget", &node]).await?;
        ensure!(done(&told), "{fault:?} {told:?}");
        assert!(s.record(&node).await?.is_none());
    }
    Ok(())
}

pub async fn a_rename_that_fails_in_the_middle_leaves_both(s: &Scenario) -> Result<()> {
    let (old, new) = (s.node("old"), s.node("new"));
    departed(s, &old, &labels([("pool", "gold")])).await?;
    let refused = Fault::Status { code: 403, retry_after: None };
    let told = with_fault(s, Verb::Delete, refused, &["rename", &old, &new]).await?;
    let begun = format!("error: done so far: create configmap {}", record_name(&new));
    ensure!(told.code == Some(1) && told.err.starts_with(&begun) && told.err.contains("403"), "{told:?}");
    assert!(s.record(&old).await?.is_some() && s.record(&new).await?.is_some());
    does(s, &["rename", &old, &new, "--yes"])?;
    assert!(s.record(&old).await?.is_none());
    assert_eq!(s.record(&new).await?.map(|record| record.labels), Some(labels([("pool", "gold")])));
    Ok(())
}

pub async fn when_the_api_server_fails_no_other_node_is_tried(s: &Scenario) -> Result<()> {
    let nodes = ["a", "b"].map(|name| s.node(name));
    for node in &nodes {
        departed(s, node, &labels([("pool", "gold")])).await?;
    }
    let deleted = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&deleted);
    let proxy = s.proxy(move |request: &Request| match request.is(Verb::Delete, "configmaps") {
        true => {
            log.lock().expect("no panic in here").extend(request.name.clone());
            Fault::Status { code: 500, retry_after: None }
        }
        false => Fault::None,
    });
    let proxy = proxy.await?;
    let kubeconfig = proxy.kubeconfig().to_str().expect("a path").to_owned();
    let told = s.plugin(&["forget", &nodes[0], &nodes[1], "--yes", "--kubeconfig", &kubeconfig])?;
    ensure!(told.code == Some(1) && told.err.ends_with("error: 2 of 2 records failed\n"), "{told:?}");
    let tried = deleted.lock().expect("no panic in here").clone();
    ensure!(!tried.is_empty() && tried.iter().all(|name| *name == record_name(&nodes[0])), "{tried:?}");
    Ok(())
}

pub async fn restoring_beside_the_restorer_is_no_fight(s: &Scenario) -> Result<()> {
    s.list_often();
    let (storer, restorer) = s.pair()?;
    let nodes: Vec<_> = (0..12).map(|at| s.node(&format!("n{at}"))).collect();
    let kept = labels([("pool", "gold"), ("zone", "a")]);
    for node in &nodes {
        s.create(node, kept.clone()).await?;
    }
    for node in &nodes {
        s.eventually_stored(node, kept.clone()).await?;
    }
    for node in &nodes {
        s.delete(node).await?;
        s.create(node, labels([("zone", "b")])).await?;
    }
    let args: Vec<_> = ["restore", "--yes"].into_iter().chain(nodes.iter().map(String::as_str)).collect();
    let told = s.plugin(&args)?;
    ensure!(told.code == Some(0), "{told:?}");
    let all = labels([("pool", "gold"), ("zone", "b")]);
    for node in &nodes {
        assert_eq!(s.labels(node).await?, all);
        s.eventually_stored(node, all.clone()).await?;
    }
    let (last, before) = (&nodes[11], s.get(&nodes[11]).await?.metadata.resource_version);
    s.has_acted(&storer, last).await?;
    s.has_acted(&restorer, last).await?;
    assert_eq!(s.get(last).await?.metadata.resource_version, before, "nobody writes it any more");
    Ok(())
}
