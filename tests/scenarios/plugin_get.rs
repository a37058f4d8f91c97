//! `kubectl label-storage get`, `diff`, `history` and `explain`: looking, and changing nothing.

use anyhow::{Context, Result};
use label_storage::record::NODE;
use sandbox::process::Signal;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::scenario::{Labels, Scenario, Told, labels};

/// What a command said for machines.
fn parsed(told: &Told) -> Result<Value> {
    serde_json::from_str(&told.out).with_context(|| format!("{told:?}"))
}

/// The names of the nodes that a list has.
fn names(told: &Told) -> Result<Vec<String>> {
    let items = parsed(told)?["items"].take();
    let items = items.as_array().with_context(|| format!("{told:?}"))?;
    Ok(items.iter().filter_map(|item| item["node"].as_str().map(str::to_owned)).collect())
}

fn says(told: &Told, code: i32, words: &[&str]) {
    assert_eq!(told.code, Some(code), "{told:?}");
    let text = format!("{}{}", told.out, told.err);
    for word in words {
        assert!(text.contains(word), "{word:?} is not in\n{text}");
    }
}

/// A refusal is one line, on stderr, and nothing else.
fn refuses(told: &Told, code: i32, words: &[&str]) {
    says(told, code, words);
    assert_eq!(told.out, "", "{told:?}");
    if code == 1 {
        assert!(told.err.starts_with("error: ") && told.err.lines().count() == 1, "{told:?}");
    }
}

/// Rules in a file, for daemons and plugin alike.
fn rules(s: &Scenario, text: &str) -> Result<String> {
    let file = s.file("rules.yaml");
    std::fs::write(&file, text)?;
    Ok(file.to_str().context("a path")?.to_owned())
}

async fn ends(daemon: Daemon) -> Result<()> {
    daemon.process.signal(Signal::TERM)?;
    daemon.exit().await?;
    Ok(())
}

pub async fn get_shows_what_is_stored_and_how_it_stands(s: &Scenario) -> Result<()> {
    let storer = s.storer(&[])?;
    let (gold, bare) = (s.node("gold"), s.node("bare"));
    let kept = labels([("pool", "gold"), ("example.com/tier", "1")]);
    s.create(&gold, kept.clone()).await?;
    s.create(&bare, Labels::new()).await?;
    s.eventually_stored(&gold, kept.clone()).await?;
    let uid = s.get(&gold).await?.metadata.uid.context("a uid")?;
    says(
        &s.plugin(&["get", &gold])?,
        0,
        &["State:        present\n", "generation 1\n", &uid, "Labels:\n  example.com/tier=1\n  pool=gold\n"],
    );
    let shown = parsed(&s.plugin(&["get", &gold, "-o", "json"])?)?;
    assert_eq!(shown["kept"], json!(kept));
    assert_eq!((&shown["state"], &shown["generation"]), (&json!("present"), &json!(1)));
    assert_eq!((&shown["nodeUid"], &shown["node"]), (&json!(uid), &json!(gold)));
    let yaml = s.plugin(&["get", &gold, "-o", "yaml"])?;
    says(&yaml, 0, &["state: present\n", "  example.com/tier: \"1\"\n"]);
    // A node that is there, and of which nothing is stored.
    refuses(&s.plugin(&["get", &bare])?, 1, &["nothing is stored", &bare, "explain"]);
    s.delete(&gold).await?;
    s.eventually_departed(&gold).await?;
    says(&s.plugin(&["get", &gold])?, 0, &["State:        departed, seen to be gone "]);
    assert_eq!(names(&s.plugin(&["get", "--departed", "-o", "json"])?)?, std::slice::from_ref(&gold));
    assert_eq!(names(&s.plugin(&["get", "--pending", "-o", "json"])?)?, Vec::<String>::new());
    let selected = |selector: &str| names(&s.plugin(&["get", "-l", selector, "-o", "json"])?);
    assert_eq!(selected("pool=gold,example.com/tier")?, std::slice::from_ref(&gold));
    assert_eq!(selected("pool!=gold")?, Vec::<String>::new());
    // Nobody restores it.
    s.create(&gold, Labels::new()).await?;
    assert_eq!(names(&s.plugin(&["get", "--pending", "-o", "json"])?)?, std::slice::from_ref(&gold));
    let table = s.plugin(&["get", "--all"])?;
    says(&table, 0, &["NODE", "STATE", "GENERATION", &gold, "pending"]);
    assert_eq!(table.out.lines().count(), 2, "{table:?}");
    let wide = s.plugin(&["get", "--all", "-o", "wide"])?;
    says(&wide, 0, &["INCARNATION", &uid, "example.com/tier=1,pool=gold"]);
    let none = s.plugin(&["get", "--departed"])?;
    assert_eq!((none.code, none.out.as_str()), (Some(0), ""));
    drop(storer);
    Ok(())
}

