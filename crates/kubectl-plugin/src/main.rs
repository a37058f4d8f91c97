//! The `kubectl-label_storage` binary.

fn main() -> std::process::ExitCode {
    kubectl_plugin::main(std::env::args_os())
}
