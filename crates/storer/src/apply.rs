//! The one place that writes records.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, PostParams, Preconditions};
use label_storage::name::record_name;
use label_storage::store::{
    self, Action, Circumstances, LastSeen, PLAN_LIFETIME, Plan, Reason, Sighting, Stored,
};
use label_storage::summary::UidDigest;
use label_storage::{Node, Record, RecordKey, plan_store};
use label_storage_runtime::ShardContext;
use label_storage_runtime::cache::Reading;
use label_storage_runtime::call::{self, Error};
use label_storage_runtime::fresh::FreshReads;
use label_storage_runtime::reconciler::{Done, Worker};
use label_storage_runtime::records::{self, Found, Recorded};
use tokio::time;

use crate::metrics::StorerMetrics;

const FIELD_MANAGER: &str = "label-storage-storer";
/// Fails if the labels don't fit into a ConfigMap.
const ENCODE: &str = "encode the record";

pub(crate) struct StoreTask {
    pub(crate) node: String,
    /// True if several Nodes have the key: then it is only certain that one exists.
    pub(crate) is_contested: bool,
    /// True if the record may be deleted because the retention is over.
    pub(crate) may_clean_up: bool,
    /// True if the label of records may be added again.
    pub(crate) may_add_label: bool,
    /// The final labels of a deletion that is not stored yet.
    pub(crate) final_labels: Option<Node>,
    /// The incarnation that was decided upon.
    pub(crate) uid: Option<UidDigest>,
    /// Since when the cache has this version of the record.
    pub(crate) record_since: Instant,
    /// The Node as it was last seen, if it is gone.
    pub(crate) last_seen: Option<LastSeen>,
}

/// Reads one Node and its record, decides, and writes.
pub(crate) struct Apply {
    pub(crate) replica: ShardContext,
    pub(crate) metrics: Arc<StorerMetrics>,
}

