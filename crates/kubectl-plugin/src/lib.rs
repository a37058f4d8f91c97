//! `kubectl label-storage`: shows, explains and repairs the records. It decides with the functions of the daemons.
//!
//! Each module uses only later ones: `commands`; `diagnose` and `write`, which several commands share; `select` and
//! `find`, which look for records; `cluster`, `flags` and `output`.

/// Writes a line to stderr. The standard macro would panic if stderr is closed.
macro_rules! eprintln {
    ($($text:tt)*) => {
        _ = std::io::Write::write_all(&mut std::io::stderr(), (format!($($text)*) + "\n").as_bytes())
    };
}

mod changes;
mod cluster;
mod commands;
mod confirm;
mod diagnose;
mod find;
mod flags;
mod hints;
mod jsonpath;
mod output;
mod select;
mod server_time;
mod write;

pub use crate::commands::Cli;

use std::{ffi::OsString, io, process::ExitCode};

use anyhow::{Context, Result};
use clap::Parser;
use tokio::runtime::Runtime;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{filter::Targets, fmt, prelude::*};

/// The outcome of a command that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Well,
    /// It found problems.
    Unwell,
    /// The user did not confirm.
    Declined,
}

/// Runs the plugin with this command line, the program's name included. The exit code is 0 for success, 1 for
/// an error, 2 for bad usage and 3 for problems that `status`, `check` or `export` found.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match run(Cli::parse_from(args)) {
        Ok(Ended::Well) => return ExitCode::SUCCESS,
        Ok(Ended::Unwell) => return ExitCode::from(3),
        Ok(Ended::Declined) => eprintln!("nothing was changed"),
        // The reader has closed the pipe, so there is no message.
        Err(error) if error.downcast_ref().map(io::Error::kind) == Some(io::ErrorKind::BrokenPipe) => (),
        Err(error) => eprintln!("error: {error:#}"),
    }
    ExitCode::FAILURE
}

fn run(cli: Cli) -> Result<Ended> {
    // kubectl also logs requests from this level on.
    if cli.global.verbosity >= 6 {
        let targets = Targets::new().with_target("kube_client", LevelFilter::DEBUG);
        let layer = fmt::layer().with_writer(io::stderr);
        _ = tracing_subscriber::registry().with(targets).with(layer).try_init();
    }
    let runtime = Runtime::new().context("can't start")?;
    let ended = runtime.block_on(commands::run(cli));
    runtime.shutdown_background();
    ended
}