pub async fn get_says_what_can_not_be_shown(s: &Scenario) -> Result<()> {
    let storer = s.storer(&[])?;
    let (good, broken) = (s.node("a"), s.node("b"));
    for node in [&good, &broken] {
        s.create(node, labels([("pool", "gold")])).await?;
        s.eventually_stored(node, labels([("pool", "gold")])).await?;
    }
    ends(storer).await?;
    s.patch_record(&broken, json!({"metadata": {"annotations": {NODE: "another"}}})).await?;
    let told = s.plugin(&["get", &broken])?;
    says(&told, 3, &["State:        unreadable\n", "correct or remove that annotation"]);
    // It does not hold up the others.
    let told = s.plugin(&["get", "--all", "-o", "json"])?;
    assert_eq!((told.code, names(&told)?), (Some(3), vec![good.clone(), broken.clone()]));
    // A damaged one is shown as far as it goes.
    s.patch_record(&good, json!({"data": {"tier": "not a value!"}})).await?;
    says(&s.plugin(&["get", &good])?, 0, &["  pool=gold\n", "Problem:", "\"tier\""]);
    for (args, code, words) in [
        (&["get"][..], 2, "NODE"),
        (&["get", "--all", &good], 2, "cannot be used with"),
        (&["get", "-l", "a=(", "-o", "json"], 2, "a=("),
        (&["get", "no-such-node"], 1, "there is no node \"no-such-node\""),
        (&["get", "../secrets"], 1, "not the name of a node"),
        (&["get", ""], 1, "not the name of a node"),
        (&["diff"], 2, "NODE"),
        (&["diff", "no-such-node"], 1, "there is no node \"no-such-node\""),
        (&["diff", &broken], 1, "can't be read"),
        (&["history", "no-such-node"], 1, "there is no node \"no-such-node\""),
        (&["history", &broken], 1, "can't be read"),
        (&["explain"], 2, "NODE"),
        (&["explain", "no-such-node"], 1, "there is no node \"no-such-node\""),
    ] {
        refuses(&s.plugin(args)?, code, &[words]);
    }
    let told = s.plugin(&["get", "--all", "--as", "nobody"])?;
    says(
        &told,
        1,
        &["you may not get configmaps", "error: can't list nodes: ", "cannot list resource \"nodes\""],
    );
    // With the rules at hand, it is something else that is not allowed.
    let config = rules(s, "")?;
    for (args, right) in [
        (&["get", "--all"][..], "cannot list resource \"nodes\""),
        (&["get", &good], "cannot get resource \"nodes\""),
        (&["explain", &good], "cannot get resource \"nodes\""),
    ] {
        let args = [args, &["--config", &config, "--as", "nobody"]].concat();
        refuses(&s.plugin(&args)?, 1, &[right]);
    }
    Ok(())
}

