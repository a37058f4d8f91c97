//! Nodes under the rules of an example: a list of steps that are taken one after the other.
//!
//! Items are named here as in records: a label's key, `annotation:KEY`, `taint:EFFECT:KEY`,
//! `cordon:`. Two more name the machine: `instance:` is its `spec.providerID`, `machine:` its `systemUUID`. Items are read and written here
//! without the daemons' own code, which is under test.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::events::events_of;
use crate::scenario::{Labels, Scenario};

/// The items of a node or of a record.
pub type Content = &'static [(&'static str, &'static str)];

/// An example of the documentation, and what it promises.
pub struct Example {
    /// Its name in the documentation.
    pub name: &'static str,
    /// The rules in force, as the daemons say when they start.
    rules: &'static str,
    steps: Vec<Step>,
}

enum Step {
    Registers(&'static str, Content),
    KnownBy(&'static str),
    Changes(Value),
    Leaves(&'static str),
    Has(Content),
    LeftAlone,
    Stored(Content),
    StillStored(Content),
    Written(&'static str, &'static str),
    NotStored(&'static str),
    Remembered(Vec<Content>),
    Told(&'static str, &'static str, &'static str),
}

/// An example under these rules. What follows is what happens, and what is to come of it; all but leaving is about the node that
/// registered last.
pub fn example(name: &'static str, rules: &'static str) -> Example {
    Example { name, rules, steps: Vec::new() }
}

impl Example {
    fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// A node of this name registers.
    pub fn registers(self, node: &'static str, content: Content) -> Self {
        self.then(Step::Registers(node, content))
    }

    /// And is known by this, and not by its name.
    pub fn known_by(self, identity: &'static str) -> Self {
        self.then(Step::KnownBy(identity))
    }

    /// A person changes it.
    pub fn changes(self, patch: Value) -> Self {
        self.then(Step::Changes(patch))
    }

    /// A node is deleted.
    pub fn leaves(self, node: &'static str) -> Self {
        self.then(Step::Leaves(node))
    }

    /// It comes to have exactly this.
    pub fn has(self, content: Content) -> Self {
        self.then(Step::Has(content))
    }

    /// Both daemons have looked at it, and it is as it has registered.
    pub fn left_alone(self) -> Self {
        self.then(Step::LeftAlone)
    }

    /// Its record comes to hold exactly this, read from it.
    pub fn stored(self, content: Content) -> Self {
        self.then(Step::Stored(content))
    }

    /// Its record holds exactly this, whomever it was read from.
    pub fn still_stored(self, content: Content) -> Self {
        self.then(Step::StillStored(content))
    }

    /// Its record has this entry, as people see it.
    pub fn written(self, key: &'static str, value: &'static str) -> Self {
        self.then(Step::Written(key, value))
    }

    /// The storer makes no record of it, for this reason.
    pub fn not_stored(self, reason: &'static str) -> Self {
        self.then(Step::NotStored(reason))
    }

    /// Its record holds exactly these earlier versions.
    pub fn remembered(self, versions: &[Content]) -> Self {
        self.then(Step::Remembered(versions.to_vec()))
    }

    /// An Event about it has these words in it.
    pub fn told(self, by: &'static str, reason: &'static str, words: &'static str) -> Self {
        self.then(Step::Told(by, reason, words))
    }

    /// Runs both daemons with this file, and takes all steps.
    pub async fn run(&self, s: &Scenario, file: &str) -> Result<()> {
        let path = s.file("rules.yaml");
        fs::write(&path, file)?;
        let flags = ["--config", path.to_str().context("a path of text")?];
        if self.steps.iter().any(|step| matches!(step, Step::LeftAlone | Step::NotStored(_))) {
            s.list_often();
        }
        let (storer, restorer) = (s.storer(&flags)?, s.restorer(&flags)?);
        for daemon in [&storer, &restorer] {
            eventually_in_force(s, daemon, self.rules).await?;
        }
        let mut stage =
            Stage { s, storer, restorer, node: String::new(), known_by: String::new(), registered: &[] };
        for (number, step) in self.steps.iter().enumerate() {
            stage.take(step).await.with_context(|| format!("step {}", number + 1))?;
        }
        Ok(())
    }
}

/// Waits until a daemon has started, which it does with these rules.
pub async fn eventually_in_force(s: &Scenario, daemon: &Daemon, rules: &str) -> Result<()> {
    s.eventually("the rules in force", Some(rules.to_owned()), async || {
        let log = daemon.log();
        let started = log.lines().find(|line| line.contains(" started "));
        Ok(started.and_then(|line| line.split_once("rules=")).map(|(_, rules)| rules.to_owned()))
    })
    .await
}

struct Stage<'a> {
    s: &'a Scenario,
    storer: Daemon,
    restorer: Daemon,
    /// The node that registered last, by its full name.
    node: String,
    known_by: String,
    registered: Content,
}

impl Stage<'_> {
    async fn take(&mut self, step: &Step) -> Result<()> {
        let s = self.s;
        match step {
            Step::Registers(name, content) => {
                (self.node, self.registered) = (s.node(name), content);
                self.known_by = self.node.clone();
                s.create_as(&self.node, node_of(content)).await
            }
            Step::KnownBy(identity) => {
                (*identity).clone_into(&mut self.known_by);
                Ok(())
            }
            Step::Changes(patch) => s.patch(&self.node, patch.clone()).await,
            Step::Leaves(name) => s.delete(&s.node(name)).await,
            Step::Has(content) => {
                s.eventually("what is on the node", own(content), async || {
                    Ok(content_of(&s.get(&self.node).await?))
                })
                .await
            }
            Step::LeftAlone => {
                for daemon in [&self.storer, &self.restorer] {
                    s.has_acted(daemon, &self.known_by).await?;
                }
                let found = content_of(&s.get(&self.node).await?);
                ensure!(found == own(self.registered), "it was not left alone: {found:?}");
                Ok(())
            }
            Step::Stored(content) => {
                let uid = s.get(&self.node).await?.metadata.uid;
                s.eventually("what is in the record", (uid, own(content)), async || {
                    let record = self.record().await?;
                    Ok((annotation(&record, "label-storage/node-uid"), kept_in(&record)))
                })
                .await
            }
            Step::StillStored(content) => {
                let found = kept_in(&self.record().await?);
                ensure!(found == own(content), "in the record: {found:?}");
                Ok(())
            }
            Step::Written(key, value) => {
                let data = self.record().await?.data.unwrap_or_default();
                ensure!(data.get(*key).is_some_and(|its| its == value), "{key} in the record: {data:?}");
                Ok(())
            }
            Step::NotStored(reason) => {
                s.has_decided(&self.storer, &self.known_by, reason).await?;
                s.has_acted(&self.storer, &self.known_by).await?;
                let mut records = s.config_maps.list(&ListParams::default()).await?.items;
                records
                    .retain(|record| annotation(record, "label-storage/node").as_ref() == Some(&self.node));
                ensure!(records.is_empty(), "there is a record: {records:?}");
                Ok(())
            }
            Step::Remembered(versions) => {
                let found = history_in(&self.record().await?)?;
                let versions: Vec<_> = versions.iter().map(|version| own(version)).collect();
                ensure!(found == versions, "earlier versions: {found:?}");
                Ok(())
            }
            Step::Told(by, reason, words) => {
                let key = (format!("label-storage/{by}"), (*reason).to_owned());
                s.eventually(&format!("{reason} with {words:?}"), Some(true), async || {
                    Ok(events_of(s, &self.node).await?.remove(&key).map(|note| note.contains(words)))
                })
                .await
            }
        }
    }

    /// The record of the node that registered last, as the documentation says where it is.
    async fn record(&self) -> Result<ConfigMap> {
        let records = &self.s.config_maps;
        if self.known_by == self.node {
            return Ok(records.get(&format!("label-storage.{}", self.node)).await?);
        }
        let all = records.list(&ListParams::default()).await?.items;
        let mut of_identity = all
            .into_iter()
            .filter(|it| annotation(it, "label-storage/identity").as_ref() == Some(&self.known_by));
        let record = of_identity.next().with_context(|| format!("no record of {}", self.known_by))?;
        let name = record.metadata.name.as_deref().unwrap_or_default();
        ensure!(name.starts_with("label-storage-id."), "{name} is the record of {}", self.known_by);
        Ok(record)
    }
}

fn annotation(record: &ConfigMap, key: &str) -> Option<String> {
    record.metadata.annotations.as_ref()?.get(key).cloned()
}

/// The fields that a machine reports, and that are not kept.
const MACHINE: [&str; 2] = ["instance:", "machine:"];

fn own(content: Content) -> Labels {
    let kept = content.iter().filter(|(name, _)| !MACHINE.contains(name));
    kept.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A node with this on it, as a kubelet would register it.
fn node_of(content: Content) -> Value {
    let mut node = json!({"metadata": {"labels": {}, "annotations": {}}, "spec": {"taints": []}});
    for (name, value) in content {
        match name.split_once(':') {
            None => node["metadata"]["labels"][name] = json!(value),
            Some(("annotation", key)) => node["metadata"]["annotations"][key] = json!(value),
            Some(("cordon", "")) => node["spec"]["unschedulable"] = json!(true),
            Some(("instance", "")) => node["spec"]["providerID"] = json!(value),
            Some(("machine", "")) => node["status"]["nodeInfo"]["systemUUID"] = json!(value),
            Some(("taint", taint)) => {
                let (effect, key) = taint.split_once(':').expect("an effect and a key");
                let taints = node["spec"]["taints"].as_array_mut().expect("a list");
                taints.push(json!({"key": key, "value": value, "effect": effect}));
            }
            Some(_) => panic!("{name} is nothing that a node has"),
        }
    }
    node
}

/// The items of a node, without the marker, and without the taint that the API server adds to every new node.
fn content_of(node: &Node) -> Labels {
    let mut content = node.metadata.labels.clone().unwrap_or_default();
    for (key, value) in node.metadata.annotations.iter().flatten() {
        content.insert(format!("annotation:{key}"), value.clone());
    }
    content.remove("annotation:label-storage/restored");
    let spec = node.spec.clone().unwrap_or_default();
    for taint in spec.taints.unwrap_or_default() {
        content.insert(format!("taint:{}:{}", taint.effect, taint.key), taint.value.unwrap_or_default());
    }
    content.remove("taint:NoSchedule:node.kubernetes.io/not-ready");
    if spec.unschedulable == Some(true) {
        content.insert("cordon:".to_owned(), "true".to_owned());
    }
    content
}

const HISTORY: &str = "history-COLON-";

/// The items of a record, without its history.
fn kept_in(record: &ConfigMap) -> Labels {
    let kept = record.data.iter().flatten().filter(|(key, _)| !key.starts_with(HISTORY));
    kept.map(|(key, value)| (key.replace("-COLON-", ":").replace("-SLASH-", "/"), value.clone())).collect()
}

/// The history of a record, the oldest first.
fn history_in(record: &ConfigMap) -> Result<Vec<Labels>> {
    let mut versions = BTreeMap::new();
    for (key, text) in record.data.iter().flatten() {
        let Some(generation) = key.strip_prefix(HISTORY) else { continue };
        let mut version: Value = serde_json::from_str(text)?;
        ensure!(version["at"].is_string(), "nobody knows when: {text}");
        versions.insert(generation.parse::<u64>()?, serde_json::from_value(version["kept"].take())?);
    }
    Ok(versions.into_values().collect())
}
