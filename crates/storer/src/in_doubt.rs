//! Writes of records whose outcome is not known, by key.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use label_storage::store::InDoubt;
use label_storage::store::in_doubt::Answer;
use label_storage::{RecordKey, ResourceVersion};

/// They outlive a shard: it may be handed over and come back before a write arrives.
#[derive(Debug, Default)]
pub(crate) struct WritesInDoubt(Mutex<HashMap<RecordKey, InDoubt<ResourceVersion>>>);

impl WritesInDoubt {
    fn writes(&self) -> MutexGuard<'_, HashMap<RecordKey, InDoubt<ResourceVersion>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn contains(&self, key: &str) -> bool {
        self.writes().contains_key(key)
    }

    /// True if a write may still be carried out, given the version of the record that was just read. Otherwise it is forgotten.
    pub(crate) fn holds(&self, key: &str, read: Option<ResourceVersion>) -> bool {
        let mut writes = self.writes();
        let holds = writes.get(key).is_some_and(|write| write.holds(read));
        if !holds {
            writes.remove(key);
        }
        holds
    }

    /// Notes a write that is about to be sent and expects this version of the record. It is in doubt until it is answered.
    pub(crate) fn sent(&self, key: &RecordKey, expected: Option<ResourceVersion>) -> Sent<'_> {
        let write = InDoubt { expected };
        let before = self.writes().insert(key.clone(), write);
        Sent { writes: self, key: key.clone(), write, before }
    }
}

/// A write that is not answered yet.
pub(crate) struct Sent<'a> {
    writes: &'a WritesInDoubt,
    key: RecordKey,
    write: InDoubt<ResourceVersion>,
    before: Option<InDoubt<ResourceVersion>>,
}

impl Sent<'_> {
    pub(crate) fn answered(self, answer: Answer) {
        let mut writes = self.writes.writes();
        match InDoubt::after(self.before, self.write, answer) {
            Some(write) => _ = writes.insert(self.key, write),
            None => _ = writes.remove(&self.key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_in_doubt_until_it_is_answered_or_the_record_has_changed() {
        let (writes, key, read) = (WritesInDoubt::default(), RecordKey::from("a"), Some(ResourceVersion(7)));
        let is_in_doubt = || writes.contains("a");
        writes.sent(&key, read).answered(Answer::Done);
        assert!(!is_in_doubt());
        writes.sent(&key, read).answered(Answer::Refused);
        assert!(!is_in_doubt());
        drop(writes.sent(&key, read));
        assert!(is_in_doubt() && writes.holds("a", read), "it has no answer");
        writes.sent(&key, read).answered(Answer::Refused);
        assert!(is_in_doubt(), "the one before may still arrive");
        assert!(!writes.holds("a", Some(ResourceVersion(8))) && !is_in_doubt(), "it would be refused");
        drop(writes.sent(&key, None));
        assert!(writes.holds("a", None), "a create, where there is no record");
        assert!(!writes.holds("a", read) && !is_in_doubt(), "a create is refused now");
        drop(writes.sent(&key, read));
        writes.sent(&key, read).answered(Answer::Done);
        assert!(!is_in_doubt(), "both expected the same version");
    }
}
