//! What a decision hands to the writer.

use label_storage::summary::UidDigest;
use label_storage::{Node, ResourceVersion};
use label_storage_runtime::cache::{Entry, Known};
use tokio::time::Instant;

/// The outcome of a dry run's attempt.
pub(crate) const WOULD_RESTORE: &str = "would-restore";

/// The outcome where the rules forbid it.
pub(crate) const FENCED: &str = "fenced";

/// What a dry run's words depend on: the Node's incarnation and the record's version.
pub(crate) type News = (UidDigest, ResourceVersion);

/// What a refusal depends on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) uid: UidDigest,
    version: ResourceVersion,
    pub(crate) record_version: ResourceVersion,
}

impl Refused {
    pub(crate) fn of(entry: &Entry) -> Option<Self> {
        let node = entry.node()?;
        Some(Self { uid: node.uid, version: node.version, record_version: entry.record_version() })
    }
}

/// What is to be done with one Node.
pub(crate) struct RestoreTask {
    /// The Node's name.
    pub(crate) node: String,
    /// Which incarnation it is, where another Node claims to be the same: then nothing is restored.
    pub(crate) contested: Option<UidDigest>,
    /// Whether pods have been kept away from it for long enough.
    pub(crate) is_overdue: bool,
    /// The Node, and when it looked like this.
    pub(crate) view: Option<(Node, Instant)>,
    /// What an answer must not be older than.
    pub(crate) known: Known,
    pub(crate) news: Option<News>,
    /// What it would depend on if it were refused.
    pub(crate) refused: Option<Refused>,
}
