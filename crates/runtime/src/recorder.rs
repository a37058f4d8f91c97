//! Kubernetes Events about Nodes, shown by `kubectl describe node`.
//!
//! Events are best effort: recording one never blocks, a failed one is not retried, and those beyond the rate limit are dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use label_storage::name::record_name;
use label_storage::restore::Withheld;
use label_storage::summary::UidDigest;
use label_storage::{Labels, Node};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::call::{self, Error};
use crate::metrics::Metrics;

const QUEUE: usize = 256;
const FLUSH: Duration = Duration::from_secs(1);
const LOG_INTERVAL: Duration = Duration::from_secs(600);

/// The most Events written at once, and the time until one more may follow.
const BURST: u32 = 50;
const REFILL: Duration = Duration::from_secs(1);

/// The API server's limits for a note and for the name of an instance, in bytes.
const MAX_NOTE: usize = 1024;
const MAX_INSTANCE: usize = 128;
/// The most of the API server's message that is repeated.
const MAX_REFUSAL: usize = 256;

/// The most notes whose series are remembered.
const MAX_RECORDERS: usize = 1024;

/// The type, reason and action of an Event. Users and tools match the reasons, so they do not change.
type EventKind = (EventType, &'static str, &'static str);

const LABELS_RESTORED: EventKind = (EventType::Normal, "LabelsRestored", "RestoreLabels");
const RESTORE_CONFLICT: EventKind = (EventType::Warning, "RestoreConflict", "RestoreLabels");
const RECORD_UNREADABLE: EventKind = (EventType::Warning, "RecordUnreadable", "ReadRecord");
const IDENTITY_CONTESTED: EventKind = (EventType::Warning, "IdentityContested", "FindRecord");
const LABELS_WITHHELD: EventKind = (EventType::Warning, "LabelsWithheld", "RestoreLabels");
const OTHER_MACHINE: EventKind = (EventType::Warning, "OtherMachine", "RestoreLabels");
const STARTUP_TAINT_LIFTED: EventKind = (EventType::Warning, "StartupTaintLifted", "LiftStartupTaint");

#[derive(Debug)]
struct Queued {
    kind: EventKind,
    node: ObjectReference,
    note: String,
}

/// Records Events. The default records none.
#[derive(Debug, Clone, Default)]
pub struct EventRecorder {
    queue: Option<mpsc::WeakSender<Queued>>,
    metrics: Arc<Metrics>,
}

/// The task that writes the recorded Events. It ends after the only strong sender of its queue.
pub(crate) struct Publishing {
    queue: mpsc::Sender<Queued>,
    task: JoinHandle<()>,
}

impl Publishing {
    /// Writes the queued Events, for up to [`FLUSH`].
    pub(crate) async fn close(self) {
        drop(self.queue);
        let _ = tokio::time::timeout(FLUSH, self.task).await;
    }
}

impl EventRecorder {
    pub(crate) fn start(
        client: Client,
        daemon: &str,
        instance: &str,
        metrics: &Arc<Metrics>,
    ) -> (Self, Publishing) {
        let (sender, queue) = mpsc::channel(QUEUE);
        let instance = instance[..instance.floor_char_boundary(MAX_INSTANCE)].to_owned();
        let publisher = Publisher {
            client,
            reporter: Reporter { controller: format!("label-storage/{daemon}"), instance: Some(instance) },
            recorders: HashMap::new(),
            metrics: Arc::clone(metrics),
            has_logged_refusal: false,
            logged_at: None,
        };
        let task = tokio::spawn(publisher.run(queue));
        let queue = Some(sender.downgrade());
        (Self { queue, metrics: Arc::clone(metrics) }, Publishing { queue: sender, task })
    }

    pub fn restored(&self, node: &Node, labels: &Labels) {
        let note = with_keys("Restored from its record", labels.keys(), "");
        self.record(LABELS_RESTORED, &node.name, node.uid.as_str(), note);
    }

