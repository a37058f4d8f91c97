//! Completion scripts.

use anyhow::Result;

use crate::Ended;

/// Which.
#[derive(Debug, clap::Args)]
pub struct Args {}

pub(crate) fn run(_: &Args) -> Result<Ended> {
    anyhow::bail!("not written yet")
}
