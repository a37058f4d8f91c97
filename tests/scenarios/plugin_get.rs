//! `kubectl label-storage get`, `diff` and `history`: looking, and changing nothing.

use std::io::Read;
use std::process::{Child, Stdio};

use anyhow::{Context, Result};
use kube::api::{Patch, PatchParams, PostParams};
use label_storage::name::record_name;
use label_storage::record::NODE;
use sandbox::itself;
use sandbox::process::Signal;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::scenario::{Labels, Scenario, Told, labels};

/// The JSON output of a command.
pub fn parsed(told: &Told) -> Result<Value> {
    serde_json::from_str(&told.out).with_context(|| format!("{told:?}"))
}

/// The names of the nodes that a list has.
fn names(told: &Told) -> Result<Vec<String>> {
    let items = parsed(told)?["items"].take();
    let items = items.as_array().with_context(|| format!("{told:?}"))?;
    Ok(items.iter().filter_map(|item| item["node"].as_str().map(str::to_owned)).collect())
}

pub fn says(told: &Told, code: i32, words: &[&str]) {
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
pub fn rules(s: &Scenario, text: &str) -> Result<String> {
    let file = s.file("rules.yaml");
    std::fs::write(&file, text)?;
    Ok(file.to_str().context("a path")?.to_owned())
}

pub async fn ends(daemon: Daemon) -> Result<()> {
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
    says(&s.plugin(&["get", &gold])?, 0, &["NODE", "STORED-ITEMS", &gold, "up-to-date   1            2 "]);
    says(&s.plugin(&["get", &gold, "-o", "wide"])?, 0, &[&uid, "example.com/tier=1,pool=gold\n"]);
    let shown = parsed(&s.plugin(&["get", &gold, "-o", "json"])?)?;
    assert_eq!(shown["kept"], json!(kept));
    assert_eq!((&shown["state"], &shown["generation"]), (&json!("up-to-date"), &json!(1)));
    assert_eq!((&shown["apiVersion"], &shown["kind"]), (&json!("label-storage/v1"), &json!("Record")));
    assert_eq!((&shown["nodeUid"], &shown["node"]), (&json!(uid), &json!(gold)));
    let yaml = s.plugin(&["get", &gold, "-o", "yaml"])?;
    says(&yaml, 0, &["kind: Record\n", "state: up-to-date\n", "  example.com/tier: \"1\"\n"]);
    let yaml = s.plugin(&["get", "-o", "yaml"])?;
    let all: Value = serde_saphyr::from_str(&yaml.out)?;
    assert_eq!((yaml.code, &all["items"][0]["kept"]), (Some(0), &json!(kept)), "{yaml:?}");
    assert_eq!((&all["kind"], &all["items"][0]["kind"]), (&json!("RecordList"), &json!("Record")));
    let name = s.plugin(&["get", "-o", "name"])?;
    assert_eq!(name.out, format!("configmap/{}\n", record_name(&gold)));
    let path = s.plugin(&["get", "-o", r"jsonpath={.items[*].kept.example\.com/tier}"])?;
    assert_eq!(path.out, "1");
    let rows = s.plugin(&["get", "--no-headers"])?;
    assert!(rows.out.starts_with(&gold) && rows.out.lines().count() == 1, "{rows:?}");
    // Existing records are shown, even if others are missing.
    let told = s.plugin(&["get", &gold, "no-such-node", &bare])?;
    says(
        &told,
        1,
        &["up-to-date", "there is no node \"no-such-node\"", &format!("node {bare} has no record")],
    );
    // A node that is there, and of which nothing is stored.
    refuses(&s.plugin(&["get", &bare])?, 1, &["has no record", &bare, "explain"]);
    s.delete(&gold).await?;
    s.eventually_departed(&gold).await?;
    says(&s.plugin(&["get", &gold])?, 0, &["departed"]);
    assert!(parsed(&s.plugin(&["get", &gold, "-o", "json"])?)?["departedAt"].is_string());
    assert_eq!(names(&s.plugin(&["get", "--departed", "-o", "json"])?)?, std::slice::from_ref(&gold));
    assert_eq!(names(&s.plugin(&["get", "--pending", "-o", "json"])?)?, Vec::<String>::new());
    let selected = |selector: &str| names(&s.plugin(&["get", "-l", selector, "-o", "json"])?);
    assert_eq!(selected("pool=gold,example.com/tier")?, std::slice::from_ref(&gold));
    assert_eq!(selected("pool!=gold")?, Vec::<String>::new());
    // No restorer runs.
    s.create(&gold, Labels::new()).await?;
    assert_eq!(names(&s.plugin(&["get", "--pending", "-o", "json"])?)?, std::slice::from_ref(&gold));
    let table = s.plugin(&["get"])?;
    says(&table, 0, &["NODE", "STATE", "GENERATION", &gold, "pending"]);
    assert_eq!(table.out.lines().count(), 2, "{table:?}");
    let wide = s.plugin(&["get", "--all", "-o", "wide"])?;
    says(&wide, 0, &["NODE-UID", &uid, "example.com/tier=1,pool=gold"]);
    let none = s.plugin(&["get", "--departed"])?;
    assert_eq!((none.code, none.out.as_str()), (Some(0), ""));
    assert_eq!(none.err, format!("No records found in namespace {}.\n", s.namespace));
    drop(storer);
    Ok(())
}

pub async fn get_sorts_and_watches(s: &Scenario) -> Result<()> {
    let storer = s.storer(&[])?;
    let (a, b, c) = (s.node("a"), s.node("b"), s.node("c"));
    for (node, rank) in [(&a, "30"), (&b, "4")] {
        s.create(node, labels([("rank", rank)])).await?;
        s.eventually_stored(node, labels([("rank", rank)])).await?;
    }
    let sorted = |path: &str| names(&s.plugin(&["get", "-o", "json", "--sort-by", path])?);
    assert_eq!(sorted(".kept.rank")?, [b.clone(), a.clone()], "as numbers");
    assert_eq!(sorted("{.node}")?, [a.clone(), b.clone()]);
    says(&s.plugin(&["get", "--sort-by", "{.node"])?, 2, &["--sort-by"]);
    let args = ["get", "-l", "rank", "--watch", "-n", &s.namespace].map(str::to_owned);
    let watching = s.run_binary("plugin", &args, Some(s.sandbox.kubeconfig().to_owned()))?;
    let rows = |node: &str| watching.log().lines().filter(|line| line.starts_with(node)).count();
    s.eventually("the list", 1, async || Ok(rows(&b))).await?;
    s.create(&c, labels([("rank", "1")])).await?;
    s.eventually("a new record", true, async || Ok(rows(&c) > 0)).await?;
    s.label(&a, [("rank", Some("31"))]).await?;
    s.eventually("a changed record", true, async || Ok(rows(&a) > 1)).await?;
    assert_eq!(rows(&b), 1, "it has not changed: {}", watching.log());
    watching.process.signal(Signal::INT)?;
    assert_eq!(watching.exit().await?.to_string(), "exit code 0", "{}", watching.log());
    drop(storer);
    Ok(())
}

pub async fn the_installation_is_found(s: &Scenario) -> Result<()> {
    let find = |kubeconfig: &std::path::Path, args: &[&str]| -> Result<Told> {
        let mut command = itself::command("plugin", Some(kubeconfig))?;
        let output =
            command.args(args).env_remove("LABEL_STORAGE_NAMESPACE").stdin(Stdio::null()).output()?;
        let text = |bytes| String::from_utf8(bytes);
        Ok(Told { code: output.status.code(), out: text(output.stdout)?, err: text(output.stderr)? })
    };
    let node = s.node("a");
    let storer = s.storer(&[])?;
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    // By the namespace of the context.
    let mut kubeconfig: Value = serde_saphyr::from_str(&std::fs::read_to_string(s.sandbox.kubeconfig())?)?;
    kubeconfig["contexts"][0]["context"]["namespace"] = json!(s.namespace);
    let here = s.file("here");
    std::fs::write(&here, kubeconfig.to_string())?;
    says(&find(&here, &["get", &node])?, 0, &[&node]);
    // By the leases: there are other installations on this control plane.
    let told = find(s.sandbox.kubeconfig(), &["get", &node])?;
    let is_one_of_several = told.err.contains("several installations") && told.err.contains(&s.namespace);
    assert!(told.code == Some(0) || is_one_of_several, "{told:?}");
    let told = find(s.sandbox.kubeconfig(), &["get", "--as", "nobody"])?;
    says(&told, 1, &["other namespaces can't be searched", "give the namespace with -n"]);
    says(&s.plugin(&["get", "-n", "no-such-namespace"])?, 1, &["namespace no-such-namespace does not exist"]);
    says(&s.plugin(&["get", "-n", "kube-public"])?, 1, &["has no record and no lease of Label Storage"]);
    drop(storer);
    Ok(())
}

pub async fn flags_choose_the_server_and_the_user(s: &Scenario) -> Result<()> {
    let text = std::fs::read_to_string(s.sandbox.kubeconfig())?;
    let kubeconfig: Value = serde_saphyr::from_str(&text)?;
    let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str().context("a server")?.to_owned();
    let (cluster, user) = (&kubeconfig["clusters"][0]["name"], &kubeconfig["users"][0]["name"]);
    let (cluster, user) = (cluster.as_str().context("a name")?, user.as_str().context("a name")?);
    let storer = s.storer(&[])?;
    s.create(&s.node("a"), labels([("pool", "gold")])).await?;
    s.eventually_stored(&s.node("a"), labels([("pool", "gold")])).await?;
    says(&s.plugin(&["get", "--cluster", cluster, "--user", user, "--request-timeout", "30s"])?, 0, &[]);
    says(&s.plugin(&["get", "--server", &server])?, 0, &[]);
    says(&s.plugin(&["get", "--server", "https://127.0.0.1:1"])?, 1, &["error: "]);
    says(&s.plugin(&["get", "--user", "no-such"])?, 1, &["no-such"]);
    says(&s.plugin(&["get", "--request-timeout", "soon"])?, 2, &["--request-timeout"]);
    says(&s.plugin(&["get", "-v", "6"])?, 0, &["GET"]);
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
    says(&told, 0, &["unreadable"]);
    says(&s.plugin(&["get", &broken, "-o", "wide"])?, 0, &["correct or remove that annotation"]);
    // It does not hold up the others.
    let told = s.plugin(&["get", "--all", "-o", "json"])?;
    assert_eq!((told.code, names(&told)?), (Some(0), vec![good.clone(), broken.clone()]));
    // A damaged one is shown as far as it goes.
    s.patch_record(&good, json!({"data": {"tier": "not a value!"}})).await?;
    let told = s.plugin(&["get", &good, "-o", "yaml"])?;
    says(
        &told,
        0,
        &["  pool: gold\n", "problem:", "data key \\\"tier\\\" can't have the value \\\"not a value!\\\""],
    );
    for (args, code, words) in [
        (&["get", "--all", &good][..], 2, "cannot be used with"),
        (&["get", "-l", "a=(", "-o", "json"], 2, "a=("),
        (&["get", "no-such-node"], 1, "there is no node \"no-such-node\""),
        (&["get", "../secrets"], 1, "not a valid node name"),
        (&["get", ""], 1, "not a valid node name"),
        (&["history", "no-such-node"], 1, "there is no node \"no-such-node\""),
        (&["history", &broken], 1, "can't be used"),
        (&["explain"], 2, "NODE"),
        (&["explain", "no-such-node"], 1, "there is no node \"no-such-node\""),
    ] {
        refuses(&s.plugin(args)?, code, &[words]);
    }
    let told = s.plugin(&["get", "--all", "--as", "nobody"])?;
    refuses(&told, 1, &["the rules can't be read", "cannot get resource \"configmaps\"", "--config FILE"]);
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
        assert_eq!(parsed(&told)?["identity"], json!(filed));
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
        0,
        &["is absent.", "away", "identity.by: providerID", &format!("forget 'providerID={second}'")],
    );
    // It may be there under another name.
    let other = s.node("b");
    s.create_as(&other, json!({"spec": {"providerID": second}})).await?;
    let told = s.plugin(&["--config", &config, "get", &format!("providerID={second}")])?;
    says(&told, 0, &["pending"]);
    s.delete(&other).await?;
    // A node of that name without an identity: the record can't be assigned to it.
    let third = s.node("c");
    let config_map = s.config_maps.get(&record_name(&format!("providerID={second}"))).await?;
    let renamed = json!({"metadata": {"annotations": {NODE: third}}});
    let name = config_map.metadata.name.context("a name")?;
    s.config_maps.patch(&name, &PatchParams::default(), &Patch::Merge(renamed)).await?;
    s.create(&third, Labels::new()).await?;
    let told = s.plugin(&["--config", &config, "get", &third])?;
    says(&told, 0, &["departed"]);
    // Two that claim to be the same.
    for node in [&node, &other] {
        s.create_as(node, json!({"spec": {"providerID": first}})).await?;
    }
    let told = s.plugin(&["--config", &config, "explain", &other])?;
    says(&told, 0, &["identity-contested", &format!("claimed by {node}.")]);
    let told = s.plugin(&["--config", &config, "get", "--all"])?;
    assert_eq!(told.out.matches("contested").count(), 1, "{told:?}");
    for node in [&node, &other] {
        let told = s.plugin(&["--config", &config, "get", node])?;
        says(&told, 0, &["contested"]);
    }
    Ok(())
}

