//! Changes that a person asks for: planned, shown, confirmed, planned again from fresh reads, and written with guards.

use std::time::Duration;

use anyhow::{Result, bail};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{self as core, ConfigMap};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use label_storage::{Node, Record};
use label_storage_runtime::call::{self, Error, FailureKind};
use label_storage_runtime::records::Found;
use serde_json::Value;

use crate::Ended;
use crate::cluster::Cluster;
use crate::confirm::{Answer, confirm};
use crate::flags::{Change, DryRun};
use crate::output::{counted, print};
use crate::preview::Preview;

const FIELD_MANAGER: &str = "kubectl-label-storage";
const CONCURRENT_PLANS: usize = 16;
const ATTEMPTS: u32 = 5;
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A change of one Node or its record.
pub(crate) trait Operation {
    /// Plans from fresh reads. An error other than a failed call means that this node can't be changed. `tries` counts the
    /// attempts before this one: their writes may have had an effect.
    async fn plan(&self, cluster: &Cluster, tries: u32) -> Result<Proposal>;
}

/// A planned change.
pub(crate) struct Proposal {
    pub(crate) preview: Preview,
    /// Sent in this order; empty if nothing has to change.
    pub(crate) writes: Vec<Write>,
    pub(crate) done: String,
}

/// A write with its guards: the API server refuses it if the object has changed since it was read.
pub(crate) struct Write {
    what: &'static str,
    name: String,
    body: Body,
}

enum Body {
    Patch(Value),
    Put(Box<ConfigMap>),
    Delete(Preconditions),
}

impl Write {
    pub(crate) fn patch(node: &Node, body: Value) -> Self {
        Self { what: "patch node", name: node.name.clone(), body: Body::Patch(body) }
    }

    /// Creates a record, with the other labels and annotations of `model`.
    pub(crate) fn create(record: &Record, model: Option<&ConfigMap>) -> Result<Self> {
        Self::put("create configmap", record, ConfigMap::default(), model)
    }

    /// Replaces a record. Its own labels and annotations win over those of `model`.
    pub(crate) fn replace(record: &Record, found: &Found, model: Option<&ConfigMap>) -> Result<Self> {
        guards(found)?;
        Self::put("replace configmap", record, found.config_map.clone(), model)
    }

    fn put(what: &'static str, record: &Record, base: ConfigMap, model: Option<&ConfigMap>) -> Result<Self> {
        let mut put = Box::new(base);
        if let Some(ConfigMap { metadata: model, .. }) = model {
            let meta = &mut put.metadata;
            let pairs = [(&mut meta.labels, &model.labels), (&mut meta.annotations, &model.annotations)];
            for (own, others) in pairs {
                for (key, value) in others.iter().flatten() {
                    own.get_or_insert_default().entry(key.clone()).or_insert_with(|| value.clone());
                }
            }
        }
        record.encode_into(&mut put)?;
        Ok(Self { what, name: put.metadata.name.clone().unwrap_or_default(), body: Body::Put(put) })
    }

    pub(crate) fn delete(found: &Found) -> Result<Self> {
        let name = found.config_map.metadata.name.clone().unwrap_or_default();
        Ok(Self { what: "delete configmap", name, body: Body::Delete(guards(found)?) })
    }

    /// Sends it once: a failed write is followed by a read. With `dry_run` the API server checks it and stores nothing.
    pub(crate) async fn send(&self, cluster: &Cluster, dry_run: bool) -> Result<(), Error> {
        let Self { what, name, body } = self;
        let records: Api<ConfigMap> = Api::namespaced(cluster.writer.clone(), &cluster.namespace);
        let field_manager = Some(FIELD_MANAGER.to_owned());
        let post = PostParams { dry_run, field_manager: field_manager.clone() };
        match body {
            Body::Patch(body) => {
                let nodes: Api<core::Node> = Api::all(cluster.writer.clone());
                let params = PatchParams { dry_run, field_manager, ..PatchParams::default() };
                call::one(what, nodes.patch_metadata(name, &params, &Patch::Strategic(body))).await.map(drop)
            }
            Body::Put(config_map) if config_map.metadata.resource_version.is_none() => {
                call::one(what, records.create(&post, config_map)).await.map(drop)
            }
            Body::Put(config_map) => {
                call::one(what, records.replace(name, &post, config_map)).await.map(drop)
            }
            Body::Delete(guards) => {
                let preconditions = Some(guards.clone());
                let params = DeleteParams { dry_run, preconditions, ..DeleteParams::default() };
                call::one(what, records.delete(name, &params)).await.map(drop)
            }
        }
    }
}

/// Without these the API server would accept a write whatever happened since the read.
fn guards(found: &Found) -> Result<Preconditions> {
    let meta = &found.config_map.metadata;
    if meta.uid.is_none() || meta.resource_version.is_none() {
        bail!("the API server sent a configmap without uid or resourceVersion");
    }
    Ok(Preconditions { uid: meta.uid.clone(), resource_version: meta.resource_version.clone() })
}

