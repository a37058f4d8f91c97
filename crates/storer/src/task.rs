//! The input of an attempt.

use std::time::Instant;

use label_storage::store::LastSeen;
use label_storage::summary::UidDigest;
use label_storage::{Node, ResourceVersion};
use label_storage_runtime::cache::Known;

/// The outcome in a dry run.
pub(crate) const WOULD_WRITE: &str = "would-write";

pub(crate) struct StoreTask {
    pub(crate) node: String,
    /// True if several Nodes have the key: then it is only certain that one exists.
    pub(crate) is_contested: bool,
    /// True if the record may be deleted because the retention is over.
    pub(crate) may_clean_up: bool,
    /// The final labels of a deletion that is not stored yet.
    pub(crate) final_labels: Option<Node>,
    /// The incarnation that was decided upon.
    pub(crate) uid: Option<UidDigest>,
    /// True if the cache has no record.
    pub(crate) is_unrecorded: bool,
    /// The version of the record in the cache, and since when it has had it.
    pub(crate) record_version: ResourceVersion,
    pub(crate) record_since: Instant,
    /// The Node as it was last seen, if it is gone.
    pub(crate) last_seen: Option<LastSeen>,
    /// The versions in the cache: an older answer is stale.
    pub(crate) known: Known,
}
