//! The one place that writes Nodes.

use std::collections::BTreeMap;
use std::time::Instant;

use kube::api::{Patch, PatchParams};
use label_storage::node::RESTORED;
use label_storage::restore;
use label_storage::store::PLAN_LIFETIME;
use label_storage::{Labels, Node, plan_restore};
use label_storage_runtime::call::{self, Error};
use label_storage_runtime::pass::Replica;
use label_storage_runtime::records::Found;
use serde::Serialize;

/// Who the API server remembers as the writer.
const FIELD_MANAGER: &str = "label-storage-restorer";

/// Reads one Node's record, decides, and patches the Node.
pub(crate) struct Apply {
    pub(crate) replica: Replica,
}

/// What became of a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// It has its labels back.
    Restored,
    /// It would have been patched, were this not a dry run.
    WouldRestore,
    /// A second look showed that there is nothing to do.
    Nothing,
}

impl Apply {
    /// One attempt at one Node. First the Node is seen, in a list or by name, then its record is read: a record that
    /// was read before may hold a label that was removed before this incarnation was created.
    pub(crate) async fn attempt(
        &self,
        listed: &Node,
        listed_at: Instant,
        tries: u32,
    ) -> Result<Outcome, Error> {
        // A list is as good a view as any, while it is young and no write of this Node was refused because of it.
        let is_fresh = tries == 0 && listed_at.elapsed() < PLAN_LIFETIME / 2;
        let read_at = if is_fresh { listed_at } else { Instant::now() };
        let read = if is_fresh { Some(listed.clone()) } else { self.replica.nodes.get(&listed.name).await? };
        let Some(node) = read else {
            tracing::debug!(node = listed.name, "gone before it could be restored");
            return Ok(Outcome::Nothing);
        };
        let found = self.replica.records.get(&node.name).await?;
        let plan = plan_restore(&node, Found::stored(found.as_ref()));
        if read_at.elapsed() > PLAN_LIFETIME {
            return Err(Error::expired("patch node"));
        }
        let reason = plan.reason.as_str();
        match plan.patch {
            None => {
                tracing::debug!(node = node.name, reason, "nothing to restore after a second look");
                Ok(Outcome::Nothing)
            }
            Some(patch) if self.replica.args.dry_run => {
                let labels = &patch.labels;
                tracing::info!(
                    node = node.name,
                    generation = patch.generation,
                    ?labels,
                    reason,
                    "would restore"
                );
                Ok(Outcome::WouldRestore)
            }
            Some(patch) => self.patch(&node.name, &patch, reason).await,
        }
    }

    async fn patch(
        &self,
        node: &str,
        patch: &restore::Patch,
        reason: &'static str,
    ) -> Result<Outcome, Error> {
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let body = Patch::Merge(Body::from(patch));
        call::one("patch node", self.replica.nodes.api().patch_metadata(node, &params, &body)).await?;
        tracing::info!(node, generation = patch.generation, labels = patch.labels.len(), reason, "restored");
        Ok(Outcome::Restored)
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
