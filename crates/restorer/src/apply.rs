//! The one place that writes Nodes.

mod refusal;

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use label_storage::restore::{self, Plan, Reason, plan_retry};
use label_storage::rules::Winner;
use label_storage::store::{PLAN_LIFETIME, Stored};
use label_storage::summary::UidDigest;
use label_storage::{Labels, Node, RecordKey, ResourceVersion, Rules, plan_restore};
use label_storage_runtime::ShardContext;
use label_storage_runtime::cache::{Entry, Reading};
use label_storage_runtime::call::{self, Error, FailureKind};
use label_storage_runtime::fresh::FreshReads;
use label_storage_runtime::patch::{merge_patch, operations};
use label_storage_runtime::reconciler::{Done, Worker};
use label_storage_runtime::records::Found;
use tokio::time::Instant;

use crate::metrics::{LIFTS, RestorerMetrics};

const FIELD_MANAGER: &str = "label-storage-restorer";
/// The outcome if the Node is another machine, which by the rules gets nothing.
pub(crate) const OTHER_MACHINE: &str = "other-machine";
/// After this many failures in a row a Node probably changes all the time, and a patch of one version always comes too late.
const CHANGING: u32 = 3;
/// The API server's message for a failed test of a JSON patch. Admission and validation have other messages.
const FAILED_TEST: &str = "rejected our request due to an error in our request";

/// A Node and its record as they were decided upon. A Node that is another machine is decided upon again only if one of these changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) uid: UidDigest,
    version: ResourceVersion,
    pub(crate) record_version: ResourceVersion,
}

impl Decided {
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
    /// The Node that was decided upon. Remembered if it is another machine.
    pub(crate) decided: Option<Decided>,
    /// Final labels that are not stored yet, the oldest first, as the rules see them.
    pub(crate) final_labels: Vec<Node>,
}

/// Reads one Node's record, decides, and patches the Node.
pub(crate) struct Apply {
    pub(crate) replica: ShardContext,
    pub(crate) metrics: Arc<RestorerMetrics>,
}

impl Worker<RestoreTask> for Apply {
    /// The Node is seen first, in an event or by name, and its record is read after that: an older record may have a label that was
    /// removed before this incarnation was created.
    async fn attempt(
        &self,
        key: &RecordKey,
        task: &RestoreTask,
        reads: &FreshReads,
        tries: u32,
    ) -> Result<Done, Error> {
        if let Some(uid) = task.contested {
            return self.lift_contested(&task.node, uid, tries).await;
        }
        // An event is used while it is young, unless a write was refused because of it.
        let mut view = task.view.clone().filter(|(_, seen_at)| tries == 0 && is_young(*seen_at));
        let (mut refused, mut reading) = (Labels::new(), tries);
        loop {
            let (mut node, seen_at) = match view.take() {
                Some(view) => view,
                None => match self.read(key, task, reads, reading).await? {
                    Ok(read) => read,
                    Err(done) => return Ok(done),
                },
            };
            node.extras.refused = refused;
            refused = match self.restore(key, &node, seen_at, task, reads, tries).await? {
                Step::Done(done) => return Ok(done),
                Step::Refused(items) => {
                    reading = reading.max(1);
                    items
                }
                // An event or a list may have the metadata alone. A second try reads by name.
                Step::SeenInPart if reading == 0 => {
                    reading = 1;
                    node.extras.refused
                }
                Step::SeenInPart => {
                    let message = "the API server sent only a part of the node";
                    return Err(Error::refused("get node", message));
                }
            };
        }
    }
}

/// True if a Node that was seen at this time need not be read again.
pub(crate) fn is_young(seen_at: Instant) -> bool {
    seen_at.elapsed() < PLAN_LIFETIME / 2
}

/// The end of a try to restore a Node that was just seen.
enum Step {
    Done(Done),
    /// Only a part of the Node was seen, and that is not enough.
    SeenInPart,
    /// The cluster refuses these items. The others can be restored.
    Refused(Labels),
}

impl Apply {
    /// Reads a Node. Returns the end of the attempt if it is not the one that was decided upon.
    async fn read(
        &self,
        key: &RecordKey,
        task: &RestoreTask,
        reads: &FreshReads,
        tries: u32,
    ) -> Result<Result<(Node, Instant), Done>, Error> {
        let (node, read_at) = reads.guarded_node(&self.replica, &task.node, tries).await?;
        // Its identity may have changed: then it has another record.
        let Some(node) = node.filter(|node| node.filed_under() == &**key) else {
            tracing::debug!(node = task.node, "the node was deleted before it could be restored");
            return Ok(Err(Done { outcome: None, node: Reading::Absent, record: Reading::None }));
        };
        if task.decided.is_none_or(|decided| decided.uid != node.uid.digest()) {
            // Another incarnation than was decided upon: the final labels of that one may just be on their way.
            tracing::debug!(node = task.node, "the node was re-created meanwhile: deciding again");
            let node = Reading::Present(node.summary());
            return Ok(Err(Done { outcome: None, node, record: Reading::None }));
        }
        Ok(Ok((node, read_at)))
    }

