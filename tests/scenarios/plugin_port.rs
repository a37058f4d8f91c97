//! Records that leave as a file, and come back from one.

mod arriving;
mod leaving;

pub use arriving::*;
pub use leaving::*;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use faults::{Fault, Request, Verb};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use label_storage::name::record_name;
use label_storage::{Record, Uid};
use sandbox::assets::{self, Binary};
use sandbox::process::Signal;
use serde_json::json;

use crate::scenario::{Scenario, Told, labels};

/// A file with these documents, as a person would write it.
pub fn file_of(documents: impl IntoIterator<Item = String>) -> String {
    documents.into_iter().map(|document| format!("---\n{document}")).collect()
}

/// A record with labels alone, as a ConfigMap.
pub fn document(node: &str, labels: &str) -> String {
    annotated(node, &record_name(node), "", labels)
}

/// A record with these other annotations.
pub fn annotated(node: &str, name: &str, annotations: &str, labels: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  labels: {{app.kubernetes.io/managed-by: label-storage}}\n  \
         annotations: {{label-storage/node: {node}{annotations}}}\ndata: {{{labels}}}\n"
    )
}

async fn all_records(config_maps: &Api<ConfigMap>) -> Result<Vec<Record>> {
    let list =
        config_maps.list(&ListParams::default().labels("app.kubernetes.io/managed-by=label-storage")).await?;
    let records = list.items.iter().map(|config_map| Ok(Record::decode(config_map)?.record));
    records.collect()
}

/// The parts of a record that matter to its Node.
fn what_matters(record: Record) -> Record {
    let (config_map, uid) = (None, None);
    Record { config_map, uid, node_version: None, departed_at: None, labels_generation: None, ..record }
}

fn well(told: &Told) -> Result<()> {
    ensure!(told.code == Some(0), "{told:?}");
    Ok(())
}

