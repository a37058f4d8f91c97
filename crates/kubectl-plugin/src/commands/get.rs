//! What is stored of Nodes.

mod shown;
mod stream;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use jiff::Timestamp;
use label_storage::rules::{IdentityBy, Selector};
use label_storage_runtime::projection::Detail;
use label_storage_runtime::records;

use self::shown::{Seen, Shown, State};
use self::stream::Stream;
use crate::Ended;
use crate::advice::quoted;
use crate::cli::WideFormat;
use crate::cluster::Cluster;
use crate::find::Found;
use crate::output;
use crate::progress::LIST_LIMIT;

/// Which, and how to show it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
States: present (the record follows its node), pending (the node is there and not restored yet), departed (it is not there),
ignored (a person took it out), other-machine (the fence keeps it from being restored), contested (several nodes claim the
record), unreadable (a person has to look).

Examples:
  kubectl label-storage get my-node
  kubectl label-storage get my-node -o yaml
  kubectl label-storage get --all -o wide
  kubectl label-storage get --departed -l pool=gold")]
pub struct Args {
    /// Names of nodes, whether they are there or not
    #[arg(value_name = "NODE", required_unless_present_any = ["all", "selector", "departed", "pending"])]
    nodes: Vec<String>,

    /// All that is stored
    #[arg(long, conflicts_with = "nodes")]
    all: bool,

    /// All with these among the labels that are stored, as in pool=gold,tier!=1
    #[arg(long, short = 'l', value_name = "SELECTOR", conflicts_with = "nodes")]
    selector: Option<Selector>,

    /// All of nodes that are not there
    #[arg(long, conflicts_with_all = ["nodes", "pending"])]
    departed: bool,

    /// All of nodes that are there and have not been restored yet
    #[arg(long, conflicts_with = "nodes")]
    pending: bool,

    /// How to print
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    output: WideFormat,
}

impl Args {
    fn wants(&self, shown: &Shown) -> bool {
        let is_state = |asked: bool, state| !asked || shown.state == state;
        let is_selected = self.selector.as_ref().is_none_or(|selector| selector.matches(&shown.kept));
        is_state(self.departed, State::Departed) && is_state(self.pending, State::Pending) && is_selected
    }
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    if args.nodes.is_empty() { all(cluster, args).await } else { named(cluster, &args).await }
}

async fn named(cluster: &Cluster, args: &Args) -> Result<Ended> {
    let (mut all, mut missing) = (Vec::new(), Vec::new());
    for name in &args.nodes {
        let found = cluster.find(name).await?;
        let node = seen_node(cluster, &found).await?;
        match found.record {
            Some(record) => all.push(Shown::of(record, node.as_ref())),
            None => missing.push((name, found.node.is_some())),
        }
    }
    let is_shown = match all.as_slice() {
        [one] if args.nodes.len() == 1 => output::for_machines(args.output.narrow(), one)?,
        _ => false,
    };
    let ended =
        if all.iter().any(|shown| shown.state == State::Unreadable) { Ended::Unwell } else { Ended::Well };
    if !is_shown && args.output == WideFormat::Table {
        let now = Timestamp::now();
        let texts: Vec<_> = all.iter().map(|shown| shown.to_text(now, &cluster.advice)).collect();
        io::stdout().lock().write_all(texts.join("\n").as_bytes())?;
    } else if !is_shown && !all.is_empty() {
        let mut stream = Stream::new(io::stdout().lock(), args.output, Timestamp::now());
        all.iter().for_each(|shown| stream.show(shown));
        stream.end()?;
    }
    if missing.is_empty() {
        return Ok(ended);
    }
    let missing: Vec<_> =
        missing.into_iter().map(|(name, is_there)| why_not(cluster, name, is_there)).collect();
    anyhow::bail!("{}", missing.join("; "))
}

