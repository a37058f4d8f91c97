//! `sandbox`: runs a private control plane until Ctrl-C.

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

/// The interval of checks that the control plane still runs.
const CHECK: Duration = Duration::from_millis(500);

/// Run a private Kubernetes control plane until Ctrl-C
///
/// Starts a real etcd and kube-apiserver on loopback. Prints lines to paste into another shell on stdout, and everything else on stderr.
/// When this process ends, even if it is killed, the control plane ends, too, and its data is deleted.
///
/// The binaries come from the folder that KUBEBUILDER_ASSETS names, if it is set. Otherwise they are built with Go, once, into the cache
/// folder (XDG_CACHE_HOME, or ~/.cache).
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  cargo run --bin sandbox -- --kubectl
  cargo run --bin sandbox -- --kubernetes 1.30
  cargo run --bin sandbox -- tool helm")]
struct Arguments {
    #[command(subcommand)]
    task: Option<Task>,

    /// The version of Kubernetes, such as 1.30 or 1.30.14. The Go module proxy must have it
    #[arg(long, env = "SANDBOX_KUBERNETES", value_name = "VERSION")]
    kubernetes: Option<Version>,

    /// Provide kubectl, too, and print the line that puts it on the PATH
    #[arg(long, env = "SANDBOX_KUBECTL", value_parser = FalseyValueParser::new())]
    kubectl: bool,

    /// Run kube-controller-manager, too, for node lifecycle, garbage collection and service accounts
    #[arg(long, env = "SANDBOX_CONTROLLER_MANAGER", value_parser = FalseyValueParser::new())]
    controller_manager: bool,

    /// Keep the data folder, with the logs, unless this process is killed
    #[arg(long, env = "SANDBOX_KEEP_DATA", value_parser = FalseyValueParser::new())]
    keep_data: bool,

    /// Build the control plane and kubectl, print the line that puts them on the PATH, and exit
    #[arg(long, env = "SANDBOX_BUILD_ONLY", value_parser = FalseyValueParser::new())]
    build_only: bool,
}

/// Tasks other than running a control plane.
#[derive(Debug, Subcommand)]
enum Task {
    /// Print the path of a program, for scripts; build it first if necessary
    Tool {
        /// The name of the program
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
    // Before the start, so that a failed build leaves no control plane to stop.
    let kubectl = if arguments.kubectl { Some(Assets::find(version, &[Binary::Kubectl])?) } else { None };

    // Until the handlers below are set, a signal ends this process, and with it everything that it has started.
    let sandbox = Sandbox::start(Options {
        kubernetes: arguments.kubernetes.clone(),
        controller_manager: arguments.controller_manager,
        keep_data: arguments.keep_data,
        ..Options::default()
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(keep_up(sandbox, kubectl))
}

/// Prints how to use the control plane, then stops it at a signal.
async fn keep_up(sandbox: Sandbox, kubectl: Option<Assets>) -> anyhow::Result<()> {
    // Before the first line on stdout: its reader may send a signal at once.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;

    print(&shell::export("KUBECONFIG", sandbox.kubeconfig()))?;
    if let Some(assets) = kubectl {
        print(&shell::export_path(assets.folder()))?;
    }
    eprintln!(
        "the API server is at {}, data and logs are in {}",
        sandbox.server(),
        sandbox.data_folder().display()
    );
    eprintln!("press Ctrl-C to stop");
    tokio::select! {
        () = either(&mut interrupt, &mut terminate) => Ok(()),
        error = failure(&sandbox) => Err(error),
    }?;

    eprintln!("stopping");
    let stopping = tokio::task::spawn_blocking(move || drop(sandbox));
    tokio::select! {
        stopped = stopping => stopped.context("stopping the control plane"),
        // A second signal ends this process at once. The guards then stop the control plane.
        () = either(&mut interrupt, &mut terminate) => std::process::exit(1),
    }
}

async fn either(interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// Returns when a part of the control plane has ended unexpectedly.
async fn failure(sandbox: &Sandbox) -> anyhow::Error {
    loop {
        if let Err(error) = sandbox.check() {
            return error.into();
        }
        tokio::time::sleep(CHECK).await;
    }
}

/// Prints a line on stdout and flushes it, for readers of a pipe.
fn print(line: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("can't write to stdout")
}