pub async fn explain_shows_the_difference_between_node_and_record(s: &Scenario) -> Result<()> {
    let config = rules(s, "labels: {exclude: [left-out]}\n")?;
    let storer = s.storer(&["--config", &config])?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold"), ("tier", "1"), ("left-out", "x")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold"), ("tier", "1")])).await?;
    let explain = |args: &[&str]| s.plugin(&[&["--config", &config, "explain", &node], args].concat());
    let same = parsed(&explain(&["-o", "json"])?)?;
    assert_eq!((&same["differences"], &same["state"]), (&json!([]), &json!("up-to-date")));
    says(&explain(&[])?, 0, &["Not stored: left-out (labels.exclude)."]);
    ends(storer).await?;
    s.label(&node, [("pool", Some("silver")), ("tier", None), ("new", Some("1"))]).await?;
    says(&explain(&[])?, 0, &["\n  +new=1\n  -pool=gold\n  +pool=silver\n  -tier=1\n"]);
    let told = parsed(&explain(&["-o", "json"])?)?;
    assert_eq!(told["state"], json!("changed"));
    assert_eq!(told["differences"][1], json!({"name": "pool", "before": "gold", "after": "silver"}));
    // A withheld label is no difference; nor is one that only a record from before has.
    let withheld = json!({"node-restriction.kubernetes.io/tier": "m-1"}).to_string();
    let patch = json!({
        "metadata": {"annotations": {"label-storage/withheld": withheld}},
        "data": {"node-restriction.kubernetes.io-SLASH-tier": "9", "pool": "silver", "tier": null, "new": "1", "left-out": "y"},
    });
    s.patch_record(&node, patch).await?;
    assert_eq!(parsed(&explain(&["-o", "json"])?)?["differences"], json!([]));
    says(
        &explain(&[])?,
        0,
        &[
            "Withheld: node-restriction.kubernetes.io/tier=9, read from node unknown (machine m-1).\n",
            "not stored any more by the rules: left-out.\n",
        ],
    );
    Ok(())
}

