//! Writes the records of a file that [`export`](super::export), kubectl or a person has written.

mod reading;

use std::{fs::File, io, path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use label_storage::name::{node_in_record_name, record_name};
use label_storage::{Labels, Node, Record, ResourceVersion, Rules, Uid, plan_restore};
use label_storage::{restore::Reason, store::Stored};
use label_storage_runtime::call::{Error, FailureKind};
use label_storage_runtime::records::{self, Found};
use label_storage_runtime::{backoff, projection::Detail, shutdown::Shutdown};

use self::reading::{Contents, Entry, get};
use super::export::SHOWN;
use crate::changes::{diff_lines, differences};
use crate::cluster::{Cluster, try_fold};
use crate::confirm::{Answer, confirm, confirm_beside_stdin};
use crate::flags::{Change, DryRun};
use crate::output::{counted, print};
use crate::{Ended, write::Write};

const IN_FLIGHT: usize = 16;
/// The most attempts at one record. With the pauses they take at least 20 s.
const TRIES: u32 = 10;

/// The uid of an imported record. No Node has it.
pub(crate) const NOBODY: &str = "imported";

#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "The whole file is checked first. If it has any problem, nothing is changed.\n\n\
    An imported record is restored to the next node with its name or identity. Its retention begins with the import. Records \
    of existing nodes are skipped. With --include-living, such a node gets the labels that it lacks.\n\n\
    After an interruption, run the same import again: records that are stored already are not written again.\n\n\
    Examples:\n  kubectl label-storage import -f records.yaml --dry-run=server\n  kubectl label-storage import -f records.yaml --replace"
)]
pub struct Args {
    /// Read from this file; - is stdin [default: stdin]
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Replace stored records that differ; their labels are added to the history
    #[arg(long)]
    replace: bool,
    /// Import records of existing nodes, too
    #[arg(long)]
    include_living: bool,
    #[command(flatten)]
    change: Change,
}

/// The plan for a record of the file, or its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Intent {
    Create,
    /// The stored record differs, and has this version.
    Replace(ResourceVersion),
    Keep,
    Skip(&'static str),
    /// It can't be written, because of the stored ConfigMap or the API server.
    Block(String),
}

/// The intent that was carried out. An error ends the import.
type Outcome = Result<Intent, Error>;

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let path = args.file.filter(|path| path.as_os_str() != "-");
    let name = path.as_ref().map_or_else(|| "stdin".to_owned(), |path| path.display().to_string());
    let records = match &path {
        Some(path) => File::open(path).and_then(Contents::read),
        None => Contents::read(io::stdin()),
    };
    let records = records.with_context(|| format!("can't read {name}"))?;
    for (line, problem) in records.problems.iter().take(SHOWN) {
        eprintln!("{name}: line {line}: {problem}");
    }
    if !records.problems.is_empty() {
        bail!("{name} has {}: nothing was changed", counted(records.problems.len(), "problem"));
    }
    let records = records.compare(cluster, args.include_living).await?;
    let counts @ [new, changed, ..] = records.show()?;
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
        Answer::Go => write(cluster, &records, counts, dry_run).await,
        Answer::OnlyShow => Ok(Ended::Well),
        Answer::No => Ok(Ended::Declined),
    }
}

impl Contents {
    /// Compares them with all Nodes, then with all stored records. The restorer reads in this order, too.
    async fn compare(self, cluster: &Cluster, include_living: bool) -> Result<Self> {
        let projection = cluster.projection(Detail::WhatIsThere);
        let see_node = move |records: &mut Self, object| {
            let node = projection.node(object).ok().filter(|node| !node.extras.is_unidentified);
            node.map_or(Ok(()), |node| records.see_node(&node, include_living, &projection.rules))
        };
        let records = try_fold(cluster.node_source(Detail::WhatIsThere), self, see_node).await?;
        let see_record = |records: &mut Self, object| records.see_record(&Found::from(object));
        try_fold(cluster.record_source(), records, see_record).await
    }

    fn see_node(&mut self, node: &Node, include_living: bool, rules: &Rules) -> Result<()> {
        let name = record_name(node.filed_under());
        let Some(entry) = self.entries.get_mut(name.as_str()) else { return Ok(()) };
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
        // Otherwise the intent was decided by its Node.
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
            text += if counts[kind] <= SHOWN { &line } else { "" };
        }
        let [new, changed, unchanged, skipped] = counts;
        print(&format!("{text}{new} new, {changed} changed, {unchanged} unchanged, {skipped} skipped\n"))?;
        Ok(counts)
    }
}

