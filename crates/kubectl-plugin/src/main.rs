//! The `kubectl-label_storage` binary: see the library of the same crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_plugin::main(std::env::args_os())
}
