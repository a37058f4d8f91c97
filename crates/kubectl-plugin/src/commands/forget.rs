//! Deletes records.

use anyhow::{Result, bail};
use label_storage::record::Unreadable;
use label_storage_runtime::records;

use crate::Ended;
use crate::cli::Change;
use crate::cluster::Cluster;
use crate::find::Found;
use crate::preview::Preview;
use crate::write::{Operation, Proposal, Write, carry_out, each_once};

/// Flags of `forget`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The nodes, by name
    #[arg(value_name = "NODE", required = true)]
    pub nodes: Vec<String>,

    /// Whether to ask.
    #[command(flatten)]
    pub change: Change,
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let operations: Vec<_> = each_once(args.nodes).into_iter().map(|node| Forget { node }).collect();
    carry_out(cluster, args.change, "Forget this?", &operations).await
}

struct Forget {
    node: String,
}

impl Operation for Forget {
    fn node(&self) -> &str {
        &self.node
    }

    async fn plan(&self, cluster: &Cluster, tries: u32) -> Result<Proposal> {
        let found = cluster.find(&self.node).await?;
        let done = format!("record of node/{} deleted", self.node);
        let Some(record) = &found.record else {
            if tries > 0 {
                let preview = Preview::new(format!("nothing is stored of node {} any more", self.node));
                return Ok(Proposal { preview, writes: Vec::new(), done });
            }
            bail!("nothing is stored of node {} in namespace {}", self.node, cluster.namespace);
        };
        let preview = show(&self.node, &found, record)?;
        Ok(Proposal { preview, writes: vec![Write::delete(record)?], done })
    }
}

fn show(node: &str, found: &Found, record: &records::Found) -> Result<Preview> {
    let mut preview = Preview::new(format!("the record of node {node} is deleted:"));
    let decoded = match &record.content {
        Ok(decoded) => decoded,
        // It was never ours.
        Err(error @ Unreadable::Foreign(_)) => bail!("this is not a record: {error}"),
        Err(error) => {
            preview.also(format!("with all that it holds: {error}"));
            return Ok(preview);
        }
    };
    for (name, value, _) in decoded.record.all() {
        preview.changes(name, Some(value), None);
    }
    if !decoded.record.more.history.is_empty() {
        preview.also(format!("with {} earlier versions", decoded.record.more.history.len()));
    }
    match &found.node {
        Some(live) if live.is_ignored() => {
            preview
                .note("the node is there and has the annotation label-storage/ignore: no new record is made");
        }
        Some(_) => preview.note("the node is there: the storer makes a new record of what it has now"),
        None => {
            preview.note("the node is not there: what it had is gone for good, and it returns without");
            if decoded.record.uid.is_some() && decoded.record.departed_at.is_none() {
                preview.note(
                    "no storer has noted yet that it is gone, and one may still store what it said last",
                );
            }
        }
    }
    Ok(preview)
}
