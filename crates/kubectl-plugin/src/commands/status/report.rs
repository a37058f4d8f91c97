//! What follows from a look: figures, and what is not well.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::judge::Standing;
use super::look::{Look, NAMED, Right, Standings, Waiting};
use super::memory::{Memory, Sight, Subject};
use super::shards::{Scope, Shard, State, shards};
use crate::output::age;

/// What counts as what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// What has not changed for this long is no work in progress.
    pub(super) patience: Duration,
    /// What a Node waits for longer than this is overdue.
    pub(super) overdue: Duration,
}

/// How it all stands.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) healthy: bool,
    /// What is not well.
    pub(super) reasons: Vec<Reason>,
    pub(super) namespace: String,
    /// When.
    pub(super) at: String,
    pub(super) nodes: Option<Nodes>,
    pub(super) records: Option<Records>,
    /// `null` where it may not be seen.
    pub(super) shards: Option<Vec<Shard>>,
    /// What may not be seen, and would have to be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) missing_rights: Vec<Right>,
    /// Whether something may be unwell that may as well be work in progress: a later look tells.
    #[serde(skip)]
    pub(super) is_unsure: bool,
}

/// Something that is not well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reason {
    /// A word for scripts.
    pub(super) reason: &'static str,
    /// For people.
    pub(super) message: String,
}

impl Reason {
    /// Whether it names Nodes that more can be said of.
    pub(super) fn is_about_nodes(&self) -> bool {
        matches!(
            self.reason,
            "restore-overdue"
                | "record-overdue"
                | "labels-not-stored"
                | "identity-contested"
                | "other-machine"
        )
    }
}

/// Nodes that are there. Where records may not be seen there is nothing but the total.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Nodes {
    pub(super) total: usize,
    #[serde(flatten)]
    pub(super) standing: Option<NodeCounts>,
}

/// How many stand how.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeCounts {
    pub(super) up_to_date: usize,
    pub(super) without_labels: usize,
    pub(super) without_record: Group,
    pub(super) differing: Group,
    pub(super) pending_restore: Group,
    /// Those that the fence keeps from being restored.
    pub(super) other_machine: Named,
    pub(super) record_unreadable: usize,
    /// What several Nodes claim to be, and which do.
    pub(super) contested: Vec<Contested>,
    pub(super) ignored: usize,
    pub(super) not_selected: usize,
    pub(super) without_identity: usize,
}

/// Nodes that wait for the same thing.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Group {
    pub(super) count: usize,
    /// The one that is there for longest.
    pub(super) oldest: Option<Oldest>,
    /// The first of them by name.
    pub(super) nodes: Vec<String>,
}

/// Nodes that stand in the same way.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Named {
    pub(super) count: usize,
    /// The first of them by name.
    pub(super) nodes: Vec<String>,
}

/// A Node, and for how long it has been there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Oldest {
    pub(super) node: String,
    pub(super) created_at: String,
    pub(super) age_seconds: i64,
}

/// Something that several Nodes claim to be.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Contested {
    pub(super) identity: String,
    pub(super) count: usize,
    pub(super) nodes: Vec<String>,
}

/// What is stored.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Records {
    pub(super) total: usize,
    /// Of Nodes that are not there; `null` where Nodes may not be seen.
    pub(super) departed: Option<usize>,
    pub(super) empty: usize,
    pub(super) damaged: usize,
    pub(super) unreadable: Unreadable,
    /// When labels were last stored.
    pub(super) latest: Option<Latest>,
}

/// Records that can't be read.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Unreadable {
    pub(super) count: usize,
    /// The first of them, and why.
    pub(super) records: BTreeMap<String, String>,
}

/// The latest labels that were stored.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Latest {
    pub(super) node: String,
    pub(super) stored_at: String,
    pub(super) age_seconds: i64,
}