pub async fn several_records_of_one_name_are_told_apart(s: &Scenario) -> Result<()> {
    let config = rules(s, "identity: {by: providerID}\n")?;
    let storer = s.storer(&["--config", &config])?;
    let node = s.node("a");
    let [first, second] = ["1", "2"].map(|number| format!("aws:///zone/i-{}-{number}", s.namespace));
    for (instance, pool) in [(&first, "gold"), (&second, "silver")] {
        let content = json!({"metadata": {"labels": {"pool": pool}}, "spec": {"providerID": instance}});
        s.create_as(&node, content).await?;
        let filed = format!("providerID={instance}");
        s.eventually("its record", true, async || {
            let told = s.plugin(&["--config", &config, "get", &filed, "-o", "json"])?;
            Ok(told.code == Some(0) && parsed(&told)?["kept"] == json!({"pool": pool}))
        })
        .await?;
        // While it is there, it is found by what it is.
        let told = s.plugin(&["--config", &config, "get", &node, "-o", "json"])?;
        assert_eq!(parsed(&told)?["filedUnder"], json!(filed));
        s.delete(&node).await?;
        s.eventually("its departure", true, async || {
            let told = s.plugin(&["--config", &config, "get", &filed, "-o", "json"])?;
            Ok(parsed(&told)?["departedAt"].is_string())
        })
        .await?;
        if pool == "gold" {
            let told = s.plugin(&["--config", &config, "get", &node, "-o", "json"])?;
            assert_eq!(parsed(&told)?["kept"], json!({"pool": "gold"}), "by going through the records");
        }
    }
    ends(storer).await?;
    let told = s.plugin(&["--config", &config, "get", &node])?;
    refuses(
        &told,
        1,
        &["several records", &format!("'providerID={first}'"), &format!("'providerID={second}'")],
    );
    let told = s.plugin(&["--config", &config, "explain", &format!("providerID={second}")])?;
    says(
        &told,
        3,
        &["is not there.", "away", "identity.by: providerID", &format!("forget 'providerID={second}'")],
    );
    // It may be there under another name.
    let other = s.node("b");
    s.create_as(&other, json!({"spec": {"providerID": second}})).await?;
    let told = s.plugin(&["--config", &config, "get", &format!("providerID={second}")])?;
    says(&told, 0, &["State:        pending"]);
    s.delete(&other).await?;
    // Two that claim to be the same.
    for node in [&node, &other] {
        s.create_as(node, json!({"spec": {"providerID": first}})).await?;
    }
    let told = s.plugin(&["--config", &config, "explain", &other])?;
    says(&told, 3, &["identity-contested", &format!("claimed by {node}.")]);
    let told = s.plugin(&["--config", &config, "get", "--all"])?;
    assert_eq!(told.out.matches("contested").count(), 1, "{told:?}");
    Ok(())
}

pub async fn diff_shows_node_against_record(s: &Scenario) -> Result<()> {
    let config = rules(s, "labels: {exclude: [left-out]}\n")?;
    let storer = s.storer(&["--config", &config])?;
    let (node, bare) = (s.node("a"), s.node("b"));
    s.create(&node, labels([("pool", "gold"), ("tier", "1"), ("left-out", "x")])).await?;
    s.create(&bare, Labels::new()).await?;
    s.eventually_stored(&node, labels([("pool", "gold"), ("tier", "1")])).await?;
    let diff = |args: &[&str]| s.plugin(&[&["--config", &config, "diff"], args].concat());
    let same = diff(&[&node, &bare])?;
    assert_eq!((same.code, same.out), (Some(0), format!("# not stored of {node}, by the rules: left-out\n")));
    ends(storer).await?;
    s.label(&node, [("pool", Some("silver")), ("tier", None), ("new", Some("1"))]).await?;
    let uid = s.get(&node).await?.metadata.uid.context("a uid")?;
    let told = diff(&[&node])?;
    assert_eq!(told.code, Some(3), "{told:?}");
    let lines: Vec<_> = told.out.lines().collect();
    assert!(lines[0].starts_with(&format!("--- record of {node} (generation 1, stored ")), "{told:?}");
    assert_eq!(
        lines[1..],
        [
            &format!("+++ node {node} (uid {uid})"),
            "+new=1",
            "-pool=gold",
            "+pool=silver",
            "-tier=1",
            &format!("# not stored of {node}, by the rules: left-out"),
        ]
    );
    let told = parsed(&diff(&[&node, "-o", "json"])?)?;
    assert_eq!(told["isSame"], json!(false));
    assert_eq!(told["differences"][1], json!({"name": "pool", "before": "gold", "after": "silver"}));
    // What is set aside is no difference; nor is what only a record from before has.
    let withheld = json!({"node-restriction.kubernetes.io/tier": "m-1"}).to_string();
    let patch = json!({
        "metadata": {"annotations": {"label-storage/withheld": withheld}},
        "data": {"node-restriction.kubernetes.io-SLASH-tier": "9", "pool": "silver", "tier": null, "new": "1", "left-out": "y"},
    });
    s.patch_record(&node, patch).await?;
    let told = diff(&[&node])?;
    says(
        &told,
        0,
        &["# withheld from ", ": node-restriction.kubernetes.io/tier=9\n", "left alone: left-out\n"],
    );
    s.delete(&node).await?;
    says(&diff(&[&node])?, 3, &["(not there)\n", "-pool=silver\n"]);
    Ok(())
}

