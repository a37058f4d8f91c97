//! The next steps of a world.
//!
//! Every step is one action of the API server, or one message to a process. Three steps are left out because
//! others cover them:
//!
//! - A write whose guard can't hold any more is refused at once, rather than at any time: until then its sender could only
//!   have waited.
//! - A storer without final labels reads record and Node in one step, and a restorer Node and record: had the first of the two
//!   changed in between, the write would be refused; had it not, it is as if both were read at the later time.
//! - An attempt that finds nothing to do is not begun, unless it has final labels to store.

mod restorer;
mod storer;

use std::fmt;

use crate::guard::Guard;
use crate::promise::Property;
use crate::protocol::{Knows, Protocol, Read};
use crate::world::{
    Action, Deletion, EVENTS, KEYS, Kept, Left, NAMES, Name, Node, PROCESSES, Record, Restorer, Restoring,
    Storer, Storing, Watcher, World,
};

/// The bounds of one search.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Names of Nodes: one or two.
    pub names: usize,
    /// Storers: one or two.
    pub storers: usize,
    /// Restorers: one or two.
    pub restorers: usize,
    /// Label keys: one or two.
    pub keys: usize,
    /// True if the daemons watch, so that they receive deletions.
    pub watch: bool,
    /// The watch of the restorers, if the daemons watch.
    pub restorer_watch: RestorerWatch,
    /// The position at which a daemon that was killed resumes its watch.
    pub resume: Resume,
    /// The number of events of each kind.
    pub left: Left,
    /// The guard that is removed.
    pub without: Option<Guard>,
    /// True if final labels may be stored after a newer record was deleted. This stays open: see `docs/guarantees.md`.
    pub late_final_labels: bool,
}

/// The start of the watch of a daemon that was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Resume {
    /// At its first list: earlier deletions are not reported
    List,
    /// At any position up to the first deletion that is not stored, not more than half a minute old
    Recent,
    /// At any position up to the first deletion that is not stored
    Any,
}

/// The watch of the restorers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum RestorerWatch {
    /// A Node is restored once the watch has reported all earlier deletions
    Complete,
    /// A Node may be restored before that, as if the restorer had waited for too long
    Late,
    /// Deletions are not reported
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub name: usize,
    pub who: Who,
    pub what: &'static str,
}

/// The actor of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// A person, a controller or a kubelet.
    Person,
    Storer(usize),
    Restorer(usize),
    Network,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.who {
            Who::Person => write!(f, "person     {}", self.what),
            Who::Storer(at) => write!(f, "storer {}   {}", at + 1, self.what),
            Who::Restorer(at) => write!(f, "restorer {} {}", at + 1, self.what),
            Who::Network => write!(f, "network    {}", self.what),
        }
    }
}

/// A step, and the world or the broken property that it leads to.
pub(crate) type Next = (Step, Result<World, Property>);

/// Lists the next steps of a world, and checks the worlds that they lead to.
pub(crate) struct Model {
    pub(crate) config: Config,
    pub(crate) protocol: Protocol,
}

impl Model {
    pub(crate) fn new(config: Config) -> Self {
        Self { config, protocol: Protocol::new(config.without) }
    }

    pub(crate) fn start(&self) -> World {
        World::new(self.config.left)
    }

    /// The world that stands for all that differ from this one only in the order of like processes and in the numbers of versions, and
    /// its fingerprint.
    pub(crate) fn canonical(&self, world: &World) -> (World, u64) {
        let Config { names, storers, restorers, .. } = self.config;
        let world = world.canonical(names, storers > 1, restorers > 1);
        (world, world.fingerprint(names))
    }

    pub(crate) fn next(&mut self, world: &World, next: &mut Vec<Next>) {
        for at in 0..self.config.names.min(NAMES) {
            self.persons(world, at, next);
            (0..self.config.storers).for_each(|who| self.storer(world, at, who, next));
            (0..self.config.restorers).for_each(|who| self.restorer(world, at, who, next));
            self.network(world, at, next);
        }
        for who in 0..self.config.storers {
            self.crashes(world, who, next);
        }
        for who in 0..self.config.restorers {
            self.restorer_crashes(world, who, next);
        }
        for (_, result) in next.iter_mut() {
            if let Ok(world) = result {
                self.tidy(world);
                if let Err(property) = self.check(world) {
                    *result = Err(property);
                }
            }
        }
    }