impl Report {
    /// What follows from this look, given those before it.
    pub(super) fn of(
        look: Look,
        memory: &mut Memory,
        limits: Limits,
        namespace: &str,
        scope: Scope<'_>,
        instant: Instant,
    ) -> Self {
        let now = look.at;
        let mut findings = Findings { now, instant, limits, memory, reasons: Vec::new(), is_unsure: false };
        for right in &look.missing {
            findings.add("right-missing", format!("not all can be seen: you may not {right}"));
        }
        let records = look.records.as_ref().map(|records| {
            let unreadable = Unreadable {
                count: records.unreadable,
                records: records.complaints.iter().cloned().collect(),
            };
            findings.unreadable(&unreadable);
            let latest = records.latest.as_ref().map(|(at, node)| Latest {
                node: node.clone(),
                stored_at: at.to_string(),
                age_seconds: now.duration_since(*at).as_secs(),
            });
            let departed = look.standings.as_ref().map(|standings| standings.departed);
            let (total, empty, damaged) = (records.len(), records.empty, records.damaged);
            Records { total, departed, empty, damaged, unreadable, latest }
        });
        let standing = look.standings.map(|standings| findings.nodes(standings));
        let nodes = look.nodes.map(|total| Nodes { total, standing });
        let shards = look.leases.map(|leases| findings.shards(&leases, scope));
        let Findings { reasons, is_unsure, .. } = findings;
        memory.end_look();
        Self {
            healthy: reasons.is_empty(),
            reasons,
            namespace: namespace.to_owned(),
            at: now.to_string(),
            nodes,
            records,
            shards,
            missing_rights: look.missing,
            is_unsure,
        }
    }
}

/// Collects what is not well.
struct Findings<'a> {
    now: Timestamp,
    instant: Instant,
    limits: Limits,
    memory: &'a mut Memory,
    reasons: Vec<Reason>,
    is_unsure: bool,
}

