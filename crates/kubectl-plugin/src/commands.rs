//! The commands.

pub(crate) mod check;
pub(crate) mod complete;
pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod forget;
pub(crate) mod generate;
pub(crate) mod get;
pub(crate) mod history;
pub(crate) mod import;
pub(crate) mod rename;
pub(crate) mod restore;
pub(crate) mod set;
pub(crate) mod status;

use anyhow::Result;

use crate::Ended;
use crate::cli::{Cli, Command};
use crate::cluster::Cluster;

/// Does what the command line asks for.
pub(crate) async fn run(cli: Cli) -> Result<Ended> {
    let Cli { global, command } = cli;
    let cluster = || Cluster::connect(&global);
    match command {
        Command::Status(args) => status::run(cluster().await?, &global, args).await,
        Command::Get(args) => get::run(&cluster().await?, args).await,
        Command::Explain(args) => explain::run(&cluster().await?, args).await,
        Command::Diff(args) => diff::run(&cluster().await?, args).await,
        Command::History(args) => history::run(&cluster().await?, args).await,
        Command::Rollback(args) => history::roll_back(&cluster().await?, args).await,
        Command::Restore(args) => restore::run(&cluster().await?, args).await,
        Command::Forget(args) => forget::run(&cluster().await?, args).await,
        Command::Set(args) => set::run(&cluster().await?, args).await,
        Command::Rename(args) => rename::run(&cluster().await?, args).await,
        Command::Export(args) => export::run(&cluster().await?, args).await,
        Command::Import(args) => import::run(&cluster().await?, args).await,
        // What needs no cluster, or not one in which all is well.
        Command::Check(args) => check::run(&global, &args).await,
        Command::Completion(args) => generate::run(&args),
        Command::Complete(words) => complete::run(&words).await,
    }
}
