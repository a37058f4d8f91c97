//! The oracle: the history of every Node, and the positions of the storers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use faults::Watched;
use label_storage::Rules;
use label_storage::name::record_name;
use sandbox::etcd::Event;

use crate::fate::{Fate, View};
use crate::ledger::{Kind, Ledger, Wrong};
use crate::machine;
use crate::object::{self, Place, Shard, Subject};
use crate::storers::Storers;

/// Judges every write.
#[derive(Debug)]
pub(crate) struct Oracle {
    place: Place,
    rules: Arc<Rules>,
    /// By machine.
    fates: HashMap<String, Fate>,
    /// The machine of each record, by the name of the ConfigMap.
    records: HashMap<String, String>,
    pub(crate) ledger: Ledger,
    /// True if the storers watch, so that they receive deletions.
    is_watching: bool,
    storers: Storers,
    /// The last revision that was seen.
    pub(crate) revision: u64,
}

impl Oracle {
    pub(crate) fn new(place: Place, rules: Rules, machines: &[String], is_watching: bool) -> Self {
        let rules = Arc::new(rules);
        let fate = |machine: &String| (machine.clone(), Fate::new(machine, Arc::clone(&rules)));
        let record =
            |machine: &String| (record_name(&machine::filed_under(machine, &rules)), machine.clone());
        Self {
            place,
            fates: machines.iter().map(fate).collect(),
            records: machines.iter().map(record).collect(),
            rules,
            ledger: Ledger::default(),
            is_watching,
            storers: Storers::default(),
            revision: 0,
        }
    }

    /// Checks a write to etcd.
    pub(crate) fn see(&mut self, event: &Event, now: Instant) {
        self.revision = self.revision.max(event.revision);
        let Some(subject) = self.place.subject(&event.key) else { return };
        let before = self.ledger.wrongs.len();
        let (name, seen) = match subject {
            Subject::Lease(shard) => (event.key.clone(), self.see_lease(shard, event, now)),
            Subject::Node(node) => {
                let machine = machine::of_node(&node).to_owned();
                let seen = self.see_node(&machine, event, now);
                (machine, seen)
            }
            Subject::Record(name) => {
                let machine = self.records.get(&name).cloned().unwrap_or(name);
                let seen = self.see_record(&machine, event, now);
                (machine, seen)
            }
        };
        if let Err(error) = seen {
            self.ledger.wrong(Kind::BadRecord, &name, event.revision, format!("{error:#}"));
        }
        for wrong in &mut self.ledger.wrongs[before..] {
            wrong.story = self.fates.get(&wrong.node).map(Fate::story).unwrap_or_default();
        }
    }

    fn see_node(&mut self, machine: &str, event: &Event, now: Instant) -> anyhow::Result<()> {
        let Self { fates, ledger, storers, rules, .. } = self;
        let fate = fates.get_mut(machine).context("a node of an unknown machine")?;
        fate.note_dropped(|name, deletion| {
            storers.is_dropped(&machine::filed_under(name, rules), deletion, now)
        });
        match &event.value {
            Some(value) => fate.node_written(object::node(value, event.revision, rules)?, now, ledger),
            None => fate.node_deleted(event.revision, self.is_watching, now, ledger),
        }
        Ok(())
    }

    fn see_record(&mut self, machine: &str, event: &Event, now: Instant) -> anyhow::Result<()> {
        let Self { fates, ledger, storers, rules, .. } = self;
        let fate = fates.get_mut(machine).context("a record of an unknown machine")?;
        fate.note_dropped(|name, deletion| {
            storers.is_dropped(&machine::filed_under(name, rules), deletion, now)
        });
        let is_past = |machine: &str, deletion| {
            storers.have_asked_past(&machine::filed_under(machine, rules), deletion, now)
        };
        match &event.value {
            Some(value) => fate.record_written(object::record(value, event.revision)?, is_past, now, ledger),
            None => fate.record_deleted(event.revision, ledger),
        }
        Ok(())
    }

    /// A storer has published its position.
    fn see_lease(&mut self, shard: Shard, event: &Event, now: Instant) -> anyhow::Result<()> {
        let Self { fates, ledger, storers, rules, .. } = self;
        let Some(value) = &event.value else { return Ok(()) };
        storers.lease_written(shard, object::lease(value)?, now);
        let passage =
            |machine: &str, deletion| storers.passage(&machine::filed_under(machine, rules), deletion, now);
        let is_forgotten = |machine: &str, deletion| {
            storers.is_forgotten(&machine::filed_under(machine, rules), deletion, now)
        };
        for fate in fates.values_mut() {
            fate.judge_deletions(passage, is_forgotten, ledger);
        }
        Ok(())
    }

    /// A storer has requested a watch of Nodes from this version on, or got the answer 410.
    pub(crate) fn watched(&mut self, storer: &str, version: u64, watched: Watched) {
        match watched {
            Watched::Asked => self.storers.asked(storer, version, Instant::now()),
            Watched::Expired => self.storers.expired(storer, version),
        }
    }

    /// The state of a Node for a person.
    pub(crate) fn view(&self, machine: &str) -> View {
        self.fates.get(machine).map(Fate::view).unwrap_or_default()
    }

    /// True if this Node and its record have reached the expected state.
    pub(crate) fn is_right(&self, machine: &str) -> bool {
        self.fates.get(machine).is_some_and(|fate| fate.check().is_ok())
    }

    /// The Nodes that have not reached the expected state, with the difference. Only meaningful in a calm.
    pub(crate) fn not_right(&mut self) -> Vec<(String, String)> {
        let wrong = |(name, fate): (&String, &Fate)| Some((name.clone(), fate.check().err()?));
        let wrong: Vec<_> = self.fates.iter().filter_map(wrong).collect();
        if wrong.is_empty() {
            self.ledger.judged += self.fates.len() as u64;
        }
        wrong
    }

    /// Reports Nodes that have not reached the expected state in time.
    pub(crate) fn not_in_time(&mut self, nodes: Vec<(String, String)>) {
        for (node, what) in nodes {
            let story = self.fates.get(&node).map(Fate::story).unwrap_or_default();
            let (kind, revision) = (Kind::NotInTime, self.revision);
            self.ledger.wrongs.push(Wrong { kind, node, revision, what, story });
        }
    }
}
