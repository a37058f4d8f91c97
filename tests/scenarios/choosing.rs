//! Which labels of which nodes are kept, as operators choose.

use anyhow::{Context, Result};
use sandbox::process::Signal;
use serde_json::json;

use crate::scenario::{Labels, Scenario, labels};

const KEEP: &str = "label-storage/keep";

const OPT_IN: [&str; 2] = ["--rules", "nodes: {optIn: true}"];

pub async fn only_what_is_included_is_stored(s: &Scenario) -> Result<()> {
    s.list_often();
    let rules = ["--rules", "labels: {include: [persist.demo/*, pool], exclude: [persist.demo/secret]}"];
    let (storer, _restorer) = (s.storer(&rules)?, s.restorer(&rules)?);
    let node = s.node("a");
    let all =
        labels([("persist.demo/a", "1"), ("persist.demo/secret", "2"), ("pool", "gold"), ("other", "3")]);
    let kept = labels([("persist.demo/a", "1"), ("pool", "gold")]);
    s.create(&node, all).await?;
    s.eventually_stored(&node, kept.clone()).await?;
    s.label(&node, [("other", Some("4"))]).await?;
    s.has_acted(&storer, &node).await?;
    assert_eq!(s.record(&node).await?.context("no record")?.generation, 1, "no reason to write");
    s.delete(&node).await?;
    s.create(&node, labels([("other", "5")])).await?;
    s.eventually_labelled(&node, labels([("other", "5"), ("persist.demo/a", "1"), ("pool", "gold")])).await?;
    s.eventually_stored(&node, kept).await
}

pub async fn a_nodes_own_list_is_kept_and_still_holds_after_its_return(s: &Scenario) -> Result<()> {
    s.list_often();
    let (storer, _restorer) = s.pair()?;
    let node = s.node("a");
    let keep = "persist.demo/*,pool";
    s.create_as(
        &node,
        json!({"metadata": {
            "labels": {"persist.demo/a": "1", "pool": "gold", "other": "2"},
            "annotations": {KEEP: keep, "example.com/owner": "me"},
        }}),
    )
    .await?;
    let stored =
        |pool| labels([("annotation:label-storage/keep", keep), ("persist.demo/a", "1"), ("pool", pool)]);
    s.eventually_stored(&node, stored("gold")).await?;
    s.delete(&node).await?;
    s.create(&node, labels([("other", "3")])).await?;
    s.eventually_labelled(&node, labels([("other", "3"), ("persist.demo/a", "1"), ("pool", "gold")])).await?;
    assert_eq!(s.annotations(&node).await?, labels([(KEEP, keep)]));
    // It still holds.
    s.label(&node, [("other", Some("4")), ("pool", Some("silver"))]).await?;
    s.eventually_stored(&node, stored("silver")).await?;
    // Taken off, it is off, and what is kept is what the rules say.
    s.annotate(&node, [(KEEP, None)]).await?;
    let all = labels([("other", "4"), ("persist.demo/a", "1"), ("pool", "silver")]);
    s.eventually_stored(&node, all.clone()).await?;
    // Narrowed, it takes nothing away of what is stored.
    s.annotate(&node, [(KEEP, Some("pool"))]).await?;
    s.label(&node, [("other", Some("5"))]).await?;
    s.eventually("the list in the record", Some("pool".to_owned()), async || {
        Ok(s.record(&node).await?.context("no record")?.labels.remove("annotation:label-storage/keep"))
    })
    .await?;
    s.has_acted(&storer, &node).await?;
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, all).await
}

