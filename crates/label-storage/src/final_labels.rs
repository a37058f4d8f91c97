//! Final labels: the labels of a Node at its deletion. Only the DELETED event has them, so they are kept until they are stored.
//!
//! The storer keeps them to store them. The restorer keeps them to restore a Node that returns before they are stored.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::{Node, RecordKey, ResourceVersion};

/// The most that are kept, of all keys together. There are only more if nothing can be stored.
const MOST: usize = 4096;

/// Final labels that are not stored yet, by the key of their record, the oldest first.
#[derive(Debug, Default)]
pub struct FinalLabels {
    pending: HashMap<RecordKey, VecDeque<(Node, Instant)>>,
    len: usize,
    lifetime: Duration,
}

impl FinalLabels {
    /// Keeps final labels until they are stored, but not for longer than `lifetime`.
    pub fn new(lifetime: Duration) -> Self {
        Self { pending: HashMap::new(), len: 0, lifetime }
    }

    /// True if there are some to be stored in this record.
    pub fn contains(&self, key: &str) -> bool {
        self.pending.contains_key(key)
    }

    /// The final labels that are stored in this record next.
    pub fn first(&self, key: &str) -> Option<&Node> {
        self.pending.get(key)?.front().map(|(last, _)| last)
    }

    /// All final labels of this record, the oldest first.
    pub fn all(&self, key: &str) -> impl Iterator<Item = &Node> {
        self.pending.get(key).into_iter().flatten().map(|(last, _)| last)
    }

    /// Keeps the final labels of a Node. If there are too many, it drops some of the same key that add nothing, or some without any labels, or
    /// else gives up the oldest of all, and returns the key of those.
    pub fn push(&mut self, key: &RecordKey, last: Node, now: Instant) -> Option<RecordKey> {
        let is_bare = |last: &Node| last.labels.is_empty() && last.restored_from().is_none();
        let is_full = self.len >= MOST;
        if is_full && !self.pending.contains_key(key) && is_bare(&last) {
            return None;
        }
        let pending = self.pending.entry(key.clone()).or_default();
        pending.push_back((last, now));
        self.len += 1;
        if !is_full {
            return None;
        }
        let adds_nothing = |at: &usize| adds_nothing(&pending[*at].0, &pending[at - 1].0);
        if let Some(at) = (1..pending.len()).rev().find(adds_nothing) {
            pending.remove(at);
            self.len -= 1;
            return None;
        }
        let first = |pending: &VecDeque<(Node, _)>| pending.front().map(|(last, _)| last.version);
        let bare = self.pending.iter().find(|(_, pending)| pending.iter().all(|(last, _)| is_bare(last)));
        if let Some(bare) = bare.map(|(key, _)| key.clone()) {
            self.pop(&bare);
            return None;
        }
        let oldest = self.pending.iter().min_by_key(|(_, pending)| first(pending));
        let oldest = oldest.map(|(key, _)| key.clone())?;
        self.pop(&oldest);
        Some(oldest)
    }

    /// These are stored, unless they have been given up meanwhile.
    pub fn stored(&mut self, key: &str, last: &Node) {
        if self.first(key) == Some(last) {
            self.pop(key);
        }
    }

    /// Drops those for which this is false. The last argument is true if earlier ones of the same key are kept.
    pub fn retain(&mut self, is_needed: impl Fn(&RecordKey, &Node, bool) -> bool) {
        self.pending.retain(|key, pending| {
            let mut has_earlier = false;
            pending.retain(|(last, _)| {
                let is_needed = is_needed(key, last, has_earlier);
                has_earlier |= is_needed;
                is_needed
            });
            !pending.is_empty()
        });
        self.len = self.pending.values().map(VecDeque::len).sum();
    }

    fn pop(&mut self, key: &str) {
        let Some(pending) = self.pending.get_mut(key) else { return };
        self.len -= usize::from(pending.pop_front().is_some());
        if pending.is_empty() {
            self.pending.remove(key);
        }
    }

    /// Drops all whose lifetime is over.
    pub fn expire(&mut self, now: Instant) {
        let lifetime = self.lifetime;
        self.pending.retain(|_, pending| {
            pending.retain(|(_, since)| now.duration_since(*since) < lifetime);
            !pending.is_empty()
        });
        self.len = self.pending.values().map(VecDeque::len).sum();
    }

