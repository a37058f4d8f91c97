//! `rollback`.

use anyhow::{Context, Result};
use serde_json::json;

use super::{TRUST, does, has_lines, on, refuses};
use crate::scenario::{Labels, Scenario, labels};

/// The generation in which these labels were stored.
async fn generation_of(s: &Scenario, node: &str, wanted: &Labels) -> Result<String> {
    let record = s.record(node).await?.context("a record")?;
    let version = record.more.history.iter().find(|version| version.labels == *wanted);
    Ok(version.with_context(|| format!("{wanted:?} in {record:?}"))?.generation.to_string())
}

pub async fn a_node_that_is_there_gets_an_earlier_version_back(s: &Scenario) -> Result<()> {
    s.list_often();
    let (_storer, restorer) = s.pair()?;
    let node = s.node("a");
    let first = labels([("pool", "gold"), ("zone", "a")]);
    s.create(&node, first.clone()).await?;
    s.eventually_stored(&node, first.clone()).await?;
    s.label(&node, [("pool", Some("silver")), ("zone", None), ("new", Some("1"))]).await?;
    s.eventually_stored(&node, labels([("pool", "silver"), ("new", "1")])).await?;
    let generation = generation_of(s, &node, &first).await?;
    refuses(
        s,
        &["rollback", &node, "--to", "99", "--yes"],
        &["generation 99 of node", "is not stored: choose from", &generation],
    )?;
    let said = does(s, &["rollback", &node, "--to", &generation, "--dry-run"])?;
    has_lines(&said, &["  -pool=silver", "  +pool=gold", "  +zone=a", "  -new=1"])?;
    assert_eq!(s.labels(&node).await?, labels([("pool", "silver"), ("new", "1")]));
    does(s, &["rollback", &node, "--to", &generation, "--yes"])?;
    assert_eq!(s.labels(&node).await?, first);
    s.eventually_stored(&node, first.clone()).await?;
    s.has_acted(&restorer, &node).await?;
    assert_eq!(s.labels(&node).await?, first, "what was taken off does not come back");
    generation_of(s, &node, &labels([("pool", "silver"), ("new", "1")])).await.map(|_| ())
}

pub async fn a_node_that_is_away_comes_back_with_an_earlier_version(s: &Scenario) -> Result<()> {
    let rules = s.file("rules.yaml");
    std::fs::write(&rules, "identity: {otherMachine: untrusted}\n")?;
    let config = ["--config", rules.to_str().context("a path")?];
    let (_storer, _restorer) = (s.storer(&config)?, s.restorer(&config)?);
    let (node, m1) = (s.node("a"), "4c4c4544-0001-4410-8058-b4c04f564c31");
    let m2 = "4c4c4544-0002-4410-8058-b4c04f564c32";
    let first = labels([("pool", "gold"), (TRUST, "1")]);
    s.create_as(&node, on(m1, json!(first))).await?;
    s.eventually_stored(&node, first.clone()).await?;
    s.label(&node, [("pool", Some("silver")), (TRUST, None)]).await?;
    s.eventually_stored(&node, labels([("pool", "silver")])).await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    let generation = generation_of(s, &node, &first).await?;
    refuses(s, &["rollback", &node, "--to", "99", "--yes"], &["choose from", &generation])?;
    let said = does(s, &[&["rollback", &node, "--to", &generation, "--yes"], &config[..]].concat())?;
    has_lines(&said, &["  -pool=silver", "  +pool=gold"])?;
    has_lines(&said, &[&format!("  ! {TRUST} is not changed: give --trust to include it on any machine")])?;
    let record = s.record(&node).await?.context("a record")?;
    assert_eq!(record.labels, labels([("pool", "gold")]));
    generation_of(s, &node, &labels([("pool", "silver")])).await?;
    // The trust label is restored only to the machine that had it.
    s.create_as(&node, on(m2, json!({}))).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.eventually_labelled(&node, labels([("pool", "gold")])).await
}