    /// Reports the keys of which the Node kept its own values.
    pub fn conflict<'a>(&self, node: &Node, keys: impl Iterator<Item = &'a String>) {
        let words = "The values on the node differ from its record, and the node keeps its own";
        let advice = ". Its own values are stored from now on. To use other values, set them on the node";
        self.record(RESTORE_CONFLICT, &node.name, node.uid.as_str(), with_keys(words, keys, advice));
    }

    /// Reports the items of the record that the Node did not get.
    pub fn withheld(&self, node: &Node, withheld: &[Withheld]) {
        let keys = withheld.iter().map(|Withheld { name, why }| match node.extras.refused.get(name) {
            Some(said) => {
                format!("{name} ({}: {})", why.as_str(), &said[..said.floor_char_boundary(MAX_REFUSAL)])
            }
            None => format!("{name} ({})", why.as_str()),
        });
        let advice = ". They stay in the record. To apply them, set them on the node";
        let note = with_keys("In the record, but not restored", keys, advice);
        self.record(LABELS_WITHHELD, &node.name, node.uid.as_str(), note);
    }

    pub fn other_machine(&self, node: &Node) {
        let note = format!(
            "Not restored and not stored: the record belongs to another machine. If that machine is gone for good, delete the \
             record: kubectl delete configmap {}",
            record_name(node.filed_under())
        );
        self.record(OTHER_MACHINE, &node.name, node.uid.as_str(), note);
    }

    /// Reports that the start-up taint was removed although the Node was not restored.
    pub fn lifted(&self, node: &Node, why: &str) {
        let note = format!(
            "The start-up taint was removed before the labels were restored ({why}): the time limit in the rules is over"
        );
        self.record(STARTUP_TAINT_LIFTED, &node.name, node.uid.as_str(), note);
    }

    pub fn unreadable(&self, node: &str, uid: UidDigest, what: &str) {
        let mut note = format!("Neither stored nor restored until the record is fixed: {what}");
        note.truncate(note.floor_char_boundary(MAX_NOTE));
        self.record(RECORD_UNREADABLE, node, &uid.to_uuid(), note);
    }

    /// Reports that other Nodes claim the same record.
    pub(crate) fn contested(&self, node: &str, uid: UidDigest, filed_under: &str, claimants: &[&str]) {
        // An annotation's value may be longer than a note.
        const MAX_IDENTITY: usize = 256;
        let identity = &filed_under[..filed_under.floor_char_boundary(MAX_IDENTITY)];
        let note = if claimants.len() > 1 {
            let words = format!(
                "Neither stored nor restored, because other nodes have the same identity, {identity}"
            );
            with_keys(&words, claimants.iter().filter(|claimant| **claimant != node), "")
        } else {
            format!(
                "Neither stored nor restored: the node was stored under another identity before, and the record of {identity} \
                 belongs to another node. If that node is gone for good, delete its record: kubectl delete configmap {}",
                record_name(filed_under)
            )
        };
        self.record(IDENTITY_CONTESTED, node, &uid.to_uuid(), note);
    }

    fn record(&self, kind: EventKind, node: &str, uid: &str, note: String) {
        let queue = self.queue.as_ref().and_then(mpsc::WeakSender::upgrade);
        let Some(queue) = queue.filter(|_| !note.is_empty()) else { return };
        let node = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        if queue.try_send(Queued { kind, node, note }).is_err() {
            count(&self.metrics, kind, "dropped");
        }
    }
}

struct Publisher {
    client: Client,
    reporter: Reporter,
    /// By note: in a series, a `Recorder` keeps the first note even if the later ones differ.
    recorders: HashMap<String, Recorder>,
    metrics: Arc<Metrics>,
    /// True if a refusal was logged and no Event has been written since.
    has_logged_refusal: bool,
    logged_at: Option<Instant>,
}

impl Publisher {
    async fn run(mut self, mut queue: mpsc::Receiver<Queued>) {
        // The time at which the whole burst is allowed again.
        let mut full_at = Instant::now();
        while let Some(queued) = queue.recv().await {
            let (kind, now) = (queued.kind, Instant::now());
            let is_allowed = full_at <= now + REFILL * (BURST - 1);
            if is_allowed {
                full_at = full_at.max(now) + REFILL;
            }
            let outcome = if !is_allowed {
                "dropped"
            } else if let Err(error) = self.write(queued).await {
                self.log(&error);
                "failed"
            } else {
                self.has_logged_refusal = false;
                "written"
            };
            count(&self.metrics, kind, outcome);
        }
    }

    async fn write(&mut self, Queued { kind, node, note }: Queued) -> Result<(), Error> {
        if self.recorders.len() >= MAX_RECORDERS {
            self.recorders.clear();
        }
        let new = || Recorder::new(self.client.clone(), self.reporter.clone());
        let recorder = self.recorders.entry(note.clone()).or_insert_with(new);
        let (type_, reason, action) = (kind.0, kind.1.to_owned(), kind.2.to_owned());
        let event = Event { type_, reason, note: Some(note.clone()), action, secondary: None };
        let written = call::one("write event", recorder.publish(&event, &node)).await;
        if written.as_ref().is_err_and(|error| error.code == Some(404)) {
            // The Event of the series was deleted. The next one is a new Event.
            self.recorders.remove(&note);
        }
        written
    }

    fn log(&mut self, error: &Error) {
        if matches!(error.code, Some(401 | 403)) {
            if !std::mem::replace(&mut self.has_logged_refusal, true) {
                tracing::warn!(
                    %error,
                    "Events are refused: allow this account to create and patch events.k8s.io events in the namespace default, or \
                     set --events=false"
                );
            }
        } else if self.logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            self.logged_at = Some(Instant::now());
            tracing::warn!(%error, "an Event was not written; nothing else is affected");
        }
    }
}

fn count(metrics: &Metrics, (_, reason, _): EventKind, outcome: &'static str) {
    metrics.events.get_or_create(&[("reason", reason), ("outcome", outcome)]).inc();
}

/// A sentence with as many of the keys as fit into a note. Empty if there are no keys.
fn with_keys(words: &str, keys: impl Iterator<Item: AsRef<str>>, end: &str) -> String {
    const MORE: usize = ", and 4294967295 more".len();
    let mut keys = keys.peekable();
    if keys.peek().is_none() {
        return String::new();
    }
    let (mut note, mut separator) = (format!("{words}: "), "");
    while let Some(key) = keys.next() {
        let key = key.as_ref();
        if note.len() + separator.len() + key.len() + end.len() + MORE > MAX_NOTE {
            note += &format!("{separator}and {} more", 1 + keys.count());
            break;
        }
        note += separator;
        note += key;
        separator = ", ";
    }
    note + end
}

#[cfg(test)]
pub(crate) mod tests;
