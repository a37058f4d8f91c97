//! The history of one Node: the changes by people and by the daemons, and the expected state.
//!
//! Everything follows from etcd's history, in order. The restorer wrote a version of a Node if its marker changed or its start-up taint
//! was removed; a person wrote every other version. Changes by people are right by definition. Each item that the rules keep has a set of
//! expected values, almost always one. The set is larger only where `docs/guarantees.md` leaves the outcome open, and each such case is
//! counted.

mod record;
mod restored;
mod unstored;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use label_storage::item::Item;
use label_storage::rules::Winner;
use label_storage::{Labels, Rules};

use self::unstored::Unstored;
use crate::ledger::{Kind, Ledger};
use crate::machine;
use crate::object::{SeenNode, SeenRecord};

/// The expected values of a label; `None` means that it is absent.
type Values = BTreeSet<Option<String>>;

/// The number of versions of a Node that are kept to check records.
const MEMORY: usize = 128;

/// The number of latest events in the report of a violation.
const STORY: usize = 24;

/// The state of one machine's Node, whatever its name, and of its record.
#[derive(Debug)]
pub(crate) struct Fate {
    name: String,
    rules: Arc<Rules>,
    /// The number of incarnations so far.
    births: u64,
    node: Option<Life>,
    record: Option<SeenRecord>,
    /// The revision in which the labels of the record last changed, and its time.
    labels_changed: Option<(u64, Instant)>,
    /// The expected values of each label. A label that is not in here must be absent.
    expected: BTreeMap<String, Values>,
    unstored: Vec<Unstored>,
    /// The latest versions. A deletion is a version, too, with the labels of the one before.
    versions: VecDeque<SeenNode>,
    /// The time of a person's change that is not stored yet.
    changed: Option<Instant>,
    /// The latest events, for the report.
    story: VecDeque<String>,
}

/// One incarnation.
#[derive(Debug, Clone)]
struct Life {
    now: SeenNode,
    /// The revision in which it was created, and its time.
    born_at: u64,
    born: Instant,
    /// The time since which it waits to be restored.
    waits: Option<Instant>,
}

/// The state of a Node for a person who is about to change it.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    /// The name of the Node, if it exists.
    pub(crate) node: Option<String>,
    /// The number of incarnations so far.
    pub(crate) births: u64,
    /// The names of all its items.
    pub(crate) names: Vec<String>,
    /// True if its record is of this incarnation, so that a removed label stays removed.
    pub(crate) is_own: bool,
    /// True if its record is of this incarnation, and has its labels.
    pub(crate) is_stored: bool,
}

impl Fate {
    /// A Node that does not exist yet.
    pub(crate) fn new(name: &str, rules: Arc<Rules>) -> Self {
        Self {
            name: name.to_owned(),
            rules,
            births: 0,
            node: None,
            record: None,
            labels_changed: None,
            expected: BTreeMap::new(),
            unstored: Vec::new(),
            versions: VecDeque::new(),
            changed: None,
            story: VecDeque::new(),
        }
    }

    pub(crate) fn view(&self) -> View {
        let Some(life) = &self.node else { return View { births: self.births, ..View::default() } };
        View {
            node: Some(life.now.name.clone()),
            births: self.births,
            names: life.now.kept.keys().chain(life.now.rest.keys()).cloned().collect(),
            is_own: self.has_own_record(&life.now),
            is_stored: self.is_settled(),
        }
    }

    /// A Node was created or changed.
    pub(crate) fn node_written(&mut self, seen: SeenNode, now: Instant, ledger: &mut Ledger) {
        ledger.versions += 1;
        let SeenNode { name, uid, revision, kept, rest, marker, has_startup_taint } = &seen;
        let taint = if *has_startup_taint { ", start-up taint" } else { "" };
        let uid = short(uid);
        self.tell(
            *revision,
            format!("node {name} {uid} has {kept:?}, not kept: {rest:?}, marker {marker:?}{taint}"),
        );
        self.remember(seen.clone());
        match self.node.take().filter(|life| life.now.uid == seen.uid) {
            None => self.born(seen, now),
            Some(life) if life.now.marker != seen.marker => self.restored(life, seen, now, ledger),
            Some(life) if life.now.has_startup_taint && !seen.has_startup_taint => {
                self.lifted(life, seen, now, ledger);
            }
            Some(life) => self.changed_by_person(life, seen, now, ledger),
        }
        self.judge_if_settled(now, ledger);
    }