pub async fn history_shows_each_version_against_the_next(s: &Scenario) -> Result<()> {
    let storer = s.storer(&[])?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold"), ("zone", "a")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold"), ("zone", "a")])).await?;
    let none = s.plugin(&["history", &node])?;
    says(&none, 0, &["has no earlier version", ", current\n"]);
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
            "generation 1, 2 items",
            "  -pool=gold",
            "  +pool=silver",
            "generation 2, 2 items",
            "  -zone=a",
            "generation 3, 1 item",
        ]
    );
    let versions = parsed(&s.plugin(&["history", &node, "-o", "json"])?)?["versions"].take();
    assert_eq!(versions[0]["kept"], json!({"pool": "gold", "zone": "a"}));
    assert_eq!((&versions[2]["isCurrent"], &versions[2]["generation"]), (&json!(true), &json!(3)));
    // The deletion raises the generation and changes no label.
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    let generation = parsed(&s.plugin(&["get", &node, "-o", "json"])?)?["generation"].take();
    let versions = parsed(&s.plugin(&["history", &node, "-o", "json"])?)?["versions"].take();
    assert_eq!((&versions[2]["generation"], &generation), (&json!(4), &json!(4)), "as `get` has it");
    for to in ["3", "4"] {
        let told = s.plugin(&["rollback", &node, "--to", to, "--yes"])?;
        refuses(&told, 1, &[&format!("generation {to} of node {node} is the present one")]);
    }
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

