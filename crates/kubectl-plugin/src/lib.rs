//! `kubectl label-storage`: what is stored, what would become of it and why, and how to mend it.
//!
//! It decides with the same functions as the daemons, and changes things only when told to.
//!
//! - [`cli`]: the command line, all of it: help, completion, man pages and docs/cli.md are made from it.
//! - `cluster`: the cluster, as kubectl would find it, and the rules that are in force there; `find`: a Node and its record, by name.
//! - `output`: tables for people, JSON and YAML for machines; `changes`: one set of labels against another.
//! - `advice`: commands that a person may run next; `liveness`: whether somebody renews a Lease.
//! - `write`: the one place that writes; `outlook`: what that will do, for a person to see; `confirm`: asks before anything is changed;
//!   `whereabouts`: whether the Node of a record is there.
//! - `backup`: the format that `export` writes and `import` reads.
//! - `stderr`: what is told beside what was asked for; `progress`: how far long work is.
//! - `commands`: a module for each command, or for a few that belong together.

// First, so that its `eprintln!` is that of all the others.
#[macro_use]
mod stderr;

mod advice;
mod backup;
mod changes;
pub mod cli;
mod cluster;
mod commands;
mod confirm;
mod find;
mod leases;
mod liveness;
pub mod manual;
mod node_patch;
mod outlook;
mod output;
mod progress;
mod server_time;
mod whereabouts;
mod write;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::cli::Cli;

/// How a command ended, where nothing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All is well.
    Well,
    /// It did what it was asked for, and what it found is not well: for scripts.
    Unwell,
    /// The person said no.
    Declined,
}

/// Something is not well.
const UNWELL: u8 = 3;
/// Bad usage, as clap and most tools have it.
const USAGE: u8 = 2;

/// Runs the plugin with this command line, the program's name included. Returns 0 where all is well, 1 where something went wrong, 2 for bad usage and 3 where
/// what was found is not well.
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
    let ended = runtime.block_on(commands::run(cli));
    runtime.shutdown_background();
    match ended {
        Ok(Ended::Well) => ExitCode::SUCCESS,
        Ok(Ended::Unwell) => ExitCode::from(UNWELL),
        Ok(Ended::Declined) => {
            eprintln!("nothing was changed");
            ExitCode::FAILURE
        }
        Err(error) => fail(&error),
    }
}

/// One line, as kubectl has it.
fn fail(error: &anyhow::Error) -> ExitCode {
    // Whoever reads from us has had enough: that is no failure to speak of.
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
