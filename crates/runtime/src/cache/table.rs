//! The table of the cache.

use hashbrown::HashTable;
use label_storage::NodeName;
use xxhash_rust::xxh3::xxh3_64;

use super::{CachedNode, CachedRecord};

/// The Node of this name and the record of this key. As a rule both are one.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) name: NodeName,
    pub(super) node: CachedNode,
    pub(super) record: CachedRecord,
}

/// All slots, by name.
///
/// An index of numbers beside a vector, rather than a map: a map of 100,000 slots is half empty, and exists twice while it grows.
#[derive(Debug, Default)]
pub(super) struct Table {
    index: HashTable<u32>,
    slots: Vec<Slot>,
}

impl Table {
    pub(super) fn get(&self, name: &str) -> Option<&Slot> {
        self.find(name).map(|at| &self.slots[at])
    }

    fn find(&self, name: &str) -> Option<usize> {
        let found = self.index.find(hash(name), |&at| *self.slots[at as usize].name == *name);
        found.map(|&at| at as usize)
    }

    /// The slot of this name, created if there is none.
    pub(super) fn slot(&mut self, name: &str) -> &mut Slot {
        let at = self.find(name).unwrap_or_else(|| self.add(name));
        &mut self.slots[at]
    }

    fn add(&mut self, name: &str) -> usize {
        if self.slots.len() == self.slots.capacity() {
            // By an eighth, not by double: slots are most of a daemon's memory.
            self.slots.reserve_exact(64 + self.slots.len() / 8);
        }
        let (node, record) = (CachedNode::unknown(), CachedRecord::UNKNOWN);
        self.slots.push(Slot { name: name.into(), node, record });
        self.index(self.slots.len() - 1)
    }

    fn index(&mut self, at: usize) -> usize {
        let (slots, number) = (&self.slots, u32::try_from(at).unwrap_or(u32::MAX));
        self.index.insert_unique(hash(&slots[at].name), number, |&at| hash(&slots[at as usize].name));
        at
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Slot> {
        self.slots.iter()
    }

    pub(super) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Slot> {
        self.slots.iter_mut()
    }

    pub(super) fn retain(&mut self, is_needed: impl Fn(&Slot) -> bool) {
        let before = self.slots.len();
        self.slots.retain(is_needed);
        if self.slots.len() < before {
            self.index.clear();
            (0..self.slots.len()).for_each(|at| _ = self.index(at));
        }
    }
}

fn hash(name: &str) -> u64 {
    xxh3_64(name.as_bytes())
}