/// A record of a node that is not there, made by hand.
pub async fn made_by_hand(s: &Scenario, node: &str, data: Value) -> Result<()> {
    let record = json!({
        "metadata": {
            "name": record_name(node),
            "labels": {"app.kubernetes.io/managed-by": "label-storage"},
            "annotations": {
                NODE: node,
                "label-storage/generation": "2",
                "label-storage/labels-generation": "2",
                "label-storage/node-resource-version": "1",
                "label-storage/captured-at": "2026-11-16T06:48:56Z",
            },
        },
        "data": data,
    });
    s.config_maps.create(&PostParams::default(), &serde_json::from_value(record)?).await?;
    Ok(())
}

/// The plugin, with a reader that takes its time.
pub fn started(s: &Scenario, kubeconfig: &std::path::Path, args: &[&str]) -> Result<Child> {
    let mut command = itself::command("plugin", Some(kubeconfig))?;
    command.args(args).env("LABEL_STORAGE_NAMESPACE", &s.namespace);
    Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
}

pub async fn who_reads_slowly_or_not_at_all_holds_up_no_list(s: &Scenario) -> Result<()> {
    // More than pipes and sockets hold, and nothing that could be compressed.
    const RECORDS: usize = 60;
    for number in 0..RECORDS {
        let text: String = (0..200_000).map(|_| char::from(rand::random_range(b'!'..=b'~'))).collect();
        let data = json!({"pool": "gold", "annotation-COLON-example.com-SLASH-note": text});
        made_by_hand(s, &s.node(&format!("n{number}")), data).await?;
    }
    // Nothing comes before all is there, so nothing is missing when the server goes away.
    let proxy = s.proxy(|_: &::faults::Request| ::faults::Fault::None).await?;
    let mut child = started(s, proxy.kubeconfig(), &["get", "--all", "-o", "json"])?;
    let mut stdout = child.stdout.take().context("its stdout")?;
    let mut text = vec![0];
    stdout.read_exact(&mut text)?;
    proxy.cut();
    drop(proxy);
    stdout.read_to_end(&mut text)?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8(output.stderr)?;
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""));
    let all: Value = serde_json::from_slice(&text)?;
    assert_eq!(all["items"].as_array().map(Vec::len), Some(RECORDS));

    // A reader that closes the pipe causes no error message.
    for format in ["table", "wide", "json", "yaml"] {
        let mut child = started(s, s.sandbox.kubeconfig(), &["get", "--all", "-o", format])?;
        drop(child.stdout.take());
        let output = child.wait_with_output()?;
        assert_eq!(String::from_utf8(output.stderr)?, "", "{format}");
        assert_eq!(output.status.code(), Some(1), "{format}");
    }
    Ok(())
}

