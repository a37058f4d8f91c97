//! Writes of records whose outcome is not known: the API server may still carry them out, as long as the record is as they expect it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use label_storage::ResourceVersion;
use label_storage_runtime::record_key::RecordKey;

/// The version of the record that a write expects; `None` for a create, which expects that there is no record.
pub(crate) type Expected = Option<ResourceVersion>;

/// Writes whose outcome is not known, by what their record is filed under.
#[derive(Debug, Default)]
pub(crate) struct InDoubt(Mutex<HashMap<RecordKey, Expected>>);

impl InDoubt {
    fn writes(&self) -> MutexGuard<'_, HashMap<RecordKey, Expected>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if there is one.
    pub(crate) fn contains(&self, key: &str) -> bool {
        self.writes().contains_key(key)
    }

    /// True if there is one that can still be carried out, given the version of the record that was just read. If it can't, it is
    /// forgotten.
    pub(crate) fn holds(&self, key: &str, read: Expected) -> bool {
        let mut writes = self.writes();
        let holds = writes.get(key) == Some(&read);
        if !holds {
            writes.remove(key);
        }
        holds
    }

    /// A write is about to be sent. It is in doubt until it is answered: the process may stop waiting for the answer.
    pub(crate) fn sent(&self, key: &RecordKey, expected: Expected) -> Sent<'_> {
        let before = self.writes().insert(RecordKey::clone(key), expected);
        Sent { writes: self, key: RecordKey::clone(key), before }
    }
}

/// A write that is not answered yet.
pub(crate) struct Sent<'a> {
    writes: &'a InDoubt,
    key: RecordKey,
    before: Option<Expected>,
}

impl Sent<'_> {
    /// It was carried out, so that none from before can be any more.
    pub(crate) fn succeeded(self) {
        self.writes.writes().remove(&self.key);
    }

    /// It was refused, and is not carried out. One from before may be.
    pub(crate) fn refused(self) {
        match self.before {
            Some(before) => self.writes.writes().insert(self.key, before),
            None => self.writes.writes().remove(&self.key),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_in_doubt_until_it_is_answered_or_the_record_has_changed() {
        let (writes, key, read) = (InDoubt::default(), RecordKey::from("a"), Some(ResourceVersion(7)));
        let is_in_doubt = || writes.contains("a");
        writes.sent(&key, read).succeeded();
        assert!(!is_in_doubt());
        writes.sent(&key, read).refused();
        assert!(!is_in_doubt());
        drop(writes.sent(&key, read));
        assert!(is_in_doubt() && writes.holds("a", read), "it has no answer");
        writes.sent(&key, read).refused();
        assert!(is_in_doubt(), "the one before may still arrive");
        assert!(!writes.holds("a", Some(ResourceVersion(8))) && !is_in_doubt(), "it would be refused");
        drop(writes.sent(&key, None));
        assert!(writes.holds("a", None), "a create, where there is no record");
        assert!(!writes.holds("a", read) && !is_in_doubt(), "a create is refused now");
        drop(writes.sent(&key, read));
        writes.sent(&key, read).succeeded();
        assert!(!is_in_doubt(), "both expected the same version");
    }
}
