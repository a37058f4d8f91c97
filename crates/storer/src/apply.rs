//! The one place that writes records.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, PostParams, Preconditions};
use label_storage::name::record_name;
use label_storage::store::{Action, Circumstances, PLAN_LIFETIME, Plan, Reason, Sighting};
use label_storage::{Record, plan_store};
use label_storage_runtime::call::{self, Error};
use label_storage_runtime::pass::Replica;
use label_storage_runtime::records::Found;

/// Who the API server remembers as the writer.
const FIELD_MANAGER: &str = "label-storage-storer";

/// Reads one Node and its record, decides, and writes.
pub(crate) struct Apply {
    pub(crate) replica: Replica,
    pub(crate) retention: Duration,
}

/// A record that may be deleted once it has been seen unchanged for long enough, and since when it is seen so.
#[derive(Debug, Clone)]
pub(crate) struct Tombstone {
    pub(crate) version: Option<String>,
    pub(crate) since: Instant,
}

/// What became of a Node's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// Its labels are stored.
    Stored,
    /// It says now whether the Node is there.
    Stamped,
    /// It is gone.
    Deleted,
    /// It would have been written, were this not a dry run.
    WouldWrite,
    /// A second look showed that there is nothing to do.
    Nothing,
}

impl Apply {
    /// The circumstances of a decision about this record.
    pub(crate) fn circumstances(
        &self,
        found: Option<&Found>,
        tombstone: Option<&Tombstone>,
    ) -> Circumstances {
        let same = |tombstone: &&Tombstone| found.is_some_and(|found| found.version == tombstone.version);
        let unchanged_for =
            tombstone.filter(same).map(|tombstone| tombstone.since.elapsed()).unwrap_or_default();
        Circumstances { now: Timestamp::now(), unchanged_for, retention: self.retention }
    }

    /// One attempt at one Node. First the record is read, then the Node, and nothing after it but the write: a record
    /// whose own version did not change says nothing about its Node, which may have been labelled, deleted and
    /// re-created since a list showed it.
    pub(crate) async fn attempt(&self, node: &str, tombstone: Option<&Tombstone>) -> Result<Outcome, Error> {
        let found = self.replica.records.get(node).await?;
        if let Some(Err(unreadable)) = found.as_ref().map(|found| &found.content) {
            return Err(Error::refused("read the record", unreadable));
        }
        let read_at = Instant::now();
        let live = self.replica.nodes.get(node).await?;
        let sighting = live.as_ref().map_or(Sighting::Gone, Sighting::Live);
        let circumstances = self.circumstances(found.as_ref(), tombstone);
        let plan = plan_store(sighting, Found::stored(found.as_ref()), circumstances);
        if let (Reason::ViewOlderThanRecord, Some(live)) = (plan.reason, &live) {
            let advice = "if it was copied from another cluster, remove its annotation label-storage/node-resource-version";
            let message =
                format!("it claims to be newer than version {} of its node: {advice}", live.version);
            return Err(Error::refused("replace the record", message));
        }
        if read_at.elapsed() > PLAN_LIFETIME {
            return Err(Error::expired("write the record"));
        }
        if self.replica.args.dry_run {
            return Ok(say(node, &plan));
        }
        self.write(node, plan, found).await
    }

    async fn write(&self, node: &str, plan: Plan, found: Option<Found>) -> Result<Outcome, Error> {
        let reason = plan.reason.as_str();
        match plan.action {
            Action::Nothing => {
                tracing::debug!(node, reason, "nothing to write after a second look");
                Ok(Outcome::Nothing)
            }
            Action::Create(record) => {
                let config_map = encode(&record, ConfigMap::default())?;
                let params = params();
                call::one("create configmap", self.replica.records.api().create(&params, &config_map))
                    .await?;
                tracing::info!(
                    node,
                    generation = record.generation,
                    labels = record.labels.len(),
                    reason,
                    "stored"
                );
                Ok(Outcome::Stored)
            }
            Action::Replace(record) => {
                let config_map = encode(&record, guarded(found)?)?;
                let (name, params) = (record_name(node), params());
                let replaced = self.replica.records.api().replace(&name, &params, &config_map);
                call::one("replace configmap", replaced).await?;
                let (generation, labels) = (record.generation, record.labels.len());
                let (outcome, message) = match plan.reason {
                    Reason::Departed => (Outcome::Stamped, "gone, its labels are kept"),
                    Reason::Returned => (Outcome::Stamped, "back, to be restored"),
                    _ => (Outcome::Stored, "stored"),
                };
                tracing::info!(node, generation, labels, reason, "{message}");
                Ok(outcome)
            }
            Action::Delete => {
                let meta = guarded(found)?.metadata;
                let preconditions = Preconditions { resource_version: meta.resource_version, uid: meta.uid };
                let delete = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                let name = record_name(node);
                call::one("delete configmap", self.replica.records.api().delete(&name, &delete)).await?;
                tracing::info!(node, reason, "deleted");
                Ok(Outcome::Deleted)
            }
        }
    }
}

fn say(node: &str, plan: &Plan) -> Outcome {
    let reason = plan.reason.as_str();
    let (message, record) = match &plan.action {
        Action::Nothing => return Outcome::Nothing,
        Action::Create(record) => ("would create the record", Some(record)),
        Action::Replace(record) => ("would replace the record", Some(record)),
        Action::Delete => ("would delete the record", None),
    };
    let labels = record.map(|record| &record.labels);
    tracing::info!(node, generation = record.map(|record| record.generation), ?labels, reason, "{message}");
    Outcome::WouldWrite
}

fn params() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

fn encode(record: &Record, mut config_map: ConfigMap) -> Result<ConfigMap, Error> {
    match record.encode_into(&mut config_map) {
        Ok(()) => Ok(config_map),
        Err(too_large) => Err(Error::refused("encode the record", too_large)),
    }
}

/// What was read, with all that guards a write: without, the API server would take the write whatever happened since.
fn guarded(found: Option<Found>) -> Result<ConfigMap, Error> {
    found
        .and_then(|found| found.config_map)
        .filter(|read| read.metadata.uid.is_some() && read.metadata.resource_version.is_some())
        .ok_or_else(|| {
            Error::refused("guard a write", "the API server sent a configmap without uid or resourceVersion")
        })
}
