//! The figures of a run: the JSON file has these, and the tables and plots are made from them.

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

/// All that one run has measured. What was not asked for is empty.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// The largest size that was asked for.
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
    /// Each figure is the median of so many.
    pub(crate) rounds: usize,
    #[serde(flatten)]
    pub(crate) cost: Cost,
}

/// So many Nodes of metadata alone, each with its record.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Light {
    pub(crate) nodes: u32,
    pub(crate) poll: Cost,
    /// One storer and one restorer that have listed everything.
    pub(crate) idle: Window,
}

/// All Nodes gone and back. Seconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct MassReturn {
    pub(crate) nodes: usize,
    /// The creates, with both daemons at work.
    pub(crate) creating: f64,
    /// From the answer to the last create to the last label, with both daemons at work.
    pub(crate) last_label: f64,
    pub(crate) cost: ServerCost,
    pub(crate) storer: Growth,
    pub(crate) restorer: Growth,
    /// `None` for a size at which this would take too long.
    pub(crate) compared: Option<Compared>,
}

/// The parts of a mass return, one by one.
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
    /// From the first create to the last label, with both daemons at work.
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
    /// With all records loaded, before the first delete.
    pub(crate) before: u64,
    /// When all records are of the new Nodes.
    pub(crate) after: u64,
}

impl Growth {
    pub(crate) fn bytes(self) -> u64 {
        self.after.saturating_sub(self.before)
    }
}

/// The server of one restorer.
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

/// One restorer that finds many Nodes without their labels.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Restoring {
    pub(crate) nodes: usize,
    pub(crate) server: Server,
    /// The number of Nodes at the same time; `None` where the restorer finds it.
    pub(crate) limit: Option<u32>,
    /// From the first Node restored to the last.
    pub(crate) seconds: f64,
    /// `seconds` is the median of so many.
    pub(crate) rounds: usize,
}

/// The first records of all Nodes. Seconds from the first to the last.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct ColdStart {
    pub(crate) nodes: usize,
    pub(crate) storing: f64,
    /// The same for the same records by hand.
    pub(crate) creating: f64,
    /// From the start of the storer to the first record.
    pub(crate) first: f64,
    pub(crate) storing_cost: ServerCost,
    pub(crate) creating_cost: ServerCost,
}

/// So many storers and restorers, idle and under status updates.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Load {
    pub(crate) nodes: u32,
    /// Of each of the two.
    pub(crate) replicas: u32,
    pub(crate) idle: Window,
    pub(crate) busy: Window,
    /// From a label change to the bench's own watch of Nodes that shows it, under updates: what the API server needs.
    pub(crate) echo: Option<Latencies>,
    /// From a label change to the record that has it, under updates.
    pub(crate) label_change: Option<Latencies>,
    /// From the create of a Node to its labels on it, under updates.
    pub(crate) back: Option<Latencies>,
}

/// The requests of storers and restorers that have nothing to do.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct IdleRequests {
    pub(crate) nodes: usize,
    /// Of each of the two.
    pub(crate) replicas: u32,
    pub(crate) requests: Vec<Requests>,
}

impl IdleRequests {
    /// The requests a minute of all daemons.
    pub(crate) fn total(&self) -> f64 {
        self.requests.iter().map(Requests::of_daemons).sum()
    }
}

/// Requests a minute of one kind, as the API server counts them.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Requests {
    pub(crate) verb: String,
    pub(crate) resource: String,
    pub(crate) with: f64,
    /// The API server's own and the bench's.
    pub(crate) without: f64,
}

impl Requests {
    pub(crate) fn of_daemons(&self) -> f64 {
        self.with - self.without
    }
}

/// Replicas that ended in one way: from the signal to the first effect of another replica's work.
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

/// The cost of one of them, from its start to its end.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct StatusCost {
    pub(crate) nodes: u32,
    pub(crate) program: Program,
    /// Each figure is the median of so many.
    pub(crate) rounds: usize,
    #[serde(flatten)]
    pub(crate) cost: ProgramCost,
}

/// A command that reads or writes a file of all records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ported {
    /// All records are written to it.
    Export,
    /// It is checked, and compared with what there is.
    DryRun,
    /// The same, and all records of it are made.
    Import,
    /// It is compared with what there is, which is the same.
    Again,
}

impl Ported {
    pub(crate) const ALL: [Self; 4] = [Self::Export, Self::DryRun, Self::Import, Self::Again];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Export => "export",
            Self::DryRun => "import --dry-run",
            Self::Import => "import",
            Self::Again => "import --dry-run, all there",
        }
    }
}

/// The cost of that, from its start to its end.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct PortCost {
    pub(crate) records: u32,
    pub(crate) what: Ported,
    /// Each figure is the median of so many.
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
    /// Bytes at its peak.
    pub(crate) peak: f64,
}

/// The use of the machine by all processes over some time.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Window {
    pub(crate) seconds: f64,
    /// The rate of status updates that was reached.
    pub(crate) updates_per_second: f64,
    pub(crate) storers: Usage,
    pub(crate) restorers: Usage,
    pub(crate) api_server: Usage,
    /// The rest of what shares the machine with them.
    pub(crate) etcd: Usage,
    pub(crate) bench: Usage,
}

/// The use of the machine by processes of one kind.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Usage {
    /// CPU as a share of one core, all of them together.
    pub(crate) cpu: f64,
    /// The same of the one that used most.
    pub(crate) max_cpu: f64,
    /// Bytes at the end, all of them together.
    pub(crate) rss: u64,
    /// Bytes at the peak of the one that held most, since it began.
    pub(crate) max_peak: u64,
}

impl Report {
    /// As a ratio to the best fixed limit with the same server and as many Nodes.
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
