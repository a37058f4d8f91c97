//! What follows from it that records may be filed under something else than a name: Nodes move from row to row, several have the
//! same identity, or some have none.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use label_storage::summary::UidDigest;
use label_storage::{Node, ResourceVersion};

use super::{Engine, Planner};
use crate::observer::Sample;
use crate::recorder::EventRecorder;
use crate::source::Kind;
use crate::table::{Elsewhere, Name, Row, Table};

/// A cloud gives its machines names within seconds. What has had none for this long may never have one.
const LONG: Duration = Duration::from_secs(60);

/// Among so many claimants every change is told at once. More have something for an identity that is none, such as a zone: a list
/// tells of all of them.
const FEW: usize = 16;

/// So many names are in a line of the log.
const NAMED: usize = 5;

impl<P: Planner> Engine<'_, P> {
    /// A Node was deleted, and looked like this just before.
    pub(super) fn deleted(&mut self, last: Node) {
        let (under, version) = (last.filed_under().to_owned(), last.version);
        // Where others claimed the same, nobody knows whose labels belong in the record.
        let was_contested = self.table.get(&under).is_some_and(|row| row.had_others(&last.name, version));
        // A replica before this one has dealt with it.
        let is_settled = self.resumed.as_ref().is_some_and(|resumed| resumed.is_settled(&under, version));
        if !self.table.is_by_identity() {
            self.table.see_node(&last, last.summary());
        }
        self.table.lose_node(&last, version);
        if let Some(row) = self.table.get(&under).filter(|_| !was_contested && !is_settled) {
            self.planner.deleted(last, row, self.queue.is_unsettled(&under));
        }
        self.heard(Kind::Nodes, version);
        self.consider(&under, None, true, false);
        self.consider_left();
    }

    /// A watch tells of a Node that is in no row of this shard, or in none any more, whether it is there or not.
    pub(super) fn elsewhere(&mut self, node: Elsewhere<'_>) {
        self.heard(Kind::Nodes, node.version);
        self.table.see_elsewhere(node, self.sweeps.is_listing());
        self.consider_left();
    }

    /// Decides about rows whose Nodes have just gone elsewhere.
    pub(super) fn consider_left(&mut self) {
        for row in self.table.take_left() {
            self.consider(&row, None, true, false);
        }
    }

    /// Whom to ask for, to learn whether the Nodes of these rows are there.
    pub(super) fn samples(&self, rows: &[Name]) -> Vec<Sample> {
        let found = rows.iter().filter_map(|name| self.table.get(name));
        found.map(|row| Sample { under: Name::clone(row.name()), name: row.node_name().to_owned() }).collect()
    }
}

/// Rows that several Nodes claim.
#[derive(Default)]
pub(super) struct Contests {
    /// Who was said to claim each of them.
    told: HashMap<Name, Vec<(Name, UidDigest)>>,
}

impl Contests {
    /// Takes note of a row that is contested. `heard`: how far the watch of Nodes has come. A claimant that it has not come to may
    /// have followed upon another that is gone: nothing is said before that is certain.
    pub(super) fn note(&mut self, row: &Row, heard: Option<ResourceVersion>, events: &EventRecorder) {
        let told = self.told.entry(Name::clone(row.name())).or_default();
        let is_told_of = |version| heard.is_some_and(|heard| version <= heard);
        if row.nodes() <= FEW && row.claimants().all(|(_, _, version)| is_told_of(version)) {
            tell(row, told, events);
        }
    }

    /// Takes note that a row is not contested, and says whether it was.
    pub(super) fn settle(&mut self, name: &str) -> bool {
        // Nearly always.
        if self.told.is_empty() {
            return false;
        }
        let told = self.told.remove(name);
        if told.as_ref().is_some_and(|told| !told.is_empty()) {
            tracing::info!(identity = name, "one node has this identity again");
        }
        told.is_some()
    }

    /// A complete list has told who is there.
    pub(super) fn listed(&mut self, table: &Table, events: &EventRecorder) {
        self.told.retain(|name, told| {
            let row = table.get(name).filter(|row| row.is_contested());
            row.inspect(|row| tell(row, told, events)).is_some()
        });
    }

    /// Forgets all of them.
    pub(super) fn start_over(&mut self) {
        self.told.clear();
    }
}

