//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use label_storage_runtime::args::{STYLES, duration};

use crate::commands::{
    check, completion, explain, export, forget, get, history, import, rename, restore, rollback, set, status,
};

/// Show, explain and repair the Node labels that Label Storage keeps
///
/// Reads and changes the records that keep Node labels alive. A command that changes something shows the change and asks first,
/// unless --yes is given.
///
/// Exit codes: 0 success, 1 error, 2 bad usage, 3 `status` or `check` found problems.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-label_storage",
    bin_name = "kubectl label-storage",
    version,
    styles = STYLES,
    max_term_width = 100
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,

    #[command(subcommand)]
    pub command: Command,
}

/// The flags of all commands, as kubectl has them.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Path to the kubeconfig file [default: $KUBECONFIG, or ~/.kube/config]
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The kubeconfig context to use
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,

    /// The kubeconfig cluster to use
    #[arg(long, global = true, value_name = "NAME")]
    pub cluster: Option<String>,

    /// The kubeconfig user to use
    #[arg(long, global = true, value_name = "NAME")]
    pub user: Option<String>,

    /// The address of the API server
    #[arg(long, short, global = true, value_name = "URL")]
    pub server: Option<String>,

    /// The bearer token for the API server
    #[arg(long, global = true, value_name = "TOKEN", hide_env_values = true)]
    pub token: Option<String>,

    /// The longest time to wait for one answer of the API server, such as 30s; 0 means no limit
    #[arg(long, global = true, value_name = "TIME", value_parser = timeout)]
    pub request_timeout: Option<Duration>,

    /// The namespace of the installation [default: that of the context, else label-storage, else the one with its leases]
    #[arg(long, short, global = true, env = "LABEL_STORAGE_NAMESPACE", value_name = "NAME")]
    pub namespace: Option<String>,

    /// The user to impersonate
    #[arg(long = "as", global = true, value_name = "USER")]
    pub impersonate: Option<String>,

    /// A group to impersonate; can be given several times
    #[arg(long = "as-group", global = true, value_name = "GROUP")]
    pub impersonate_group: Vec<String>,

    /// Read the rules from this file [default: the ConfigMap label-storage-rules]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// The log level: from 6 on, log each request to the API server
    #[arg(long = "v", short = 'v', global = true, value_name = "LEVEL", default_value_t = 0)]
    pub verbosity: u8,
}

fn timeout(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { duration(text) }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show if labels are stored and restored
    Status(status::Args),
    /// List the records, or show those of some nodes
    Get(get::Args),
    /// Explain the state of a node and the next steps of the daemons
    Explain(explain::Args),
    /// List the earlier versions of a node's labels
    History(history::Args),
    /// Return a node to an earlier version of its labels
    Rollback(rollback::Args),
    /// Restore nodes now
    Restore(restore::Args),
    /// Delete the records of nodes
    Forget(forget::Args),
    /// Change the labels that an absent node returns with
    Set(set::Args),
    /// Move the record of a node to another name
    Rename(rename::Args),
    /// Write all records to a file
    Export(export::Args),
    /// Read records from a file
    Import(import::Args),
    /// Check the installation: versions, permissions, policies, rules
    Check(check::Args),
    /// Print the completion script for kubectl
    #[command(long_about = completion::ABOUT)]
    Completion,
    #[command(name = "__complete", hide = true)]
    Complete(completion::Words),
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
