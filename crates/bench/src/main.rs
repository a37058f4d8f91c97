//! `bench`: measures the cost of Label Storage on a private control plane, and compares it with the lowest possible cost.
//!
//! ```text
//!   main ── run: from the smallest size to the largest, on one control plane
//!     ├─ stage: etcd, kube-apiserver, the daemons (this binary again, as processes of their own)
//!     │    ├─ machine: Nodes of realistic size             ├─ cluster: the bench's own calls
//!     │    └─ process: figures of a process from /proc     └─ watch: the bench's own watch
//!     ├─ poll ─ probe: one way to list, in a separate process ─ ours: this project's way
//!     ├─ mass_return, concurrency, cold_start
//!     ├─ take_over, idle
//!     ├─ light: up to a million Nodes with only metadata
//!     ├─ picture: a mass return, scraped by Prometheus
//!     ├─ status: the plugin compared with kubectl; port: its export and import
//!     ├─ load: latency and replicas ─ trials, updates
//!     └─ report ─ limits, table, plots
//! ```

mod cluster;
mod cold_start;
mod concurrency;
mod idle;
mod light;
mod limits;
mod load;
mod machine;
mod mass_return;
mod meta;
mod ours;
mod picture;
mod plots;
mod poll;
mod port;
mod probe;
mod process;
mod report;
mod requests;
mod run;
mod stage;
mod stats;
mod status;
mod table;
mod take_over;
mod trials;
mod updates;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use sandbox::itself;

/// Measure the cost of Label Storage, and compare it with the lowest possible cost
///
/// Starts a private Kubernetes control plane (`sandbox --help` explains where its binaries come from) with nodes of realistic size, and
/// the real daemons, on this machine. All processes end with this one. No other cluster is used. Prints the figures as a table on
/// stdout, and progress on stderr. 100,000 nodes take 22 GB of memory, two thirds of it in the API server (set GOMEMLIMIT=14GiB in the
/// environment to keep it to that). With --nodes 10000 it is 8 GB.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Arguments {
    /// Largest number of nodes; smaller sizes are measured, too
    #[arg(long, env = "BENCH_NODES", value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    nodes: u32,

    /// Measure at these numbers of nodes instead, separated by commas; the largest replaces --nodes
    #[arg(long, env = "BENCH_AT", value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    at: Vec<u32>,

    /// Run only these measurements, separated by commas [default: all]
    #[arg(long, env = "BENCH_ONLY", value_name = "WHAT", value_delimiter = ',')]
    only: Vec<Scenario>,

    /// Measure only polls and idle daemons, with nodes that have only metadata. A million of them take as much memory as 100,000 full
    /// nodes
    #[arg(long, env = "BENCH_LIGHT", conflicts_with = "only")]
    light: bool,

    /// Measure each latency this many times
    #[arg(long, env = "BENCH_TRIALS", value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    trials: u32,

    /// Send this many node status updates a second while latencies are measured
    #[arg(long, env = "BENCH_UPDATES", value_name = "RATE", default_value_t = 333, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    updates: u32,

    /// Measure CPU time over this many seconds
    #[arg(long, env = "BENCH_WINDOW", value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    window: u64,

    /// Measure the storer and restorer binaries in this folder [default: those in this program, which is larger]
    #[arg(long, env = "BENCH_DAEMONS", value_name = "DIR")]
    daemons: Option<PathBuf>,

    /// Write all figures to this file, as JSON
    #[arg(long, env = "BENCH_JSON", value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write plots of cost against nodes, and of a mass return, to this folder, as SVG
    #[arg(long, env = "BENCH_PLOTS", value_name = "DIR")]
    plots: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// One list of all nodes, compared with other ways to list them
    Poll,
    /// All nodes deleted and re-created
    MassReturn,
    /// One restorer with its adaptive limit and with fixed ones, on a fast and on a slow server
    Concurrency,
    /// The time until a storer without any records has stored all nodes
    ColdStart,
    /// The latency of single changes under status updates, and the CPU and memory of the daemons
    Latency,
    /// The same with 0, 1, 2 and 4 replicas
    Replicas,
    /// The requests of two idle storers and two idle restorers
    Idle,
    /// The time until other replicas take over from one that is killed or terminated
    TakeOver,
    /// A mass return as the dashboard shows it, with a real Prometheus, and the CPU and memory of the daemons
    Picture,
    /// `kubectl label-storage status`, compared with `kubectl get nodes`
    Status,
    /// `kubectl label-storage export` and `import` of all records
    Port,
}

impl Arguments {
    pub(crate) fn largest(&self) -> u32 {
        self.at.iter().copied().max().unwrap_or(self.nodes)
    }

    pub(crate) fn includes(&self, scenario: Scenario) -> bool {
        self.only.is_empty() || self.only.contains(&scenario)
    }
}

fn main() -> ExitCode {
    // The daemons and the measuring processes are this same binary, so none of them can be out of date.
    match itself::role().as_deref() {
        Some(stage::STORER) => label_storage_runtime::main::<storer::Args>(std::env::args_os()),
        Some(stage::RESTORER) => label_storage_runtime::main::<restorer::Args>(std::env::args_os()),
        Some(status::PLUGIN) => kubectl_plugin::main(std::env::args_os()),
        Some(probe::PROBE) => {
            let arguments: Vec<String> = std::env::args().skip(1).collect();
            probe::main(&arguments)
        }
        _ => match run::run(&Arguments::parse()) {
            Ok(code) => code,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn scenarios_are_chosen_with_commas_or_one_by_one() {
        for line in ["bench --only poll,mass-return", "bench --only poll --only mass-return"] {
            let arguments = Arguments::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(arguments.only, [Scenario::Poll, Scenario::MassReturn], "{line}");
            assert!(arguments.includes(Scenario::Poll) && !arguments.includes(Scenario::Latency), "{line}");
        }
        assert!(Arguments::try_parse_from(["bench"]).unwrap().includes(Scenario::Replicas));
        assert!(Arguments::try_parse_from(["bench", "--only", "pol"]).is_err());
    }
}