/// Writes all records, until a signal arrives or the API server fails.
async fn write(cluster: &Cluster, records: &Contents, counts: [usize; 4], dry_run: bool) -> Result<Ended> {
    let (shutdown, [new, changed, mut unchanged, _]) = (&Shutdown::on_signals()?, counts);
    let (mut missing, mut created, mut replaced, mut left_alone) = (new + changed, 0, 0, Vec::new());
    let style = ProgressStyle::with_template("written {wide_bar} {human_pos}/{human_len} {eta}")?;
    let (progress, mut failure) = (ProgressBar::new(missing as u64).with_style(style), None);
    let is_todo = |entry: &Entry| matches!(entry.intent, Intent::Create | Intent::Replace(_));
    let todo = records.entries.iter().filter(|(_, entry)| is_todo(entry));
    let begun = todo.take_while(|_| !shutdown.stop.is_cancelled());
    let writes = begun
        .map(async |(name, entry)| (name, persist(cluster, &records.spool, entry, dry_run, shutdown).await));
    let mut outcomes = stream::iter(writes).buffer_unordered(IN_FLIGHT);
    while let Some((name, outcome)) = tokio::select! {
        outcome = outcomes.next() => outcome,
        () = shutdown.abort.cancelled() => None,
    } {
        match outcome {
            Ok(Intent::Create) => created += 1,
            Ok(Intent::Replace(_)) => replaced += 1,
            Ok(Intent::Keep) => unchanged += 1,
            Ok(Intent::Skip(why)) => left_alone.push((name, why.to_owned())),
            Ok(Intent::Block(why)) => left_alone.push((name, why)),
            Err(error) => {
                failure.get_or_insert(error);
                shutdown.stop.cancel();
                continue;
            }
        }
        missing -= 1;
        progress.inc(1);
    }
    progress.finish_and_clear();
    let (left, mode) = (left_alone.len(), if dry_run { " (server dry run)" } else { "" });
    eprintln!("{created} created, {replaced} replaced, {unchanged} unchanged, {left} not written{mode}");
    for (name, why) in left_alone.iter().take(SHOWN) {
        eprintln!("not written: {}: {why}", node_in_record_name(name).unwrap_or(name));
    }
    if missing > 0 {
        let why = failure.map_or_else(|| "interrupted".to_owned(), |error| error.to_string());
        bail!("{why}: {} not written; run the same import again to go on", counted(missing, "record"));
    }
    if left > 0 { bail!("{} not written", counted(left, "record")) } else { Ok(Ended::Well) }
}

/// Writes a record, and tries again after failures that may pass.
async fn persist(cluster: &Cluster, spool: &File, entry: &Entry, dry: bool, shutdown: &Shutdown) -> Outcome {
    let mut tries = 0;
    loop {
        let error = match attempt(cluster, spool, entry, dry, tries).await {
            Ok(outcome) => return Ok(outcome),
            Err(error) => error,
        };
        tries += 1;
        match (error.kind, error.code) {
            // Without the permission or the namespace no record can be written.
            (FailureKind::Refused, None | Some(401 | 403)) => return Err(error),
            (FailureKind::Moved, Some(404)) if entry.intent == Intent::Create => return Err(error),
            (FailureKind::Refused, _) => return Ok(Intent::Block(error.to_string())),
            _ if tries == TRIES => return Err(error),
            _ => (),
        }
        let pause = backoff::exponential(Duration::from_millis(50), tries, Duration::from_secs(5));
        tokio::select! {
            biased;
            () = shutdown.stop.cancelled() => return Err(error),
            () = tokio::time::sleep(error.retry_after().map_or(pause, backoff::a_little_more)) => (),
        }
    }
}

