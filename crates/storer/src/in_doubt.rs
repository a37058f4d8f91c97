//! Writes of records whose outcome is not known, by key.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use label_storage::store::InDoubt;
use label_storage::store::in_doubt::WriteAnswer;
use label_storage::{RecordKey, ResourceVersion};
use label_storage_runtime::call::Error;
use tokio::time::Instant;

/// A write can't arrive later than this.
const LIFETIME: Duration = Duration::from_secs(1800);

/// They outlive a shard: it may be handed over and come back before a write arrives.
#[derive(Debug, Default)]
pub(crate) struct WritesInDoubt(Mutex<HashMap<RecordKey, Sent>>);

/// A write, and when it was sent.
type Sent = (InDoubt<ResourceVersion>, Instant);

impl WritesInDoubt {
    fn writes(&self) -> MutexGuard<'_, HashMap<RecordKey, Sent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn contains(&self, key: &str) -> bool {
        self.writes().contains_key(key)
    }

    /// True if a write may still be carried out, given the version of the record that was just read. Otherwise it is forgotten.
    pub(crate) fn holds(&self, key: &str, read: Option<ResourceVersion>) -> bool {
        let mut writes = self.writes();
        let holds = writes.get(key).is_some_and(|(write, _)| write.holds(read));
        if !holds {
            writes.remove(key);
        }
        holds
    }

    /// Sends a write that expects this version of the record. It stays in doubt if the caller stops waiting for the answer.
    pub(crate) async fn send<T>(
        &self,
        key: &RecordKey,
        expected: Option<ResourceVersion>,
        write: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let (sent, now) = (InDoubt { expected }, Instant::now());
        let before = self.writes().insert(key.clone(), (sent, now)).map(|(before, _)| before);
        let result = write.await;
        let answer = match &result {
            Ok(_) => WriteAnswer::Done,
            Err(error) if error.may_have_effect() => WriteAnswer::Unknown,
            Err(_) => WriteAnswer::Refused,
        };
        match InDoubt::after(before, sent, answer) {
            Some(write) => _ = self.writes().insert(key.clone(), (write, now)),
            None => _ = self.writes().remove(key),
        }
        result
    }

    /// Drops the writes that can't arrive any more. Their keys are of shards that this replica has handed over.
    pub(crate) fn expire(&self) {
        self.writes().retain(|_, (_, sent_at)| sent_at.elapsed() < LIFETIME);
    }
}

#[cfg(test)]
impl WritesInDoubt {
    /// Sends a write, and does not wait for the answer.
    pub(crate) fn send_without_answer(&self, key: &RecordKey, expected: Option<ResourceVersion>) {
        let sent = std::pin::pin!(self.send::<()>(key, expected, std::future::pending()));
        let polled = sent.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        assert!(polled.is_pending());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_write_is_in_doubt_until_it_is_answered_or_the_record_has_changed() {
        let (writes, key, read) = (WritesInDoubt::default(), RecordKey::from("a"), Some(ResourceVersion(7)));
        let is_in_doubt = || writes.contains("a");
        let done = || async { Ok(()) };
        let refused = || async { Err::<(), _>(Error::refused("write", "no")) };
        writes.send(&key, read, done()).await.expect("done");
        assert!(!is_in_doubt());
        writes.send(&key, read, refused()).await.expect_err("refused");
        assert!(!is_in_doubt());
        writes.send_without_answer(&key, read);
        assert!(is_in_doubt() && writes.holds("a", read), "it has no answer");
        writes.send(&key, read, refused()).await.expect_err("refused");
        assert!(is_in_doubt(), "the one before may still arrive");
        assert!(!writes.holds("a", Some(ResourceVersion(8))) && !is_in_doubt(), "it would be refused");
        writes.send_without_answer(&key, None);
        assert!(writes.holds("a", None), "a create, where there is no record");
        assert!(!writes.holds("a", read) && !is_in_doubt(), "a create is refused now");
        writes.send_without_answer(&key, read);
        writes.send(&key, read, done()).await.expect("done");
        assert!(!is_in_doubt(), "both expected the same version");
    }

    #[tokio::test(start_paused = true)]
    async fn writes_of_shards_that_were_handed_over_are_forgotten() {
        let writes = WritesInDoubt::default();
        for key in ["a", "b"] {
            writes.send_without_answer(&RecordKey::from(key), None);
            tokio::time::advance(LIFETIME / 2).await;
        }
        writes.expire();
        assert_eq!(["a", "b"].map(|key| writes.contains(key)), [false, true]);
    }
}
