//! All nodes and records, and the problems with them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use globset::GlobMatcher;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::PartialObjectMeta;
use label_storage::name::{is_record_name, node_in_record_name, record_name};
use label_storage::node::KEEP;
use label_storage::record::{Decoded, MANAGED_BY, NODE};
use label_storage::rules::{IdentityBy, Patterns};
use label_storage::summary::NodeSummary;
use label_storage::{Record, Rules};
use label_storage_runtime::call::{Error, in_one_line};
use label_storage_runtime::projection::{Detail, Projection};
use label_storage_runtime::records::Found;
use label_storage_wire::Object;
use serde::Serialize;

use super::state::{State, Subject};
use super::{Finding, Severity, few};
use crate::cluster::{Cluster, fold, others};
use crate::hints::Hints;
use crate::output::{age, counted};

/// This many names are kept of each kind.
const NAMED: usize = 10;

/// All nodes, by the keys of their records.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    count: usize,
    by_key: HashMap<Box<str>, SeenNode>,
    without_identity: Vec<(Box<str>, Subject)>,
    /// The nodes that have the same key.
    contested: BTreeMap<String, BTreeSet<String>>,
    bad_keep_lists: Names,
}

#[derive(Debug)]
struct SeenNode {
    /// `None` if the key is the name.
    name: Option<Box<str>>,
    subject: Subject,
    created_at: Option<Timestamp>,
    /// `None` until its record was seen.
    state: Option<State>,
}

impl Nodes {
    pub(crate) async fn list(cluster: &Cluster, only: Option<&GlobMatcher>) -> Result<Self, Error> {
        let (projection, only) = (cluster.projection(Detail::WhatIsKept), only.cloned());
        let source = cluster.node_source(Detail::WhatIsKept);
        fold(source, Self::default(), move |nodes, object| {
            if only.as_ref().is_none_or(|only| only.is_match(&object.name)) {
                nodes.see(&projection, object);
            }
        })
        .await
    }

    fn see(&mut self, projection: &Projection, object: Object) {
        let created_at = object.created_at;
        // The daemons skip a node that can't be read, too.
        let Ok(node) = projection.node(object) else { return };
        self.count += 1;
        if let Some(Err(error)) = node.keep_list().map(str::parse::<Patterns>) {
            self.bad_keep_lists.add(&format!("{} ({error})", node.name));
        }
        let subject = Subject::new(&node, &projection.rules);
        if node.extras.is_unidentified {
            return self.without_identity.push((node.name.into(), subject));
        }
        let key = node.filed_under();
        if let Some(first) = self.by_key.get_mut(key) {
            first.subject.is_contested = true;
            let first = first.name.as_deref().unwrap_or(key).to_owned();
            self.contested.entry(key.to_owned()).or_default().extend([first, node.name]);
            return;
        }
        let name = (key != node.name).then(|| Box::from(node.name.as_str()));
        self.by_key.insert(Box::from(key), SeenNode { name, subject, created_at, state: None });
    }

    /// The state of a record, and if its node exists.
    pub(crate) fn state_of(&mut self, found: &Found, now: Timestamp) -> (State, bool) {
        let key = match &found.content {
            Ok(decoded) => Some(decoded.record.filed_under()),
            Err(_) => found.config_map.metadata.name.as_deref().and_then(node_in_record_name),
        };
        let node = key.and_then(|key| self.by_key.get_mut(key));
        let state = State::of(node.as_ref().map(|node| &node.subject), Some(found), now);
        let is_there = node.map(|node| node.state = Some(state)).is_some();
        (state, is_there)
    }
}

/// The first names, in order, and their number.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Names {
    pub(crate) count: usize,
    pub(crate) names: BTreeSet<String>,
}

impl Names {
    fn add(&mut self, name: &str) {
        self.count += 1;
        if self.names.len() < NAMED || self.names.last().is_some_and(|last| name < last.as_str()) {
            self.names.insert(name.to_owned());
        }
        if self.names.len() > NAMED {
            self.names.pop_last();
        }
    }

    pub(crate) fn few(&self) -> String {
        few(&self.names, self.count)
    }
}

/// A node that waits for a daemon.
#[derive(Debug)]
struct Waiting {
    state: State,
    summary: NodeSummary,
    created_at: Option<Timestamp>,
}

