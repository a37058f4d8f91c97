//! Kubernetes Events: what `kubectl describe node` shows of what was done, or could not be done, for a Node.
//!
//! ```text
//!   a daemon ── restored, conflict, unreadable ──► inbox (bounded) ──► clerk ─► book: an Event of its own, one more of the
//!                                                    │ full              ▲      same, or one of many?
//!                                                    └─► only counted ───┘      writer: the calls
//! ```
//!
//! They are a courtesy. Nothing waits for them, and none is tried again: an API server that takes no Events delays no restore.
//! And they are few: beyond a burst, Nodes are counted, and one Event for all of them says how many.

mod book;
mod clerk;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube::Client;
use label_storage::name::record_name;
use label_storage::restore::Withheld;
use label_storage::summary::UidDigest;
use label_storage::{Labels, Node};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::clerk::Clerk;
use self::writer::Writer;
use crate::metrics::Metrics;

/// So many wait to be written; of more than that, only their number is kept.
const INBOX: usize = 256;

/// For how long the process's end waits for what is still to be written.
const GOODBYE: Duration = Duration::from_secs(1);

/// The most bytes that the API server takes for a note.
const MAX_NOTE: usize = 1024;

/// What an Event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Reason {
    LabelsRestored,
    RestoreConflict,
    RecordUnreadable,
    IdentityContested,
    LabelsWithheld,
    OtherMachine,
    StartupTaintLifted,
}

/// All of them.
const REASONS: [Reason; 7] = [
    Reason::LabelsRestored,
    Reason::RestoreConflict,
    Reason::RecordUnreadable,
    Reason::IdentityContested,
    Reason::LabelsWithheld,
    Reason::OtherMachine,
    Reason::StartupTaintLifted,
];

impl Reason {
    /// Part of what users build upon, so it stays.
    const fn as_str(self) -> &'static str {
        match self {
            Self::LabelsRestored => "LabelsRestored",
            Self::RestoreConflict => "RestoreConflict",
            Self::RecordUnreadable => "RecordUnreadable",
            Self::IdentityContested => "IdentityContested",
            Self::LabelsWithheld => "LabelsWithheld",
            Self::OtherMachine => "OtherMachine",
            Self::StartupTaintLifted => "StartupTaintLifted",
        }
    }

    /// What was done when it came up.
    const fn action(self) -> &'static str {
        match self {
            Self::LabelsRestored | Self::RestoreConflict | Self::LabelsWithheld | Self::OtherMachine => {
                "RestoreLabels"
            }
            Self::StartupTaintLifted => "LiftStartupTaint",
            Self::RecordUnreadable => "ReadRecord",
            Self::IdentityContested => "FindRecord",
        }
    }

    const fn is_warning(self) -> bool {
        !matches!(self, Self::LabelsRestored)
    }

    /// What is said of many Nodes at once.
    fn of_many(self, nodes: u64, within: Duration) -> String {
        let what = match self {
            Self::LabelsRestored => "further nodes were given their labels back",
            Self::RestoreConflict => "further nodes kept values of their own, other than those stored",
            Self::RecordUnreadable => "further times a record could not be read, and was left alone",
            Self::IdentityContested => "further times nodes had one identity, and were left alone",
            Self::LabelsWithheld => "further nodes were not given all that their records have",
            Self::OtherMachine => {
                "further nodes are other machines than those whose labels are stored, and were not restored"
            }
            Self::StartupTaintLifted => "further nodes may have pods, though they were not restored",
        };
        format!("{nodes} {what} within {} s: the log has each of them", within.as_secs().max(1))
    }
}

/// What is to be told about one Node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct News {
    reason: Reason,
    node: String,
    uid: String,
    note: String,
}

/// Tells the world. Cheap to clone; the default tells nobody.
#[derive(Debug, Clone, Default)]
pub struct Events(Option<Arc<Inbox>>);

#[derive(Debug)]
struct Inbox {
    news: mpsc::Sender<News>,
    /// How many did not fit, by [`Reason`].
    uncollected: [AtomicU64; REASONS.len()],
    metrics: Arc<Metrics>,
}

impl Inbox {
    /// How many more did not fit.
    fn collect(&self, reason: Reason) -> u64 {
        self.uncollected[reason as usize].swap(0, Ordering::Relaxed)
    }
}

/// Who writes them, in a task of its own.
pub(crate) struct Office {
    closing: CancellationToken,
    clerk: JoinHandle<()>,
}

impl Events {
    /// Begins to write Events on behalf of this daemon and this replica of it; what concerns many goes into this namespace.
    pub(crate) fn open(
        client: Client,
        daemon: &str,
        instance: &str,
        namespace: &str,
        metrics: &Arc<Metrics>,
    ) -> (Self, Office) {
        let (news, received) = mpsc::channel(INBOX);
        let uncollected = std::array::from_fn(|_| AtomicU64::new(0));
        let inbox = Arc::new(Inbox { news, uncollected, metrics: Arc::clone(metrics) });
        let (closing, writer) = (CancellationToken::new(), Writer::new(client, daemon, instance, namespace));
        let clerk = Clerk::new(writer, Arc::clone(&inbox)).run(received, closing.clone());
        (Self(Some(inbox)), Office { closing, clerk: tokio::spawn(clerk) })
    }

