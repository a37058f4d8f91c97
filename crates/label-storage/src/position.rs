//! The position from which a watch of Nodes is resumed, so that no deletion is missed and none is stored twice.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ResourceVersion;

/// The most pending deletions in a position. They are in a Lease, which is written every two seconds.
const MOST: usize = 32;

/// The resume position of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// All deletions up to this version are stored, except the pending ones.
    pub version: ResourceVersion,
    /// Deletions that are not stored yet: the record key, and the version of the first deletion.
    pub pending: Pending,
}

/// Deletions that are not stored yet, by record key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pending(BTreeMap<String, u64>);

impl Pending {
    /// All of them, with the version of the first deletion.
    pub fn iter(&self) -> impl Iterator<Item = (&str, ResourceVersion)> {
        self.0.iter().map(|(key, version)| (key.as_str(), ResourceVersion(*version)))
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Position {
    /// The position of a process whose watch has come to `heard`, and that still has to store these deletions. A deletion that can't be stored
    /// does not hold back the others. If there are too many, the position stays before the first that is left out.
    pub fn new<'a>(
        heard: ResourceVersion,
        pending: impl Iterator<Item = (&'a str, ResourceVersion)>,
    ) -> Self {
        let mut firsts = BTreeMap::new();
        for (key, version) in pending.filter(|(_, version)| *version <= heard) {
            keep_first(&mut firsts, key, version);
        }
        let mut pending: Vec<_> = firsts.into_iter().collect();
        pending.sort_by_key(|(_, version)| *version);
        let version = pending.get(MOST).map_or(heard, |(_, version)| before(*version));
        let named = pending.iter().take(MOST).map(|(key, version)| ((*key).to_owned(), version.0));
        Self { version, pending: Pending(named.collect()) }
    }

    /// The version from which to watch.
    pub fn resume_from(&self) -> ResourceVersion {
        let pending = self.pending.iter().map(|(_, version)| before(version));
        pending.fold(self.version, ResourceVersion::min)
    }

    /// True if the process that left this position has stored a deletion. Its repeated event is ignored.
    pub fn is_settled(&self, key: &str, deleted_at: ResourceVersion) -> bool {
        let is_pending = self.pending.0.get(key).is_some_and(|version| deleted_at.0 >= *version);
        deleted_at <= self.version && !is_pending
    }

    /// The position of two shards together.
    pub fn join(mut self, other: Self) -> Self {
        for (key, version) in other.pending.0 {
            keep_first(&mut self.pending.0, key, version);
        }
        Self { version: self.version.min(other.version), ..self }
    }
}

/// Adds a deletion. Each key has the version of its first deletion.
fn keep_first<K: Ord, V: Ord + Copy>(firsts: &mut BTreeMap<K, V>, key: K, version: V) {
    let first = firsts.entry(key).or_insert(version);
    *first = version.min(*first);
}

fn before(version: ResourceVersion) -> ResourceVersion {
    ResourceVersion(version.0.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(heard: u64, pending: &[(&str, u64)]) -> Position {
        let pending = pending.iter().map(|(key, version)| (*key, ResourceVersion(*version)));
        Position::new(ResourceVersion(heard), pending)
    }

    #[test]
    fn one_deletion_that_can_not_be_stored_does_not_bring_back_the_others() {
        let position = position(205, &[("y", 180)]);
        assert_eq!(position.resume_from(), ResourceVersion(179));
        for (key, deleted_at, is_settled) in [
            ("x", 179, true),
            ("x", 190, true),
            ("x", 205, true),
            ("x", 206, false),
            ("y", 179, true),
            ("y", 180, false),
            ("y", 200, false),
        ] {
            assert_eq!(
                position.is_settled(key, ResourceVersion(deleted_at)),
                is_settled,
                "{key} {deleted_at}"
            );
        }
    }

    #[test]
    fn without_any_that_are_pending_it_is_where_the_watch_is() {
        assert_eq!(position(205, &[]).resume_from(), ResourceVersion(205));
        assert!(position(205, &[]).pending.is_empty() && !position(205, &[("y", 180)]).pending.is_empty());
        assert_eq!(position(205, &[("later", 206)]), position(205, &[]), "that one will be heard of");
        assert_eq!(
            position(205, &[("y", 190), ("y", 180)]),
            position(205, &[("y", 180)]),
            "the first counts"
        );
    }

    #[test]
    fn those_beyond_the_bound_hold_it_back() {
        let names: Vec<_> = (0..MOST as u64 + 8).map(|number| (format!("n{number}"), 100 + number)).collect();
        let pending: Vec<_> = names.iter().map(|(name, version)| (name.as_str(), *version)).collect();
        let position = position(1000, &pending);
        assert_eq!(position.version, ResourceVersion(100 + MOST as u64 - 1));
        assert_eq!(position.resume_from(), ResourceVersion(99));
        for (name, version) in pending {
            assert!(!position.is_settled(name, ResourceVersion(version)), "{name}");
        }
        assert!(position.is_settled("other", position.version));
    }

    #[test]
    fn what_is_said_twice_counts_once() {
        let names: Vec<_> = (0..MOST as u64).map(|number| (format!("n{number}"), 100 + number)).collect();
        let pending: Vec<_> = names.iter().map(|(name, version)| (name.as_str(), *version)).collect();
        assert_eq!(position(1000, &[&pending[..], &pending[..]].concat()).version, ResourceVersion(1000));
    }

    #[test]
    fn of_two_shards_the_earlier_counts_and_all_that_is_pending() {
        let joined = position(205, &[("y", 180)]).join(position(190, &[("z", 185)]));
        assert_eq!((joined.version.0, joined.resume_from().0), (190, 179));
        assert!(
            !joined.is_settled("y", ResourceVersion(180)) && !joined.is_settled("z", ResourceVersion(185))
        );
        assert!(
            joined.is_settled("x", ResourceVersion(190)) && !joined.is_settled("x", ResourceVersion(191))
        );
    }
}
