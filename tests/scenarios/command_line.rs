//! The command line of the daemons.

use std::path::PathBuf;

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::deploy::manifests::apply;
use crate::events::events_of;
use crate::scenario::{Labels, Scenario, labels};

/// A kubeconfig for a server without credentials.
pub fn kubeconfig_for(server: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    })
    .to_string()
}

/// A token for a service account, which is created where it is missing.
pub async fn token(s: &Scenario, namespace: &str, account: &str) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(s.client.clone(), namespace);
    if accounts.get_opt(account).await?.is_none() {
        let account = serde_json::from_value(json!({"metadata": {"name": account}}))?;
        accounts.create(&PostParams::default(), &account).await?;
    }
    let request = TokenRequest::default();
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    answer.status.and_then(|status| status.token).context("no token")
}

/// Runs both daemons until they end by themselves, and checks how.
async fn both_end(
    s: &Scenario,
    args: &[&str],
    kubeconfig: Option<PathBuf>,
    code: i32,
    says: &[&str],
) -> Result<()> {
    let args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
    for kind in ["storer", "restorer"] {
        let daemon = s.run_binary(kind, &args, kubeconfig.clone())?;
        let exit = daemon.exit().await?;
        let said = daemon.log();
        assert_eq!(exit.code(), code, "{kind} {args:?}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{kind} {args:?}: {said}");
        for part in says {
            assert!(said.contains(part), "{kind} {args:?} does not say {part:?}: {said}");
        }
    }
    Ok(())
}

pub async fn a_dry_run_writes_nothing(s: &Scenario) -> Result<()> {
    s.list_often();
    let (stored, fresh, gone) = (s.node("stored"), s.node("fresh"), s.node("gone"));
    {
        let _storer = s.storer(&[])?;
        for node in [&stored, &gone] {
            s.create(node, labels([("pool", "gold")])).await?;
            s.eventually_stored(node, labels([("pool", "gold")])).await?;
        }
    }
    // One of each: to be created, to be restored, to be stamped.
    s.create(&fresh, labels([("pool", "new")])).await?;
    s.delete(&stored).await?;
    s.create(&stored, Labels::new()).await?;
    s.delete(&gone).await?;
    let versions = async || -> Result<Vec<Option<String>>> {
        let records = [s.config_map(&stored).await?, s.config_map(&gone).await?, s.config_map(&fresh).await?];
        let records = records.map(|record| record.and_then(|record| record.metadata.resource_version));
        let nodes = [s.get(&stored).await?, s.get(&fresh).await?].map(|node| node.metadata.resource_version);
        Ok(records.into_iter().chain(nodes).collect())
    };
    let before = versions().await?;

    let (storer, restorer) = (s.storer(&["--dry-run"])?, s.restorer(&["--dry-run"])?);
    for (daemon, node, words) in [
        (&storer, &fresh, "would create the record"),
        (&storer, &gone, "would replace the record"),
        (&restorer, &stored, "would restore"),
    ] {
        s.eventually(words, true, async || Ok(daemon.has_logged(&["INFO", words, node]))).await?;
        s.has_acted(daemon, node).await?;
        let times =
            daemon.log().lines().filter(|line| line.contains(words) && line.contains(node.as_str())).count();
        assert_eq!(times, 1, "said once, not with every pass");
    }
    assert_eq!(versions().await?, before);
    for node in [&stored, &fresh] {
        assert!(events_of(s, node).await?.is_empty());
    }
    Ok(())
}