pub async fn an_ignored_node_is_neither_stored_nor_restored(s: &Scenario) -> Result<()> {
    s.list_often();
    let (storer, restorer) = s.pair()?;
    let (node, returning) = (s.node("a"), s.node("returning"));
    for node in [&node, &returning] {
        s.create(node, labels([("pool", "gold")])).await?;
        s.eventually_stored(node, labels([("pool", "gold")])).await?;
    }
    s.annotate(&node, [("label-storage/ignore", Some("true"))]).await?;
    s.has_decided(&storer, &node, "ignored").await?;
    s.label(&node, [("pool", Some("silver"))]).await?;
    s.has_acted(&storer, &node).await?;
    assert_eq!(s.record(&node).await?.context("no record")?.labels, labels([("pool", "gold")]));

    s.delete(&returning).await?;
    s.eventually_departed(&returning).await?;
    s.create_as(&returning, json!({"metadata": {"annotations": {"label-storage/ignore": "true"}}})).await?;
    s.has_decided(&restorer, &returning, "ignored").await?;
    s.has_acted(&restorer, &returning).await?;
    assert_eq!(s.labels(&returning).await?, Labels::new());
    // Any other word is none, and it is back in.
    s.annotate(&returning, [("label-storage/ignore", Some("false"))]).await?;
    s.eventually_labelled(&returning, labels([("pool", "gold")])).await?;
    s.annotate(&node, [("label-storage/ignore", None)]).await?;
    s.eventually_stored(&node, labels([("pool", "silver")])).await
}

pub async fn only_selected_nodes_get_a_record_and_it_follows_them(s: &Scenario) -> Result<()> {
    s.list_often();
    let rules = ["--rules", "nodes: {selector: 'pool in (gold,silver),!spot'}"];
    let (storer, restorer) = (s.storer(&rules)?, s.restorer(&rules)?);
    let (gold, spot, none) = (s.node("gold"), s.node("spot"), s.node("none"));
    s.create(&gold, labels([("pool", "gold"), ("team", "a")])).await?;
    s.create(&spot, labels([("pool", "gold"), ("spot", "")])).await?;
    s.create(&none, labels([("team", "a")])).await?;
    s.eventually_stored(&gold, labels([("pool", "gold"), ("team", "a")])).await?;
    for node in [&spot, &none] {
        s.has_decided(&storer, node, "not-selected").await?;
        s.has_acted(&storer, node).await?;
        assert!(s.config_map(node).await?.is_none());
    }
    // It has none of the labels that it is selected by when it returns.
    s.delete(&gold).await?;
    s.create(&gold, Labels::new()).await?;
    s.eventually_labelled(&gold, labels([("pool", "gold"), ("team", "a")])).await?;
    // The label that selects it is removed, and stays removed.
    s.label(&gold, [("pool", None)]).await?;
    s.eventually_stored(&gold, labels([("team", "a")])).await?;
    s.delete(&gold).await?;
    s.create(&gold, Labels::new()).await?;
    s.eventually_labelled(&gold, labels([("team", "a")])).await?;
    s.has_acted(&restorer, &gold).await
}

pub async fn where_nodes_have_to_ask_only_those_that_do_get_a_record(s: &Scenario) -> Result<()> {
    let (storer, _restorer) = (s.storer(&OPT_IN)?, s.restorer(&OPT_IN)?);
    let (asking, silent) = (s.node("asking"), s.node("silent"));
    let asks = json!({"metadata": {"labels": {"pool": "gold", "other": "1"}, "annotations": {KEEP: "pool"}}});
    s.create_as(&asking, asks).await?;
    s.create(&silent, labels([("pool", "gold")])).await?;
    s.eventually_stored(&asking, labels([("annotation:label-storage/keep", "pool"), ("pool", "gold")]))
        .await?;
    s.has_decided(&storer, &silent, "not-selected").await?;
    assert!(s.config_map(&silent).await?.is_none());
    s.delete(&asking).await?;
    s.create(&asking, Labels::new()).await?;
    s.eventually_labelled(&asking, labels([("pool", "gold")])).await?;
    assert_eq!(s.annotations(&asking).await?, labels([(KEEP, "pool")]), "it still asks");
    // A Node that is selected later gets a record then.
    s.annotate(&silent, [(KEEP, Some("*"))]).await?;
    s.eventually_stored(&silent, labels([("annotation:label-storage/keep", "*"), ("pool", "gold")])).await
}