impl Worker<StoreTask> for Apply {
    /// The record is read first, then the Node, and the write follows at once. An unchanged record says nothing about its Node, which may
    /// have been labelled, deleted and re-created since a list showed it.
    async fn attempt(
        &self,
        key: &RecordKey,
        task: &StoreTask,
        reads: &FreshReads,
        tries: u32,
    ) -> Result<Done, Error> {
        // A record that nobody has seen need not be read first: a create is refused if there is one.
        let is_unread = !reads.known.record.is_there
            && task.final_labels.is_none()
            && tries == 0
            && !self.metrics.in_doubt.contains(key);
        let found = if is_unread { None } else { records::get(&self.replica.records, key).await? };
        let read_at = (!is_unread).then(time::Instant::now);
        reads.known.record.check("get configmap", found.as_ref().map(Found::version))?;
        if let Some(found @ Found { content: Err(unreadable), .. }) = &found {
            if let (Some(uid), Some(what)) = (task.uid, found.complaint()) {
                self.replica.events.unreadable(&task.node, uid, &what);
            }
            return Err(Error::refused("read the record", unreadable));
        }
        if task.is_contested {
            return self.mark_as_returned(key, found).await;
        }
        let node = &task.node;
        let (live, read_at) = reads.node(&self.replica, node, read_at, tries).await?;
        // Its identity may have changed: then it has another record.
        let live = live.filter(|live| live.filed_under() == &**key);
        let stored = Found::stored(found.as_ref()).map(Record::summary);
        let last = task.final_labels.as_ref();
        let sighting = |is_believed| store::sighting(live.as_ref(), last, stored, is_believed);
        let sighting = sighting(false).or_else(|| sighting(reads.known.node.accepts_undeleted()));
        let sighting = sighting.ok_or_else(|| {
            Error::refused("get node", "the API server still returns a node whose deletion it reported")
        })?;
        // The annotation of the Node whose labels are stored decides what is kept. That may not be the Node that is there now.
        let seen = match sighting {
            Sighting::Live(node) | Sighting::Deleted(node) => Some(node),
            Sighting::Gone => None,
        };
        let found = found.map(|found| found.seen_through(&self.replica.rules, seen));
        let circumstances = self.circumstances(key, found.as_ref(), task, reads);
        let mut plan =
            plan_store(sighting, Found::stored(found.as_ref()), circumstances, &self.replica.rules);
        if let (Reason::ViewOlderThanRecord, Sighting::Live(live)) = (plan.reason, sighting) {
            let advice = "if it was copied from another cluster, remove its annotation label-storage/node-resource-version";
            let message =
                format!("it names a later version than {}, the version of its node: {advice}", live.version);
            return Err(Error::refused("replace the record", message));
        }
        if read_at.elapsed() > PLAN_LIFETIME {
            return Err(Error::expired("write the record"));
        }
        if plan.reason == Reason::RetentionOver && !task.may_clean_up {
            // The retention has just ended: the record waits for its turn.
            plan.action = Action::Nothing;
        }
        let broken: Vec<_> = seen.iter().flat_map(|node| node.not_intact(&self.replica.rules)).collect();
        if plan.action != Action::Nothing && !broken.is_empty() {
            tracing::warn!(node, annotations = ?broken, "not stored: the values of these annotations are not UTF-8");
        }
        let before = if is_unread { Reading::None } else { Found::reading(found.as_ref()) };
        if let Some(live) = live.as_ref().filter(|live| Some(live.uid.digest()) != task.uid)
            && plan.reason.takes_over()
        {
            // The final labels of the incarnation that was decided upon may still be on their way.
            tracing::debug!(node, "the node was re-created meanwhile: deciding again");
            return Ok(Done { outcome: None, node: Reading::Present(live.summary()), record: before });
        }
        let (outcome, record) = match self.write(key, node, plan, found, before).await {
            // Nobody can shorten them any more.
            Err(error) if error.what == ENCODE && task.final_labels.is_some() => {
                self.metrics.final_labels_given_up.inc();
                tracing::error!(node, %error, "the final labels of a node are lost");
                (None, before)
            }
            written => written?,
        };
        let node = live.as_ref().map_or(Reading::Absent, |live| Reading::Present(live.summary()));
        Ok(Done { outcome, node, record })
    }
}

impl Apply {
    /// Removes the time of departure from the record of a key that several Nodes claim.
    async fn mark_as_returned(&self, key: &RecordKey, found: Option<Found>) -> Result<Done, Error> {
        let found = found.map(|found| found.seen_through(&self.replica.rules, None));
        let read = Found::reading(found.as_ref());
        let record = match Found::stored(found.as_ref()) {
            Stored::Record(record) if record.departed_at.is_some() => record.with_departed_at(None),
            _ => return Ok(Done { outcome: None, node: Reading::None, record: read }),
        };
        let (node, plan) =
            (record.node.clone(), Plan { action: Action::Replace(record), reason: Reason::Returned });
        let (outcome, record) = self.write(key, &node, plan, found, read).await?;
        Ok(Done { outcome, node: Reading::None, record })
    }

    fn circumstances(
        &self,
        key: &RecordKey,
        found: Option<&Found>,
        task: &StoreTask,
        reads: &FreshReads,
    ) -> Circumstances {
        let version = found.and_then(Found::version);
        let is_unchanged = version == Some(reads.known.record.version);
        Circumstances {
            now: self.replica.clock.now(),
            unchanged_for: if is_unchanged { task.record_since.elapsed() } else { Duration::ZERO },
            retention: self.replica.rules.retention,
            last_seen: task.last_seen,
            in_doubt: self.metrics.in_doubt.holds(key, version),
            may_add_label: task.may_add_label,
        }
    }

