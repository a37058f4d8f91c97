//! One Node's fate: what people did to it, what the daemons made of that, and whether it is right.
//!
//! All of it follows from etcd's history alone, in its order: a version of a Node in which the restorer's mark changed, or the start-up
//! taint went, is the restorer's, every other one is a person's. What people did is right by definition. What each label, and all
//! else that the rules keep, must be is a set of values, almost always of one; it is larger only where `docs/protocol.md` leaves it
//! open, and each time it grows is counted.

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

/// What a label may be; `None` stands for none.
type Values = BTreeSet<Option<String>>;

/// So many versions of a Node are remembered, to check records against.
const MEMORY: usize = 128;

/// So many of the latest events are told where something is wrong.
const STORY: usize = 24;

/// What is known of one Node, under whichever of its names.
#[derive(Debug)]
pub(crate) struct Fate {
    name: String,
    rules: Arc<Rules>,
    /// How many incarnations there were.
    births: u64,
    node: Option<Life>,
    record: Option<SeenRecord>,
    /// The revision in which the labels of the record last changed, and when that was.
    labels_changed: Option<(u64, Instant)>,
    /// What each label must be. One that is not in here must not be.
    expected: BTreeMap<String, Values>,
    unstored: Vec<Unstored>,
    /// What it looked like. A deletion is a version too, with the labels of the one before.
    versions: VecDeque<SeenNode>,
    /// Since when a person's change waits to be stored.
    changed: Option<Instant>,
    /// What happened last, for a person who wants to know why.
    story: VecDeque<String>,
}

/// One incarnation.
#[derive(Debug, Clone)]
struct Life {
    now: SeenNode,
    /// The revision in which it began, and when that was.
    born_at: u64,
    born: Instant,
    /// Since when it waits for its labels.
    waits: Option<Instant>,
}

/// What a person sees who is about to do something.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    /// The Node's name, where there is one.
    pub(crate) node: Option<String>,
    /// How many incarnations there were.
    pub(crate) births: u64,
    /// The names of all that it has.
    pub(crate) names: Vec<String>,
    /// Whether its record is its own: what is removed from it now is removed for good.
    pub(crate) is_own: bool,
    /// Whether its record says all that it says.
    pub(crate) is_stored: bool,
}

impl Fate {
    /// A Node that nobody has heard of yet.
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

    /// How it looks now.
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
            format!("node {name} {uid} is {kept:?}, beside {rest:?}, mark {marker:?}{taint}"),
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
                        let what = format!("{key}={value} was set by nobody that we know");
                        ledger.wrong(Kind::Foreign, &self.name, seen.revision, what);
                    }
                    self.set(&key, value, before, is_own || life.now.marker.is_some());
                }
                (_, None) if is_own || is_restored => self.decide(&key, None),
                (_, None) => {
                    // What comes back is what is stored, whatever stood there just now; or what is still to be stored, from before.
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

    /// True if nothing will be restored to this Node any more: it has all that is stored, and nothing is left to be stored.
    fn is_surely_restored(&self, node: &SeenNode) -> bool {
        let generation = |marker: &str| marker.split('/').nth(1)?.parse::<u64>().ok();
        let marked = node.marker.as_deref().and_then(generation);
        let is_marked = |seen: &SeenRecord| marked.is_some() && marked >= seen.record.labels_generation;
        self.unstored.is_empty() && self.record.as_ref().is_none_or(is_marked)
    }

    /// Something is set on a Node, or comes with it. `is_restored`: the Node's word counts from now on.
    fn set(&mut self, key: &str, value: &str, before: Option<&String>, is_restored: bool) {
        let value = Some(value.to_owned());
        if is_restored || !self.is_records(key) {
            return self.decide(key, value);
        }
        // The record's value takes its place, if the record has one; and it takes the place of what stood there.
        let expected = self.expected.entry(key.to_owned()).or_insert_with(absent);
        let is_replaced = before.is_some_and(|before| expected.remove(&Some(before.clone())));
        if expected.remove(&None) || is_replaced {
            expected.insert(value.clone());
        }
        let otherwise = self.unstored.iter_mut().filter_map(|unstored| unstored.otherwise.get_mut(key));
        otherwise.filter(|values| values.contains(&None)).for_each(|values| _ = values.insert(value.clone()));
    }

    /// True if a record's value counts for more than that of a Node which is to be restored.
    fn is_records(&self, key: &str) -> bool {
        self.rules.conflicts.winner(key) == Winner::Record
    }

    /// Whether all is as it must be in the end. If not, why.
    pub(crate) fn check(&self) -> Result<(), String> {
        let nothing = Labels::new();
        let stored = self.record.as_ref().map_or(&nothing, |seen| &seen.record.labels);
        let is_lifted = |life: &Life| self.rules.startup_taint.is_none() || !life.now.has_startup_taint;
        if !self.node.as_ref().is_none_or(is_lifted) {
            return Err("it still has the start-up taint".to_owned());
        }
        match &self.node {
            Some(life) if life.now.kept.is_empty() && stored.is_empty() => {
                let wanted = self.expected.iter().find(|(_, values)| !values.contains(&None));
                if let Some((key, values)) = wanted {
                    return Err(format!("it has no labels and no record; right is {key}={values:?}"));
                }
            }
            Some(_) if self.is_settled() => {}
            Some(life) => {
                let own = if self.has_own_record(&life.now) { "own" } else { "another incarnation's" };
                let marker = &life.now.marker;
                return Err(format!(
                    "it has {:?} (mark {marker:?}), and its record, its {own}, {stored:?}; right is {:?}",
                    life.now.kept, self.expected
                ));
            }
            None => {
                let wrong =
                    self.expected.iter().find(|(key, values)| !values.contains(&stored.get(*key).cloned()));
                if let Some((key, values)) = wrong {
                    let found = stored.get(key);
                    return Err(format!(
                        "it is away, and its record says {key}={found:?}; right is {values:?}"
                    ));
                }
                let is_gone = self.record.as_ref().is_none_or(|seen| seen.record.departed_at.is_some());
                if !is_gone && !stored.is_empty() {
                    return Err("it is away, and its record does not say so".to_owned());
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

    /// The Node and its own record say the same: nothing but a person will change that. So this is what counts.
    fn judge(&mut self, now: Instant, ledger: &mut Ledger) {
        let Some(life) = &self.node else { return };
        ledger.judged += 1;
        let keys: BTreeSet<_> = life.now.kept.keys().chain(self.expected.keys()).cloned().collect();
        for key in keys {
            let found = life.now.kept.get(&key).cloned();
            let expected = self.expected.entry(key.clone()).or_insert_with(absent);
            if !expected.contains(&found) {
                let kind = if expected.contains(&None) { Kind::Resurrected } else { Kind::Lost };
                let what = format!("{key} is {found:?} for good, and {expected:?} is right");
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

    /// From here on, this is what is right.
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

    /// What happened last.
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

/// Enough of a uid to tell incarnations apart.
fn short(uid: &str) -> &str {
    uid.get(..8).unwrap_or(uid)
}

fn absent() -> Values {
    [None].into()
}

#[cfg(test)]
mod tests;