pub async fn while_rules_change_nothing_is_lost(s: &Scenario) -> Result<()> {
    let rules =
        ["{}", "labels: {exclude: [other]}", "taints: {include: ['*']}", "startupTaint: {enabled: true}"];
    let start = |rules| anyhow::Ok([s.storer(&["--rules", rules])?, s.restorer(&["--rules", rules])?]);
    let mut daemons = start(rules[0])?;
    let nodes: Vec<_> = (0..6).map(|number| s.node(&format!("n{number}"))).collect();
    for node in &nodes {
        s.create(node, labels([("round", "0")])).await?;
    }
    for node in &nodes {
        s.eventually_stored(node, labels([("round", "0")])).await?;
    }
    // A daemon that ends before its first watch leaves no position for the next one.
    for daemon in &daemons {
        s.eventually("a watch", true, async || Ok(daemon.has_logged(&["watching kind=Nodes"]))).await?;
    }
    for (round, rules) in rules.iter().cycle().skip(1).take(6).enumerate() {
        // As a roll-out does: the old pod gets SIGTERM, and the new one starts after it has ended.
        for daemon in &daemons {
            daemon.process.signal(sandbox::process::Signal::TERM)?;
        }
        // Labelled and deleted while one or the other daemon may be in the middle of it.
        let value = (round + 1).to_string();
        for (number, node) in nodes.iter().enumerate() {
            s.label(node, [("round", Some(&value))]).await?;
            if number % 2 == round % 2 {
                s.delete(node).await?;
                s.create(node, Labels::new()).await?;
            }
        }
        for daemon in daemons {
            daemon.exit().await?;
        }
        daemons = start(rules)?;
        for node in &nodes {
            s.eventually_labelled(node, labels([("round", &value)])).await?;
        }
    }
    for node in &nodes {
        s.eventually_stored(node, labels([("round", "6")])).await?;
    }
    Ok(())
}

pub async fn narrowed_while_a_node_is_away_rules_lose_nothing_of_it(s: &Scenario) -> Result<()> {
    s.list_often();
    let (storer, restorer) = s.pair()?;
    let node = s.node("a");
    let all = labels([("other", "1"), ("pool", "gold")]);
    s.create(&node, all.clone()).await?;
    s.eventually_stored(&node, all.clone()).await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    for daemon in [storer, restorer] {
        daemon.process.signal(Signal::TERM)?;
        daemon.exit().await?;
    }
    let narrow = ["--rules", "{labels: {include: [pool]}, nodes: {selector: nobody=has-this}}"];
    let (storer, _restorer) = (s.storer(&narrow)?, s.restorer(&narrow)?);
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, all.clone()).await?;
    s.eventually_stored(&node, all.clone()).await?;
    s.has_acted(&storer, &node).await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, all).await
}

/// The final labels of a Node are stored by its own keep list, not by that of the next incarnation.
pub async fn the_list_of_the_next_node_does_not_decide_about_the_last_labels_of_the_one_before(
    s: &Scenario,
) -> Result<()> {
    let storer = s.storer(&[])?;
    let node = s.node("a");
    let all = labels([("a", "1"), ("b", "2"), ("c", "3")]);
    s.create(&node, all.clone()).await?;
    s.eventually_stored(&node, all).await?;
    s.annotate(&node, [(KEEP, Some("a"))]).await?;
    let kept = |a| labels([("a", a), ("annotation:label-storage/keep", "a"), ("b", "2"), ("c", "3")]);
    s.eventually_stored(&node, kept("1")).await?;
    storer.process.signal(Signal::TERM)?;
    storer.exit().await?;
    s.label(&node, [("a", Some("9"))]).await?;
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    let _storer = s.storer(&[])?;
    s.eventually("its last labels", Some(kept("9")), async || Ok(s.record(&node).await?.map(|it| it.labels)))
        .await
}

/// `departed-at` is removed from the record of an existing node, even if the node is ignored.
pub async fn an_ignored_node_is_not_said_to_be_gone(s: &Scenario) -> Result<()> {
    let _storer = s.storer(&[])?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    s.create_as(&node, json!({"metadata": {"annotations": {"label-storage/ignore": "true"}}})).await?;
    s.eventually_after("it is there", Some(false), async || {
        Ok(s.record(&node).await?.map(|record| record.departed_at.is_some()))
    })
    .await?;
    assert_eq!(s.record(&node).await?.context("no record")?.labels, labels([("pool", "gold")]));
    s.delete(&node).await?;
    s.eventually_departed(&node).await
}
