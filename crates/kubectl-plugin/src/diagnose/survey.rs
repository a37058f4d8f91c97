//! All nodes and records, and the problems with them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, Hash, RandomState};
use std::time::{Duration, Instant};

use globset::GlobMatcher;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{ListParams, PartialObjectMeta};
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
use super::{Finding, few};
use crate::cluster::{Cluster, fold};
use crate::hints::Hints;
use crate::output::{age, counted};

/// This many names are kept of each kind.
const NAMED: usize = 10;

/// A list may take this long: there is work to do for each object, and the cluster may be far away.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

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
        let source = cluster.node_source(Detail::WhatIsKept).allowing(PATIENCE);
        fold(&source, Self::default(), move |nodes, object| {
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
    name: Box<str>,
    state: State,
    summary: NodeSummary,
    created_at: Option<Timestamp>,
}

/// All nodes and records at one time.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    nodes: Nodes,
    pub(crate) records: usize,
    pub(crate) states: BTreeMap<State, Names>,
    pub(crate) empty: usize,
    /// The latest change that was stored, and its node.
    pub(crate) latest: Option<(Timestamp, String)>,
    waiting: Vec<Waiting>,
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
        let source = cluster.record_source().allowing(PATIENCE);
        let survey = fold(&source, begin, move |survey, object| {
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
        if record.is_some_and(Record::is_empty) {
            self.empty += 1;
        } else if !has_node {
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
                let latest = self.latest.as_ref().map(|(at, _)| *at);
                if let Some(at) = record.captured_at.filter(|at| latest.is_none_or(|latest| *at > latest)) {
                    self.latest = Some((at, record.node.clone()));
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
                self.waiting.push(Waiting { name, state, summary, created_at });
            }
        }
        for name in self.nodes.contested.values().flatten() {
            self.states.entry(State::Contested).or_default().add(name);
        }
    }

    /// The node that has been in this state for longest, as far as its age tells.
    pub(crate) fn oldest(&self, state: State) -> Option<(Timestamp, &str)> {
        let waiting = self.waiting.iter().filter(|node| node.state == state);
        waiting.filter_map(|node| Some((node.created_at?, &*node.name))).min()
    }

    /// The problems, and if some of them may be work in progress, so that a second survey is needed.
    pub(crate) fn findings(
        &self,
        limits: &Limits,
        memory: &mut Memory,
        hints: &Hints,
    ) -> (Vec<Finding>, bool) {
        let mut findings = Vec::new();
        let names = |state| self.states.get(&state);
        let explain = hints.plugin("explain NODE");
        for unreadable in &self.unreadable.names {
            let name = unreadable.split(':').next().unwrap_or_default();
            let edit = hints.in_namespace(&format!("edit configmap {name}"));
            findings.push(Finding::error("record-unreadable", format!("configmap {unreadable}")).fix(edit));
        }
        more(
            &mut findings,
            "record-unreadable",
            &self.unreadable,
            "record can't be read",
            "records can't be read",
        );
        for (identity, nodes) in self.nodes.contested.iter().take(NAMED) {
            let message = format!(
                "several nodes have the identity {identity}, and are left alone: {}",
                few(nodes, nodes.len())
            );
            findings.push(Finding::error("identity-contested", message).fix(explain.clone()));
        }
        if let Some(others) = names(State::OtherMachine) {
            let message = format!(
                "{} of another machine than the record, and the rules have a fence: {}",
                counted(others.count, "node"),
                others.few()
            );
            findings.push(Finding::error("other-machine", message).fix(explain.clone()));
        }
        let (mut late, mut is_unsure) = (BTreeMap::<State, Names>::new(), false);
        for node in &self.waiting {
            let is_due =
                node.state == State::Changed || node.created_at.is_none_or(|at| limits.is_overdue(at));
            let labels = (node.state == State::Changed).then_some(node.summary.labels);
            let is_settled =
                memory.has_seen(&node.name, (node.state, node.summary.uid, labels), limits.patience);
            if is_due && is_settled {
                late.entry(node.state).or_default().add(&node.name);
            }
            is_unsure |= is_due && !is_settled;
        }
        let overdue = age(SignedDuration::try_from(limits.overdue).unwrap_or(SignedDuration::MAX));
        for (state, nodes) in &late {
            let (count, few) = (counted(nodes.count, "node"), nodes.few());
            let (reason, message) = match state {
                State::Pending => {
                    ("restore-overdue", format!("{count} older than {overdue}, and not restored: {few}"))
                }
                State::New => {
                    ("record-overdue", format!("{count} older than {overdue}, and without a record: {few}"))
                }
                _ => ("labels-not-stored", format!("{count} with other labels than the record: {few}")),
            };
            findings.push(Finding::error(reason, message).fix(explain.clone()));
        }
        if let Some(nodes) = names(State::NoIdentity) {
            let message = format!(
                "{} without the identity that the rules ask for, and left alone: {}",
                counted(nodes.count, "node"),
                nodes.few()
            );
            findings.push(Finding::warning("no-identity", message).fix(explain.clone()));
        }
        for (names, reason, message, fix) in [
            (
                &self.damaged,
                "record-damaged",
                "damaged, so that a part of it is not used",
                hints.plugin("get NODE"),
            ),
            (
                &self.orphaned,
                "record-orphaned",
                "not filed by the identity of the rules, so that no node finds it, and it is deleted after the retention",
                hints.plugin("export -f records.yaml"),
            ),
        ] {
            if names.count > 0 {
                let verb = if names.count == 1 { "is" } else { "are" };
                let message = format!("{} {verb} {message}: {}", counted(names.count, "record"), names.few());
                findings.push(Finding::warning(reason, message).fix(fix));
            }
        }
        for node in &self.nodes.bad_keep_lists.names {
            let message =
                format!("the annotation {KEEP} of a node can't be read, so all its labels are kept: {node}");
            let name = node.split(' ').next().unwrap_or_default();
            let fix = hints.kubectl(&format!("annotate node {name} --overwrite {KEEP}=KEYS"));
            findings.push(Finding::warning("keep-list-unreadable", message).fix(fix));
        }
        (findings, is_unsure)
    }
}

fn more(findings: &mut Vec<Finding>, reason: &'static str, names: &Names, one: &str, many: &str) {
    match names.count - names.names.len() {
        0 => {}
        1 => findings.push(Finding::error(reason, format!("1 more {one}"))),
        more => findings.push(Finding::error(reason, format!("{more} more {many}"))),
    }
}

/// ConfigMaps with the name of a record that are none, or have lost their label: the storer can't write that record.
pub(crate) async fn strays(cluster: &Cluster) -> Vec<Finding> {
    let params = ListParams::default().labels(&format!("{}!={}", MANAGED_BY.0, MANAGED_BY.1));
    let others = match cluster.records.list_metadata(&params).await {
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
    /// A state that has not changed for this long is not work in progress.
    pub(crate) patience: Duration,
    /// A node that is older than this should have its labels, and a record.
    pub(crate) overdue: Duration,
}

impl Limits {
    fn is_overdue(&self, created_at: Timestamp) -> bool {
        Duration::try_from(self.now.duration_since(created_at)).is_ok_and(|age| age >= self.overdue)
    }
}

/// What earlier looks have seen.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    hasher: RandomState,
    seen: HashMap<Box<str>, (u64, Instant)>,
}

impl Memory {
    /// True if the sight of this name has been the same for this long.
    pub(crate) fn has_seen(&mut self, name: &str, sight: impl Hash, patience: Duration) -> bool {
        let (sight, now) = (self.hasher.hash_one(sight), Instant::now());
        let seen = self.seen.entry(name.into()).or_insert((sight, now));
        if seen.0 != sight {
            *seen = (sight, now);
        }
        now.duration_since(seen.1) >= patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sight_that_changes_counts_anew() {
        let mut memory = Memory::default();
        assert!(memory.has_seen("a", 1, Duration::ZERO));
        assert!(!memory.has_seen("a", 1, Duration::from_secs(3600)));
        memory.seen.insert("a".into(), (memory.hasher.hash_one(1), Instant::now() - Duration::from_secs(5)));
        assert!(memory.has_seen("a", 1, Duration::from_secs(5)));
        assert!(!memory.has_seen("a", 2, Duration::from_secs(5)), "somebody works on it");
    }

    #[test]
    fn the_first_names_are_kept_in_order() {
        let mut names = Names::default();
        (0..30).rev().for_each(|number| names.add(&format!("n{number:02}")));
        assert_eq!((names.count, names.names.len()), (30, NAMED));
        assert_eq!(names.few(), "n00, n01, n02, n03, n04 and 25 more");
    }
}
