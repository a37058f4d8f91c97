//! Writes that a person has asked for: planned, shown, asked for, then planned again from fresh reads, and guarded as those of the daemons.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{self as core, ConfigMap};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use label_storage::{Node, Record};
use label_storage_runtime::call::{self, Error, FailureKind};
use label_storage_runtime::records::Found;
use serde::Serialize;
use serde_json::Value;

use crate::Ended;
use crate::cli::Change;
use crate::cluster::Cluster;
use crate::confirm::{Answer, confirm};
use crate::outlook::Outlook;

/// Who the API server remembers as the writer.
const FIELD_MANAGER: &str = "kubectl-label-storage";

/// How often a write is planned anew because the world has moved.
const ATTEMPTS: u32 = 5;

/// For how long a server that asks for a pause is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// One thing to be done to one Node or its record.
pub(crate) trait Deed {
    /// The Node that it is about.
    fn node(&self) -> &str;

    /// What is to be done, by what is there now. `tries`: how many writes have been refused, or are not known to have happened.
    async fn plan(&self, cluster: &Cluster, tries: u32) -> Result<Plan>;
}

/// What is to be done.
pub(crate) struct Plan {
    /// For a person to see.
    pub(crate) outlook: Outlook,
    /// In this order; none where all is as it should be.
    pub(crate) writes: Vec<Write>,
    /// What is said once that is done.
    pub(crate) done: String,
}

/// A write, with its guards.
pub(crate) enum Write {
    /// Patches a Node that was read.
    Patch { node: String, body: Value },
    /// Creates a record where there is no ConfigMap.
    Create(Box<ConfigMap>),
    /// Replaces a record that was read.
    Replace(Box<ConfigMap>),
    /// Deletes a record that was read.
    Delete { name: String, guards: Preconditions },
}

impl Write {
    /// Patches this Node, as it was read.
    pub(crate) fn patch(node: &Node, body: &impl Serialize) -> Result<Self> {
        Ok(Self::Patch { node: node.name.clone(), body: serde_json::to_value(body)? })
    }

    /// Puts a record where none was found, with what else people have put on the metadata of another, if it comes from one.
    pub(crate) fn create(record: &Record, model: Option<&ConfigMap>) -> Result<Self> {
        let mut config_map = ConfigMap::default();
        if let Some(model) = model {
            config_map.metadata.labels.clone_from(&model.metadata.labels);
            config_map.metadata.annotations.clone_from(&model.metadata.annotations);
        }
        record.encode_into(&mut config_map)?;
        Ok(Self::Create(Box::new(config_map)))
    }

    /// Puts a record in the place of the one that was found, with what else people have put on the metadata of another, if it comes from one.
    pub(crate) fn replace(record: &Record, found: &Found, model: Option<&ConfigMap>) -> Result<Self> {
        guards(found)?;
        let mut config_map = found.config_map.clone();
        if let Some(model) = model {
            let meta = &mut config_map.metadata;
            for (ours, theirs) in [
                (&mut meta.labels, &model.metadata.labels),
                (&mut meta.annotations, &model.metadata.annotations),
            ] {
                for (key, value) in theirs.iter().flatten() {
                    ours.get_or_insert_default().entry(key.clone()).or_insert_with(|| value.clone());
                }
            }
        }
        record.encode_into(&mut config_map)?;
        Ok(Self::Replace(Box::new(config_map)))
    }

    /// Deletes the record that was found.
    pub(crate) fn delete(found: &Found) -> Result<Self> {
        let name = found.config_map.metadata.name.clone().unwrap_or_default();
        Ok(Self::Delete { name, guards: guards(found)? })
    }

    /// What has been done, once it is.
    fn done(&self) -> String {
        let name = |config_map: &ConfigMap| config_map.metadata.name.clone().unwrap_or_default();
        match self {
            Self::Patch { node, .. } => format!("node {node} patched"),
            Self::Create(config_map) => format!("configmap {} created", name(config_map)),
            Self::Replace(config_map) => format!("configmap {} replaced", name(config_map)),
            Self::Delete { name, .. } => format!("configmap {name} deleted"),
        }
    }

