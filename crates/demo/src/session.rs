//! A session with `kubectl label-storage`, on the demo's own cluster: real commands, and what they really say.

use std::path::Path;

use anyhow::{Context, ensure};
use sandbox::itself;

use crate::narrator::Narrator;
use crate::nodes::{Cluster, Machine};
use crate::stage::{PLUGIN, Stage};
use crate::story::whole;
use crate::svg::{self, SCREEN, Scene};

/// What a command exits with that has found something which is not well: it has worked nonetheless.
const UNWELL: i32 = 3;

/// Plays the session, and draws it.
pub(crate) async fn record(stage: &Stage, narrator: &Narrator, file: &Path) -> anyhow::Result<()> {
    narrator.heading("A session with kubectl label-storage");
    let cluster = Cluster::new(&stage.client);
    let machines: Vec<_> = ["db-1", "gpu-1", "gpu-2", "web-1"].map(machine).into();
    cluster.create_bare(&machines).await?;
    cluster.label(&machines).await?;
    stage.until("storing the labels", async || Ok(whole(&cluster.in_records(&machines).await?))).await?;

    let mut scenes = Vec::new();
    let mut run = |command: &str| -> anyhow::Result<()> {
        narrator.say(format!("$ {command}"));
        let output = run(stage, command)?;
        narrator.block(&output);
        scenes.push(Scene { typed: command.to_owned(), output });
        Ok(())
    };
    run("kubectl label-storage status")?;
    run("kubectl label-storage get --all")?;

    // Somebody changes a mind, and a cloud takes a machine away.
    let mut changed = machine("gpu-1");
    changed.labels.insert("pool".to_owned(), "batch".to_owned());
    let changed = [changed];
    cluster.label(&changed).await?;
    stage.until("storing the change", async || Ok(whole(&cluster.in_records(&changed).await?))).await?;
    cluster.delete(&changed).await?;
    stage
        .until("noticing that it is gone", async || {
            let record = cluster.record(&changed[0]).await?;
            let is_departed = record
                .metadata
                .annotations
                .is_some_and(|all| all.contains_key(label_storage::record::DEPARTED_AT));
            Ok(is_departed.then_some(()).ok_or_else(|| "departed-at".to_owned()))
        })
        .await?;
    run("kubectl label-storage get gpu-1")?;
    run("kubectl label-storage explain gpu-1")?;
    run("kubectl label-storage history gpu-1")?;

    // It comes back, with nothing.
    cluster.create_bare(&changed).await?;
    stage.until("restoring the labels", async || Ok(whole(&cluster.on_nodes(&changed).await?))).await?;
    run("kubectl label-storage explain gpu-1")?;
    run("kubectl label-storage diff gpu-1")?;

    let title = "A session with kubectl label-storage: status, get, explain, history and diff";
    std::fs::write(file, svg::draw(title, &scenes))
        .with_context(|| format!("can't write {}", file.display()))?;
    narrator.succeed(format!("drawn in {}", file.display()));
    Ok(())
}

fn machine(name: &str) -> Machine {
    let pool = name.split('-').next().unwrap_or(name);
    let labels = [
        ("pool", pool.to_owned()),
        ("team", if pool == "web" { "shop" } else { "research" }.to_owned()),
        ("example.com/rack", format!("r{}", name.len())),
    ];
    Machine::new(name, labels)
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
    ensure!(matches!(output.status.code(), Some(0 | UNWELL)), "{command} failed: {said}");
    Ok(said)
}
