//! `bench`: the cost of Label Storage, beside the least that it could cost, on a private control plane.
//!
//! ```text
//!   main ── run: from the smallest size to the largest, on one control plane
//!     ├─ stage: etcd, kube-apiserver, the daemons (this binary again, as processes of their own)
//!     │    ├─ machine: Nodes as they are in life      ├─ cluster: the bench's own calls
//!     │    └─ process: what /proc says of a process   └─ watch: its own eyes
//!     ├─ poll ─ probe: one way to list, in a process of its own ─ ours: this project's
//!     ├─ mass_return, concurrency, cold_start
//!     ├─ take_over, idle
//!     ├─ light: up to a million Nodes of metadata alone
//!     ├─ picture: a mass return as Prometheus sees it
//!     ├─ status: the plugin beside kubectl; port: its export and import
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

/// Measures the cost of Label Storage, beside the least that it could cost.
///
/// Runs a private Kubernetes control plane (see `sandbox --help` for where its binaries come from) with nodes as they
/// are in life, and the real daemons, all as processes on this machine that end with this one. No other cluster is
/// touched. Figures go to stdout as a table, how far it is to stderr. 100,000 nodes take 22 GB of memory, of which the API
/// server has two thirds (GOMEMLIMIT=14GiB in the environment keeps it to that); with --nodes 10000 it is 8 GB.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Arguments {
    /// The largest number of nodes; smaller sizes are measured on the way there
    #[arg(long, env = "BENCH_NODES", value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    nodes: u32,

    /// Measure at these numbers of nodes instead, separated by commas; the largest replaces --nodes
    #[arg(long, env = "BENCH_AT", value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    at: Vec<u32>,

    /// Measure only these, separated by commas [default: all]
    #[arg(long, env = "BENCH_ONLY", value_name = "WHAT", value_delimiter = ',')]
    only: Vec<Scenario>,

    /// Measure the poll and idle daemons alone, with nodes that have nothing but metadata: a million of them fit where
    /// 100,000 whole ones do
    #[arg(long, env = "BENCH_LIGHT", conflicts_with = "only")]
    light: bool,

    /// Measure each latency this many times
    #[arg(long, env = "BENCH_TRIALS", value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    trials: u32,

    /// Send this many node status updates a second while latencies are measured
    #[arg(long, env = "BENCH_UPDATES", value_name = "RATE", default_value_t = 333, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    updates: u32,

    /// For how many seconds the use of CPU is measured, each time
    #[arg(long, env = "BENCH_WINDOW", value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    window: u64,

    /// Measure the storer and the restorer in this folder, as they are shipped [default: those in this program, which is larger]
    #[arg(long, env = "BENCH_DAEMONS", value_name = "DIR")]
    daemons: Option<PathBuf>,

    /// Write all figures to this file, as JSON
    #[arg(long, env = "BENCH_JSON", value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write plots of cost against nodes, and the picture, to this folder, as SVG
    #[arg(long, env = "BENCH_PLOTS", value_name = "DIR")]
    plots: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// One list of all nodes, beside other ways to list them
    Poll,
    /// All nodes deleted and re-created
    MassReturn,
    /// One restorer with the limit that it finds, and with fixed ones, on a fast and on a slow server
    Concurrency,
    /// A storer that finds no records
    ColdStart,
    /// Single changes under status updates, and what the daemons use meanwhile
    Latency,
    /// The same with 0, 1, 2 and 4 replicas
    Replicas,
    /// The requests of two storers and two restorers that have nothing to do
    Idle,
    /// Replicas that are killed or asked to end, until others do their work
    TakeOver,
    /// A mass return as the dashboard shows it, from a real Prometheus, and what the daemons use meanwhile
    Picture,
    /// `kubectl label-storage status`, beside `kubectl get nodes`
    Status,
    /// `kubectl label-storage export` and `import` of all records
    Port,
}

impl Arguments {
    /// The largest number of nodes.
    pub(crate) fn largest(&self) -> u32 {
        self.at.iter().copied().max().unwrap_or(self.nodes)
    }

    pub(crate) fn includes(&self, scenario: Scenario) -> bool {
        self.only.is_empty() || self.only.contains(&scenario)
    }
}

fn main() -> ExitCode {
    // The daemons and the measuring processes are this same binary: one build, and none of them can be an older one.
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
