//! The control plane, its Nodes, and the daemons, each in a separate process.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use sandbox::process::Guarded;
use sandbox::progress::Progress;
use sandbox::{Options, Sandbox, itself};

use crate::cluster::{AT_ONCE, Cluster, each};
use crate::machine::{Dress, Machine};
use crate::meta::Meta;
use crate::process::Process;
use crate::watch::{Sight, Watch};

/// The role in which this binary is a storer.
pub(crate) const STORER: &str = "storer";
/// The role in which this binary is a restorer.
pub(crate) const RESTORER: &str = "restorer";

/// The log message of a daemon that has listed all Nodes and records.
pub(crate) const LISTED: &str = "listed all nodes and records";

/// A wait fails if nothing happens for this long.
const SILENCE: Duration = Duration::from_secs(180);
/// The interval at which a log is read.
const LOOK: Duration = Duration::from_millis(50);
/// The interval of checks that all processes still run.
const CHECK: Duration = Duration::from_secs(1);
/// Between two measurements, the bench waits until the API server uses less than this share of a core...
const CALM: f64 = 0.15;
/// ...over this time...
const CALM_FOR: Duration = Duration::from_millis(500);
/// ...or until this time has passed.
const CALM_LIMIT: Duration = Duration::from_secs(15);

pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) sandbox: Sandbox,
    /// The Nodes by machine. The machines with a Node are always the first ones.
    pub(crate) nodes: HashMap<Machine, Meta>,
    /// True if each Node has a record.
    pub(crate) stored: bool,
    /// The number of Nodes with only metadata.
    pub(crate) light: u32,
    /// The number of daemons that were started, for the names of their logs.
    started: u32,
    /// The folder of the storer and restorer binaries; `None` for those in this program.
    daemons: Option<PathBuf>,
}

impl Stage {
    pub(crate) async fn set_up(daemons: Option<PathBuf>) -> anyhow::Result<Self> {
        let options = Options {
            // A list of the largest size may take longer than the default of one minute.
            api_server_args: vec!["--request-timeout=10m".to_owned()],
            ..Options::default()
        };
        let sandbox = tokio::task::spawn_blocking(|| Sandbox::start(options)).await??;
        let cluster = Cluster::connect(sandbox.kubeconfig()).await?;
        Ok(Self { cluster, sandbox, nodes: HashMap::new(), stored: false, light: 0, started: 0, daemons })
    }

    pub(crate) fn api_server(&self) -> Process {
        Process(self.sandbox.api_server().pid())
    }

    /// Adds Nodes until there are `count`, with all their labels.
    pub(crate) async fn grow(&mut self, count: u32) -> anyhow::Result<()> {
        let missing: Vec<Machine> =
            Machine::first(count).into_iter().filter(|machine| !self.nodes.contains_key(machine)).collect();
        self.create(&missing, Dress::Whole).await.map(drop)
    }

    /// Creates the Nodes of these machines. Returns the time of the answer to the last create.
    pub(crate) async fn create(&mut self, machines: &[Machine], dress: Dress) -> anyhow::Result<Instant> {
        if machines.is_empty() {
            return Ok(Instant::now());
        }
        let cluster = self.cluster.clone();
        let create = async |machine: Machine| Ok((machine, cluster.create_node(machine, dress).await?));
        let created = each("creating nodes", machines, AT_ONCE, create).await;
        let answered = Instant::now();
        for (machine, meta) in created? {
            // The labels follow from the machine. Without them, 100,000 Nodes take less memory.
            let (labels, annotations) = Default::default();
            self.nodes.insert(machine, Meta { labels, annotations, ..meta });
        }
        Ok(answered)
    }

    /// Deletes the Nodes of these machines.
    pub(crate) async fn delete(&mut self, machines: &[Machine]) -> anyhow::Result<()> {
        let cluster = self.cluster.clone();
        each("deleting nodes", machines, AT_ONCE, async |machine| cluster.delete_node(machine).await).await?;
        for machine in machines {
            self.nodes.remove(machine);
        }
        Ok(())
    }

