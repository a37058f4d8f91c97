//! From the command line to a running daemon, the same for both.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Parser;
use label_storage::Rules;
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::args::{Common, LogFormat, Share, Surroundings};
use crate::health::Health;
use crate::metrics::{Exposition, Metrics, Own};
use crate::preflight::{self, Right};
use crate::projection::{Detail, Projection};
use crate::recorder::EventRecorder;
use crate::server_clock::ServerClock;
use crate::shard_context::ShardContext;
use crate::shutdown::Shutdown;
use crate::stateful_set::OwnSet;
use crate::{admin, client, logging, rules_file, shard_manager};

/// The part of a daemon that the other does not share.
#[expect(async_fn_in_trait, reason = "never used behind a pointer, nor sent to another thread")]
pub trait Daemon: Parser {
    /// The permissions that it needs for its writes.
    const WRITES: &[Right];
    const DETAIL: Detail;
    type Own: Own;

    fn common(&self) -> &Common;

    /// Works on one shard until the shutdown.
    async fn run(&self, context: ShardContext, own: Arc<Self::Own>);
}

const USAGE: u8 = 2;
/// The code that a shell reports for a process that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Runs a daemon with this command line, the program's name included, until a signal ends it. Returns 0 after a signal, 2
/// for bad usage and 1 for all other errors, each with one line that has the fix.
pub fn main<D: Daemon>(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let name = D::command().get_name().to_owned();
    let daemon = match D::try_parse_from(args) {
        Ok(daemon) => daemon,
        Err(error) if !error.use_stderr() => {
            return if error.print().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        Err(error) => {
            let error = error.to_string();
            let words: Vec<_> = error.split("\n\n").take(1).flat_map(str::split_whitespace).collect();
            return misused(&format!("{} (see {name} --help)", words.join(" ")));
        }
    };
    let (surroundings, common) = (Surroundings::from_env(), daemon.common());
    let configure =
        || anyhow::Ok((common.share(&surroundings)?, rules_file::load(common.config.as_deref())?));
    let (share, rules) = match configure() {
        Ok(configured) => configured,
        Err(error) => return misused(&format!("error: {error:#}")),
    };
    let start = || {
        logging::init(common.log_level, common.log_format).context("can't log")?;
        // One thread is enough: a daemon uses a quarter of a core when it is busiest. With several, musl's allocator makes them wait for each other.
        let runtime = Builder::new_current_thread().enable_all().build().context("can't start")?;
        let ended = runtime.block_on(async {
            let shutdown = Shutdown::on_signals()?;
            tokio::select! {
                ended = run(&daemon, &name, share, rules, &surroundings, &shutdown) => ended.map(|()| ExitCode::SUCCESS),
                () = shutdown.abort.cancelled() => Ok(ExitCode::from(INTERRUPTED)),
            }
        });
        // Tasks that are left now must not hold up the end.
        runtime.shutdown_background();
        ended
    };
    start().unwrap_or_else(|error| {
        match common.log_format {
            LogFormat::Text => eprintln!("error: {error:#}"),
            LogFormat::Json => tracing::error!("{error:#}"),
        }
        ExitCode::FAILURE
    })
}

async fn run<D: Daemon>(
    daemon: &D,
    name: &str,
    mut share: Share,
    rules: Rules,
    surroundings: &Surroundings,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let common = daemon.common();
    let (clock, metrics) = (Arc::new(ServerClock::default()), Arc::new(Metrics::default()));
    let health = Arc::new(Health::new(shutdown.clone(), !common.dry_run));
    let own = Arc::new(D::Own::default());
    let exposition = Exposition::new(name, &metrics, &*own, share.index);
    let router = admin::router(Arc::clone(&health), exposition);
    for address in [common.admin_address, common.probe_address].into_iter().flatten() {
        admin::serve(address, router.clone()).await?;
    }
    let prepared = async {
        // On a thread of its own: a credential plugin that hangs must not keep this one from receiving signals.
        let connecting = client::connect(Arc::clone(&metrics), Arc::clone(&clock));
        let handle = Handle::current();
        let (client, url) = spawn_blocking(move || handle.block_on(connecting)).await??;
        let namespace = common.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let watches = common.watch.then_some(preflight::WATCHES).into_iter().flatten();
        let writes = D::WRITES.iter().copied().chain(preflight::LEASES).filter(|_| !common.dry_run);
        let rights: Vec<_> = preflight::READS.into_iter().chain(watches).chain(writes).collect();
        preflight::check(&client, &url, &namespace, &rights).await?;
        let set = common.stateful_set(surroundings).map(|set| {
            let namespace = surroundings.namespace.as_ref().unwrap_or(&namespace);
            OwnSet::new(client.clone(), namespace, set)
        });
        if let Some(set) = &set {
            share.replicas = set.replicas().await?;
        }
        anyhow::Ok((client, url, namespace, set))
    };
    let Some(prepared) = shutdown.stop.run_until_cancelled(prepared).await else { return Ok(()) };
    let (client, url, namespace, set) = prepared?;
    metrics.shards.set(share.replicas.get().into());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        shard = share.index,
        replicas = share.replicas,
        namespace,
        server = url,
        dry_run = common.dry_run,
        %rules,
        "{name} started"
    );
    let identity = surroundings.identity(share.index);
    let (events, publishing) = (common.events && !common.dry_run)
        .then(|| EventRecorder::start(client.clone(), name, &identity, &metrics))
        .unzip();
    let (sender, shards) = watch::channel(share.replicas);
    let projection = Projection { rules: Arc::new(rules), detail: D::DETAIL };
    let context = ShardContext {
        shutdown: shutdown.clone(),
        clock,
        metrics,
        health,
        events: events.unwrap_or_default(),
        ..ShardContext::new(common.clone(), share, client, &namespace, projection)
    };
    let work = async |context| daemon.run(context, Arc::clone(&own)).await;
    if common.dry_run {
        // A dry run writes nothing, so it takes no lease.
        work(context).await;
    } else {
        if let Some(set) = set {
            tokio::spawn(set.follow(sender));
        }
        shard_manager::run(context, name, identity, shards, work).await;
    }
    if let Some(publishing) = publishing {
        publishing.close().await;
    }
    tracing::info!("{name} stopped");
    Ok(())
}

fn misused(line: &str) -> ExitCode {
    eprintln!("{line}");
    ExitCode::from(USAGE)
}
