//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use label_storage_runtime::args::STYLES;

use crate::commands::{
    check, complete, diff, explain, export, forget, generate, get, history, import, rename, restore,
    rollback, set, status,
};

/// Look inside Label Storage, ask it why, and repair what is stored
///
/// Reads and changes the records that keep Node labels alive. Nothing is changed without asking, unless --yes is given.
/// Exit codes: 0 all is well, 1 something went wrong, 2 bad usage, 3 what was found is not well.
#[derive(Debug, Parser)]
#[command(name = "kubectl-label_storage", bin_name = "kubectl label-storage", version, styles = STYLES, max_term_width = 100)]
pub struct Cli {
    /// Where, and as whom.
    #[command(flatten)]
    pub global: Global,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Where Label Storage is installed unless it is said otherwise.
pub(crate) const NAMESPACE: &str = "label-storage";

/// Flags of all commands, as kubectl has them.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Path to the kubeconfig file [default: $KUBECONFIG, or ~/.kube/config]
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The name of the kubeconfig context to use
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,

    /// The namespace that Label Storage is installed in
    #[arg(
        long,
        short,
        global = true,
        env = "LABEL_STORAGE_NAMESPACE",
        value_name = "NAME",
        default_value = NAMESPACE
    )]
    pub namespace: String,

    /// Username to impersonate for the operation
    #[arg(long = "as", global = true, value_name = "USER")]
    pub impersonate: Option<String>,

    /// Group to impersonate, may be given several times
    #[arg(long = "as-group", global = true, value_name = "GROUP")]
    pub impersonate_group: Vec<String>,

    /// Take the rules from this file [default: the ConfigMap label-storage-rules, which the daemons read]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// How it all stands: nodes, records, shards, what waits and what disagrees
    ///
    /// Exits with 0 where all is well, and with 3 where it is not: what is not well is listed first. Not well are records that can't be read, identities that
    /// several nodes claim, nodes that still wait for their labels or their first record after a minute, labels that differ from the record though the
    /// node is right, nodes that the fence keeps from being restored, shards that nobody holds or renews, and rights that are missing to tell. What may be nothing but work in progress is looked at twice,
    /// a few seconds apart, and counts only if it has not changed.
    Status(status::Args),
    /// What is stored of nodes
    Get(get::Args),
    /// What the daemons would do with a node now, and why
    Explain(explain::Args),
    /// A node against its record
    Diff(diff::Args),
    /// What the labels of a node were before
    History(history::Args),
    /// Bring an earlier version of a node's labels back
    Rollback(rollback::Args),
    /// Restore nodes now
    Restore(restore::Args),
    /// Delete the records of nodes
    Forget(forget::Args),
    /// Change what an absent node will come back with
    Set(set::Args),
    /// Give the record of a node to another, for a machine that returns under another name
    Rename(rename::Args),
    /// Write records to a file, as ConfigMaps
    Export(export::Args),
    /// Write the records of a file to the cluster
    Import(import::Args),
    /// Whether the installation is sound
    ///
    /// Looks at versions and flags of the daemons, their rights, admission policies, rules, leases, and what is in the way of
    /// records; and at your own rights. Each finding comes with the command that mends it, or shows more. What may not be looked at is
    /// said to be unknown. Exits with 3 where there are errors or warnings.
    Check(check::Args),
    /// Print the completion script of a shell
    #[command(long_about = generate::ABOUT)]
    Completion(generate::Args),
    /// What kubectl asks for completions
    #[command(name = "__complete", hide = true)]
    Complete(complete::Words),
}

/// How to print.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// For machines.
    Json,
    /// For both.
    Yaml,
}

/// How to print where there is more to be shown than most want to see.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum WideFormat {
    /// For people.
    #[default]
    Table,
    /// For people with wide terminals.
    Wide,
    /// For machines.
    Json,
    /// For both.
    Yaml,
}

impl WideFormat {
    /// For whom, whatever the width.
    pub(crate) fn narrow(self) -> Format {
        match self {
            Self::Table | Self::Wide => Format::Table,
            Self::Json => Format::Json,
            Self::Yaml => Format::Yaml,
        }
    }
}

/// Flags of commands that change something.
#[derive(Debug, Clone, Copy, Args)]
pub struct Change {
    /// Don't ask
    #[arg(long, short)]
    pub yes: bool,

    /// Change nothing. client: only show what would change. server: also have the API server check it, with admission
    #[arg(
        long,
        value_enum,
        value_name = "MODE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "client"
    )]
    pub dry_run: Option<DryRun>,
}

/// Who checks a change that is not to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum DryRun {
    /// This program alone.
    Client,
    /// The API server, too.
    Server,
}
