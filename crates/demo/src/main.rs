//! `demo`: the story of Nodes that lose their labels and get them back, with the real daemons on a private control
//! plane.
//!
//! ```text
//!   main ──► stage: etcd, kube-apiserver, 2 storers, 2 restorers (this binary again, as processes of their own)
//!     ├────► story: what is done to the Nodes, and what comes of it
//!     │        ├─ nodes: Nodes, their records, and which labels are missing
//!     │        └─ narrator: lines on stdout, with the time
//!     └────► session: commands of the kubectl plugin, and what they say; svg: the same, drawn
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

/// Shows what Label Storage does: nodes are deleted and re-created, and their labels come back.
///
/// Runs a private Kubernetes control plane (see `sandbox --help` for where its binaries come from), two storers and
/// two restorers, all as processes on this machine that end with this one. No other cluster is touched. Exits with 0
/// only if every label of every node came back.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Leave everything up afterwards, to play with, until Ctrl-C
    #[arg(long, env = "DEMO_KEEP", value_parser = FalseyValueParser::new())]
    keep: bool,

    /// How many nodes to delete and re-create at once
    #[arg(long, env = "DEMO_NODES", value_name = "N", default_value_t = 200)]
    nodes: u32,

    /// Instead of the story, have a session with `kubectl label-storage`, and draw it into this file, as an SVG
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    // The daemons are this same binary, so that `cargo run --bin demo` is all it takes to build and find them.
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

/// Leaves the stage to the audience.
async fn keep(stage: &Stage, narrator: &Narrator) -> anyhow::Result<()> {
    // Before the first line that someone may act on.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    narrator.heading("Over to you");
    narrator.say("everything stays up until Ctrl-C; in another shell:");
    narrator.block(&shell::export("KUBECONFIG", stage.kubeconfig()));
    narrator.say("then, for example:");
    narrator.block(&story::suggestions());
    narrator.say(format!("the logs are in {}", stage.data_folder().display()));
    narrator.say("no kubectl? `cargo run --bin sandbox -- --build-only` builds one and says where it is");
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        error = stage.failure() => return Err(error),
    }
    narrator.say("stopping");
    Ok(())
}
