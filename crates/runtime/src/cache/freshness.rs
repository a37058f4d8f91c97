//! Refuses stale answers.
//!
//! A server that lags, or a cache in front of it, answers with an old state. The API server refuses a write that follows from an old state of
//! the same object. But an old record may still have a label that was removed long ago, and its Node may not have changed since.

use std::cell::Cell;
use std::time::Duration;

use label_storage::ResourceVersion;
use label_storage::store::Stored;
use tokio::time::Instant;

use super::Entry;
use crate::call::{Error, FailureKind};

/// The state of a Node and its record in the cache, before they are read.
#[derive(Debug, Clone)]
pub struct Known {
    pub node: KnownVersion,
    pub record: KnownVersion,
}

#[derive(Debug, Clone)]
pub struct KnownVersion {
    pub version: ResourceVersion,
    pub is_there: bool,
    doubt: Cell<Doubt>,
}

/// The answers that were refused since an attempt at the key has last succeeded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Doubt {
    /// Answers in a row that a known object does not exist.
    absent: u32,
    /// Since when all answers were older than the cache.
    stale_since: Option<Instant>,
    /// Since when answers have had a Node whose deletion was reported.
    undeleted_since: Option<Instant>,
}

/// The refused answers about a Node, and those about its record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Doubts {
    node: Doubt,
    record: Doubt,
}

/// The time for which stale answers are refused. After that, etcd may have been restored from a backup.
pub const STALE: Duration = Duration::from_secs(60);

/// A 404 for a known object is accepted after this many in a row.
const ABSENT: u32 = 3;

impl Entry<'_> {
    /// The versions that an answer must not be older than.
    pub fn known(&self) -> Known {
        let (node, record) = self.versions();
        Known {
            node: KnownVersion::new(node, self.node().is_some()),
            record: KnownVersion::new(record, self.stored() != Stored::Nothing),
        }
    }
}

impl Known {
    /// The same after earlier attempts.
    pub(crate) fn after(self, doubts: Doubts) -> Self {
        self.node.doubt.set(doubts.node);
        self.record.doubt.set(doubts.record);
        self
    }

    pub(crate) fn doubts(&self) -> Doubts {
        Doubts { node: self.node.doubt.get(), record: self.record.doubt.get() }
    }
}

impl KnownVersion {
    pub fn new(version: ResourceVersion, is_there: bool) -> Self {
        Self { version, is_there, doubt: Cell::default() }
    }

    /// Refuses an answer that is older than the cache. One without a version can't be compared, nor written.
    pub fn check(&self, what: &'static str, read: Option<Option<ResourceVersion>>) -> Result<(), Error> {
        let known = self.version;
        let read = read.map(|version| version.unwrap_or(known));
        let absent = if read.is_none() { self.doubt.get().absent.saturating_add(1) } else { 0 };
        self.doubt.update(|doubt| {
            let stale_since = match read {
                Some(read) if read < known => doubt.stale_since.or_else(|| Some(Instant::now())),
                Some(_) => None,
                None => doubt.stale_since,
            };
            Doubt { absent, stale_since, ..doubt }
        });
        let message = match read {
            Some(read) if read < known && !is_over(self.doubt.get().stale_since) => {
                format!("the answer is stale: it has version {read}, and {known} was seen before")
            }
            None if self.is_there && absent < ABSENT => {
                format!("not found, but version {known} was seen before")
            }
            _ => return Ok(()),
        };
        Err(Error { what, kind: FailureKind::Moved, code: None, message })
    }

    /// Notes an answer with a Node whose deletion was reported. Returns true if it is accepted.
    pub fn accepts_undeleted(&self) -> bool {
        let doubt = self.doubt.get();
        let since = doubt.undeleted_since.or(doubt.stale_since).or_else(|| Some(Instant::now()));
        self.doubt.update(|doubt| Doubt { undeleted_since: since, ..doubt });
        is_over(since)
    }
}

fn is_over(since: Option<Instant>) -> bool {
    since.is_some_and(|since| since.elapsed() >= STALE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(is_there: bool) -> KnownVersion {
        KnownVersion::new(ResourceVersion(7), is_there)
    }

    fn is_refused(known: &KnownVersion, read: Option<u64>) -> bool {
        known.check("get node", read.map(|version| Some(ResourceVersion(version)))).is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_stale_answer_is_refused_unless_it_stays_so() {
        for is_there in [true, false] {
            let known = known(is_there);
            assert!(!is_refused(&known, Some(7)) && !is_refused(&known, Some(8)));
            for _ in 0..100 {
                assert!(is_refused(&known, Some(6)), "{is_there}");
            }
            tokio::time::advance(STALE - Duration::from_secs(1)).await;
            assert!(is_refused(&known, Some(6)));
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(!is_refused(&known, Some(6)));
        }
        // Another answer shows that the one before was stale.
        let known = known(true);
        assert!(is_refused(&known, Some(6)) && !is_refused(&known, Some(7)));
        tokio::time::advance(STALE).await;
        assert!(is_refused(&known, Some(6)));
        let nothing = KnownVersion::new(ResourceVersion(0), false);
        assert!(!is_refused(&nothing, Some(6)), "nothing was seen, or all is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_404_for_a_known_object_is_accepted_after_three_in_a_row() {
        for between in [Some(7), Some(6)] {
            let known = known(true);
            assert!(is_refused(&known, None) && is_refused(&known, None));
            is_refused(&known, between);
            assert!(is_refused(&known, None) && is_refused(&known, None), "{between:?}");
            assert!(!is_refused(&known, None) && !is_refused(&known, None), "{between:?}");
        }
        assert!(!is_refused(&known(false), None));
    }
}
