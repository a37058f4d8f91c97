//! `import`: confirmation, messages and obstacles.

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use faults::{Fault, Request, Verb};
use label_storage::name::record_name;
use sandbox::itself;
use sandbox::process::Signal;
use serde_json::json;

use super::{all_records, annotated, count, document, file_of, import, many, well};
use crate::plugin_write::{Dialogue, Held, terminal};
use crate::scenario::{Scenario, labels};

pub async fn somebody_elses_config_map_in_the_way_is_found_before_anything_is_written(
    s: &Scenario,
) -> Result<()> {
    let (foreign, free) = (s.node("foreign"), s.node("free"));
    s.occupy_record(&foreign).await?;
    let before = s.config_map(&foreign).await?;
    let file = file_of([&free, &foreign].map(|node| document(node, "a: new")));
    for args in [&["import", "--replace", "--yes"][..], &["import", "--dry-run"]] {
        let told = s.plugin_reading(&file, args)?;
        assert!(told.code == Some(1) && told.err.contains("nothing was changed"), "{told:?}");
        assert!(told.err.contains("app.kubernetes.io/managed-by"), "{told:?}");
    }
    assert_eq!(s.config_map(&free).await?, None);
    assert_eq!(s.config_map(&foreign).await?, before);
    Ok(())
}

pub async fn a_node_that_is_there_under_another_name_is_there(s: &Scenario) -> Result<()> {
    let rules = s.file("rules.yaml");
    std::fs::write(&rules, "identity: {by: systemUUID}\n")?;
    let (uuid, by) = ("4c4c4544-0042-4410-8058-b4c04f564c31", ["--rules", "identity: {by: systemUUID}"]);
    let (old, new) = (s.node("old"), s.node("new"));
    let node = json!({"metadata": {"labels": {"own": "1"}}, "status": {"nodeInfo": {"systemUUID": uuid}}});
    s.create_as(&new, node).await?;
    let identity = format!("systemUUID={uuid}");
    let annotation = format!(", label-storage/identity: {identity}");
    let file = file_of([annotated(&old, &record_name(&identity), &annotation, "lost: found")]);
    let include = ["import", "--include-living", "--yes", "--config", rules.to_str().context("a path")?];
    well(&s.plugin_reading(&file, &include)?)?;
    let all = all_records(&s.config_maps).await?;
    assert_eq!(all.iter().map(|record| record.departed_at).collect::<Vec<_>>(), [None], "{all:?}");
    let _daemons = (s.storer(&by)?, s.restorer(&by)?);
    s.eventually_labelled(&new, labels([("lost", "found"), ("own", "1")])).await
}