pub async fn history_shows_each_version_against_the_next(s: &Scenario) -> Result<()> {
    let storer = s.storer(&[])?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold"), ("zone", "a")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold"), ("zone", "a")])).await?;
    let none = s.plugin(&["history", &node])?;
    says(&none, 0, &["no earlier version is kept", "the present one"]);
    s.label(&node, [("pool", Some("silver"))]).await?;
    s.eventually_stored(&node, labels([("pool", "silver"), ("zone", "a")])).await?;
    s.label(&node, [("zone", None)]).await?;
    s.eventually_stored(&node, labels([("pool", "silver")])).await?;
    let told = s.plugin(&["history", &node])?;
    assert_eq!((told.code, told.err.as_str()), (Some(0), ""), "{told:?}");
    let heads: Vec<_> = told.out.lines().map(|line| line.split(", stored").next().unwrap_or(line)).collect();
    assert_eq!(
        heads,
        [
            "generation 1, 2 kept",
            "  -pool=gold",
            "  +pool=silver",
            "generation 2, 2 kept",
            "  -zone=a",
            "generation 3, 1 kept",
        ]
    );
    let versions = parsed(&s.plugin(&["history", &node, "-o", "json"])?)?["versions"].take();
    assert_eq!(versions[0]["kept"], json!({"pool": "gold", "zone": "a"}));
    assert_eq!((&versions[2]["isCurrent"], &versions[2]["generation"]), (&json!(true), &json!(3)));
    drop(storer);
    let config = rules(s, "history: 0\n")?;
    let other = s.node("b");
    let _storer = s.storer(&["--config", &config])?;
    s.create(&other, labels([("pool", "gold")])).await?;
    s.eventually_stored(&other, labels([("pool", "gold")])).await?;
    says(
        &s.plugin(&["history", &other, "--config", &config])?,
        0,
        &["the rules keep no history (history: 0)"],
    );
    Ok(())
}

pub async fn explain_says_who_does_what_and_why(s: &Scenario) -> Result<()> {
    let (storer, restorer) = s.pair()?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    let leases =
        ["The storers' shard 0 of 1", "The restorers' shard 0 of 1", ": held by ", " for ", ", renewed "];
    s.eventually("both are at work", Some(0), async || Ok(s.plugin(&["explain", &node])?.code)).await?;
    let told = s.plugin(&["explain", &node])?;
    says(&told, 0, &leases);
    says(&told, 0, &["does nothing: up-to-date", "row 2 of the table", "does nothing: same-incarnation"]);
    says(&told, 0, &[&format!("Node {node} is there since ")]);
    says(&told, 0, &["from this very incarnation", &format!("kubectl label node {node} KEY=VALUE")]);
    // What it says is what they do.
    s.has_decided(&storer, &node, "up-to-date").await?;
    s.has_decided(&restorer, &node, "same-incarnation").await?;
    s.annotate(&node, [("label-storage/ignore", Some("true"))]).await?;
    says(
        &s.plugin(&["explain", &node])?,
        0,
        &["ignored", &format!("annotate node {node} label-storage/ignore-")],
    );
    s.annotate(&node, [("label-storage/ignore", None)]).await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    let told = s.plugin(&["explain", &node])?;
    says(
        &told,
        0,
        &["is not there.", "The storer does nothing: away", "row 7 of the table", "retention: 30d: 29d"],
    );
    let here = format!("{node} -n {}", s.namespace);
    says(&told, 0, &[&format!("kubectl label-storage forget {here}"), &format!("set {node} KEY=VALUE KEY-")]);
    // Who may not see leases is told so, and all else.
    ends(restorer).await?;
    s.create(&node, labels([("zone", "b")])).await?;
    s.has_decided(&storer, &node, "awaiting-restore").await?;
    let told = s.plugin(&["explain", &node])?;
    says(&told, 3, &["The storer waits: awaiting-restore", "row 3 of the table", "no restorer works on it"]);
    says(
        &told,
        3,
        &["The restorer gives the node 1 back, of generation ", ": returned\n", "\n  +pool=gold\n"],
    );
    let told = parsed(&s.plugin(&["explain", &node, "-o", "json"])?)?;
    assert_eq!(
        (&told["storer"]["reason"], &told["restorer"]["reason"]),
        (&json!("awaiting-restore"), &json!("returned"))
    );
    assert_eq!(told["restorer"]["changes"], json!(["+pool=gold"]));
    assert_eq!(told["next"][0]["run"], json!(format!("kubectl label-storage restore {here}")));
    Ok(())
}

