//! The state of everything at one moment: Nodes, records, the memory and the jobs of all processes, and the promises.
//!
//! Everything is small and is copied: there are millions of worlds.

use std::hash::Hash;

use label_storage::store::InDoubt;

/// The most names of Nodes.
pub(crate) const NAMES: usize = 2;
/// Label keys that persons use: `a` and `b`.
pub(crate) const KEYS: usize = 2;
/// Two of each daemon.
pub(crate) const PROCESSES: usize = 2;
/// The most deletions of one name that watches report.
pub(crate) const EVENTS: usize = 4;

/// A value for each key; 0 where there is none.
pub(crate) type Labels = [u8; KEYS];

/// A Node as it was in one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Node {
    /// The incarnation.
    pub(crate) uid: u8,
    /// Its resourceVersion.
    pub(crate) version: u8,
    pub(crate) labels: Labels,
    pub(crate) marker: Option<Marker>,
}

/// Final labels that a storer keeps, in the order in which it stores them. The shipped `FinalLabels` makes this list.
pub(crate) type Kept = [Option<Node>; EVENTS];

/// The content of a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Marker {
    /// The incarnation that it was made for.
    pub(crate) uid: u8,
    /// The ConfigMap that it was made from.
    pub(crate) object: u8,
    /// Its generation.
    pub(crate) generation: u8,
}

/// A record, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Record {
    /// The uid of the ConfigMap; 0 before it is created.
    pub(crate) object: u8,
    /// The incarnation that the labels were read from.
    pub(crate) uid: u8,
    /// The version of that read.
    pub(crate) version: u8,
    /// Counts the writes.
    pub(crate) generation: u8,
    /// The generation in which the labels last changed.
    pub(crate) labels_generation: u8,
    /// True if it is stamped: the Node was deleted.
    pub(crate) departed: bool,
    pub(crate) labels: Labels,
}

impl Record {
    /// Stands for any record, if its content does not matter.
    pub(crate) const ANY: Self = Self {
        object: 0,
        uid: 0,
        version: 0,
        generation: 0,
        labels_generation: 0,
        departed: false,
        labels: [0; KEYS],
    };

    /// True if it belongs to no incarnation, and is only there to refuse another create.
    pub(crate) fn is_tombstone(self) -> bool {
        self.uid == 0 && self.labels == [0; KEYS]
    }
}

/// The time that something began. For each storer: true if that was after the storer saw its record as it is. Half a minute after the
/// storer saw it, nothing else can still write.
pub(crate) type Since = [bool; PROCESSES];

/// A write of a record that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Write {
    pub(crate) action: Action,
    /// The view of the Node that it was made from, unless it only stamps.
    pub(crate) view: Option<Node>,
    /// True if it stores final labels.
    pub(crate) has_final_labels: bool,
    /// True if its sender was killed.
    pub(crate) is_orphan: bool,
    /// True while the record is as it was read.
    pub(crate) is_current: bool,
    /// The start of its attempt.
    pub(crate) since: Since,
}

/// The write that a storer plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Action {
    Nothing,
    Create(Record),
    /// Replaces the record that was read.
    Replace(Record),
    /// Deletes the record that was read.
    Delete,
}

/// A patch of a Node that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Patch {
    /// The incarnation that was seen.
    pub(crate) uid: u8,
    /// Its version.
    pub(crate) version: u8,
    /// Labels to add.
    pub(crate) labels: Labels,
    /// The ConfigMap and the generation that the marker names.
    pub(crate) object: u8,
    pub(crate) generation: u8,
    /// The start of its attempt.
    pub(crate) since: Since,
    /// True if its restorer may not have received the deletions before this incarnation.
    pub(crate) is_blind: bool,
}

/// The job of a storer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) enum Storing {
    #[default]
    Idle,
    /// It has read the record, and not yet the Node. Only if it has final labels to store: see `model.rs`.
    Read {
        record: Option<Record>,
        /// True while the record is as it was read.
        is_current: bool,
        /// True if an earlier write of its own may still arrive.
        in_doubt: bool,
        /// The start of the attempt.
        since: Since,
    },
    /// It has sent a write.
    Sent(Write),
}

/// The job of a restorer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) enum Restoring {
    #[default]
    Idle,
    /// It has read the record before it saw the Node: only without the guard `FreshRecord`.
    ReadFirst {
        record: Record,
        /// The start of the attempt.
        since: Since,
    },
    /// It has sent a patch.
    Sent(Patch),
}

/// The deletions of one Node that a process has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Watcher {
    /// Final labels that are not stored yet.
    pub(crate) final_labels: Kept,
    /// The number of deletions that its watch has reported.
    pub(crate) heard: u8,
    /// The number of deletions up to the position that the holder before left: it has dealt with these.
    pub(crate) settled: u8,
}

/// One restorer's memory of one Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Restorer {
    pub(crate) watcher: Watcher,
    /// True if it has started with a list, and has not received earlier deletions.
    pub(crate) is_blind: bool,
    pub(crate) job: Restoring,
}

