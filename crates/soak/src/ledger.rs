//! What the oracle has found, and how often it has looked.

use std::time::Duration;

use serde::Serialize;

/// Something that must never happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wrong {
    /// What kind of thing.
    pub kind: Kind,
    /// To which Node.
    pub node: String,
    /// When, in the history of the cluster.
    pub revision: u64,
    /// The rest, for a person.
    pub what: String,
    /// What happened to it before, the latest last.
    pub story: Vec<String>,
}

/// Kinds of things that must never happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A label (or what else the rules keep), or a change of one, that was promised to survive did not.
    Lost,
    /// A label that was removed, or replaced by another value, is back.
    Resurrected,
    /// A daemon changed or removed a label that was there, or anything that the rules do not keep.
    Overwritten,
    /// A record does not say what its Node said at the moment that it names, or it was deleted, or went back in time.
    BadRecord,
    /// Not right in time, though nothing was in the way.
    NotInTime,
    /// A value that nobody ever set on this Node.
    Foreign,
    /// The start-up taint went before the labels were back, or stayed when they were.
    StartupTaint,
}

/// Cells, a label of a Node each, of which more than one value is right: by what is documented as open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Undetermined {
    /// The Node was deleted after a change that was not stored yet, and the API server forgot that before a storer could hear of it.
    pub unheard: u64,
    /// The Node came back at once, and was restored before its last change was stored.
    pub overtaken_at_once: u64,
    /// The same, but it took the storers longer than a moment: something was in their way.
    pub overtaken_late: u64,
    /// It was removed from a Node that was not restored yet.
    pub removed_unrestored: u64,
}

impl Undetermined {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.unheard + self.overtaken_at_once + self.overtaken_late + self.removed_unrestored
    }
}

/// Last changes are stored within this time, unless something is in the way.
const AT_ONCE: Duration = Duration::from_secs(2);

/// The oracle's own account.
#[derive(Debug, Default)]
pub struct Ledger {
    /// What is wrong.
    pub wrongs: Vec<Wrong>,
    /// How many of these were told as news.
    told: usize,
    /// What can't be judged.
    pub undetermined: Undetermined,
    /// How many versions of Nodes and of records were checked against the version before.
    pub versions: u64,
    /// How often all the labels of a Node were compared with what they must be.
    pub judged: u64,
    /// Nodes deleted at once after a change, where the change was surely stored all the same.
    pub last_words_kept: u64,
    /// Whether nothing keeps the daemons from their work.
    pub is_fair: bool,
    /// Whether times are taken: in calm weather only.
    pub is_timing: bool,
    /// From a change to the record that has it.
    pub stored_after: Vec<Duration>,
    /// From a Node's return to its labels.
    pub restored_after: Vec<Duration>,
}

impl Ledger {
    pub(crate) fn wrong(&mut self, kind: Kind, node: &str, revision: u64, what: String) {
        self.wrongs.push(Wrong { kind, node: node.to_owned(), revision, what, story: Vec::new() });
    }

    /// So many labels of a Node were decided by its next incarnation, this long after it was deleted.
    pub(crate) fn overtaken(&mut self, labels: u64, node: &str, revision: u64, after: Duration) {
        if labels == 0 {
        } else if after < AT_ONCE {
            self.undetermined.overtaken_at_once += labels;
        } else if self.is_fair {
            let what = format!("its last change was overtaken {after:?} later, and nothing was in the way");
            self.wrong(Kind::Lost, node, revision, what);
        } else {
            self.undetermined.overtaken_late += labels;
        }
    }

    /// What was found wrong since this was last asked, in a line each.
    pub(crate) fn news(&mut self) -> Vec<String> {
        let told = std::mem::replace(&mut self.told, self.wrongs.len());
        self.wrongs[told..]
            .iter()
            .map(|wrong| format!("{} at {}: {}: {}", wrong.node, wrong.revision, wrong.kind, wrong.what))
            .collect()
    }

    /// How many of a kind there were.
    pub fn count(&self, kind: Kind) -> usize {
        self.wrongs.iter().filter(|wrong| wrong.kind == kind).count()
    }
}