    fn born(&mut self, seen: SeenNode, now: Instant) {
        for (key, value) in &seen.kept {
            self.set(key, value, None, false);
        }
        self.births += 1;
        let is_to_be_restored = self.record.as_ref().is_some_and(|seen| !seen.record.labels.is_empty());
        let waits = is_to_be_restored.then_some(now);
        self.changed = None;
        self.node = Some(Life { born_at: seen.revision, born: now, now: seen, waits });
    }

    fn changed_by_person(&mut self, life: Life, seen: SeenNode, now: Instant, ledger: &mut Ledger) {
        let is_own = self.has_own_record(&life.now);
        let is_restored = self.is_surely_restored(&life.now);
        let tag = machine::tag(&self.name);
        let keys: BTreeSet<_> = life.now.kept.keys().chain(seen.kept.keys()).cloned().collect();
        for key in keys {
            match (life.now.kept.get(&key), seen.kept.get(&key)) {
                (before, after) if before == after => continue,
                (before, Some(value)) => {
                    if !value.starts_with(&tag) && Item::parse(&key) != Some(Item::Cordon) {
                        let what = format!("{key}={value} was not set by any person");
                        ledger.wrong(Kind::Foreign, &self.name, seen.revision, what);
                    }
                    self.set(&key, value, before, is_own || life.now.marker.is_some());
                }
                (_, None) if is_own || is_restored => self.decide(&key, None),
                (_, None) => {
                    // Either the stored value is restored, or one of an earlier incarnation that is not stored yet.
                    let stored = self.record.as_ref().and_then(|seen| seen.record.labels.get(&key).cloned());
                    let mut values = Values::from([None, stored]);
                    for earlier in &self.unstored {
                        values.insert(earlier.last.get(&key).cloned());
                        values.extend(earlier.otherwise.get(&key).cloned().unwrap_or_default());
                    }
                    let expected = self.expected.entry(key).or_insert_with(absent);
                    let before = expected.len();
                    expected.extend(values);
                    ledger.undetermined.removed_unrestored += u64::from(expected.len() > before);
                }
            }
            self.changed = Some(now);
        }
        self.node = Some(Life { now: seen, ..life });
    }

    /// True if nothing more will be restored to this Node: it was restored from the latest record, and no deletion is left to be stored.
    fn is_surely_restored(&self, node: &SeenNode) -> bool {
        let generation = |marker: &str| marker.split('/').nth(1)?.parse::<u64>().ok();
        let marked = node.marker.as_deref().and_then(generation);
        let is_marked = |seen: &SeenRecord| marked.is_some() && marked >= seen.record.labels_generation;
        self.unstored.is_empty() && self.record.as_ref().is_none_or(is_marked)
    }

    /// An item was set on a Node, or created with it. `is_restored`: the Node's own labels are stored from now on.
    fn set(&mut self, key: &str, value: &str, before: Option<&String>, is_restored: bool) {
        let value = Some(value.to_owned());
        if is_restored || !self.is_records(key) {
            return self.decide(key, value);
        }
        // If the record has a value, it is restored over this one. Otherwise this value replaces the one before.
        let expected = self.expected.entry(key.to_owned()).or_insert_with(absent);
        let is_replaced = before.is_some_and(|before| expected.remove(&Some(before.clone())));
        if expected.remove(&None) || is_replaced {
            expected.insert(value.clone());
        }
        let otherwise = self.unstored.iter_mut().filter_map(|unstored| unstored.otherwise.get_mut(key));
        otherwise.filter(|values| values.contains(&None)).for_each(|values| _ = values.insert(value.clone()));
    }

    /// True if the value of the record wins over that of a Node which is not restored yet.
    fn is_records(&self, key: &str) -> bool {
        self.rules.conflicts.winner(key) == Winner::Record
    }

