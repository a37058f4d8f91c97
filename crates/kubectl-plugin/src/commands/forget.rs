//! `forget`: deletes records.

use anyhow::{Result, bail};
use label_storage::Record;
use label_storage::record::Unreadable;

use crate::Ended;
use crate::cluster::Cluster;
use crate::flags::Change;
use crate::output::counted;
use crate::preview::Preview;
use crate::select::Which;
use crate::write::{Operation, Proposal, Write, carry_out};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubectl label-storage forget my-node
  kubectl label-storage forget --departed -l pool=gold --dry-run")]
pub struct Args {
    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    change: Change,
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let operations: Vec<_> = args.which.names(cluster).await?.into_iter().map(Forget).collect();
    carry_out(cluster, args.change, ("Delete", "record"), &operations, args.which.are_named()).await
}

struct Forget(String);

impl Operation for Forget {
    async fn plan(&self, cluster: &Cluster, tries: u32) -> Result<Proposal> {
        let Self(name) = self;
        let found = cluster.find(name).await?;
        let done = format!("record of node/{name} deleted");
        let Some(record) = &found.record else {
            if tries == 0 {
                bail!("nothing is stored for node {name} in namespace {}", cluster.namespace);
            }
            let preview = Preview::new(&format!("the record of node {name} is already deleted"));
            return Ok(Proposal { preview, writes: Vec::new(), done });
        };
        let mut preview = Preview::new(&format!("the record of node {name} is deleted:"));
        match &record.content {
            Ok(_) => (),
            Err(error @ Unreadable::Foreign(_)) => bail!("this is not a record: {error}"),
            Err(error) => preview.also(&format!("its content can't be read: {error}")),
        }
        for (name, value, _) in found.record().into_iter().flat_map(Record::all) {
            preview.changes(name, Some(value), None);
        }
        let versions = found.record().map_or(0, |record| record.more.history.len());
        if versions > 0 {
            preview.also(&format!("its history is deleted, too: {}", counted(versions, "earlier version")));
        }
        preview.note(match &found.node {
            Some(node) if node.is_ignored() => "the node exists, is ignored, and gets no new record",
            Some(_) => "the node exists: the storer creates a new record from its labels",
            None if found.is_departing() => "no storer has stored the node's deletion yet: one still may",
            None => "the node does not exist: its labels are lost, and it returns without them",
        });
        Ok(Proposal { preview, writes: vec![Write::delete(record)?], done })
    }
}
