//! `rename`.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use label_storage::name::record_name;
use serde_json::json;

use super::{departed, does, has_lines, refuses};
use crate::plugin_port::{annotated, file_of};
use crate::scenario::{Labels, Scenario, labels};

pub async fn a_machine_returns_under_another_name(s: &Scenario) -> Result<()> {
    s.list_often();
    let (_storer, restorer) = s.pair()?;
    let (old, new) = (s.node("old"), s.node("new"));
    let kept = labels([("pool", "gold")]);
    s.create(&old, kept.clone()).await?;
    s.eventually_stored(&old, kept.clone()).await?;
    let rename = ["rename", old.as_str(), new.as_str(), "--yes"];
    refuses(s, &rename, &["exists", "--force"])?;
    s.delete(&old).await?;
    does(s, &["rename", &old, &new, "--dry-run"])?;
    assert!(s.record(&old).await?.is_some() && s.record(&new).await?.is_none());
    does(s, &rename)?;
    assert!(s.record(&old).await?.is_none());
    s.create(&new, Labels::new()).await?;
    s.eventually_stored(&new, kept.clone()).await?;
    s.eventually_labelled(&new, kept.clone()).await?;
    s.create(&old, labels([("new", "1")])).await?;
    s.eventually_stored(&old, labels([("new", "1")])).await?;
    s.has_acted(&restorer, &old).await?;
    assert_eq!(s.labels(&old).await?, labels([("new", "1")]), "it has nothing to do with that name any more");

    // Both are there. It is the person's wish.
    s.label(&new, [("pool", None)]).await?;
    s.eventually("nothing is stored of it", true, async || {
        Ok(s.record(&new).await?.is_none_or(|record| record.labels.is_empty()))
    })
    .await?;
    does(s, &[&rename[..], &["--force", "--replace"]].concat())?;
    s.eventually_stored(&new, labels([("new", "1")])).await?;
    s.eventually_stored(&old, labels([("new", "1")])).await
}

pub async fn a_machine_that_is_there_under_another_name_gets_its_labels(s: &Scenario) -> Result<()> {
    let (_storer, _restorer) = s.pair()?;
    let (old, new) = (s.node("old"), s.node("new"));
    let kept = labels([("pool", "gold"), ("zone", "a")]);
    s.create(&old, kept.clone()).await?;
    s.eventually_stored(&old, kept.clone()).await?;
    s.delete(&old).await?;
    // It has been restored before, from a record that had come far.
    s.create(&new, labels([("zone", "b")])).await?;
    for own in ["3", "2", "1"] {
        s.label(&new, [("own", Some(own))]).await?;
        s.eventually_stored(&new, labels([("zone", "b"), ("own", own)])).await?;
    }
    s.delete(&new).await?;
    s.create(&new, Labels::new()).await?;
    s.eventually_stored(&new, labels([("zone", "b"), ("own", "1")])).await?;
    let rename = ["rename", old.as_str(), new.as_str(), "--yes"];
    refuses(s, &rename, &["has a record", "--replace"])?;
    let said = does(s, &[&rename[..], &["--replace"]].concat())?;
    has_lines(&said, &["  +pool=gold", "  -zone=b", "  +zone=a", "  -own=1"])?;
    let all = labels([("pool", "gold"), ("zone", "b"), ("own", "1")]);
    s.eventually_stored(&new, all.clone()).await?;
    s.eventually_labelled(&new, all).await?;
    assert!(s.record(&old).await?.is_none());
    Ok(())
}

pub async fn a_rename_that_broke_off_is_finished_by_another(s: &Scenario) -> Result<()> {
    let (old, new) = (s.node("old"), s.node("new"));
    departed(s, &old, &labels([("pool", "gold")])).await?;
    let mut half: ConfigMap = s.config_map(&old).await?.context("a record")?;
    half.metadata.name = Some(label_storage::name::record_name(&new));
    half.metadata.resource_version = None;
    half.metadata.uid = None;
    let annotations = half.metadata.annotations.get_or_insert_default();
    annotations.insert("label-storage/node".to_owned(), new.clone());
    s.config_maps.create(&PostParams::default(), &half).await?;
    does(s, &["rename", &old, &new, "--yes"])?;
    assert!(s.record(&old).await?.is_none());
    assert_eq!(s.record(&new).await?.map(|record| record.labels), Some(labels([("pool", "gold")])));
    refuses(s, &["rename", &old, &new, "--yes"], &["nothing is stored for node"])?;
    refuses(s, &["rename", &new, &new, "--yes"], &["are both"])?;
    s.occupy_record(&old).await?;
    refuses(s, &["rename", &new, &old, "--yes", "--replace"], &["can't be used", "managed-by"])?;
    s.patch_record(&new, json!({"metadata": {"annotations": {"label-storage/node": "else"}}})).await?;
    refuses(s, &["rename", &new, &s.node("c"), "--yes"], &["can't be used"])
}

pub async fn what_only_looks_as_if_it_was_renamed_is_kept(s: &Scenario) -> Result<()> {
    let (old, new) = (s.node("old"), s.node("new"));
    // Of no incarnation both, with the same labels, and of two machines, each with a past.
    let of = |node: &str, machine: &str, at: &str| {
        let past = format!(r#"'{{"at":"{at}","kept":{{"pool":"{machine}"}}}}'"#);
        let annotation = format!(", label-storage/system-uuid: {machine}");
        annotated(node, &record_name(node), &annotation, &format!("pool: gold, history-COLON-1: {past}"))
    };
    let (first, second) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    let file = file_of([of(&old, "m-old", first), of(&new, "m-new", second)]);
    ensure!(s.plugin_reading(&file, &["import", "--yes"])?.code == Some(0));
    let rename = ["rename", old.as_str(), new.as_str(), "--yes"];
    refuses(s, &rename, &["has a record", "--replace"])?;
    assert!(s.record(&old).await?.is_some());
    s.patch_record(&old, json!({"metadata": {"annotations": {"example.com/why": "moved"}}})).await?;
    does(s, &[&rename[..], &["--replace"]].concat())?;
    let record = s.record(&new).await?.context("a record")?;
    assert_eq!(record.more.machine.system_uuid.as_deref(), Some("m-old"));
    let past: Vec<_> = record.more.history.iter().map(|version| version.labels["pool"].as_str()).collect();
    assert_eq!(past, ["m-old", "m-new"], "{record:?}");
    let annotations = s.config_map(&new).await?.context("a record")?.metadata.annotations.context("some")?;
    assert_eq!(annotations.get("example.com/why").map(String::as_str), Some("moved"));

    // Prepared for two nodes, the same: it is not this one's.
    let (a, b) = (s.node("a"), s.node("b"));
    for node in [&a, &b] {
        does(s, &["set", node, "pool=gold", "--yes"])?;
    }
    refuses(s, &["rename", &a, &b, "--yes"], &["has a record"])?;
    assert!(s.record(&a).await?.is_some());
    Ok(())
}

pub async fn a_node_that_would_be_given_nothing_is_told_of(s: &Scenario) -> Result<()> {
    let (old, ignored) = (s.node("old"), s.node("ignored"));
    departed(s, &old, &labels([("pool", "gold")])).await?;
    s.create_as(&ignored, json!({"metadata": {"annotations": {"label-storage/ignore": "true"}}})).await?;
    let said = does(s, &["rename", &old, &ignored, "--dry-run"])?;
    ensure!(
        said.contains("has the annotation label-storage/ignore") && !said.contains("the restorer"),
        "{said}"
    );
    assert!(s.record(&old).await?.is_some());
    Ok(())
}