pub async fn what_others_wrote_can_not_forge_what_is_shown(s: &Scenario) -> Result<()> {
    const NOTE: &str = "x\n  +pool=gold\r\u{1b}[2J";
    let node = s.node("a");
    let history =
        json!({"at": "2026-11-16T05:12:03Z", "kept": {"annotation:example.com/note": "y\n\u{1b}[1m"}});
    let data = json!({
        "annotation-COLON-example.com-SLASH-note": NOTE,
        "history-COLON-1": history.to_string(),
    });
    made_by_hand(s, &node, data).await?;
    let kept = parsed(&s.plugin(&["get", &node, "-o", "json"])?)?["kept"].take();
    assert_eq!(kept, json!({"annotation:example.com/note": NOTE}), "machines get it as it is");
    let looks = |all: &[&[&str]]| -> Result<()> {
        for args in all {
            let told = s.plugin(args)?;
            let text = format!("{}{}", told.out, told.err);
            assert!(
                text.contains(r"x\n  +pool=gold\r\u{1b}[2J") || text.contains(r"y\n\u{1b}[1m"),
                "{args:?}: {text}"
            );
            assert!(!text.contains('\u{1b}') && !text.contains('\r'), "{args:?}: {text:?}");
            assert!(!text.lines().any(|line| line == "  +pool=gold"), "{args:?}: {text}");
        }
        Ok(())
    };
    looks(&[&["explain", &node], &["get", "-o", "wide"], &["history", &node]])?;
    s.create(&node, Labels::new()).await?;
    let config = rules(s, "annotations: {include: [example.com/note]}\n")?;
    looks(&[
        &["explain", &node, "--config", &config],
        &["explain", &node],
        &["restore", &node, "--dry-run"],
    ])?;
    Ok(())
}
