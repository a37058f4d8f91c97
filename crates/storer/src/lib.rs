//! The storer.

use std::process::ExitCode;

/// Parses the command line and runs the daemon until a signal ends it.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
