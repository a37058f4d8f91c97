//! Writes the records of a file that [`export`](super::export), kubectl or a person has written.

mod imported;
mod reading;
mod writing;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use kube::api::ListParams;
use label_storage::name::{node_in_record_name, record_name};
use label_storage::record::{MANAGED_BY, Unreadable};
use label_storage::{Labels, Node, Rules};
use label_storage_runtime::call;
use label_storage_runtime::projection::Detail;
use label_storage_runtime::records::Found;

pub(crate) use self::imported::NOBODY;
use self::imported::{Action, compare, effect, imported};
use self::reading::{Records, get};
use crate::Ended;
use crate::backup::SHOWN;
use crate::changes::{diff_lines, differences};
use crate::cli::{Change, DryRun};
use crate::cluster::Cluster;
use crate::confirm::{Answer, confirm, confirm_beside_stdin};
use crate::output::counted;
use crate::progress;

#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "The whole file is checked first. If it has any problem, nothing is changed.\n\n\
    An imported record is restored to the next node of its name or identity. Its retention begins with the import. Records \
    of existing nodes are skipped. With --include-living, such a node gets the labels that it lacks.\n\n\
    After an interruption, run the same import again: records that are stored already are not written again.\n\n\
    Example: kubectl label-storage import -f records.yaml --dry-run=server"
)]
pub struct Args {
    /// Read this file; - is stdin [default: stdin]
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Overwrite stored records that differ; their labels go into the history
    #[arg(long)]
    replace: bool,
    /// Import records of existing nodes, too
    #[arg(long)]
    include_living: bool,
    #[command(flatten)]
    change: Change,
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    cluster.require_rules()?;
    let path = args.file.filter(|path| path.as_os_str() != "-");
    let name = path.as_ref().map_or_else(|| "stdin".to_owned(), |path| path.display().to_string());
    let input = match &path {
        Some(path) => File::open(path).map(|file| Box::new(file) as Box<dyn Read>),
        None => Ok(Box::new(io::stdin()) as _),
    };
    let records = input.and_then(Records::read).with_context(|| format!("can't read {name}"))?;
    for (line, problem) in records.problems.iter().take(SHOWN) {
        eprintln!("{name}: line {line}: {problem}");
    }
    if !records.problems.is_empty() {
        bail!("{name} has {}: nothing was changed", counted(records.problems.len(), "problem"));
    }
    let plan = Plan::make(cluster, records, args.include_living).await?;
    let [new, changed, ..] = plan.show()?;
    if changed > 0 && !args.replace {
        bail!("nothing was changed: give --replace to overwrite {}", counted(changed, "stored record"));
    }
    let question = format!("Write {} to namespace {}?", counted(new + changed, "record"), cluster.namespace);
    let dry_run = args.change.dry_run == Some(DryRun::Server);
    let answer = match path {
        _ if new + changed == 0 => Answer::OnlyShow,
        _ if dry_run => Answer::Go,
        Some(_) => confirm(args.change, &question)?,
        None => confirm_beside_stdin(args.change, &question)?,
    };
    match answer {
        Answer::Go => writing::write_all(cluster, &plan.records, dry_run).await,
        Answer::OnlyShow => Ok(Ended::Well),
        Answer::No => Ok(Ended::Declined),
    }
}

/// The records of the file, compared with the cluster.
struct Plan {
    records: Records,
    include_living: bool,
    /// For the first stored records that differ.
    changes: Vec<String>,
}

impl Plan {
    /// Looks at all Nodes, then at all stored records. The restorer reads in this order, too.
    async fn make(cluster: &Cluster, records: Records, include_living: bool) -> Result<Self> {
        let plan = Self { records, include_living, changes: Vec::new() };
        let projection = cluster.projection(Detail::WhatIsThere);
        let see_node = move |plan: &mut Self, object| match projection.node(object) {
            Ok(node) if !node.extras.is_unidentified => plan.see_node(&node, &projection.rules),
            _ => Ok(()),
        };
        let plan = progress::list(cluster.node_source(Detail::WhatIsThere), "nodes", plan, see_node).await?;
        let see_record = |plan: &mut Self, object| plan.see_record(&Found::from(object));
        let mut plan = progress::list(cluster.record_source(), "records", plan, see_record).await?;
        // A ConfigMap that is no record may have the name of one.
        let others = ListParams::default().labels(&format!("{}!={}", MANAGED_BY.0, MANAGED_BY.1));
        for other in call::one("list configmaps", cluster.records.list_metadata(&others)).await?.items {
            let name = other.metadata.name.unwrap_or_default();
            if let Some(entry) = plan.records.entries.get_mut(name.as_str()) {
                entry.action = Action::Block(Unreadable::Foreign(name).to_string());
            }
        }
        Ok(plan)
    }

    fn see_node(&mut self, node: &Node, rules: &Rules) -> Result<()> {
        let Records { entries, spool, .. } = &mut self.records;
        let Some(entry) = entries.get_mut(record_name(node.filed_under()).as_str()) else { return Ok(()) };
        entry.node = Some(node.name.as_str().into());
        entry.action = if self.include_living {
            let (_, record) = get(spool, entry)?;
            effect(&imported(&record, None, Some(node), Timestamp::now(), rules), node, rules)
        } else {
            Action::Skip("its node exists")
        };
        Ok(())
    }

    fn see_record(&mut self, found: &Found) -> Result<()> {
        let Records { entries, spool, .. } = &mut self.records;
        let name = found.config_map.metadata.name.as_deref().unwrap_or_default();
        let Some(entry) = entries.get_mut(name) else { return Ok(()) };
        let (_, record) = get(spool, entry)?;
        let action = compare(&record, Some(found));
        // Otherwise its Node has decided.
        if entry.action == Action::Create || action == Action::Keep {
            entry.action = action;
        }
        if let (Action::Replace(_), Ok(stored), true) =
            (&entry.action, &found.content, self.changes.len() < SHOWN)
        {
            let [before, after] = [&stored.record, &record].map(|record| -> Labels {
                record.all().map(|(name, value, _)| (name.to_owned(), value.to_owned())).collect()
            });
            let changes = diff_lines(&differences(&before, &after)).join("\n  ");
            self.changes.push(format!("~ {}\n  {changes}\n", record.node));
        }
        Ok(())
    }

    /// Prints the plan. Returns the numbers of new, changed, unchanged and skipped records.
    fn show(&self) -> Result<[usize; 4]> {
        let (mut text, mut counts) = (self.changes.concat(), [0; 4]);
        for (name, entry) in &self.records.entries {
            let (kind, mark) = match &entry.action {
                Action::Block(why) => bail!("nothing was changed: {why}"),
                Action::Create => (0, Some("+".to_owned())),
                Action::Replace(_) => (1, None),
                Action::Keep => (2, None),
                Action::Skip(reason) => (3, Some(format!("skipped ({reason}):"))),
            };
            counts[kind] += 1;
            if let Some(mark) = mark.filter(|_| counts[kind] <= SHOWN) {
                text += &format!("{mark} {}\n", node_in_record_name(name).unwrap_or(name));
            }
        }
        let [new, changed, unchanged, skipped] = counts;
        let summary = format!("{new} new, {changed} changed, {unchanged} unchanged, {skipped} skipped\n");
        io::stdout().lock().write_all((text + &summary).as_bytes())?;
        Ok(counts)
    }
}
