//! How Nodes stand: which of them are not as they should be, and since when.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use crate::metrics::census::{Seat, Snapshot};
use crate::queue::Queue;
use crate::source::Kind;
use crate::sweep::Sweeps;
use crate::table::{Count, Name, Row, Table};

/// How a Node stands, for whoever watches over this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// All is well, as far as this daemon is concerned.
    Settled,
    /// It needs work.
    Due,
    /// It gets none for now.
    Skipped(Skip),
}

/// Why a Node gets no work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skip {
    /// Its record can't be read: a person has to look.
    RecordUnreadable,
    /// Its record claims to be newer than the Node: a person has to look, if that stays so.
    ViewOlderThanRecord,
    /// It is the restorer's turn.
    AwaitingRestore,
    /// A person has taken it out of all this.
    Ignored,
    /// The rules have no record made of it.
    NotSelected,
    /// It has nothing that its record could be filed under, or not yet.
    NoIdentity,
    /// Others claim to be the same: a person has to look.
    Contested,
    /// It is another machine than its record is of: a person has to look.
    OtherMachine,
}

impl Skip {
    /// All of them.
    pub(crate) const ALL: [Self; 8] = [
        Self::RecordUnreadable,
        Self::ViewOlderThanRecord,
        Self::AwaitingRestore,
        Self::Ignored,
        Self::NotSelected,
        Self::NoIdentity,
        Self::Contested,
        Self::OtherMachine,
    ];

    /// A word for metrics; part of what users build upon, so it stays.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::RecordUnreadable => "record-unreadable",
            Self::ViewOlderThanRecord => "view-older-than-record",
            Self::AwaitingRestore => "awaiting-restore",
            Self::Ignored => "ignored",
            Self::NotSelected => "not-selected",
            Self::NoIdentity => "no-identity",
            Self::Contested => "identity-contested",
            Self::OtherMachine => "other-machine",
        }
    }

    /// Whether what is stored of the Node, or restored to it, may not be the latest.
    const fn is_behind(self) -> bool {
        matches!(
            self,
            Self::RecordUnreadable | Self::ViewOlderThanRecord | Self::Contested | Self::OtherMachine
        )
    }
}

/// So many failures in a row are more than bad luck.
const FAILING: u32 = 5;

/// How often the census is told, at most. Counting a hundred thousand rows takes a millisecond.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// The Nodes that are not settled: few, unless much has just happened.
pub(super) struct Standings {
    exceptions: HashMap<Name, Exception>,
    seat: Seat,
    /// When the census is to be told; `None` where it knows.
    tell_at: Option<Instant>,
    told_at: Option<Instant>,
}

struct Exception {
    standing: Standing,
    since: Instant,
    is_there: bool,
}

impl Standings {
    pub(super) fn new(seat: Seat) -> Self {
        Self { exceptions: HashMap::new(), seat, tell_at: None, told_at: None }
    }

    /// Takes note of how a Node stands now.
    pub(super) fn note(&mut self, row: &Row, standing: Standing) {
        self.changed();
        let (name, is_there) = (row.name(), row.node().is_some());
        if standing == Standing::Settled {
            self.exceptions.remove(name);
            return;
        }
        match self.exceptions.get_mut(name) {
            Some(known) if known.standing == standing => known.is_there = is_there,
            _ => {
                let exception = Exception { standing, since: Instant::now(), is_there };
                self.exceptions.insert(Name::clone(name), exception);
            }
        }
    }

    /// Since when a Node has needed work.
    pub(super) fn due_since(&self, name: &str) -> Option<Instant> {
        let exception = self.exceptions.get(name).filter(|known| known.standing == Standing::Due);
        exception.map(|known| known.since)
    }

    /// Something has changed that the census is to be told of.
    pub(super) fn changed(&mut self) {
        if self.tell_at.is_none() {
            let earliest = self.told_at.map(|at| at + TELL_EVERY);
            self.tell_at = earliest.or_else(|| Some(Instant::now()));
        }
    }

    /// Forgets about all Nodes that are of no concern any more.
    pub(super) fn retain(&mut self, concerns: impl Fn(&str) -> bool) {
        self.exceptions.retain(|name, _| concerns(name));
    }

    /// When the census is to be told next.
    pub(super) fn due(&self) -> Option<Instant> {
        self.tell_at
    }

    /// Tells the census, if that is due.
    pub(super) fn tell_if_due(&mut self, table: &Table, queue: &Queue, sweeps: &Sweeps<'_>, now: Instant) {
        if self.tell_at.is_some_and(|at| at <= now) {
            (self.tell_at, self.told_at) = (None, Some(now));
            self.seat.tell(self.snapshot(table, queue, sweeps));
        }
    }

    fn snapshot(&self, table: &Table, queue: &Queue, sweeps: &Sweeps<'_>) -> Snapshot {
        let Count { nodes, records, unreadable } = table.count();
        let queued = queue.len();
        let mut snapshot = Snapshot { nodes, records, unreadable, queued, ..Snapshot::default() };
        let mut skipped = BTreeMap::new();
        for Exception { standing, since, is_there } in self.exceptions.values() {
            let is_behind = match standing {
                Standing::Settled => false,
                Standing::Due => {
                    snapshot.due += 1;
                    snapshot.due_since = Some(snapshot.due_since.map_or(*since, |first| first.min(*since)));
                    true
                }
                Standing::Skipped(skip) => {
                    *skipped.entry(skip.as_str()).or_default() += 1;
                    skip.is_behind()
                }
            };
            snapshot.behind += usize::from(is_behind && *is_there);
        }
        for failures in queue.all_failures() {
            snapshot.failing += usize::from(failures >= FAILING);
            snapshot.most_failures = snapshot.most_failures.max(failures);
        }
        let watched = [Kind::Nodes, Kind::Records].into_iter().filter(|kind| sweeps.is_watching(*kind));
        let watching = watched.map(|kind| (kind.resource(), 1)).collect();
        Snapshot { skipped, watching, ..snapshot }
    }
}
