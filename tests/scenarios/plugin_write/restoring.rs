//! `restore`.

use anyhow::Result;
use label_storage::node::RESTORED;
use serde_json::json;

use super::{TRUST, does, has_lines, on, refuses, stored};
use crate::scenario::{Labels, Scenario, labels};

pub async fn a_node_is_restored_at_once_and_once_more(s: &Scenario) -> Result<()> {
    s.list_often();
    let node = s.node("a");
    stored(s, &node, &labels([("pool", "gold"), ("zone", "a")])).await?;
    s.delete(&node).await?;
    s.create(&node, labels([("pool", "silver")])).await?;

    let said = does(s, &["restore", &node, "--dry-run"])?;
    has_lines(
        &said,
        &["  +zone=a", "  ! pool=silver is not changed: give --overwrite to restore pool=gold"],
    )?;
    refuses(s, &["restore", &node], &["can't ask for confirmation without a terminal", "--yes"])?;
    assert_eq!(s.labels(&node).await?, labels([("pool", "silver")]), "nothing was changed");

    does(s, &["restore", &node, "--yes"])?;
    assert_eq!(s.labels(&node).await?, labels([("pool", "silver"), ("zone", "a")]));
    let marker = s.get(&node).await?.metadata.annotations.and_then(|mut all| all.remove(RESTORED));
    assert!(marker.is_some(), "it is marked, so that its own labels are stored from now on");

    // It was restored before: its missing labels were removed, and are restored because a person asks for it.
    s.label(&node, [("zone", None)]).await?;
    let said = does(s, &["restore", &node, "--overwrite", "--yes"])?;
    has_lines(&said, &["  -pool=silver", "  +pool=gold", "  +zone=a", &format!("node/{node} restored")])?;
    let all = labels([("pool", "gold"), ("zone", "a")]);
    assert_eq!(s.labels(&node).await?, all);
    let said = does(s, &["restore", &node])?;
    has_lines(&said, &[&format!("node {node} has everything that can be restored")])?;

    // The daemons go on from there, and do not bring anything back.
    let (_storer, restorer) = s.pair()?;
    s.eventually_stored(&node, all).await?;
    s.label(&node, [("zone", None)]).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.has_acted(&restorer, &node).await?;
    assert_eq!(s.labels(&node).await?, labels([("pool", "gold")]));
    Ok(())
}

pub async fn what_was_withheld_is_given_where_a_person_says_so(s: &Scenario) -> Result<()> {
    s.list_often();
    let rules = s.file("rules.yaml");
    std::fs::write(&rules, "identity: {otherMachine: untrusted}\n")?;
    let config = ["--config", rules.to_str().expect("a path")];
    let (storer, restorer) = (s.storer(&config)?, s.restorer(&config)?);
    let restore = |node: &str, flags: &[&str]| does(s, &[&["restore", node], &config[..], flags].concat());
    let (node, m1, m2) =
        (s.node("a"), "4c4c4544-0001-4410-8058-b4c04f564c31", "4c4c4544-0002-4410-8058-b4c04f564c32");
    let all = labels([("pool", "gold"), (TRUST, "1")]);
    s.create_as(&node, on(m1, json!(all))).await?;
    s.eventually_stored(&node, all.clone()).await?;
    s.delete(&node).await?;
    s.create_as(&node, on(m2, json!({}))).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;

    let said = restore(&node, &["--dry-run"])?;
    has_lines(&said, &[&format!("  ! {TRUST}=1 is withheld (other-machine): give --trust to restore it")])?;
    assert_eq!(s.labels(&node).await?, labels([("pool", "gold")]));
    restore(&node, &["--trust", "--yes"])?;
    assert_eq!(s.labels(&node).await?, all);
    s.eventually_stored(&node, all.clone()).await?;
    // From now on it is this machine's, to keep and to lose.
    s.has_acted(&storer, &node).await?;
    s.has_acted(&restorer, &node).await?;
    assert_eq!(s.labels(&node).await?, all);
    s.label(&node, [(TRUST, None)]).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    s.has_acted(&restorer, &node).await?;
    assert_eq!(s.labels(&node).await?, labels([("pool", "gold")]));
    Ok(())
}

