//! The figures of a run, as in the JSON file. Tables and plots are made from them.

mod limit;
mod picture;

use serde::Serialize;

#[cfg(test)]
pub(crate) use self::limit::Verdict;
pub(crate) use self::limit::{Limit, Unit};
pub(crate) use self::picture::{Drawn, Evaluated, Line, Picture};
use crate::probe::{Cost, Way};
use crate::process::total_memory;
use crate::stats::{Latencies, ratio};

/// All figures of one run. Measurements that were not requested are empty.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// The largest size that was requested.
    pub(crate) nodes: u32,
    pub(crate) computer: Computer,
    pub(crate) poll: Vec<Polled>,
    pub(crate) light: Vec<Light>,
    pub(crate) mass_return: Vec<MassReturn>,
    pub(crate) concurrency: Vec<Restoring>,
    pub(crate) cold_start: Option<ColdStart>,
    pub(crate) latency: Option<Load>,
    pub(crate) replicas: Vec<Load>,
    pub(crate) idle: Option<IdleRequests>,
    pub(crate) take_over: Vec<TakeOver>,
    pub(crate) picture: Option<Picture>,
    pub(crate) status: Vec<StatusCost>,
    pub(crate) port: Vec<PortCost>,
    pub(crate) must_reach: Vec<Limit>,
    /// The measurements that failed, each with the reason.
    pub(crate) failures: Vec<String>,
}

/// The machine that the control plane, the daemons and the bench share.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Computer {
    pub(crate) cores: usize,
    /// Bytes.
    pub(crate) memory: u64,
}

impl Computer {
    pub(crate) fn this() -> anyhow::Result<Self> {
        Ok(Self { cores: std::thread::available_parallelism()?.get(), memory: total_memory()? })
    }
}

/// One way to list all Nodes, at one size.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Polled {
    pub(crate) nodes: u32,
    pub(crate) way: Way,
    /// Each figure is the median of this many rounds.
    pub(crate) rounds: usize,
    #[serde(flatten)]
    pub(crate) cost: Cost,
}

/// The cost at this number of Nodes with only metadata, each with a record.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Light {
    pub(crate) nodes: u32,
    pub(crate) poll: Cost,
    /// One storer and one restorer that have listed everything.
    pub(crate) idle: Window,
}

/// All Nodes deleted and re-created. All times are in seconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct MassReturn {
    pub(crate) nodes: usize,
    /// The creates, while both daemons run.
    pub(crate) creating: f64,
    /// From the answer to the last create to the last label, while both daemons run.
    pub(crate) last_label: f64,
    pub(crate) cost: ServerCost,
    pub(crate) storer: Growth,
    pub(crate) restorer: Growth,
    /// `None` if this would take too long.
    pub(crate) compared: Option<Compared>,
}

/// The parts of a mass return, measured separately.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Compared {
    /// The creates alone, without daemons.
    pub(crate) bare_creates: Part,
    /// The patches that restore all Nodes, sent by the bench without daemons: from the first Node patched to the last.
    pub(crate) bare_patches: Part,
    /// From the first Node restored to the last, by a restorer that started after the last create.
    pub(crate) held_back: Part,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Part {
    pub(crate) seconds: f64,
    pub(crate) cost: ServerCost,
}

/// The CPU time of the API server, in seconds, and the requests that it answered.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct ServerCost {
    pub(crate) cpu: f64,
    pub(crate) gets: f64,
    pub(crate) lists: f64,
    pub(crate) writes: f64,
}

impl MassReturn {
    /// From the first create to the last label, while both daemons run.
    pub(crate) fn full_speed(&self) -> f64 {
        self.creating + self.last_label
    }

    /// The same, as a ratio to the creates and the patches without daemons.
    pub(crate) fn full_speed_ratio(&self) -> Option<f64> {
        let Compared { bare_creates, bare_patches, .. } = self.compared?;
        ratio(self.full_speed(), bare_creates.seconds + bare_patches.seconds)
    }

    pub(crate) fn held_back_ratio(&self) -> Option<f64> {
        let Compared { bare_patches, held_back, .. } = self.compared?;
        ratio(held_back.seconds, bare_patches.seconds)
    }
}

/// The peak memory of a process before and after a mass return, in bytes.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Growth {
    /// When all records are loaded, before the first delete.
    pub(crate) before: u64,
    /// When all records are of the new Nodes.
    pub(crate) after: u64,
}

impl Growth {
    pub(crate) fn bytes(self) -> u64 {
        self.after.saturating_sub(self.before)
    }
}

/// The server that a restorer is measured with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Server {
    Direct,
    /// Each call takes 100 ms longer.
    Slow,
}

impl Server {
    pub(crate) const ALL: [Self; 2] = [Self::Direct, Self::Slow];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Slow => "100 ms more a call",
        }
    }
}

/// The time that one restorer takes for many Nodes without their labels.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Restoring {
    pub(crate) nodes: usize,
    pub(crate) server: Server,
    /// The number of concurrent Nodes; `None` for the adaptive limit.
    pub(crate) limit: Option<u32>,
    /// From the first Node restored to the last.
    pub(crate) seconds: f64,
    /// `seconds` is the median of this many rounds.
    pub(crate) rounds: usize,
}

/// The first records of all Nodes. All times are in seconds from the first record to the last.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct ColdStart {
    pub(crate) nodes: usize,
    pub(crate) storing: f64,
    /// The same records, created by the bench itself.
    pub(crate) creating: f64,
    /// From the start of the storer to the first record.
    pub(crate) first: f64,
    pub(crate) storing_cost: ServerCost,
    pub(crate) creating_cost: ServerCost,
}