/// Why there is nothing to show of a Node of this name.
fn why_not(cluster: &Cluster, name: &str, is_there: bool) -> String {
    let Cluster { advice, namespace, .. } = cluster;
    if is_there {
        let explain = advice.plugin(&format!("explain {}", quoted(name)));
        return format!("nothing is stored of {name}: `{explain}` says why");
    }
    let all = advice.plugin("get --all");
    format!(
        "there is no node {name:?}, and nothing is stored of one in namespace {namespace}: `{all}` shows what is"
    )
}

/// Prints all at once, when all of it is there: who reads it slowly, or not at all, does not hold up the list, and a list that breaks
/// off is not taken for a whole one. Of Nodes a summary each is kept in memory, of records nothing.
async fn all(cluster: &Cluster, args: Args) -> Result<Ended> {
    let nodes = Arc::new(seen_nodes(cluster).await?);
    let spool = BufWriter::new(tempfile::tempfile().context("can't make a temporary file")?);
    let stream = Arc::new(Mutex::new((Stream::new(spool, args.output, Timestamp::now()), Ended::Well)));
    let output = Arc::clone(&stream);
    let each = move |object| {
        let shown = look(records::Found::from(object), &nodes);
        if args.wants(&shown) {
            let (stream, ended) = &mut *output.lock().unwrap_or_else(PoisonError::into_inner);
            stream.show(&shown);
            if shown.state == State::Unreadable {
                *ended = Ended::Unwell;
            }
        }
    };
    cluster.record_source().allowing(LIST_LIMIT).list(each).await?;
    let (stream, ended) = &mut *stream.lock().unwrap_or_else(PoisonError::into_inner);
    let shown = stream.end().context("can't write a temporary file")?;
    let spool: &mut File = stream.out().get_mut();
    spool.rewind()?;
    io::copy(spool, &mut io::stdout().lock())?;
    if shown == 0 {
        eprintln!("nothing is stored that was asked for, in namespace {}", cluster.namespace);
    }
    Ok(*ended)
}

/// The Node of a record, as it would be seen among all others: one that does not have what records are filed under has none, and one
/// may not be the only one to claim it.
async fn seen_node(cluster: &Cluster, found: &Found) -> Result<Option<Seen>> {
    let Some(node) = found.node.as_ref().filter(|node| !node.extras.is_unidentified) else { return Ok(None) };
    let mut seen = Seen::of(node, &cluster.rules);
    if cluster.rules.identity != IdentityBy::Name && found.record.is_some() {
        seen.is_contested = cluster.claimants(&found.filed_under).await?.0.len() > 1;
    }
    Ok(Some(seen))
}

/// All Nodes, by what their records are filed under.
async fn seen_nodes(cluster: &Cluster) -> Result<HashMap<String, Seen>> {
    let nodes = Arc::new(Mutex::new(HashMap::<String, Seen>::new()));
    let (collected, eyes) = (Arc::clone(&nodes), cluster.projection(Detail::WhatIsThere));
    let each = move |object| {
        // One that the daemons can't use either.
        let Ok(node) = eyes.node(object) else { return };
        if node.extras.is_unidentified {
            return;
        }
        let seen = Seen::of(&node, &eyes.rules);
        let mut nodes = collected.lock().unwrap_or_else(PoisonError::into_inner);
        let filed_under = node.extras.identity.unwrap_or(node.name);
        nodes.entry(filed_under).and_modify(|first| first.is_contested = true).or_insert(seen);
    };
    cluster.node_source(Detail::WhatIsThere).allowing(LIST_LIMIT).list(each).await?;
    Ok(std::mem::take(&mut *nodes.lock().unwrap_or_else(PoisonError::into_inner)))
}

fn look(record: records::Found, nodes: &HashMap<String, Seen>) -> Shown {
    let seen = match &record.content {
        Ok(decoded) => nodes.get(decoded.record.filed_under()),
        Err(_) => None,
    };
    Shown::of(record, seen)
}