    /// Logs a plan in a dry run, with the labels that the rules leave out.
    async fn log_plan(&self, node: &str, plan: &Plan) -> Result<(), Error> {
        let reason = plan.reason.as_str();
        let (message, record) = match &plan.action {
            Action::Nothing => return Ok(()),
            Action::Create(record) => ("would create the record", record),
            Action::Replace(record) => ("would replace the record", record),
            Action::Delete => {
                tracing::info!(node, reason, "would delete the record");
                return Ok(());
            }
        };
        let (generation, labels) = (record.generation, &record.labels);
        let mut left_out = self.replica.node_source.get(node).await?.unwrap_or_default().labels;
        left_out.retain(|key, _| !labels.contains_key(key));
        tracing::info!(node, generation, ?labels, left_out = ?left_out.keys(), reason, "{message}");
        Ok(())
    }

    /// Carries out a plan. Returns the outcome, if there was anything to do, and the record after that.
    async fn write(
        &self,
        key: &RecordKey,
        node: &str,
        plan: Plan,
        found: Option<Found>,
        before: Recorded,
    ) -> Result<(Option<&'static str>, Recorded), Error> {
        if self.replica.args.dry_run {
            self.log_plan(node, &plan).await?;
            return Ok(((plan.action != Action::Nothing).then_some("would-write"), before));
        }
        let (records, in_doubt) = (&self.replica.records, &self.metrics.in_doubt);
        let (name, reason) = (record_name(key), plan.reason.as_str());
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let version = found.as_ref().and_then(Found::version);
        let decoded = found.as_ref().and_then(|found| found.content.as_ref().ok());
        let labels_before = decoded.map(|decoded| decoded.record.labels.clone());
        let (record, written) = match plan.action {
            Action::Create(record) => {
                let config_map = encode(&record, ConfigMap::default())?;
                let write = call::one("create configmap", records.create(&params, &config_map));
                (record, in_doubt.send(key, version, write).await?)
            }
            Action::Replace(record) => {
                let config_map = encode(&record, guarded(found)?)?;
                let write = call::one("replace configmap", records.replace(&name, &params, &config_map));
                (record, in_doubt.send(key, version, write).await?)
            }
            Action::Delete => {
                let meta = guarded(found)?.metadata;
                let preconditions = Preconditions { resource_version: meta.resource_version, uid: meta.uid };
                let delete = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                let write = call::one("delete configmap", records.delete(&name, &delete));
                in_doubt.send(key, version, write).await?;
                self.metrics.deleted(plan.reason);
                tracing::info!(node, reason, "deleted");
                return Ok((Some("deleted"), Reading::Absent));
            }
            Action::Nothing => {
                tracing::debug!(node, reason, "nothing to write after a fresh read");
                return Ok((None, before));
            }
        };
        self.metrics.stored(labels_before.as_ref(), &record.labels);
        let (outcome, message) = match plan.reason {
            Reason::Departed => ("stamped", "departed: labels kept"),
            Reason::Returned => ("stamped", "re-created: waiting for the restore"),
            _ => ("stored", "stored"),
        };
        let (generation, labels) = (record.generation, record.labels.len());
        tracing::info!(node, generation, labels, reason, "{message}");
        let written = Found::from(written).seen_through(&self.replica.rules, None);
        Ok((Some(outcome), Found::reading(Some(&written))))
    }
}

fn encode(record: &Record, mut config_map: ConfigMap) -> Result<ConfigMap, Error> {
    record.encode_into(&mut config_map).map_err(|error| Error::refused(ENCODE, error))?;
    Ok(config_map)
}

/// The ConfigMap that was read, with uid and resourceVersion: they guard the write. A write to a ConfigMap that is being deleted would
/// vanish with its last finalizer.
fn guarded(found: Option<Found>) -> Result<ConfigMap, Error> {
    let config_map = found.map(|found| found.config_map).unwrap_or_default();
    let meta = &config_map.metadata;
    if meta.deletion_timestamp.is_some() {
        let advice = "it is being deleted, and waits for its finalizers to be removed";
        return Err(Error::refused("write the record", advice));
    }
    if meta.uid.is_none() || meta.resource_version.is_none() {
        let problem = "the API server sent a configmap without uid or resourceVersion";
        return Err(Error::refused("guard a write", problem));
    }
    Ok(config_map)
}

#[cfg(test)]
mod tests;
