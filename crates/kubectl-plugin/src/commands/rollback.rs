//! Not written yet.

use anyhow::Result;

use crate::Ended;
use crate::cluster::Cluster;

/// Flags.
#[derive(Debug, clap::Args)]
pub struct Args {}

pub(crate) async fn run(_: &Cluster, _: Args) -> Result<Ended> {
    anyhow::bail!("not written yet")
}
