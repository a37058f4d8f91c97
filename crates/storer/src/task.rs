//! What a decision hands to the writer.

use std::time::Instant;

use label_storage::store::{LastSeen, Reason};
use label_storage::summary::UidDigest;
use label_storage::{Node, ResourceVersion};
use label_storage_runtime::cache::Known;

/// The outcome of an attempt in a dry run.
pub(crate) const WOULD_WRITE: &str = "would-write";

/// What a dry run's words depend on: why, and the versions of the Node and of its record.
pub(crate) type News = (Reason, ResourceVersion, ResourceVersion);

/// What is to be done with one Node.
pub(crate) struct StoreTask {
    /// Whether its record may be deleted for its age.
    pub(crate) may_clean_up: bool,
    /// The Node's name, where a Node is known, or was.
    pub(crate) node: Option<String>,
    /// Whether several Nodes claim to be the one: then all that is certain is that it is not gone.
    pub(crate) is_contested: bool,
    /// Its last labels, if it was deleted and they are not stored.
    pub(crate) final_labels: Option<Node>,
    /// The incarnation that was decided upon.
    pub(crate) uid: Option<UidDigest>,
    /// Whether there is no record, as far as is known. A create finds out.
    pub(crate) is_unrecorded: bool,
    /// For how long this process has seen the record at this version.
    pub(crate) unchanged: Unchanged,
    /// The Node as it was last seen, if it is gone.
    pub(crate) last_seen: Option<LastSeen>,
    /// What an answer must not be older than.
    pub(crate) known: Known,
    pub(crate) news: Option<News>,
}

/// A version of a record, and since when this process has seen it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unchanged {
    pub(crate) version: ResourceVersion,
    pub(crate) since: Instant,
}
