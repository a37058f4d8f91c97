//! Writes docs/cli.md, and man pages where that is asked for, from the definitions of the command line.
//!
//! An example and not a program, so that `cargo install` does not install it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use kubectl_plugin::cli::Cli;

/// Writes docs/cli.md, made from the definitions of the command line
#[derive(Parser)]
struct Arguments {
    /// Write man pages into this folder instead, which is made where it is missing
    #[arg(long, value_name = "FOLDER")]
    man: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let written = match &arguments.man {
        Some(folder) => man(folder),
        None => {
            let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
            std::fs::write(page, kubectl_plugin::manual::markdown(Cli::command()))
        }
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One page for the program, and one for each of its commands.
pub(crate) fn man(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    // As man finds `man kubectl-label_storage`, and `man kubectl-label_storage-status`.
    clap_mangen::generate_to(Cli::command(), folder)
}
