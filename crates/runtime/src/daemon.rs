//! From the command line to a running daemon, the same for both.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use clap::error::ErrorKind;
use label_storage::Rules;
use tokio::sync::watch;

use crate::admin::{self, Admin};
use crate::args::{Common, Format, Share, Surroundings};
use crate::client;
use crate::health::Health;
use crate::logging;
use crate::metrics::{Exposition, Metrics, Own};
use crate::preflight::{self, Right};
use crate::projection::Detail;
use crate::recorder::EventRecorder;
use crate::rules_file;
use crate::server_clock::ServerClock;
use crate::shard_context::ShardContext;
use crate::shard_manager::ShardManager;
use crate::shutdown::Shutdown;
use crate::stateful_set::OwnSet;

/// What one daemon adds to what both share.
#[expect(async_fn_in_trait, reason = "never used behind a pointer, nor sent to another thread")]
pub trait Daemon: Parser {
    /// The flags that both have.
    fn common(&self) -> &Common;

    /// What it writes. Its account must be allowed to, unless this is a dry run.
    const WRITES: &[Right];

    /// Whether what happened to Nodes while nobody looked is to be caught up with, event by event.
    const RESUMES: bool;

    /// What it counts, beside what both do.
    type Own: Own;

    /// Which of a Node it has to know.
    const DETAIL: Detail;

    /// Works on one shard until the shutdown.
    async fn run(&self, replica: ShardContext, own: Arc<Self::Own>);
}

/// Bad usage, as clap and most tools have it.
const USAGE: u8 = 2;
/// As a shell reports a process that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Runs a daemon with this command line, the program's name included, until a signal ends it. Returns 0 after a signal, 2 for bad usage and
/// 1 for everything else that keeps it from working, each with one line that says what to do.
pub fn main<D: Daemon>(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let name = D::command().get_name().to_owned();
    let daemon = match D::try_parse_from(args) {
        Ok(daemon) => daemon,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return if error.print().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        Err(error) => {
            return fail(USAGE, &format!("{} (see {name} --help)", first_paragraph(&error.to_string())));
        }
    };
    let surroundings = Surroundings::from_env();
    let share = match daemon.common().share(&surroundings) {
        Ok(share) => share,
        Err(error) => return fail(USAGE, &format!("error: {error}")),
    };
    let rules = match rules_file::load(daemon.common().config.as_deref()) {
        Ok(rules) => Arc::new(rules),
        Err(error) => return fail(USAGE, &format!("error: {error:#}")),
    };
    if let Err(error) = logging::init(daemon.common().log_level, daemon.common().log_format) {
        return fail(1, &format!("error: can't log: {error}"));
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(1, &format!("error: can't start: {error}")),
    };
    let format = daemon.common().log_format;
    let ended = runtime.block_on(start(daemon, share, &surroundings, &name, rules));
    // What is left now was given up on: it must not hold up the end.
    runtime.shutdown_background();
    match ended {
        Ok(Ended::Orderly) => ExitCode::SUCCESS,
        Ok(Ended::Aborted) => ExitCode::from(INTERRUPTED),
        Err(error) if format == Format::Json => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
        Err(error) => fail(1, &format!("error: {error:#}")),
    }
}

enum Ended {
    Orderly,
    Aborted,
}

async fn start<D: Daemon>(
    daemon: D,
    share: Share,
    surroundings: &Surroundings,
    name: &str,
    rules: Arc<Rules>,
) -> anyhow::Result<Ended> {
    let shutdown = Shutdown::on_signals()?;
    tokio::select! {
        ended = prepare_and_run(daemon, share, surroundings, name, rules, &shutdown) => ended.map(|()| Ended::Orderly),
        () = shutdown.aborted() => Ok(Ended::Aborted),
    }
}