    async fn restore(
        &self,
        key: &RecordKey,
        node: &Node,
        seen_at: Instant,
        task: &RestoreTask,
        reads: &FreshReads,
        tries: u32,
    ) -> Result<Step, Error> {
        let (rules, events) = (&self.replica.rules, &self.replica.events);
        let has_to_lift = task.is_overdue && node.has_startup_taint();
        let lift = async |error: Error, why| {
            tracing::warn!(node = node.name, %error, "the node can't be restored, and the time limit of the start-up taint is over");
            self.lift(node, why, tries).await.map(Step::Done)
        };
        let found = match reads.record(&self.replica, key, seen_at, tries).await {
            Err(error) if has_to_lift && error.kind != FailureKind::Moved => {
                return lift(error, "no-answer").await;
            }
            found => found?,
        };
        let stored = Found::stored(found.as_ref());
        let stored = stored.map(|record| restore::anticipate(record, &task.final_labels, rules));
        let plan = plan_restore(node, stored.as_ref(), rules, task.is_overdue);
        let retry = match (plan.reason, &stored) {
            (Reason::SameIncarnation, Stored::Record(record)) => plan_retry(node, record, rules),
            _ => None,
        };
        let Plan { patch, reason } = retry.unwrap_or(plan);
        if reason == Reason::SeenInPart {
            return Ok(Step::SeenInPart);
        }
        if seen_at.elapsed() > PLAN_LIFETIME {
            return Err(Error::expired("patch node"));
        }
        match reason {
            Reason::NoRoom if patch.is_none() => {
                let advice = "its annotations leave no room for label-storage/restored: remove some of them";
                return Err(Error::refused("patch node", advice));
            }
            Reason::RecordUnreadable => {
                let complaint = found.as_ref().and_then(Found::complaint).unwrap_or_default();
                events.unreadable(&node.name, node.uid.digest(), &complaint);
            }
            Reason::OtherMachine => {
                tracing::warn!(
                    node = node.name,
                    "not restored: the node is on another machine than that of its record"
                );
                events.other_machine(node);
            }
            _ => (),
        }
        // The whole record is restored. The cache has it as the rules see it, to compare it with final labels.
        let record = Found::reading(found.map(|found| found.seen_through(rules, None)).as_ref());
        let is_passing = |error: &Error| matches!(error.kind, FailureKind::Moved | FailureKind::Busy(_));
        let may_lift = has_to_lift && patch.as_ref().is_some_and(|patch| patch.marker.is_some());
        let done = match self.carry_out(node, patch.as_ref(), reason.as_str(), tries).await {
            Ok(done) => done,
            Err(error) => match self.find_refused(node, patch.as_ref(), error).await {
                Ok(items) => return Ok(Step::Refused(items)),
                // It may be refused for ever.
                Err(error) if may_lift && !is_passing(&error) => return lift(error, "refused").await,
                Err(error) => return Err(error),
            },
        };
        let outcome = if reason == Reason::OtherMachine { Some(OTHER_MACHINE) } else { done.outcome };
        Ok(Step::Done(Done { outcome, record, ..done }))
    }

    /// Removes the start-up taint of a Node that is not the only one to claim its record.
    async fn lift_contested(&self, name: &str, uid: UidDigest, tries: u32) -> Result<Done, Error> {
        let node = self.replica.node_source.get_node(name).await?.filter(|node| node.uid.digest() == uid);
        let outcome = match node.filter(Node::has_startup_taint) {
            Some(node) => self.lift(&node, "contested", tries).await?.outcome,
            None => Some("lifted"),
        };
        Ok(Done { outcome, node: Reading::None, record: Reading::None })
    }

    async fn lift(&self, node: &Node, why: &'static str, tries: u32) -> Result<Done, Error> {
        let plan = plan_restore(node, Stored::Unreadable, &self.replica.rules, true);
        self.carry_out(node, plan.patch.as_ref(), why, tries).await
    }

