//! The cost of `kubectl label-storage status`, compared with `kubectl get nodes`: each is a process, measured from its start to its end.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use sandbox::assets::{self, Binary};
use sandbox::itself;
use sandbox::progress::Progress;
use serde_json::Value;

use crate::cold_start::{self, NAMESPACE};
use crate::process::Process;
use crate::report::{Program, ProgramCost, StatusCost};
use crate::stage::Stage;
use crate::stats::median;

/// The role in which this binary is the plugin.
pub(crate) const PLUGIN: &str = "plugin";

/// Each is measured this many times.
const ROUNDS: usize = 5;
/// The interval at which the memory of a process is read. A later peak is missed.
const LOOK: Duration = Duration::from_millis(2);
/// The exit code of the plugin if it finds problems: here no daemons run.
const UNWELL: i32 = 3;

/// Measures both with the Nodes of the stage, each of which has a record. Rounds are interleaved, after a first round that does not
/// count: kubectl discovers the resources of the API once, and caches them.
pub(crate) async fn measure(stage: &mut Stage) -> anyhow::Result<Vec<StatusCost>> {
    cold_start::ensure_records(stage).await?;
    let kubectl = tokio::task::spawn_blocking(|| assets::find(Binary::Kubectl)).await??;
    let nodes = u32::try_from(stage.nodes.len())?;
    let mut progress = Progress::new(format!("status at {nodes} nodes"), ((ROUNDS + 1) * 2) as u64);
    let mut costs = Program::ALL.map(|program| (program, Vec::new()));
    let mut done = 0;
    for round in 0..=ROUNDS {
        for (program, measured) in &mut costs {
            stage.calm().await?;
            let task = Task {
                program: *program,
                kubectl: kubectl.clone(),
                kubeconfig: stage.sandbox.kubeconfig().to_owned(),
                folder: stage.sandbox.data_folder().to_owned(),
                api_server: stage.api_server(),
                nodes,
            };
            let cost = tokio::task::spawn_blocking(move || task.run()).await??;
            if round > 0 {
                measured.push(cost);
            }
            stage.check(&[])?;
            done += 1;
            progress.set(done);
        }
    }
    progress.clear();
    let middle = |(program, measured): (Program, Vec<ProgramCost>)| {
        let of = |figure: fn(&ProgramCost) -> f64| median(&measured.iter().map(figure).collect::<Vec<_>>());
        let cost = ProgramCost {
            wall: of(|cost| cost.wall)?,
            cpu: of(|cost| cost.cpu)?,
            server_cpu: of(|cost| cost.server_cpu)?,
            peak: of(|cost| cost.peak)?,
        };
        Some(StatusCost { nodes, program, rounds: measured.len(), cost })
    };
    Ok(costs.into_iter().filter_map(middle).collect())
}

/// One run of one program.
struct Task {
    program: Program,
    kubectl: PathBuf,
    kubeconfig: PathBuf,
    folder: PathBuf,
    api_server: Process,
    nodes: u32,
}

impl Task {
    fn run(&self) -> anyhow::Result<ProgramCost> {
        let output = self.folder.join("output");
        let is_well = |exit: &ExitStatus| {
            exit.success() || self.program == Program::Status && exit.code() == Some(UNWELL)
        };
        let cost = cost_of(&mut self.command()?, self.program.name(), self.api_server, &output, is_well)?;
        self.check(&output)?;
        Ok(cost)
    }

    fn command(&self) -> anyhow::Result<Command> {
        let mut command = match self.program {
            Program::Status => {
                let mut command = itself::command(PLUGIN, Some(&self.kubeconfig))?;
                // Without daemons, `status` would wait and list everything again.
                command.args(["status", "--patience", "0s", "--namespace", NAMESPACE, "--output", "json"]);
                command
            }
            Program::GetNodes => {
                let mut command = Command::new(&self.kubectl);
                command.args(["get", "nodes"]).env("KUBECONFIG", &self.kubeconfig);
                command
            }
        };
        command.env("HOME", &self.folder);
        Ok(command)
    }

    /// An error unless the output has all nodes.
    fn check(&self, output: &Path) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(output)?;
        let told = match self.program {
            Program::Status => {
                let status: Value = serde_json::from_str(&text)?;
                status["states"]["up-to-date"]["count"].as_u64().context("no count of nodes")?
            }
            // One line is the header.
            Program::GetNodes => text.lines().count().saturating_sub(1) as u64,
        };
        let (name, nodes) = (self.program.name(), self.nodes);
        anyhow::ensure!(told == u64::from(nodes), "{name} printed {told} nodes, expected {nodes}");
        Ok(())
    }
}

/// The cost of a program, from its start to its end. Its output goes into a file.
pub(crate) fn cost_of(
    command: &mut Command,
    name: &str,
    api_server: Process,
    output: &Path,
    is_well: impl FnOnce(&ExitStatus) -> bool,
) -> anyhow::Result<ProgramCost> {
    let server_before = api_server.cpu()?;
    let began = Instant::now();
    let command = command.stdin(Stdio::null()).stdout(File::create(output)?);
    let mut child = command.spawn().with_context(|| format!("can't start {name}"))?;
    let process = Process(child.id());
    let mut peak = 0;
    // A process that has ended has no memory any more, but its CPU time can be read until it is waited for.
    while let Ok(memory) = process.memory() {
        peak = memory.peak;
        std::thread::sleep(LOOK);
    }
    let wall = began.elapsed().as_secs_f64();
    let cpu = process.cpu();
    let exit = child.wait()?;
    anyhow::ensure!(is_well(&exit), "{name}: {exit}");
    let server_cpu = api_server.cpu()?.saturating_sub(server_before).as_secs_f64();
    Ok(ProgramCost { wall, cpu: cpu?.as_secs_f64(), server_cpu, peak: peak as f64 })
}
