//! Earlier versions of the labels.

use anyhow::{Context, Result};

use crate::scenario::{Labels, Scenario, labels};

pub async fn the_last_versions_are_in_the_record_and_no_more(s: &Scenario) -> Result<()> {
    let _storer = s.storer(&["--rules", "history: 2"])?;
    let node = s.node("a");
    s.create(&node, labels([("round", "0")])).await?;
    for round in ["0", "1", "2", "3"] {
        s.label(&node, [("round", Some(round))]).await?;
        s.eventually_stored(&node, labels([("round", round)])).await?;
    }
    let history = s.record(&node).await?.context("no record")?.more.history;
    let versions: Vec<_> =
        history.iter().map(|version| (version.generation, version.labels.clone())).collect();
    assert_eq!(versions, [(2, labels([("round", "1")])), (3, labels([("round", "2")]))]);
    assert!(history.iter().all(|version| version.at.is_some()));
    // They are nothing that comes back.
    let _restorer = s.restorer(&[])?;
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, labels([("round", "3")])).await
}

pub async fn without_history_there_is_none(s: &Scenario) -> Result<()> {
    let _storer = s.storer(&["--rules", "history: 0"])?;
    let node = s.node("a");
    s.create(&node, labels([("round", "0")])).await?;
    s.eventually_stored(&node, labels([("round", "0")])).await?;
    s.label(&node, [("round", Some("1"))]).await?;
    s.eventually_stored(&node, labels([("round", "1")])).await?;
    let data = s.config_map(&node).await?.context("no record")?.data.unwrap_or_default();
    assert_eq!(data, labels([("round", "1")]));
    Ok(())
}
