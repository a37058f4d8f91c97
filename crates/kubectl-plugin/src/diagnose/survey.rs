//! All nodes and records, and the problems with them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use globset::GlobMatcher;
use jiff::{SignedDuration, Timestamp};
use label_storage::name::node_in_record_name;
use label_storage::node::KEEP;
use label_storage::record::{Decoded, Unreadable};
use label_storage::restore::Why;
use label_storage::rules::{IdentityBy, Patterns};
use label_storage::withheld::WithheldCounts;
use label_storage::{Record, Rules};
use label_storage_runtime::call::Error;
use label_storage_runtime::projection::{Detail, Projection};
use label_storage_runtime::records::Found;
use label_storage_wire::Object;
use serde::Serialize;

use super::state::{State, Subject};
use super::{Finding, Severity};
use crate::cluster::{Cluster, fold};
use crate::hints::Hints;
use crate::output::{age, counted};

/// This many names are kept of each kind, and half of them are shown in messages.
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
    withheld: WithheldCounts,
}

impl SeenNode {
    /// True if no daemon has worked on it since.
    fn is_same(&self, later: &Self) -> bool {
        let (one, other) = (&self.subject.summary, &later.subject.summary);
        let has_labels = self.state != Some(State::Changed) || one.labels == other.labels;
        self.state == later.state && one.uid == other.uid && has_labels
    }
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
        self.by_key.insert(
            Box::from(key),
            SeenNode { name, subject, created_at, state: None, withheld: WithheldCounts::default() },
        );
    }

    /// The state of a record, and true if its node exists.
    pub(crate) fn state_of(&mut self, found: &Found, now: Timestamp) -> (State, bool) {
        let key = match &found.content {
            Ok(decoded) => Some(decoded.record.filed_under()),
            Err(_) => found.config_map.metadata.name.as_deref().and_then(node_in_record_name),
        };
        let node = key.and_then(|key| self.by_key.get_mut(key));
        let state = State::of(node.as_ref().map(|node| &node.subject), Some(found), now);
        let is_there = node.is_some();
        if let Some(node) = node {
            node.state = Some(state);
            node.withheld =
                Found::stored(Some(found)).map(Record::summary).withheld_from(&node.subject.summary);
        }
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
        let shown: Vec<&str> = self.names.iter().take(NAMED / 2).map(String::as_str).collect();
        match self.count.saturating_sub(shown.len()) {
            0 => shown.join(", "),
            more => format!("{} and {more} more", shown.join(", ")),
        }
    }
}

/// All nodes and records at one time.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    nodes: Nodes,
    pub(crate) records: usize,
    pub(crate) states: BTreeMap<State, Names>,
    /// The nodes that a daemon should have handled by now, by name.
    late: HashMap<Box<str>, SeenNode>,
    /// The number of stored items that were not restored to existing nodes, by reason.
    pub(crate) withheld: BTreeMap<&'static str, u32>,
    withheld_from: Names,
    /// The nodes that are not restored yet: the key of each, and its name.
    pending: Vec<(Box<str>, Box<str>)>,
    /// A node that is older than this should have its labels, and a record. `None`: no node is late.
    overdue: Option<Duration>,
    damaged: Names,
    unreadable: Names,
    /// ConfigMaps with the name of a record that are not records.
    foreign: Names,
    /// The records that no node uses.
    orphaned: Names,
}