    /// After a failure: makes sure that there are `count` Nodes again, with all their labels.
    pub(crate) async fn repair(&mut self, count: u32) -> anyhow::Result<()> {
        let found = self.cluster.nodes().await?;
        let (whole, damaged): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(machine, node)| machine.is_whole(&node.labels));
        let damaged: Vec<Machine> = damaged.into_iter().map(|(machine, _)| machine).collect();
        self.delete(&damaged).await?;
        self.nodes = whole.into_iter().collect();
        self.grow(count).await
    }

    /// Starts a daemon with the default values of all other flags.
    pub(crate) fn daemon(
        &mut self,
        kind: &str,
        namespace: &str,
        index: u32,
        replicas: u32,
    ) -> anyhow::Result<Guarded> {
        self.daemon_with(kind, namespace, index, replicas, &[])
    }

    /// The same, with additional flags.
    pub(crate) fn daemon_with(
        &mut self,
        kind: &str,
        namespace: &str,
        index: u32,
        replicas: u32,
        flags: &[&str],
    ) -> anyhow::Result<Guarded> {
        let kubeconfig = self.sandbox.kubeconfig().to_owned();
        self.daemon_through(&kubeconfig, kind, namespace, (index, replicas), flags)
    }

    /// The same, with another kubeconfig.
    pub(crate) fn daemon_through(
        &mut self,
        kubeconfig: &Path,
        kind: &str,
        namespace: &str,
        (index, replicas): (u32, u32),
        flags: &[&str],
    ) -> anyhow::Result<Guarded> {
        let kubeconfig = Some(kubeconfig);
        let mut command = match &self.daemons {
            Some(folder) => itself::other(&folder.join(kind), kind, kubeconfig),
            None => itself::command(kind, kubeconfig).context("can't find this program's own file")?,
        };
        command.args(["--namespace", namespace]);
        command.args(["--replica-index", &index.to_string(), "--replicas", &replicas.to_string()]);
        command.args(flags);
        self.started += 1;
        let log = self.sandbox.data_folder().join(format!("{:02}-{kind}-{index}.log", self.started));
        Ok(Guarded::spawn(&format!("{kind}-{index}"), &command, &log)?)
    }

    /// An error if a process has ended unexpectedly.
    pub(crate) fn check(&self, daemons: &[&Guarded]) -> anyhow::Result<()> {
        self.sandbox.check()?;
        for daemon in daemons {
            if let Some(exit) = daemon.try_wait() {
                let (name, tail) = (daemon.name(), daemon.log_tail(5));
                anyhow::bail!("{name} ended unexpectedly ({exit}); the last lines of its log:\n{tail}");
            }
        }
        Ok(())
    }

    /// Waits until a daemon has logged this.
    pub(crate) async fn await_log(&self, daemon: &Guarded, text: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        while !std::fs::read_to_string(daemon.log()).unwrap_or_default().contains(text) {
            self.check(&[daemon])?;
            anyhow::ensure!(began.elapsed() < SILENCE, "{} has not logged {text:?}", daemon.name());
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits until the watch has shown an event for which `counts` is true of `total` machines. Returns the times of the first and the
    /// last one.
    pub(crate) async fn see_all(
        &self,
        what: &str,
        total: usize,
        watch: &mut Watch,
        daemons: &[&Guarded],
        counts: impl Fn(&Sight) -> bool,
    ) -> anyhow::Result<Span> {
        let mut progress = Progress::new(what, total as u64);
        let mut seen: HashMap<Machine, Instant> = HashMap::with_capacity(total);
        let mut check = tokio::time::interval(CHECK);
        let mut last_news = Instant::now();
        while seen.len() < total {
            tokio::select! {
                sight = watch.next() => {
                    let sight = sight?;
                    if counts(&sight) {
                        seen.entry(sight.machine).or_insert(sight.at);
                        last_news = Instant::now();
                        progress.set(seen.len() as u64);
                    }
                }
                _ = check.tick() => {
                    self.check(daemons)?;
                    let so_far = seen.len();
                    anyhow::ensure!(
                        last_news.elapsed() < SILENCE,
                        "{what}: {so_far} of {total}, no progress for {} s", SILENCE.as_secs()
                    );
                }
            }
        }
        progress.clear();
        let (first, last) = (seen.values().min().copied(), seen.values().max().copied());
        let now = Instant::now();
        Ok(Span { first: first.unwrap_or(now), last: last.unwrap_or(now) })
    }

    /// Waits until the API server is idle (see [`CALM`]).
    pub(crate) async fn calm(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut before = self.api_server().cpu()?;
        while began.elapsed() < CALM_LIMIT {
            tokio::time::sleep(CALM_FOR).await;
            let now = self.api_server().cpu()?;
            if (now - before).as_secs_f64() < CALM * CALM_FOR.as_secs_f64() {
                break;
            }
            before = now;
        }
        Ok(())
    }
}

/// The times of the first and the last of many events.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) first: Instant,
    pub(crate) last: Instant,
}

impl Span {
    pub(crate) fn seconds(self) -> f64 {
        (self.last - self.first).as_secs_f64()
    }
}
