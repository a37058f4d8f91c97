//! Flags that commands share.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use label_storage_runtime::args::duration;

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
    #[arg(long, global = true, value_name = "TOKEN")]
    pub token: Option<String>,
    /// The time limit for one request to the API server, such as 30s; 0 means no limit
    #[arg(long, global = true, value_name = "TIME", value_parser = timeout)]
    pub request_timeout: Option<Duration>,
    /// The namespace of the installation [default: that of the context, or label-storage, or the one with leases of Label Storage]
    #[arg(long, short, global = true, env = "LABEL_STORAGE_NAMESPACE", value_name = "NAME")]
    pub namespace: Option<String>,
    /// The user to impersonate
    #[arg(long = "as", global = true, value_name = "USER")]
    pub impersonate: Option<String>,
    /// A group to impersonate; can be repeated
    #[arg(long = "as-group", global = true, value_name = "GROUP")]
    pub impersonate_group: Vec<String>,
    /// Read the rules from this file [default: the ConfigMap label-storage-rules]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The log level: 6 or higher logs each request to the API server
    #[arg(long = "v", short = 'v', global = true, value_name = "LEVEL", default_value_t = 0)]
    pub verbosity: u8,
}

fn timeout(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { duration(text) }
}

/// Flags of commands that change something.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Change {
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
    /// Change nothing. client: only show the changes. server: also let the API server validate them, with admission
    #[arg(long, value_name = "MODE", num_args = 0..=1, default_missing_value = "client")]
    #[arg(require_equals = true)]
    pub dry_run: Option<DryRun>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DryRun {
    Client,
    Server,
}
