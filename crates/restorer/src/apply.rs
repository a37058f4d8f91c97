//! The one place that writes Nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use label_storage::item::Item;
use label_storage::restore::{self, Reason};
use label_storage::rules::Winner;
use label_storage::store::{PLAN_LIFETIME, Stored};
use label_storage::summary::UidDigest;
use label_storage::{Node, RecordKey, Rules, plan_restore};
use label_storage_runtime::ShardContext;
use label_storage_runtime::call::{self, Error, FailureKind};
use label_storage_runtime::patch::{Body, operations};
use label_storage_runtime::reconciler::{Done, Reading, Worker};
use label_storage_runtime::records::{self, Found};

use tokio::time::Instant;

use crate::metrics::RestorerMetrics;
use crate::task::{FENCED, RestoreTask, WOULD_RESTORE};

/// Who the API server remembers as the writer.
const FIELD_MANAGER: &str = "label-storage-restorer";

/// After this many failures in a row a Node may well be changing all the time: then each patch of the version that was read comes too late.
const CHANGING: u32 = 3;

/// The words of the API server where a test of a JSON patch fails. It has others for what admission or validation refuses.
const FAILED_TEST: &str = "rejected our request due to an error in our request";

/// Reads one Node's record, decides, and patches the Node.
pub(crate) struct Apply {
    pub(crate) replica: ShardContext,
    pub(crate) counts: Arc<RestorerMetrics>,
}

impl Worker<RestoreTask> for Apply {
    /// One attempt at one Node. First the Node is seen, in an event or by name, then its record is read: a record that
    /// was read before may hold a label that was removed before this incarnation was created.
    async fn attempt(&self, filed: &RecordKey, task: &RestoreTask, tries: u32) -> Result<Done, Error> {
        if let Some(uid) = task.contested {
            return self.lift_contested(task, uid, tries).await;
        }
        // An event is as good a view as any, while it is young and no write of this Node was refused because of it.
        let is_fresh = |seen_at: Instant| tries == 0 && seen_at.elapsed() < PLAN_LIFETIME / 2;
        if let Some((node, seen_at)) = &task.view
            && is_fresh(*seen_at)
            && let Some(done) = self.restore(filed, node, *seen_at, task, tries).await?
        {
            return Ok(done);
        }
        let asked_at = Instant::now();
        let node = self.replica.node_source.get_node(&task.node).await?;
        task.known.require_newer_node(node.as_ref(), tries)?;
        // It may be known by something else by now, and have another record.
        let Some(node) = node.filter(|node| node.filed_under() == &**filed) else {
            tracing::debug!(node = task.node, "gone before it could be restored");
            return Ok(Done { outcome: None, node: Reading::Absent, record: Reading::None });
        };
        let done = self.restore(filed, &node, asked_at, task, tries).await?;
        done.ok_or_else(|| {
            Error::refused("get node", "the API server sent a part of the node, and all of it was asked for")
        })
    }
}

impl Apply {
    /// Restores a Node that was just seen. `None`: more has to be seen of it first.
    async fn restore(
        &self,
        filed: &RecordKey,
        node: &Node,
        seen_at: Instant,
        task: &RestoreTask,
        tries: u32,
    ) -> Result<Option<Done>, Error> {
        let (rules, events) = (&self.replica.rules, &self.replica.events);
        let found = match records::get(&self.replica.records, filed).await {
            // Pods have been kept away for long enough, whatever the record says.
            Err(error) if task.is_overdue => {
                return self.lift_anyway(node, error, "no-answer", tries).await.map(Some);
            }
            found => found?,
        };
        task.known.require_newer_record(found.as_ref().map(Found::version), tries)?;
        let plan = plan_restore(node, Found::stored(found.as_ref()), rules, task.is_overdue);
        if plan.reason == Reason::SeenInPart {
            return Ok(None);
        }
        if seen_at.elapsed() > PLAN_LIFETIME {
            return Err(Error::expired("patch node"));
        }
        if plan.reason == Reason::NoRoom && plan.patch.is_none() {
            let advice = "its annotations leave no room for label-storage/restored: remove some of them";
            return Err(Error::refused("patch node", advice));
        }
        match (plan.reason, found.as_ref().and_then(Found::complaint)) {
            (Reason::RecordUnreadable, Some(what)) => events.unreadable(&node.name, node.uid.digest(), &what),
            (Reason::OtherMachine, _) => {
                tracing::warn!(
                    node = node.name,
                    "not restored: it is another machine than the one whose labels are stored"
                );
                events.other_machine(node);
            }
            _ => (),
        }
        // All of it is restored; the rules only tell what to compare with a Node's last labels.
        let record = Found::reading(found.map(|found| found.seen_through(rules, None)).as_ref());
        let reason = plan.reason;
        let (outcome, summary) = match plan.patch {
            None => {
                tracing::debug!(
                    node = node.name,
                    reason = reason.as_str(),
                    "nothing to restore after a second look"
                );
                (None, node.summary())
            }
            Some(patch) if self.replica.args.dry_run => {
                say(node, &patch, reason.as_str());
                (Some(WOULD_RESTORE), node.summary())
            }
            Some(patch) => match self.patch(node, &patch, reason.as_str(), tries).await {
                Ok(patched) => (Some(word(&patch)), patched.summary()),
                // What is refused now may be refused for ever: pods have been kept away for long enough.
                Err(error) if task.is_overdue && patch.marker.is_some() && is_lasting(&error) => {
                    return self.lift_anyway(node, error, "refused", tries).await.map(Some);
                }
                Err(error) => return Err(error),
            },
        };
        let outcome = if reason == Reason::OtherMachine { Some(FENCED) } else { outcome };
        Ok(Some(Done { outcome, node: Reading::Present(summary), record }))
    }