/// Shows all changes, asks once ("Restore 2 nodes?"), and makes the changes one after the other.
/// If one of several named nodes can't be changed, none is. Of selected nodes, those that can't be changed are skipped. A
/// failed write ends the command only if the API server is at fault.
pub(crate) async fn carry_out(
    cluster: &Cluster,
    change: Change,
    (verb, noun): (&str, &str),
    operations: &[impl Operation],
    are_named: bool,
) -> Result<Ended> {
    let (mut proposals, mut refused) = (Vec::new(), Vec::new());
    let plan = |operation| async move { (operation, Operation::plan(operation, cluster, 0).await) };
    let mut plans = stream::iter(operations).map(plan).buffered(CONCURRENT_PLANS);
    while let Some((operation, planned)) = plans.next().await {
        match planned {
            Ok(proposal) if proposal.writes.is_empty() && !are_named => (),
            Ok(proposal) => proposals.push((operation, proposal)),
            Err(error) if error.is::<Error>() => return Err(error),
            Err(error) => refused.push(format!("{error:#}")),
        }
    }
    if are_named && !refused.is_empty() {
        let scope = if operations.len() > 1 { "nothing was changed: " } else { "" };
        bail!("{scope}{}", refused.join("; "));
    }
    refused.iter().for_each(|why| eprintln!("skipped: {why}"));
    if proposals.is_empty() {
        eprintln!("nothing to change: {} selected", counted(operations.len(), noun));
    }
    for (_, proposal) in &proposals {
        print(&proposal.preview.to_text())?;
    }
    proposals.retain(|(_, proposal)| !proposal.writes.is_empty());
    let total = proposals.len();
    if total == 0 {
        return Ok(Ended::Well);
    }
    let question = |count| format!("{verb} {}?", counted(count, noun));
    match confirm(change, &question(total))? {
        Answer::No => return Ok(Ended::Declined),
        Answer::OnlyShow if change.dry_run == Some(DryRun::Client) => return Ok(Ended::Well),
        Answer::OnlyShow | Answer::Go => (),
    }
    let mut done = 0;
    for (operation, proposal) in proposals {
        match carry_out_one(cluster, change, &question(1), operation, proposal.preview).await {
            Ok(true) => done += 1,
            Ok(false) if total == 1 => return Ok(Ended::Declined),
            Ok(false) => break,
            Err(error) if total == 1 => return Err(error),
            Err(error) => {
                eprintln!("error: {error:#}");
                let is_of_server = |it: &Error| !matches!(it.kind, FailureKind::Refused | FailureKind::Moved);
                if error.downcast_ref().is_some_and(is_of_server) {
                    break;
                }
            }
        }
    }
    match total - done {
        0 => Ok(Ended::Well),
        failed => bail!("{failed} of {} failed", counted(total, noun)),
    }
}

/// Plans and writes until it succeeds. Asks again if the change is now another. Returns false if the person declined.
async fn carry_out_one(
    cluster: &Cluster,
    change: Change,
    question: &str,
    operation: &impl Operation,
    mut agreed: Preview,
) -> Result<bool> {
    let is_dry = change.dry_run.is_some();
    let mut sent = Vec::new();
    let attempts = async {
        for tries in 0..ATTEMPTS {
            // The reads from before the question may be minutes old.
            let Proposal { preview, writes, done } = operation.plan(cluster, tries).await?;
            if writes.is_empty() {
                print(&preview.to_text())?;
                return Ok(true);
            }
            if preview != agreed {
                eprintln!("the cluster has changed meanwhile; the change is now:");
                print(&preview.to_text())?;
                if !is_dry && confirm(change, question)? != Answer::Go {
                    return Ok(false);
                }
                agreed = preview;
                continue;
            }
            let Err(error) = send(cluster, &writes, is_dry, &mut sent).await else {
                print(&format!("{done}{}\n", if is_dry { " (server dry run)" } else { "" }))?;
                return Ok(true);
            };
            let is_final = matches!(error.kind, FailureKind::NotConnected | FailureKind::Refused);
            if is_final || tries + 1 == ATTEMPTS {
                return Err(error.into());
            }
            let pause = error.retry_after().map(|pause| pause.min(LONGEST_PAUSE));
            tokio::time::sleep(pause.unwrap_or(Duration::from_millis(50) * (tries + 1))).await;
        }
        bail!("the cluster keeps changing: try again later")
    };
    let result = attempts.await;
    if is_dry || sent.is_empty() || matches!(result, Ok(true)) {
        return result;
    }
    let begun = format!("done so far: {}; run the same command again to finish it", sent.join(", "));
    match result {
        Err(error) => Err(error.context(begun)),
        Ok(_) => bail!(begun),
    }
}

/// Sends writes up to the first failure. `sent` gets those that had, or may have had, an effect.
async fn send(cluster: &Cluster, writes: &[Write], dry: bool, sent: &mut Vec<String>) -> Result<(), Error> {
    for write in writes {
        let result = write.send(cluster, dry).await;
        let is_unclear = result.as_ref().is_err_and(|error| error.kind == FailureKind::Unclear);
        if result.is_ok() || is_unclear {
            let perhaps = if is_unclear { " (perhaps)" } else { "" };
            sent.push(format!("{} {}{perhaps}", write.what, write.name));
        }
        result?;
    }
    Ok(())
}
