//! What was seen before, and since when: what is only work in progress is gone, or another, a few seconds later.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use label_storage::ResourceVersion;
use label_storage::summary::{LabelsDigest, UidDigest};

/// Something that may be work in progress.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    /// A Node, by its name.
    Node(Box<str>),
    /// The Lease of a shard, by the name that it has or would have.
    Shard(String),
}

/// How it looked. Where it looks otherwise, somebody works on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// This incarnation waits for its labels.
    Pending(UidDigest),
    /// This incarnation waits for its first record.
    Unstored(UidDigest),
    /// These labels wait to be stored.
    Differs(UidDigest, LabelsDigest),
    /// A Lease of this version; `None`: there is none.
    Lease(Option<ResourceVersion>),
}

/// What was seen in all looks so far.
#[derive(Debug, Default)]
pub(super) struct Memory {
    seen: HashMap<Subject, Seen>,
    next: HashMap<Subject, Seen>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    sight: Sight,
    since: Instant,
    has_changed: bool,
}

/// What looks have told of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Noted {
    /// For how long it has looked the same.
    pub(super) unchanged_for: Duration,
    /// Whether it looked otherwise before that. Whatever was not there before has not changed.
    pub(super) has_changed: bool,
}

impl Memory {
    /// Takes note of how something looks in this look.
    pub(super) fn note(&mut self, subject: Subject, sight: Sight, now: Instant) -> Noted {
        let seen = match self.seen.get(&subject) {
            Some(before) if before.sight == sight => *before,
            before => Seen { sight, since: now, has_changed: before.is_some() },
        };
        self.next.insert(subject, seen);
        Noted { unchanged_for: now.duration_since(seen.since), has_changed: seen.has_changed }
    }

    /// Ends a look: what was not in it is forgotten.
    pub(super) fn end_look(&mut self) {
        self.seen = std::mem::take(&mut self.next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_or_changes_in_between_counts_anew() {
        let mut memory = Memory::default();
        let began = Instant::now();
        let mut note = |seconds: u64, version: Option<u64>| {
            let now = began + Duration::from_secs(seconds);
            let note = |version| {
                let (subject, version) = (Subject::Shard("a".to_owned()), ResourceVersion(version));
                let noted = memory.note(subject, Sight::Lease(Some(version)), now);
                (noted.unchanged_for.as_secs(), noted.has_changed)
            };
            let noted = version.map(note);
            memory.end_look();
            noted
        };
        assert_eq!(note(0, Some(7)), Some((0, false)));
        assert_eq!(note(3, Some(7)), Some((3, false)));
        assert_eq!(note(5, Some(8)), Some((0, true)));
        assert_eq!(note(6, Some(8)), Some((1, true)));
        assert_eq!(note(7, None), None);
        assert_eq!(note(8, Some(9)), Some((0, false)), "it was not there in between");
    }
}
