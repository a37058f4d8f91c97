//! `kubectl label-storage status`: what it says, and its exit code.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Stdio};

use anyhow::{Context, Result};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Api;
use kube::api::PostParams;
use label_storage::name::record_name;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use sandbox::itself;
use sandbox::process::Signal;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::plugin_get::made_by_hand;
use crate::scenario::{Labels, Scenario, Told, labels};

/// Runs it, for the nodes of this test alone: there are others on the same control plane.
fn status(s: &Scenario, flags: &[&str]) -> Result<Told> {
    let nodes = format!("{}.*", s.namespace);
    s.plugin(&[&["status", "--nodes", &nodes], flags].concat())
}

/// The same, as data.
fn data(s: &Scenario, flags: &[&str]) -> Result<(Option<i32>, Value)> {
    let told = status(s, &[&["-o", "json"], flags].concat())?;
    let data = serde_json::from_str(&told.out).with_context(|| format!("{told:?}"))?;
    Ok((told.code, data))
}

/// Why it is not well, in one word each.
fn reasons(data: &Value) -> Vec<&str> {
    let all = data["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(|reason| reason["reason"].as_str()).collect()
}

/// Without waiting for anything: what is seen at the first look counts.
const AT_ONCE: [&str; 4] = ["--patience", "0s", "--overdue", "0s"];

async fn stop(daemon: &Daemon) -> Result<()> {
    daemon.process.signal(Signal::TERM)?;
    daemon.exit().await?;
    Ok(())
}

pub async fn where_all_is_well_it_says_so(s: &Scenario) -> Result<()> {
    let (_storer, _restorer) = s.pair()?;
    let (gold, a, b) = (labels([("pool", "gold")]), s.node("a"), s.node("b"));
    for node in [&a, &b] {
        s.create(node, gold.clone()).await?;
        s.eventually_stored(node, gold.clone()).await?;
    }
    s.create(&s.node("bare"), Labels::new()).await?;
    s.delete(&b).await?;
    s.eventually_departed(&b).await?;
    s.eventually("health", Some(0), async || Ok(status(s, &[])?.code)).await?;

    let (code, data) = data(s, &[])?;
    assert_eq!((code, &data["healthy"], reasons(&data)), (Some(0), &json!(true), vec![]));
    assert_eq!((&data["kind"], &data["apiVersion"]), (&json!("Status"), &json!("label-storage/v1")));
    assert_eq!((&data["nodes"], &data["records"]), (&json!(2), &json!(2)));
    let states = data["states"].as_object().context("states")?;
    let counts: Vec<_> = states.iter().map(|(state, group)| (state.as_str(), &group["count"])).collect();
    assert_eq!(counts, [("departed", &json!(1)), ("no-labels", &json!(1)), ("up-to-date", &json!(1))]);
    let shards = data["shards"].as_array().context("shards")?;
    let shards: Vec<_> = shards.iter().map(|shard| (&shard["daemon"], &shard["state"])).collect();
    assert_eq!(shards, [(&json!("storer"), &json!("home")), (&json!("restorer"), &json!("home"))]);

    let told = status(s, &[])?;
    assert!(told.out.starts_with("Healthy\n"), "no colours where nobody sees them: {told:?}");
    let yaml = status(s, &["-o", "yaml"])?;
    assert!(
        yaml.out.contains("  up-to-date:\n    count: 1") && yaml.out.contains("\nhealthy: true\n"),
        "{yaml:?}"
    );
    let path = status(s, &["-o", "jsonpath={.states.departed.count}"])?;
    assert_eq!(path.out, "1");
    Ok(())
}

pub async fn what_is_not_well_comes_first_and_is_the_exit_code(s: &Scenario) -> Result<()> {
    let (gold, silver) = (labels([("pool", "gold")]), [("pool", Some("silver"))]);
    let (changed, back, new, broken) = (s.node("changed"), s.node("back"), s.node("new"), s.node("broken"));
    let (storer, restorer) = s.pair()?;
    for node in [&changed, &back, &broken] {
        s.create(node, gold.clone()).await?;
        s.eventually_stored(node, gold.clone()).await?;
    }
    for daemon in [&storer, &restorer] {
        stop(daemon).await?;
    }
    s.label(&changed, silver).await?;
    s.delete(&back).await?;
    s.create(&back, Labels::new()).await?;
    s.create(&new, gold.clone()).await?;
    s.patch_record(&broken, json!({"metadata": {"annotations": {"label-storage/node": "another"}}})).await?;

    let (code, data) = data(s, &AT_ONCE)?;
    assert_eq!((code, &data["healthy"]), (Some(3), &json!(false)));
    let expected = [
        "record-unreadable",
        "restore-overdue",
        "not-stored",
        "labels-not-stored",
        "shard-not-held",
        "shard-not-held",
    ];
    assert_eq!(reasons(&data), expected, "{data:#}");
    let states = &data["states"];
    for (state, node) in [("pending", &back), ("new", &new), ("changed", &changed)] {
        assert_eq!(states[state]["names"], json!([node]), "{state}");
    }
    assert_eq!((&states["unreadable"]["count"], &states["up-to-date"]), (&json!(1), &Value::Null));
    let unreadable = &data["findings"][0]["message"];
    assert!(unreadable.as_str().is_some_and(|why| why.contains("label-storage/node")), "{unreadable}");
    let states: Vec<_> = data["shards"].as_array().context("shards")?.iter().map(|it| &it["state"]).collect();
    assert_eq!(states, ["released", "released"]);

    let told = status(s, &AT_ONCE)?;
    let lines: Vec<_> = told.out.lines().collect();
    assert_eq!((told.code, lines[0]), (Some(3), "Not healthy"));
    assert!(
        lines[1].starts_with(&format!("- 1 record that can't be read: {}: ", record_name(&broken))),
        "{told:?}"
    );
    assert!(!told.out.contains('\x1b'), "{told:?}");

    // A node that has only just come may well wait.
    let (_, young) = self::data(s, &["--patience", "0s", "--overdue", "1h"])?;
    assert!(
        !reasons(&young).iter().any(|reason| reason.ends_with("overdue") || *reason == "not-stored"),
        "{young:#}"
    );
    assert_eq!(young["states"]["pending"]["count"], json!(1));
    Ok(())
}

pub async fn work_in_progress_is_looked_at_again(s: &Scenario) -> Result<()> {
    let (gold, silver, node) = (labels([("pool", "gold")]), labels([("pool", "silver")]), s.node("a"));
    let (storer, _restorer) = s.pair()?;
    s.create(&node, gold.clone()).await?;
    s.eventually_stored(&node, gold).await?;
    s.eventually("health", Some(0), async || Ok(status(s, &[])?.code)).await?;
    stop(&storer).await?;
    s.label(&node, [("pool", Some("silver"))]).await?;

    let looking = watched(s, &["--patience", "20s"])?;
    s.eventually("a first look", true, async || Ok(looking.log().contains("looking again"))).await?;
    let _storer = s.storer(&[])?;
    s.eventually_stored(&node, silver).await?;
    let exit = looking.exit().await?;
    assert!(looking.log().contains("\nHealthy\n"), "{exit}: {}", looking.log());
    Ok(())
}

/// Runs it as a process that goes on: both that it says are in its log.
fn watched(s: &Scenario, flags: &[&str]) -> Result<Daemon> {
    let nodes = format!("{}.*", s.namespace);
    let args = ["status", "--nodes", &nodes, "--namespace", &s.namespace];
    let args: Vec<String> = args.iter().chain(flags).map(|arg| (*arg).to_owned()).collect();
    s.run_binary("plugin", &args, Some(s.sandbox.kubeconfig().to_owned()))
}

pub async fn a_right_that_is_missing_is_named_and_the_rest_is_shown(s: &Scenario) -> Result<()> {
    let gold = labels([("pool", "gold")]);
    let _storer = s.storer(&[])?;
    s.create(&s.node("a"), gold.clone()).await?;
    s.eventually_stored(&s.node("a"), gold).await?;
    let (user, name) = (format!("reader-{}", s.namespace), format!("reader-{}", s.namespace));
    grant(s, &name, &user).await?;

    s.eventually("a reader's view", true, async || {
        let (code, data) = data(s, &["--patience", "0s", "--as", &user])?;
        let is_seen = data["states"]["up-to-date"]["count"] == json!(1) && data["shards"] == Value::Null;
        Ok(code == Some(3) && is_seen && reasons(&data) == ["permission-missing"])
    })
    .await?;
    let told = status(s, &["--as", &user])?;
    let line = told.out.lines().nth(1).context("a finding")?;
    assert!(line.contains("can't list leases") && line.contains("cannot list resource \"leases\""), "{line}");

    let told = status(s, &["--as", "nobody-at-all"])?;
    assert_eq!((told.code, told.out.as_str()), (Some(1), ""));
    let last = told.err.lines().last().context("an error")?;
    assert!(last.starts_with("error: nothing can be read: ") && last.contains("leases"), "{last}");
    Ok(())
}

/// Grants the permission to list Nodes and ConfigMaps, and no other.
async fn grant(s: &Scenario, name: &str, user: &str) -> Result<()> {
    let meta = json!({"name": name});
    let subjects = json!([{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}]);
    let role_of = |kind: &str| json!({"kind": kind, "name": name, "apiGroup": "rbac.authorization.k8s.io"});
    let rules =
        |resource: &str| json!([{"apiGroups": [""], "resources": [resource], "verbs": ["get", "list"]}]);
    let post = PostParams::default();
    let role = json!({"metadata": meta, "rules": rules("configmaps")});
    let binding = json!({"metadata": meta, "subjects": subjects, "roleRef": role_of("Role")});
    Api::<Role>::namespaced(s.client.clone(), &s.namespace)
        .create(&post, &serde_json::from_value(role)?)
        .await?;
    Api::<RoleBinding>::namespaced(s.client.clone(), &s.namespace)
        .create(&post, &serde_json::from_value(binding)?)
        .await?;
    let role = json!({"metadata": meta, "rules": rules("nodes")});
    let binding = json!({"metadata": meta, "subjects": subjects, "roleRef": role_of("ClusterRole")});
    Api::<ClusterRole>::all(s.client.clone()).create(&post, &serde_json::from_value(role)?).await?;
    Api::<ClusterRoleBinding>::all(s.client.clone()).create(&post, &serde_json::from_value(binding)?).await?;
    Ok(())
}

pub async fn nodes_are_judged_by_the_rules(s: &Scenario) -> Result<()> {
    let serial = |serial: &str| labels([("example.com/serial", serial), ("pool", "gold")]);
    let (one, other) = (s.node("one"), s.node("other"));
    for (node, labels) in [
        (&one, serial("s1")),
        (&other, serial("s1")),
        (&s.node("nobody"), labels([("pool", "gold")])),
        (&s.node("unselected"), {
            let mut labels = serial("s2");
            labels.insert("throwaway".to_owned(), String::new());
            labels
        }),
    ] {
        s.create(node, labels).await?;
    }
    let ignored =
        json!({"metadata": {"labels": serial("s3"), "annotations": {"label-storage/ignore": "true"}}});
    s.create_as(&s.node("ignored"), ignored).await?;
    let rules = s.file("rules.yaml");
    std::fs::write(&rules, "identity: {by: 'label:example.com/serial'}\nnodes: {selector: '!throwaway'}\n")?;
    let rules = rules.to_str().context("a path")?;

    let (code, data) = data(s, &["--patience", "0s", "--config", rules])?;
    assert_eq!(code, Some(3));
    assert!(reasons(&data).contains(&"identity-contested"), "{data:#}");
    let states = &data["states"];
    let counts = ["no-identity", "not-selected", "ignored", "up-to-date"].map(|key| &states[key]["count"]);
    assert_eq!((&data["nodes"], counts), (&json!(5), [&json!(1), &json!(1), &json!(1), &Value::Null]));
    let contested = [&one, &other].map(|node| format!("{node} (label:example.com/serial=s1)"));
    assert_eq!(states["contested"], json!({"count": 2, "names": contested}));
    let messages = data["findings"].to_string();
    assert!(
        messages.contains("2 nodes with the identity of another node, not stored or restored: "),
        "{messages}"
    );
    Ok(())
}

pub async fn bad_input_is_one_line(s: &Scenario) -> Result<()> {
    for flags in [&["-o", "xml"][..], &["-o", "wide"], &["--nodes", "["], &["--patience", "soon"], &["extra"]]
    {
        let told = s.plugin(&[&["status"], flags].concat())?;
        assert_eq!((told.code, told.out.as_str()), (Some(2), ""), "{flags:?}: {told:?}");
    }
    let nowhere = s.file("nowhere");
    std::fs::write(&nowhere, "apiVersion: v1\nkind: Config\n")?;
    let told = s.plugin(&["status", "--kubeconfig", nowhere.to_str().context("a path")?])?;
    assert_eq!((told.code, told.err.lines().count(), told.out.as_str()), (Some(1), 1, ""), "{told:?}");
    assert!(told.err.starts_with("error: "), "{told:?}");

    // Of several clusters, the one that is asked for.
    let several = s.file("several");
    let mut kubeconfig: Value = serde_saphyr::from_str(&std::fs::read_to_string(s.sandbox.kubeconfig())?)?;
    let real = kubeconfig["current-context"].as_str().context("a context")?.to_owned();
    let list = kubeconfig["contexts"].as_array_mut().context("contexts")?;
    list.push(json!({"name": "elsewhere", "context": {"cluster": "elsewhere", "user": "nobody"}}));
    let list = kubeconfig["clusters"].as_array_mut().context("clusters")?;
    list.push(json!({"name": "elsewhere", "cluster": {"server": "http://127.0.0.1:1"}}));
    let list = kubeconfig["users"].as_array_mut().context("users")?;
    list.push(json!({"name": "nobody", "user": {}}));
    kubeconfig["current-context"] = json!("elsewhere");
    std::fs::write(&several, kubeconfig.to_string())?;
    let several = several.to_str().context("a path")?;
    made_by_hand(s, "a", json!({"pool": "gold"})).await?;
    let get = |flags: &[&str]| s.plugin(&[&["get", "--kubeconfig", several], flags].concat());
    assert_eq!(get(&[])?.code, Some(1));
    assert_eq!(get(&["--context", &real])?.code, Some(0));
    let told = get(&["--context", "no-such"])?;
    assert!(told.code == Some(1) && told.err.contains("no-such"), "{told:?}");
    Ok(())
}

pub async fn an_excluded_machine_is_not_overdue_but_needs_a_person(s: &Scenario) -> Result<()> {
    let (node, gold) = (s.node("a"), labels([("pool", "gold")]));
    let on = |machine: &str, labels: &Labels| json!({"metadata": {"labels": labels}, "status": {"nodeInfo": {"systemUUID": machine}}});
    let rules = s.file("rules.yaml");
    std::fs::write(&rules, "identity: {otherMachine: none}\n")?;
    let rules = rules.to_str().context("a path")?;
    let storer = s.storer(&["--config", rules])?;
    s.create_as(&node, on("m-1", &gold)).await?;
    s.eventually_stored(&node, gold).await?;
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    s.create_as(&node, on("m-2", &Labels::new())).await?;
    let flags = [&AT_ONCE[..], &["--config", rules]].concat();
    let (code, data) = data(s, &flags)?;
    assert_eq!((code, &data["states"]["pending"]), (Some(3), &Value::Null), "{data:#}");
    assert_eq!(data["states"]["other-machine"], json!({"count": 1, "names": [node]}));
    assert!(reasons(&data).contains(&"other-machine"), "{data:#}");
    assert!(!reasons(&data).contains(&"restore-overdue"), "{data:#}");
    let told = status(s, &flags)?;
    assert!(told.out.contains(&format!("  other-machine   1       {node}\n")), "{told:?}");
    drop(storer);
    Ok(())
}

pub async fn withheld_items_are_shown_until_the_node_has_them_or_they_are_dropped(
    s: &Scenario,
) -> Result<()> {
    const TIER: &str = "node-restriction.kubernetes.io/tier";
    let rules = "identity: {otherMachine: untrusted}";
    let file = s.file("rules.yaml");
    std::fs::write(&file, rules)?;
    let config = ["--config", file.to_str().context("a path")?];
    let flags = ["--rules", rules, "--admin-address", "127.0.0.1:0"];
    let (_storer, restorer) = (s.storer(&flags)?, s.restorer(&flags)?);
    let stored = labels([("pool", "gold"), (TIER, "x")]);
    let on = |machine: &str, labels: &Labels| json!({"metadata": {"labels": labels}, "status": {"nodeInfo": {"systemUUID": machine}}});
    let (a, b) = (s.node("a"), s.node("b"));
    for node in [&a, &b] {
        s.create_as(node, on("m-1", &stored)).await?;
        s.eventually_stored(node, stored.clone()).await?;
        s.delete(node).await?;
        s.create_as(node, on("m-2", &Labels::new())).await?;
        s.eventually_labelled(node, labels([("pool", "gold")])).await?;
    }
    let counted =
        async |count| restorer.eventually_counted(s, "items_withheld", &["\"other-machine\""], count).await;
    counted(2.0).await?;
    let ended = |told: (Option<i32>, Value)| (told.0, reasons(&told.1).join(" "));
    let eventually_ends = async |code, reasons: &str| {
        s.eventually("status", (Some(code), reasons.to_owned()), async || Ok(ended(data(s, &config)?))).await
    };
    eventually_ends(3, "items-withheld").await?;
    let (_, data) = data(s, &config)?;
    assert_eq!(
        (&data["withheld"], &data["states"]["withheld"]["names"]),
        (&json!({"other-machine": 2}), &json!([a, b]))
    );
    let told = status(s, &config)?;
    let message =
        format!("2 nodes to which some stored items were not restored (other-machine: 2): {a}, {b}");
    assert!(
        told.out.starts_with(&format!("Not healthy\n- {message}\n  kubectl label-storage explain NODE")),
        "{told:?}"
    );
    let get = s.plugin(&[&["get", &a, "-o", "jsonpath={.state}"], &config[..]].concat())?;
    assert_eq!(get.out, "withheld", "{get:?}");
    let explained = s.plugin(&[&["explain", &a], &config[..]].concat())?;
    let line = format!("Withheld (other-machine): {TIER}=x, read from node {a} (machine m-1).");
    assert!(explained.out.contains(&line), "{explained:?}");

    s.label(&a, [(TIER, Some("own"))]).await?;
    counted(1.0).await?;
    let forgotten = s.plugin(&[&["forget", &b, "--yes"], &config[..]].concat())?;
    assert_eq!(forgotten.code, Some(0), "{forgotten:?}");
    counted(0.0).await?;
    s.eventually_stored(&b, labels([("pool", "gold")])).await?;
    eventually_ends(0, "").await
}

pub async fn by_unknown_rules_no_node_is_judged(s: &Scenario) -> Result<()> {
    let rules = json!({"metadata": {"name": "label-storage-rules"}, "data": {"rules.yaml": "nonsense: 1"}});
    s.config_maps.create(&PostParams::default(), &serde_json::from_value(rules)?).await?;
    s.create(&s.node("a"), labels([("pool", "gold")])).await?;
    let (code, data) = data(s, &AT_ONCE)?;
    assert_eq!((code, &data["states"], &data["nodes"]), (Some(3), &Value::Null, &Value::Null));
    assert_eq!(reasons(&data)[0], "rules-refused", "{data:#}");
    assert!(!reasons(&data).contains(&"not-stored"), "{data:#}");
    for command in [&["get"][..], &["explain", "a"], &["restore", "a"], &["import"]] {
        let told = s.plugin(command)?;
        assert!(told.code == Some(1) && told.err.contains("the rules can't be read"), "{told:?}");
    }
    Ok(())
}

/// A terminal, and what is shown on it.
struct Screen {
    child: Child,
    terminal: File,
    shown: String,
}

impl Screen {
    fn of(s: &Scenario, args: &[&str]) -> Result<Self> {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&terminal)?;
        unlockpt(&terminal)?;
        let path = ptsname(&terminal, Vec::new())?;
        let there = File::options().read(true).write(true).open(path.to_str()?)?;
        let mut command = itself::command("plugin", Some(s.sandbox.kubeconfig()))?;
        command
            .args(args)
            .env("LABEL_STORAGE_NAMESPACE", &s.namespace)
            .env("TERM", "xterm")
            .env_remove("NO_COLOR");
        command.stdin(Stdio::null()).stdout(there).stderr(Stdio::null());
        Ok(Self { child: command.spawn()?, terminal: terminal.into(), shown: String::new() })
    }

    /// Reads until all of this is there.
    fn shows(&mut self, parts: &[&str]) -> Result<()> {
        let mut block = [0; 4096];
        while !parts.iter().all(|part| self.shown.contains(part)) {
            let read = self.terminal.read(&mut block).with_context(|| self.shown.clone())?;
            self.shown += &String::from_utf8_lossy(&block[..read]);
        }
        Ok(())
    }
}

pub async fn on_a_terminal_it_is_in_colours(s: &Scenario) -> Result<()> {
    let nodes = format!("{}.*", s.namespace);
    let mut screen = Screen::of(s, &["status", "--nodes", &nodes, "--patience", "0s"])?;
    screen.shows(&["\x1b[31m", "Not healthy", "no storer", "nodes     0"])?;
    assert_eq!(screen.child.wait()?.code(), Some(3));
    Ok(())
}
