//! `soak`: random histories of thousands of Nodes under faults.

use std::io::IsTerminal;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{ArgAction, Parser};
use indicatif::{ProgressBar, ProgressStyle};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use label_storage::Rules;
use label_storage_runtime::args::duration;
use label_storage_runtime::rules_file;
use sandbox::{Options, Sandbox, itself};
use soak::object::Place;
use soak::weather::Climate;
use soak::{Report, Settings, Stage, Status, rules};

/// The namespace of the records.
const NAMESPACE: &str = "label-storage";

/// The interval of progress lines without a terminal.
const LINE: Duration = Duration::from_secs(30);

/// Test the guarantees of Label Storage with random changes and faults
///
/// Starts a private Kubernetes control plane (`sandbox --help` explains where its binaries come from) and the real daemons on this
/// machine. All processes end with this one. No other cluster is used.
///
/// Storms and calms alternate. In a storm, nodes are labelled, deleted and re-created at random, while daemons are killed and suspended,
/// requests fail, the API server and etcd go down, and the number of replicas changes. In a calm, there are no faults, and every label of
/// every node must reach its expected value. The exit code is 0 only if no guarantee was broken.
///
/// The same seed draws the same rules, changes, storms and faults. Their interleaving differs from run to run.
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  cargo run --release --bin soak -- --duration 10m
  cargo run --release --bin soak -- --duration 10m --seed 7 --json soak.json"
)]
struct Arguments {
    /// Duration of all storms and calms, without the last calm
    #[arg(long, env = "SOAK_DURATION", value_name = "TIME", default_value = "60m", value_parser = duration)]
    duration: Duration,

    /// Seed of the random numbers [default: a new one, which is printed]
    #[arg(long, env = "SOAK_SEED", value_name = "N")]
    seed: Option<u64>,

    /// Rules of the daemons: `default`, `random` (drawn from the seed), or a file
    #[arg(long, env = "SOAK_RULES", value_name = "RULES", default_value = "random")]
    rules: Choice,

    /// Number of nodes
    #[arg(long, env = "SOAK_NODES", value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    nodes: u32,

    /// Number of storers, and of restorers, at the start
    #[arg(long, env = "SOAK_REPLICAS", value_name = "N", default_value = "3")]
    replicas: NonZeroU32,

    /// Let the daemons watch. With false, they only list
    #[arg(long, env = "SOAK_WATCH", value_name = "BOOL", default_value_t = true, action = ArgAction::Set,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    watch: bool,

    /// Changes of nodes per second, in a storm
    #[arg(long, env = "SOAK_RATE", value_name = "RATE", default_value_t = 50.0)]
    rate: f64,

    /// Duration of a storm
    #[arg(long, env = "SOAK_STORM", value_name = "TIME", default_value = "4m", value_parser = duration)]
    storm: Duration,

    /// Time limit for reaching the expected state after a storm, once all daemons are up. Nodes may wait for final labels for 2 minutes
    #[arg(long, env = "SOAK_PATIENCE", value_name = "TIME", default_value = "5m", value_parser = duration)]
    patience: Duration,

    /// Average time between two kills, outages or other blows
    #[arg(long, env = "SOAK_PAUSE", value_name = "TIME", default_value = "6s", value_parser = duration)]
    pause: Duration,

    /// Share of the daemons' requests that fail in storms with faults, from 0 to 1
    #[arg(long, env = "SOAK_FAULTS", value_name = "SHARE", default_value_t = 0.05)]
    faults: f64,

    /// Least time for which a daemon is suspended; it should be longer than its lease
    #[arg(long, env = "SOAK_SUSPENSION", value_name = "TIME", default_value = "16s", value_parser = duration)]
    suspension: Duration,

    /// Kill the API server and etcd, too
    #[arg(long, env = "SOAK_OUTAGES", value_name = "BOOL", default_value_t = true, action = ArgAction::Set,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    outages: bool,

    /// Change the number of replicas, too
    #[arg(long, env = "SOAK_RESIZING", value_name = "BOOL", default_value_t = true, action = ArgAction::Set,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    resizing: bool,

    /// Number of measurements of the latencies of storing and restoring after each storm
    #[arg(long, env = "SOAK_PROBES", value_name = "N", default_value_t = 20)]
    probes: u32,

    /// Log level of the daemons
    #[arg(long, env = "SOAK_LOG_LEVEL", value_name = "LEVEL", default_value = "info")]
    log_level: String,

    /// Keep data and logs even after a success
    #[arg(long, env = "SOAK_KEEP")]
    keep: bool,

