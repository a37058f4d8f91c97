//! Calls the shipped functions. They are pure, so each result is cached.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use label_storage::final_labels::FinalLabels;
use label_storage::restore::Baseline;
use label_storage::store::{self, Circumstances, LastSeen, Sighting, Stored, Writes};
use label_storage::summary::digest;
use label_storage::watch_progress::WatchProgress;
use label_storage::{Position, RecordKey, ResourceVersion, Rules, Uid, plan_restore, plan_store, restore};

use crate::guard::Guard;
use crate::world::{Action, KEYS, Kept, Labels, Marker, Node, Patch, Record};

const KEY_NAMES: [&str; KEYS] = ["a", "b"];

/// The sighting of a Node that a storer decides upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Sight {
    Live(Node),
    /// The Node was deleted, and looked like this.
    Deleted(Node),
    Gone,
}

/// Everything that a storer has read in one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Read {
    pub(crate) record: Option<Record>,
    /// The Node by name.
    pub(crate) live: Option<Node>,
    /// The final labels that are stored next.
    pub(crate) last: Option<Node>,
}

/// Further knowledge of a storer when it plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Knows {
    /// The record has been empty for half a minute.
    pub(crate) is_aged: bool,
    /// An earlier write of its own may still arrive.
    pub(crate) in_doubt: bool,
    /// The Node as it was deleted, if the storer received the deletion.
    pub(crate) deleted: Option<Node>,
}

/// The watch of a storer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Watch {
    /// All deletions up to this version were reported.
    pub(crate) seen: u8,
    /// The holder before has stored all deletions up to this version; 0 if there was none.
    pub(crate) resumed: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Question {
    Store { name: u8, read: Read, knows: Knows },
    Keeps { name: u8, last: Node, row: Option<Record>, writes: Writes },
    Push { name: u8, kept: Kept, last: Node },
    Stored { name: u8, kept: Kept, last: Node },
    Settled { name: u8, watch: Watch, deleted_at: u8 },
    Resume { name: u8, watch: Watch, kept: Kept },
    Restore { name: u8, node: Node, record: Option<Record>, final_labels: Kept },
    RestorerKeeps { name: u8, kept: Kept, live: Option<Node>, record: Option<Record> },
}

#[derive(Debug, Clone, Copy)]
enum Answer {
    Store(Option<(Sight, Action)>),
    Yes(bool),
    Kept(Kept),
    Version(u8),
    Restore(Option<(Labels, u8)>),
}

/// Calls the shipped functions, with or without a guard.
#[derive(Debug, Default)]
pub(crate) struct Protocol {
    without: Option<Guard>,
    rules: Rules,
    answers: HashMap<Question, Answer>,
}

impl Protocol {
    /// With all guards, or without one.
    pub(crate) fn new(without: Option<Guard>) -> Self {
        Self { without, rules: Rules { history: 0, ..Rules::default() }, answers: HashMap::new() }
    }

    /// True if a guard is in its place.
    pub(crate) fn has(&self, guard: Guard) -> bool {
        self.without != Some(guard)
    }

    /// The sighting that the storer decides upon, and its write. `None` if the answer of the API server is stale.
    pub(crate) fn store(&mut self, name: usize, read: Read, knows: Knows) -> Option<(Sight, Action)> {
        let in_doubt = knows.in_doubt && self.has(Guard::InDoubt);
        let deleted = knows.deleted.filter(|_| self.has(Guard::DepartedVersion));
        let knows = Knows { in_doubt, deleted, ..knows };
        match self.ask(Question::Store { name: name as u8, read, knows }) {
            Answer::Store(plan) => plan,
            _ => None,
        }
    }

    /// True if the storer keeps a Node's final labels, given the record as it was last seen.
    pub(crate) fn keeps(&mut self, name: usize, last: Node, row: Option<Record>, writes: Writes) -> bool {
        let writes = if self.has(Guard::Unsettled) { writes } else { Writes::default() };
        matches!(self.ask(Question::Keeps { name: name as u8, last, row, writes }), Answer::Yes(true))
    }

    /// The final labels that are to be stored, after these were added.
    pub(crate) fn push(&mut self, name: usize, kept: Kept, last: Node) -> Kept {
        match self.ask(Question::Push { name: name as u8, kept, last }) {
            Answer::Kept(kept) => kept,
            _ => kept,
        }
    }

    /// The final labels that are to be stored, after these were stored.
    pub(crate) fn stored(&mut self, name: usize, kept: Kept, last: Node) -> Kept {
        match self.ask(Question::Stored { name: name as u8, kept, last }) {
            Answer::Kept(kept) => kept,
            _ => kept,
        }
    }

