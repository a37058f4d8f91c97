//! One look at everything: Nodes, records and Leases. Of each Node and record no more is kept than a decision needs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, bail};
use globset::GlobMatcher;
use jiff::Timestamp;
use label_storage::Record;
use label_storage::name::node_in_record_name;
use label_storage::node::Machine;
use label_storage::record::Decoded;
use label_storage::store::Stored;
use label_storage::summary::{NodeSummary, RecordSummary};
use label_storage_runtime::call::Error;
use label_storage_runtime::projection::{Detail, Projection};
use label_storage_runtime::records::Found;
use label_storage_wire::Object;
use serde::Serialize;

use super::judge::{Standing, judge};
use crate::cluster::Cluster;
use crate::leases::{Held, all_held};

/// So many are named of each kind.
pub(super) const NAMED: usize = 10;

/// All that was seen.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// When.
    pub(super) at: Timestamp,
    /// What could not be seen.
    pub(super) missing: Vec<Right>,
    /// `None` where one of both could not be listed: then nobody knows how Nodes stand.
    pub(super) standings: Option<Standings>,
    pub(super) nodes: Option<usize>,
    pub(super) records: Option<Records>,
    pub(super) leases: Option<Vec<Held>>,
}

/// How Nodes stand.
#[derive(Debug, Default)]
pub(super) struct Standings {
    pub(super) up_to_date: usize,
    pub(super) without_labels: usize,
    pub(super) unreadable: usize,
    pub(super) ignored: usize,
    pub(super) not_selected: usize,
    pub(super) no_identity: usize,
    /// Those that are another machine than their record's, where the rules have a fence.
    pub(super) other_machine: Vec<String>,
    /// What several Nodes claim to be, and which.
    pub(super) contested: BTreeMap<String, BTreeSet<String>>,
    /// Those that wait for one of the daemons.
    pub(super) waiting: Vec<Waiting>,
    /// Records whose Nodes are not there.
    pub(super) departed: usize,
}

/// A Node that waits for one of the daemons.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) node: Box<str>,
    /// One of those that wait for something.
    pub(super) standing: Standing,
    pub(super) summary: NodeSummary,
    pub(super) created_at: Option<Timestamp>,
}

/// What is stored.
#[derive(Debug, Default)]
pub(super) struct Records {
    all: HashMap<Box<str>, Stored<RecordSummary>>,
    /// Whose they are, where that counts.
    machines: HashMap<Box<str>, Machine>,
    pub(super) empty: usize,
    pub(super) damaged: usize,
    pub(super) unreadable: usize,
    /// The first of those that can't be read, and why.
    pub(super) complaints: Vec<(String, String)>,
    /// When labels were last stored, and whose.
    pub(super) latest: Option<(Timestamp, String)>,
}

impl Records {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    fn see(&mut self, eyes: &Projection, only: Option<&GlobMatcher>, object: Object) {
        let name = object.name.clone();
        let found = Found::from(object).seen_through(&eyes.rules, None);
        let (under, node) = match &found.content {
            Ok(Decoded { record, .. }) => (record.filed_under(), record.node.as_str()),
            // Where it does not say whose it is, nobody's: no Node has such a name.
            Err(_) => match node_in_record_name(&name) {
                Some(node) => (node, node),
                None => (name.as_str(), name.as_str()),
            },
        };
        if only.is_some_and(|only| !only.is_match(node)) {
            return;
        }
        let (under, stored) = (Box::<str>::from(under), Found::stored(Some(&found)).map(Record::summary));
        match &found.content {
            Ok(Decoded { record, damage }) => {
                if eyes.rules.is_fenced() {
                    self.machines.insert(under.clone(), record.more.machine.clone());
                }
                self.empty += usize::from(record.is_empty());
                self.damaged += usize::from(!damage.is_empty());
                let latest = self.latest.as_ref().map(|(at, _)| *at);
                if let Some(at) = record.captured_at.filter(|at| latest.is_none_or(|latest| *at > latest)) {
                    self.latest = Some((at, record.node.clone()));
                }
            }
            Err(error) => {
                self.unreadable += 1;
                if self.complaints.len() < NAMED {
                    self.complaints.push((name, error.to_string()));
                }
            }
        }
        self.all.insert(under, stored);
    }
}

/// A Node, by what its record is filed under.
#[derive(Debug)]
struct Seen {
    /// Its name, where that is something else.
    name: Option<Box<str>>,
    summary: NodeSummary,
    created_at: Option<Timestamp>,
    /// Where that counts.
    machine: Option<Box<Machine>>,
}

/// All Nodes.
#[derive(Debug, Default)]
struct Nodes {
    count: usize,
    all: HashMap<Box<str>, Seen>,
    contested: BTreeMap<String, BTreeSet<String>>,
    /// Those that are nobody: no record is theirs, whatever it is filed under.
    nobodies: Vec<Standing>,
}

impl Nodes {
    fn see(&mut self, eyes: &Projection, only: Option<&GlobMatcher>, object: Object, now: Timestamp) {
        if only.is_some_and(|only| !only.is_match(&object.name)) {
            return;
        }
        let created_at = object.created_at;
        // The API server sends no other; the daemons pass over it, too.
        let Ok(node) = eyes.node(object) else { return };
        self.count += 1;
        let summary = node.summary();
        if node.extras.is_unidentified {
            return self.nobodies.push(judge(summary, Stored::Nothing, false, now));
        }
        let under = node.filed_under();
        if let Some(other) = self.all.get(under) {
            let other = other.name.as_deref().unwrap_or(under).to_owned();
            self.contested.entry(under.to_owned()).or_default().extend([other, node.name]);
            return;
        }
        let name = (under != node.name).then(|| Box::from(node.name.as_str()));
        let machine = eyes.rules.is_fenced().then(|| Box::new(node.extras.machine.clone()));
        self.all.insert(Box::from(under), Seen { name, summary, created_at, machine });
    }
}

