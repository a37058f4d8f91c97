//! The one place that writes Nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use kube::api::{Patch, PatchParams};
use label_storage::node::RESTORED;
use label_storage::restore;
use label_storage::store::PLAN_LIFETIME;
use label_storage::{Labels, Node, plan_restore};
use label_storage_runtime::Replica;
use label_storage_runtime::call::{self, Error};
use label_storage_runtime::engine::{Done, Reading, Worker};
use label_storage_runtime::records::Found;
use label_storage_runtime::table::Name;
use serde::Serialize;

use crate::counts::Counts;
use crate::planner::Task;

/// Who the API server remembers as the writer.
const FIELD_MANAGER: &str = "label-storage-restorer";

/// The outcome of a dry run's attempt.
pub(crate) const WOULD_RESTORE: &str = "would-restore";

/// Reads one Node's record, decides, and patches the Node.
pub(crate) struct Apply {
    pub(crate) replica: Replica,
    pub(crate) counts: Arc<Counts>,
}

impl Worker<Task> for Apply {
    /// One attempt at one Node. First the Node is seen, in an event or by name, then its record is read: a record that
    /// was read before may hold a label that was removed before this incarnation was created.
    async fn attempt(&self, name: &Name, task: &Task, tries: u32) -> Result<Done, Error> {
        // An event is as good a view as any, while it is young and no write of this Node was refused because of it.
        let is_fresh = |seen_at: Instant| tries == 0 && seen_at.elapsed() < PLAN_LIFETIME / 2;
        let (node, read_at) = match &task.view {
            Some((node, seen_at)) if is_fresh(*seen_at) => (Some(node.clone()), *seen_at),
            _ => {
                let asked_at = Instant::now();
                let node = self.replica.nodes.get(name).await?;
                task.known.require_newer_node(node.as_ref(), tries)?;
                (node, asked_at)
            }
        };
        let Some(node) = node else {
            tracing::debug!(node = &**name, "gone before it could be restored");
            return Ok(Done { outcome: None, node: Reading::Absent, record: Reading::None });
        };
        let found = self.replica.records.get(name).await?;
        task.known.require_newer_record(found.as_ref(), tries)?;
        let plan = plan_restore(&node, Found::stored(found.as_ref()));
        if read_at.elapsed() > PLAN_LIFETIME {
            return Err(Error::expired("patch node"));
        }
        // All of it is restored; the rules only tell what to compare with a Node's last labels.
        let found = found.map(|found| found.seen_through(&self.replica.rules));
        let record = Found::reading(found.as_ref());
        if let (restore::Reason::RecordUnreadable, Some(what)) =
            (plan.reason, found.as_ref().and_then(Found::complaint))
        {
            self.replica.events.unreadable(name, node.uid.digest(), &what);
        }
        let reason = plan.reason.as_str();
        let (outcome, node) = match plan.patch {
            None => {
                tracing::debug!(node = node.name, reason, "nothing to restore after a second look");
                (None, node)
            }
            Some(patch) if self.replica.args.dry_run => {
                let (labels, generation) = (&patch.labels, patch.generation);
                tracing::info!(node = node.name, generation, ?labels, reason, "would restore");
                (Some(WOULD_RESTORE), node)
            }
            Some(patch) => (Some("restored"), self.patch(node, patch, reason).await?),
        };
        Ok(Done { outcome, node: Reading::Present(node.summary()), record })
    }
}

impl Apply {
    /// Patches a Node, and returns it as it is after that.
    async fn patch(&self, node: Node, patch: restore::Patch, reason: &'static str) -> Result<Node, Error> {
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        // Does what a merge patch does with labels and annotations, for less of the server's time: it need not make JSON of
        // the whole Node first.
        let body = Patch::Strategic(Body::from(&patch));
        let patched = self.replica.nodes.api().patch_metadata(&node.name, &params, &body);
        let patched = call::one("patch node", patched).await?;
        let (generation, labels) = (patch.generation, patch.labels.len());
        tracing::info!(node = node.name, generation, labels, reason, "restored");
        self.replica.events.restored(&node, &patch.labels);
        self.replica.events.conflict(&node, &patch.conflicts);
        self.counts.nodes.inc();
        self.counts.labels.inc_by(labels as u64);
        self.counts.conflicts.inc_by(patch.conflicts.len() as u64);
        if let Some(created) = &patched.metadata.creation_timestamp {
            let age = jiff::Timestamp::now().duration_since(created.0).as_secs_f64();
            // Clocks differ, and the API server's has no fractions of a second.
            self.counts.latency.0.observe(age.max(0.0));
        }
        let version = patched.metadata.resource_version.and_then(|version| version.parse().ok());
        let labels = patched.metadata.labels.unwrap_or_default();
        let marker = Some(patch.marker);
        Ok(Node { version: version.unwrap_or(node.version), labels, marker, ..node })
    }
}

/// What is sent: labels and marker in one, so that both are there or neither; uid and resourceVersion, so that the API
/// server refuses it (422, 409) where the Node is another or has changed.
#[derive(Debug, Serialize)]
struct Body<'a> {
    metadata: Metadata<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    uid: &'a str,
    resource_version: String,
    labels: &'a Labels,
    annotations: BTreeMap<&'a str, &'a str>,
}

impl<'a> From<&'a restore::Patch> for Body<'a> {
    fn from(patch: &'a restore::Patch) -> Self {
        let annotations = BTreeMap::from([(RESTORED, patch.marker.as_str())]);
        let (uid, resource_version) = (patch.uid.as_str(), patch.version.to_string());
        Self { metadata: Metadata { uid, resource_version, labels: &patch.labels, annotations } }
    }
}

#[cfg(test)]
mod tests {
    use label_storage::{ResourceVersion, Uid};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_carries_its_guards() {
        let patch = restore::Patch {
            uid: Uid::new("u2").expect("a uid"),
            version: ResourceVersion(77),
            labels: [("k".to_owned(), "v".to_owned())].into(),
            conflicts: vec!["c".to_owned()],
            marker: "u2/4".to_owned(),
            generation: 4,
        };
        let expected = json!({"metadata": {
            "uid": "u2",
            "resourceVersion": "77",
            "labels": {"k": "v"},
            "annotations": {"label-storage/restored": "u2/4"},
        }});
        assert_eq!(serde_json::to_value(Body::from(&patch)).expect("JSON"), expected);
    }
}