    /// True if the holder before has stored this deletion.
    pub(crate) fn is_settled(&mut self, name: usize, watch: Watch, deleted_at: u8) -> bool {
        self.has(Guard::Settled)
            && matches!(
                self.ask(Question::Settled { name: name as u8, watch, deleted_at }),
                Answer::Yes(true)
            )
    }

    /// The version that the next holder watches from, if these final labels are not stored yet.
    pub(crate) fn resume_from(&mut self, name: usize, watch: Watch, kept: Kept) -> u8 {
        match self.ask(Question::Resume { name: name as u8, watch, kept }) {
            Answer::Version(version) => version,
            _ => 0,
        }
    }

    /// The patch of the restorer, if there is one.
    pub(crate) fn restore(
        &mut self,
        name: usize,
        node: Node,
        record: Option<Record>,
        final_labels: Kept,
    ) -> Option<Patch> {
        let final_labels = if self.has(Guard::Anticipation) { final_labels } else { Kept::default() };
        match self.ask(Question::Restore { name: name as u8, node, record, final_labels }) {
            Answer::Restore(Some((labels, generation))) => {
                let object = record.map_or(0, |record| record.object);
                Some(Patch {
                    uid: node.uid,
                    version: node.version,
                    labels,
                    object,
                    generation,
                    since: [true; 2],
                    is_blind: false,
                })
            }
            _ => None,
        }
    }

    /// The final labels that a restorer still keeps, given the Node and the record.
    pub(crate) fn restorer_keeps(
        &mut self,
        name: usize,
        kept: Kept,
        live: Option<Node>,
        record: Option<Record>,
    ) -> Kept {
        let live = live.filter(|_| self.has(Guard::Superseded));
        match self.ask(Question::RestorerKeeps { name: name as u8, kept, live, record }) {
            Answer::Kept(kept) => kept,
            _ => kept,
        }
    }

    /// True if a restorer takes a change of the record for a person's.
    pub(crate) fn is_edited(&self, name: usize, before: Option<Record>, after: Option<Record>) -> bool {
        let stored = |record: Option<Record>| {
            record.map_or(Stored::Nothing, |record| Stored::Record(real_record(name, record).summary()))
        };
        self.has(Guard::Edited) && Baseline::of(stored(before), None).is_edited(stored(after))
    }

    /// True if the Node's own labels are authoritative, given its record.
    pub(crate) fn is_authority(&self, name: usize, node: Node, record: Record) -> bool {
        let (node, record) = (real_node(name, node).summary(), real_record(name, record).summary());
        record.is_of(&node) || record.is_restored_to(&node)
    }

    fn ask(&mut self, question: Question) -> Answer {
        if let Some(answer) = self.answers.get(&question) {
            return *answer;
        }
        let answer = match question {
            Question::Store { name, read, knows } => {
                let sight = self.sighting(name.into(), read);
                let plan =
                    sight.map(|sight| (sight, self.plan_store(name.into(), sight, read.record, knows)));
                Answer::Store(plan)
            }
            Question::Keeps { name, last, row, writes } => {
                Answer::Yes(self.keeps_final_labels(name.into(), last, row, writes))
            }
            Question::Push { name, kept, last } => {
                let mut labels = real_final_labels(name.into(), kept);
                let real = real_node(name.into(), last);
                labels.push(&key(name.into()), real, Instant::now());
                let known = kept.into_iter().flatten().chain([last]);
                Answer::Kept(model_final_labels(name.into(), labels, known))
            }
            Question::Stored { name, kept, last } => {
                let mut labels = real_final_labels(name.into(), kept);
                labels.stored(&key(name.into()), &real_node(name.into(), last));
                Answer::Kept(model_final_labels(name.into(), labels, kept.into_iter().flatten()))
            }
            Question::Settled { name, watch, deleted_at } => {
                let progress = real_progress(watch);
                Answer::Yes(progress.is_settled(&key(name.into()), ResourceVersion(deleted_at.into())))
            }
            Question::Resume { name, watch, kept } => {
                let (progress, labels) = (real_progress(watch), real_final_labels(name.into(), kept));
                let pending = labels.unstored().map(|(key, version)| (&**key, version));
                let position = progress.position(pending);
                Answer::Version(position.map_or(0, |position| position.resume_from().0 as u8))
            }
            Question::Restore { name, node, record, final_labels } => {
                Answer::Restore(self.plan_restore(name.into(), node, record, final_labels))
            }
            Question::RestorerKeeps { name, kept, live, record } => {
                let live = live.map(|live| real_node(name.into(), live).summary());
                let stored = record.map_or(Stored::Nothing, |record| {
                    Stored::Record(real_record(name.into(), record).summary())
                });
                let mut labels = real_final_labels(name.into(), kept);
                labels.retain(|_, last, has_earlier| {
                    restore::keeps_final_labels(last.summary(), has_earlier, live, stored)
                });
                Answer::Kept(model_final_labels(name.into(), labels, kept.into_iter().flatten()))
            }
        };
        self.answers.insert(question, answer);
        answer
    }