/// Tells all claimants of each other, unless that was done.
fn tell(row: &Row, told: &mut Vec<(Name, UidDigest)>, events: &EventRecorder) {
    let mut present: Vec<_> = row.claimants().map(|(name, uid, _)| (Name::clone(name), uid)).collect();
    present.sort_by(|(one, _), (other, _)| one.cmp(other));
    if *told == present {
        return;
    }
    let names: Vec<&str> = present.iter().map(|(name, _)| &**name).collect();
    tracing::warn!(
        identity = &**row.name(),
        nodes = names.len(),
        examples = ?&names[..names.len().min(NAMED)],
        "several nodes have the same identity: none of them is stored or restored until that is resolved"
    );
    for (name, uid) in &present {
        events.contested(name, *uid, row.name(), &names);
    }
    *told = present;
}

/// Nodes that lack what their records would be filed under. Each has a row of its own, under its name, and no record.
#[derive(Default)]
pub(super) struct Unidentified {
    /// Since when they were seen to.
    since: HashMap<Name, Instant>,
    told: Option<Instant>,
}

impl Unidentified {
    /// A complete list has told who is there. Tells about those that have had none for long, once a minute.
    pub(super) fn listed(&mut self, table: &Table, now: Instant) {
        let is_unidentified = |row: &&Row| row.node().is_some_and(|node| node.traits.is_unidentified);
        if table.is_by_identity() {
            self.since.retain(|name, _| table.get(name).as_ref().is_some_and(is_unidentified));
            for row in table.iter().filter(is_unidentified) {
                self.since.entry(Name::clone(row.name())).or_insert(now);
            }
        }
        if let Some((nodes, example)) = self.overdue(now) {
            tracing::warn!(
                nodes,
                example = &*example,
                "nodes lack what their records would be filed under, and are neither stored nor restored: is the identity right \
                 that the rules ask for?"
            );
            self.told = Some(now);
        }
    }

    /// How many, and one of them, if it is time to tell.
    fn overdue(&self, now: Instant) -> Option<(usize, Name)> {
        if self.told.is_some_and(|told| now.duration_since(told) < LONG) {
            return None;
        }
        let mut overdue = self.since.iter().filter(|(_, since)| now.duration_since(**since) >= LONG);
        let (example, _) = overdue.next()?;
        Some((1 + overdue.count(), Name::clone(example)))
    }
}

#[cfg(test)]
mod tests {
    use label_storage::Uid;

    use super::*;

    #[test]
    fn nodes_that_lack_an_identity_for_long_are_told_of_once_in_a_while() {
        let (mut table, mut unidentified) = (Table::by_identity(), Unidentified::default());
        let see = |table: &mut Table, name: &str, version, identity: Option<&str>| {
            let node = Node::new(name.to_owned(), "u1".to_owned(), version, Default::default(), None);
            let mut node = node.expect("a node");
            node.extras.identity = identity.map(str::to_owned);
            node.extras.is_unidentified = identity.is_none();
            table.see_node(&node, node.summary());
        };
        see(&mut table, "a", "1", None);
        see(&mut table, "b", "2", None);
        see(&mut table, "c", "3", Some("providerID=c"));
        let now = Instant::now();
        unidentified.listed(&table, now);
        assert_eq!(unidentified.overdue(now), None, "it may still come");
        // Another change does not make it any better.
        see(&mut table, "a", "4", None);
        let later = now + LONG;
        assert_eq!(unidentified.overdue(later).map(|(nodes, _)| nodes), Some(2));
        unidentified.listed(&table, later);
        assert_eq!(unidentified.overdue(later + LONG / 2), None, "that was just said");
        assert_eq!(unidentified.overdue(later + LONG).map(|(nodes, _)| nodes), Some(2));
        see(&mut table, "a", "5", Some("providerID=a"));
        unidentified.listed(&table, later + LONG / 2);
        assert_eq!(unidentified.overdue(later + LONG), Some((1, Name::from("b"))));
    }

    #[test]
    fn names_are_no_lack_of_an_identity() {
        let (mut table, mut unidentified) = (Table::default(), Unidentified::default());
        let uid = Uid::new("u1").expect("a uid");
        let node = Node::new("a".to_owned(), uid.to_string(), "1", Default::default(), None).expect("a node");
        table.see_node(&node, node.summary());
        unidentified.listed(&table, Instant::now());
        assert!(unidentified.since.is_empty());
    }
}
