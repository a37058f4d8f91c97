//! The report.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::ledger::{Kind, Ledger, Undetermined, Wrong};
use crate::settings::Settings;

/// The events of a soak.
#[derive(Debug, Clone, Serialize)]
pub struct Events {
    /// Acts of people, by kind.
    pub acts: BTreeMap<String, u64>,
    /// Acts that failed, because there was no answer or the call was refused.
    pub unanswered: u64,
    /// Blows, by kind.
    pub blows: BTreeMap<String, u64>,
    /// Faults of the daemons' requests, by class.
    pub faults: BTreeMap<String, u64>,
    /// Daemons that ended unexpectedly, by exit code.
    pub ended_by_themselves: BTreeMap<i32, u64>,
    pub storms: u64,
    /// The times from the end of each storm, with all daemons up, until the expected state was reached.
    #[serde(serialize_with = "in_seconds")]
    pub convergences: Vec<Duration>,
}

/// The results of a soak.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// True if no guarantee was broken and no daemon crashed.
    pub is_good: bool,
    pub seed: u64,
    /// The rules of the daemons that differ from the defaults, as YAML.
    pub rules: String,
    pub nodes: usize,
    pub seconds: f64,
    pub events: Events,
    /// Broken guarantees, by kind. Every kind is included.
    pub wrong: BTreeMap<Kind, usize>,
    /// The first broken guarantees.
    pub wrongs: Vec<Wrong>,
    pub undetermined: Undetermined,
    /// The number of versions of Nodes and records that were checked.
    pub versions_checked: u64,
    /// The number of comparisons of all labels of a Node with the expected ones.
    pub nodes_judged: u64,
    /// The number of Nodes that were deleted right after a change which was stored.
    pub final_labels_kept: u64,
    /// The latency of storing in a calm.
    pub store: Latency,
    /// The latency of restoring in a calm.
    pub restore: Latency,
}

/// Measured times.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Latency {
    /// The number of measurements.
    pub count: usize,
    /// In seconds.
    pub median: f64,
    /// In seconds.
    pub slowest: f64,
}

/// The most broken guarantees in a report.
const ENOUGH: usize = 100;

/// True if this exit code means a panic or a signal. Daemons that the soak kills do not count as ended.
fn is_crash(code: i32) -> bool {
    code == 101 || code > 128
}

impl Report {
    pub(crate) fn new(settings: &Settings, took: Duration, ledger: &Ledger, events: Events) -> Self {
        let kinds = [
            Kind::Lost,
            Kind::Resurrected,
            Kind::Overwritten,
            Kind::BadRecord,
            Kind::NotInTime,
            Kind::Foreign,
            Kind::StartupTaint,
        ];
        let has_crashed = events.ended_by_themselves.keys().any(|code| is_crash(*code));
        Self {
            is_good: ledger.wrongs.is_empty() && !has_crashed,
            seed: settings.seed,
            rules: settings.rules.to_string(),
            nodes: settings.nodes,
            seconds: took.as_secs_f64(),
            events,
            wrong: kinds.map(|kind| (kind, ledger.count(kind))).into(),
            wrongs: ledger.wrongs.iter().take(ENOUGH).cloned().collect(),
            undetermined: ledger.undetermined,
            versions_checked: ledger.versions,
            nodes_judged: ledger.judged,
            final_labels_kept: ledger.final_labels_kept,
            store: Latency::of(&ledger.stored_after),
            restore: Latency::of(&ledger.restored_after),
        }
    }
}

impl Latency {
    fn of(times: &[Duration]) -> Self {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let at = |index: usize| sorted.get(index).map_or(0.0, Duration::as_secs_f64);
        Self {
            count: sorted.len(),
            median: at(sorted.len() / 2),
            slowest: at(sorted.len().saturating_sub(1)),
        }
    }
}

fn in_seconds<S: serde::Serializer>(times: &[Duration], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(times.iter().map(Duration::as_secs_f64))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = |title: &str, counts: Vec<(String, u64)>| {
            writeln!(f, "{title}")?;
            counts.into_iter().try_for_each(|(name, count)| writeln!(f, "  {count:>9}  {name}"))
        };
        let named = |counts: &BTreeMap<String, u64>| counts.clone().into_iter().collect::<Vec<_>>();
        let rows =
            |rows: &[(&str, u64)]| rows.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let events = &self.events;
        table("acts of people", named(&events.acts))?;
        table("failed acts of people", rows(&[("mostly without an answer", events.unanswered)]))?;
        table("blows", named(&events.blows))?;
        table("faults of daemons' requests", named(&events.faults))?;
        let ended = events.ended_by_themselves.iter();
        let ended = ended.map(|(code, count)| (format!("with exit code {code}"), *count)).collect();
        table("daemons that ended unexpectedly", ended)?;
        let undetermined = [
            ("last changes that the API server dropped before they were stored", self.undetermined.unheard),
            ("last changes overtaken by the node's return, at once", self.undetermined.overtaken_at_once),
            ("last changes overtaken by the node's return, later", self.undetermined.overtaken_late),
            ("labels removed before the node was restored", self.undetermined.removed_unrestored),
        ];
        table("undetermined", rows(&undetermined))?;
        let checked = [
            ("versions of nodes and records", self.versions_checked),
            ("comparisons of all labels of a node", self.nodes_judged),
            ("nodes deleted right after a change that was stored", self.final_labels_kept),
        ];
        table("checked", rows(&checked))?;
        let wrong = self.wrong.iter().map(|(kind, count)| (kind.to_string(), *count as u64)).collect();
        table("broken guarantees", wrong)?;
        for Wrong { kind, node, revision, what, story } in &self.wrongs {
            writeln!(f, "  {kind}: {node}, revision {revision}: {what}")?;
            story.iter().try_for_each(|line| writeln!(f, "      {line}"))?;
        }
        let seconds = |times: &[Duration]| times.iter().max().map_or(0.0, Duration::as_secs_f64);
        let (slowest, calms) = (seconds(&events.convergences), events.convergences.len());
        writeln!(f, "expected state reached at most {slowest:.1} s after a storm, in {calms} calms")?;
        for (what, latency) in [("stored", self.store), ("restored", self.restore)] {
            let Latency { count, median, slowest } = latency;
            writeln!(
                f,
                "{what} in a calm after {median:.3} s (median), {slowest:.3} s (slowest), {count} measurements"
            )?;
        }
        let verdict = if self.is_good { "passed" } else { "FAILED" };
        writeln!(f, "rules {}", self.rules)?;
        write!(f, "{verdict}: {} nodes, {:.0} s, seed {}", self.nodes, self.seconds, self.seed)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Lost => "label lost",
            Self::Resurrected => "label resurrected",
            Self::Overwritten => "label overwritten",
            Self::BadRecord => "record wrong",
            Self::NotInTime => "expected state not reached in time",
            Self::Foreign => "label that no person set",
            Self::StartupTaint => "start-up taint wrong",
        })
    }
}
