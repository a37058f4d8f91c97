//! Writes the records of a file that [`export`](super::export), kubectl or a person has written.

mod imported;
mod reading;

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use label_storage::name::{node_in_record_name, record_name};
use label_storage::record::Unreadable;
use label_storage::{Labels, Node, Rules};
use label_storage_runtime::backoff;
use label_storage_runtime::call::{self, Error, FailureKind};
use label_storage_runtime::projection::Detail;
use label_storage_runtime::records::{self, Found};
use label_storage_runtime::shutdown::Shutdown;

pub(crate) use self::imported::NOBODY;
use self::imported::{Intent, compare, effect, imported};
use self::reading::{Contents, Entry, get};
use crate::Ended;
use crate::backup::SHOWN;
use crate::changes::{diff_lines, differences};
use crate::cluster::{Cluster, others, try_fold};
use crate::confirm::{Answer, confirm, confirm_beside_stdin};
use crate::flags::{Change, DryRun};
use crate::output::{counted, print};
use crate::write::Write;

/// The number of records that are written at the same time.
const IN_FLIGHT: usize = 16;
/// The number of tries for a record. With the pauses between them they take at least 20 s.
const TRIES: u32 = 10;

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
    let path = args.file.filter(|path| path.as_os_str() != "-");
    let name = path.as_ref().map_or_else(|| "stdin".to_owned(), |path| path.display().to_string());
    let input = match &path {
        Some(path) => File::open(path).map(|file| Box::new(file) as Box<dyn Read>),
        None => Ok(Box::new(io::stdin()) as _),
    };
    let records = input.and_then(Contents::read).with_context(|| format!("can't read {name}"))?;
    for (line, problem) in records.problems.iter().take(SHOWN) {
        eprintln!("{name}: line {line}: {problem}");
    }
    if !records.problems.is_empty() {
        bail!("{name} has {}: nothing was changed", counted(records.problems.len(), "problem"));
    }
    let records = records.compare(cluster, args.include_living).await?;
    let [new, changed, ..] = records.show()?;
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
        Answer::Go => write(cluster, &records, dry_run).await,
        Answer::OnlyShow => Ok(Ended::Well),
        Answer::No => Ok(Ended::Declined),
    }
}

impl Contents {
    /// Compares them with all Nodes, then with all stored records. The restorer reads in this order, too.
    async fn compare(self, cluster: &Cluster, include_living: bool) -> Result<Self> {
        let projection = cluster.projection(Detail::WhatIsThere);
        let see_node = move |records: &mut Self, object| match projection.node(object) {
            Ok(node) if !node.extras.is_unidentified => {
                records.see_node(&node, include_living, &projection.rules)
            }
            _ => Ok(()),
        };
        let records = try_fold(cluster.node_source(Detail::WhatIsThere), self, see_node).await?;
        let see_record = |records: &mut Self, object| records.see_record(&Found::from(object));
        let mut records = try_fold(cluster.record_source(), records, see_record).await?;
        // A ConfigMap that is no record may have the name of one.
        for other in call::one("list configmaps", cluster.records.list_metadata(&others())).await?.items {
            let name = other.metadata.name.unwrap_or_default();
            if let Some(entry) = records.entries.get_mut(name.as_str())
                && entry.intent == Intent::Create
            {
                entry.intent = Intent::Block(Unreadable::Foreign(name).to_string());
            }
        }
        Ok(records)
    }

    fn see_node(&mut self, node: &Node, include_living: bool, rules: &Rules) -> Result<()> {
        let Some(entry) = self.entries.get_mut(record_name(node.filed_under()).as_str()) else {
            return Ok(());
        };
        entry.node = Some(node.name.as_str().into());
        entry.intent = Intent::Skip("its node exists");
        if include_living {
            let next = imported(&get(&self.spool, entry)?.1, None, Some(node), Timestamp::now(), rules);
            entry.intent = effect(&next, node, rules);
        }
        Ok(())
    }

    fn see_record(&mut self, found: &Found) -> Result<()> {
        let name = found.config_map.metadata.name.as_deref().unwrap_or_default();
        let Some(entry) = self.entries.get_mut(name) else { return Ok(()) };
        let (_, record) = get(&self.spool, entry)?;
        let intent = compare(&record, Some(found));
        // Otherwise its Node has decided.
        if entry.intent == Intent::Create || intent == Intent::Keep {
            entry.intent = intent;
        }
        if let (Intent::Replace(_), Ok(stored), true) =
            (&entry.intent, &found.content, self.changes.len() < SHOWN)
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
        for (name, entry) in &self.entries {
            let node = node_in_record_name(name).unwrap_or(name);
            let (kind, line) = match &entry.intent {
                Intent::Create => (0, format!("+ {node}\n")),
                Intent::Replace(_) => (1, String::new()),
                Intent::Keep => (2, String::new()),
                Intent::Skip(reason) => (3, format!("skipped ({reason}): {node}\n")),
                Intent::Block(why) => bail!("nothing was changed: {why}"),
            };
            counts[kind] += 1;
            if counts[kind] <= SHOWN {
                text += &line;
            }
        }
        let [new, changed, unchanged, skipped] = counts;
        text += &format!("{new} new, {changed} changed, {unchanged} unchanged, {skipped} skipped\n");
        print(&text)?;
        Ok(counts)
    }
}

