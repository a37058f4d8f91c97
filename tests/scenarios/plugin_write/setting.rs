//! `set`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{does, has_lines, refuses};
use crate::scenario::{Labels, NO_LISTS, Scenario, labels};

pub async fn what_is_set_while_a_node_is_away_comes_back(s: &Scenario) -> Result<()> {
    s.list_often();
    let (_storer, restorer) = s.pair()?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold"), ("old", "1")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold"), ("old", "1")])).await?;
    let set = ["set", &node, "pool=silver", "old-", "new=2", "never-", "--yes"];
    refuses(s, &set, &["exists", "kubectl label node"])?;
    s.delete(&node).await?;
    // At once: it waits until the storer has noted that it is gone.
    let said = does(s, &set)?;
    has_lines(&said, &["  -pool=gold", "  +pool=silver", "  -old=1", "  +new=2", "  ! never is not stored"])?;
    ensure!(!said.contains("no storer has stored"), "{said}");
    let record = s.record(&node).await?.context("a record")?;
    assert_eq!(record.more.history.last().map(|version| version.labels.len()), Some(2), "{record:?}");
    let said = does(s, &set)?;
    has_lines(&said, &["  ! nothing changes"])?;
    s.create(&node, Labels::new()).await?;
    let all = labels([("pool", "silver"), ("new", "2")]);
    s.eventually_stored(&node, all.clone()).await?;
    s.eventually_labelled(&node, all).await?;
    s.label(&node, [("new", None)]).await?;
    s.eventually_stored(&node, labels([("pool", "silver")])).await?;
    s.has_acted(&restorer, &node).await?;
    assert_eq!(s.labels(&node).await?, labels([("pool", "silver")]));
    Ok(())
}

pub async fn a_node_that_has_never_been_there_gets_what_is_set_for_it(s: &Scenario) -> Result<()> {
    s.list_often();
    let (storer, restorer) = s.pair()?;
    let node = s.node("a");
    let set = [
        "set",
        &node,
        "pool=gold",
        "annotation:example.com/owner=the team",
        "taint:NoSchedule:dedicated=gpu",
        "cordon:=true",
    ];
    let said = does(s, &[&set[..], &["--dry-run"]].concat())?;
    ensure!(said.contains("a new record is created") && said.contains("within 30d"), "{said}");
    assert!(s.config_map(&node).await?.is_none());
    does(s, &[&set[..], &["--yes"]].concat())?;
    s.eventually_departed(&node).await?;
    s.create(&node, labels([("zone", "a")])).await?;
    s.eventually_labelled(&node, labels([("pool", "gold"), ("zone", "a")])).await?;
    let given = s.get(&node).await?;
    let annotations = given.metadata.annotations.unwrap_or_default();
    assert_eq!(annotations.get("example.com/owner").map(String::as_str), Some("the team"));
    let spec = given.spec.context("a spec")?;
    assert_eq!(spec.unschedulable, Some(true));
    assert!(spec.taints.unwrap_or_default().iter().any(|taint| taint.key == "dedicated"));
    s.eventually("it is the node's own", true, async || {
        let uid = s.get(&node).await?.metadata.uid;
        Ok(s.record(&node).await?.context("a record")?.uid.map(|uid| uid.to_string()) == uid)
    })
    .await?;
    for daemon in [&storer, &restorer] {
        assert!(
            !daemon.has_logged(&["WARN", &node]),
            "nothing is wrong with such a record: {}",
            daemon.log()
        );
    }
    // And it is a node like any other from now on.
    s.label(&node, [("pool", None)]).await?;
    s.eventually("pool is not stored any more", false, async || {
        Ok(s.record(&node).await?.context("a record")?.labels.contains_key("pool"))
    })
    .await?;
    s.has_acted(&restorer, &node).await?;
    assert_eq!(s.labels(&node).await?, labels([("zone", "a")]));
    Ok(())
}

pub async fn what_a_node_said_before_does_not_undo_what_is_set(s: &Scenario) -> Result<()> {
    s.list_often();
    let node = s.node("a");
    super::stored(s, &node, &labels([("pool", "gold")])).await?;
    // No storer runs. The next one receives all events since the last one stopped.
    s.label(&node, [("pool", Some("bronze"))]).await?;
    s.delete(&node).await?;
    let told = s.plugin(&["set", &node, "pool=silver", "--yes", "--force"])?;
    ensure!(told.code == Some(0) && told.out.contains("no storer has stored the deletion"), "{told:?}");
    let (storer, _restorer) = s.pair()?;
    s.eventually_departed(&node).await?;
    s.has_acted(&storer, &node).await?;
    assert_eq!(s.record(&node).await?.context("a record")?.labels, labels([("pool", "silver")]));
    s.create(&node, Labels::new()).await?;
    s.eventually_stored(&node, labels([("pool", "silver")])).await
}

