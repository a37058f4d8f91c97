//! Taints, annotations and the cordon, where operators choose to keep them.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::scenario::{Labels, Scenario, labels};

const RULES: [&str; 2] = [
    "--rules",
    "{annotations: {include: [example.com/*, '*.volume.kubernetes.io/*']}, \
      taints: {include: ['*'], exclude: [example.com/mine]}, cordon: true}",
];

/// The taints of a node, as JSON has them, but for the one that the API server gives to every new one.
async fn taints(s: &Scenario, node: &str) -> Result<Value> {
    let mut taints = s.get(node).await?.spec.and_then(|spec| spec.taints).unwrap_or_default();
    taints.retain(|taint| {
        (taint.key.as_str(), taint.effect.as_str()) != ("node.kubernetes.io/not-ready", "NoSchedule")
    });
    Ok(serde_json::to_value(taints)?)
}

pub async fn what_is_chosen_comes_back_and_what_a_machine_says_of_itself_does_not(
    s: &Scenario,
) -> Result<()> {
    s.list_often();
    let (_storer, restorer) = (s.storer(&RULES)?, s.restorer(&RULES)?);
    let node = s.node("a");
    let evicting = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": "2026-11-16T03:31:15Z"});
    let dedicated = json!({"key": "example.com/dedicated", "value": "gpu", "effect": "NoSchedule"});
    let bare = json!({"key": "bare", "effect": "PreferNoSchedule"});
    s.create_as(
        &node,
        json!({
            "metadata": {
                "labels": {"pool": "gold"},
                "annotations": {"example.com/owner": "me = you, {\"or\": 1}", "csi.volume.kubernetes.io/nodeid": "{}", "other": "1"},
            },
            "spec": {
                "unschedulable": true,
                "taints": [evicting, dedicated, {"key": "example.com/mine", "effect": "NoSchedule"}, bare],
            },
        }),
    )
    .await?;
    let kept = |more: &[(&str, &str)]| -> Labels {
        let always = [("annotation:example.com/owner", "me = you, {\"or\": 1}"), ("pool", "gold")];
        always.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let (gpu, plain) =
        (("taint:NoSchedule:example.com/dedicated", "gpu"), ("taint:PreferNoSchedule:bare", ""));
    s.eventually_stored(&node, kept(&[("cordon:", "true"), gpu, plain])).await?;

    s.delete(&node).await?;
    let registered = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": "2026-11-17T00:00:00Z"});
    s.create_as(&node, json!({"spec": {"taints": [registered]}})).await?;
    s.eventually_labelled(&node, labels([("pool", "gold")])).await?;
    assert_eq!(
        taints(s, &node).await?,
        json!([registered, dedicated, bare]),
        "those that it has stay as they are"
    );
    assert_eq!(s.annotations(&node).await?, labels([("example.com/owner", "me = you, {\"or\": 1}")]));
    assert_eq!(s.get(&node).await?.spec.context("no spec")?.unschedulable, Some(true));

    // A label that a person removes stays removed.
    s.patch(&node, json!({"spec": {"unschedulable": null, "taints": [registered, bare]}})).await?;
    s.eventually_stored(&node, kept(&[plain])).await?;
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, labels([("pool", "gold")])).await?;
    assert_eq!(taints(s, &node).await?, json!([bare]));
    assert_eq!(s.get(&node).await?.spec.context("no spec")?.unschedulable, None);
    s.has_acted(&restorer, &node).await
}

pub async fn unless_it_is_chosen_nothing_but_labels_is_kept(s: &Scenario) -> Result<()> {
    let _daemons = s.pair()?;
    let node = s.node("a");
    s.create_as(
        &node,
        json!({
            "metadata": {"labels": {"pool": "gold"}, "annotations": {"example.com/owner": "me"}},
            "spec": {"unschedulable": true, "taints": [{"key": "dedicated", "effect": "NoSchedule"}]},
        }),
    )
    .await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, labels([("pool", "gold")])).await?;
    assert_eq!(taints(s, &node).await?, json!([]));
    assert_eq!(s.annotations(&node).await?, Labels::new());
    Ok(())
}

/// Items that a person writes into a record and that are never restored, and items that the rules keep no more.
pub async fn a_record_brings_back_what_it_holds_and_never_what_a_machine_says_of_itself(
    s: &Scenario,
) -> Result<()> {
    s.list_often();
    let (storer, _restorer) = s.pair()?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    let written = json!({
        "taint-COLON-NoSchedule-COLON-dedicated": "gpu",
        "taint-COLON-NoExecute-COLON-node.kubernetes.io-SLASH-unreachable": "",
        "annotation-COLON-example.com-SLASH-owner": "me",
        "annotation-COLON-csi.volume.kubernetes.io-SLASH-nodeid": "{}",
        "taint-COLON-Sometimes-COLON-x": "",
        "cordon-COLON-": "perhaps",
    });
    s.patch_record(&node, json!({"data": written})).await?;
    s.create(&node, Labels::new()).await?;
    s.eventually_labelled(&node, labels([("pool", "gold")])).await?;
    assert_eq!(
        taints(s, &node).await?,
        json!([{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}])
    );
    assert_eq!(s.annotations(&node).await?, labels([("example.com/owner", "me")]));
    // And none of it is lost by that.
    s.label(&node, [("pool", Some("silver"))]).await?;
    s.eventually("the label is stored", Some("silver".to_owned()), async || {
        Ok(s.record(&node).await?.context("no record")?.labels.remove("pool"))
    })
    .await?;
    s.has_acted(&storer, &node).await?;
    let data = s.config_map(&node).await?.context("no record")?.data.unwrap_or_default();
    for key in written.as_object().context("an object")?.keys() {
        assert!(data.contains_key(key), "{key} of {data:?}");
    }
    Ok(())
}
