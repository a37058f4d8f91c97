//! Refuses stale answers.
//!
//! A server that lags, or a cache in front of it, answers with an old state. The API server refuses a write that follows from an old state of
//! the same object. But an old record may still have a label that was removed long ago, and its Node may not have changed since.

use label_storage::ResourceVersion;
use label_storage::store::Stored;

use super::Entry;
use crate::call::{Error, FailureKind};

/// The state of a Node and its record in the cache, before they are read.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    pub node: KnownVersion,
    pub record: KnownVersion,
}

#[derive(Debug, Clone, Copy)]
pub struct KnownVersion {
    pub version: ResourceVersion,
    pub is_there: bool,
}

/// A stale answer is accepted after this many tries: etcd may have been restored from a backup.
pub const STALE: u32 = 20;

/// A 404 for a known object is accepted after this many tries in a row.
const ABSENT: u32 = 3;

impl Entry<'_> {
    /// The versions that an answer must not be older than.
    pub fn known(&self) -> Known {
        let (node, record) = self.versions();
        Known {
            node: KnownVersion { version: node, is_there: self.node().is_some() },
            record: KnownVersion { version: record, is_there: self.stored() != Stored::Nothing },
        }
    }
}

impl KnownVersion {
    /// Refuses an answer that is older than the cache. One without a version can't be compared, nor written. `tries` counts the failures in a
    /// row before it.
    pub fn check(
        &self,
        what: &'static str,
        read: Option<Option<ResourceVersion>>,
        tries: u32,
    ) -> Result<(), Error> {
        let known = self.version;
        let message = match read.map(|version| version.unwrap_or(known)) {
            Some(read) if read < known && tries < STALE => {
                format!("the answer is stale: it has version {read}, and {known} was seen before")
            }
            None if self.is_there && tries + 1 < ABSENT => {
                format!("not found, but version {known} was seen before")
            }
            _ => return Ok(()),
        };
        Err(Error { what, kind: FailureKind::Moved, code: None, message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(known: u64, is_there: bool, read: Option<u64>, tries: u32) -> bool {
        let seen = KnownVersion { version: ResourceVersion(known), is_there };
        seen.check("get node", read.map(|version| Some(ResourceVersion(version))), tries).is_err()
    }

    #[test]
    fn what_is_older_than_what_was_seen_is_refused_unless_it_stays_so() {
        assert!(!is_refused(7, true, Some(7), 0));
        assert!(!is_refused(7, true, Some(8), 0));
        assert!(is_refused(7, true, Some(6), 0));
        assert!(is_refused(7, false, Some(6), 0), "it was deleted after that");
        assert!(!is_refused(0, false, Some(6), 0), "nothing was seen, or all is forgotten");
        assert!(is_refused(7, true, Some(6), STALE - 1) && !is_refused(7, true, Some(6), STALE));
    }

    #[test]
    fn what_was_there_is_asked_for_again() {
        assert!(is_refused(7, true, None, 0) && is_refused(7, true, None, 1));
        assert!(!is_refused(7, true, None, 2), "it is gone");
        assert!(!is_refused(7, false, None, 0));
    }
}
