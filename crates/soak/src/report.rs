//! What came of it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::ledger::{Kind, Ledger, Undetermined, Wrong};
use crate::soak::Settings;

/// What happened.
#[derive(Debug, Clone, Serialize)]
pub struct Events {
    /// What people did, by kind.
    pub acts: BTreeMap<String, u64>,
    /// How many acts broke off, because nobody answered or what was asked for could not be done.
    pub unanswered: u64,
    /// What went wrong at once, by kind.
    pub blows: BTreeMap<String, u64>,
    /// Requests of the daemons that failed, by class.
    pub faults: BTreeMap<String, u64>,
    /// Daemons that ended without having been asked to, by exit code.
    pub ended_by_themselves: BTreeMap<i32, u64>,
    /// How many storms there were.
    pub storms: u64,
    /// From the end of each storm, with all daemons up, until all was right.
    #[serde(serialize_with = "in_seconds")]
    pub convergences: Vec<Duration>,
}

/// The whole of it.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Whether all that was promised was kept.
    pub is_good: bool,
    /// What chance depended on.
    pub seed: u64,
    /// The rules of the daemons: what differs from the defaults, as YAML.
    pub rules: String,
    /// How many Nodes there were.
    pub nodes: usize,
    /// For how long.
    pub seconds: f64,
    /// What happened.
    pub events: Events,
    /// What was found wrong, by kind: each kind is there.
    pub wrong: BTreeMap<Kind, usize>,
    /// What was found wrong, the first of it.
    pub wrongs: Vec<Wrong>,
    /// What can't be judged.
    pub undetermined: Undetermined,
    /// How many versions of Nodes and records were checked.
    pub versions_checked: u64,
    /// How often all labels of a Node were compared with what they must be.
    pub nodes_judged: u64,
    /// How many Nodes were deleted at once after a change that was promised to survive, and did.
    pub last_words_kept: u64,
    /// In calm weather.
    pub store: Latency,
    /// In calm weather.
    pub restore: Latency,
}

/// How long something took.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Latency {
    /// How often it was measured.
    pub count: usize,
    /// In seconds.
    pub median: f64,
    /// In seconds.
    pub slowest: f64,
}

/// So many wrongs are enough for a report.
const ENOUGH: usize = 100;

/// True if a daemon that ends with this has panicked, or was killed by a signal. (Those that the soak kills don't end by themselves.)
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
            last_words_kept: ledger.last_words_kept,
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
        table("what people did", named(&events.acts))?;
        table(
            "what people began and could not do",
            rows(&[("for want of an answer, mostly", events.unanswered)]),
        )?;
        table("what went wrong", named(&events.blows))?;
        table("requests of daemons that failed", named(&events.faults))?;
        let ended = events.ended_by_themselves.iter();
        let ended = ended.map(|(code, count)| (format!("with exit code {code}"), *count)).collect();
        table("daemons that ended by themselves", ended)?;
        let undetermined = [
            ("last changes that the API server forgot before they were stored", self.undetermined.unheard),
            ("last changes overtaken by the node's return, at once", self.undetermined.overtaken_at_once),
            ("last changes overtaken by the node's return, later", self.undetermined.overtaken_late),
            ("labels removed before the node was restored", self.undetermined.removed_unrestored),
        ];
        table("undetermined", rows(&undetermined))?;
        let checked = [
            ("versions of nodes and records", self.versions_checked),
            ("labels of a node as a whole", self.nodes_judged),
            ("nodes deleted right after a change, which was kept", self.last_words_kept),
        ];
        table("checked", rows(&checked))?;
        let wrong = self.wrong.iter().map(|(kind, count)| (kind.to_string(), *count as u64)).collect();
        table("wrong", wrong)?;
        for Wrong { kind, node, revision, what, story } in &self.wrongs {
            writeln!(f, "  {kind}: {node}, revision {revision}: {what}")?;
            story.iter().try_for_each(|line| writeln!(f, "      {line}"))?;
        }
        let seconds = |times: &[Duration]| times.iter().max().map_or(0.0, Duration::as_secs_f64);
        let (slowest, calms) = (seconds(&events.convergences), events.convergences.len());
        writeln!(f, "all was right at the latest {slowest:.1} s after a storm, of {calms}")?;
        for (what, latency) in [("stored", self.store), ("restored", self.restore)] {
            let Latency { count, median, slowest } = latency;
            writeln!(
                f,
                "{what} in calm weather after {median:.3} s (median), {slowest:.3} s (slowest), of {count}"
            )?;
        }
        let verdict = if self.is_good { "good" } else { "NOT GOOD" };
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
            Self::NotInTime => "not right in time",
            Self::Foreign => "label from nowhere",
            Self::StartupTaint => "start-up taint wrong",
        })
    }
}
