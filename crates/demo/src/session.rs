//! Records a session with `kubectl label-storage` on the cluster of the demo: real commands and their real output.

use std::cell::RefCell;
use std::path::Path;

use anyhow::{Context, ensure};
use label_storage::record::DEPARTED_AT;
use sandbox::itself;

use crate::narrator::Narrator;
use crate::nodes::{Cluster, Machine};
use crate::stage::{PLUGIN, Stage};
use crate::story::whole;
use crate::svg::{self, SCREEN, Scene};

/// Runs the session, and draws it.
pub(crate) async fn record(stage: &Stage, narrator: &Narrator, file: &Path) -> anyhow::Result<()> {
    narrator.heading("A session with kubectl label-storage");
    let cluster = Cluster::new(&stage.client);
    let machines: Vec<_> = ["gpu-1"].map(machine).into();
    cluster.create_bare(&machines).await?;
    cluster.label(&machines).await?;
    stage.until("storing the labels", async || Ok(whole(&cluster.in_records(&machines).await?))).await?;

    let scenes = RefCell::new(Vec::new());
    let add =
        |typed: &str, output: String| scenes.borrow_mut().push(Scene { typed: typed.to_owned(), output });
    // A comment in the session about a change in the cluster.
    let note = |what: &str| {
        narrator.say(what);
        add(&format!("# {what}"), String::new());
    };
    let run = |command: &str| -> anyhow::Result<()> {
        narrator.say(format!("$ {command}"));
        let output = run(stage, command)?;
        narrator.block(&output);
        add(command, output);
        Ok(())
    };
    let mut changed = machine("gpu-1");
    changed.labels.insert("pool".to_owned(), "batch".to_owned());
    let changed = [changed];
    cluster.label(&changed).await?;
    stage.until("storing the change", async || Ok(whole(&cluster.in_records(&changed).await?))).await?;
    cluster.delete(&changed).await?;
    let is_gone = async || {
        let annotations = cluster.record(&changed[0]).await?.metadata.annotations.unwrap_or_default();
        anyhow::Ok(annotations.contains_key(DEPARTED_AT))
    };
    let expect = |is_so: bool| is_so.then_some(()).ok_or_else(|| DEPARTED_AT.to_owned());
    stage.until("storing the deletion", async || Ok(expect(is_gone().await?))).await?;
    note("pool=batch was set on gpu-1, and then the node was deleted");
    run("kubectl label-storage explain gpu-1")?;

    cluster.create_bare(&changed).await?;
    stage.until("restoring the labels", async || Ok(whole(&cluster.on_nodes(&changed).await?))).await?;
    stage.until("storing the return", async || Ok(expect(!is_gone().await?))).await?;
    note("the kubelet has registered gpu-1 again, without these labels");
    run("kubectl label-storage get gpu-1")?;

    let title = "A session with kubectl label-storage: a node is deleted and re-created";
    std::fs::write(file, svg::draw(title, &scenes.borrow()))
        .with_context(|| format!("can't write {}", file.display()))?;
    narrator.succeed(format!("drawn in {}", file.display()));
    Ok(())
}

fn machine(name: &str) -> Machine {
    let labels = [("pool", "gpu"), ("team", "research"), ("example.com/rack", "r5")];
    Machine::new(name, labels.map(|(key, value)| (key, value.to_owned())))
}

/// Runs a command of the plugin as kubectl would, with the colours that it has on a terminal.
fn run(stage: &Stage, command: &str) -> anyhow::Result<String> {
    let words = command.strip_prefix("kubectl label-storage").context("another command")?.split_whitespace();
    let mut process = itself::command(PLUGIN, Some(stage.kubeconfig()))?;
    process
        .args(words)
        .env("CLICOLOR_FORCE", "1")
        .env_remove("NO_COLOR")
        .env("COLUMNS", SCREEN.0.to_string());
    let output = process.output()?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{command} failed: {said}");
    Ok(said)
}