    /// Lets pods come to a Node that can't be restored, since its record can't be read, or the patch is refused.
    async fn lift_anyway(
        &self,
        node: &Node,
        error: Error,
        why: &'static str,
        tries: u32,
    ) -> Result<Done, Error> {
        if !node.has_startup_taint() {
            return Err(error);
        }
        tracing::warn!(node = node.name, %error, "it can't be restored, and pods have waited for long enough");
        let (outcome, lifted) = self.lift(node, why, tries).await?;
        Ok(Done { outcome, node: Reading::Present(lifted.summary()), record: Reading::None })
    }

    /// Lets pods come to a Node that is not the only one to claim its record.
    async fn lift_contested(&self, task: &RestoreTask, uid: UidDigest, tries: u32) -> Result<Done, Error> {
        let node =
            self.replica.node_source.get_node(&task.node).await?.filter(|node| node.uid.digest() == uid);
        let outcome = match node.filter(Node::has_startup_taint) {
            Some(node) => self.lift(&node, "contested", tries).await?.0,
            None => Some("lifted"),
        };
        Ok(Done { outcome, node: Reading::None, record: Reading::None })
    }

    /// Takes the start-up taint off and nothing else. Returns a word for that, and the Node as it is then.
    async fn lift(
        &self,
        node: &Node,
        why: &'static str,
        tries: u32,
    ) -> Result<(Option<&'static str>, Node), Error> {
        match plan_restore(node, Stored::Unreadable, &self.replica.rules, true).patch {
            Some(patch) if self.replica.args.dry_run => {
                say(node, &patch, why);
                Ok((Some(WOULD_RESTORE), node.clone()))
            }
            Some(patch) => Ok((Some(word(&patch)), self.patch(node, &patch, why, tries).await?)),
            None => Ok((None, node.clone())),
        }
    }

    /// Patches a Node, and returns it as it is after that.
    async fn patch(
        &self,
        node: &Node,
        patch: &restore::Patch,
        reason: &'static str,
        tries: u32,
    ) -> Result<Node, Error> {
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        // Does what a merge patch does with labels and annotations, for less of the server's time: it need not make JSON of
        // the whole Node first. A list of taints is replaced as a whole by both.
        let is_tested = tries >= CHANGING && may_be_tested(node, patch, &self.replica.rules);
        let body = if !is_tested {
            Patch::Strategic(Body::from(patch))
        } else {
            // Each try guesses the other way.
            let operations = serde_json::from_value(operations(node, patch, tries % 2 == 1));
            Patch::Json(operations.map_err(|error| Error::refused("patch node", error))?)
        };
        let patched = self.replica.nodes.patch_metadata(&node.name, &params, &body);
        let patched = call::one("patch node", patched).await.map_err(|error| {
            let is_failed_test = is_tested && error.code == Some(422) && error.message.contains(FAILED_TEST);
            if is_failed_test { Error { kind: FailureKind::Moved, ..error } } else { error }
        })?;
        self.tell(node, patch, reason);
        if let (Some(created), Some(_)) = (&patched.metadata.creation_timestamp, &patch.marker) {
            let age = jiff::Timestamp::now().duration_since(created.0).as_secs_f64();
            // Clocks differ, and the API server's has no fractions of a second.
            self.counts.latency.0.observe(age.max(0.0));
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

    /// Says what was done: in the log, in Events, in numbers.
    fn tell(&self, node: &Node, patch: &restore::Patch, reason: &'static str) {
        let (generation, labels) = (patch.generation, patch.restored.len());
        let withheld: Vec<_> = patch.withheld.iter().map(|withheld| withheld.name.as_str()).collect();
        let (events, counts) = (&self.replica.events, &self.counts);
        if patch.lifts_startup_taint {
            let why = if patch.marker.is_some() { "restored" } else { lifting(reason) };
            counts.lifted(why);
            if !matches!(why, "restored" | "nothing-to-restore") {
                tracing::warn!(node = node.name, why, "pods may come, though it was not restored");
                events.lifted(node, why);
            }
        }
        if patch.marker.is_none() {
            return tracing::info!(node = node.name, reason, "pods may come");
        }
        tracing::info!(node = node.name, generation, labels, ?withheld, reason, "restored");
        events.restored(node, &patch.restored);
        let reported = patch.conflicts.iter().filter(|conflict| conflict.winner == Winner::Report);
        events.conflict(node, reported.map(|conflict| &conflict.name));
        events.withheld(node, &patch.withheld);
        counts.restored(patch);
    }
}

/// True if the patch can test all that it rests on. Which machine a Node is, or what else its record is filed under, it does not test.
fn may_be_tested(node: &Node, patch: &restore::Patch, rules: &Rules) -> bool {
    let is_trust = |name: &String| Item::parse(name).is_some_and(Item::is_trust);
    node.extras.identity.is_none() && !rules.is_fenced() && !patch.restored.keys().any(is_trust)
}

/// Whether the same may happen to every further attempt, so that waiting does not help.
fn is_lasting(error: &Error) -> bool {
    !matches!(error.kind, FailureKind::Moved | FailureKind::Busy(_))
}

/// Why pods may come to a Node that was not restored, as metrics have it.
fn lifting(reason: &'static str) -> &'static str {
    match reason {
        "record-unreadable" | "other-machine" | "no-identity" | "contested" | "no-answer" | "no-room"
        | "refused" => reason,
        _ => "nothing-to-restore",
    }
}

fn word(patch: &restore::Patch) -> &'static str {
    if patch.marker.is_some() { "restored" } else { "lifted" }
}

/// What a dry run says instead of doing it.
fn say(node: &Node, patch: &restore::Patch, reason: &str) {
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