impl Survey {
    /// Lists all nodes, then all records.
    pub(crate) async fn take(
        cluster: &Cluster,
        only: Option<&GlobMatcher>,
        now: Timestamp,
        overdue: Option<Duration>,
    ) -> Result<Self, Error> {
        let begin = Self { nodes: Nodes::list(cluster, only).await?, overdue, ..Self::default() };
        let (rules, only) = (cluster.rules.clone(), only.cloned());
        let survey = fold(cluster.record_source(), begin, move |survey, object| {
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
            Err(Unreadable::Foreign(_)) => self.foreign.add(name),
            Err(error) => self.unreadable.add(&format!("{name}: {error}")),
            Ok(Decoded { record, damage }) => {
                let identity = record.more.identity.as_deref().and_then(|identity| identity.split_once('='));
                let by = identity.map_or_else(|| IdentityBy::Name.to_string(), |(by, _)| by.to_owned());
                let orphaned = (by != rules.identity.to_string()).then_some(&mut self.orphaned);
                let damaged = (!damage.is_empty()).then_some(&mut self.damaged);
                orphaned.into_iter().chain(damaged).for_each(|names| names.add(name));
            }
        }
    }

    fn count_nodes(&mut self, now: Timestamp) {
        let overdue = self.overdue.unwrap_or_default();
        for (name, node) in std::mem::take(&mut self.nodes.without_identity) {
            self.states.entry(State::of(Some(&node), None, now)).or_default().add(&name);
        }
        for (key, mut node) in std::mem::take(&mut self.nodes.by_key) {
            let state = *node.state.get_or_insert_with(|| State::of(Some(&node.subject), None, now));
            let name = node.name.take().unwrap_or_else(|| key.clone());
            if !node.withheld.is_empty() {
                self.withheld_from.add(&name);
                for why in Why::ALL.iter().filter(|why| node.withheld.get(**why) > 0) {
                    *self.withheld.entry(why.as_str()).or_default() += node.withheld.get(*why);
                }
            }
            if state == State::Pending {
                self.pending.push((key, name.clone()));
            }
            if state != State::Contested {
                self.states.entry(state).or_default().add(&name);
            }
            let is_young = |at| Duration::try_from(now.duration_since(at)).unwrap_or_default() < overdue;
            let is_late = match state {
                State::Pending | State::New => !node.created_at.is_some_and(is_young),
                state => state == State::Changed,
            };
            if is_late && self.overdue.is_some() {
                self.late.insert(name, node);
            }
        }
        for (identity, nodes) in &self.nodes.contested {
            let contested = self.states.entry(State::Contested).or_default();
            nodes.iter().for_each(|name| contested.add(&format!("{name} ({identity})")));
        }
    }

    /// True if some of the problems may be work in progress.
    pub(crate) fn is_unsure(&self) -> bool {
        !self.late.is_empty()
    }

    /// Keeps only the nodes that were late in an earlier survey, too.
    pub(crate) fn confirm(&mut self, earlier: &Self) {
        self.late.retain(|name, node| earlier.late.get(name).is_some_and(|seen| seen.is_same(node)));
    }

    fn late(&self, state: State) -> Names {
        let mut names = Names::default();
        let late = self.late.iter().filter(|(_, node)| node.state == Some(state));
        late.for_each(|(name, _)| names.add(name));
        names
    }

    /// The nodes that wait for final labels which no storer has stored yet.
    pub(crate) fn awaiting_final_labels(
        &self,
        hints: &Hints,
        is_kept: impl Fn(&str) -> bool,
    ) -> Option<Finding> {
        let mut names = Names::default();
        let waiting = self.pending.iter().filter(|(key, _)| is_kept(key));
        waiting.for_each(|(_, name)| names.add(name));
        let message = format!(
            "{} waiting for the final labels of the node that was deleted: {}",
            counted(names.count, "node"),
            names.few()
        );
        let finding = Finding::new(Severity::Note, "awaiting-final-labels", message);
        (names.count > 0).then(|| finding.fix(hints.plugin("explain NODE")))
    }

    pub(crate) fn findings(&self, hints: &Hints) -> Vec<Finding> {
        use Severity::{Error, Warning};
        use State::{Changed, Contested, New, NoIdentity, OtherMachine, Pending};
        let none = Names::default();
        let of = |state| self.states.get(&state).unwrap_or(&none);
        let [pending, new, changed] = [Pending, New, Changed].map(|state| self.late(state));
        let overdue =
            age(SignedDuration::try_from(self.overdue.unwrap_or_default()).unwrap_or(SignedDuration::MAX));
        let first = self.unreadable.names.first().and_then(|name| name.split(':').next()).unwrap_or_default();
        let keep = format!("with an annotation {KEEP} that can't be read, so that all labels are kept");
        let orphaned = "filed by another identity than the rules have, so that no node uses it";
        let why = hints.plugin("explain NODE");
        let edit = hints.in_namespace(&format!("edit configmap {first}"));
        let taken = "whose name is taken by a configmap that is not a record, so that nothing is stored";
        let foreign = self.foreign.names.first().map(String::as_str).unwrap_or_default();
        let delete = hints.in_namespace(&format!("delete configmap {foreign}"));
        let annotate = hints.kubectl(&format!("annotate node NODE --overwrite {KEEP}=KEYS"));
        let [get, export] = ["get -o wide", "export -f records.yaml"].map(|words| hints.plugin(words));
        let finding = |severity, reason: &'static str, names: &Names, problem: &str, fix: &str| {
            let thing = if reason.starts_with("record-") { "record" } else { "node" };
            let message = format!("{} {problem}: {}", counted(names.count, thing), names.few());
            (names.count > 0).then(|| Finding::new(severity, reason, message).fix(fix))
        };
        let late = |verb: &str| format!("older than {overdue} and not {verb}");
        let reasons: Vec<_> = self.withheld.iter().map(|(why, count)| format!("{why}: {count}")).collect();
        let withheld = format!("to which some stored items were not restored ({})", reasons.join(", "));
        let (contested, other) = (of(Contested), of(OtherMachine));
        let all = [
            finding(Error, "record-unreadable", &self.unreadable, "that can't be read", &edit),
            finding(Error, "record-name-taken", &self.foreign, taken, &delete),
            finding(
                Error,
                "identity-contested",
                contested,
                "with the identity of another node, not stored or restored",
                &why,
            ),
            finding(
                Error,
                "other-machine",
                other,
                "on another machine, excluded by identity.otherMachine",
                &why,
            ),
            finding(Error, "restore-overdue", &pending, &late("restored"), &why),
            finding(Error, "not-stored", &new, &late("stored"), &why),
            finding(Error, "labels-not-stored", &changed, "with labels that differ from the record", &why),
            finding(Warning, "items-withheld", &self.withheld_from, &withheld, &why),
            finding(
                Warning,
                "no-identity",
                of(NoIdentity),
                "without the identity that the rules require",
                &why,
            ),
            finding(Warning, "record-damaged", &self.damaged, "with a part that can't be read", &get),
            finding(Warning, "record-orphaned", &self.orphaned, orphaned, &export),
            finding(Warning, "keep-list-unreadable", &self.nodes.bad_keep_lists, &keep, &annotate),
        ];
        all.into_iter().flatten().collect()
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