/// Several storers and restorers, idle and under status updates.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Load {
    pub(crate) nodes: u32,
    /// Replicas of each daemon.
    pub(crate) replicas: u32,
    pub(crate) idle: Window,
    pub(crate) busy: Window,
    /// From a label change to its event on the bench's own watch, under updates: the part of the API server.
    pub(crate) echo: Option<Latencies>,
    /// From a label change to the record with that label, under updates.
    pub(crate) label_change: Option<Latencies>,
    /// From the create of a Node to its restored labels, under updates.
    pub(crate) back: Option<Latencies>,
}

/// The requests of idle storers and restorers.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct IdleRequests {
    pub(crate) nodes: usize,
    /// Replicas of each daemon.
    pub(crate) replicas: u32,
    pub(crate) requests: Vec<Requests>,
}

impl IdleRequests {
    /// The requests per minute of all daemons.
    pub(crate) fn total(&self) -> f64 {
        self.requests.iter().map(Requests::of_daemons).sum()
    }
}

/// Requests per minute of one kind, as the API server counts them.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Requests {
    pub(crate) verb: String,
    pub(crate) resource: String,
    pub(crate) with: f64,
    /// Requests without daemons: of the API server itself and of the bench.
    pub(crate) without: f64,
}

impl Requests {
    pub(crate) fn of_daemons(&self) -> f64 {
        self.with - self.without
    }
}

/// Replicas that ended in one way: the time from the signal to the first effect of another replica.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct TakeOver {
    pub(crate) daemon: &'static str,
    pub(crate) signal: &'static str,
    pub(crate) nodes: usize,
    pub(crate) times: Latencies,
}

/// A program that shows all Nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Program {
    /// The plugin.
    Status,
    /// kubectl itself.
    GetNodes,
}

impl Program {
    pub(crate) const ALL: [Self; 2] = [Self::Status, Self::GetNodes];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Status => "kubectl-label_storage status",
            Self::GetNodes => "kubectl get nodes",
        }
    }
}

/// The cost of one of these programs, from its start to its end.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct StatusCost {
    pub(crate) nodes: u32,
    pub(crate) program: Program,
    /// Each figure is the median of this many rounds.
    pub(crate) rounds: usize,
    #[serde(flatten)]
    pub(crate) cost: ProgramCost,
}

/// A command that reads or writes an export of all records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ported {
    /// Writes all records to a file.
    Export,
    /// Checks the file, and compares it with the stored records.
    DryRun,
    /// The same, and creates all records.
    Import,
    /// Compares the file with stored records that are all equal.
    Again,
}

impl Ported {
    pub(crate) const ALL: [Self; 4] = [Self::Export, Self::DryRun, Self::Import, Self::Again];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Export => "export",
            Self::DryRun => "import --dry-run",
            Self::Import => "import",
            Self::Again => "import --dry-run, all unchanged",
        }
    }
}

/// The cost of one of these commands, from its start to its end.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct PortCost {
    pub(crate) records: u32,
    pub(crate) what: Ported,
    /// Each figure is the median of this many rounds.
    pub(crate) rounds: usize,
    #[serde(flatten)]
    pub(crate) cost: ProgramCost,
}

/// The cost of one run of a program.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct ProgramCost {
    /// Seconds.
    pub(crate) wall: f64,
    /// Seconds.
    pub(crate) cpu: f64,
    /// Seconds of the API server.
    pub(crate) server_cpu: f64,
    /// Peak memory, in bytes.
    pub(crate) peak: f64,
}

/// The CPU and memory of all processes over some time.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Window {
    pub(crate) seconds: f64,
    /// The rate of status updates that was reached.
    pub(crate) updates_per_second: f64,
    pub(crate) storers: Usage,
    pub(crate) restorers: Usage,
    pub(crate) api_server: Usage,
    /// The other processes on the machine.
    pub(crate) etcd: Usage,
    pub(crate) bench: Usage,
}

/// The CPU and memory of all processes of one kind.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Usage {
    /// CPU as a share of one core, all of them together.
    pub(crate) cpu: f64,
    /// The same for the process that used most.
    pub(crate) max_cpu: f64,
    /// Bytes at the end, all of them together.
    pub(crate) rss: u64,
    /// Peak memory of the process that used most, in bytes, since its start.
    pub(crate) max_peak: u64,
}

impl Report {
    /// The ratio to the best fixed limit with the same server and number of Nodes.
    pub(crate) fn to_best_fixed(&self, restoring: &Restoring) -> Option<f64> {
        let alike = |other: &&Restoring| other.nodes == restoring.nodes && other.server == restoring.server;
        let fixed = self.concurrency.iter().filter(alike).filter(|other| other.limit.is_some());
        ratio(restoring.seconds, fixed.map(|other| other.seconds).min_by(f64::total_cmp)?)
    }

    /// The cost of one way at one size.
    pub(crate) fn cost(&self, way: Way, nodes: u32) -> Option<Cost> {
        self.poll.iter().find(|polled| polled.way == way && polled.nodes == nodes).map(|polled| polled.cost)
    }

    /// The sizes at which polls were measured, in order.
    pub(crate) fn poll_sizes(&self) -> Vec<u32> {
        let mut sizes: Vec<u32> = self.poll.iter().map(|polled| polled.nodes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}