pub async fn where_there_is_nothing_to_go_back_to_it_is_said(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    refuses(s, &["rollback", &node, "--to", "1", "--yes"], &["there is no node"])?;
    super::departed(s, &node, &labels([("pool", "gold")])).await?;
    refuses(s, &["rollback", &node, "--to", "1", "--yes"], &["generation 1 of node", "is the present one"])?;
    refuses(s, &["rollback", &node, "--to", "7", "--yes"], &["no earlier version of node"])?;
    let told = s.plugin(&["rollback", &node, "--yes"])?;
    assert_eq!(told.code, Some(2), "{told:?}");
    // One that is still to be restored has no labels to speak of.
    does(s, &["set", &node, "pool=silver", "--yes"])?;
    s.create(&node, Labels::new()).await?;
    refuses(s, &["rollback", &node, "--to", "1", "--yes"], &["is not restored yet"])?;
    assert_eq!(s.labels(&node).await?, Labels::new());
    Ok(())
}

pub async fn what_a_version_could_not_tell_of_is_left_alone(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    // A version by rules that keep some labels and nothing else.
    let storer = s.storer(&["--rules", "labels: {exclude: [zone, rack]}"])?;
    let content = json!({
        "metadata": {"labels": {"pool": "gold", "zone": "a", "rack": "1"}, "annotations": {"example.com/owner": "me"}},
        "spec": {"unschedulable": true, "taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]},
    });
    s.create_as(&node, content).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.label(&node, [("pool", Some("silver"))]).await?;
    s.eventually_stored(&node, labels([("pool", "silver")])).await?;
    drop(storer);
    // All of it is kept, and then the rules have no more of the zone.
    let all = [
        "--rules",
        "{annotations: {include: [example.com/*]}, taints: {include: ['*']}, cordon: true, history: 9}",
    ];
    let storer = s.storer(&all)?;
    let kept = labels([
        ("pool", "silver"),
        ("zone", "a"),
        ("rack", "1"),
        ("annotation:example.com/owner", "me"),
        ("cordon:", "true"),
        ("taint:NoSchedule:dedicated", "gpu"),
    ]);
    s.eventually_stored(&node, kept.clone()).await?;
    let generation = generation_of(s, &node, &labels([("pool", "gold")])).await?;
    drop(storer);
    let rules = s.file("rules.yaml");
    std::fs::write(
        &rules,
        "{labels: {exclude: [zone]}, annotations: {include: [example.com/*]}, taints: {include: ['*']}, cordon: true, history: 9}",
    )?;
    let rules = rules.to_str().context("a path")?;
    let rollback = ["rollback", node.as_str(), "--to", &generation, "--yes", "--config", rules];
    let left = [
        "  ! annotation:example.com/owner is not changed: that version has no item of this kind",
        "  ! cordon: is not changed: that version has no item of this kind",
        "  ! taint:NoSchedule:dedicated is not changed: that version has no item of this kind",
        "  ! zone is not changed: the rules do not keep it",
    ];
    let said = does(s, &[&rollback[..], &["--dry-run"]].concat())?;
    has_lines(&said, &[&["  -pool=silver", "  +pool=gold", "  -rack=1"][..], &left].concat())?;
    does(s, &rollback)?;
    assert_eq!(s.labels(&node).await?, labels([("pool", "gold"), ("zone", "a")]));
    let found = s.get(&node).await?;
    let spec = found.spec.context("a spec")?;
    let taints = spec.taints.unwrap_or_default();
    assert!(spec.unschedulable == Some(true) && taints.iter().any(|taint| taint.key == "dedicated"));
    assert_eq!(s.annotations(&node).await?.get("example.com/owner").map(String::as_str), Some("me"));

    // And while it is away.
    let _storer = s.storer(&all)?;
    let now = kept.into_iter().filter(|(name, _)| name != "rack").chain(labels([("pool", "gold")])).collect();
    s.eventually_stored(&node, now).await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    does(s, &["set", &node, "pool=bronze", "--yes", "--config", rules])?;
    let generation = generation_of(s, &node, &labels([("pool", "gold")])).await?;
    let said = does(s, &["rollback", &node, "--to", &generation, "--yes", "--config", rules])?;
    has_lines(&said, &[&["  -pool=bronze", "  +pool=gold"][..], &left].concat())?;
    let record = s.record(&node).await?.context("a record")?;
    let names: Vec<_> = record.labels.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["annotation:example.com/owner", "cordon:", "pool", "taint:NoSchedule:dedicated", "zone"]
    );
    Ok(())
}
