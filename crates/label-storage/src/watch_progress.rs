//! The progress of the watch of Nodes, and the position from which the next holder of the shard resumes it.

use crate::position::Pending;
use crate::{Position, ResourceVersion};

/// The progress of one shard's watch of Nodes.
#[derive(Debug)]
pub struct WatchProgress {
    seen: ResourceVersion,
    /// False before the first watch: until then there is no position to resume from.
    has_watched: bool,
    /// The position from which the watch was resumed, until it has reached the progress of the holder before.
    resumed: Option<Position>,
    /// Other positions from which it could be resumed, the best first, until a list has confirmed the first.
    alternatives: Vec<Position>,
}

impl WatchProgress {
    /// The progress of a watch that is resumed from the first of these positions, if there is one.
    pub fn new(positions: &[Position]) -> Self {
        Self {
            seen: positions.first().map_or(ResourceVersion(0), Position::resume_from),
            has_watched: false,
            resumed: positions.first().cloned(),
            alternatives: positions.iter().skip(1).cloned().collect(),
        }
    }

    /// All events up to this version were seen.
    pub const fn seen(&self) -> ResourceVersion {
        self.seen
    }

    /// A watch was answered.
    pub const fn watching(&mut self) {
        self.has_watched = true;
    }

    /// The watch begins at the version of a list.
    pub const fn begin(&mut self, listed: ResourceVersion) {
        self.seen = listed;
    }

    /// The watch has come to this version. `is_confirmed`: a list has confirmed the position that the watch was resumed from.
    pub fn advance(&mut self, at: ResourceVersion, is_confirmed: bool) {
        self.seen = at;
        self.resumed.take_if(|resumed| is_confirmed && resumed.version <= at);
    }

    /// Compares the position with the version of a complete list. Returns a position that is ahead of the cluster, and dropped: etcd was
    /// restored from a backup, or the Lease was edited. A watch from there would have no events, so the watch has
    /// to begin again at [`seen`](Self::seen).
    pub fn check(&mut self, listed: ResourceVersion) -> Option<Position> {
        let is_possible = |position: &Position| position.version <= listed;
        let alternatives = std::mem::take(&mut self.alternatives);
        let dropped = self.resumed.take_if(|position| !is_possible(position))?;
        self.resumed = alternatives.into_iter().find(is_possible);
        self.seen = self.resumed.as_ref().map_or(listed, Position::resume_from);
        Some(dropped)
    }

    /// Gives up pending deletions that the API server no longer has, so that the watch can begin again at [`seen`](Self::seen). Returns
    /// `None` if there are none.
    pub fn give_up_pending(&mut self) -> Option<Pending> {
        let resumed = self.resumed.as_mut().filter(|it| it.resume_from() < it.version)?;
        self.seen = resumed.version;
        Some(std::mem::take(&mut resumed.pending))
    }

    /// True if the holder before has stored this deletion: then its repeated event is ignored.
    pub fn is_settled(&self, key: &str, deleted_at: ResourceVersion) -> bool {
        self.resumed.as_ref().is_some_and(|resumed| resumed.is_settled(key, deleted_at))
    }

    /// The position for the next holder, if these deletions are not stored yet. Returns `None` before the first watch.
    pub fn position<'a>(
        &'a self,
        pending: impl Iterator<Item = (&'a str, ResourceVersion)>,
    ) -> Option<Position> {
        self.has_watched.then(|| match &self.resumed {
            None => Position::new(self.seen, pending),
            // The watch may not have repeated all deletions yet that the holder before had pending.
            Some(resumed) => {
                Position::new(self.seen.max(resumed.version), pending.chain(resumed.pending.iter()))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(version: u64, pending: &[(&str, u64)]) -> Position {
        let pending = pending.iter().map(|(key, version)| (*key, ResourceVersion(*version)));
        Position::new(ResourceVersion(version), pending)
    }

    #[test]
    fn nobody_can_resume_where_nobody_has_watched() {
        let mut progress = WatchProgress::new(&[]);
        progress.begin(ResourceVersion(7));
        assert_eq!(progress.position(std::iter::empty()), None);
        progress.watching();
        assert_eq!(progress.position(std::iter::empty()), Some(at(7, &[])));
    }

    #[test]
    fn what_the_holder_before_had_pending_stays_so_until_the_watch_has_repeated_it() {
        let mut progress = WatchProgress::new(&[at(20, &[("y", 10)])]);
        progress.watching();
        assert_eq!(progress.seen(), ResourceVersion(9));
        assert!(
            progress.is_settled("x", ResourceVersion(15)) && !progress.is_settled("y", ResourceVersion(10))
        );
        for (version, is_confirmed, position) in
            [(15, true, at(20, &[("y", 10)])), (20, false, at(20, &[("y", 10)])), (20, true, at(20, &[]))]
        {
            progress.advance(ResourceVersion(version), is_confirmed);
            assert_eq!(progress.position(std::iter::empty()), Some(position), "{version} {is_confirmed}");
        }
        assert!(!progress.is_settled("x", ResourceVersion(15)), "all later events are new");
    }

    #[test]
    fn a_position_ahead_of_the_cluster_is_dropped_for_the_next_best() {
        let mut progress = WatchProgress::new(&[at(99, &[]), at(25, &[("y", 22)]), at(20, &[])]);
        assert_eq!(progress.check(ResourceVersion(30)), Some(at(99, &[])));
        assert_eq!(progress.seen(), ResourceVersion(21));
        assert_eq!(progress.check(ResourceVersion(30)), None);
        let mut progress = WatchProgress::new(&[at(99, &[])]);
        assert!(progress.check(ResourceVersion(30)).is_some() && progress.seen() == ResourceVersion(30));
    }

    #[test]
    fn pending_deletions_that_are_forgotten_cost_no_later_ones() {
        let mut progress = WatchProgress::new(&[at(20, &[("y", 10)])]);
        assert!(progress.give_up_pending().is_some());
        assert_eq!(progress.seen(), ResourceVersion(20));
        assert_eq!(progress.give_up_pending(), None);
        assert!(progress.is_settled("y", ResourceVersion(10)));
    }
}
