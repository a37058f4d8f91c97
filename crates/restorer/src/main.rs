//! The `restorer` binary: see the library of the same name.

use std::process::ExitCode;

fn main() -> ExitCode {
    label_storage_runtime::main::<restorer::Args>(std::env::args_os())
}
