//! The findings of the oracle, and the number of its checks.

use std::time::Duration;

use serde::Serialize;

/// A broken guarantee.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wrong {
    pub kind: Kind,
    pub node: String,
    /// The revision of etcd at which it was found.
    pub revision: u64,
    pub what: String,
    /// The earlier events of the Node, the latest last.
    pub story: Vec<String>,
}

/// The kinds of broken guarantees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// An item, or its last change, was lost although its survival is guaranteed.
    Lost,
    /// A removed label, or a replaced value, was restored.
    Resurrected,
    /// A daemon changed or removed an existing label, or something that the rules do not keep.
    Overwritten,
    /// A record differs from its Node at the version that it names, was deleted, or went back to an earlier version.
    BadRecord,
    /// The expected state was not reached in time, without faults.
    NotInTime,
    /// A value that no person set on this Node.
    Foreign,
    /// The start-up taint was removed before the restore, or stayed after it.
    StartupTaint,
}

/// The number of labels with more than one expected value, because the documentation leaves the outcome open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Undetermined {
    /// The Node was deleted before its last change was stored, and the API server dropped the deletion before a storer could receive it.
    pub unheard: u64,
    /// The Node was re-created at once, and restored before its last change was stored.
    pub overtaken_at_once: u64,
    /// The same, but later, because faults delayed the storers.
    pub overtaken_late: u64,
    /// The label was removed from a Node that was not restored yet.
    pub removed_unrestored: u64,
}

impl Undetermined {
    pub fn total(&self) -> u64 {
        self.unheard + self.overtaken_at_once + self.overtaken_late + self.removed_unrestored
    }
}

/// The time in which last changes are stored without faults.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Findings and counts.
#[derive(Debug, Default)]
pub struct Ledger {
    pub wrongs: Vec<Wrong>,
    /// The number of findings that [`news`](Self::news) has returned.
    told: usize,
    pub undetermined: Undetermined,
    /// The number of versions of Nodes and records that were checked against the version before.
    pub versions: u64,
    /// The number of comparisons of all labels of a Node with the expected ones.
    pub judged: u64,
    /// The number of Nodes that were deleted right after a change which was stored.
    pub final_labels_kept: u64,
    /// True while there are no faults.
    pub is_fair: bool,
    /// True while latencies are measured: only in a calm.
    pub is_timing: bool,
    /// The times from a change until it was stored.
    pub stored_after: Vec<Duration>,
    /// The times from the return of a Node until it was restored.
    pub restored_after: Vec<Duration>,
}

impl Ledger {
    pub(crate) fn wrong(&mut self, kind: Kind, node: &str, revision: u64, what: String) {
        self.wrongs.push(Wrong { kind, node: node.to_owned(), revision, what, story: Vec::new() });
    }

    /// Counts labels of a deleted Node that its next incarnation overtook, this long after the deletion.
    pub(crate) fn overtaken(&mut self, labels: u64, node: &str, revision: u64, after: Duration) {
        if labels == 0 {
        } else if after < AT_ONCE {
            self.undetermined.overtaken_at_once += labels;
        } else if self.is_fair {
            let what = format!("the last change was overtaken {after:?} later, without faults");
            self.wrong(Kind::Lost, node, revision, what);
        } else {
            self.undetermined.overtaken_late += labels;
        }
    }

    /// The findings since the last call, one a line.
    pub(crate) fn news(&mut self) -> Vec<String> {
        let told = std::mem::replace(&mut self.told, self.wrongs.len());
        self.wrongs[told..]
            .iter()
            .map(|wrong| format!("{} at {}: {}: {}", wrong.node, wrong.revision, wrong.kind, wrong.what))
            .collect()
    }

    /// The number of findings of a kind.
    pub fn count(&self, kind: Kind) -> usize {
        self.wrongs.iter().filter(|wrong| wrong.kind == kind).count()
    }
}