pub async fn a_dry_run_tells_what_the_rules_do(s: &Scenario) -> Result<()> {
    let trust = "node-restriction.kubernetes.io/tier";
    let (back, fresh, ignored, other) = (s.node("back"), s.node("fresh"), s.node("ignored"), s.node("other"));
    let on = |machine: &str, labels: &Labels| json!({"metadata": {"labels": labels}, "status": {"nodeInfo": {"systemUUID": machine}}});
    {
        let _storer = s.storer(&[])?;
        let kept = labels([("pool", "gold"), ("tier", "1"), (trust, "x"), ("zone", "a")]);
        s.create_as(&back, on("m-1", &kept)).await?;
        s.eventually_stored(&back, kept).await?;
    }
    s.delete(&back).await?;
    s.create_as(&back, on("m-2", &labels([("pool", "default"), ("tier", "2")]))).await?;
    s.create(&fresh, labels([("pool", "gold"), ("kubernetes.io/hostname", "h")])).await?;
    s.create(&other, labels([("other", "1")])).await?;
    let content =
        json!({"metadata": {"labels": {"pool": "gold"}, "annotations": {"label-storage/ignore": "true"}}});
    s.create_as(&ignored, content).await?;
    let rules = "labels: {exclude: [machine-facts]}\nnodes: {selector: pool}\nconflicts: [{keys: [pool], wins: record}]\n\
                 identity: {otherMachine: untrusted}";
    let flags = ["--rules", rules, "--dry-run"];
    let (storer, restorer) = (s.storer(&flags)?, s.restorer(&flags)?);
    let withheld = format!("withheld={{\"{trust}\": \"other-machine\"}}");
    for (daemon, words) in [
        (&storer, &["storer started", "rules=", "machine-facts", "pool"][..]),
        (
            &storer,
            &[
                &fresh,
                "would create the record",
                r#"labels={"pool": "gold"}"#,
                r#"left_out=["kubernetes.io/hostname"]"#,
            ],
        ),
        (&storer, &[&ignored, "would skip the node", "ignored"]),
        (&storer, &[&other, "would skip the node", "not-selected"]),
        (&restorer, &[&back, "would restore", r#"labels={"pool": "gold", "zone": "a"}"#]),
        (&restorer, &[&back, r#"conflicts=["pool: record wins", "tier: node wins"]"#, &withheld]),
    ] {
        s.eventually(&words.join(" … "), true, async || Ok(daemon.has_logged(words))).await?;
    }
    Ok(())
}

pub async fn bad_usage_is_one_line_and_exit_code_2(s: &Scenario) -> Result<()> {
    for (args, says) in [
        (&["--replicas", "3", "--replica-index", "3"][..], "--replica-index 3 is not below --replicas 3"),
        (&["--replicas", "0"], "--replicas"),
        (&["--replicas", "2"], "needs --replica-index"),
        (&["--interval", "0s"], "from 100ms to 1h"),
        (&["--interval", "often"], "such as 500ms, 10s"),
        (&["--nodes", "[a"], "--nodes"),
        (&["--concurrency", "0"], "--concurrency"),
        (&["--log-level", "loud"], "--log-level"),
        (&["--frobnicate"], "--frobnicate"),
        (&["extra"], "extra"),
    ] {
        both_end(s, args, Some(s.sandbox.kubeconfig().to_owned()), 2, &["error:", says]).await?;
    }
    Ok(())
}

pub async fn flags_come_from_the_environment_and_the_shard_from_the_pods_name(s: &Scenario) -> Result<()> {
    let nodes = format!("{}.*", s.namespace);
    let environment = [
        ("POD_NAME", "label-storage-2"),
        ("LABEL_STORAGE_NAMESPACE", &s.namespace),
        ("LABEL_STORAGE_NODES", &nodes),
        ("LABEL_STORAGE_INTERVAL", "150ms"),
        ("LABEL_STORAGE_CONCURRENCY", "2"),
        ("LABEL_STORAGE_LOG_LEVEL", "info"),
        ("LABEL_STORAGE_LOG_FORMAT", "json"),
        ("LABEL_STORAGE_DRY_RUN", "true"),
        ("LABEL_STORAGE_RETENTION", "7d"),
    ];
    let kubeconfig = || Some(s.sandbox.kubeconfig().to_owned());
    s.create_set("label-storage", 3).await?;
    for kind in ["storer", "restorer"] {
        let daemon = s.run_with_env(kind, &[], kubeconfig(), &environment)?;
        let namespace = format!("\"namespace\":\"{}\"", s.namespace);
        let started = [r#""shard":2"#, r#""replicas":3"#, r#""dry_run":true"#, &namespace];
        s.eventually("it says how it was started", true, async || Ok(daemon.has_logged(&started))).await?;
        // A flag wins, and what does not fit the pod is refused.
        let flag = ["--replicas=2".to_owned()];
        let refused = s.run_with_env(kind, &flag, kubeconfig(), &environment)?;
        assert_eq!(refused.exit().await?.code(), 2);
        assert!(refused.has_logged(&["pod label-storage-2 has index 2", "omit --replicas"]));
    }
    Ok(())
}

pub async fn a_cluster_that_can_not_be_used_is_one_line_and_exit_code_1(s: &Scenario) -> Result<()> {
    both_end(s, &[], None, 1, &["error:", "set KUBECONFIG"]).await?;
    both_end(s, &[], Some(s.file("missing")), 1, &["error:", "set KUBECONFIG to another", "missing"]).await?;

    let garbage = s.file("garbage");
    std::fs::write(&garbage, "{ this is no kubeconfig")?;
    both_end(s, &[], Some(garbage), 1, &["error:", "KUBECONFIG"]).await?;

    // A port that was free a moment ago, and has no listener.
    let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let down = s.file("down");
    std::fs::write(&down, kubeconfig_for(&format!("http://{address}")))?;
    both_end(
        s,
        &[],
        Some(down),
        1,
        &["error:", "can't reach the API server", &address.to_string(), "check that it is running"],
    )
    .await?;

    let stranger = s.sandbox.kubeconfig_with_token("not-a-token", None)?;
    both_end(s, &[], Some(stranger), 1, &["error:", "check the credentials"]).await?;

    let real = Some(s.sandbox.kubeconfig().to_owned());
    both_end(s, &["--namespace", "nowhere"], real, 1, &["error:", "kubectl create namespace nowhere"]).await
}

pub async fn missing_rights_are_named(s: &Scenario) -> Result<()> {
    let token = token(s, &s.namespace, "nobody").await?;
    let kubeconfig = s.sandbox.kubeconfig_with_token(&token, Some(&s.namespace))?;
    let in_namespace = format!("list configmaps in namespace {}", s.namespace);
    both_end(
        s,
        &[],
        Some(kubeconfig),
        1,
        &["error: not allowed to", "list nodes", &in_namespace, "deploy/label-storage.yaml"],
    )
    .await
}

pub async fn a_stateful_set_that_can_not_be_read_is_one_line_and_exit_code_1(s: &Scenario) -> Result<()> {
    let account = |name: &str| format!("{}-{name}", s.namespace);
    let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["*"]});
    let rules = [rule("", &["nodes", "configmaps", "namespaces"]), rule("coordination.k8s.io", &["leases"])];
    let role = |kind: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": account("all-else")}});
    let mut cluster_role = role("ClusterRole");
    cluster_role["rules"] = json!(rules);
    let mut binding = role("ClusterRoleBinding");
    binding["roleRef"] =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": account("all-else")});
    binding["subjects"] = json!([{"kind": "ServiceAccount", "name": "all-else", "namespace": s.namespace}]);
    apply(&s.client, &[cluster_role, binding]).await?;
    let token = token(s, &s.namespace, "all-else").await?;
    let restricted = s.sandbox.kubeconfig_with_token(&token, Some(&s.namespace))?;
    let advice =
        "allow this account to get statefulsets there, as deploy/label-storage.yaml does, or give --replicas";
    for (kubeconfig, advice) in [
        (restricted, advice),
        (s.sandbox.kubeconfig().to_owned(), "run the pod in a StatefulSet of that name, or give --replicas"),
    ] {
        for kind in ["storer", "restorer"] {
            let pod = format!("{kind}-0");
            let variables = [("POD_NAME", pod.as_str()), ("POD_NAMESPACE", &s.namespace)];
            s.eventually("the account's other permissions", true, async || {
                let daemon = s.run_with_env(kind, &s.flags(), Some(kubeconfig.clone()), &variables)?;
                let exit = daemon.exit().await?;
                let said = daemon.log();
                assert_eq!((exit.code(), said.trim_end().lines().count()), (1, 1), "{said}");
                let start = format!("error: can't read statefulset {kind} in namespace {}: ", s.namespace);
                Ok(said.starts_with(&start) && said.trim_end().ends_with(advice))
            })
            .await?;
        }
    }
    Ok(())
}

pub async fn a_bad_file_at_the_start_is_one_line_and_exit_code_2(s: &Scenario) -> Result<()> {
    let path = s.file("rules.yaml");
    std::fs::write(&path, "retention: 30d\nidentity:\n  by: face\n")?;
    for kind in ["storer", "restorer"] {
        let daemon = s.daemon(kind, &["--config", path.to_str().context("a path of text")?])?;
        let exit = daemon.exit().await?;
        let log = daemon.log();
        assert_eq!(exit.code(), 2, "{log}");
        assert!(log.contains("line 3") && log.contains("face") && log.contains("providerID"), "{log}");
        assert_eq!(log.lines().count(), 1, "{log}");
    }
    let daemon = s.daemon("storer", &["--config", "/nowhere/rules.yaml"])?;
    assert_eq!(daemon.exit().await?.code(), 2, "{}", daemon.log());
    assert!(daemon.log().contains("/nowhere/rules.yaml"), "{}", daemon.log());
    Ok(())
}