pub async fn a_machine_that_has_never_been_there_gets_what_is_set_for_it(s: &Scenario) -> Result<()> {
    let rules = s.file("rules.yaml");
    std::fs::write(&rules, "identity: {by: systemUUID}\n")?;
    let rules = rules.to_str().context("a path")?;
    let (uuid, by) = ("4c4c4544-0042-4410-8058-b4c04f564c31", ["--rules", "identity: {by: systemUUID}"]);
    let _daemons = (s.storer(&by)?, s.restorer(&by)?);
    let (node, other) = (s.node("a"), s.node("b"));
    let set = ["set", node.as_str(), "pool=gold", "--yes", "--config", rules];
    refuses(s, &set, &["nothing is stored for node", "--identity systemUUID=VALUE"])?;
    refuses(s, &[&set[..], &["--identity", "providerID=x"]].concat(), &["--identity systemUUID=VALUE"])?;
    let identity = format!("systemUUID={uuid}");
    does(s, &[&set[..], &["--identity", &identity]].concat())?;
    s.create_as(&other, super::on(uuid, json!({}))).await?;
    s.eventually_labelled(&other, labels([("pool", "gold")])).await?;
    // It is there, under another name.
    s.eventually("refused", Some(1), async || {
        Ok(s.plugin(&["set", &identity, "pool=silver", "--yes", "--config", rules])?.code)
    })
    .await?;
    refuses(
        s,
        &["rename", &node, &other, "--yes", "--config", rules],
        &["the rules identify nodes by systemUUID"],
    )
}

pub async fn what_nothing_can_have_is_bad_usage(s: &Scenario) -> Result<()> {
    for (edit, why) in [
        ("pool", "write pool=VALUE"),
        ("pool=a b", "\"a b\" is not a valid value of pool"),
        ("taint:Never:a=b", "is not a valid key"),
        ("cordon:=no", "write cordon:=true"),
        ("taint:NoExecute:node.kubernetes.io/not-ready=", "is never restored"),
    ] {
        let told = s.plugin(&["set", &s.node("a"), edit, "--yes"])?;
        assert_eq!(told.code, Some(2), "{told:?}");
        assert!(told.err.contains(why), "{told:?}");
    }
    let told = s.plugin(&["set", &s.node("a"), "--yes"])?;
    assert_eq!(told.code, Some(2), "{told:?}");
    refuses(s, &["set", &s.node("a"), "a=b", "a-", "--yes"], &["a is given more than once"])?;
    refuses(s, &["set", "No_Name", "a=b", "--yes"], &["is not a valid node name"])?;
    assert!(s.config_map(&s.node("a")).await?.is_none());
    Ok(())
}

pub async fn what_a_node_said_last_is_waited_for_before_it_is_set(s: &Scenario) -> Result<()> {
    let (node, other) = (s.node("a"), s.node("b"));
    let kept = labels([("pool", "gold")]);
    super::stored(s, &node, &kept).await?;
    super::stored(s, &other, &kept).await?;
    // No storer runs.
    s.label(&node, [("owner", Some("me"))]).await?;
    s.delete(&node).await?;
    let args = ["set", node.as_str(), "pool=silver", "--yes", "-n", &s.namespace].map(str::to_owned);
    let waiting = s.run_binary("plugin", &args, Some(s.sandbox.kubeconfig().to_owned()))?;
    s.eventually("it says that it waits", true, async || Ok(waiting.has_logged(&["waiting", "storer"])))
        .await?;
    assert_eq!(s.record(&node).await?.context("a record")?.labels, kept, "it is not set yet");
    let _storer = s.storer(&[])?;
    assert_eq!(waiting.exit().await?.code(), 0, "{}", waiting.log());
    let record = s.record(&node).await?.context("a record")?;
    assert_eq!(record.labels, labels([("pool", "silver"), ("owner", "me")]), "what it said last is there");
    Ok(())
}

pub async fn a_node_is_set_while_others_come_and_go(s: &Scenario) -> Result<()> {
    let storer = s.storer(&NO_LISTS)?;
    s.is_watching(&storer).await?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    let come_and_go = async {
        for number in 0.. {
            let other = s.node(&format!("other{number}"));
            s.create(&other, Labels::new()).await?;
            tokio::time::sleep(Duration::from_millis(50)).await;
            s.delete(&other).await?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    let set = async {
        let are_many = async || Ok(storer.log().matches("other").count() > 100);
        s.eventually("many nodes have come and gone", true, are_many).await?;
        s.delete(&node).await?;
        let args = ["set", node.as_str(), "pool=silver", "--yes", "-n", &s.namespace].map(str::to_owned);
        let process = s.run_binary("plugin", &args, Some(s.sandbox.kubeconfig().to_owned()))?;
        assert_eq!(process.exit().await?.code(), 0, "{}", process.log());
        Ok(())
    };
    tokio::select! { ended = come_and_go => ended, ended = set => ended }?;
    assert_eq!(s.record(&node).await?.context("a record")?.labels, labels([("pool", "silver")]));
    Ok(())
}

pub async fn without_a_storer_nothing_is_set_nor_rolled_back_nor_renamed(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    super::stored(s, &node, &labels([("pool", "gold")])).await?;
    s.delete(&node).await?;
    let before = s.config_map(&node).await?;
    let commands =
        [&["set", &node, "pool=silver"][..], &["rollback", &node, "--to", "1"], &["rename", &node, "other"]];
    let all = commands.map(|args| {
        let args: Vec<_> =
            [args, &["--yes", "-n", &s.namespace]].concat().into_iter().map(str::to_owned).collect();
        s.run_binary("plugin", &args, Some(s.sandbox.kubeconfig().to_owned()))
    });
    for process in all {
        let process = process?;
        assert_eq!(process.exit().await?.code(), 1, "{}", process.log());
        assert!(
            process.has_logged(&["error: no storer has stored the deletion", "--force"]),
            "{}",
            process.log()
        );
    }
    assert_eq!(s.config_map(&node).await?, before);
    Ok(())
}
