//! `kubectl label-storage check` finds problems, and the commands that it prints fix them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use sandbox::assets::{self, Binary};
use sandbox::itself;
use serde_json::{Value, json};

use crate::command_line::kubeconfig_for;
use crate::daemon::Daemon;
use crate::deploy::manifests::helm;
use crate::scenario::{Scenario, Told, labels};

/// One finding, with the check that made it.
#[derive(Debug, Clone)]
struct Finding {
    check: String,
    severity: String,
    message: String,
    fix: String,
}

/// The findings of check.
fn check(s: &Scenario, args: &[&str]) -> Result<(Told, Vec<Finding>)> {
    let told = s.plugin(&[&["check", "-o", "json"], args].concat())?;
    let report: Value = serde_json::from_str(&told.out).with_context(|| format!("{told:?}"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut findings = Vec::new();
    for check in report["checks"].as_array().context("checks")? {
        for finding in check["findings"].as_array().context("findings")? {
            findings.push(Finding {
                check: text(&check["name"]),
                severity: text(&finding["severity"]),
                message: text(&finding["message"]),
                fix: text(&finding["fix"]),
            });
        }
    }
    let is_sound = !findings.iter().any(|it| it.severity != "unknown" && it.severity != "note");
    assert_eq!(
        (report["healthy"].as_bool(), told.code),
        (Some(is_sound), Some(if is_sound { 0 } else { 3 }))
    );
    Ok((told, findings))
}

/// Waits until check finds this, and returns it.
async fn found(s: &Scenario, name: &str, severity: &str, words: &str) -> Result<Finding> {
    let mut last = None;
    s.eventually(&format!("{severity} of {name}: {words}"), true, async || {
        let (_, findings) = check(s, &[])?;
        let is_it = |it: &Finding| it.check == name && it.severity == severity && it.message.contains(words);
        last = findings.iter().find(|it| is_it(it)).cloned();
        ensure!(last.is_some(), "{findings:?}");
        Ok(true)
    })
    .await?;
    last.context("found")
}

async fn sound(s: &Scenario) -> Result<()> {
    s.eventually("soundness", String::new(), async || {
        let found = check(s, &[])?.1.into_iter().filter(|it| it.severity != "note");
        Ok(found.map(|it| format!("{it:?}")).collect::<String>())
    })
    .await
}

/// Runs a command that check has named, as a person with kubectl and helm would, in the repository's folder.
fn run(s: &Scenario, command: &str) -> Result<()> {
    let folders = [Binary::Kubectl, Binary::Helm]
        .map(|binary| assets::find(binary).map(|path| path.parent().map(Path::to_owned)));
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    for folder in folders {
        let mut folder = folder?.context("a folder")?.into_os_string();
        folder.push(":");
        folder.push(path);
        path = folder;
    }
    let mut shell = Command::new("sh");
    shell
        .args(["-ec", command])
        .env("PATH", path)
        .env("KUBECONFIG", s.sandbox.kubeconfig())
        .env("HOME", s.file("home"));
    // The chart is named as from the repository's own folder.
    std::fs::create_dir_all(s.file("work"))?;
    let link = s.file("work").join("deploy");
    if !link.exists() {
        std::os::unix::fs::symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy"), link)?;
    }
    let output = shell.current_dir(s.file("work")).output()?;
    ensure!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// A real installation with the chart, and daemons where no kubelet runs any.
async fn install(s: &Scenario, release: &str) -> Result<Vec<Daemon>> {
    let nodes = format!("--nodes={}.*", s.namespace);
    let sets = ["storer", "restorer"].map(|daemon| format!("{daemon}.extraArgs[0]={nodes}"));
    helm(s, &["install", release, "CHART", "--set", &sets[0], "--set", &sets[1]])?;
    let api: Api<StatefulSet> = Api::namespaced(s.client.clone(), &s.namespace);
    let name =
        if release == "label-storage" { release.to_owned() } else { format!("{release}-label-storage") };
    let mut daemons = Vec::new();
    for kind in ["storer", "restorer"] {
        let ready = json!({"status": {"replicas": 2, "readyReplicas": 2}});
        api.patch_status(&format!("{name}-{kind}"), &PatchParams::default(), &Patch::Merge(ready)).await?;
        for index in ["0", "1"] {
            daemons.push(daemon(s, kind, index)?);
        }
    }
    Ok(daemons)
}

fn daemon(s: &Scenario, kind: &str, index: &str) -> Result<Daemon> {
    s.daemon(kind, &["--replicas", "2", "--replica-index", index])
}

pub async fn each_fault_is_found_with_the_command_that_mends_it(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    let mut daemons = install(s, "label-storage").await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    sound(s).await?;
    let told = s.plugin(&["check"])?;
    assert!(
        told.out.contains("ok") && told.out.contains("5 in force") && told.out.contains("No problems found"),
        "{told:?}"
    );

    // Admission policies.
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(s.client.clone());
    let name = |end: &str| format!("label-storage-{}-{end}", s.namespace);
    bindings.delete(&name("nodes"), &DeleteParams::default()).await?;
    let finding = found(s, "policies", "error", "no binding puts the policy").await?;
    assert!(!s.plugin(&["check"])?.out.contains("in force\n"), "{finding:?}");
    run(s, &finding.fix)?;
    sound(s).await?;
    let audit = json!({"spec": {"validationActions": ["Audit"]}});
    bindings.patch(&name("records"), &PatchParams::default(), &Patch::Merge(audit)).await?;
    let finding = found(s, "policies", "error", "does not deny").await?;
    assert!(finding.fix.starts_with("helm "), "Helm owns it: {finding:?}");
    run(s, &finding.fix)?;
    sound(s).await?;

    // Permissions.
    let roles: Api<RoleBinding> = Api::namespaced(s.client.clone(), &s.namespace);
    roles.delete("label-storage-storer", &DeleteParams::default()).await?;
    let finding =
        found(s, "permissions", "error", "the account label-storage-storer of the storer may not").await?;
    assert!(
        finding.message.contains(&format!("create configmaps in namespace {}", s.namespace)),
        "{finding:?}"
    );
    assert!(!finding.message.contains("nodes"), "{finding:?}");
    run(s, &finding.fix)?;
    sound(s).await?;

    // Rules: with the line.
    let rules = async |text: &str| {
        let data = json!({"data": {"rules.yaml": text}});
        s.config_maps
            .patch("label-storage-rules", &PatchParams::default(), &Patch::Merge(data))
            .await
            .map(drop)
    };
    rules("labels: {}\nretention: soon\n").await?;
    let finding = found(s, "rules", "error", "line 2").await?;
    assert!(finding.message.contains("retention: \"soon\" can't be used"), "{finding:?}");
    assert!(finding.fix.ends_with("edit configmap label-storage-rules"), "{finding:?}");
    rules("{identity: {by: providerID}}").await?;
    found(s, "records", "warning", "1 record filed by another identity than the rules have").await?;
    found(s, "records", "warning", "without the identity that the rules require").await?;
    rules("{}").await?;
    sound(s).await?;

    // Records, and what is in their place.
    s.patch_record(&node, json!({"metadata": {"annotations": {"label-storage/node": "other"}}})).await?;
    let finding = found(s, "records", "error", "names node \"other\"").await?;
    assert!(finding.fix.contains(" edit configmap label-storage."), "{finding:?}");
    s.patch_record(&node, json!({"metadata": {"annotations": {"label-storage/node": node}}})).await?;
    sound(s).await?;
    let absent = s.node("absent");
    s.occupy_record(&absent).await?;
    let finding = found(s, "records", "error", "is not a record").await?;
    run(s, &finding.fix)?;
    assert!(s.config_map(&absent).await?.is_none());
    sound(s).await?;

    // Nodes.
    s.annotate(&node, [("label-storage/keep", Some("pool,,"))]).await?;
    let finding =
        found(s, "records", "warning", "with an annotation label-storage/keep that can't be read").await?;
    assert!(finding.message.contains(&node), "{finding:?}");
    run(s, &finding.fix.replace("KEYS", "pool").replace("NODE", &node))?;
    sound(s).await?;

    // Versions.
    let sets: Api<StatefulSet> = Api::namespaced(s.client.clone(), &s.namespace);
    let older = json!({"metadata": {"labels": {"app.kubernetes.io/version": "0.0.1"}}});
    sets.patch("label-storage-storer", &PatchParams::default(), &Patch::Merge(older)).await?;
    let finding =
        found(s, "statefulsets", "warning", "the storer is version 0.0.1 and the restorer ").await?;
    assert!(finding.fix.starts_with("helm ") && finding.fix.contains(" upgrade "), "{finding:?}");
    let own = json!({"metadata": {"labels": {"app.kubernetes.io/version": env!("CARGO_PKG_VERSION")}}});
    sets.patch("label-storage-storer", &PatchParams::default(), &Patch::Merge(own)).await?;
    sound(s).await?;

    // Dry runs by flag and by variable, and a daemon that is scaled to 0.
    let container = |what: Value| {
        let mut container = json!({"name": "storer"});
        container
            .as_object_mut()
            .into_iter()
            .for_each(|it| it.extend(what.as_object().cloned().unwrap_or_default()));
        Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": [container]}}}}))
    };
    let args =
        sets.get("label-storage-storer").await?.spec.context("a spec")?.template.spec.context("pods")?;
    let mut args = args.containers[0].args.clone().unwrap_or_default();
    args.insert(0, "--dry-run".to_owned());
    for patch in [json!({"args": args}), json!({"env": [{"name": "LABEL_STORAGE_DRY_RUN", "value": "true"}]})]
    {
        sets.patch("label-storage-storer", &PatchParams::default(), &container(patch)).await?;
        run(s, &found(s, "statefulsets", "warning", "the storer runs with --dry-run").await?.fix)?;
        sound(s).await?;
    }
    sets.patch(
        "label-storage-storer",
        &PatchParams::default(),
        &Patch::Merge(json!({"spec": {"replicas": 0}})),
    )
    .await?;
    let finding = found(s, "statefulsets", "error", "the storer is scaled to 0 replicas").await?;
    // Its leases are left over, and not shards without a holder.
    let told = s.plugin(&["status", "-o", "json"])?;
    assert!(told.out.contains("the storer is scaled to 0 replicas"), "{told:?}");
    run(s, &finding.fix)?;
    sound(s).await?;

    // A replica that is gone, and one that never came.
    drop(daemons.remove(1));
    found(s, "shards", "note", " was adopted by ").await?;
    daemons.push(daemon(s, "storer", "1")?);
    sound(s).await?;
    sets.patch(
        "label-storage-storer",
        &PatchParams::default(),
        &Patch::Merge(json!({"spec": {"replicas": 3}})),
    )
    .await?;
    found(s, "shards", "error", "storer shard 2 of 3").await?;
    Ok(())
}

pub async fn what_may_not_be_looked_at_is_said_to_be_unknown(s: &Scenario) -> Result<()> {
    let _daemons = install(s, "prod").await?;
    sound(s).await?;
    let somebody = format!("somebody-{}", s.namespace);
    let (told, findings) = check(s, &["--as", &somebody])?;
    assert_eq!(told.code, Some(3), "reading is the least");
    for (name, words) in [
        ("statefulsets", "cannot list resource \"statefulsets\""),
        ("permissions", "cannot create resource \"subjectaccessreviews\""),
        ("policies", "cannot list resource \"validatingadmissionpolicies\""),
        ("rules", "cannot get resource \"configmaps\""),
        ("shards", "cannot list resource \"leases\""),
        ("records", "unknown: the rules can't be read"),
    ] {
        let is_it =
            |it: &&Finding| it.check == name && it.severity == "unknown" && it.message.contains(words);
        assert!(findings.iter().any(|it| is_it(&it)), "{name}: {words}: {findings:?}");
    }
    let own: Vec<_> = findings.iter().filter(|it| it.check == "you").collect();
    assert!(own[0].message.contains(&format!("list configmaps in namespace {}", s.namespace)), "{own:?}");

    // With these permissions, everything but the policies and the daemons' permissions can be read.
    let (reader, namespace) = (format!("reader-{}", s.namespace), &s.namespace);
    run(
        s,
        &format!(
            "kubectl create clusterrole {reader} --verb=get,list,watch --resource=nodes && \
             kubectl create clusterrolebinding {reader} --clusterrole={reader} --user={somebody} && \
             kubectl create role {reader} -n {namespace} --verb=get,list,watch --resource=configmaps,leases,statefulsets && \
             kubectl create rolebinding {reader} -n {namespace} --role={reader} --user={somebody}"
        ),
    )?;
    s.eventually("a reader who can read", Some(0), async || Ok(check(s, &["--as", &somebody])?.0.code))
        .await?;
    let told = s.plugin(&["check", "--as", &somebody])?;
    for words in ["you may not patch nodes, create configmaps", " unknown.\n", "records-editor --user=USER"] {
        assert!(told.out.contains(words), "{words}: {}", told.out);
    }
    // The role in the chart is enough to write records.
    let (_, findings) = check(s, &["--as", &somebody])?;
    let note = findings.iter().find(|it| it.check == "you").context("a note")?;
    run(s, &note.fix.replace("USER", &somebody).replace(&format!(" --as {somebody}"), ""))?;
    s.eventually("an editor of records", true, async || {
        Ok(s.plugin(&["check", "--as", &somebody])?.out.contains("you may not patch nodes, so "))
    })
    .await
}

pub async fn where_nothing_is_installed_that_is_said(s: &Scenario) -> Result<()> {
    let (_, findings) = check(s, &[])?;
    for daemon in ["storer", "restorer"] {
        let words = format!("no {daemon} has a lease");
        assert!(
            findings.iter().any(|it| it.severity == "error" && it.message.contains(&words)),
            "{findings:?}"
        );
    }
    let (told, findings) = check(s, &["-n", "nowhere"])?;
    assert_eq!((told.code, findings.len()), (Some(3), 1));
    assert!(findings[0].message.contains("namespace nowhere does not exist"), "{findings:?}");

    let kubeconfig = s.file("nobody-listens");
    std::fs::write(&kubeconfig, kubeconfig_for("http://127.0.0.1:1"))?;
    let told = s.plugin(&["check", "--kubeconfig", kubeconfig.to_str().context("a path")?])?;
    assert_eq!((told.code, told.out.as_str(), told.err.lines().count()), (Some(1), "", 1), "{told:?}");
    assert!(told.err.starts_with("error: can't read configmap label-storage-rules"), "{told:?}");
    assert_eq!(s.plugin(&["check", "-o", "nonsense"])?.code, Some(2));
    let rules = s.file("rules.yaml");
    std::fs::write(&rules, "nonsense: true\n")?;
    let rules = rules.to_str().context("a path")?;
    let told = s.plugin(&["check", "--config", rules])?;
    assert!(told.code == Some(1) && told.err.starts_with(&format!("error: {rules}: line 1: ")), "{told:?}");
    let told = s.plugin(&["check", "-o", "yaml"])?;
    assert!(told.out.contains("kind: Checks\nhealthy: false\n"), "{told:?}");
    Ok(())
}

pub async fn kubectl_completes(s: &Scenario) -> Result<()> {
    // As kubectl itself finds and asks plugins.
    let folder = s.file("bin");
    std::fs::create_dir_all(&folder)?;
    let plugin = itself::command("plugin", None)?;
    let variables = plugin
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={}", name.display(), value?.display())));
    let plugin = format!(
        "#!/bin/sh\nexec env {} '{}' \"$@\"\n",
        variables.collect::<Vec<_>>().join(" "),
        plugin.get_program().display()
    );
    let script = s.plugin(&["completion"])?.out;
    for (name, text) in [("kubectl-label_storage", plugin), ("kubectl_complete-label_storage", script)] {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(folder.join(name), text)?;
        std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(0o755))?;
    }
    let kubectl = |args: &[&str]| -> Result<String> {
        let path = format!("{}:/usr/bin:/bin", folder.display());
        let output = Command::new(assets::find(Binary::Kubectl)?)
            .args(args)
            .env("PATH", path)
            .env("HOME", s.file("home"))
            .env("KUBECONFIG", s.sandbox.kubeconfig())
            .output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };
    // Nothing beside (:4) is never what kubectl says where a plugin does not answer.
    let node = s.node("complete-me");
    s.create(&node, labels([("pool", "gold")])).await?;
    let absent = s.node("complete-absent");
    let record = json!({
        "metadata": {
            "name": label_storage::name::record_name(&absent),
            "labels": {"app.kubernetes.io/managed-by": "label-storage"},
            "annotations": {"label-storage/node": absent},
        },
        "data": {"pool": "gold"},
    });
    s.config_maps.create(&PostParams::default(), &serde_json::from_value(record)?).await?;
    let kubeconfig = s.file("contexts");
    std::fs::write(&kubeconfig, kubeconfig_for("http://127.0.0.1:1"))?;
    let kubeconfig = kubeconfig.to_str().context("a path")?;
    let start = s.node("complete");
    for (words, expected) in [
        (
            &["che"][..],
            "check\tCheck the installation: versions, permissions, policies, rules\n:4\n".to_owned(),
        ),
        (&["check", "-o", "js"], "json\njsonpath=\n:4\n".to_owned()),
        (&["-n", "x", "check", "-o", "js"], "json\njsonpath=\n:4\n".to_owned()),
        (
            &["--kubec"],
            "--kubeconfig\tPath to the kubeconfig file [default: $KUBECONFIG, or ~/.kube/config]\n:4\n"
                .to_owned(),
        ),
        (&["--kubeconfig", kubeconfig, "--context", ""], "c\n:4\n".to_owned()),
        (&["check", "--namespace", &s.namespace], format!("{}\n:4\n", s.namespace)),
        (&["-n", &s.namespace, "get", &start], format!("{absent}\n{node}\n:4\n")),
        (&["--kubeconfig", kubeconfig, "get", &start], ":4\n".to_owned()),
        (&["--kubeconfig", kubeconfig], format!("{kubeconfig}\n:4\n")),
    ] {
        assert_eq!(kubectl(&[&["__complete", "label-storage"], words].concat())?, expected, "{words:?}");
    }
    assert!(kubectl(&["label-storage", "--help"])?.contains("Usage: kubectl label-storage"));
    Ok(())
}