    fn persons(&mut self, world: &World, at: usize, next: &mut Vec<Next>) {
        let mut push = |what, world| next.push((Step { name: at, who: Who::Person, what }, Ok(world)));
        let Some(node) = world.names[at].node else {
            self.edits(world, at, &mut push);
            return self.creations(world, at, &mut push);
        };
        for key in 0..self.config.keys.min(KEYS) {
            let changes = [(1, SET[key][0]), (2, SET[key][1]), (0, UNSET[key])];
            for (value, what) in changes.into_iter().filter(|(value, _)| node.labels[key] != *value) {
                let mut world = *world;
                let left = if value > 0 { &mut world.left.label } else { &mut world.left.unlabel };
                // Two values for one key, and one for the other: more values show nothing new.
                if *left == 0 || (key > 0 && value > 1) {
                    continue;
                }
                *left -= 1;
                let mut labels = node.labels;
                labels[key] = value;
                self.node_moves(&mut world.names[at], |name, protocol| {
                    name.labels_change(at, labels, protocol);
                });
                push(what, world);
            }
        }
        if world.left.delete > 0 {
            let mut world = *world;
            world.left.delete -= 1;
            self.delete(&mut world.names[at], at, node);
            push("deletes the node", world);
        }
    }

    fn delete(&self, name: &mut Name, at: usize, node: Node) {
        if self.config.watch {
            name.node_deleted(at, node, &self.protocol);
        }
        self.node_moves(name, |name, _| name.node = None);
        name.deleted = self.config.watch.then_some(Node { version: name.version, marker: None, ..node });
        name.saved = node.marker.or(name.saved);
        if self.config.watch && usize::from(name.deletions) < EVENTS {
            let last = Node { version: name.version, ..node };
            let event = Deletion { last, since: [true; PROCESSES], is_old: false, is_dropped: false };
            name.events[usize::from(name.deletions)] = Some(event);
            name.deletions += 1;
        }
    }