impl Standings {
    fn of(nodes: Nodes, records: &Records, now: Timestamp) -> Self {
        let mut standings = Self { contested: nodes.contested, ..Self::default() };
        let is_departed = |under: &str| !nodes.all.contains_key(under);
        let stored = records
            .all
            .iter()
            .filter(|(_, stored)| matches!(stored, Stored::Record(record) if !record.is_empty));
        standings.departed = stored.filter(|(under, _)| is_departed(under)).count();
        for standing in nodes.nobodies {
            standings.count(standing);
        }
        for (under, seen) in nodes.all {
            if standings.contested.contains_key(&*under) {
                continue;
            }
            let stored = records.all.get(&under).copied().unwrap_or(Stored::Nothing);
            let is_fenced_off = seen
                .machine
                .zip(records.machines.get(&under))
                .is_some_and(|(own, its)| own.differs_from(its));
            let standing = judge(seen.summary, stored, is_fenced_off, now);
            if standing == Standing::OtherMachine {
                standings.other_machine.push(seen.name.unwrap_or(under).into());
                continue;
            }
            if !standings.count(standing) {
                let (node, created_at) = (seen.name.unwrap_or(under), seen.created_at);
                standings.waiting.push(Waiting { node, standing, summary: seen.summary, created_at });
            }
        }
        standings.other_machine.sort_unstable();
        standings
    }

    /// Counts a Node that waits for nobody. Says whether it is one.
    fn count(&mut self, standing: Standing) -> bool {
        let counter = match standing {
            Standing::UpToDate => &mut self.up_to_date,
            Standing::WithoutLabels => &mut self.without_labels,
            Standing::Unreadable => &mut self.unreadable,
            Standing::Ignored => &mut self.ignored,
            Standing::NotSelected => &mut self.not_selected,
            Standing::NoIdentity => &mut self.no_identity,
            Standing::Unstored | Standing::Differs | Standing::Pending | Standing::OtherMachine => {
                return false;
            }
        };
        *counter += 1;
        true
    }
}

/// A right that is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Right {
    verb: &'static str,
    resource: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
}

impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { verb, resource, namespace } = self;
        write!(f, "{verb} {resource}")?;
        namespace.as_ref().map_or(Ok(()), |namespace| write!(f, " in namespace {namespace}"))
    }
}

impl Look {
    /// Looks at everything at the same time. What may not be seen is left out, and named.
    pub(super) async fn take(cluster: &Cluster, only: Option<&GlobMatcher>) -> Result<Self> {
        let now = Timestamp::now();
        let (nodes, records, leases) = tokio::join!(
            nodes(cluster, only, now),
            records(cluster, only),
            all_held(cluster.client.clone(), &cluster.namespace),
        );
        let mut look = Self { at: now, ..Self::default() };
        let there = Some(cluster.namespace.clone());
        let nodes = look.unless_forbidden(nodes, "nodes", None)?;
        look.records = look.unless_forbidden(records, "configmaps", there.clone())?;
        look.leases = look.unless_forbidden(leases, "leases.coordination.k8s.io", there)?;
        if let (None, None, None) = (&nodes, &look.records, &look.leases) {
            let missing: Vec<_> = look.missing.iter().map(ToString::to_string).collect();
            bail!("nothing of it may be seen: you may not {}", missing.join(", nor "));
        }
        look.nodes = nodes.as_ref().map(|nodes| nodes.count);
        look.standings =
            nodes.zip(look.records.as_ref()).map(|(nodes, records)| Standings::of(nodes, records, now));
        Ok(look)
    }

    fn unless_forbidden<T>(
        &mut self,
        answer: Result<T, Error>,
        resource: &'static str,
        namespace: Option<String>,
    ) -> Result<Option<T>> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.code == Some(403) => {
                self.missing.push(Right { verb: "list", resource, namespace });
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

async fn nodes(cluster: &Cluster, only: Option<&GlobMatcher>, now: Timestamp) -> Result<Nodes, Error> {
    let (eyes, only) = (cluster.projection(Detail::WhatIsKept), only.cloned());
    let seen = Arc::new(Mutex::new(Nodes::default()));
    let all = Arc::clone(&seen);
    let each = move |object| lock(&all).see(&eyes, only.as_ref(), object, now);
    cluster.node_source(Detail::WhatIsKept).list(each).await?;
    Ok(std::mem::take(&mut *lock(&seen)))
}

async fn records(cluster: &Cluster, only: Option<&GlobMatcher>) -> Result<Records, Error> {
    let (eyes, only) = (cluster.projection(Detail::WhatIsKept), only.cloned());
    let seen = Arc::new(Mutex::new(Records::default()));
    let all = Arc::clone(&seen);
    let each = move |object| lock(&all).see(&eyes, only.as_ref(), object);
    cluster.record_source().list(each).await?;
    Ok(std::mem::take(&mut *lock(&seen)))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
