//! Changes that a person asks for: planned, shown, confirmed, planned again, and written with guards.

use std::pin::pin;
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

use crate::confirm::{Answer, confirm};
use crate::flags::{Change, DryRun};
use crate::output::{counted, print};
use crate::{Ended, changes::Preview, cluster::Cluster};

const FIELD_MANAGER: &str = "kubectl-label-storage";
const CONCURRENT_PLANS: usize = 16;
const ATTEMPTS: u32 = 5;

/// A planned change of one Node or its record.
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
    Create(Box<ConfigMap>),
    Replace(Box<ConfigMap>),
    Delete(Preconditions),
}

impl Write {
    pub(crate) fn patch(node: &Node, body: Value) -> Self {
        Self { what: "patch node", name: node.name.clone(), body: Body::Patch(body) }
    }

    /// Replaces the record that was found, or creates one. Adds the labels and annotations of `model`.
    pub(crate) fn put(record: &Record, found: Option<&Found>, model: Option<&ConfigMap>) -> Result<Self> {
        found.map(guards).transpose()?;
        let mut put = Box::new(found.map(|found| found.config_map.clone()).unwrap_or_default());
        if let Some(ConfigMap { metadata: model, .. }) = model {
            let own = &mut put.metadata;
            // Its own labels and annotations win.
            for (own, all) in [(&mut own.labels, &model.labels), (&mut own.annotations, &model.annotations)] {
                *own = Some(all.clone().into_iter().chain(own.take()).flatten().collect());
            }
        }
        record.encode_into(&mut put)?;
        let name = put.metadata.name.clone().unwrap_or_default();
        Ok(match found {
            Some(_) => Self { what: "replace configmap", name, body: Body::Replace(put) },
            None => Self { what: "create configmap", name, body: Body::Create(put) },
        })
    }

    pub(crate) fn delete(found: &Found) -> Result<Self> {
        let name = found.config_map.metadata.name.clone().unwrap_or_default();
        Ok(Self { what: "delete configmap", name, body: Body::Delete(guards(found)?) })
    }

    /// Sends it once: a failed write is followed by a read. With `dry_run` the API server stores nothing.
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
            Body::Create(record) => call::one(what, records.create(&post, record)).await.map(drop),
            Body::Replace(record) => call::one(what, records.replace(name, &post, record)).await.map(drop),
            Body::Delete(guards) => {
                let preconditions = Some(guards.clone());
                let params = DeleteParams { dry_run, preconditions, ..DeleteParams::default() };
                call::one(what, records.delete(name, &params)).await.map(drop)
            }
        }
    }
}

/// Without these, the API server would accept a write even if the object has changed since the read.
fn guards(found: &Found) -> Result<Preconditions> {
    let meta = &found.config_map.metadata;
    if meta.uid.is_none() || meta.resource_version.is_none() {
        bail!("the API server sent a configmap without uid or resourceVersion");
    }
    Ok(Preconditions { uid: meta.uid.clone(), resource_version: meta.resource_version.clone() })
}

/// Shows all changes, asks once ("Restore 2 nodes?"), and makes the changes one after the other. If one of
/// several named nodes can't be changed, none is. Of selected nodes, those that can't be changed are skipped.
/// A failed write ends the command only if the API server is at fault.
///
/// `plan` plans one change from fresh reads. An error other than a failed call means that this node can't be
/// changed. It gets the preview of the attempt before, if there was one: its writes may have had an effect.
pub(crate) async fn carry_out<T>(
    cluster: &Cluster,
    change: Change,
    (verb, noun): (&str, &str),
    targets: &[T],
    are_named: bool,
    plan: impl AsyncFn(&T, Option<&Preview>) -> Result<Proposal>,
) -> Result<Ended> {
    let (mut proposals, mut refused) = (Vec::new(), Vec::new());
    let planning = stream::iter(targets).map(async |target| (target, plan(target, None).await));
    let mut plans = pin!(planning.buffered(CONCURRENT_PLANS));
    while let Some((target, planned)) = plans.next().await {
        match planned {
            Ok(proposal) if proposal.writes.is_empty() && !are_named => (),
            Ok(proposal) => proposals.push((target, proposal)),
            Err(error) if error.is::<Error>() => return Err(error),
            Err(error) => refused.push(format!("{error:#}")),
        }
    }
    if are_named && !refused.is_empty() {
        let scope = if targets.len() > 1 { "nothing was changed: " } else { "" };
        bail!("{scope}{}", refused.join("; "));
    }
    refused.iter().for_each(|why| eprintln!("skipped: {why}"));
    if proposals.is_empty() {
        eprintln!("nothing to change: {} selected", counted(targets.len(), noun));
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
    for (target, proposal) in proposals {
        let plan = async |tried: Option<&Preview>| plan(target, tried).await;
        match carry_out_one(cluster, change, &question(1), plan, proposal.preview).await {
            result if total == 1 => return result,
            Ok(Ended::Declined) => break,
            Ok(_) => done += 1,
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

/// Plans and writes until it succeeds. Asks again if the change is different now.
async fn carry_out_one(
    cluster: &Cluster,
    change: Change,
    question: &str,
    plan: impl AsyncFn(Option<&Preview>) -> Result<Proposal>,
    mut agreed: Preview,
) -> Result<Ended> {
    let (is_dry, mut has_tried, mut sent) = (change.dry_run.is_some(), false, Vec::new());
    let attempts = async {
        for attempt in 1..=ATTEMPTS {
            // The reads from before the question may be minutes old.
            let Proposal { preview, writes, done } = plan(has_tried.then_some(&agreed)).await?;
            let done = format!("{done}{}\n", if is_dry { " (server dry run)" } else { "" });
            if writes.is_empty() {
                return print(&if has_tried { done } else { preview.to_text() }).map(|()| Ended::Well);
            }
            if preview != agreed {
                eprintln!("the cluster has changed meanwhile. The change is now:");
                print(&preview.to_text())?;
                match is_dry || confirm(change, question)? == Answer::Go {
                    true => agreed = preview,
                    false if sent.is_empty() => return Ok(Ended::Declined),
                    false => bail!("declined"),
                }
                continue;
            }
            let Err(error) = send(cluster, &writes, is_dry, &mut sent).await else {
                return print(&done).map(|()| Ended::Well);
            };
            let is_final = matches!(error.kind, FailureKind::NotConnected | FailureKind::Refused);
            if is_final || attempt == ATTEMPTS {
                return Err(error.into());
            }
            has_tried = true;
            let pause = error.retry_after().map(|pause| pause.min(Duration::from_secs(10)));
            tokio::time::sleep(pause.unwrap_or(Duration::from_millis(50) * attempt)).await;
        }
        bail!("the objects keep changing: try again later")
    };
    match attempts.await {
        Err(error) if !is_dry && !sent.is_empty() => Err(error
            .context(format!("done so far: {}; run the same command again to finish it", sent.join(", ")))),
        result => result,
    }
}

/// Sends writes up to the first failure. `sent` gets those that had, or may have had, an effect.
async fn send(cluster: &Cluster, writes: &[Write], dry: bool, sent: &mut Vec<String>) -> Result<(), Error> {
    for write in writes {
        let result = write.send(cluster, dry).await;
        let perhaps = match &result {
            Ok(()) => "",
            Err(error) if error.kind == FailureKind::Unclear => " (perhaps)",
            Err(_) => return result,
        };
        sent.push(format!("{} {}{perhaps}", write.what, write.name));
        result?;
    }
    Ok(())
}
