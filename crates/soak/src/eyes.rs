//! Feeds the oracle from etcd's own history: each write in order, even if the API server fails.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use sandbox::etcd::{Error, Etcd};
use tokio::task::JoinHandle;

use crate::object::Place;
use crate::oracle::Oracle;

/// The pause between two watches.
const PAUSE: Duration = Duration::from_millis(50);

/// The oracle behind a lock.
#[derive(Debug, Clone)]
pub(crate) struct Shared(Arc<Mutex<Oracle>>);

impl Shared {
    pub(crate) fn new(oracle: Oracle) -> Self {
        Self(Arc::new(Mutex::new(oracle)))
    }

    /// Must not be held across an `await`.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Oracle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows all writes until it is dropped.
pub(crate) struct Eyes {
    task: JoinHandle<Error>,
}

impl Eyes {
    /// Starts with the next revision.
    pub(crate) async fn open(etcd: &Etcd, place: &Place, oracle: Shared) -> Result<Self, Error> {
        let next = etcd.revision().await? + 1;
        let (etcd, range) = (etcd.clone(), place.range());
        let task = tokio::spawn(async move { follow(&etcd, &range, next, &oracle).await });
        Ok(Self { task })
    }

    /// Returns when a write was missed: the oracle can't judge an incomplete history.
    pub(crate) async fn blinded(&mut self) -> anyhow::Error {
        match (&mut self.task).await {
            Ok(error) => error.into(),
            Err(error) => error.into(),
        }
    }
}

impl Drop for Eyes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Follows until a part of the history is missing.
async fn follow(etcd: &Etcd, (from, to): &(String, String), mut next: u64, oracle: &Shared) -> Error {
    loop {
        match follow_once(etcd, (from, to), &mut next, oracle).await {
            Err(error @ Error::Compacted(_)) => return error,
            // etcd is killed at times. Its history is still complete afterwards.
            Ok(()) | Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn follow_once(
    etcd: &Etcd,
    (from, to): (&str, &str),
    next: &mut u64,
    oracle: &Shared,
) -> Result<(), Error> {
    let mut history = pin!(etcd.watch(from, to, *next).await?);
    while let Some(events) = history.try_next().await? {
        let (now, mut oracle) = (Instant::now(), oracle.lock());
        for event in events {
            *next = event.revision + 1;
            oracle.see(&event, now);
        }
    }
    Ok(())
}