    /// Without the guard `History`, the record counts as unreadable: nothing else depends on it here.
    fn sighting(&self, name: usize, Read { record, live, last }: Read) -> Option<Sight> {
        let (real_live, real_last) =
            (live.map(|live| real_node(name, live)), last.map(|last| real_node(name, last)));
        let stored =
            record.map_or(Stored::Nothing, |record| Stored::Record(real_record(name, record).summary()));
        let stored = if self.has(Guard::History) { stored } else { Stored::Unreadable };
        match store::sighting(real_live.as_ref(), real_last.as_ref(), stored, false)? {
            Sighting::Live(_) => live.map(Sight::Live),
            Sighting::Deleted(_) => last.map(Sight::Deleted),
            Sighting::Gone => Some(Sight::Gone),
        }
    }

    /// Without the guard `KeepNone`, empty final labels are not kept for a record that is not known.
    fn keeps_final_labels(&self, name: usize, last: Node, row: Option<Record>, writes: Writes) -> bool {
        let stored = match row {
            Some(row) => Stored::Record(real_record(name, row).summary()),
            None if last.labels == [0; KEYS] && !self.has(Guard::KeepNone) => return false,
            None => Stored::Nothing,
        };
        store::keeps_final_labels(real_node(name, last).summary(), stored, writes)
    }

    fn plan_store(&self, name: usize, sight: Sight, record: Option<Record>, knows: Knows) -> Action {
        let (mut sight, mut is_forged) = (sight, false);
        if let (Sight::Deleted(last), Some(record), false) =
            (&mut sight, record, self.has(Guard::NewerDeleted))
        {
            is_forged = last.version == record.version;
            last.version += u8::from(is_forged);
        }
        let node = match sight {
            Sight::Live(node) | Sight::Deleted(node) => Some(self.forge_node(name, node, record)),
            Sight::Gone => None,
        };
        let sighting = match (&sight, &node) {
            (Sight::Live(_), Some(node)) => Sighting::Live(node),
            (Sight::Deleted(_), Some(node)) => Sighting::Deleted(node),
            _ => Sighting::Gone,
        };
        let record = record.map(|record| self.forge_record(name, record, node.as_ref()));
        let is_aged = knows.is_aged || !self.has(Guard::Tombstone);
        let unchanged_for = if is_aged { store::TOMBSTONE_LIFETIME } else { Duration::ZERO };
        let last_seen = knows.deleted.map(|last| LastSeen {
            uid: uid(last.uid).digest(),
            version: ResourceVersion(last.version.into()),
            labels: digest(&real_labels(name, last.labels)),
        });
        let in_doubt = knows.in_doubt;
        let at =
            Circumstances { unchanged_for, last_seen, in_doubt, ..Circumstances::at(Timestamp::UNIX_EPOCH) };
        let plan =
            plan_store(sighting, record.as_ref().map_or(Stored::Nothing, Stored::Record), at, &self.rules);
        let model = |record: label_storage::Record| {
            let record = model_record(name, &record);
            Record { version: record.version - u8::from(is_forged), ..record }
        };
        match plan.action {
            store::Action::Nothing => Action::Nothing,
            store::Action::Create(record) => Action::Create(model(record)),
            store::Action::Replace(record) => Action::Replace(model(record)),
            store::Action::Delete => Action::Delete,
        }
    }

    fn plan_restore(
        &self,
        name: usize,
        node: Node,
        record: Option<Record>,
        final_labels: Kept,
    ) -> Option<(Labels, u8)> {
        let node = self.forge_node(name, node, record);
        let record = record.map(|record| self.forge_record(name, record, Some(&node)));
        let final_labels = final_labels.into_iter().flatten().map(|last| real_node(name, last));
        let final_labels: Vec<_> = final_labels.collect();
        let record = record.map(|record| restore::anticipate(&record, &final_labels, &self.rules));
        let stored = record.as_ref().map_or(Stored::Nothing, Stored::Record);
        let patch = plan_restore(&node, stored, &self.rules, false).patch?;
        (!patch.restored.is_empty() || self.has(Guard::MarkWhole))
            .then(|| (model_labels(name, &patch.restored), patch.generation as u8))
    }

    fn forge_node(&self, name: usize, node: Node, record: Option<Record>) -> label_storage::Node {
        let mut node = node;
        if let (Some(marker), Some(record), false) = (&mut node.marker, record, self.has(Guard::RecordUid)) {
            marker.object = record.object;
        }
        if let (Some(marker), false) = (&mut node.marker, self.has(Guard::OwnMarker)) {
            marker.uid = node.uid;
        }
        if let (None, Some(record), false) = (node.marker, record, self.has(Guard::Marker)) {
            node.marker = Some(Marker { uid: node.uid, object: record.object, generation: u8::MAX });
        }
        real_node(name, node)
    }

