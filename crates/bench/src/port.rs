//! The cost of `kubectl label-storage export` and `import`: each is a process, measured from its start to its end.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::{Command, ExitStatus};

use sandbox::itself;
use sandbox::progress::Progress;

use crate::cold_start::{self, NAMESPACE};
use crate::report::{PortCost, Ported, ProgramCost};
use crate::stage::Stage;
use crate::stats::median;
use crate::status::{self, PLUGIN};

/// The namespace for imported records.
const ELSEWHERE: &str = "bench-elsewhere";
/// Each is measured this many times, except for the import, which works only once.
const ROUNDS: usize = 3;

/// Measures them with the Nodes of the stage, each of which has a record.
pub(crate) async fn measure(stage: &mut Stage) -> anyhow::Result<Vec<PortCost>> {
    cold_start::ensure_records(stage).await?;
    let records = u32::try_from(stage.nodes.len())?;
    stage.cluster.create_namespace(ELSEWHERE).await?;
    let folder = stage.sandbox.data_folder().to_owned();
    let (exported, file) = (folder.join("exported.yaml"), folder.join("elsewhere.yaml"));
    let mut costs = Vec::new();
    let mut progress =
        Progress::new(format!("export and import of {records} records"), Ported::ALL.len() as u64);
    for (at, what) in Ported::ALL.into_iter().enumerate() {
        let rounds = if what == Ported::Import { 1 } else { ROUNDS };
        let mut measured = Vec::new();
        for _ in 0..rounds {
            stage.calm().await?;
            let mut command = command(what, stage.sandbox.kubeconfig(), &exported, &file)?;
            command.env("HOME", &folder);
            let (api_server, output) = (stage.api_server(), folder.join("output"));
            let run =
                move || status::cost_of(&mut command, what.name(), api_server, &output, ExitStatus::success);
            measured.push(tokio::task::spawn_blocking(run).await??);
            stage.check(&[])?;
            what.check(&std::fs::read_to_string(folder.join("output"))?, records)?;
        }
        if what == Ported::Export {
            of_nodes_that_are_gone(&exported, &file)?;
        }
        let of = |figure: fn(&ProgramCost) -> f64| median(&measured.iter().map(figure).collect::<Vec<_>>());
        let cost =
            (of(|cost| cost.wall), of(|cost| cost.cpu), of(|cost| cost.server_cpu), of(|cost| cost.peak));
        if let (Some(wall), Some(cpu), Some(server_cpu), Some(peak)) = cost {
            costs.push(PortCost { records, what, rounds, cost: ProgramCost { wall, cpu, server_cpu, peak } });
        }
        progress.set(at as u64 + 1);
    }
    progress.clear();
    Ok(costs)
}

fn command(what: Ported, kubeconfig: &Path, exported: &Path, file: &Path) -> anyhow::Result<Command> {
    let mut command = itself::command(PLUGIN, Some(kubeconfig))?;
    match what {
        Ported::Export => command.args(["export", "--namespace", NAMESPACE, "--file"]).arg(exported),
        Ported::DryRun | Ported::Again => {
            command.args(["import", "--dry-run", "--namespace", ELSEWHERE, "--file"]).arg(file)
        }
        Ported::Import => command.args(["import", "--yes", "--namespace", ELSEWHERE, "--file"]).arg(file),
    };
    Ok(command)
}

impl Ported {
    /// An error unless the output is about all records.
    fn check(self, told: &str, records: u32) -> anyhow::Result<()> {
        let expected = match self {
            Self::Export => return Ok(()),
            Self::DryRun | Self::Import => format!("{records} new, 0 changed, 0 unchanged"),
            Self::Again => format!("0 new, 0 changed, {records} unchanged"),
        };
        anyhow::ensure!(told.contains(&expected), "{}: the output lacks \"{expected}\"", self.name());
        Ok(())
    }
}

/// The same export for Nodes that do not exist, because an import skips records of existing Nodes.
fn of_nodes_that_are_gone(exported: &Path, file: &Path) -> anyhow::Result<()> {
    let mut out = BufWriter::new(File::create(file)?);
    for line in BufReader::new(File::open(exported)?).lines() {
        let line = line?;
        let gone = line
            .replace("  name: label-storage.", "  name: label-storage.gone-")
            .replace("  label-storage/node: ", "  label-storage/node: gone-");
        writeln!(out, "{gone}")?;
    }
    Ok(out.flush()?)
}