/// Writes all records, until a signal comes or the API server is gone.
async fn write(cluster: &Cluster, records: &Contents, dry_run: bool) -> Result<Ended> {
    let shutdown = &Shutdown::on_signals()?;
    let writer = &Writer { cluster, records, dry_run, shutdown };
    let is_todo = |intent: &Intent| matches!(intent, Intent::Create | Intent::Replace(_));
    let todo: Vec<_> = records.entries.iter().filter(|(_, entry)| is_todo(&entry.intent)).collect();
    let mut unchanged = records.entries.values().filter(|entry| entry.intent == Intent::Keep).count();
    let (mut missing, mut created, mut replaced, mut left_alone) = (todo.len(), 0, 0, Vec::new());
    let style = ProgressStyle::with_template("written {wide_bar} {human_pos}/{human_len} {eta}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    let (progress, mut failure) = (ProgressBar::new(missing as u64).with_style(style), None);
    let begun = todo.into_iter().take_while(|_| !shutdown.stop.is_cancelled());
    let writes = begun.map(async |(name, entry)| (name, writer.write(entry).await));
    let mut outcomes = stream::iter(writes).buffer_unordered(IN_FLIGHT);
    while let Some((name, outcome)) = tokio::select! {
        outcome = outcomes.next() => outcome,
        () = shutdown.abort.cancelled() => None,
    } {
        match outcome {
            Ok(Ok(Intent::Create)) => created += 1,
            Ok(Ok(Intent::Replace(_))) => replaced += 1,
            Ok(Ok(_)) => unchanged += 1,
            Ok(Err(why)) => left_alone.push(format!("{}: {why}", node_in_record_name(name).unwrap_or(name))),
            Err(error) => {
                failure = failure.or(error);
                shutdown.stop.cancel();
                continue;
            }
        }
        missing -= 1;
        progress.inc(1);
    }
    progress.finish_and_clear();
    let (left, mode) = (left_alone.len(), if dry_run { " (server dry run)" } else { "" });
    eprintln!("{created} created, {replaced} replaced, {unchanged} unchanged, {left} left alone{mode}");
    left_alone.iter().take(SHOWN).for_each(|why| eprintln!("left alone: {why}"));
    if missing > 0 {
        let why = failure.map_or_else(|| "interrupted".to_owned(), |error| error.to_string());
        bail!("{why}: {} not written; run the same import again to go on", counted(missing, "record"));
    }
    if left > 0 { bail!("{} left alone", counted(left, "record")) } else { Ok(Ended::Well) }
}

struct Writer<'a> {
    cluster: &'a Cluster,
    records: &'a Contents,
    dry_run: bool,
    shutdown: &'a Shutdown,
}

impl Writer<'_> {
    /// Writes a record, and tries again after failures that may pass. The inner error is the reason for which this record
    /// is left alone, the outer one ends the import; it is `None` after a signal.
    async fn write(&self, entry: &Entry) -> Result<Result<Intent, String>, Option<Error>> {
        let mut tries = 0;
        loop {
            let error = match self.attempt(entry, tries).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            tries += 1;
            match (error.kind, error.code) {
                // Without the permission or the namespace no record can be written.
                (FailureKind::Refused, None | Some(401 | 403)) => return Err(Some(error)),
                (FailureKind::Moved, Some(404)) if entry.intent == Intent::Create => return Err(Some(error)),
                (FailureKind::Refused, _) => return Ok(Err(error.to_string())),
                _ if tries == TRIES => return Err(Some(error)),
                _ => (),
            }
            let pause = backoff::exponential(Duration::from_millis(50), tries, Duration::from_secs(5));
            tokio::select! {
                biased;
                () = self.shutdown.stop.cancelled() => return Err(None),
                () = tokio::time::sleep(error.retry_after().map_or(pause, backoff::a_little_more)) => (),
            }
        }
    }

    /// A failed attempt may have had an effect, so the next one begins with a read.
    async fn attempt(&self, entry: &Entry, tries: u32) -> Result<Result<Intent, String>, Error> {
        let unreadable = |error| Error::refused("read the file", error);
        let (document, record) = get(&self.records.spool, entry).map_err(unreadable)?;
        let found = match entry.intent {
            Intent::Create if tries == 0 => None,
            _ => records::get(&self.cluster.records, record.filed_under()).await?,
        };
        match compare(&record, found.as_ref()) {
            intent if intent == entry.intent => (),
            // After a failure it was written by the attempt before.
            Intent::Keep if tries > 0 => return Ok(Ok(entry.intent.clone())),
            Intent::Keep => return Ok(Ok(Intent::Keep)),
            Intent::Block(why) => return Ok(Err(why)),
            _ => return Ok(Err("it has changed meanwhile, and was not overwritten".to_owned())),
        }
        let before = found.as_ref().and_then(|found| Some(&found.content.as_ref().ok()?.record));
        let node = match &entry.node {
            None => None,
            Some(name) => self.cluster.node_source(Detail::WhatIsThere).get_node(name).await?,
        };
        let node = node.filter(|node| node.filed_under() == record.filed_under());
        let rules = &self.cluster.rules;
        let next = imported(&record, before, node.as_ref(), Timestamp::now(), rules);
        match node.map(|node| effect(&next, &node, rules)) {
            Some(Intent::Keep) => return Ok(Ok(Intent::Keep)),
            Some(Intent::Skip(reason)) => return Ok(Err(format!("its node would not get it ({reason})"))),
            _ => (),
        }
        let write = match found {
            None => Write::create(&next, Some(&document)),
            Some(found) => Write::replace(&next, &found, Some(&document)),
        };
        write.map_err(unreadable)?.send(self.cluster, self.dry_run).await?;
        Ok(Ok(entry.intent.clone()))
    }
}