async fn prepare_and_run<D: Daemon>(
    daemon: D,
    mut share: Share,
    surroundings: &Surroundings,
    name: &str,
    rules: Arc<Rules>,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let (clock, metrics) = (Arc::new(ServerClock::default()), Arc::new(Metrics::default()));
    let (health, own) = (Arc::new(Health::default()), Arc::new(D::Own::default()));
    if let Some(address) = daemon.common().admin_address {
        let exposition = Exposition::new(name, &metrics, &*own, share.index);
        let admin = Admin { health: Arc::clone(&health), metrics: exposition };
        admin::serve(address, admin).await?;
    }
    // On a thread of its own: a credential plugin that hangs must not keep us from hearing signals.
    let handle = tokio::runtime::Handle::current();
    let (counting, time) = (Arc::clone(&metrics), Arc::clone(&clock));
    let connecting = tokio::task::spawn_blocking(move || handle.block_on(client::connect(&counting, &time)));
    let cluster = tokio::select! {
        cluster = connecting => cluster??,
        () = shutdown.requested() => return Ok(()),
    };
    let namespace = daemon.common().namespace.clone().unwrap_or_else(|| cluster.namespace.clone());
    let (writes, leases) =
        if daemon.common().dry_run { (&[][..], &[][..]) } else { (D::WRITES, &preflight::LEASES[..]) };
    let watches = if daemon.common().watch { &preflight::WATCHES[..] } else { &[] };
    let rights = [&preflight::READS, watches, writes, leases].concat();
    tokio::select! {
        checked = preflight::check(&cluster, &namespace, &rights) => checked?,
        () = shutdown.requested() => return Ok(()),
    }
    let set = daemon.common().stateful_set(surroundings).map(|set| {
        let namespace = surroundings.namespace.as_ref().unwrap_or(&namespace);
        OwnSet::new(cluster.client.clone(), namespace, set)
    });
    if let Some(set) = &set {
        share.replicas = tokio::select! {
            replicas = set.replicas() => replicas?,
            () = shutdown.requested() => return Ok(()),
        };
    }
    metrics.shards.set(share.replicas.get().into());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        shard = share.index,
        replicas = share.replicas,
        namespace,
        server = cluster.url,
        dry_run = daemon.common().dry_run,
        %rules,
        "{name} started"
    );
    let identity = surroundings.identity(share.index);
    let (events, publishing) = if daemon.common().events && !daemon.common().dry_run {
        let (events, publishing) = EventRecorder::start(cluster.client.clone(), name, &identity, &metrics);
        (events, Some(publishing))
    } else {
        (EventRecorder::default(), None)
    };
    let replica = |share, shutdown| {
        let (common, client) = (daemon.common().clone(), cluster.client.clone());
        let (clock, metrics, health) = (Arc::clone(&clock), Arc::clone(&metrics), Arc::clone(&health));
        let events = events.clone();
        let replica = ShardContext::new(common, share, client, &namespace, shutdown);
        ShardContext { clock, metrics, health, events, ..replica }.with_rules(Arc::clone(&rules), D::DETAIL)
    };
    let work = async |replica: ShardContext| daemon.run(replica, Arc::clone(&own)).await;
    if daemon.common().dry_run {
        // It writes nothing, so it takes nobody's shard away.
        work(replica(share, shutdown.clone())).await;
    } else {
        let (sender, shards) = watch::channel(share.replicas);
        if let Some(set) = set {
            tokio::spawn(set.follow(sender));
        }
        let manager = ShardManager {
            replica: &replica,
            client: cluster.client.clone(),
            namespace: &namespace,
            daemon: name,
            identity,
            share,
            shards,
            retirement: daemon.common().lease_retirement,
            resumes: D::RESUMES && daemon.common().watch,
            clock: Arc::clone(&clock),
            metrics: Arc::clone(&metrics),
            health: Arc::clone(&health),
            shutdown: shutdown.clone(),
        };
        let working = manager.run(work);
        let ending = async {
            shutdown.requested().await;
            health.ending();
        };
        tokio::join!(working, ending);
    }
    if let Some(publishing) = publishing {
        publishing.close().await;
    }
    tracing::info!("{name} stopped");
    Ok(())
}

fn first_paragraph(text: &str) -> String {
    text.split("\n\n").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// One line for the person at the terminal, before or without a log.
fn fail(code: u8, line: &str) -> ExitCode {
    eprintln!("{line}");
    ExitCode::from(code)
}
