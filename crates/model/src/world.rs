//! All there is at one moment: Nodes, records, what the processes remember and have begun, and what was promised.
//!
//! Everything is small and is copied: there are millions of these.

use std::hash::Hash;

use label_storage::store::InDoubt;

/// So many names of Nodes, at most.
pub(crate) const NAMES: usize = 2;
/// Label keys that persons use: `a` and `b`.
pub(crate) const KEYS: usize = 2;
/// Two of each daemon.
pub(crate) const PROCESSES: usize = 2;
/// So many deletions of one name can be told of.
pub(crate) const EVENTS: usize = 4;

/// A value for each key; 0 where there is none.
pub(crate) type Labels = [u8; KEYS];

/// A Node as it was in one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Node {
    /// Which incarnation.
    pub(crate) uid: u8,
    /// Its resourceVersion.
    pub(crate) version: u8,
    /// Its labels.
    pub(crate) labels: Labels,
    /// The marker.
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
    /// And its version then.
    pub(crate) version: u8,
    /// Counts the writes.
    pub(crate) generation: u8,
    /// The generation in which the labels last changed.
    pub(crate) labels_generation: u8,
    /// Whether it says that the Node is gone.
    pub(crate) departed: bool,
    /// The labels.
    pub(crate) labels: Labels,
}

impl Record {
    /// Stands for one of which nothing matters but that it is there.
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

/// For each storer whether something began after that storer saw its record as it is: only what did can be alive when
/// that has been half a minute ago.
pub(crate) type Since = [bool; PROCESSES];

/// A write of a record that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Write {
    /// What it does.
    pub(crate) action: Action,
    /// The view of the Node that it was made from, unless it only stamps.
    pub(crate) view: Option<Node>,
    /// Whether it stores last labels.
    pub(crate) is_words: bool,
    /// Whether who sent it was killed.
    pub(crate) is_orphan: bool,
    /// Whether the record is still the one that was read.
    pub(crate) is_current: bool,
    /// When its attempt began.
    pub(crate) since: Since,
}

/// What a plan of the storer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Action {
    /// Nothing.
    Nothing,
    /// Creates the record.
    Create(Record),
    /// Replaces what was read.
    Replace(Record),
    /// Deletes what was read.
    Delete,
}

/// A patch of a Node that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Patch {
    /// The incarnation that was seen.
    pub(crate) uid: u8,
    /// At this version.
    pub(crate) version: u8,
    /// Labels to add.
    pub(crate) labels: Labels,
    /// The ConfigMap and the generation that the marker names.
    pub(crate) object: u8,
    pub(crate) generation: u8,
    /// When its attempt began.
    pub(crate) since: Since,
}

/// What a storer has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) enum Storing {
    /// Nothing.
    #[default]
    Idle,
    /// It has read the record, and not yet the Node. Only where there are last labels to store: see `storer`.
    Read {
        /// What was read.
        record: Option<Record>,
        /// Whether it is still so.
        is_current: bool,
        /// True if an earlier write of its own may still arrive.
        in_doubt: bool,
        /// When the attempt began.
        since: Since,
    },
    /// It has sent a write.
    Sent(Write),
}

/// What a restorer has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) enum Restoring {
    /// Nothing.
    #[default]
    Idle,
    /// It has read the record before it saw the Node: only without that guard.
    ReadFirst {
        /// What was read.
        record: Record,
        /// When the attempt began.
        since: Since,
    },
    /// It has sent a patch.
    Sent(Patch),
}

/// One storer's memory of one Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Storer {
    /// The record as it was last seen.
    pub(crate) row: Option<Record>,
    /// Whether that is still so.
    pub(crate) is_fresh: bool,
    /// Whether it has been seen so for half a minute.
    pub(crate) is_aged: bool,
    /// The Node as it was last seen: only without the confirming read.
    pub(crate) view: Option<Option<Node>>,
    /// Final labels that are not stored yet.
    pub(crate) final_labels: Kept,
    /// The number of deletions that its watch has reported.
    pub(crate) heard: u8,
    /// The number of deletions up to the position that the holder before left: it has dealt with these.
    pub(crate) settled: u8,
    /// Whether its last attempt failed.
    pub(crate) has_failed: bool,
    /// The write that it has no answer to. It expects a version of the record: true while the record is as it was read.
    pub(crate) doubt: Option<InDoubt<bool>>,
    /// What it has begun.
    pub(crate) job: Storing,
}

/// A deletion that watches tell of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Deletion {
    /// The Node as it was, at the version of its deletion.
    pub(crate) last: Node,
    /// When it happened.
    pub(crate) since: Since,
    /// Whether that is more than half a minute ago.
    pub(crate) is_old: bool,
}