/// A failed attempt may have had an effect, so the next one begins with a read.
async fn attempt(cluster: &Cluster, spool: &File, entry: &Entry, dry: bool, tries: u32) -> Outcome {
    let unreadable = |error| Error::refused("read the file", error);
    let (document, record) = get(spool, entry).map_err(unreadable)?;
    let found = match entry.intent {
        Intent::Create if tries == 0 => None,
        _ => records::get(&cluster.records, record.filed_under()).await?,
    };
    match compare(&record, found.as_ref()) {
        intent if intent == entry.intent => (),
        // After a failure it was written by the attempt before.
        Intent::Keep if tries > 0 => return Ok(entry.intent.clone()),
        outcome @ (Intent::Keep | Intent::Block(_)) => return Ok(outcome),
        _ => {
            return Ok(Intent::Block("the record has changed meanwhile, and was not overwritten".to_owned()));
        }
    }
    let before = found.as_ref().and_then(|found| Some(&found.content.as_ref().ok()?.record));
    let node = match &entry.node {
        None => None,
        Some(name) => cluster.node_source(Detail::WhatIsThere).get_node(name).await?,
    };
    let node = node.filter(|node| node.filed_under() == record.filed_under());
    let next = imported(&record, before, node.as_ref(), Timestamp::now(), &cluster.rules);
    let effect = node.map(|node| effect(&next, &node, &cluster.rules));
    if let Some(outcome @ (Intent::Keep | Intent::Skip(_))) = effect {
        return Ok(outcome);
    }
    let write = Write::put(&next, found.as_ref(), Some(&document));
    write.map_err(unreadable)?.send(cluster, dry).await?;
    Ok(entry.intent.clone())
}

/// Compares a record with the stored one. Times, generations and history do not count.
fn compare(record: &Record, found: Option<&Found>) -> Intent {
    let content = |record: &Record| {
        let Record { node, labels, leftovers, more, .. } = record.clone();
        (node, labels, leftovers, more.identity, more.machine, more.withheld)
    };
    match found.map(|found| (&found.content, found.version())) {
        None => Intent::Create,
        Some((Err(error), _)) => Intent::Block(error.to_string()),
        Some((Ok(stored), _)) if content(&stored.record) == content(record) => Intent::Keep,
        Some((Ok(_), version)) => Intent::Replace(version.unwrap_or(ResourceVersion(0))),
    }
}

/// The effect of a record on an existing Node, as the restorer decides it. If the restorer would not restore the Node, the
/// record is skipped: the storer would wait for that restore.
fn effect(record: &Record, node: &Node, rules: &Rules) -> Intent {
    let plan = plan_restore(node, Stored::Record(record), rules, false);
    let is_whole = plan.patch.is_some_and(|patch| patch.restored.is_empty() && patch.withheld.is_empty());
    match plan.reason {
        Reason::Returned | Reason::ReturnedWhole if is_whole => Intent::Keep,
        Reason::Returned | Reason::ReturnedWhole | Reason::SeenInPart => Intent::Create,
        reason => Intent::Skip(reason.as_str()),
    }
}

