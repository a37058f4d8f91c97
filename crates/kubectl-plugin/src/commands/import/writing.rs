//! Writes the records, several at a time. Each write is guarded by the version that was compared.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use label_storage::name::node_in_record_name;
use label_storage_runtime::backoff;
use label_storage_runtime::call::{Error, FailureKind};
use label_storage_runtime::projection::Detail;
use label_storage_runtime::records;
use label_storage_runtime::shutdown::Shutdown;

use super::imported::{Action, compare, effect, imported};
use super::reading::{Entry, Records, get};
use crate::Ended;
use crate::backup::SHOWN;
use crate::cluster::Cluster;
use crate::output::counted;
use crate::progress::Progress;
use crate::write::Write;

/// The number of records that are written at the same time.
const IN_FLIGHT: usize = 16;
/// The number of tries for a record that others write, too.
const TRIES: u32 = 5;
/// The time without any success after which an import gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Writes all records, until a signal comes or the API server is gone.
pub(super) async fn write_all(cluster: &Cluster, file: &Records, dry_run: bool) -> Result<Ended> {
    let shutdown = Shutdown::on_signals()?;
    let (succeeded_at, failure) = (Cell::new(Instant::now()), Cell::default());
    let writer = Writer { cluster, file, dry_run, shutdown: &shutdown, succeeded_at, failure };
    let mut unchanged = file.entries.values().filter(|entry| entry.action == Action::Keep).count();
    let is_todo = |action: &Action| matches!(action, Action::Create | Action::Replace(_));
    let todo: Vec<_> = file.entries.iter().filter(|(_, entry)| is_todo(&entry.action)).collect();
    let mut progress = Progress::new("written", "records", Some(todo.len() as u64));
    let (mut missing, mut created, mut replaced, mut left_alone) = (todo.len(), 0, 0, Vec::new());
    let begun = todo.into_iter().take_while(|_| !shutdown.stop.is_cancelled());
    let mut outcomes = stream::iter(begun.map(|entry| writer.write(entry))).buffer_unordered(IN_FLIGHT);
    while let Some(outcome) = tokio::select! {
        outcome = outcomes.next() => outcome,
        () = shutdown.abort.cancelled() => None,
    } {
        match outcome {
            None => continue,
            Some(Ok(Action::Create)) => created += 1,
            Some(Ok(Action::Replace(_))) => replaced += 1,
            Some(Ok(_)) => unchanged += 1,
            Some(Err(why)) => left_alone.push(why),
        }
        missing -= 1;
        writer.succeeded_at.set(Instant::now());
        progress.step();
    }
    drop(progress);
    let (left, mode) = (left_alone.len(), if dry_run { " (server dry run)" } else { "" });
    eprintln!("{created} created, {replaced} replaced, {unchanged} unchanged, {left} left alone{mode}");
    left_alone.iter().take(SHOWN).for_each(|why| eprintln!("left alone: {why}"));
    if missing > 0 {
        let why = writer.failure.take().map_or_else(|| "interrupted".to_owned(), |error| error.to_string());
        bail!("{why}: {} not written; run the same import again to go on", counted(missing, "record"));
    }
    if left > 0 {
        bail!("{} left alone: run the same import again to compare them", counted(left, "record"));
    }
    Ok(Ended::Well)
}

struct Writer<'a> {
    cluster: &'a Cluster,
    file: &'a Records,
    dry_run: bool,
    shutdown: &'a Shutdown,
    succeeded_at: Cell<Instant>,
    /// The error that ended the import.
    failure: Cell<Option<Error>>,
}

impl Writer<'_> {
    /// Writes a record, and tries again after failures that may pass. An error is the reason for which it is left alone.
    /// `None` if the import ends before.
    async fn write(&self, (name, entry): (&Box<str>, &Entry)) -> Option<Result<Action, String>> {
        let left_alone = |why| format!("{}: {why}", node_in_record_name(name).unwrap_or(name));
        let mut tries = 0;
        loop {
            let error = match self.attempt(entry, tries).await {
                Ok(outcome) => return Some(outcome.map_err(left_alone)),
                Err(error) => error,
            };
            tries += 1;
            // Without the permission or the namespace no record can be written.
            let is_of_all = match error.code {
                None | Some(401 | 403) => true,
                Some(code) => code == 404 && entry.action == Action::Create,
            };
            let is_final = match error.kind {
                FailureKind::Moved | FailureKind::Refused if is_of_all => true,
                FailureKind::Moved if tries < TRIES => false,
                FailureKind::Moved | FailureKind::Refused => return Some(Err(left_alone(error.to_string()))),
                _ => self.succeeded_at.get().elapsed() > PATIENCE,
            };
            let pause = backoff::exponential(Duration::from_millis(50), tries, Duration::from_secs(5));
            let pause = error.retry_after().map_or(pause, backoff::a_little_more);
            if is_final {
                self.failure.set(Some(error));
                self.shutdown.stop.cancel();
            }
            tokio::select! {
                biased;
                () = self.shutdown.stop.cancelled() => return None,
                () = tokio::time::sleep(pause) => (),
            }
        }
    }

    /// A failed attempt may have had an effect, so the next one begins with a read.
    async fn attempt(&self, entry: &Entry, tries: u32) -> Result<Result<Action, String>, Error> {
        let unreadable = |error| Error::refused("read the file", error);
        let (document, record) = get(&self.file.spool, entry).map_err(unreadable)?;
        let found = match entry.action {
            Action::Create if tries == 0 => None,
            _ => records::get(&self.cluster.records, record.filed_under()).await?,
        };
        match compare(&record, found.as_ref()) {
            action if action == entry.action => (),
            // After a failure it was written by the attempt before.
            Action::Keep if tries > 0 => return Ok(Ok(entry.action.clone())),
            Action::Keep => return Ok(Ok(Action::Keep)),
            Action::Block(why) => return Ok(Err(why)),
            _ => return Ok(Err("it has changed meanwhile, and was not overwritten".to_owned())),
        }
        let before =
            found.as_ref().and_then(|found| found.content.as_ref().ok()).map(|stored| &stored.record);
        let node = match &entry.node {
            None => None,
            Some(name) => self.cluster.node_source(Detail::WhatIsThere).get_node(name).await?,
        };
        let node = node.filter(|node| node.filed_under() == record.filed_under());
        let rules = &self.cluster.rules;
        let next = imported(&record, before, node.as_ref(), Timestamp::now(), rules);
        match node.map(|node| effect(&next, &node, rules)) {
            Some(Action::Keep) => return Ok(Ok(Action::Keep)),
            Some(Action::Skip(reason)) => return Ok(Err(format!("its node would not get it ({reason})"))),
            _ => (),
        }
        let write = match found {
            None => Write::create(&next, Some(&document)),
            Some(found) => Write::replace(&next, &found, Some(&document)),
        };
        write.map_err(unreadable)?.send(self.cluster, self.dry_run).await?;
        Ok(Ok(entry.action.clone()))
    }
}
