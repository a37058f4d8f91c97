//! The changes of `kubectl label-storage`, with and without running daemons.

mod asking;
mod dry_running;
mod failing;
mod forgetting;
mod impersonating;
mod meanwhile;
mod renaming;
mod restoring;
mod rolling_back;
mod selecting;
mod setting;

pub use asking::*;
pub use dry_running::*;
pub use failing::*;
pub use forgetting::*;
pub use impersonating::*;
pub use meanwhile::*;
pub use renaming::*;
pub use restoring::*;
pub use rolling_back::*;
pub use selecting::*;
pub use setting::*;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::scenario::{Labels, Scenario, Told};

const TRUST: &str = "node-restriction.kubernetes.io/tier";

/// A node of this machine, with these labels.
fn on(system_uuid: &str, labels: Value) -> Value {
    json!({"metadata": {"labels": labels}, "status": {"nodeInfo": {"systemUUID": system_uuid}}})
}

/// A node with these labels, which are stored, and no storer any more.
async fn stored(s: &Scenario, node: &str, kept: &Labels) -> Result<()> {
    let storer = s.storer(&[])?;
    s.create(node, kept.clone()).await?;
    s.eventually_stored(node, kept.clone()).await?;
    drop(storer);
    Ok(())
}

/// The same, and the node is gone, and that is stored.
async fn departed(s: &Scenario, node: &str, kept: &Labels) -> Result<()> {
    let storer = s.storer(&[])?;
    s.create(node, kept.clone()).await?;
    s.eventually_stored(node, kept.clone()).await?;
    s.delete(node).await?;
    s.eventually_departed(node).await?;
    drop(storer);
    Ok(())
}

/// Runs the plugin, which must do what it is asked for. Returns what it says.
fn does(s: &Scenario, args: &[&str]) -> Result<String> {
    let told = s.plugin(args)?;
    ensure!(told.code == Some(0) && complaints(&told).is_empty(), "{args:?}: {told:?}");
    Ok(told.out)
}

/// Runs the plugin, which must refuse, in one line with these words.
fn refuses(s: &Scenario, args: &[&str], words: &[&str]) -> Result<()> {
    let told = s.plugin(args)?;
    let complaints = complaints(&told);
    let is_one_line = complaints.len() == 1 && complaints[0].starts_with("error: ");
    ensure!(told.code == Some(1) && is_one_line, "{args:?}: {told:?}");
    for part in words {
        ensure!(told.err.contains(part), "{args:?} does not say {part:?}: {told:?}");
    }
    Ok(())
}

/// Its stderr without the line about waiting for a storer, which may appear on a busy machine.
fn complaints(told: &Told) -> Vec<&str> {
    told.err.lines().filter(|line| !line.starts_with("waiting for up to")).collect()
}

/// Checks that all of these are lines of a text.
fn has_lines(text: &str, lines: &[&str]) -> Result<()> {
    for line in lines {
        ensure!(text.lines().any(|its| its == *line), "{line:?} is no line of {text}");
    }
    Ok(())
}