    /// Once. With `dry_run` the API server checks it, and changes nothing.
    pub(crate) async fn send(&self, cluster: &Cluster, dry_run: bool) -> Result<(), Error> {
        // After a failure comes a look, and not the same write again: so without hidden retries.
        let records: Api<ConfigMap> = Api::namespaced(cluster.frank.clone(), &cluster.namespace);
        let params = PostParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()) };
        match self {
            Self::Patch { node, body } => {
                let field_manager = Some(FIELD_MANAGER.to_owned());
                let params = PatchParams { dry_run, field_manager, ..PatchParams::default() };
                let nodes: Api<core::Node> = Api::all(cluster.frank.clone());
                let body = Patch::Strategic(body);
                call::one("patch node", nodes.patch_metadata(node, &params, &body)).await?;
            }
            Self::Create(config_map) => {
                call::one("create configmap", records.create(&params, config_map)).await?;
            }
            Self::Replace(config_map) => {
                let name = config_map.metadata.name.as_deref().unwrap_or_default();
                call::one("replace configmap", records.replace(name, &params, config_map)).await?;
            }
            Self::Delete { name, guards } => {
                let preconditions = Some(guards.clone());
                let params = DeleteParams { dry_run, preconditions, ..DeleteParams::default() };
                call::one("delete configmap", records.delete(name, &params)).await?;
            }
        }
        Ok(())
    }
}

/// Without, the API server would take the write whatever happened since.
fn guards(found: &Found) -> Result<Preconditions> {
    let meta = &found.config_map.metadata;
    let (Some(uid), Some(version)) = (&meta.uid, &meta.resource_version) else {
        bail!("the API server sent a configmap without uid or resourceVersion");
    };
    Ok(Preconditions { uid: Some(uid.clone()), resource_version: Some(version.clone()) })
}

/// Shows all that is to be done, asks, and does it, one after the other. Nothing is done where anything is wrong with any of it.
pub(crate) async fn carry_out(
    cluster: &Cluster,
    change: Change,
    question: &str,
    deeds: &[impl Deed],
) -> Result<Ended> {
    cluster.require_rules()?;
    let (mut plans, mut wrong) = (Vec::new(), Vec::new());
    for deed in deeds {
        match deed.plan(cluster, 0).await {
            Ok(plan) => plans.push(plan),
            Err(error) => wrong.push(error),
        }
    }
    if wrong.len() == 1 && deeds.len() == 1 {
        return Err(wrong.remove(0));
    }
    if !wrong.is_empty() {
        let wrong: Vec<_> = wrong.iter().map(|error| format!("{error:#}")).collect();
        bail!("nothing was changed: {}", wrong.join("; "));
    }
    for plan in &plans {
        say(&plan.outlook.to_text())?;
    }
    if plans.iter().all(|plan| plan.writes.is_empty()) {
        return Ok(Ended::Well);
    }
    match confirm(change, question)? {
        Answer::Go => (),
        Answer::OnlyShow => return Ok(Ended::Well),
        Answer::No => return Ok(Ended::Declined),
    }
    for (at, (deed, plan)) in deeds.iter().zip(plans).enumerate() {
        if plan.writes.is_empty() {
            continue;
        }
        match carry_out_one(cluster, change, question, deed, plan).await {
            Ok(true) => (),
            Ok(false) => {
                let left = names(&deeds[at..]);
                if at == 0 {
                    return Ok(Ended::Declined);
                }
                bail!("not done: {left}; done before: {}", names(&deeds[..at]));
            }
            Err(error) if deeds.len() == 1 => return Err(error),
            Err(error) => {
                let before = match at {
                    0 => "nothing".to_owned(),
                    _ => names(&deeds[..at]),
                };
                let left = names(&deeds[at..]);
                return Err(error.context(format!("done: {before}; not done: {left}")));
            }
        }
    }
    Ok(Ended::Well)
}