pub async fn an_import_that_nobody_listens_to_is_finished(s: &Scenario) -> Result<()> {
    let file = many(s, 30)?;
    let mut command = itself::command("plugin", Some(s.sandbox.kubeconfig()))?;
    command.args(["import", "--yes", "-n", &s.namespace, "-f"]).arg(&file);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    drop(child.stderr.take());
    assert_eq!(child.wait()?.code(), Some(0));
    assert_eq!(count(s).await?, 30);
    // A failure is an exit code, not a panic.
    let mut command = itself::command("plugin", Some(s.sandbox.kubeconfig()))?;
    command.args(["import", "--yes", "-f", "/nowhere/at-all"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    drop(child.stderr.take());
    assert_eq!(child.wait()?.code(), Some(1));
    Ok(())
}

pub async fn who_imports_from_stdin_is_asked_at_the_terminal(s: &Scenario) -> Result<()> {
    let file = many(s, 3)?;
    for (answer, code, there) in [("n", 1, 0), ("y", 0, 3)] {
        let mut dialogue = Dialogue::reading(s, &file, &["import"])?;
        dialogue.is_asked()?;
        dialogue.answers(answer)?;
        assert_eq!(dialogue.ends()?.0, Some(code), "{answer}");
        assert_eq!(count(s).await?, there, "{answer}");
    }
    Ok(())
}

pub async fn on_a_terminal_a_bar_shows_how_far_it_is(s: &Scenario) -> Result<()> {
    let file = many(s, 60)?;
    let proxy = s.proxy(|request: &Request| match request.is(Verb::Create, "configmaps") {
        true => Fault::Latency(Duration::from_millis(100)),
        false => Fault::None,
    });
    let proxy = proxy.await?;
    let (mut screen, theirs, _) = terminal()?;
    let mut command = itself::command("plugin", Some(proxy.kubeconfig()))?;
    command.args(["import", "--yes", "-n", &s.namespace, "-f"]).arg(&file).env("TERM", "xterm");
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(theirs).spawn();
    // This process holds the terminal, too. A terminal ends when its last holder closes it.
    drop(command);
    let mut child = child?;
    let mut shown = Vec::new();
    // The end of a terminal is an error.
    _ = screen.read_to_end(&mut shown);
    assert_eq!(child.wait()?.code(), Some(0));
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("written") && shown.contains("/60"), "{shown}");
    Ok(())
}

pub async fn a_second_ctrl_c_ends_an_import_at_once(s: &Scenario) -> Result<()> {
    let file = many(s, 20)?;
    let (reached, is_reached) = std::sync::mpsc::channel();
    let proxy = s.proxy(move |request: &Request| match request.is(Verb::Create, "configmaps") {
        true => {
            _ = reached.send(());
            Fault::BlackHole
        }
        false => Fault::None,
    });
    let proxy = proxy.await?;
    let process = import(s, proxy.kubeconfig(), &file)?;
    s.eventually("it writes", true, async || Ok(is_reached.try_recv().is_ok())).await?;
    let began = std::time::Instant::now();
    process.process.signal(Signal::INT)?;
    // Two signals that come at once are one.
    tokio::time::sleep(Duration::from_millis(200)).await;
    process.process.signal(Signal::INT)?;
    assert_eq!(process.exit().await?.code(), 1, "{}", process.log());
    // The first alone would have waited for answers, for five seconds.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert!(process.log().contains("error: interrupted: 20 records not written"), "{}", process.log());
    Ok(())
}

pub async fn a_record_that_changes_before_it_is_replaced_is_left_alone(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    well(&s.plugin_reading(&file_of([document(&node, "a: old")]), &["import", "--yes"])?)?;
    let file = s.file("file.yaml");
    std::fs::write(&file, file_of([document(&node, "a: new")]))?;
    let args = ["import", "--replace", "-f", file.to_str().context("a path")?];
    let held = Held::before(s, Verb::Update, &args).await?;
    s.patch_record(&node, json!({"data": {"a": "theirs"}})).await?;
    let (code, said) = held.goes_on().await?;
    assert!(code == 1 && said.contains("has changed meanwhile, and was not overwritten"), "{said}");
    assert_eq!(s.record(&node).await?.context("a record")?.labels, labels([("a", "theirs")]));
    Ok(())
}

pub async fn a_dry_run_on_the_server_shows_refusals_and_changes_nothing(s: &Scenario) -> Result<()> {
    let (good, bad) = (s.node("good"), s.node("bad"));
    // A label that no object can have.
    let bad_label = document(&bad, "a: b").replace("label-storage}", "label-storage, team: a b}");
    let file = file_of([document(&good, "a: b"), bad_label]);
    well(&s.plugin_reading(&file, &["import", "--dry-run=client"])?)?;
    let told = s.plugin_reading(&file, &["import", "--dry-run=server"])?;
    assert!(
        told.code == Some(1) && told.out.ends_with("2 new, 0 changed, 0 unchanged, 0 skipped\n"),
        "{told:?}"
    );
    assert!(
        told.err.starts_with("1 created, 0 replaced, 0 unchanged, 1 not written (server dry run)\n"),
        "{told:?}"
    );
    assert!(told.err.contains(&format!("not written: {bad}: ")) && told.err.contains("\"a b\""), "{told:?}");
    assert_eq!(count(s).await?, 0);
    Ok(())
}
