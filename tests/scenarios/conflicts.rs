//! Conflicts between the values of a re-created node and its record.

use anyhow::{Context, Result};
use sandbox::process::Signal;

use crate::events::events_of;
use crate::scenario::{Scenario, labels};

const RULES: [&str; 2] =
    ["--rules", "conflicts: [{keys: [pool], wins: record}, {keys: [tier], wins: report}]"];

pub async fn the_record_counts_where_the_rules_say_so_and_what_was_before_is_kept(
    s: &Scenario,
) -> Result<()> {
    let (_storer, restorer) =
        (s.storer(&RULES)?, s.restorer(&[&RULES[..], &["--admin-address", "127.0.0.1:0"]].concat())?);
    let node = s.node("a");
    let gold = labels([("pool", "gold"), ("tier", "1"), ("zone", "a")]);
    s.create(&node, gold.clone()).await?;
    s.eventually_stored(&node, gold.clone()).await?;
    s.delete(&node).await?;
    // As a kubelet registers with its --node-labels.
    s.create(&node, labels([("pool", "default"), ("tier", "2"), ("zone", "b")])).await?;
    let after = labels([("pool", "gold"), ("tier", "2"), ("zone", "b")]);
    s.eventually_labelled(&node, after.clone()).await?;
    s.eventually_stored(&node, after).await?;
    let reported = ("label-storage/restorer".to_owned(), "RestoreConflict".to_owned());
    s.eventually("one conflict is reported", Some(true), async || {
        let event = events_of(s, &node).await?.remove(&reported);
        Ok(event.map(|note| note.contains("tier") && !note.contains("pool") && !note.contains("zone")))
    })
    .await?;
    for winner in ["record", "report", "node"] {
        let label = format!("winner=\"{winner}\"");
        let count = restorer.metric("restore_conflicts_total", &[&label]).await?;
        assert_eq!(count, 1.0, "{winner}");
    }
    // The replaced values are in the history.
    let history = s.record(&node).await?.context("no record")?.more.history;
    assert_eq!(history.last().map(|version| version.labels.clone()), Some(gold));
    Ok(())
}

pub async fn a_record_that_counts_is_not_overwritten_by_a_node_that_left_unrestored(
    s: &Scenario,
) -> Result<()> {
    let (_storer, restorer) = (s.storer(&RULES)?, s.restorer(&RULES)?);
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold"), ("tier", "1")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold"), ("tier", "1")])).await?;
    restorer.process.signal(Signal::TERM)?;
    restorer.exit().await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    let before = s.record(&node).await?.context("no record")?.generation;
    // No restorer runs, so the node has the values that it registered with.
    s.create(&node, labels([("pool", "default"), ("tier", "2")])).await?;
    s.delete(&node).await?;
    let merged = labels([("pool", "gold"), ("tier", "2")]);
    s.eventually("its own labels are merged", Some(merged.clone()), async || {
        Ok(s.record(&node).await?.filter(|record| record.generation > before).map(|record| record.labels))
    })
    .await?;
    let _restorer = s.restorer(&RULES)?;
    s.create(&node, labels([("pool", "default")])).await?;
    s.eventually_labelled(&node, merged).await
}
