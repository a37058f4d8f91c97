//! The cost of running daemons, idle and under status updates, and their latency meanwhile.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use sandbox::process::Guarded;
use sandbox::progress::Progress;

use crate::Arguments;
use crate::cold_start::NAMESPACE;
use crate::process::Process;
use crate::report::{Load, Usage, Window};
use crate::stage::{RESTORER, STORER, Stage};
use crate::stats::Latencies;
use crate::trials;
use crate::updates::Updates;

/// The pause before a measurement.
pub(crate) const SETTLE: Duration = Duration::from_secs(5);

/// Needs the records of all Nodes. Starts new storers and restorers, so that their peak memory is that of loading and watching all
/// records, not that of writing them.
pub(crate) async fn measure(
    stage: &mut Stage,
    replicas: u32,
    trials: u32,
    arguments: &Arguments,
) -> anyhow::Result<Load> {
    let nodes = u32::try_from(stage.nodes.len())?;
    let window = Duration::from_secs(arguments.window);
    eprintln!("{replicas} storers and {replicas} restorers at {nodes} nodes");
    let mut daemons = Daemons { storers: Vec::new(), restorers: Vec::new() };
    for index in 0..replicas {
        daemons.storers.push(stage.daemon(STORER, NAMESPACE, index, replicas)?);
        daemons.restorers.push(stage.daemon(RESTORER, NAMESPACE, index, replicas)?);
    }
    let all: Vec<&Guarded> = daemons.storers.iter().chain(&daemons.restorers).collect();

    // One effect of each replica is awaited, so that all replicas have loaded their data.
    if let Some(replicas) = NonZeroU32::new(replicas) {
        let probed = trials::one_per_replica(nodes, replicas);
        trials::label_changes(stage, NAMESPACE, &probed, &all).await?;
        trials::returns(stage, &probed, &all).await?;
    }
    tokio::time::sleep(SETTLE).await;
    stage.calm().await?;

    let meter = Meter::start(stage, &daemons)?;
    pass_time("idle, seconds", window).await;
    stage.check(&all)?;
    let idle = meter.stop(0.0)?;

    let updates = Updates::start(&stage.cluster, nodes, arguments.updates);
    tokio::time::sleep(SETTLE).await;
    let meter = Meter::start(stage, &daemons)?;
    let (began, before) = (Instant::now(), updates.done());
    let echoed = trials::spread(nodes, trials, 3);
    let echo = Latencies::of(trials::echoes(stage, &echoed, &all).await?);
    let (mut label_change, mut back) = (None, None);
    if replicas > 0 {
        let changed = trials::spread(nodes, trials, 1);
        label_change = Latencies::of(trials::label_changes(stage, NAMESPACE, &changed, &all).await?);
        let returned = trials::spread(nodes, trials.min(nodes / 8), 2);
        back = Latencies::of(trials::returns(stage, &returned, &all).await?);
    }
    pass_time("under updates, seconds", window.saturating_sub(began.elapsed())).await;
    stage.check(&all)?;
    let rate = (updates.done() - before) as f64 / began.elapsed().as_secs_f64();
    let busy = meter.stop(rate)?;
    Ok(Load { nodes, replicas, idle, busy, echo, label_change, back })
}

pub(crate) async fn pass_time(what: &str, time: Duration) {
    let seconds = time.as_secs();
    let mut progress = Progress::new(what, seconds);
    for second in 1..=seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        progress.set(second);
    }
    progress.clear();
}

/// All replicas that are measured.
pub(crate) struct Daemons {
    pub(crate) storers: Vec<Guarded>,
    pub(crate) restorers: Vec<Guarded>,
}

/// The CPU time of some processes between two moments.
pub(crate) struct Meter {
    began: Instant,
    storers: Group,
    restorers: Group,
    api_server: Group,
    etcd: Group,
    bench: Group,
}

impl Meter {
    pub(crate) fn start(stage: &Stage, daemons: &Daemons) -> anyhow::Result<Self> {
        let group = |daemons: &[Guarded]| Group::new(daemons.iter().map(|daemon| Process(daemon.pid())));
        Ok(Self {
            storers: group(&daemons.storers)?,
            restorers: group(&daemons.restorers)?,
            api_server: Group::new([stage.api_server()])?,
            etcd: Group::new([Process(stage.sandbox.etcd().pid())])?,
            bench: Group::new([Process(std::process::id())])?,
            began: Instant::now(),
        })
    }

    pub(crate) fn stop(self, rate: f64) -> anyhow::Result<Window> {
        let time = self.began.elapsed();
        Ok(Window {
            seconds: time.as_secs_f64(),
            updates_per_second: rate,
            storers: self.storers.usage(time)?,
            restorers: self.restorers.usage(time)?,
            api_server: self.api_server.usage(time)?,
            etcd: self.etcd.usage(time)?,
            bench: self.bench.usage(time)?,
        })
    }
}

/// Processes of one kind, and the CPU time that each had used when the measurement began.
struct Group(Vec<(Process, Duration)>);

impl Group {
    fn new(processes: impl IntoIterator<Item = Process>) -> anyhow::Result<Self> {
        let with_cpu = |process: Process| Ok((process, process.cpu()?));
        processes.into_iter().map(with_cpu).collect::<anyhow::Result<_>>().map(Self)
    }

    fn usage(&self, time: Duration) -> anyhow::Result<Usage> {
        let mut usage = Usage::default();
        for (process, before) in &self.0 {
            let cpu = (process.cpu()?.saturating_sub(*before)).as_secs_f64() / time.as_secs_f64();
            let memory = process.memory()?;
            usage.cpu += cpu;
            usage.max_cpu = usage.max_cpu.max(cpu);
            usage.rss += memory.rss;
            usage.max_peak = usage.max_peak.max(memory.peak);
        }
        Ok(usage)
    }
}