    /// The number of final labels.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The keys of all that are to be stored, each with the version of its first deletion.
    pub fn unstored(&self) -> impl Iterator<Item = (&RecordKey, ResourceVersion)> {
        self.pending.iter().filter_map(|(key, pending)| Some((key, pending.front()?.0.version)))
    }
}

/// True if storing `last` after `earlier` changes no label, as far as is known: it was not restored, so its labels go over the record's,
/// and all of them are `earlier`'s.
fn adds_nothing(last: &Node, earlier: &Node) -> bool {
    let has = |(key, value): (&String, &String)| earlier.labels.get(key) == Some(value);
    last.restored_from().is_none() && last.labels.iter().all(has)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::node;

    fn incarnation(number: usize) -> Node {
        node("a").incarnation(&format!("u{number}")).at(number as u64)
    }

    fn push(labels: &mut FinalLabels, key: &str, last: Node) -> Option<RecordKey> {
        labels.push(&RecordKey::from(key), last, Instant::now())
    }

    fn versions(labels: &mut FinalLabels, key: &str) -> Vec<u64> {
        let store_first = |_| {
            let last = labels.first(key).cloned()?;
            labels.stored(key, &last);
            Some(last.version.0)
        };
        (0..MOST).map_while(store_first).collect()
    }

    #[test]
    fn bare_incarnations_do_not_push_out_the_labels_that_matter() {
        let mut labels = FinalLabels::new(Duration::MAX);
        push(&mut labels, "other", incarnation(1).label("pool", "silver"));
        push(&mut labels, "a", incarnation(2).label("pool", "gold").label("zone", "a"));
        for number in 3..MOST * 2 {
            let next = incarnation(number);
            let next = if number % 2 == 0 { next } else { next.label("zone", "a") };
            assert_eq!(push(&mut labels, "a", next), None, "{number}");
        }
        assert!(labels.len() == MOST && !labels.is_empty());
        assert_eq!(versions(&mut labels, "a")[..3], [2, 3, 4]);
        assert_eq!(versions(&mut labels, "other"), [1]);
        assert!(labels.is_empty() && !labels.contains("a"));
    }

    #[test]
    fn beyond_a_bound_the_oldest_are_given_up() {
        let mut labels = FinalLabels::new(Duration::MAX);
        for number in 0..MOST {
            let last = incarnation(number + 1).label("k", "v");
            assert_eq!(push(&mut labels, &format!("n{number}"), last), None);
        }
        let last = incarnation(MOST + 1).label("k", "v");
        assert_eq!(push(&mut labels, "another", last.clone()).as_deref(), Some("n0"));
        assert_eq!((labels.len(), labels.contains("n0"), labels.contains("n1")), (MOST, false, true));
        labels.stored("n0", &last);
        assert_eq!(labels.len(), MOST, "they were given up before");
        // The labels of a restored incarnation count, even if there are none.
        let marked = incarnation(MOST + 2).marked(&format!("u{}/1", MOST + 2));
        assert_eq!(push(&mut labels, "another", marked).as_deref(), Some("n1"));
        // And so is a label that the one before did not have.
        let labelled = incarnation(MOST + 3).label("k", "w");
        assert_eq!(push(&mut labels, "another", labelled).as_deref(), Some("n2"));
        assert_eq!(labels.unstored().map(|(_, version)| version.0).min(), Some(4));
    }

    #[test]
    fn nodes_without_labels_do_not_push_out_the_labels_that_matter() {
        let mut labels = FinalLabels::new(Duration::MAX);
        push(&mut labels, "early", incarnation(1).label("pool", "silver"));
        for number in 2..MOST * 2 {
            assert_eq!(push(&mut labels, &format!("n{number}"), incarnation(number)), None, "{number}");
        }
        assert_eq!(push(&mut labels, "late", incarnation(MOST * 2).label("pool", "silver")), None);
        assert_eq!(labels.len(), MOST);
        assert!(labels.contains("early") && labels.contains("late"));
    }

    #[test]
    fn they_are_dropped_when_their_lifetime_is_over() {
        let (mut labels, now) = (FinalLabels::new(Duration::from_secs(20)), Instant::now());
        let key = RecordKey::from("a");
        labels.push(&key, incarnation(1), now);
        labels.push(&key, incarnation(2), now + Duration::from_secs(10));
        let at = |seconds| now + Duration::from_secs(seconds);
        labels.expire(at(29));
        assert_eq!(labels.unstored().map(|(_, version)| version.0).collect::<Vec<_>>(), [2]);
        labels.expire(at(30));
        assert!(labels.is_empty());
    }
}
