//! Records that other clients have changed.

use anyhow::{Context, Result};
use serde_json::json;

use crate::scenario::{Labels, Scenario, labels};

pub async fn of_a_tampered_record_the_valid_entries_are_restored_and_nothing_is_lost(
    s: &Scenario,
) -> Result<()> {
    let (storer, restorer) = s.pair()?;
    let node = s.node("a");
    let kept = labels([("pool", "gold"), ("example.com/rack", "7")]);
    s.create(&node, kept.clone()).await?;
    s.eventually_stored(&node, kept.clone()).await?;
    s.delete(&node).await?;
    s.patch_record(
        &node,
        json!({
            "metadata": {"annotations": {
                "label-storage/node-uid": null,
                "label-storage/generation": "many",
                "label-storage/captured-at": "yesterday",
                "label-storage/node-resource-version": "-1",
            }},
            "data": {"-SLASH-": "no key", "value": "no value!", "-LONG-00": "x=y"},
            "binaryData": {"blob": "AAEC"},
        }),
    )
    .await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, kept.clone()).await?;
    s.eventually_stored(&node, kept).await?;
    for daemon in [&storer, &restorer] {
        s.eventually("the damage is told", true, async || Ok(daemon.has_logged(&["WARN", &node, "damaged"])))
            .await?;
    }
    // The entry that is not a label was not restored, and is still in the record.
    let config_map = s.config_map(&node).await?.context("no record")?;
    let data = config_map.data.context("no data")?;
    assert_eq!(data.get("value").map(String::as_str), Some("no value!"));
    assert_eq!(data.len(), 5);
    assert!(config_map.binary_data.is_some_and(|binary| binary.contains_key("blob")));
    Ok(())
}

pub async fn a_record_that_names_another_node_is_left_for_a_person(s: &Scenario) -> Result<()> {
    s.list_often();
    let (storer, restorer) = s.pair()?;
    let node = s.node("a");
    let kept = labels([("pool", "gold")]);
    s.create(&node, kept.clone()).await?;
    s.eventually_stored(&node, kept.clone()).await?;
    s.delete(&node).await?;
    let mut tampered = false;
    while !tampered {
        // Until no write of the storer's comes after it.
        s.patch_record(&node, json!({"metadata": {"annotations": {"label-storage/node": "somebody"}}}))
            .await?;
        let before = s.config_map(&node).await?;
        s.eventually("told", true, async || Ok(storer.has_logged(&["WARN", &node, "is not changed"])))
            .await?;
        tampered = s.config_map(&node).await? == before;
    }
    let before = s.config_map(&node).await?;
    s.create(&node, labels([("new", "1")])).await?;
    s.has_acted(&storer, &node).await?;
    s.has_acted(&restorer, &node).await?;
    assert_eq!(s.config_map(&node).await?, before);
    assert_eq!(s.labels(&node).await?, labels([("new", "1")]));
    // A person fixes the record, and the daemons use it again.
    s.patch_record(&node, json!({"metadata": {"annotations": {"label-storage/node": node}}})).await?;
    s.eventually_labelled(&node, labels([("new", "1"), ("pool", "gold")])).await
}

pub async fn somebody_elses_config_map_is_not_touched(s: &Scenario) -> Result<()> {
    s.list_often();
    let node = s.node("a");
    s.occupy_record(&node).await?;
    let before = s.config_map(&node).await?;
    let (storer, restorer) = s.pair()?;
    s.create(&node, labels([("mine", "1")])).await?;
    s.eventually("told", true, async || Ok(storer.has_logged(&["WARN", &node, "managed-by"]))).await?;
    s.has_acted(&storer, &node).await?;
    s.has_acted(&restorer, &node).await?;
    assert_eq!(s.config_map(&node).await?, before);
    assert_eq!(s.labels(&node).await?, labels([("mine", "1")]));
    Ok(())
}

pub async fn a_record_that_has_lost_its_label_is_used_and_labelled_again(s: &Scenario) -> Result<()> {
    let (_storer, _restorer) = s.pair()?;
    let node = s.node("a");
    let loses_label = async || {
        s.patch_record(&node, json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}})).await
    };
    let is_labelled = async || {
        let labels = s.config_map(&node).await?.context("no record")?.metadata.labels;
        Ok(labels.is_some_and(|labels| labels.contains_key("app.kubernetes.io/managed-by")))
    };
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    loses_label().await?;
    s.eventually("it is labelled again", true, is_labelled).await?;
    s.label(&node, [("pool", Some("silver"))]).await?;
    s.eventually_stored(&node, labels([("pool", "silver")])).await?;
    loses_label().await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    s.eventually("it is labelled again", true, is_labelled).await?;
    loses_label().await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, labels([("pool", "silver")])).await?;
    s.eventually("it is labelled again", true, is_labelled).await
}

pub async fn a_record_copied_from_another_cluster_is_restored_and_kept_up_to_date(
    s: &Scenario,
) -> Result<()> {
    let (storer, _restorer) = s.pair()?;
    let node = s.node("a");
    let kept = labels([("pool", "gold")]);
    // There, the history was longer than it is here.
    let versions =
        json!({"metadata": {"annotations": {"label-storage/node-resource-version": "99999999999999"}}});
    s.create(&node, kept.clone()).await?;
    s.eventually_stored(&node, kept.clone()).await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    s.patch_record(&node, versions.clone()).await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, kept.clone()).await?;
    s.eventually_stored(&node, kept).await?;
    s.label(&node, [("pool", Some("silver"))]).await?;
    s.eventually_stored(&node, labels([("pool", "silver")])).await?;
    // Of the node's own incarnation no marker proves anything: then a person has to say so.
    s.patch_record(&node, versions).await?;
    s.label(&node, [("pool", Some("bronze"))]).await?;
    let advice = ["WARN", &node, "remove its annotation"];
    s.eventually("the advice is given", true, async || Ok(storer.has_logged(&advice))).await?;
    s.patch_record(
        &node,
        json!({"metadata": {"annotations": {"label-storage/node-resource-version": null}}}),
    )
    .await?;
    s.eventually_stored(&node, labels([("pool", "bronze")])).await
}