pub async fn what_can_not_be_restored_is_refused_with_advice(s: &Scenario) -> Result<()> {
    let (node, other, away) = (s.node("a"), s.node("b"), s.node("away"));
    refuses(s, &["restore", &s.node("nobody"), "--yes"], &["there is no node"])?;
    refuses(s, &["restore", "No_Name", "--yes"], &["is not a valid node name"])?;
    stored(s, &node, &labels([("pool", "gold")])).await?;
    s.create(&other, Labels::new()).await?;
    refuses(s, &["restore", &other, "--yes"], &["nothing is stored for node"])?;
    super::departed(s, &away, &labels([("pool", "gold")])).await?;
    refuses(s, &["restore", &away, "--yes"], &["does not exist", "label-storage set"])?;

    // All or nothing.
    s.label(&node, [("pool", None)]).await?;
    refuses(s, &["restore", &node, &other, "--yes"], &["nothing was changed", &other])?;
    assert_eq!(s.labels(&node).await?, Labels::new());

    s.annotate(&node, [("label-storage/ignore", Some("true"))]).await?;
    refuses(s, &["restore", &node, "--yes"], &["label-storage/ignore"])?;
    s.annotate(&node, [("label-storage/ignore", None)]).await?;
    s.patch_record(&node, json!({"metadata": {"annotations": {"label-storage/node": "else"}}})).await?;
    refuses(s, &["restore", &node, "--yes"], &["can't be used", "label-storage/node"])?;
    assert_eq!(s.labels(&node).await?, Labels::new());
    Ok(())
}

pub async fn an_excluded_machine_is_restored_only_where_a_person_says_so(s: &Scenario) -> Result<()> {
    s.list_often();
    let rules = s.file("rules.yaml");
    std::fs::write(&rules, "identity: {otherMachine: none}\n")?;
    let rules = rules.to_str().expect("a path");
    let (_storer, restorer) = (s.storer(&["--config", rules])?, s.restorer(&["--config", rules])?);
    let (node, m1, m2) =
        (s.node("a"), "4c4c4544-0001-4410-8058-b4c04f564c31", "4c4c4544-0002-4410-8058-b4c04f564c32");
    let all = labels([("pool", "gold"), (TRUST, "1")]);
    s.create_as(&node, on(m1, json!(all))).await?;
    s.eventually_stored(&node, all.clone()).await?;
    s.delete(&node).await?;
    s.create_as(&node, on(m2, json!({}))).await?;
    s.has_acted(&restorer, &node).await?;
    let args = ["restore", node.as_str(), "--yes", "--config", rules];
    refuses(s, &args, &["another machine", "--other-machine"])?;
    assert_eq!(s.labels(&node).await?, Labels::new());
    refuses(s, &[&args[..], &["--trust"]].concat(), &["another machine", "--other-machine"])?;
    let said = does(s, &[&args[..], &["--other-machine"]].concat())?;
    has_lines(&said, &[&format!("  ! {TRUST}=1 is withheld (other-machine): give --trust to restore it")])?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    does(s, &[&args[..], &["--other-machine", "--trust"]].concat())?;
    s.eventually_stored(&node, all).await
}

pub async fn all_that_is_stored_can_be_given_over_what_a_node_has(s: &Scenario) -> Result<()> {
    let flags = ["--rules", "{annotations: {include: [note]}, taints: {include: [dedicated]}}"];
    let (node, storer) = (s.node("a"), s.storer(&flags)?);
    let of = |what: &str| {
        let taint = json!({"key": "dedicated", "value": what, "effect": "NoSchedule"});
        json!({"metadata": {"labels": {"pool": what}, "annotations": {"note": what}}, "spec": {"taints": [taint]}})
    };
    s.create_as(&node, of("stored")).await?;
    let kept =
        labels([("annotation:note", "stored"), ("pool", "stored"), ("taint:NoSchedule:dedicated", "stored")]);
    s.eventually_stored(&node, kept).await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    drop(storer);
    s.create_as(&node, of("own")).await?;
    // It was restored once, from something older, and has a marker.
    let uid = s.get(&node).await?.metadata.uid.unwrap_or_default();
    for marker in [None, Some(format!("{uid}/0")), Some(format!("{uid}/99"))] {
        s.annotate(&node, [("note", Some("own")), (RESTORED, marker.as_deref())]).await?;
        s.patch(&node, json!({"spec": of("own")["spec"]})).await?;
        s.label(&node, [("pool", Some("own"))]).await?;
        let said = does(s, &["restore", &node, "--overwrite", "--yes"])?;
        has_lines(
            &said,
            &[
                "  +annotation:note=stored",
                "  +pool=stored",
                "  -taint:NoSchedule:dedicated=own",
                "  +taint:NoSchedule:dedicated=stored",
            ],
        )?;
        assert_eq!(s.labels(&node).await?, labels([("pool", "stored")]));
        assert_eq!(s.annotations(&node).await?, labels([("note", "stored")]));
        let taints = s.get(&node).await?.spec.and_then(|spec| spec.taints).unwrap_or_default();
        let values: Vec<_> = taints.iter().map(|taint| taint.value.as_deref()).collect();
        assert_eq!(values, [Some("stored")]);
    }
    Ok(())
}