impl Waiting {
    /// True if no daemon has worked on it since.
    fn is_same(&self, later: &Self) -> bool {
        let has_labels = || self.state != State::Changed || self.summary.labels == later.summary.labels;
        self.state == later.state && self.summary.uid == later.summary.uid && has_labels()
    }
}

/// All nodes and records at one time.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    nodes: Nodes,
    pub(crate) records: usize,
    pub(crate) states: BTreeMap<State, Names>,
    waiting: HashMap<Box<str>, Waiting>,
    damaged: Names,
    unreadable: Names,
    /// The records that no node looks for.
    orphaned: Names,
}

impl Survey {
    /// Lists all nodes, then all records.
    pub(crate) async fn take(
        cluster: &Cluster,
        only: Option<&GlobMatcher>,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let begin = Self { nodes: Nodes::list(cluster, only).await?, ..Self::default() };
        let (rules, only) = (cluster.rules.clone(), only.cloned());
        let source = cluster.record_source();
        let survey = fold(source, begin, move |survey, object| {
            survey.see(&Found::from(object).seen_through(&rules, None), &rules, only.as_ref(), now);
        });
        let mut survey = survey.await?;
        survey.count_nodes(now);
        Ok(survey)
    }

    pub(crate) fn node_count(&self) -> usize {
        self.nodes.count
    }

    fn see(&mut self, found: &Found, rules: &Rules, only: Option<&GlobMatcher>, now: Timestamp) {
        let name = found.config_map.metadata.name.as_deref().unwrap_or_default();
        let record = found.content.as_ref().ok().map(|decoded| &decoded.record);
        let node = record.map_or_else(|| node_in_record_name(name).unwrap_or(name), |record| &record.node);
        if only.is_some_and(|only| !only.is_match(node)) {
            return;
        }
        self.records += 1;
        let (state, has_node) = self.nodes.state_of(found, now);
        // An empty record is about to be deleted.
        if !has_node && !record.is_some_and(Record::is_empty) {
            self.states.entry(state).or_default().add(node);
        }
        match &found.content {
            Err(error) => self.unreadable.add(&format!("{name}: {error}")),
            Ok(Decoded { record, damage }) => {
                if !damage.is_empty() {
                    self.damaged.add(name);
                }
                let by =
                    record.more.identity.as_deref().and_then(|identity| Some(identity.split_once('=')?.0));
                let is_orphaned = match &rules.identity {
                    IdentityBy::Name => by.is_some(),
                    identity => by.is_none_or(|by| by != identity.to_string()),
                };
                if is_orphaned {
                    self.orphaned.add(name);
                }
            }
        }
    }

    fn count_nodes(&mut self, now: Timestamp) {
        for (name, node) in std::mem::take(&mut self.nodes.without_identity) {
            self.states.entry(State::of(Some(&node), None, now)).or_default().add(&name);
        }
        for (key, node) in std::mem::take(&mut self.nodes.by_key) {
            let state = node.state.unwrap_or_else(|| State::of(Some(&node.subject), None, now));
            if state == State::Contested {
                continue;
            }
            let (name, summary, created_at) =
                (node.name.unwrap_or(key), node.subject.summary, node.created_at);
            self.states.entry(state).or_default().add(&name);
            if matches!(state, State::Pending | State::New | State::Changed) {
                self.waiting.insert(name, Waiting { state, summary, created_at });
            }
        }
        for (identity, nodes) in &self.nodes.contested {
            let contested = self.states.entry(State::Contested).or_default();
            nodes.iter().for_each(|name| contested.add(&format!("{name} ({identity})")));
        }
    }

