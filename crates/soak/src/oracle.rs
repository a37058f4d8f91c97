//! The oracle: knows the fate of every Node, and which storers hear of what.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use sandbox::etcd::Event;

use crate::fate::{Fate, View};
use crate::ledger::{Kind, Ledger, Wrong};
use crate::object::{self, Place, Subject};

/// So long the API server remembers at least.
const MEMORY: Duration = Duration::from_secs(60);

/// For this long after an API server is back, a storer may still be about to find out that it has missed something.
const FINDING_OUT: Duration = Duration::from_secs(30);

/// All that is known.
#[derive(Debug)]
pub(crate) struct Oracle {
    place: Place,
    fates: HashMap<String, Fate>,
    /// What was found.
    pub(crate) ledger: Ledger,
    /// Whether storers hear of deletions at all.
    is_watching: bool,
    /// For how many reasons the API server forgets, at the moment.
    forgetting: u32,
    /// Until when it may have.
    forgetful_until: Option<Instant>,
    /// The last revision that was seen.
    pub(crate) revision: u64,
}

impl Oracle {
    /// Knows nothing yet.
    pub(crate) fn new(place: Place, is_watching: bool) -> Self {
        Self {
            place,
            fates: HashMap::new(),
            ledger: Ledger::default(),
            is_watching,
            forgetting: 0,
            forgetful_until: None,
            revision: 0,
        }
    }

    /// Something was written to etcd.
    pub(crate) fn see(&mut self, event: &Event, now: Instant) {
        self.revision = self.revision.max(event.revision);
        let Some(subject) = self.place.subject(&event.key) else { return };
        let (Subject::Node(name) | Subject::Record(name)) = &subject;
        let is_heard = self.is_watching && !self.is_forgetful(now);
        let ledger = &mut self.ledger;
        let before = ledger.wrongs.len();
        let fate = self.fates.entry(name.clone()).or_insert_with(|| Fate::new(name));
        let seen = match (&subject, &event.value) {
            (Subject::Node(_), Some(value)) => {
                object::node(value, event.revision).map(|seen| fate.node_written(seen, now, ledger))
            }
            (Subject::Node(_), None) => {
                fate.node_deleted(event.revision, is_heard, now, ledger);
                Ok(())
            }
            (Subject::Record(_), Some(value)) => {
                object::record(value, event.revision).map(|seen| fate.record_written(seen, now, ledger))
            }
            (Subject::Record(_), None) => {
                fate.record_deleted(event.revision, ledger);
                Ok(())
            }
        };
        if let Err(error) = seen {
            ledger.wrong(Kind::BadRecord, name, event.revision, format!("{error:#}"));
        }
        for wrong in &mut ledger.wrongs[before..] {
            wrong.story = fate.story();
        }
    }

    fn is_forgetful(&self, now: Instant) -> bool {
        self.forgetting > 0 || self.forgetful_until.is_some_and(|until| now < until)
    }

    /// Daemons are being disturbed: what they have not stored for a long time, their successors can't hear of any more.
    pub(crate) fn disturbed(&mut self, now: Instant) {
        let Some(before) = now.checked_sub(MEMORY) else { return };
        for fate in self.fates.values_mut() {
            fate.aged(before, &mut self.ledger);
        }
    }

    /// From now on the API server may forget at any time what a storer has not heard of.
    pub(crate) fn forgets(&mut self) {
        self.forgetting += 1;
        for fate in self.fates.values_mut() {
            fate.forgotten(&mut self.ledger);
        }
    }

    /// It does not any more, for that reason. Storers need a moment to find out what they have missed.
    pub(crate) fn remembers(&mut self, now: Instant) {
        self.forgetting = self.forgetting.saturating_sub(1);
        self.forgetful_until = Some(now + FINDING_OUT);
    }

    /// What a person sees of a Node.
    pub(crate) fn view(&self, node: &str) -> View {
        self.fates.get(node).map(Fate::view).unwrap_or_default()
    }

    /// The Nodes that are not as they must be in the end, and why. Only asked when nothing is in the way.
    pub(crate) fn not_right(&mut self) -> Vec<(String, String)> {
        let wrong = |(name, fate): (&String, &Fate)| Some((name.clone(), fate.check().err()?));
        let wrong: Vec<_> = self.fates.iter().filter_map(wrong).collect();
        if wrong.is_empty() {
            self.ledger.judged += self.fates.len() as u64;
        }
        wrong
    }

    /// That these Nodes are not right is wrong in itself.
    pub(crate) fn not_in_time(&mut self, nodes: Vec<(String, String)>) {
        for (node, what) in nodes {
            let story = self.fates.get(&node).map(Fate::story).unwrap_or_default();
            let (kind, revision) = (Kind::NotInTime, self.revision);
            self.ledger.wrongs.push(Wrong { kind, node, revision, what, story });
        }
    }
}