/// A label that a person removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Removal {
    /// From this incarnation.
    pub(crate) uid: u8,
    /// Whether that was stored before the next incarnation was created.
    pub(crate) is_stored: bool,
}

/// What is promised of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Promise {
    /// This value has been stored, and nobody has changed it since.
    pub(crate) kept: u8,
    /// The version in which somebody last changed it.
    pub(crate) changed_at: u8,
    /// The last incarnation that a restorer gave it to since.
    pub(crate) given_to: u8,
    /// A person removed it, and nobody has set it since.
    pub(crate) removed: Option<Removal>,
}

/// All that belongs to one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Name {
    /// The Node, while there is one.
    pub(crate) node: Option<Node>,
    /// The record.
    pub(crate) record: Option<Record>,
    /// The uid of the last incarnation.
    pub(crate) uids: u8,
    /// The newest resourceVersion of a Node.
    pub(crate) version: u8,
    /// The marker of the last incarnation, for who re-creates it from saved YAML.
    pub(crate) saved: Option<Marker>,
    /// The uid of the last ConfigMap.
    pub(crate) objects: u8,
    /// The Node as it was deleted last, while there is none.
    pub(crate) deleted: Option<Node>,
    /// The number of deletions up to the position that is in the Lease for certain.
    pub(crate) published: u8,
    /// Deletions, the oldest first.
    pub(crate) events: [Option<Deletion>; EVENTS],
    /// How many there were.
    pub(crate) deletions: u8,
    /// What the storers know of it.
    pub(crate) storers: [Storer; PROCESSES],
    /// What the restorers have begun.
    pub(crate) restorers: [Restoring; PROCESSES],
    /// Writes that their senders have given up on, and that arrive yet.
    pub(crate) late_write: Option<Write>,
    /// The same.
    pub(crate) late_patch: Option<Patch>,
    /// What is promised.
    pub(crate) promises: [Promise; KEYS],
    /// The newest version of the Node that any record was made from.
    pub(crate) newest: u8,
    /// What the Node last said, while it is gone, if its word counted and somebody will hear of it.
    pub(crate) last_said: Option<Labels>,
}

/// How many of each may still happen.
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
    /// A storer is killed.
    pub crash: u8,
    /// A write is lost, or its answer is.
    pub lose: u8,
    /// A write arrives late, or twice.
    pub late: u8,
    /// A person edits or deletes the record of a Node that is gone.
    pub edit: u8,
}

/// All there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct World {
    /// Everything that belongs to a name.
    pub(crate) names: [Name; NAMES],
    /// What may still happen.
    pub(crate) left: Left,
}

impl World {
    /// One Node of each name, with one label, and nobody has seen it yet.
    pub(crate) fn new(left: Left) -> Self {
        let node = Node { uid: 1, version: 1, labels: [1, 0], marker: None };
        let name = Name { node: Some(node), uids: 1, version: 1, ..Name::default() };
        let mut world = Self { names: [name; NAMES], left };
        for storer in world.names.iter_mut().flat_map(|name| &mut name.storers) {
            storer.is_fresh = true;
        }
        world
    }

    /// The one of all worlds that differ only in who is first and in how versions are numbered.
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

    /// A number that stands for it.
    pub(crate) fn fingerprint(&self, names: usize) -> u64 {
        let mut bytes = Bytes(Vec::with_capacity(1024));
        self.left.hash(&mut bytes);
        self.names[..names].iter().for_each(|name| name.hash(&mut bytes));
        xxhash_rust::xxh3::xxh3_64(&bytes.0)
    }
}

/// Takes what is hashed as it is, for a better hash than the usual ones.
struct Bytes(Vec<u8>);

impl std::hash::Hasher for Bytes {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    // Of an array: always the same.
    fn write_usize(&mut self, _: usize) {}

    fn write_isize(&mut self, tag: isize) {
        // Which variant of an enum: there are never many.
        self.0.push(tag as u8);
    }
}

impl Name {
    /// Calls `f` with every version of the Node that anything here speaks of.
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
            storer.final_labels.iter_mut().flatten().for_each(|n| node(n, f));
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
            match restorer {
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

    /// Calls `f` with the time that anything here began.
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
            match restorer {
                Restoring::Idle => (),
                Restoring::ReadFirst { since, .. } => f(since),
                Restoring::Sent(patch) => f(&mut patch.since),
            }
        }
        self.late_write.iter_mut().for_each(|write| f(&mut write.since));
        self.late_patch.iter_mut().for_each(|patch| f(&mut patch.since));
    }
}