pub async fn what_is_exported_is_imported_elsewhere_as_it_was(s: &Scenario) -> Result<()> {
    let flags =
        ["--rules", "{annotations: {include: [note/*]}, taints: {include: ['*']}, cordon: true, history: 3}"];
    let storer = s.storer(&flags)?;
    let note = " yes\n---\nkey: [1e3]\t\u{2028}~\n\n";
    let odd = s.node("odd");
    let content = json!({
        "metadata": {"labels": {"a": "yes", "b": "1e3", "c": "", "node-restriction.kubernetes.io/tier": "gold"}, "annotations": {"note/x": note}},
        "spec": {"unschedulable": true, "providerID": "aws:///a/i-0", "taints": [{"key": "x", "effect": "NoExecute"}, {"key": "x", "value": "010", "effect": "NoSchedule"}]},
        "status": {"nodeInfo": {
            "machineID": "", "systemUUID": "4c4c4544-0001", "bootID": "", "kernelVersion": "", "osImage": "", "containerRuntimeVersion": "",
            "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "", "architecture": ""}},
    });
    s.create_as(&odd, content).await?;
    s.create(&s.node("plain"), labels([("pool", "gold")])).await?;
    s.eventually_stored(&s.node("plain"), labels([("pool", "gold")])).await?;
    s.label(&s.node("plain"), [("pool", Some("silver"))]).await?;
    s.eventually_stored(&s.node("plain"), labels([("pool", "silver")])).await?;
    s.eventually("all is stored", true, async || {
        Ok(s.record(&odd).await?.is_some_and(|record| record.labels.len() >= 8))
    })
    .await?;
    for node in [&odd, &s.node("plain")] {
        s.delete(node).await?;
        s.eventually_departed(node).await?;
    }
    drop(storer);
    let tags = json!({"labels": {"team": "a"}, "annotations": {"example.com/why": "moved"}});
    s.patch_record(&odd, json!({"metadata": tags})).await?;

    let file = s.file("export.yaml");
    let path = file.to_str().context("a path")?;
    well(&s.plugin(&["export", "-f", path])?)?;
    let printed = s.plugin(&["export", "-f", "-"])?;
    well(&printed)?;
    let written = std::fs::read_to_string(&file)?;
    let without_head = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(without_head(&printed.out), without_head(&written));
    assert!(
        written.starts_with(&format!("# Label Storage export of namespace {} at ", s.namespace))
            && written.ends_with("\n# End of export: 2 records\n"),
        "{written}"
    );
    assert!(written.contains("history-COLON-") && !written.contains("creationTimestamp"), "{written}");
    assert!(!written.contains("\n  uid:") && !written.contains("\n  namespace:"), "{written}");
    for (flags, count) in [
        (&["-l", "pool=silver"][..], 1),
        (&["-l", "pool"], 1),
        (&["-l", "pool=gold", "--force"], 0),
        (&["--departed"], 2),
    ] {
        let told = s.plugin(&[&["export"], flags].concat())?;
        well(&told)?;
        assert_eq!(told.out.matches("\nkind: ConfigMap\n").count(), count, "{told:?}");
    }

    let other = format!("{}-other", s.namespace);
    let namespaces: Api<Namespace> = Api::all(s.client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": other}}))?;
    namespaces.create(&PostParams::default(), &namespace).await?;
    let elsewhere: Api<ConfigMap> = Api::namespaced(s.client.clone(), &other);
    let dry = s.plugin(&["import", "-n", &other, "-f", path, "--dry-run"])?;
    well(&dry)?;
    assert!(dry.out.ends_with("2 new, 0 changed, 0 unchanged, 0 skipped\n"), "{dry:?}");
    assert_eq!(all_records(&elsewhere).await?, []);
    well(&s.plugin_reading(&written, &["import", "-n", &other, "--yes"])?)?;
    let (here, there) = (all_records(&s.config_maps).await?, all_records(&elsewhere).await?);
    for record in &there {
        assert_eq!(record.uid, Uid::new("imported"), "of nobody here");
        assert!(record.departed_at.is_some() && record.labels_generation == Some(record.generation));
    }
    let all = |records: Vec<Record>| records.into_iter().map(what_matters).collect::<Vec<_>>();
    assert_eq!(all(there), all(here));
    let meta = elsewhere.get(&record_name(&odd)).await?.metadata;
    assert_eq!(meta.labels.context("labels")?.get("team").map(String::as_str), Some("a"));
    let why = meta.annotations.context("annotations")?;
    assert_eq!(why.get("example.com/why").map(String::as_str), Some("moved"));
    // Once more, there is nothing to do.
    let again = s.plugin(&["import", "-n", &other, "-f", path])?;
    well(&again)?;
    assert_eq!(again.out, "0 new, 0 changed, 2 unchanged, 0 skipped\n");
    // Without the import, kubectl makes the same records of it.
    let kubectl = |args: &[&str], input: &str| -> Result<String> {
        let mut command = Command::new(assets::find(Binary::Kubectl)?);
        command.args(args).env("HOME", s.file("home")).env("KUBECONFIG", s.sandbox.kubeconfig());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        std::io::Write::write_all(&mut child.stdin.take().context("stdin")?, input.as_bytes())?;
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };
    elsewhere.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    kubectl(&["apply", "-n", &other, "-f", "-"], &written)?;
    let of_cluster = |records: Vec<Record>| -> Vec<_> {
        records.into_iter().map(|record| Record { config_map: None, ..record }).collect()
    };
    assert_eq!(of_cluster(all_records(&elsewhere).await?), of_cluster(all_records(&s.config_maps).await?));
    Ok(())
}

pub async fn labels_of_nodes_that_do_not_exist_yet_can_be_prepared(s: &Scenario) -> Result<()> {
    s.list_often();
    let (storer, _restorer) = s.pair()?;
    let node = s.node("a");
    let others = ["b", "c", "d", "e", "f"].map(|name| document(&s.node(name), "pool: gold"));
    let file = file_of([document(&node, "pool: gold, tier: one")].into_iter().chain(others));
    let told = s.plugin_reading(&file, &["import", "--yes"])?;
    well(&told)?;
    assert_eq!(told.err, "6 created, 0 replaced, 0 unchanged, 0 not written\n");
    s.has_acted(&storer, &s.node("b")).await?;
    // It is no loss of nodes, and nothing is wrong with what was written.
    assert!(!storer.has_logged(&["a large share"]), "{}", storer.log());
    assert!(!storer.has_logged(&["damaged"]), "{}", storer.log());
    s.create(&node, labels([("tier", "two")])).await?;
    let all = labels([("pool", "gold"), ("tier", "two")]);
    s.eventually_labelled(&node, all.clone()).await?;
    s.eventually_stored(&node, all).await?;
    // From here on it is a node like any other.
    s.label(&node, [("pool", None)]).await?;
    s.eventually_stored(&node, labels([("tier", "two")])).await
}

pub async fn nodes_that_are_there_are_left_alone_unless_they_are_included(s: &Scenario) -> Result<()> {
    let (_storer, _restorer) = s.pair()?;
    let node = s.node("a");
    let own = labels([("own", "1"), ("pool", "silver")]);
    // It was restored before, so it has a marker.
    s.leaves_and_returns(&node, &own).await?;
    s.eventually_stored(&node, own.clone()).await?;
    let before = s.config_map(&node).await?;
    let file = file_of([document(&node, "pool: gold, lost: found")]);
    let told = s.plugin_reading(&file, &["import", "--replace", "--yes"])?;
    well(&told)?;
    assert!(told.out.contains(&format!("skipped (its node exists): {node}\n")), "{told:?}");
    assert!(told.out.ends_with("0 new, 0 changed, 0 unchanged, 1 skipped\n"), "{told:?}");
    assert_eq!(s.config_map(&node).await?, before);
    // Its record differs, and is overwritten only if that is asked for.
    let told = s.plugin_reading(&file, &["import", "--include-living", "--yes"])?;
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(told.err.contains("--replace") && told.out.contains(&format!("~ {node}\n")), "{told:?}");
    assert_eq!(s.config_map(&node).await?, before);

    let include = ["import", "--include-living", "--replace", "--yes"];
    well(&s.plugin_reading(&file, &include)?)?;
    let all = labels([("lost", "found"), ("own", "1"), ("pool", "silver")]);
    s.eventually_labelled(&node, all.clone()).await?;
    s.eventually_stored(&node, all.clone()).await?;
    let told = s.plugin_reading(&file, &include)?;
    well(&told)?;
    assert!(told.out.ends_with("0 new, 0 changed, 1 unchanged, 0 skipped\n"), "{told:?}");

    // A marker that is newer than the record: that was deleted, and made anew.
    let marked = || async { Ok::<_, anyhow::Error>(s.record(&node).await?.context("no record")?.generation) };
    let generation = marked().await?;
    s.delete_record(&node).await?;
    s.eventually("a new record", true, async || {
        Ok(s.record(&node).await?.is_some_and(|record| record.generation < generation))
    })
    .await?;
    s.label(&node, [("lost", None)]).await?;
    s.eventually_stored(&node, own.clone()).await?;
    well(&s.plugin_reading(&file, &include)?)?;
    s.eventually_labelled(&node, all.clone()).await?;
    s.eventually_stored(&node, all).await?;
    // A label that is removed after that stays removed.
    s.label(&node, [("lost", None)]).await?;
    s.eventually_stored(&node, own).await
}

pub async fn what_a_node_would_not_be_given_is_not_imported_over_its_record(s: &Scenario) -> Result<()> {
    let flags = ["--rules", "identity: {otherMachine: none}"];
    let (_storer, _restorer) = (s.storer(&flags)?, s.restorer(&flags)?);
    let rules = s.file("rules.yaml");
    std::fs::write(&rules, "identity: {otherMachine: none}\n")?;
    let node = s.node("a");
    s.create_as(
        &node,
        json!({"metadata": {"labels": {"pool": "gold"}}, "spec": {"providerID": "aws:///a/i-0"}}),
    )
    .await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    let ignored = s.node("ignored");
    s.create_as(&ignored, json!({"metadata": {"annotations": {"label-storage/ignore": "true"}}})).await?;
    let file = file_of([
        annotated(&node, &record_name(&node), ", label-storage/provider-id: 'aws:///a/i-1'", "lost: found"),
        document(&ignored, "lost: found"),
    ]);
    let include =
        ["import", "--include-living", "--replace", "--yes", "--config", rules.to_str().context("a path")?];
    let told = s.plugin_reading(&file, &include)?;
    well(&told)?;
    assert!(told.out.contains(&format!("skipped (other-machine): {node}\n")), "{told:?}");
    assert!(told.out.contains(&format!("skipped (ignored): {ignored}\n")), "{told:?}");
    // Else the storer would wait for a restore that never comes.
    s.label(&node, [("pool", Some("silver"))]).await?;
    s.eventually_stored(&node, labels([("pool", "silver")])).await
}

pub async fn an_import_with_anything_wrong_changes_nothing(s: &Scenario) -> Result<()> {
    let (good, bad) = (document(&s.node("good"), "a: b"), s.node("bad"));
    let whole = file_of([good.clone(), document(&s.node("other"), "c: d")]);
    let refused = |input: &str, says: &[&str]| -> Result<()> {
        let told = s.plugin_reading(input, &["import", "--yes"])?;
        ensure!(
            told.code == Some(1) && says.iter().all(|part| told.err.contains(part)),
            "{says:?}: {told:?}"
        );
        Ok(())
    };
    refused(
        &file_of([good.clone(), document(&bad, "a b: c")]),
        &[
            "stdin: line 10: ",
            "data key \"a b\" is not a label key",
            "stdin has 1 problem: nothing was changed\n",
        ],
    )?;
    refused(&file_of([good.clone(), document(&bad, "pool: a b")]), &["line 10: ", "\"pool\"", "\"a b\""])?;
    refused(&file_of([good.clone(), good.clone()]), &["line 10: ", "also on line 2"])?;
    refused(&good.replace("ConfigMap", "Secret"), &["line 2: ", "\"Secret\", expected ConfigMap"])?;
    refused("", &["the file has no records"])?;
    let hundred = (0..100).map(|number| document(&format!("n{number}"), "a: b c"));
    refused(&file_of(hundred), &["stdin: line 154: ", "stdin has 100 problems"])?;
    assert_eq!(all_records(&s.config_maps).await?, []);

    // No terminal, no input, no such namespace, no permissions.
    let told = s.plugin_reading(&whole, &["import"])?;
    assert!(told.code == Some(1) && told.err.contains("--yes"), "{told:?}");
    let told = s.plugin(&["import", "-f", "/nowhere/at-all"])?;
    assert!(told.code == Some(1) && told.err.contains("error: can't read /nowhere/at-all"), "{told:?}");
    let told = s.plugin_reading(&whole, &["import", "--yes", "-n", "no-such-namespace"])?;
    assert!(told.code == Some(1) && told.err.contains("\"no-such-namespace\" not found"), "{told:?}");
    let (rules, records) = (
        "error: the rules can't be read".to_owned(),
        format!("cannot list resource \"configmaps\" in API group \"\" in the namespace \"{}\"", s.namespace),
    );
    for (command, why) in [("import", &rules), ("export", &records)] {
        let told = s.plugin_reading(&whole, &[command, "--as", "nobody"])?;
        assert!(told.code == Some(1) && told.err.contains(why), "{told:?}");
    }
    assert_eq!(all_records(&s.config_maps).await?, []);

    // Records that are there and differ, or can't be read.
    well(&s.plugin_reading(&file_of([good.clone()]), &["import", "--yes"])?)?;
    let before = s.config_map(&s.node("good")).await?;
    let changed = file_of([document(&s.node("good"), "a: c"), document(&s.node("other"), "c: d")]);
    refused(&changed, &["nothing was changed: give --replace to overwrite 1 stored record\n"])?;
    assert_eq!(s.config_map(&s.node("good")).await?, before);
    assert_eq!(s.config_map(&s.node("other")).await?, None);
    let told = s.plugin_reading(&changed, &["import", "--replace", "--yes"])?;
    well(&told)?;
    assert!(told.out.contains(&format!("~ {}\n  -a=b\n  +a=c\n", s.node("good"))), "{told:?}");
    let record = s.record(&s.node("good")).await?.context("no record")?;
    assert_eq!((record.labels, record.generation), (labels([("a", "c")]), 2));
    assert_eq!(
        record.more.history.iter().map(|version| version.labels.clone()).collect::<Vec<_>>(),
        [labels([("a", "b")])]
    );
    s.patch_record(&s.node("good"), json!({"metadata": {"annotations": {"label-storage/node": "another"}}}))
        .await?;
    let told = s.plugin_reading(&whole, &["import", "--replace", "--yes"])?;
    assert!(told.code == Some(1) && told.err.contains("names node \"another\""), "{told:?}");
    let told = s.plugin(&["export"])?;
    assert_eq!(told.code, Some(3), "{told:?}");
    assert!(
        told.err.contains("1 record can't be imported\n") && told.out.contains(&s.node("other")),
        "{told:?}"
    );
    assert!(told.err.contains("names node \"another\"") && !told.out.contains(&s.node("good")), "{told:?}");
    Ok(())
}

async fn count(s: &Scenario) -> Result<usize> {
    Ok(all_records(&s.config_maps).await?.len())
}

/// A file with so many nodes.
fn many(s: &Scenario, count: usize) -> Result<std::path::PathBuf> {
    let path = s.file("many.yaml");
    std::fs::write(
        &path,
        file_of((0..count).map(|number| document(&s.node(&format!("n{number}")), "pool: gold"))),
    )?;
    Ok(path)
}

/// Imports a file through a proxy, as a process that can be interrupted.
fn import(s: &Scenario, kubeconfig: &Path, file: &Path) -> Result<crate::daemon::Daemon> {
    let args = ["import", "--yes", "-n", &s.namespace, "-f", file.to_str().context("a path")?];
    s.run_binary("plugin", &args.map(str::to_owned), Some(kubeconfig.to_owned()))
}

pub async fn an_interrupted_import_says_how_far_it_came_and_goes_on(s: &Scenario) -> Result<()> {
    const ALL: usize = 200;
    let file = many(s, ALL)?;
    // This many writes succeed, and the others take until after the signal.
    let created = AtomicUsize::new(0);
    let proxy = s.proxy(move |request: &Request| {
        let is_late = request.is(Verb::Create, "configmaps") && created.fetch_add(1, Ordering::Relaxed) >= 50;
        if is_late { Fault::Latency(Duration::from_millis(800)) } else { Fault::None }
    });
    let proxy = proxy.await?;
    let process = import(s, proxy.kubeconfig(), &file)?;
    s.eventually("some are there", true, async || Ok(count(s).await? >= 50)).await?;
    process.process.signal(Signal::INT)?;
    assert_eq!(process.exit().await?.code(), 1, "{}", process.log());
    let there = count(s).await?;
    assert!((50..ALL).contains(&there), "{there}");
    let (log, left) = (process.log(), ALL - there);
    // The writes in flight were finished, and counted.
    assert!(
        log.contains(&format!("{there} created, 0 replaced, 0 unchanged, 0 not written\n")),
        "{there}: {log}"
    );
    assert!(
        log.contains(&format!("error: interrupted: {left} records not written; run the same import again")),
        "{log}"
    );
    let told = s.plugin(&["import", "--yes", "-f", file.to_str().context("a path")?])?;
    well(&told)?;
    assert!(
        told.out.ends_with(&format!("{left} new, 0 changed, {there} unchanged, 0 skipped\n")),
        "{told:?}"
    );
    let all = format!("{left} created, 0 replaced, {there} unchanged, 0 not written\n");
    assert!(told.err.ends_with(&all), "those that the plan found unchanged are counted: {told:?}");
    assert_eq!(count(s).await?, ALL);
    Ok(())
}

pub async fn an_import_survives_bad_weather(s: &Scenario) -> Result<()> {
    const ALL: usize = 60;
    let file = many(s, ALL)?;
    let mut turn = 0;
    let proxy = s.proxy(move |request: &Request| {
        if !request.is(Verb::Create, "configmaps") {
            return Fault::None;
        }
        turn += 1;
        match turn % 10 {
            1 => Fault::Status { code: 429, retry_after: Some(1) },
            2 => Fault::StatusAfter(500),
            3 => Fault::ResetAfter,
            4 => Fault::ResetBefore,
            5 => Fault::StatusAfter(504),
            _ => Fault::None,
        }
    });
    let proxy = proxy.await?;
    let process = import(s, proxy.kubeconfig(), &file)?;
    assert_eq!(process.exit().await?.code(), 0, "{}", process.log());
    assert!(
        process.log().contains(&format!("{ALL} created, 0 replaced, 0 unchanged, 0 not written\n")),
        "{}",
        process.log()
    );
    assert_eq!(all_records(&s.config_maps).await?.len(), ALL);
    Ok(())
}

pub async fn an_import_that_loses_the_server_goes_on_later(s: &Scenario) -> Result<()> {
    const ALL: usize = 100;
    let file = many(s, ALL)?;
    let created = AtomicUsize::new(0);
    let proxy = s.proxy(move |request: &Request| {
        let is_late = request.is(Verb::Create, "configmaps") && created.fetch_add(1, Ordering::Relaxed) >= 30;
        if is_late { Fault::BlackHole } else { Fault::None }
    });
    let proxy = proxy.await?;
    let process = import(s, proxy.kubeconfig(), &file)?;
    s.eventually("some are there", 30, async || count(s).await).await?;
    drop(proxy);
    assert_eq!(process.exit().await?.code(), 1, "{}", process.log());
    let log = process.log();
    // It may not know of all written records, because answers were lost, too.
    assert!(log.contains(" created, 0 replaced, 0 unchanged, 0 not written"), "{log}");
    assert!(log.contains(" records not written; run the same import again"), "{log}");
    let told = s.plugin(&["import", "--yes", "-f", file.to_str().context("a path")?])?;
    well(&told)?;
    assert!(told.out.ends_with("70 new, 0 changed, 30 unchanged, 0 skipped\n"), "{told:?}");
    Ok(())
}

pub async fn what_changes_meanwhile_is_not_overwritten(s: &Scenario) -> Result<()> {
    let (changed, made, foreign) = (s.node("changed"), s.node("made"), s.node("foreign"));
    well(&s.plugin_reading(&file_of([document(&changed, "a: old")]), &["import", "--yes"])?)?;
    let file = s.file("file.yaml");
    std::fs::write(&file, file_of([&changed, &made, &foreign].map(|node| document(node, "a: new"))))?;
    // Just before its first write, another client writes.
    let (reached, is_reached) = std::sync::mpsc::channel();
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    let proxy = s.proxy(move |request: &Request| {
        let is_of_a_record = request.name.as_ref().is_some_and(|name| name.starts_with("label-storage."));
        if request.resource == "configmaps" && is_of_a_record && reached.send(()).is_ok() {
            // Only the first request waits: later there is no sender.
            _ = may_go.recv();
        }
        Fault::None
    });
    let proxy = proxy.await?;
    let args = ["import", "--replace", "--yes", "-n", &s.namespace, "-f", file.to_str().context("a path")?];
    let process = s.run_binary("plugin", &args.map(str::to_owned), Some(proxy.kubeconfig().to_owned()))?;
    s.eventually("it is about to write", true, async || Ok(is_reached.try_recv().is_ok())).await?;
    s.patch_record(&changed, json!({"data": {"a": "theirs"}})).await?;
    s.occupy_record(&foreign).await?;
    well(&s.plugin_reading(&file_of([document(&made, "a: theirs")]), &["import", "--yes"])?)?;
    drop(go);
    assert_eq!(process.exit().await?.code(), 1, "{}", process.log());
    let log = process.log();
    assert!(log.contains("0 created, 0 replaced, 0 unchanged, 3 not written\n"), "{log}");
    for (node, why) in
        [(&changed, "has changed meanwhile"), (&made, "has changed meanwhile"), (&foreign, "managed-by")]
    {
        assert!(
            log.lines().any(|line| line.starts_with(&format!("not written: {node}: ")) && line.contains(why)),
            "{log}"
        );
    }
    for node in [&changed, &made] {
        assert_eq!(s.record(node).await?.context("no record")?.labels, labels([("a", "theirs")]));
    }
    Ok(())
}
