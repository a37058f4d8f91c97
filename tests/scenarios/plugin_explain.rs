//! The output of `kubectl label-storage explain`.

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use label_storage::name::record_name;
use label_storage::record::NODE;
use serde_json::json;

use crate::plugin_get::{ends, made_by_hand, parsed, rules, says, started};
use crate::scenario::{Scenario, labels};

pub async fn explain_says_who_does_what_and_why(s: &Scenario) -> Result<()> {
    let (storer, restorer) = s.pair()?;
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    let leases = [
        "storer shard 0 of 1 for --nodes ",
        "restorer shard 0 of 1 for --nodes ",
        " is held by ",
        ", renewed ",
    ];
    s.eventually("both are at work", true, async || {
        Ok(leases.iter().all(|text| s.plugin(&["explain", &node]).is_ok_and(|told| told.out.contains(text))))
    })
    .await?;
    let told = s.plugin(&["explain", &node])?;
    says(&told, 0, &leases);
    says(&told, 0, &[&format!("{node}: up-to-date\n"), "\nStored\n  pool=gold\n"]);
    says(
        &told,
        0,
        &["does nothing: up-to-date", "(docs/protocol.md, row 2)", "does nothing: same-incarnation"],
    );
    says(&told, 0, &[&format!("Node {node} was created ")]);
    says(&told, 0, &["from this incarnation", &format!("kubectl label node {node} KEY=VALUE")]);
    // The daemons do what it prints.
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
        &["is absent.", "The storer does nothing: away", "row 7)", "retention: 30d: 29d", " left."],
    );
    let here = format!("{node} -n {}", s.namespace);
    says(&told, 0, &[&format!("kubectl label-storage forget {here}"), &format!("set {node} KEY=VALUE KEY-")]);
    // A user without permission for leases gets that message, and everything else.
    ends(restorer).await?;
    s.create(&node, labels([("zone", "b")])).await?;
    s.has_decided(&storer, &node, "awaiting-restore").await?;
    let told = s.plugin(&["explain", &node])?;
    says(
        &told,
        0,
        &["The storer waits: awaiting-restore", "row 3)", "restorer shard 0 of 1", " has no holder: "],
    );
    says(&told, 0, &["The restorer restores 1 of generation ", ": returned\n", "\n  +pool=gold\n"]);
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
identity: {otherMachine: untrusted}
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
    says(&explain(&node)?, 0, &["Not stored: left-out (labels.exclude).", "no restorer has a lease"]);
    s.create(&other, labels([("tier", "1")])).await?;
    says(&explain(&other)?, 0, &["not-selected", "(nodes.selector: pool)", "It has no record."]);
    s.delete(&node).await?;
    s.eventually_departed(&node).await?;
    says(&explain(&node)?, 0, &["retention: forever"]);
    ends(storer).await?;
    let labels = json!({"zone": "b", "tier": "2", "kept": "1"});
    let metadata = json!({"labels": labels, "annotations": {"label-storage/keep": "kept,left-out"}});
    let taint = json!([{"key": "label-storage/restoring", "effect": "NoSchedule"}]);
    let content = json!({"metadata": metadata, "spec": {"taints": taint}, "status": {"nodeInfo": {"systemUUID": "m-2"}}});
    s.create_as(&node, content).await?;
    let told = explain(&node)?;
    says(&told, 0, &["Its annotation label-storage/keep selects labels: kept,left-out."]);
    says(&told, 0, &["Not stored: tier (label-storage/keep), zone (label-storage/keep)."]);
    says(
        &told,
        0,
        &[
            "\n  +pool=gold\n  -zone=b\n  +zone=a\n",
            "zone: the values of node and record differ, and the value of the record wins (wins: record)",
        ],
    );
    says(
        &told,
        0,
        &["tier: the values of node and record differ, and the value of the node wins (wins: node)"],
    );
    says(
        &told,
        0,
        &[
            &format!("{TRUST} is withheld (other-machine)"),
            "the start-up taint is removed",
            &format!("restore {node} --trust"),
        ],
    );
    // The storer waits for the restorer before it does even that.
    says(&told, 0, &["The storer replaces configmap", " after 30 s without a change: returned\n"]);
    says(&told, 0, &["departed-at is removed", "storer shard 0 of 1", " has no holder: "]);
    // An excluded machine gets none of that.
    let config = rules(s, "identity: {otherMachine: none}\n")?;
    let told = s.plugin(&["--config", &config, "explain", &node])?;
    says(
        &told,
        0,
        &[
            "The restorer does nothing: other-machine",
            "this machine (m-2) is another than that of the record (m-1)",
            &format!("restore {node} --other-machine -n {} --config {config}", s.namespace),
        ],
    );
    let told = s.plugin(&["--config", &config, "get", &node])?;
    says(&told, 0, &["other-machine"]);
    s.patch_record(&node, json!({"metadata": {"annotations": {NODE: "another"}}})).await?;
    says(&explain(&node)?, 0, &["record-unreadable", "edit configmap label-storage.", "can't be read"]);
    Ok(())
}

pub async fn explain_does_not_go_by_clocks_that_disagree(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    let leases: Api<Lease> = Api::namespaced(s.client.clone(), &s.namespace);
    let name = |daemon: &str| format!("label-storage.{daemon}.0-of-1");
    for daemon in ["storer", "restorer"] {
        let lease = json!({
            "metadata": {
                "name": name(daemon),
                "labels": {"app.kubernetes.io/managed-by": "label-storage"},
                "annotations": {"label-storage/holder-index": "0"},
            },
            "spec": {"holderIdentity": format!("{daemon}-0"), "renewTime": "2020-01-01T00:00:00.000000Z"},
        });
        leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    }
    // Both renew their leases, years ago by their clocks.
    let mut child = started(s, s.sandbox.kubeconfig(), &["explain", &node])?;
    let mut renewals = 0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        renewals += 1;
        for daemon in ["storer", "restorer"] {
            let time = format!("2020-01-01T00:{:02}:{:02}.000000Z", renewals / 60 % 60, renewals % 60);
            let renewed = Patch::Merge(json!({"spec": {"renewTime": time}}));
            leases.patch(&name(daemon), &PatchParams::default(), &renewed).await?;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    let output = child.wait_with_output()?;
    let said = String::from_utf8(output.stdout)?;
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("held by storer-0") && !said.contains("no holder"), "{said}");
    // No daemon holds the shard any more.
    let told = s.plugin(&["explain", &node])?;
    says(&told, 0, &["has no holder: storer-0 last renewed its lease ", "waiting for up to 6 s"]);
    // An empty record is not deleted at once.
    let empty = s.node("empty");
    made_by_hand(s, &empty, json!({})).await?;
    let told = s.plugin(&["explain", &empty])?;
    let record = record_name(&empty);
    says(&told, 0, &[&format!("deletes configmap {record} after 30 s without a change: empty-for-good")]);
    Ok(())
}
