//! `completion`: scripts, made from the same definitions as the help.

use std::io::{self, Write};

use anyhow::Result;
use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;

use crate::Ended;
use crate::cli::Cli;

/// What it is for, with commands that are to stand in lines of their own.
pub(crate) const ABOUT: &str = "Print the completion script of a shell

For `kubectl label-storage` itself, put the one for kubectl into your PATH, next to this program:

    kubectl label-storage completion kubectl > ~/.local/bin/kubectl_complete-label_storage
    chmod +x ~/.local/bin/kubectl_complete-label_storage

kubectl runs it by that name. Those for shells complete `kubectl-label_storage`.";

/// What kubectl runs, by the name kubectl_complete-label_storage, for completions of `kubectl label-storage`. It passes the words so far,
/// of which the first may be a flag, and understands what cobra's own commands answer.
const KUBECTL: &str = "#!/bin/sh\nexec kubectl-label_storage __complete -- \"$@\"\n";

/// Which.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// For which shell, or for kubectl
    #[arg(value_enum)]
    shell: For,
}

/// Who completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum For {
    Bash,
    Zsh,
    Fish,
    #[value(name = "powershell")]
    PowerShell,
    Kubectl,
}

pub(crate) fn run(args: &Args) -> Result<Ended> {
    // In memory first: the generator has no way to say that its reader has gone.
    let mut script = Vec::new();
    let shell = match args.shell {
        For::Bash => Some(Shell::Bash),
        For::Zsh => Some(Shell::Zsh),
        For::Fish => Some(Shell::Fish),
        For::PowerShell => Some(Shell::PowerShell),
        For::Kubectl => None,
    };
    match shell {
        Some(shell) => {
            clap_complete::generate(shell, &mut Cli::command(), "kubectl-label_storage", &mut script);
        }
        None => script.extend_from_slice(KUBECTL.as_bytes()),
    }
    io::stdout().lock().write_all(&script)?;
    Ok(Ended::Well)
}