/// The record of a file over the stored one.
///
/// - It belongs to no incarnation, so the restorer restores it to the Node, and the storer waits for that.
/// - It is as new as the stored record: a late event of a deletion that is stored already must not undo it.
/// - Its generation is above the stored one and the Node's marker, or the Node would count as restored already.
/// - A Node that does not exist departed now: its retention begins, and the storer does not see a mass loss of Nodes.
fn imported(new: &Record, old: Option<&Record>, node: Option<&Node>, at: Timestamp, rules: &Rules) -> Record {
    let mut record = new.clone();
    record.uid = Uid::new(NOBODY);
    record.node_version = Some(old.and_then(|old| old.node_version).unwrap_or(ResourceVersion(0)));
    record.departed_at = node.is_none().then_some(at);
    record.captured_at.get_or_insert(at);
    if let Some(old) = old {
        record.more.history = old.history_under(new, rules);
    }
    let marker = node.and_then(Node::restored_from).map_or(0, |from| from.generation);
    let newest = record.more.history.last().map_or(0, |version| version.generation);
    let least = marker.max(newest).max(old.map_or(0, |old| old.generation));
    if least > 0 {
        record.generation = record.generation.max(least.saturating_add(1));
    }
    record.labels_generation = Some(record.generation);
    record
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use label_storage::record::Version;
    use label_storage::restore;
    use label_storage::store::{self, Circumstances, Sighting, Stored};
    use label_storage::{Labels, plan_restore, plan_store};

    use super::*;

    fn labels<const N: usize>(pairs: [(&str, &str); N]) -> Labels {
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    fn node(version: &str, kept: Labels, marker: Option<&str>) -> Node {
        Node::new("a".to_owned(), "u1".to_owned(), version, kept, marker.map(str::to_owned)).expect("a node")
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).expect("a time")
    }

    fn at() -> Circumstances {
        let (retention, unchanged_for) = (Duration::from_secs(60), Duration::from_secs(3600));
        Circumstances { unchanged_for, retention, ..Circumstances::at(now()) }
    }

    /// The record in a file of a Node that has been absent for a year.
    fn file(kept: Labels) -> Record {
        let mut record = Record::of(&node("7", kept, None), Timestamp::UNIX_EPOCH);
        (record.uid, record.node_version, record.labels_generation) = (None, None, None);
        record.departed_at = Some(Timestamp::UNIX_EPOCH);
        record
    }

    fn stores(sighting: Sighting<&Node>, record: &Record) -> store::Reason {
        plan_store(sighting, Stored::Record(record), at(), &Rules::default()).reason
    }

    fn restores(node: &Node, record: &Record) -> restore::Reason {
        plan_restore(node, Stored::Record(record), &Rules::default(), false).reason
    }

    #[test]
    fn a_backup_is_kept_for_the_whole_retention_however_old_it_is() {
        let record = imported(&file(labels([("a", "1")])), None, None, now(), &Rules::default());
        assert_eq!(record.departed_at, Some(now()));
        assert_eq!(stores(Sighting::Gone, &record), store::Reason::Away);
        let returned = node("9", Labels::new(), None);
        assert_eq!(stores(Sighting::Live(&returned), &record), store::Reason::Returned);
        assert_eq!(restores(&returned, &record), restore::Reason::Returned);
    }

    #[test]
    fn no_marker_says_that_a_living_node_has_it_already() {
        for marker in [None, Some("u1"), Some("u1/1"), Some("u1/99"), Some("u0/99")] {
            let (own, lost) = (labels([("a", "1")]), labels([("a", "1"), ("lost", "found")]));
            let living = node("9", own.clone(), marker);
            let before = Record::of(&living, now());
            let record = imported(&file(lost), Some(&before), Some(&living), now(), &Rules::default());
            assert_eq!(restores(&living, &record), restore::Reason::Returned, "{marker:?}");
            assert_eq!(
                stores(Sighting::Live(&living), &record),
                store::Reason::AwaitingRestore,
                "{marker:?}"
            );
            assert_eq!(record.more.history.iter().map(|version| &version.labels).collect::<Vec<_>>(), [&own]);
        }
    }

    #[test]
    fn a_deletion_that_was_stored_before_does_not_undo_an_import() {
        let deleted = node("9", labels([("a", "old")]), None);
        let before = Record { departed_at: Some(now()), ..Record::of(&deleted, now()) };
        let record = imported(&file(labels([("a", "new")])), Some(&before), None, now(), &Rules::default());
        assert_eq!(stores(Sighting::Deleted(&deleted), &record), store::Reason::ViewOlderThanRecord);
        assert!(record.generation > before.generation);
        // A deletion that is not stored yet loses nothing.
        let record = imported(&file(labels([("b", "new")])), None, None, now(), &Rules::default());
        assert_eq!(stores(Sighting::Deleted(&deleted), &record), store::Reason::LeftUnrestored);
    }

    #[test]
    fn history_is_as_long_as_the_rules_say() {
        let mut before = Record::of(&node("9", labels([("a", "0")]), None), now());
        let rules = Rules { history: 2, ..Rules::default() };
        for value in ["1", "2", "3"] {
            before = imported(&file(labels([("a", value)])), Some(&before), None, now(), &rules);
        }
        let values: Vec<_> = before.more.history.iter().map(|version| version.labels["a"].as_str()).collect();
        assert_eq!((values, before.generation), (vec!["1", "2"], 4));
        // The history of the file is included, too.
        let mut with_history = file(labels([("a", "4")]));
        with_history.more.history =
            vec![Version { generation: 1, at: None, labels: labels([("a", "file")]) }];
        let after = imported(&with_history, Some(&before), None, now(), &Rules { history: 9, ..rules });
        let versions: Vec<_> = after
            .more
            .history
            .iter()
            .map(|version| (version.generation, version.labels["a"].as_str()))
            .collect();
        assert_eq!((versions, after.generation), (vec![(1, "file"), (2, "1"), (3, "2"), (4, "3")], 5));
    }
}