fn names(deeds: &[impl Deed]) -> String {
    deeds.iter().map(Deed::node).collect::<Vec<_>>().join(", ")
}

/// What has been sent for one deed, by all attempts together.
#[derive(Default)]
struct Sent {
    done: Vec<String>,
    /// Sent, and nobody knows whether it was done.
    unclear: Vec<String>,
}

impl Sent {
    /// All of it, for a person who believes that nothing has happened; `None` where that is so.
    fn told(&self) -> Option<String> {
        let Self { done, unclear } = self;
        let unclear = unclear.iter().map(|what| format!("{what} (perhaps)"));
        let all: Vec<_> = done.iter().cloned().chain(unclear).collect();
        let again = "run the same command again to finish it";
        (!all.is_empty()).then(|| format!("it was begun, and not finished: {}; {again}", all.join(", ")))
    }

    /// In this order, up to the first that fails.
    async fn all(&mut self, cluster: &Cluster, writes: &[Write]) -> Result<(), Error> {
        for write in writes {
            let sent = write.send(cluster, false).await;
            match &sent {
                Ok(()) => self.done.push(write.done()),
                Err(error) if error.kind == FailureKind::Unclear => self.unclear.push(write.done()),
                Err(_) => (),
            }
            sent?;
        }
        Ok(())
    }
}

/// Does what was agreed to. Where that is something else by now, it is shown, and asked for, again. Returns whether it was done.
async fn carry_out_one(
    cluster: &Cluster,
    change: Change,
    question: &str,
    deed: &impl Deed,
    agreed: Plan,
) -> Result<bool> {
    let mut sent = Sent::default();
    let result = try_to_carry_out(cluster, change, question, deed, agreed, &mut sent).await;
    match (result, sent.told()) {
        (result, None) => result,
        (Ok(true), _) => Ok(true),
        (Ok(false), Some(told)) => bail!("{told}"),
        (Err(error), Some(told)) => Err(error.context(told)),
    }
}

async fn try_to_carry_out(
    cluster: &Cluster,
    change: Change,
    question: &str,
    deed: &impl Deed,
    agreed: Plan,
    sent: &mut Sent,
) -> Result<bool> {
    let mut agreed = agreed.outlook;
    let mut tries = 0;
    loop {
        // A person takes their time: what was read before they were asked is too old to be written upon.
        let plan = deed.plan(cluster, tries).await?;
        if plan.writes.is_empty() {
            say(&plan.outlook.to_text())?;
            return Ok(true);
        }
        if plan.outlook != agreed {
            eprintln!("it has changed meanwhile; now this would be done:");
            say(&plan.outlook.to_text())?;
            if confirm(change, question)? != Answer::Go {
                return Ok(false);
            }
            (agreed, tries) = (plan.outlook, tries + 1);
            if tries < ATTEMPTS {
                continue;
            }
            bail!("node {} does not come to rest: try again in a while", deed.node());
        }
        let Err(error) = sent.all(cluster, &plan.writes).await else {
            say(&format!("{}\n", plan.done))?;
            return Ok(true);
        };
        tries += 1;
        let pause = match error.kind {
            // Who moved it may not be through with it.
            FailureKind::Moved | FailureKind::Unclear => Some(Duration::from_millis(50) * tries),
            FailureKind::Busy(pause) => Some(pause.min(PATIENCE)),
            FailureKind::NotConnected | FailureKind::Refused => None,
        };
        match pause {
            Some(pause) if tries < ATTEMPTS => tokio::time::sleep(pause).await,
            _ => return Err(error).with_context(|| format!("node {}", deed.node())),
        }
    }
}

fn say(text: &str) -> Result<()> {
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}

/// Each name once, in the order in which they were given.
pub(crate) fn each_once(names: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.into_iter().filter(|name| seen.insert(name.clone())).collect()
}
