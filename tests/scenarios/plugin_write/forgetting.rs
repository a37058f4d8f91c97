//! `forget`.

use anyhow::Result;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::PostParams;
use label_storage::name::record_name;
use serde_json::json;

use super::{departed, does, has_lines, refuses, stored};
use crate::scenario::{Labels, Scenario, labels};

pub async fn a_node_that_is_forgotten_returns_without(s: &Scenario) -> Result<()> {
    s.list_often();
    let (_storer, restorer) = s.pair()?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    let said = does(s, &["forget", &node, "--dry-run"])?;
    has_lines(
        &said,
        &["  -pool=gold", "  ! the node does not exist: its labels are lost, and can't be restored"],
    )?;
    assert!(s.record(&node).await?.is_some());
    does(s, &["forget", &node, "--yes"])?;
    assert!(s.record(&node).await?.is_none());
    s.create(&node, labels([("new", "1")])).await?;
    s.eventually_stored(&node, labels([("new", "1")])).await?;
    s.has_acted(&restorer, &node).await?;
    assert_eq!(s.labels(&node).await?, labels([("new", "1")]));

    // While the node exists, its record is created again.
    let before = s.config_map(&node).await?.and_then(|record| record.metadata.uid);
    let said = does(s, &["forget", &node, "--yes"])?;
    has_lines(&said, &["  ! the node exists: the storer creates a new record from its labels"])?;
    s.eventually("another record", true, async || {
        let uid = s.config_map(&node).await?.and_then(|record| record.metadata.uid);
        Ok(uid.is_some() && uid != before)
    })
    .await?;
    s.eventually_stored(&node, labels([("new", "1")])).await
}

pub async fn what_is_no_record_is_not_forgotten(s: &Scenario) -> Result<()> {
    let (node, foreign) = (s.node("a"), s.node("foreign"));
    stored(s, &node, &labels([("pool", "gold")])).await?;
    s.occupy_record(&foreign).await?;
    refuses(s, &["forget", &foreign, "--yes"], &["not a record", "managed-by"])?;
    refuses(s, &["forget", &s.node("nobody"), "--yes"], &["nothing is stored for node"])?;
    let nobody = s.node("nobody");
    let both = ["forget", node.as_str(), &nobody, &foreign, "--yes"];
    refuses(s, &both, &["nothing was changed", &nobody, "managed-by"])?;
    assert!(s.record(&node).await?.is_some() && s.config_map(&foreign).await?.is_some());
    // A broken record can be deleted.
    s.patch_record(&node, json!({"metadata": {"annotations": {"label-storage/node": "else"}}})).await?;
    does(s, &["forget", &node, &node, "--yes"])?;
    assert!(s.config_map(&node).await?.is_none());
    Ok(())
}

pub async fn a_failure_of_one_node_does_not_hold_up_the_others(s: &Scenario) -> Result<()> {
    let nodes = ["a", "b", "c"].map(|name| s.node(name));
    for node in &nodes {
        departed(s, node, &labels([("pool", "gold")])).await?;
    }
    let somebody = format!("{}-somebody", s.namespace);
    let rights = json!({"metadata": {"name": somebody}, "rules": [
        {"apiGroups": [""], "resources": ["nodes", "configmaps"], "verbs": ["get"]},
        {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [record_name(&nodes[0]), record_name(&nodes[2])], "verbs": ["delete"]},
    ]});
    let binding = json!({
        "metadata": {"name": somebody},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": somebody},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": somebody}],
    });
    let (roles, bindings): (Api<ClusterRole>, Api<ClusterRoleBinding>) =
        (Api::all(s.client.clone()), Api::all(s.client.clone()));
    roles.create(&PostParams::default(), &serde_json::from_value(rights)?).await?;
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    let [a, b, c] = &nodes;
    // New permissions take a moment to apply.
    let args = ["forget", a, b, c, "--as", &somebody];
    s.eventually("rights", Some(0), async || Ok(s.plugin(&[&args[..], &["--dry-run"]].concat())?.code))
        .await?;
    let there = async || {
        let (a, b, c) = (s.record(a).await?, s.record(b).await?, s.record(c).await?);
        anyhow::Ok([a.is_some(), b.is_some(), c.is_some()])
    };
    // A missing permission shows in the answer of the API server.
    for (flag, left) in [("--dry-run=server", [true; 3]), ("--yes", [false, true, false])] {
        let told = s.plugin(&[&args[..], &[flag]].concat())?;
        let errors: Vec<_> = told.err.lines().filter(|line| line.starts_with("error: ")).collect();
        let [refused, all] = errors.as_slice() else { anyhow::bail!("{told:?}") };
        for part in [record_name(b), "delete resource \"configmaps\"".to_owned(), s.namespace.clone()] {
            assert!(refused.contains(&part), "{told:?}");
        }
        assert_eq!((told.code, *all), (Some(1), "error: 1 of 3 records failed"));
        assert_eq!(there().await?, left, "{flag}");
    }
    Ok(())
}

pub async fn without_rights_nothing_is_changed_and_the_right_is_named(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    departed(s, &node, &labels([("pool", "gold")])).await?;
    for args in [
        &["restore", &node][..],
        &["forget", &node],
        &["set", &node, "a=b"],
        &["rename", &node, "other"],
        &["rollback", &node, "--to", "1"],
    ] {
        let args = [args, &["--yes", "--as", "nobody"]].concat();
        let told = s.plugin(&args)?;
        // The rules are unknown, too.
        let error = "error: the rules can't be read: configmaps \"label-storage-rules\" is forbidden";
        assert!(told.code == Some(1) && told.err.lines().any(|line| line.starts_with(error)), "{told:?}");
        let with_rules = [&args[..], &["--config", "/dev/null"]].concat();
        refuses(s, &with_rules, &["User \"nobody\" cannot get resource"])?;
    }
    // The same for rules that can't be read.
    let rules =
        json!({"metadata": {"name": "label-storage-rules"}, "data": {"rules.yaml": "cordon: perhaps"}});
    s.config_maps.create(&PostParams::default(), &serde_json::from_value(rules)?).await?;
    let told = s.plugin(&["forget", &node, "--yes"])?;
    assert!(
        told.code == Some(1)
            && told.err.contains("the rules can't be read: configmap label-storage-rules can't be used"),
        "{told:?}"
    );
    assert_eq!(s.record(&node).await?.map(|record| record.labels), Some(labels([("pool", "gold")])));
    assert_eq!(s.labels(&node).await?, Labels::new());
    Ok(())
}
