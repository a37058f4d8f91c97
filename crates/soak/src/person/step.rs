//! One API call of a person.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use label_storage::Labels;
use label_storage::item::Item;
use serde_json::json;

/// The time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most attempts to change the taints of a Node that others change, too.
const TRIES: usize = 5;

#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Sets the item of this name to this value, or removes it.
    Set(String, String, Option<String>),
    Delete(String),
    Pause(Duration),
    Create(Box<Node>),
}

/// Creates a Node with these items.
pub(super) fn node(name: String, items: &Labels) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name);
    for (name, value) in items {
        match Item::parse(name) {
            Some(Item::Label(key)) => {
                node.metadata.labels.get_or_insert_default().insert(key.to_owned(), value.clone());
            }
            Some(Item::Annotation(key)) => {
                node.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.clone());
            }
            Some(Item::Taint { effect, key }) => {
                let taints = node.spec.get_or_insert_default().taints.get_or_insert_default();
                taints.push(taint(effect, key, value));
            }
            Some(Item::Cordon) => node.spec.get_or_insert_default().unschedulable = Some(true),
            None => {}
        }
    }
    node
}

fn taint(effect: &str, key: &str, value: &str) -> Taint {
    let (effect, key, value) = (effect.to_owned(), key.to_owned(), Some(value.to_owned()));
    Taint { effect, key, value, time_added: None }
}

/// True if all steps succeeded. A failed step may still have had an effect, which the oracle sees.
pub(super) async fn carry_out(nodes: &Api<Node>, steps: Vec<Step>) -> bool {
    for step in steps {
        let done = tokio::time::timeout(PATIENCE + step.pause(), take(nodes, &step)).await;
        if !matches!(done, Ok(Ok(()))) {
            return false;
        }
    }
    true
}

impl Step {
    fn pause(&self) -> Duration {
        if let Self::Pause(pause) = self { *pause } else { Duration::ZERO }
    }
}

async fn take(nodes: &Api<Node>, step: &Step) -> Result<(), kube::Error> {
    match step {
        Step::Set(node, name, value) => set(nodes, node, name, value.as_deref()).await,
        Step::Delete(node) => nodes.delete(node, &DeleteParams::default()).await.map(drop),
        Step::Pause(pause) => {
            tokio::time::sleep(*pause).await;
            Ok(())
        }
        Step::Create(node) => nodes.create(&PostParams::default(), node).await.map(drop),
    }
}

async fn set(nodes: &Api<Node>, node: &str, name: &str, value: Option<&str>) -> Result<(), kube::Error> {
    let patch = match Item::parse(name) {
        Some(Item::Label(key)) => json!({ "metadata": { "labels": { key: value } } }),
        Some(Item::Annotation(key)) => json!({ "metadata": { "annotations": { key: value } } }),
        Some(Item::Cordon) => json!({ "spec": { "unschedulable": value.map(|_| true) } }),
        Some(Item::Taint { effect, key }) => return set_taint(nodes, node, effect, key, value).await,
        None => return Ok(()),
    };
    nodes.patch_metadata(node, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

/// Taints are one list that is written as a whole.
async fn set_taint(
    nodes: &Api<Node>,
    node: &str,
    effect: &str,
    key: &str,
    value: Option<&str>,
) -> Result<(), kube::Error> {
    let mut tries = 0;
    loop {
        let found = nodes.get(node).await?;
        let mut taints = found.spec.and_then(|spec| spec.taints).unwrap_or_default();
        taints.retain(|taint| taint.effect != effect || taint.key != key);
        taints.extend(value.map(|value| taint(effect, key, value)));
        let version = found.metadata.resource_version;
        let patch = json!({ "metadata": { "resourceVersion": version }, "spec": { "taints": taints } });
        let done = nodes.patch_metadata(node, &PatchParams::default(), &Patch::Merge(patch)).await;
        tries += 1;
        match done {
            Err(kube::Error::Api(status)) if status.code == 409 && tries < TRIES => {}
            done => return done.map(drop),
        }
    }
}