    /// Patches a Node, or logs the patch in a dry run.
    async fn carry_out(
        &self,
        node: &Node,
        patch: Option<&restore::Patch>,
        reason: &'static str,
        tries: u32,
    ) -> Result<Done, Error> {
        let (outcome, summary) = match patch {
            None => {
                tracing::debug!(node = node.name, reason, "nothing to restore after a fresh read");
                (None, node.summary())
            }
            Some(patch) if self.replica.args.dry_run => {
                log_patch(node, patch, reason);
                (Some("would-restore"), node.summary())
            }
            Some(patch) => {
                let patched = self.send(node, patch, tries).await?;
                self.report(node, patch, reason);
                (Some(if patch.marker.is_some() { "restored" } else { "lifted" }), patched.summary())
            }
        };
        Ok(Done { outcome, node: Reading::Present(summary), record: Reading::None })
    }

    /// Sends a patch, and returns the Node as it is after that.
    async fn send(&self, node: &Node, patch: &restore::Patch, tries: u32) -> Result<Node, Error> {
        let is_tested = tries >= CHANGING && may_be_tested(node, &self.replica.rules);
        let body = if !is_tested {
            // Has the effect of a merge patch, for less of the server's time: it need not make JSON of the whole Node first.
            Patch::Strategic(merge_patch(patch))
        } else {
            // Each try guesses the other way.
            let operations = serde_json::from_value(operations(node, patch, tries % 2 == 1));
            Patch::Json(operations.map_err(|error| Error::refused("patch node", error))?)
        };
        let params = params();
        let patched = self.replica.nodes.patch_metadata(&node.name, &params, &body);
        let patched = call::one("patch node", patched).await.map_err(|error| {
            let is_failed_test = is_tested && error.code == Some(422) && error.message.contains(FAILED_TEST);
            if is_failed_test { Error { kind: FailureKind::Moved, ..error } } else { error }
        })?;
        if let (Some(created), Some(_)) = (&patched.metadata.creation_timestamp, &patch.marker) {
            let age = jiff::Timestamp::now().duration_since(created.0).as_secs_f64();
            // Clocks differ, and the API server's has no fractions of a second.
            self.metrics.latency.0.observe(age.max(0.0));
        }
        let version = patched.metadata.resource_version.and_then(|version| version.parse().ok());
        let mut node = node.clone();
        node.version = version.unwrap_or(node.version);
        node.labels = patched.metadata.labels.unwrap_or_default();
        node.marker = patch.marker.clone().or(node.marker);
        if let Some(taints) = &patch.taints {
            node.extras.taints.clone_from(taints);
        }
        Ok(node)
    }

    /// Reports a patch in the log, in Events and in metrics.
    fn report(&self, node: &Node, patch: &restore::Patch, reason: &'static str) {
        let (events, metrics) = (&self.replica.events, &self.metrics);
        if patch.lifts_startup_taint {
            let why = match &patch.marker {
                Some(_) => "restored",
                None if LIFTS.contains(&reason) => reason,
                None => "nothing-to-restore",
            };
            metrics.lifts.get_or_create(&[("reason", why)]).inc();
            if !matches!(why, "restored" | "nothing-to-restore") {
                tracing::warn!(
                    node = node.name,
                    why,
                    "start-up taint removed, although the node was not restored"
                );
                events.lifted(node, why);
            }
        }
        if patch.marker.is_none() {
            return tracing::info!(node = node.name, reason, "start-up taint removed");
        }
        let (generation, labels) = (patch.generation, patch.restored.len());
        let withheld: Vec<_> = patch.withheld.iter().map(|withheld| withheld.name.as_str()).collect();
        tracing::info!(node = node.name, generation, labels, ?withheld, reason, "restored");
        events.restored(node, &patch.restored);
        let reported = patch.conflicts.iter().filter(|conflict| conflict.winner == Winner::Report);
        events.conflict(node, reported.map(|conflict| &conflict.name));
        events.withheld(node, &patch.withheld);
        metrics.restored(patch);
    }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// True if a patch can test everything that it depends on. It can't test the machine, nor an identity.
fn may_be_tested(node: &Node, rules: &Rules) -> bool {
    node.extras.identity.is_none() && !rules.depends_on_machine()
}

fn log_patch(node: &Node, patch: &restore::Patch, reason: &str) {
    let withheld = patch.withheld.iter().map(|withheld| (withheld.name.as_str(), withheld.why.as_str()));
    let conflicts =
        patch.conflicts.iter().map(|conflict| format!("{}: {} wins", conflict.name, conflict.winner));
    tracing::info!(
        node = node.name,
        generation = patch.generation,
        labels = ?patch.restored,
        conflicts = ?conflicts.collect::<Vec<_>>(),
        withheld = ?withheld.collect::<BTreeMap<_, _>>(),
        lifts_startup_taint = patch.lifts_startup_taint,
        reason,
        "would restore"
    );
}

#[cfg(test)]
mod tests;
