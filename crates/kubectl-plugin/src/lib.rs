//! `kubectl label-storage`: shows, explains and repairs the records. It decides with the functions of the daemons.
//!
//! Modules point downwards: `commands`; `diagnose`, `write` and `backup`, which several commands share; `select` and `find`,
//! which look for records; `cluster`, `connect`, `flags` and `output`.

// First, so that its `eprintln!` is that of all the others.
#[macro_use]
mod stderr;

mod backup;
mod changes;
mod cluster;
mod commands;
mod confirm;
mod connect;
mod diagnose;
mod find;
mod flags;
mod hints;
mod jsonpath;
mod node_patch;
mod node_presence;
mod output;
mod preview;
mod select;
mod server_time;
mod write;

pub use crate::commands::Cli;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// How a command ended, if not with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Well,
    /// It found problems.
    Unwell,
    /// The user said no.
    Declined,
}

const PROBLEMS: u8 = 3;
const USAGE: u8 = 2;

/// Runs the plugin with this command line, the program's name included. Returns 0 for success, 1 for an error, 2 for bad usage and 3 for
/// problems that `status`, `check` or `export` found.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            let is_asked_for = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return match error.print() {
                Ok(()) if is_asked_for => ExitCode::SUCCESS,
                _ => ExitCode::from(USAGE),
            };
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&anyhow::Error::new(error).context("can't start")),
    };
    if cli.global.verbosity > 0 {
        log(cli.global.verbosity);
    }
    let ended = runtime.block_on(commands::run(cli));
    runtime.shutdown_background();
    match ended {
        Ok(Ended::Well) => ExitCode::SUCCESS,
        Ok(Ended::Unwell) => ExitCode::from(PROBLEMS),
        Ok(Ended::Declined) => {
            eprintln!("nothing was changed");
            ExitCode::FAILURE
        }
        Err(error) => fail(&error),
    }
}

/// Logs to stderr: requests from level 6 on, as kubectl does, and all of the client's work from level 9 on.
fn log(verbosity: u8) {
    let level = match verbosity {
        ..6 => LevelFilter::WARN,
        6..9 => LevelFilter::DEBUG,
        9.. => LevelFilter::TRACE,
    };
    let targets = Targets::new().with_target("kube_client", level).with_target("label_storage", level);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    // Only the first of several in one process counts.
    _ = tracing_subscriber::registry().with(targets).with(layer).try_init();
}

/// One line, as kubectl has it.
fn fail(error: &anyhow::Error) -> ExitCode {
    // A reader that has closed the pipe needs no message.
    let is_closed = error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    });
    if !is_closed {
        eprintln!("error: {error:#}");
    }
    ExitCode::FAILURE
}