    /// Write the report to this file, as JSON
    #[arg(long, env = "SOAK_JSON", value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    match itself::role().as_deref() {
        Some("storer") => label_storage_runtime::main::<storer::Args>(std::env::args_os()),
        Some("restorer") => label_storage_runtime::main::<restorer::Args>(std::env::args_os()),
        _ => match run(&Arguments::parse()) {
            Ok(report) if report.is_good => ExitCode::SUCCESS,
            Ok(_) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

#[tokio::main]
async fn run(arguments: &Arguments) -> anyhow::Result<Report> {
    let settings = arguments.settings()?;
    eprintln!("seed {}", settings.seed);
    eprintln!("rules {}", settings.rules);
    let sandbox = tokio::task::spawn_blocking(|| Sandbox::start(Options::default())).await??;
    let (kubeconfig, etcd) = (sandbox.kubeconfig().to_owned(), sandbox.etcd_client()?);
    let folder = sandbox.data_folder().join("daemons");
    std::fs::create_dir(&folder).with_context(|| format!("can't create {}", folder.display()))?;
    eprintln!("logs are in {}", folder.display());
    let client = Client::try_from(sandbox::client_config(&kubeconfig).await?)?;
    let metadata = ObjectMeta { name: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() };
    Api::all(client).create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await?;

    let sandbox = Arc::new(Mutex::new(sandbox));
    let place = Place { namespace: NAMESPACE.to_owned(), prefix: "node.".to_owned() };
    let control_plane = Some(Arc::clone(&sandbox));
    let stage = Stage { kubeconfig, etcd, control_plane, place, folder };
    let mut display = Display::new(arguments.duration);
    let result = soak::run(&settings, &stage, &mut |status| display.show(status)).await;
    display.bar.finish_and_clear();

    let is_good = result.as_ref().is_ok_and(|report| report.is_good);
    if !is_good || arguments.keep {
        let mut sandbox = sandbox.lock().unwrap_or_else(PoisonError::into_inner);
        sandbox.keep_data();
        eprintln!("data and logs are kept in {}", sandbox.data_folder().display());
    }
    let report = result?;
    println!("{report}");
    if let Some(file) = &arguments.json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(file, text + "\n").with_context(|| format!("can't write {}", file.display()))?;
    }
    Ok(report)
}

/// The source of the rules.
#[derive(Debug, Clone)]
enum Choice {
    Default,
    Random,
    File(PathBuf),
}

impl From<&str> for Choice {
    fn from(text: &str) -> Self {
        match text {
            "default" => Self::Default,
            "random" => Self::Random,
            file => Self::File(file.into()),
        }
    }
}

impl Choice {
    fn rules(&self, seed: u64) -> anyhow::Result<Rules> {
        let rules = match self {
            Self::Default => Rules::default(),
            Self::Random => rules::draw(seed)?,
            Self::File(file) => rules_file::load(Some(file))?,
        };
        rules::judgeable(&rules)?;
        Ok(rules)
    }
}

impl Arguments {
    fn settings(&self) -> anyhow::Result<Settings> {
        let seed = self.seed.unwrap_or_else(rand::random);
        Ok(Settings {
            nodes: self.nodes as usize,
            replicas: self.replicas,
            flags: vec!["--log-level".to_owned(), self.log_level.clone()],
            rules: self.rules.rules(seed)?,
            watch: self.watch,
            duration: self.duration,
            storm: self.storm,
            patience: self.patience,
            rate: self.rate,
            probes: self.probes,
            climate: Climate {
                pause: self.pause,
                fault_rate: self.faults,
                suspension: self.suspension,
                lengthy: true,
                control_plane: self.outages,
                resizing: self.resizing,
            },
            seed,
        })
    }
}

/// Shows the progress: a bar on a terminal, or a line every 30 s.
struct Display {
    bar: ProgressBar,
    total: Duration,
    told: Option<Instant>,
}

impl Display {
    fn new(total: Duration) -> Self {
        let bar = ProgressBar::new(total.as_secs());
        if let Ok(style) = ProgressStyle::with_template("[{bar:20}] {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        Self { bar, total, told: None }
    }

    fn show(&mut self, status: &Status) {
        let Status { phase, elapsed, acts, blows, wrongs, undetermined, news } = status;
        for line in news {
            self.bar.suspend(|| eprintln!("BROKEN GUARANTEE: {line}"));
        }
        let (minutes, seconds) = (elapsed.as_secs() / 60, elapsed.as_secs() % 60);
        let line = format!(
            "{minutes}:{seconds:02} of {} min, {acts} versions checked, {blows} blows, {wrongs} broken guarantees, {undetermined} undetermined; {phase}",
            self.total.as_secs() / 60
        );
        self.bar.set_position(elapsed.as_secs());
        self.bar.set_message(line.clone());
        let is_due = self.told.is_none_or(|told| told.elapsed() >= LINE);
        if !std::io::stderr().is_terminal() && is_due {
            self.told = Some(Instant::now());
            eprintln!("{line}");
        }
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
}
