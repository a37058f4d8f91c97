//! `sandbox`: keeps a private control plane up until Ctrl-C.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::builder::FalseyValueParser;
use clap::{Parser, Subcommand};
use sandbox::assets::{self, Assets, Binary};
use sandbox::kubernetes::Version;
use sandbox::{Options, Sandbox, shell};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How often to look whether the control plane still runs.
const CHECK: Duration = Duration::from_millis(500);

/// A private Kubernetes control plane, a real etcd and kube-apiserver on loopback, up until Ctrl-C.
///
/// Prints lines to paste into another shell on stdout, and everything else on stderr. Nothing is left behind: when
/// this process ends, even when it is killed, so do the processes that it started, and their data is removed.
///
/// The binaries come from the folder that KUBEBUILDER_ASSETS names, if it is set. Otherwise they are built with Go,
/// once, into the cache folder (XDG_CACHE_HOME, or ~/.cache).
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    task: Option<Task>,

    /// The version of Kubernetes, such as 1.30 or 1.30.14, of those that the Go module proxy has
    #[arg(long, env = "SANDBOX_KUBERNETES", value_name = "VERSION")]
    kubernetes: Option<Version>,

    /// Provide kubectl too, and print the line that puts it on the PATH
    #[arg(long, env = "SANDBOX_KUBECTL", value_parser = FalseyValueParser::new())]
    kubectl: bool,

    /// Run kube-controller-manager too: node lifecycle, garbage collection, service accounts
    #[arg(long, env = "SANDBOX_CONTROLLER_MANAGER", value_parser = FalseyValueParser::new())]
    controller_manager: bool,

    /// Leave the data folder, with the logs, behind after an orderly end
    #[arg(long, env = "SANDBOX_KEEP_DATA", value_parser = FalseyValueParser::new())]
    keep_data: bool,

    /// Build all of the control plane and exit; print the line that puts them on the PATH
    #[arg(long, env = "SANDBOX_BUILD_ONLY", value_parser = FalseyValueParser::new())]
    build_only: bool,
}

/// What to do instead of keeping a control plane up.
#[derive(Debug, Subcommand)]
enum Task {
    /// Print where a program is, for scripts; build it first if it is nowhere
    Tool {
        /// Its name
        name: Binary,
    },
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let Some(Task::Tool { name }) = arguments.task {
        return print(&assets::find(name)?.to_string_lossy());
    }
    let version = arguments.kubernetes.as_ref();
    if arguments.build_only {
        let assets = Assets::find(version, &Binary::CONTROL_PLANE)?;
        return print(&shell::export_path(assets.folder()));
    }
    // Before the start, so that a build which fails leaves no control plane to stop.
    let kubectl = if arguments.kubectl { Some(Assets::find(version, &[Binary::Kubectl])?) } else { None };

    // Until the signals are listened to below, they end this process, and with it all that it has started.
    let sandbox = Sandbox::start(Options {
        kubernetes: arguments.kubernetes.clone(),
        controller_manager: arguments.controller_manager,
        keep_data: arguments.keep_data,
        ..Options::default()
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(keep_up(sandbox, kubectl))
}

/// Says how to use the control plane, then stops it when asked to.
async fn keep_up(sandbox: Sandbox, kubectl: Option<Assets>) -> anyhow::Result<()> {
    // Before the first line on stdout: whoever reads it may ask for the end at once.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;

    print(&shell::export("KUBECONFIG", sandbox.kubeconfig()))?;
    if let Some(assets) = kubectl {
        print(&shell::export_path(assets.folder()))?;
    }
    eprintln!("up at {}, data and logs in {}", sandbox.server(), sandbox.data_folder().display());
    eprintln!("Ctrl-C stops it");
    tokio::select! {
        () = either(&mut interrupt, &mut terminate) => Ok(()),
        error = failure(&sandbox) => Err(error),
    }?;

    eprintln!("stopping");
    let stopping = tokio::task::spawn_blocking(move || drop(sandbox));
    tokio::select! {
        stopped = stopping => stopped.context("stopping the control plane"),
        // Who asks twice doesn't want to wait. The guards see this process end and do the rest.
        () = either(&mut interrupt, &mut terminate) => std::process::exit(1),
    }
}

async fn either(interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// Returns when a part of the control plane has ended by itself.
async fn failure(sandbox: &Sandbox) -> anyhow::Error {
    loop {
        if let Err(error) = sandbox.check() {
            return error.into();
        }
        tokio::time::sleep(CHECK).await;
    }
}

/// Prints a line on stdout at once, also where that is a pipe.
fn print(line: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("can't write to stdout")
}
