//! Labels that are not to be stored, and what becomes of those that were.

use anyhow::{Context, Result};
use sandbox::process::Signal;

use crate::scenario::{Labels, Scenario, labels};

const FACTS: [&str; 2] = ["--rules", "labels: {exclude: [machine-facts]}"];
const EXAMPLE: [&str; 2] = ["--rules", "labels: {exclude: [example.com/*]}"];

pub async fn machine_facts_are_not_stored(s: &Scenario) -> Result<()> {
    s.list_often();
    let (storer, _restorer) = (s.storer(&FACTS)?, s.restorer(&FACTS)?);
    let (node, bare) = (s.node("a"), s.node("bare"));
    let (host, zone) = ("kubernetes.io/hostname", "topology.kubernetes.io/zone");
    s.create(&bare, labels([(host, "bare"), (zone, "z1")])).await?;
    s.create(&node, labels([(host, "a"), (zone, "z1"), ("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    // A change of excluded labels causes no write.
    s.label(&node, [(zone, Some("z2"))]).await?;
    s.has_acted(&storer, &node).await?;
    s.has_acted(&storer, &bare).await?;
    let record = s.record(&node).await?.context("no record")?;
    assert_eq!((record.labels, record.generation), (labels([("pool", "gold")]), 1));
    assert!(s.config_map(&bare).await?.is_none(), "nothing of it is to be stored");
    // A machine of that name in another place.
    s.delete(&node).await?;
    s.create(&node, labels([(host, "b")])).await?;
    s.eventually_labelled(&node, labels([(host, "b"), ("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    // A label that a person removes is removed from the record, too.
    s.label(&node, [("pool", None)]).await?;
    s.eventually_stored(&node, Labels::new()).await
}

pub async fn what_was_stored_before_it_was_excluded_stays_and_comes_back(s: &Scenario) -> Result<()> {
    s.list_often();
    let (node, theirs) = (s.node("a"), s.node("theirs"));
    let (storer, _restorer) = s.pair()?;
    let all = labels([("example.com/a", "1"), ("example.com/b", "1"), ("pool", "gold")]);
    s.create(&node, all.clone()).await?;
    s.create(&theirs, labels([("example.com/a", "1")])).await?;
    s.eventually_stored(&node, all).await?;
    s.eventually_stored(&theirs, labels([("example.com/a", "1")])).await?;
    storer.process.signal(Signal::TERM)?;
    storer.exit().await?;

    let storer = s.storer(&EXAMPLE)?;
    s.label(&node, [("example.com/a", Some("2")), ("example.com/b", None), ("example.com/c", Some("2"))])
        .await?;
    s.label(&node, [("pool", Some("silver"))]).await?;
    let kept = labels([("example.com/a", "1"), ("example.com/b", "1"), ("pool", "silver")]);
    s.eventually_stored(&node, kept.clone()).await?;
    // A record of which this storer would store nothing is not empty, also if its node has nothing left.
    s.label(&theirs, [("example.com/a", None)]).await?;
    s.has_acted(&storer, &theirs).await?;
    assert!(!storer.has_logged(&[&theirs, "empty"]));
    for node in [&node, &theirs] {
        s.delete(node).await?;
        s.eventually_departed(node).await?;
        s.create(node, Labels::new()).await?;
    }
    s.eventually_labelled(&node, kept.clone()).await?;
    s.eventually_labelled(&theirs, labels([("example.com/a", "1")])).await?;
    s.eventually_stored(&node, kept).await?;
    storer.process.signal(Signal::TERM)?;
    storer.exit().await?;

    // Not excluded any more, so the labels of the node are stored again.
    s.label(&node, [("example.com/a", Some("3")), ("example.com/b", None)]).await?;
    let _storer = s.storer(&[])?;
    s.eventually_stored(&node, labels([("example.com/a", "3"), ("pool", "silver")])).await
}

pub async fn storers_with_different_rules_lose_nothing_and_do_not_fight(s: &Scenario) -> Result<()> {
    s.list_often();
    let _restorer = s.restorer(&[])?;
    let storers = [s.storer(&[])?, s.storer(&EXAMPLE)?];
    let node = s.node("a");
    s.create(&node, labels([("example.com/a", "0"), ("pool", "0")])).await?;
    for round in ["1", "2", "3"] {
        s.label(&node, [("example.com/a", Some(round)), ("pool", Some(round))]).await?;
        let kept = labels([("example.com/a", round), ("pool", round)]);
        s.eventually_stored(&node, kept.clone()).await?;
        for storer in &storers {
            s.has_acted(storer, &node).await?;
        }
        let before = s.config_map(&node).await?;
        for storer in &storers {
            s.has_acted(storer, &node).await?;
        }
        assert_eq!(s.config_map(&node).await?, before, "both are content");
        s.delete(&node).await?;
        s.create(&node, Labels::new()).await?;
        s.eventually_labelled(&node, kept.clone()).await?;
        s.eventually_stored(&node, kept).await?;
    }
    Ok(())
}

/// A restorer waits for the final labels of a node to be stored. No storer runs, so the wait is visible.
pub async fn what_is_excluded_is_not_waited_for(s: &Scenario) -> Result<()> {
    const RULES: [&str; 2] =
        ["--rules", "{labels: {exclude: [machine-facts]}, identity: {otherMachine: none}}"];
    let (waiting, back) = (s.node("waiting"), s.node("back"));
    let restorer = s.restorer(&RULES)?;
    let hosts = |pool| labels([("kubernetes.io/hostname", "h1"), ("pool", pool)]);
    let storer = s.storer(&RULES)?;
    for node in [&waiting, &back] {
        s.create(node, hosts("gold")).await?;
        s.eventually_stored(node, labels([("pool", "gold")])).await?;
        s.has_decided(&restorer, node, "same-incarnation").await?;
    }
    storer.process.signal(Signal::KILL)?;
    storer.exit().await?;
    s.label(&waiting, [("pool", Some("silver"))]).await?;
    s.label(&back, [("kubernetes.io/hostname", Some("h2"))]).await?;
    for node in [&waiting, &back] {
        s.delete(node).await?;
        s.create(node, Labels::new()).await?;
    }
    s.eventually_labelled(&back, labels([("pool", "gold")])).await?;
    assert_eq!(s.labels(&waiting).await?, Labels::new(), "its last change is not stored, and may be yet");
    Ok(())
}
