//! What is stored of Nodes.

mod shown;
mod stream;

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use jiff::Timestamp;
use label_storage::rules::Selector;
use label_storage_runtime::eyes::Sight;
use label_storage_runtime::records;

use self::shown::{Seen, Shown, State};
use self::stream::Stream;
use crate::Ended;
use crate::cli::Format;
use crate::cluster::Cluster;
use crate::output;

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
    output: Format,
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
        let found = cluster.find_known(name).await?;
        let node = found.node.as_ref().map(|node| Seen::of(node, &cluster.rules));
        match found.record {
            Some(record) => all.push(Shown::of(record, node.as_ref())),
            None => missing.push(name),
        }
    }
    let is_shown = match all.as_slice() {
        [one] if args.nodes.len() == 1 => output::for_machines(args.output, one)?,
        _ => false,
    };
    let ended =
        if all.iter().any(|shown| shown.state == State::Unreadable) { Ended::Unwell } else { Ended::Well };
    if !is_shown && args.output == Format::Table {
        let now = Timestamp::now();
        let texts: Vec<_> = all.iter().map(|shown| shown.to_text(now)).collect();
        io::stdout().lock().write_all(texts.join("\n").as_bytes())?;
    } else if !is_shown {
        let mut stream = Stream::new(args.output, Timestamp::now());
        all.iter().for_each(|shown| stream.show(shown));
        stream.end()?;
    }
    if missing.is_empty() {
        return Ok(ended);
    }
    let missing: Vec<_> = missing.iter().map(|name| name.as_str()).collect();
    anyhow::bail!(
        "nothing is stored of {}: `kubectl label-storage explain {}` says why",
        missing.join(", "),
        missing[0]
    )
}

/// Streams: of Nodes a summary each is kept, of records only those that are just being printed.
async fn all(cluster: &Cluster, args: Args) -> Result<Ended> {
    let nodes = Arc::new(seen_nodes(cluster).await?);
    let stream = Arc::new(Mutex::new((Stream::new(args.output, Timestamp::now()), Ended::Well)));
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
    let listed = cluster.record_source().list(each).await;
    let (stream, ended) = &mut *stream.lock().unwrap_or_else(PoisonError::into_inner);
    let shown = stream.end()?;
    listed?;
    if shown == 0 {
        eprintln!("nothing is stored that was asked for, in namespace {}", cluster.namespace);
    }
    Ok(*ended)
}

/// All Nodes, by what their records are filed under.
async fn seen_nodes(cluster: &Cluster) -> Result<HashMap<String, Seen>> {
    let nodes = Arc::new(Mutex::new(HashMap::<String, Seen>::new()));
    let (collected, eyes) = (Arc::clone(&nodes), cluster.eyes(Sight::WhatIsThere));
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
    cluster.node_source(Sight::WhatIsThere).list(each).await?;
    Ok(std::mem::take(&mut *nodes.lock().unwrap_or_else(PoisonError::into_inner)))
}

fn look(record: records::Found, nodes: &HashMap<String, Seen>) -> Shown {
    let seen = match &record.content {
        Ok(decoded) => nodes.get(decoded.record.filed_under()),
        Err(_) => None,
    };
    Shown::of(record, seen)
}