/// One storer's memory of one Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Storer {
    /// The record as it was last seen.
    pub(crate) row: Option<Record>,
    /// True while the record is as it was last seen.
    pub(crate) is_fresh: bool,
    /// True if it has been seen so for half a minute.
    pub(crate) is_aged: bool,
    /// The Node as it was last seen: only without the confirming read.
    pub(crate) view: Option<Option<Node>>,
    pub(crate) watcher: Watcher,
    /// True if the last attempt has failed.
    pub(crate) has_failed: bool,
    /// The write that it has no answer to. It expects a version of the record: true while the record is as it was read.
    pub(crate) doubt: Option<InDoubt<bool>>,
    pub(crate) job: Storing,
}

/// A deletion that watches report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Deletion {
    /// The Node as it was, at the version of its deletion.
    pub(crate) last: Node,
    pub(crate) since: Since,
    /// True if it was more than half a minute ago.
    pub(crate) is_old: bool,
    /// True if the API server has dropped it: a watch can't be resumed from before it.
    pub(crate) is_dropped: bool,
}

/// A label that a person removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Removal {
    /// The incarnation that had it.
    pub(crate) uid: u8,
    /// True if the removal was stored before the next incarnation was created.
    pub(crate) is_stored: bool,
}

/// The promises about one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Promise {
    /// The stored value, if no person has changed it since.
    pub(crate) kept: u8,
    /// The version of the last change by a person.
    pub(crate) changed_at: u8,
    /// The last incarnation that a restorer has given it to since.
    pub(crate) given_to: u8,
    /// The removal by a person, if no person has set it since.
    pub(crate) removed: Option<Removal>,
}

/// Everything that belongs to one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Name {
    /// The Node, while there is one.
    pub(crate) node: Option<Node>,
    pub(crate) record: Option<Record>,
    /// The uid of the last incarnation.
    pub(crate) uids: u8,
    /// The newest resourceVersion of a Node.
    pub(crate) version: u8,
    /// The marker of the last incarnation, for a person who re-creates the Node from saved YAML.
    pub(crate) saved: Option<Marker>,
    /// The uid of the last ConfigMap.
    pub(crate) objects: u8,
    /// The Node as it was deleted last, while there is none.
    pub(crate) deleted: Option<Node>,
    /// The number of deletions up to the position that is in the Lease for certain.
    pub(crate) published: u8,
    /// Deletions, the oldest first.
    pub(crate) events: [Option<Deletion>; EVENTS],
    /// The number of deletions.
    pub(crate) deletions: u8,
    pub(crate) storers: [Storer; PROCESSES],
    pub(crate) restorers: [Restorer; PROCESSES],
    /// A write that its sender has given up on, and that may still arrive.
    pub(crate) late_write: Option<Write>,
    /// A patch that its sender has given up on, and that may still arrive.
    pub(crate) late_patch: Option<Patch>,
    pub(crate) promises: [Promise; KEYS],
    /// The newest version of the Node that any record was made from.
    pub(crate) newest: u8,
    /// The final labels of a deleted Node, if they were authoritative and a watch will report the deletion.
    pub(crate) last_said: Option<Labels>,
    /// The authoritative final labels of the last deleted incarnation, and its uid. Unlike `last_said`, they count after the next one is created.
    pub(crate) before: Option<(u8, Labels)>,
}

/// The number of events of each kind that may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Left {
    /// A person sets a label, or changes its value.
    pub label: u8,
    /// A person removes a label.
    pub unlabel: u8,
    /// A Node is deleted.
    pub delete: u8,
    /// A Node comes back with a label that its kubelet sets.
    pub kubelet: u8,
    /// A Node comes back with the marker of the one before.
    pub copy: u8,
    /// A storer or a restorer is killed.
    pub crash: u8,
    /// A write is lost, or its answer is.
    pub lose: u8,
    /// A write arrives late, or twice.
    pub late: u8,
    /// A person edits or deletes the record of a deleted Node.
    pub edit: u8,
}

/// The state of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct World {
    pub(crate) names: [Name; NAMES],
    pub(crate) left: Left,
}

impl World {
    /// One Node of each name, with one label. No daemon has seen it yet.
    pub(crate) fn new(left: Left) -> Self {
        let node = Node { uid: 1, version: 1, labels: [1, 0], marker: None };
        let name = Name { node: Some(node), uids: 1, version: 1, ..Name::default() };
        let mut world = Self { names: [name; NAMES], left };
        for storer in world.names.iter_mut().flat_map(|name| &mut name.storers) {
            storer.is_fresh = true;
        }
        world
    }

