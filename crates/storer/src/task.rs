//! The input of an attempt.

use std::time::Instant;

use label_storage::store::{LastSeen, Reason};
use label_storage::summary::UidDigest;
use label_storage::{Node, ResourceVersion};
use label_storage_runtime::cache::Known;

/// The outcome of an attempt in a dry run.
pub(crate) const WOULD_WRITE: &str = "would-write";

/// A dry run logs a Node again if one of these changes: the reason, and the versions of the Node and of its record.
pub(crate) type News = (Reason, ResourceVersion, ResourceVersion);

pub(crate) struct StoreTask {
    /// True if the record may be deleted because the retention is over.
    pub(crate) may_clean_up: bool,
    /// The Node's name, if a Node is or was known.
    pub(crate) node: Option<String>,
    /// True if several Nodes claim the key: then it is only certain that one exists.
    pub(crate) is_contested: bool,
    /// The final labels of a deletion that is not stored yet.
    pub(crate) final_labels: Option<Node>,
    /// The incarnation that was decided upon.
    pub(crate) uid: Option<UidDigest>,
    /// True if the cache has no record. A create tells whether there is one.
    pub(crate) is_unrecorded: bool,
    /// For how long this process has seen the record at this version.
    pub(crate) unchanged: Unchanged,
    /// The Node as it was last seen, if it is gone.
    pub(crate) last_seen: Option<LastSeen>,
    /// The versions in the cache: an older answer is stale.
    pub(crate) known: Known,
    pub(crate) news: Option<News>,
}

/// A version of a record, and since when this process has seen it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unchanged {
    pub(crate) version: ResourceVersion,
    pub(crate) since: Instant,
}