impl Findings<'_> {
    fn add(&mut self, reason: &'static str, message: String) {
        self.reasons.push(Reason { reason, message });
    }

    fn age(&self, since: Timestamp) -> String {
        age(self.now.duration_since(since))
    }

    fn unreadable(&mut self, unreadable: &Unreadable) {
        if unreadable.count > 0 {
            let records = counted(unreadable.count, "record");
            let names = names(unreadable.records.keys(), unreadable.count);
            let message =
                format!("{records} can't be read, and will not be until a person mends it: {names}");
            self.add("record-unreadable", message);
        }
    }

    fn nodes(&mut self, standings: Standings) -> NodeCounts {
        let contested: Vec<Contested> = standings
            .contested
            .into_iter()
            .map(|(identity, nodes)| Contested {
                identity,
                count: nodes.len(),
                nodes: nodes.into_iter().take(NAMED).collect(),
            })
            .collect();
        if let Some(first) = contested.first() {
            let (identity, nodes) = (&first.identity, names(first.nodes.iter(), first.count));
            let more = match contested.len() - 1 {
                0 => String::new(),
                more => format!("; and {more} more such"),
            };
            let message = format!("several nodes claim to be {identity}, and are left alone: {nodes}{more}");
            self.add("identity-contested", message);
        }
        let mut fenced_off = standings.other_machine;
        let other_machine =
            Named { count: fenced_off.len(), nodes: fenced_off.drain(..).take(NAMED).collect() };
        if other_machine.count > 0 {
            let nodes = counted(other_machine.count, "node");
            let names = names(other_machine.nodes.iter(), other_machine.count);
            let message = format!(
                "{nodes} of another machine than the record, fenced off until a person has decided: {names}"
            );
            self.add("other-machine", message);
        }
        let waiting = standings.waiting.into_iter();
        let (pending, others): (Vec<_>, Vec<_>) =
            waiting.partition(|node| node.standing == Standing::Pending);
        let (unstored, differs) = others.into_iter().partition(|node| node.standing == Standing::Unstored);
        let overdue = age(SignedDuration::try_from(self.limits.overdue).unwrap_or(SignedDuration::MAX));
        let pending_restore = self.group(pending, "restore-overdue", |nodes, names| {
            format!("{nodes} waiting for labels, though there for over {overdue}: {names}")
        });
        let without_record = self.group(unstored, "record-overdue", |nodes, names| {
            format!("{nodes} without a record, though there for over {overdue}: {names}")
        });
        let differing = self.group(differs, "labels-not-stored", |nodes, names| {
            format!("{nodes} with other labels than the record has, and nobody stores them: {names}")
        });
        NodeCounts {
            up_to_date: standings.up_to_date,
            without_labels: standings.without_labels,
            without_record,
            differing,
            pending_restore,
            other_machine,
            record_unreadable: standings.unreadable,
            contested,
            ignored: standings.ignored,
            not_selected: standings.not_selected,
            without_identity: standings.no_identity,
        }
    }

    /// Nodes that wait for the same thing, and what is to be said of those that have waited for too long.
    fn group(
        &mut self,
        mut nodes: Vec<Waiting>,
        reason: &'static str,
        message: impl FnOnce(String, String) -> String,
    ) -> Group {
        nodes.sort_unstable_by(|one, other| one.node.cmp(&other.node));
        let oldest = nodes.iter().filter_map(|node| Some((node.created_at?, node))).min_by_key(|(at, _)| *at);
        let oldest = oldest.map(|(at, node)| Oldest {
            node: node.node.to_string(),
            created_at: at.to_string(),
            age_seconds: self.now.duration_since(at).as_secs(),
        });
        let (mut unwell, mut named) = (0, Vec::new());
        for node in &nodes {
            if self.is_unwell(node) {
                unwell += 1;
                if named.len() < NAMED {
                    named.push(node.node.to_string());
                }
            }
        }
        if unwell > 0 {
            let message = message(counted(unwell, "node"), names(named.iter(), unwell));
            self.add(reason, message);
        }
        let first = nodes.iter().take(NAMED).map(|node| node.node.to_string()).collect();
        Group { count: nodes.len(), oldest, nodes: first }
    }

    /// Whether what a Node waits for should have come.
    fn is_unwell(&mut self, node: &Waiting) -> bool {
        let uid = node.summary.uid;
        let sight = match node.standing {
            Standing::Pending => Sight::Pending(uid),
            Standing::Unstored => Sight::Unstored(uid),
            _ => Sight::Differs(uid, node.summary.labels),
        };
        let noted = self.memory.note(Subject::Node(node.node.clone()), sight, self.instant);
        // Labels may be changed at any time; what a Node waits for from its beginning may take a while.
        let is_due = node.standing == Standing::Differs
            || node.created_at.is_none_or(|at| {
                Duration::try_from(self.now.duration_since(at)).is_ok_and(|age| age >= self.limits.overdue)
            });
        let is_sure = noted.unchanged_for >= self.limits.patience;
        self.is_unsure |= is_due && !is_sure;
        is_due && is_sure
    }

    fn shards(&mut self, leases: &[crate::leases::Held], scope: Scope<'_>) -> Vec<Shard> {
        let (memory, instant) = (&mut *self.memory, self.instant);
        let note = |subject, sight| memory.note(subject, sight, instant);
        let shards = shards(leases, scope, self.now, self.limits.patience, note);
        for shard in &shards {
            match shard.state {
                State::Home | State::Adopted | State::Retired => (),
                _ if !shard.is_confirmed => self.is_unsure = true,
                _ => self.add("shard-not-held", shard.complaint(|at| self.age(at))),
            }
        }
        shards
    }
}

/// So many of something.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The first few names, and how many more there are.
pub(super) fn names<'a>(names: impl Iterator<Item = &'a String>, count: usize) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<&str> = names.take(SHOWN).map(String::as_str).collect();
    let more = count.saturating_sub(shown.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests;