pub async fn explain_names_the_rules_that_have_a_part_in_it(s: &Scenario) -> Result<()> {
    const RULES: &str = "\
labels: {exclude: [left-out]}
nodes: {selector: pool}
conflicts: [{keys: [zone], wins: record}]
startupTaint: {enabled: true, atMost: 3m}
retention: forever
";
    const TRUST: &str = "node-restriction.kubernetes.io/tier";
    let config = rules(s, RULES)?;
    let storer = s.storer(&["--config", &config])?;
    let (node, other) = (s.node("a"), s.node("b"));
    let explain = |node: &str| s.plugin(&["--config", &config, "explain", node]);
    let kept = json!({"pool": "gold", "zone": "a", "tier": "1", TRUST: "1", "left-out": "x"});
    s.create_as(&node, json!({"metadata": {"labels": kept}, "status": {"nodeInfo": {"systemUUID": "m-1"}}}))
        .await?;
    let stored = labels([("pool", "gold"), ("zone", "a"), ("tier", "1"), (TRUST, "1")]);
    s.eventually_stored(&node, stored).await?;
    says(&explain(&node)?, 3, &["Not stored: left-out (labels.exclude).", "No restorer has a lease"]);
    s.create(&other, labels([("tier", "1")])).await?;
    says(&explain(&other)?, 3, &["not-selected", "(nodes.selector: pool)", "There is no record of it."]);
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    says(&explain(&node)?, 3, &["retention: forever"]);
    ends(storer).await?;
    let labels = json!({"zone": "b", "tier": "2", "kept": "1"});
    let metadata = json!({"labels": labels, "annotations": {"label-storage/keep": "kept,left-out"}});
    let taint = json!([{"key": "label-storage/restoring", "effect": "NoSchedule"}]);
    let content = json!({"metadata": metadata, "spec": {"taints": taint}, "status": {"nodeInfo": {"systemUUID": "m-2"}}});
    s.create_as(&node, content).await?;
    let told = explain(&node)?;
    says(&told, 3, &["Its own list of what to keep counts: label-storage/keep: kept,left-out."]);
    says(&told, 3, &["Not stored: tier (its own list), zone (its own list)."]);
    says(
        &told,
        3,
        &[
            "\n  +pool=gold\n  -zone=b\n  +zone=a\n",
            "zone: both have a value, and the rules say that the record's",
        ],
    );
    says(&told, 3, &["tier: both have a value, and the node's counts (wins: node)"]);
    says(
        &told,
        3,
        &[
            &format!("{TRUST} is withheld (other-machine)"),
            "the start-up taint comes off with it",
            &format!("restore {node} --trust"),
        ],
    );
    says(&told, 3, &["replaces configmap", "departed-at is taken off", "So no storer works on it"]);
    // A fence comes before all that.
    let config = rules(s, "identity: {fence: true}\n")?;
    let told = s.plugin(&["--config", &config, "explain", &node])?;
    says(
        &told,
        3,
        &[
            "The restorer does nothing: other-machine",
            "this machine (m-2) is another than the record's (m-1)",
            &format!("restore {node} --other-machine -n {} --config {config}", s.namespace),
        ],
    );
    let told = s.plugin(&["--config", &config, "get", &node])?;
    says(&told, 0, &["State:        other-machine"]);
    s.patch_record(&node, json!({"metadata": {"annotations": {NODE: "another"}}})).await?;
    says(&explain(&node)?, 3, &["record-unreadable", "edit configmap label-storage.", "can't be read"]);
    Ok(())
}
