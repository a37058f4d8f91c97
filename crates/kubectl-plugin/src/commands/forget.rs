//! `forget`: deletes records.

use anyhow::{Result, bail};
use label_storage::{Record, record::Unreadable};

use crate::write::{Proposal, Write, carry_out};
use crate::{Ended, changes::Preview, cluster::Cluster, flags::Change, select::Which};

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
    let names = args.which.names(cluster).await?;
    let plan = async |name: &String, tried: Option<&Preview>| plan(cluster, name, tried).await;
    carry_out(cluster, args.change, ("Delete", "record"), &names, args.which.are_named(), plan).await
}

async fn plan(cluster: &Cluster, name: &str, tried: Option<&Preview>) -> Result<Proposal> {
    let found = cluster.find(name).await?;
    let done = format!("record of node/{name} deleted");
    let record = match (&found.record, tried) {
        (Some(record), _) => record,
        (None, Some(tried)) => return Ok(Proposal { preview: tried.clone(), writes: Vec::new(), done }),
        (None, None) => bail!("nothing is stored for node {name} in namespace {}", cluster.namespace),
    };
    let mut preview = Preview::new(&format!("the record of node {name} is deleted:"));
    match &record.content {
        Ok(_) => (),
        Err(error @ Unreadable::Foreign(_)) => bail!("the ConfigMap is not a record: {error}"),
        Err(error) => preview.also(&format!("the content can't be read: {error}")),
    }
    for (name, value, _) in found.record().into_iter().flat_map(Record::all) {
        preview.changes(name, Some(value), None);
    }
    preview.note(match &found.node {
        Some(node) if node.is_ignored() => {
            "the node exists, but is ignored: the storer creates no new record"
        }
        Some(_) => "the node exists: the storer creates a new record from its labels",
        None if found.is_departing() => {
            "no storer has stored the deletion of the node yet: it may create the record again"
        }
        None => "the node does not exist: its labels are lost, and can't be restored",
    });
    Ok(Proposal { preview, writes: vec![Write::delete(record)?], done })
}
