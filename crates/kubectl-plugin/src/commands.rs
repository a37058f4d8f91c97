//! The command line, and the commands.

mod check;
mod completion;
mod explain;
mod export;
mod forget;
mod get;
mod history;
mod import;
mod rename;
mod restore;
mod set;
mod status;

use anyhow::Result;
use clap::{Parser, Subcommand};
use label_storage_runtime::args::STYLES;

use crate::{Ended, cluster::Cluster, flags::Global, output::print};

/// Show, explain and repair stored Node labels
///
/// Reads and changes the records, in which Label Storage keeps the labels of nodes. A command that changes something shows the change and
/// asks for confirmation, unless --yes is given.
///
/// Exit codes: 0 success, 1 error, 2 bad usage, 3 problems found (`status`, `check` and `export`).
#[derive(Debug, Parser)]
#[command(name = "kubectl-label_storage", bin_name = "kubectl label-storage", version)]
#[command(styles = STYLES, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show nodes, records and shards, and anything pending or inconsistent
    Status(status::Args),
    /// Display stored records
    Get(get::Args),
    /// Explain the state of a node and the next steps of the daemons
    Explain(explain::Args),
    /// Display earlier versions of a node's labels
    History(history::Args),
    /// Roll a node back to an earlier version of its labels
    Rollback(history::RollbackArgs),
    /// Restore the labels of nodes now
    Restore(restore::Args),
    /// Delete stored records
    Forget(forget::Args),
    /// Change the stored labels of an absent node
    Set(set::Args),
    /// Move the record of a node to another name
    Rename(rename::Args),
    /// Export records to a file
    Export(export::Args),
    /// Import records from a file
    Import(import::Args),
    /// Check the installation: versions, permissions, policies, rules
    Check(check::Args),
    /// Print the completion script for kubectl
    #[command(long_about = completion::ABOUT)]
    Completion,
    #[command(name = "__complete", hide = true)]
    Complete {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

pub(crate) async fn run(Cli { global, command }: Cli) -> Result<Ended> {
    let cluster = || Cluster::connect(&global);
    match command {
        Command::Status(args) => status::run(&global, args).await,
        Command::Check(args) => check::run(&global, &args).await,
        Command::Get(args) => get::run(&cluster().await?, args).await,
        Command::Explain(args) => explain::run(&cluster().await?, args).await,
        Command::History(args) => history::run(&cluster().await?, args).await,
        Command::Rollback(args) => history::roll_back(&cluster().await?, args).await,
        Command::Restore(args) => restore::run(&cluster().await?, args).await,
        Command::Forget(args) => forget::run(&cluster().await?, args).await,
        Command::Set(args) => set::run(&cluster().await?, args).await,
        Command::Rename(args) => rename::run(&cluster().await?, args).await,
        // A backup does not depend on the rules.
        Command::Export(args) => export::run(&Cluster::connect_without_rules(&global).await?, args).await,
        Command::Import(args) => import::run(&cluster().await?, args).await,
        Command::Completion => print(completion::SCRIPT).map(|()| Ended::Well),
        Command::Complete { words } => completion::print_candidates(&words).map(|()| Ended::Well),
    }
}