    /// An error with the first difference, unless Node and record have reached the expected state.
    pub(crate) fn check(&self) -> Result<(), String> {
        let nothing = Labels::new();
        let stored = self.record.as_ref().map_or(&nothing, |seen| &seen.record.labels);
        let is_lifted = |life: &Life| self.rules.startup_taint.is_none() || !life.now.has_startup_taint;
        if !self.node.as_ref().is_none_or(is_lifted) {
            return Err("the node still has the start-up taint".to_owned());
        }
        match &self.node {
            Some(life) if life.now.kept.is_empty() && stored.is_empty() => {
                let wanted = self.expected.iter().find(|(_, values)| !values.contains(&None));
                if let Some((key, values)) = wanted {
                    return Err(format!("the node has no labels and no record; expected {key}={values:?}"));
                }
            }
            Some(_) if self.is_settled() => {}
            Some(life) => {
                let own = if self.has_own_record(&life.now) { "this" } else { "another" };
                let marker = &life.now.marker;
                return Err(format!(
                    "the node has {:?} (marker {marker:?}), and its record, of {own} incarnation, has {stored:?}; expected {:?}",
                    life.now.kept, self.expected
                ));
            }
            None => {
                let wrong =
                    self.expected.iter().find(|(key, values)| !values.contains(&stored.get(*key).cloned()));
                if let Some((key, values)) = wrong {
                    let found = stored.get(key);
                    return Err(format!(
                        "the node is absent, and its record has {key}={found:?}; expected {values:?}"
                    ));
                }
                let is_gone = self.record.as_ref().is_none_or(|seen| seen.record.departed_at.is_some());
                if !is_gone && !stored.is_empty() {
                    return Err("the node is absent, and its record is not departed".to_owned());
                }
            }
        }
        Ok(())
    }

    fn judge_if_settled(&mut self, now: Instant, ledger: &mut Ledger) {
        if self.is_settled() {
            self.judge(now, ledger);
        }
    }

    /// Judges a Node whose own record has the same labels. Only a person will change them from now on, so they are final.
    fn judge(&mut self, now: Instant, ledger: &mut Ledger) {
        let Some(life) = &self.node else { return };
        ledger.judged += 1;
        let keys: BTreeSet<_> = life.now.kept.keys().chain(self.expected.keys()).cloned().collect();
        for key in keys {
            let found = life.now.kept.get(&key).cloned();
            let expected = self.expected.entry(key.clone()).or_insert_with(absent);
            if !expected.contains(&found) {
                let kind = if expected.contains(&None) { Kind::Resurrected } else { Kind::Lost };
                let what = format!("{key} is {found:?} in the end, expected {expected:?}");
                ledger.wrong(kind, &self.name, life.now.revision, what);
            }
            *expected = [found].into();
        }
        if let Some(changed) = self.changed.take()
            && ledger.is_timing
        {
            ledger.stored_after.push(now - changed);
        }
    }

    fn is_settled(&self) -> bool {
        let (Some(life), Some(record)) = (&self.node, &self.record) else { return false };
        self.has_own_record(&life.now) && record.record.labels == life.now.kept
    }

    fn has_own_record(&self, node: &SeenNode) -> bool {
        let uid = self.record.as_ref().and_then(|seen| seen.record.uid.as_ref());
        uid.is_some_and(|uid| uid.as_str() == node.uid)
    }

    /// Sets the only expected value.
    fn decide(&mut self, key: &str, value: Option<String>) {
        self.expected.insert(key.to_owned(), [value].into());
        for unstored in &mut self.unstored {
            unstored.decided.insert(key.to_owned());
        }
    }

    fn tell(&mut self, revision: u64, what: String) {
        self.story.push_back(format!("{revision}: {what}"));
        if self.story.len() > STORY {
            self.story.pop_front();
        }
    }

    pub(crate) fn story(&self) -> Vec<String> {
        self.story.iter().cloned().collect()
    }

    fn remember(&mut self, seen: SeenNode) {
        self.versions.push_back(seen);
        if self.versions.len() > MEMORY {
            self.versions.pop_front();
        }
    }
}

/// The first digits of a uid, which tell incarnations apart.
fn short(uid: &str) -> &str {
    uid.get(..8).unwrap_or(uid)
}

fn absent() -> Values {
    [None].into()
}

#[cfg(test)]
mod tests;
