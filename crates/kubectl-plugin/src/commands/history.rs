//! What was kept of a Node before.

use std::fmt::Write as _;
use std::io::{self, Write};

use anyhow::{Result, bail};
use jiff::Timestamp;
use label_storage::{Labels, Record};
use serde::Serialize;

use crate::Ended;
use crate::changes::{diff_lines, differences, painted};
use crate::cluster::Cluster;
use crate::output::Format;
use crate::output::age;

/// Of which, and how to show it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each version is shown with what was different in the next one: - was taken away, + came. To bring one back:
  kubectl label-storage rollback NODE --to GENERATION")]
pub struct Args {
    /// The name of a node, whether it is there or not
    #[arg(value_name = "NODE")]
    node: String,

    /// How to print
    #[arg(long, short, value_name = "FORMAT", default_value = "table", value_parser = crate::output::OF_OBJECTS)]
    output: Format,
}

/// One version, the oldest first. The names are what scripts go by, so they stay.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    generation: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    captured_at: Option<Timestamp>,
    is_current: bool,
    kept: &'a Labels,
}

#[derive(Debug, Serialize)]
struct Versions<'a> {
    node: &'a str,
    versions: &'a [Shown<'a>],
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let found = cluster.find_known(&args.node).await?;
    let Some(record) = found.record() else {
        match &found.record {
            Some(unreadable) => {
                bail!("the record of {}: {}", found.name, unreadable.complaint().unwrap_or_default())
            }
            None => bail!("nothing is stored of {}, so there is no history", found.name),
        }
    };
    let versions = versions(record);
    if !args
        .output
        .print(&crate::output::typed("History", &Versions { node: &found.name, versions: &versions }))?
    {
        io::stdout().lock().write_all(to_text(&versions, Timestamp::now()).as_bytes())?;
    }
    if versions.len() < 2 && cluster.rules.history == 0 {
        eprintln!("the rules keep no history (history: 0)");
    } else if versions.len() < 2 {
        eprintln!(
            "no earlier version is kept of {}: what is stored of it has not changed since history was kept of it",
            found.name
        );
    }
    Ok(Ended::Well)
}

fn versions(record: &Record) -> Vec<Shown<'_>> {
    let earlier = record.more.history.iter().map(|version| Shown {
        generation: version.generation,
        captured_at: version.at,
        is_current: false,
        kept: &version.labels,
    });
    let current = Shown {
        generation: record.labels_generation.unwrap_or(record.generation),
        captured_at: record.captured_at,
        is_current: true,
        kept: &record.labels,
    };
    earlier.chain([current]).collect()
}

fn to_text(versions: &[Shown<'_>], now: Timestamp) -> String {
    let mut text = String::new();
    for (at, version) in versions.iter().enumerate() {
        let stored = match version.captured_at {
            Some(at) => format!("stored {} ago ({at:.0})", age(now.duration_since(at))),
            None => "stored at a time that the record does not tell".to_owned(),
        };
        let is_current = if version.is_current { ", the present one" } else { "" };
        // What is written to a text can't fail.
        let _ = writeln!(
            text,
            "generation {}, {} kept, {stored}{is_current}",
            version.generation,
            version.kept.len()
        );
        let next = versions.get(at + 1).map(|next| differences(version.kept, next.kept));
        for line in diff_lines(&next.unwrap_or_default()) {
            let _ = writeln!(text, "  {}", painted(&line));
        }
    }
    text
}