    /// The problems. A problem that may be work in progress counts if an earlier survey has seen it, too.
    pub(crate) fn findings(&self, limits: &Limits, before: Option<&Self>, hints: &Hints) -> Vec<Finding> {
        let (explain, none) = (hints.plugin("explain NODE"), Names::default());
        let of = |state| self.states.get(&state).unwrap_or(&none);
        let late = |state| {
            let mut names = Names::default();
            let due = self.waiting.iter().filter(|(_, node)| node.state == state && limits.is_due(node));
            for (name, node) in due {
                let seen = before.and_then(|before| before.waiting.get(name));
                if seen.is_some_and(|seen| seen.is_same(node)) {
                    names.add(name);
                }
            }
            names
        };
        let overdue = age(SignedDuration::try_from(limits.overdue).unwrap_or(SignedDuration::MAX));
        let first = self.unreadable.names.first().and_then(|name| name.split(':').next()).unwrap_or_default();
        let keep = hints.kubectl(&format!("annotate node NODE --overwrite {KEEP}=KEYS"));
        let mut findings = Vec::new();
        let mut add = |severity, reason: &'static str, names: &Names, what: &str, fix: &str| {
            if names.count > 0 {
                let thing = if reason.starts_with("record-") { "record" } else { "node" };
                let message = format!("{} {what}: {}", counted(names.count, thing), names.few());
                findings.push(Finding::new(severity, reason, message).fix(fix));
            }
        };
        let (error, warning) = (Severity::Error, Severity::Warning);
        let edit = hints.in_namespace(&format!("edit configmap {first}"));
        add(error, "record-unreadable", &self.unreadable, "that can't be read", &edit);
        add(
            error,
            "identity-contested",
            of(State::Contested),
            "with the identity of another, left alone",
            &explain,
        );
        add(
            error,
            "other-machine",
            of(State::OtherMachine),
            "of another machine, kept out by the fence",
            &explain,
        );
        let what = format!("older than {overdue} and not restored");
        add(error, "restore-overdue", &late(State::Pending), &what, &explain);
        let what = format!("older than {overdue} and not stored");
        add(error, "not-stored", &late(State::New), &what, &explain);
        add(error, "labels-not-stored", &late(State::Changed), "with other labels than the record", &explain);
        add(
            warning,
            "no-identity",
            of(State::NoIdentity),
            "without the identity of the rules, left alone",
            &explain,
        );
        add(
            warning,
            "record-damaged",
            &self.damaged,
            "of which a part can't be read",
            &hints.plugin("get -o wide"),
        );
        let what = "filed by another identity than the rules have, so that no node finds it";
        add(warning, "record-orphaned", &self.orphaned, what, &hints.plugin("export -f records.yaml"));
        let what = format!("with an annotation {KEEP} that can't be read, so that all labels are kept");
        add(warning, "keep-list-unreadable", &self.nodes.bad_keep_lists, &what, &keep);
        findings
    }

    /// True if a second survey is needed to tell problems from work in progress.
    pub(crate) fn is_unsure(&self, limits: &Limits) -> bool {
        self.waiting.values().any(|node| limits.is_due(node))
    }
}

/// ConfigMaps with the name of a record that are none, or have lost their label: the storer can't write that record.
pub(crate) async fn strays(cluster: &Cluster) -> Vec<Finding> {
    let others = match cluster.records.list_metadata(&others()).await {
        Ok(others) => others.items,
        Err(error) => return vec![Finding::unknown("records-unknown", in_one_line(&error))],
    };
    let others = others.iter().filter(|other| is_record_name(&other.name_any())).take(NAMED);
    let finding = |other: &PartialObjectMeta<ConfigMap>| {
        let name = other.name_any();
        let is_record = other.annotations().get(NODE).is_some_and(|node| record_name(node) == name);
        let (message, fix) = match is_record {
            true => (
                format!(
                    "the record {name} has lost its label {}={}, so nobody reads it",
                    MANAGED_BY.0, MANAGED_BY.1
                ),
                format!("label configmap {name} --overwrite {}={}", MANAGED_BY.0, MANAGED_BY.1),
            ),
            false => (
                format!("configmap {name} is no record, so nothing can be stored under this name"),
                format!("delete configmap {name}"),
            ),
        };
        Finding::error("record-name-taken", message).fix(cluster.hints.in_namespace(&fix))
    };
    others.map(finding).collect()
}

/// When a state is a problem.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) now: Timestamp,
    /// A node that is older than this should have its labels, and a record.
    pub(crate) overdue: Duration,
}

impl Limits {
    /// True if a daemon should have handled the node by now.
    fn is_due(&self, node: &Waiting) -> bool {
        let age = |at| Duration::try_from(self.now.duration_since(at)).unwrap_or_default();
        node.state == State::Changed || node.created_at.is_none_or(|at| age(at) >= self.overdue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_names_are_kept_in_order() {
        let mut names = Names::default();
        (0..30).rev().for_each(|number| names.add(&format!("n{number:02}")));
        assert_eq!((names.count, names.names.len()), (30, NAMED));
        assert_eq!(names.few(), "n00, n01, n02, n03, n04 and 25 more");
    }
}