    fn forge_record(
        &self,
        name: usize,
        record: Record,
        node: Option<&label_storage::Node>,
    ) -> label_storage::Record {
        let mut real = real_record(name, record);
        if let (Some(node), false) = (node, self.has(Guard::Uid)) {
            real.uid = Some(node.uid.clone());
        }
        if !self.has(Guard::LabelsGeneration) {
            real.labels_generation = None;
        }
        real
    }
}

fn uid(number: u8) -> Uid {
    // Digits and a letter are a uid.
    Uid::new(format!("u{number}")).unwrap_or_else(|| unreachable!())
}

fn number(of: char, uid: Option<&Uid>) -> u8 {
    uid.and_then(|uid| uid.as_str().strip_prefix(of)?.parse().ok()).unwrap_or_default()
}

fn key(name: usize) -> RecordKey {
    RecordKey::from(format!("n{name}").as_str())
}

/// The bound of the shipped queue, 4,096, is out of reach here.
fn real_final_labels(name: usize, kept: Kept) -> FinalLabels {
    let (key, now) = (key(name), Instant::now());
    // A storer keeps them until they are stored.
    let mut labels = FinalLabels::new(Duration::MAX);
    for last in kept.into_iter().flatten() {
        labels.push(&key, real_node(name, last), now);
    }
    labels
}

/// Final labels in the order in which they are stored. They are some of the `known` Nodes.
fn model_final_labels(
    name: usize,
    mut labels: FinalLabels,
    known: impl Iterator<Item = Node> + Clone,
) -> Kept {
    let key = key(name);
    std::array::from_fn(|_| {
        let first = labels.first(&key)?.clone();
        labels.stored(&key, &first);
        known.clone().find(|last| real_node(name, *last) == first)
    })
}

/// The holder before had nothing pending of this Node. The watch repeats deletions that it has dealt with because a deletion of another Node
/// was pending.
fn real_progress(Watch { seen, resumed }: Watch) -> WatchProgress {
    let resumed = (resumed > 0).then(|| Position::new(ResourceVersion(resumed.into()), std::iter::empty()));
    let mut progress = WatchProgress::new(resumed.as_slice());
    progress.watching();
    progress.advance(ResourceVersion(seen.into()), true);
    progress
}

/// Each value names its Node, so that a label on the wrong one shows.
fn real_labels(name: usize, labels: Labels) -> label_storage::Labels {
    let set = KEY_NAMES.iter().zip(labels).filter(|(_, value)| *value > 0);
    set.map(|(key, value)| ((*key).to_owned(), format!("n{name}-{value}"))).collect()
}

fn model_labels(name: usize, labels: &label_storage::Labels) -> Labels {
    let prefix = format!("n{name}-");
    KEY_NAMES.map(|key| {
        let value =
            labels.get(key).map(|value| value.strip_prefix(&prefix).and_then(|value| value.parse().ok()));
        // A value of another Node shows as one that no person has set.
        value.map_or(0, |value| value.unwrap_or(u8::MAX))
    })
}

fn real_node(name: usize, node: Node) -> label_storage::Node {
    label_storage::Node {
        name: format!("n{name}"),
        uid: uid(node.uid),
        version: ResourceVersion(node.version.into()),
        labels: real_labels(name, node.labels),
        marker: node.marker.map(|it| format!("u{}/{}@c{}", it.uid, it.generation, it.object)),
        extras: Default::default(),
    }
}

fn real_record(name: usize, record: Record) -> label_storage::Record {
    label_storage::Record {
        config_map: Uid::new(format!("c{}", record.object)),
        node: format!("n{name}"),
        uid: Some(record.uid).filter(|number| *number > 0).map(uid),
        node_version: Some(ResourceVersion(record.version.into())),
        generation: record.generation.into(),
        labels_generation: Some(record.labels_generation.into()),
        captured_at: None,
        departed_at: record.departed.then_some(Timestamp::UNIX_EPOCH),
        labels: real_labels(name, record.labels),
        more: Default::default(),
        leftovers: Default::default(),
    }
}

fn model_record(name: usize, record: &label_storage::Record) -> Record {
    Record {
        object: number('c', record.config_map.as_ref()),
        uid: number('u', record.uid.as_ref()),
        version: record.node_version.map_or(0, |version| version.0 as u8),
        generation: record.generation as u8,
        labels_generation: record.labels_generation.unwrap_or(record.generation) as u8,
        departed: record.departed_at.is_some(),
        labels: model_labels(name, &record.labels),
    }
}
