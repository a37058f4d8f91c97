//! The `storer` binary: see the library of the same name.

use std::process::ExitCode;

fn main() -> ExitCode {
    label_storage_runtime::main::<storer::Args>(std::env::args_os())
}