    /// A person edits or deletes the record of a deleted Node, once it is stamped and the storers have published their
    /// positions.
    fn edits(&mut self, world: &World, at: usize, push: &mut impl FnMut(&'static str, World)) {
        let name = &world.names[at];
        let Some(record) = name.record.filter(|record| record.departed && world.left.edit > 0) else {
            return;
        };
        if !self.rests(at, name) {
            return;
        }
        let labels = [3 - record.labels[0].max(1), record.labels[1]];
        let edited = Record { labels, ..record };
        for (record, what) in [(None, "deletes the record"), (Some(edited), "edits the record")] {
            let mut world = *world;
            world.left.edit -= 1;
            let name = &mut world.names[at];
            let before = std::mem::replace(&mut name.record, record);
            // A deleted record has no version of the deletion any more, so the position in the Lease has to settle the deletion.
            if record.is_none() {
                name.published = self.dealt_with(name, at, name.storers[0].watcher) as u8;
            }
            self.restorers_see_edit(name, at, before);
            name.record_is_edited(record.map(|record| record.labels));
            self.record_moves(name);
            push(what, world);
        }
    }

    /// As `note_record` of the restorer's planner.
    fn restorers_see_edit(&self, name: &mut Name, at: usize, before: Option<Record>) {
        if self.protocol.is_edited(at, before, name.record) {
            name.restorers.iter_mut().for_each(|restorer| restorer.watcher.final_labels = Kept::default());
        }
    }

    fn creations(&self, world: &World, at: usize, push: &mut impl FnMut(&'static str, World)) {
        let kubelets = [[0, 0], [1, 0], [2, 0]].into_iter().zip(CREATE);
        for (labels, what) in kubelets.filter(|(labels, _)| labels[0] == 0 || world.left.kubelet > 0) {
            for is_copy in [false, true] {
                let mut world = *world;
                let name = &mut world.names[at];
                let saved = name.saved.filter(|_| is_copy);
                if is_copy && (saved.is_none() || world.left.copy == 0) {
                    continue;
                }
                (name.uids, name.version, name.deleted) = (name.uids + 1, name.version + 1, None);
                name.node_created();
                name.node =
                    Some(Node { uid: name.uids, version: name.version, labels: [0; KEYS], marker: saved });
                name.labels_change(at, labels, &self.protocol);
                world.left.kubelet -= u8::from(labels[0] > 0);
                world.left.copy -= u8::from(is_copy);
                push(if is_copy { CREATE_COPY } else { what }, world);
            }
        }
    }

    /// The Node changes: patches that expect the Node as it was are refused.
    pub(crate) fn node_moves(&self, name: &mut Name, change: impl FnOnce(&mut Name, &Protocol)) {
        name.version += 1;
        change(name, &self.protocol);
        let (node, guards_version) = (name.node, self.protocol.has(Guard::NodeVersion));
        let can_succeed = |uid: u8, version: u8| {
            node.is_some_and(|node| node.uid == uid && (node.version == version || !guards_version))
        };
        for restorer in &mut name.restorers {
            if matches!(restorer.job, Restoring::Sent(patch) if !can_succeed(patch.uid, patch.version)) {
                restorer.job = Restoring::Idle;
            }
        }
        name.late_patch = name.late_patch.filter(|patch| can_succeed(patch.uid, patch.version));
    }

    fn network(&mut self, world: &World, at: usize, next: &mut Vec<Next>) {
        let step = |what| Step { name: at, who: Who::Network, what };
        if let Some(write) = world.names[at].late_write {
            let mut world = *world;
            world.names[at].late_write = None;
            let is_anothers = self.config.storers > 1 && matches!(write.action, Action::Create(_));
            if write.is_orphan || is_anothers {
                // The storer that received the deletion may have read the record already, and does not read it again.
                world.names[at].last_said = None;
            }
            let result = self.carry_out_write(&mut world.names[at], &write).map(|_| world);
            next.push((step("delivers a late write of the record"), result));
        }
        if let Some(patch) = world.names[at].late_patch {
            let mut world = *world;
            world.names[at].late_patch = None;
            let result = self.carry_out_patch(&mut world.names[at], &patch).map(|()| world);
            next.push((step("delivers a late patch of the node"), result));
        }
    }

    /// Drops everything that can't matter any more, so that worlds that differ in nothing else become one.
    fn tidy(&self, world: &mut World) {
        let (resume, left) = (self.config.resume, world.left);
        for name in &mut world.names[..self.config.names] {
            name.promise_what_is_settled();
            let all = Watcher { heard: name.deletions, ..Watcher::default() };
            for absent in &mut name.storers[self.config.storers..] {
                *absent = Storer { watcher: all, ..Storer::default() };
            }
            for absent in &mut name.restorers[self.config.restorers..] {
                *absent = Restorer { watcher: all, ..Restorer::default() };
            }
            if self.config.restorer_watch == RestorerWatch::Off {
                name.restorers.iter_mut().for_each(|restorer| restorer.watcher = all);
            }
            if left.copy == 0 {
                name.saved = None;
            }
            if left.crash == 0 {
                name.published = 0;
            }
            let heard = name.watchers().map(|watcher| watcher.heard).min().unwrap_or(0);
            for event in &mut name.events[..usize::from(heard)] {
                let is_repeatable = match resume {
                    Resume::List => false,
                    Resume::Recent => left.crash > 0 && event.is_some_and(|event| !event.is_old),
                    Resume::Any => left.crash > 0,
                };
                *event = event.filter(|_| is_repeatable);
            }
            // Only an empty record that a storer sees as it is can become old.
            let can_age = name
                .storers
                .map(|storer| storer.is_fresh && storer.row.is_some_and(|record| record.labels == [0; KEYS]));
            name.each_since(|since| {
                for (since, can_age) in since.iter_mut().zip(can_age) {
                    *since &= can_age;
                }
            });
            name.restorers.iter_mut().for_each(|restorer| restorer.watcher.tidy());
            for storer in &mut name.storers {
                storer.is_aged &= storer.is_fresh;
                storer.watcher.tidy();
                // The content of a known record matters only when a deletion is reported.
                let resumes = resume != Resume::List && left.crash > 0;
                let will_hear = left.delete > 0 || storer.watcher.heard < name.deletions || resumes;
                if !(self.config.watch && will_hear) {
                    storer.has_failed = false;
                    if !storer.is_fresh && storer.row.is_some() {
                        storer.row = Some(Record::ANY);
                    }
                }
            }
        }
    }

    fn check(&mut self, world: &World) -> Result<(), Property> {
        for (at, name) in world.names[..self.config.names].iter().enumerate() {
            if self.rests(at, name) {
                name.check_at_rest()?;
            }
        }
        Ok(())
    }

    /// True if no daemon has anything left to do, whatever it reads.
    fn rests(&mut self, at: usize, name: &Name) -> bool {
        let is_idle = name.late_write.is_none()
            && name.late_patch.is_none()
            && name.restorers.iter().all(|restorer| restorer.job == Restoring::Idle)
            && name.storers.iter().all(|storer| {
                storer.job == Storing::Idle
                    && storer.watcher.final_labels[0].is_none()
                    && storer.doubt.is_none()
            })
            && name.watchers().all(|watcher| watcher.heard == name.deletions);
        let read = Read { record: name.record, live: name.node, last: None };
        let knows = Knows { deleted: name.deleted, ..Knows::default() };
        is_idle
            && matches!(self.protocol.store(at, read, knows), Some((_, Action::Nothing)))
            && name
                .node
                .is_none_or(|node| self.protocol.restore(at, node, name.record, Kept::default()).is_none())
    }
}

const SET: [[&str; 2]; KEYS] = [["sets a=1", "sets a=2"], ["sets b=1", "sets b=2"]];
const UNSET: [&str; KEYS] = ["removes a", "removes b"];
const CREATE: [&str; 3] = [
    "creates the node",
    "creates the node, with a=1 from its kubelet",
    "creates the node, with a=2 from its kubelet",
];
const CREATE_COPY: &str = "creates the node, with the marker of the one before";