    /// One world that stands for all that differ only in the order of like processes and in the numbers of versions.
    pub(crate) fn canonical(&self, names: usize, swap_storers: bool, swap_restorers: bool) -> Self {
        let mut world = *self;
        world.names[..names].iter_mut().for_each(Name::renumber);
        let mut least = world;
        let swaps: &[fn(&mut Name)] = match (swap_storers, swap_restorers) {
            (true, true) => &[Name::swap_storers, Name::swap_restorers, Name::swap_storers],
            (true, false) => &[Name::swap_storers],
            (false, true) => &[Name::swap_restorers],
            (false, false) => &[],
        };
        for swap in swaps {
            world.names[..names].iter_mut().for_each(swap);
            least = least.min(world);
        }
        least
    }

    pub(crate) fn fingerprint(&self, names: usize) -> u64 {
        let mut bytes = Bytes(Vec::with_capacity(1024));
        self.left.hash(&mut bytes);
        self.names[..names].iter().for_each(|name| name.hash(&mut bytes));
        xxhash_rust::xxh3::xxh3_64(&bytes.0)
    }
}

/// Collects the bytes that are hashed, for xxh3.
struct Bytes(Vec<u8>);

impl std::hash::Hasher for Bytes {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    // The length of an array is always the same.
    fn write_usize(&mut self, _: usize) {}

    fn write_isize(&mut self, tag: isize) {
        // The variant of an enum: there are never many.
        self.0.push(tag as u8);
    }
}

impl Name {
    /// Calls `f` with every version of the Node.
    fn each_version(&mut self, f: &mut impl FnMut(&mut u8)) {
        let node = &mut |node: &mut Node, f: &mut dyn FnMut(&mut u8)| f(&mut node.version);
        let action = &mut |action: &mut Action, f: &mut dyn FnMut(&mut u8)| match action {
            Action::Create(record) | Action::Replace(record) => f(&mut record.version),
            Action::Nothing | Action::Delete => (),
        };
        self.node.iter_mut().for_each(|n| node(n, f));
        self.record.iter_mut().for_each(|record| f(&mut record.version));
        self.events.iter_mut().flatten().for_each(|event| node(&mut event.last, f));
        for storer in &mut self.storers {
            storer.row.iter_mut().for_each(|record| f(&mut record.version));
            storer.view.iter_mut().flatten().for_each(|n| node(n, f));
            storer.watcher.final_labels.iter_mut().flatten().for_each(|n| node(n, f));
            match &mut storer.job {
                Storing::Read { record: Some(record), .. } => f(&mut record.version),
                Storing::Sent(write) => {
                    action(&mut write.action, f);
                    write.view.iter_mut().for_each(|n| node(n, f));
                }
                _ => (),
            }
        }
        for restorer in &mut self.restorers {
            restorer.watcher.final_labels.iter_mut().flatten().for_each(|n| node(n, f));
            match &mut restorer.job {
                Restoring::Idle => (),
                Restoring::ReadFirst { record, .. } => f(&mut record.version),
                Restoring::Sent(patch) => f(&mut patch.version),
            }
        }
        if let Some(write) = &mut self.late_write {
            action(&mut write.action, f);
            write.view.iter_mut().for_each(|n| node(n, f));
        }
        self.late_patch.iter_mut().for_each(|patch| f(&mut patch.version));
        self.promises.iter_mut().for_each(|promise| f(&mut promise.changed_at));
        f(&mut self.newest);
        self.deleted.iter_mut().for_each(|n| node(n, f));
    }

    /// Only the order of versions matters.
    fn renumber(&mut self) {
        let mut is_used = [false; 256];
        self.each_version(&mut |version| is_used[usize::from(*version)] = true);
        is_used[0] = true;
        let (mut ranks, mut rank) = ([0u8; 256], 0);
        for (version, _) in is_used.iter().enumerate().filter(|(_, is_used)| **is_used) {
            ranks[version] = rank;
            rank += 1;
        }
        self.each_version(&mut |version| *version = ranks[usize::from(*version)]);
        self.version = rank - 1;
    }

    fn swap_storers(&mut self) {
        self.storers.swap(0, 1);
        self.each_since(|since| since.swap(0, 1));
    }

    fn swap_restorers(&mut self) {
        self.restorers.swap(0, 1);
    }

    /// Calls `f` with every start of an attempt or a deletion.
    pub(crate) fn each_since(&mut self, mut f: impl FnMut(&mut Since)) {
        self.events.iter_mut().flatten().for_each(|event| f(&mut event.since));
        for storer in &mut self.storers {
            match &mut storer.job {
                Storing::Idle => (),
                Storing::Read { since, .. } => f(since),
                Storing::Sent(write) => f(&mut write.since),
            }
        }
        for restorer in &mut self.restorers {
            match &mut restorer.job {
                Restoring::Idle => (),
                Restoring::ReadFirst { since, .. } => f(since),
                Restoring::Sent(patch) => f(&mut patch.since),
            }
        }
        self.late_write.iter_mut().for_each(|write| f(&mut write.since));
        self.late_patch.iter_mut().for_each(|patch| f(&mut patch.since));
    }
}