    /// A Node was given these labels.
    pub fn restored(&self, node: &Node, labels: &Labels) {
        if !labels.is_empty() {
            self.tell(Reason::LabelsRestored, &node.name, node.uid.as_str(), || {
                with_keys("Given back from its record", "", labels.keys())
            });
        }
    }

    /// A Node that was restored has its own values of these labels.
    pub fn conflict<'a>(&self, node: &Node, keys: impl Iterator<Item = &'a String>) {
        let keys: Vec<_> = keys.collect();
        if !keys.is_empty() {
            self.tell(Reason::RestoreConflict, &node.name, node.uid.as_str(), || {
                let advice = ". Set what is wrong on the node: what it has is what is stored from now on";
                let words = "The node has other values than its record, and keeps them";
                with_keys(words, advice, keys.iter().copied())
            });
        }
    }

    /// A Node that was restored was not given all.
    pub fn withheld(&self, node: &Node, withheld: &[Withheld]) {
        if !withheld.is_empty() {
            self.tell(Reason::LabelsWithheld, &node.name, node.uid.as_str(), || {
                let all =
                    withheld.iter().map(|withheld| format!("{} ({})", withheld.name, withheld.why.as_str()));
                let advice = ". They stay in its record. If the node is to have them, set them on it";
                with_keys(
                    "Not given back, though its record has them",
                    advice,
                    all.collect::<Vec<_>>().iter(),
                )
            });
        }
    }

    /// A Node is another machine than the one whose labels are stored, and is not restored.
    pub fn other_machine(&self, node: &Node) {
        self.tell(Reason::OtherMachine, &node.name, node.uid.as_str(), || {
            format!(
                "Neither restored nor stored: its record is of another machine. If that one does not return, delete the record: \
                 kubectl delete configmap {}",
                record_name(node.filed_under())
            )
        });
    }

    /// Pods may come to a Node, though it was not restored.
    pub fn lifted(&self, node: &Node, why: &str) {
        self.tell(Reason::StartupTaintLifted, &node.name, node.uid.as_str(), || {
            format!("Pods may come, though its labels are not back ({why}): they were kept away for as long as the rules allow")
        });
    }

    /// The record of a Node can't be read, for this reason.
    pub fn unreadable(&self, node: &str, uid: UidDigest, what: &str) {
        self.tell(Reason::RecordUnreadable, node, &uid.to_uuid(), || {
            let what = format!("Neither stored nor restored while its record is like this: {what}");
            what[..what.floor_char_boundary(MAX_NOTE)].to_owned()
        });
    }

    /// What the record of a Node is filed under is also that of others: these claim it, itself among them.
    pub(crate) fn contested(&self, node: &str, uid: UidDigest, filed_under: &str, claimants: &[&str]) {
        // A value of an annotation may be longer than any note.
        const MOST: usize = 256;
        self.tell(Reason::IdentityContested, node, &uid.to_uuid(), || {
            let identity = &filed_under[..filed_under.floor_char_boundary(MOST)];
            let words = format!(
                "Neither stored nor restored while others have the same identity, {identity}. These have it, too"
            );
            let others: Vec<_> = claimants.iter().filter(|claimant| **claimant != node).collect();
            with_keys(&words, "", others.iter())
        });
    }

    fn tell(&self, reason: Reason, node: &str, uid: &str, note: impl FnOnce() -> String) {
        let Some(inbox) = &self.0 else { return };
        match inbox.news.try_reserve() {
            Ok(place) => {
                let (node, uid) = (node.to_owned(), uid.to_owned());
                place.send(News { reason, node, uid, note: note() });
            }
            Err(_) => _ = inbox.uncollected[reason as usize].fetch_add(1, Ordering::Relaxed),
        }
    }
}

impl Office {
    /// Writes what was told and is not written yet, if that goes quickly.
    pub(crate) async fn close(self) {
        self.closing.cancel();
        let _ = tokio::time::timeout(GOODBYE, self.clerk).await;
    }
}

/// A sentence with as many of these keys as there is room for.
fn with_keys(words: &str, end: &str, keys: impl ExactSizeIterator<Item: AsRef<str>>) -> String {
    const MORE: usize = ", and 4294967295 more".len();
    let (mut note, all) = (format!("{words}: "), keys.len());
    for (said, key) in keys.enumerate() {
        let key = key.as_ref();
        let separator = if said == 0 { "" } else { ", " };
        if note.len() + separator.len() + key.len() + end.len() + MORE > MAX_NOTE {
            note += &format!("{separator}and {} more", all - said);
            break;
        }
        note += separator;
        note += key;
    }
    note + end
}

/// What would be told, for tests of those who tell.
#[cfg(test)]
pub(crate) struct Overheard(mpsc::Receiver<News>);

#[cfg(test)]
impl Overheard {
    /// Events that nobody writes, and whoever hears what they would be.
    pub(crate) fn events() -> (Events, Self) {
        let (news, received) = mpsc::channel(INBOX);
        let uncollected = std::array::from_fn(|_| AtomicU64::new(0));
        let inbox = Inbox { news, uncollected, metrics: Arc::default() };
        (Events(Some(Arc::new(inbox))), Self(received))
    }

    /// The reason, the Node, its uid and the note of each, since this was last asked.
    pub(crate) fn take(&mut self) -> Vec<(&'static str, String, String, String)> {
        let news = std::iter::from_fn(|| self.0.try_recv().ok());
        news.map(|news| (news.reason.as_str(), news.node, news.uid, news.note)).collect()
    }
}

#[cfg(test)]
mod tests;
