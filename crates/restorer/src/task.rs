//! The input of an attempt.

use label_storage::summary::UidDigest;
use label_storage::{Node, ResourceVersion};
use label_storage_runtime::cache::{Entry, Known};
use tokio::time::Instant;

/// The outcome in a dry run.
pub(crate) const WOULD_RESTORE: &str = "would-restore";
/// The outcome if the Node is another machine.
pub(crate) const FENCED: &str = "fenced";

/// A Node that is another machine is refused again only if one of these changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) uid: UidDigest,
    version: ResourceVersion,
    pub(crate) record_version: ResourceVersion,
}

impl Refused {
    pub(crate) fn of(entry: &Entry<'_>) -> Option<Self> {
        let node = entry.node()?;
        Some(Self { uid: node.uid, version: node.version, record_version: entry.record_version() })
    }
}

pub(crate) struct RestoreTask {
    pub(crate) node: String,
    /// The incarnation, if several Nodes claim the key: then only the start-up taint is removed.
    pub(crate) contested: Option<UidDigest>,
    /// True if the start-up taint has to be removed now.
    pub(crate) is_overdue: bool,
    /// The Node as it was seen, and when.
    pub(crate) view: Option<(Node, Instant)>,
    /// The versions in the cache: an older answer is stale.
    pub(crate) known: Known,
    /// Remembered if the Node is another machine.
    pub(crate) refused: Option<Refused>,
}
