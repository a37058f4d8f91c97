//! `demo`: deletes and re-creates Nodes on a private control plane, and shows how the daemons restore their labels.
//!
//! ```text
//!   main ──► stage: etcd, kube-apiserver, 2 storers, 2 restorers (each is this binary in a process of its own)
//!     ├────► story: the changes to the Nodes, and their effect
//!     │        ├─ nodes: Nodes, their records, and the labels that they lack
//!     │        └─ narrator: lines on stdout, with the time
//!     └────► session: commands of the kubectl plugin, and their output; svg: the same as a drawing
//! ```

mod narrator;
mod nodes;
mod session;
mod stage;
mod story;
mod svg;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::FalseyValueParser;
use sandbox::{itself, shell};
use tokio::signal::unix::{SignalKind, signal};

use crate::narrator::Narrator;
use crate::stage::Stage;

/// Demonstrate how the labels of deleted nodes are restored
///
/// Starts a private Kubernetes control plane (`sandbox --help` explains where its binaries come from), two storers and two restorers on
/// this machine. Deletes and re-creates nodes, and waits until their labels are restored. All processes end with this one. No other
/// cluster is used. The exit code is 0 only if every label of every node was restored.
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  cargo run --bin demo
  cargo run --bin demo -- --nodes 1000 --keep"
)]
struct Arguments {
    /// Keep the cluster running afterwards, until Ctrl-C
    #[arg(long, env = "DEMO_KEEP", value_parser = FalseyValueParser::new())]
    keep: bool,

    /// Number of nodes to delete and re-create at once
    #[arg(long, env = "DEMO_NODES", value_name = "N", default_value_t = 200)]
    nodes: u32,

    /// Record a session with `kubectl label-storage` instead, and write it to this SVG file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    // The daemons are this same binary, so `cargo run --bin demo` builds everything that is needed.
    match itself::role().as_deref() {
        Some(stage::STORER) => label_storage_runtime::main::<storer::Args>(std::env::args_os()),
        Some(stage::RESTORER) => label_storage_runtime::main::<restorer::Args>(std::env::args_os()),
        Some(stage::PLUGIN) => kubectl_plugin::main(std::env::args_os()),
        _ => match run(&Arguments::parse()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let narrator = Narrator::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut stage = Stage::set_up(&narrator, &runtime)?;
    let told = runtime.block_on(async {
        if let Some(file) = &arguments.record {
            return session::record(&stage, &narrator, file).await;
        }
        story::one_node(&stage, &narrator).await?;
        story::many_nodes(&stage, &narrator, arguments.nodes).await?;
        if arguments.keep { keep(&stage, &narrator).await } else { Ok(()) }
    });
    told.map_err(|error| {
        stage.keep_data();
        anyhow::anyhow!("{error:#}\nthe logs of all processes are kept in {}", stage.data_folder().display())
    })
}

/// Keeps the cluster running until a signal arrives.
async fn keep(stage: &Stage, narrator: &Narrator) -> anyhow::Result<()> {
    // Listen for signals before the first line is printed: a reader may react to it at once.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    narrator.heading("Try it yourself");
    narrator.say("the cluster runs until Ctrl-C; in another shell, run:");
    narrator.block(&shell::export("KUBECONFIG", stage.kubeconfig()));
    narrator.say("then try, for example:");
    narrator.block(&story::suggestions());
    narrator.say(format!("the logs are in {}", stage.data_folder().display()));
    narrator.say("`cargo run --bin sandbox -- --build-only` builds kubectl, and prints its folder");
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        error = stage.failure() => return Err(error),
    }
    narrator.say("stopping");
    Ok(())
}
