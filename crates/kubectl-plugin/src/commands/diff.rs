//! Nodes against their records.

use std::io::{self, Write};

use anyhow::{Result, bail};
use jiff::Timestamp;
use label_storage::node::EVERYTHING;
use label_storage::{Labels, Rules};
use serde::Serialize;

use crate::Ended;
use crate::changes::{Difference, diff_lines, differences, painted};
use crate::cli::Format;
use crate::cluster::Cluster;
use crate::find::Found;
use crate::output::{age, for_machines, plain};

/// Which, and how to show it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Lines with - are what the record has, lines with + what the node has. What the rules leave out, and what was withheld from the
node, is no difference, and is named after a #. Exit code: 0 where all are the same, 3 where any differs.")]
pub struct Args {
    /// Names of nodes
    #[arg(value_name = "NODE", required = true)]
    nodes: Vec<String>,

    /// How to print
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    output: Format,
}

/// A Node against its record. The names are what scripts go by, so they stay.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Compared {
    node: String,
    is_same: bool,
    is_there: bool,
    is_stored: bool,
    /// `before` is the record, `after` the Node.
    differences: Vec<Difference>,
    /// What the record has, and the Node was not given.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    withheld: Labels,
    /// Labels of the Node that the rules do not keep.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
    /// What the record has, the rules would not store now, and which is therefore left alone in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_alone: Vec<String>,
    #[serde(skip)]
    heads: [String; 2],
}

#[derive(Debug, Serialize)]
struct All<'a> {
    items: &'a [Compared],
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let mut all = Vec::new();
    for name in &args.nodes {
        let found = cluster.find_known(name).await?;
        if let Some(unreadable) = found.record.as_ref().filter(|record| record.content.is_err()) {
            bail!("the record of {name}: {}", unreadable.complaint().unwrap_or_default());
        }
        all.push(compare(&found, &cluster.rules, Timestamp::now()));
    }
    let is_shown = match all.as_slice() {
        [one] => for_machines(args.output, one)?,
        all => for_machines(args.output, &All { items: all })?,
    };
    if !is_shown {
        let text: String = all.iter().map(Compared::to_text).collect();
        io::stdout().lock().write_all(text.as_bytes())?;
    }
    Ok(if all.iter().all(|compared| compared.is_same) { Ended::Well } else { Ended::Unwell })
}

fn compare(found: &Found, rules: &Rules, now: Timestamp) -> Compared {
    let (node, record) = found.seen_by_storer(rules);
    let record = record.and_then(|record| record.content.ok()).map(|decoded| decoded.record);
    let mut stored = record.as_ref().map(|record| record.labels.clone()).unwrap_or_default();
    let own = node.as_ref().map(|node| node.labels.clone()).unwrap_or_default();
    let mut withheld: Labels = record
        .iter()
        .flat_map(|record| &record.more.withheld)
        .map(|(name, kept)| (name.clone(), kept.value.clone()))
        .collect();
    if let (Some(node), Some(record)) = (&node, &record)
        && record.uid.as_ref() != Some(&node.uid)
    {
        // The storer has yet to set it aside.
        let named: Vec<_> = node.withheld().collect();
        let is_withheld =
            |name: &str| !own.contains_key(name) && (named.contains(&name) || named.contains(&EVERYTHING));
        withheld.extend(stored.extract_if(.., |name, _| is_withheld(name)));
    }
    let differences = differences(&stored, &own);
    let of_record = match &record {
        None => "nothing".to_owned(),
        Some(record) => {
            let stored = record.captured_at.map(|at| format!(", stored {} ago", age(now.duration_since(at))));
            format!("generation {}{}", record.generation, stored.unwrap_or_default())
        }
    };
    let of_node = node.as_ref().map_or_else(|| "not there".to_owned(), |node| format!("uid {}", node.uid));
    Compared {
        node: found.name.clone(),
        is_same: differences.is_empty(),
        is_there: node.is_some(),
        is_stored: record.is_some(),
        differences,
        withheld,
        left_out: missing(found.node.as_ref().map(|node| &node.labels), &own),
        left_alone: missing(found.record().map(|record| &record.labels), &stored_names(record.as_ref())),
        heads: [
            format!("record of {} ({of_record})", found.name),
            format!("node {} ({of_node})", found.name),
        ],
    }
}

fn stored_names(record: Option<&label_storage::Record>) -> Labels {
    record.map(|record| record.labels.clone()).unwrap_or_default()
}

/// What is in the first and not in the second, by name.
fn missing(all: Option<&Labels>, seen: &Labels) -> Vec<String> {
    all.into_iter().flat_map(|all| all.keys()).filter(|name| !seen.contains_key(*name)).cloned().collect()
}

impl Compared {
    fn to_text(&self) -> String {
        let mut lines = Vec::new();
        if !self.is_same {
            lines
                .extend([plain(&format!("--- {}", self.heads[0])), plain(&format!("+++ {}", self.heads[1]))]);
            lines.extend(diff_lines(&self.differences).iter().map(|line| painted(line)));
        }
        let node = &self.node;
        let withheld = self.withheld.iter();
        let withheld = withheld.map(|(name, value)| format!("# withheld from {node}: {name}={value}"));
        let left_out = self.left_out.iter();
        let left_out = left_out.map(|name| format!("# not stored of {node}, by the rules: {name}"));
        let left_alone = self.left_alone.iter().map(|name| {
            format!("# in the record of {node}, not stored any more by the rules, and left alone: {name}")
        });
        lines.extend(withheld.chain(left_out).chain(left_alone).map(|line| plain(&line)));
        lines.into_iter().map(|line| line + "\n").collect()
    }
}
