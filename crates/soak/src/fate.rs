//! One Node's fate: what people did to it, what the daemons made of that, and whether it is right.
//!
//! All of it follows from etcd's history alone, in its order: a version of a Node in which the restorer's mark changed is the
//! restorer's, every other one is a person's. What people did is right by definition. What each label must be is a set of values,
//! almost always of one; it is larger only where `docs/protocol.md` leaves it open, and each time it grows is counted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use label_storage::{Labels, Record};

use crate::ledger::{Kind, Ledger};
use crate::object::{SeenNode, SeenRecord};
use crate::storers::Passage;

/// What a label may be; `None` stands for none.
type Values = BTreeSet<Option<String>>;

/// So many versions of a Node are remembered, to check records against.
const MEMORY: usize = 128;

/// So many of the latest events are told where something is wrong.
const STORY: usize = 24;

/// What is known of one Node.
#[derive(Debug)]
pub(crate) struct Fate {
    name: String,
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
    /// The revision in which it began.
    born_at: u64,
    /// Since when it waits for its labels.
    waits: Option<Instant>,
}

/// An incarnation that was deleted before its last change was stored.
#[derive(Debug)]
struct Unstored {
    uid: String,
    deleted_at: u64,
    since: Instant,
    last: Labels,
    /// What labels may be where its last change is lost.
    otherwise: BTreeMap<String, Values>,
    /// Labels that were set again since: what they were before is of no consequence.
    decided: BTreeSet<String>,
    /// Its last change may be lost: that is excused, or was reported.
    is_excused: bool,
    /// The next incarnation was given something from before the last change.
    is_overtaken: bool,
}

impl Unstored {
    /// Its last change may be lost. Returns for how many labels that makes a difference.
    fn widen(&self, expected: &mut BTreeMap<String, Values>) -> u64 {
        let mut widened = 0;
        for (key, values) in self.otherwise.iter().filter(|(key, _)| !self.decided.contains(*key)) {
            let expected = expected.entry(key.clone()).or_insert_with(absent);
            let before = expected.len();
            expected.extend(values.iter().cloned());
            widened += u64::from(expected.len() > before);
        }
        widened
    }

    /// Nobody could hear of its last change.
    fn excuse(&mut self, expected: &mut BTreeMap<String, Values>, ledger: &mut Ledger) {
        self.is_excused = true;
        ledger.undetermined.unheard += self.widen(expected);
    }
}

/// What a person sees who is about to do something.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    /// The incarnation, where there is one.
    pub(crate) uid: Option<String>,
    /// The keys of its labels.
    pub(crate) keys: Vec<String>,
    /// Whether its record is its own: what is removed from it now is removed for good.
    pub(crate) is_own: bool,
    /// Whether its record says all that it says.
    pub(crate) is_stored: bool,
}

impl Fate {
    /// A Node that nobody has heard of yet.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
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

    /// How values begin that people set on this Node, and on no other.
    pub(crate) fn tag(name: &str) -> String {
        format!("{}_", name.rsplit('.').next().unwrap_or(name))
    }

    /// How it looks now.
    pub(crate) fn view(&self) -> View {
        let Some(life) = &self.node else { return View::default() };
        View {
            uid: Some(life.now.uid.clone()),
            keys: life.now.labels.keys().cloned().collect(),
            is_own: self.has_own_record(&life.now),
            is_stored: self.is_settled(),
        }
    }

    /// A Node was created or changed.
    pub(crate) fn node_written(&mut self, seen: SeenNode, now: Instant, ledger: &mut Ledger) {
        ledger.versions += 1;
        let SeenNode { uid, revision, labels, marker } = &seen;
        self.tell(*revision, format!("node {} is {labels:?}, mark {marker:?}", short(uid)));
        self.remember(seen.clone());
        match self.node.take().filter(|life| life.now.uid == seen.uid) {
            None => self.born(seen, now),
            Some(life) if life.now.marker != seen.marker => self.restored(life, seen, now, ledger),
            Some(life) => self.changed_by_person(life, seen, now, ledger),
        }
        self.judge_if_settled(now, ledger);
    }

    fn born(&mut self, seen: SeenNode, now: Instant) {
        for (key, value) in &seen.labels {
            self.decide(key, Some(value.clone()));
        }
        let is_to_be_restored = self.record.as_ref().is_some_and(|seen| !seen.record.labels.is_empty());
        let waits = is_to_be_restored.then_some(now);
        self.changed = None;
        self.node = Some(Life { born_at: seen.revision, now: seen, waits });
    }

    fn changed_by_person(&mut self, life: Life, seen: SeenNode, now: Instant, ledger: &mut Ledger) {
        let is_own = self.has_own_record(&life.now);
        let is_restored = self.is_surely_restored(&life.now);
        let tag = Self::tag(&self.name);
        let keys: BTreeSet<_> = life.now.labels.keys().chain(seen.labels.keys()).cloned().collect();
        for key in keys {
            match (life.now.labels.get(&key), seen.labels.get(&key)) {
                (before, after) if before == after => continue,
                (_, Some(value)) => {
                    if !value.starts_with(&tag) {
                        let what = format!("{key}={value} was set by nobody that we know");
                        ledger.wrong(Kind::Foreign, &self.name, seen.revision, what);
                    }
                    self.decide(&key, Some(value.clone()));
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

    /// The restorer may add what is missing, and nothing else.
    fn restored(&mut self, life: Life, seen: SeenNode, now: Instant, ledger: &mut Ledger) {
        if seen.marker.as_deref().and_then(|marker| marker.split('/').next()) != Some(&seen.uid) {
            let what = format!("the mark {:?} is not its own", seen.marker);
            ledger.wrong(Kind::Foreign, &self.name, seen.revision, what);
        }
        for (key, value) in &life.now.labels {
            if seen.labels.get(key) != Some(value) {
                let what = format!("{key}={value} became {:?} by a daemon", seen.labels.get(key));
                ledger.wrong(Kind::Overwritten, &self.name, seen.revision, what);
            }
        }
        let added_late = self.last_words_added(&life, &seen);
        for (key, value) in seen.labels.iter().filter(|(key, _)| !life.now.labels.contains_key(*key)) {
            let value = Some(value.clone());
            let expected = self.expected.entry(key.clone()).or_insert_with(absent);
            if expected.contains(&value) {
                continue;
            }
            let unstored = self
                .unstored
                .iter_mut()
                .find(|unstored| unstored.otherwise.get(key).is_some_and(|values| values.contains(&value)));
            if let Some(unstored) = unstored {
                unstored.is_overtaken = true;
                ledger.overtaken(1, &self.name, seen.revision, now.duration_since(unstored.since));
            } else if let Some(added) = added_late {
                ledger.overtaken(1, &self.name, seen.revision, now.duration_since(added));
            } else {
                let what = format!("{key}={value:?} was restored, and {expected:?} is right");
                ledger.wrong(Kind::Resurrected, &self.name, seen.revision, what);
            }
            // Said once.
            expected.insert(value);
        }
        if let Some(waits) = life.waits
            && ledger.is_timing
        {
            ledger.restored_after.push(now - waits);
        }
        self.node = Some(Life { now: seen, waits: None, ..life });
    }

    /// When the last labels of an earlier incarnation were added to the record, if this was restored from what it had before.
    fn last_words_added(&self, life: &Life, seen: &SeenNode) -> Option<Instant> {
        let (SeenRecord { record, .. }, (revision, added)) = (self.record.as_ref()?, self.labels_changed?);
        let source = seen.marker.as_deref().and_then(|marker| marker.split('/').nth(1));
        let generation = |source: &str| source.split('@').next()?.parse::<u64>().ok();
        let marked = source.and_then(generation);
        let is_of_another = record.uid.as_ref().is_none_or(|uid| uid.as_str() != seen.uid);
        (is_of_another && marked < record.labels_generation && revision > life.born_at).then_some(added)
    }

    /// A Node was deleted, by a person. `is_heard`: storers watch, so one hears of it, sooner or later.
    pub(crate) fn node_deleted(&mut self, revision: u64, is_heard: bool, now: Instant, ledger: &mut Ledger) {
        ledger.versions += 1;
        let Some(Life { now: last, .. }) = self.node.take() else { return };
        self.tell(revision, format!("node {} is deleted, is heard {is_heard}", short(&last.uid)));
        self.changed = None;
        self.remember(SeenNode { revision, ..last.clone() });
        if self.record.is_none() && last.labels.is_empty() {
            // There is nothing to be stored.
            return;
        }
        let otherwise = self.otherwise(&last);
        let is_at_stake = |(key, values): (&String, &Values)| match self.expected.get(key) {
            Some(expected) => !values.is_subset(expected),
            None => values.iter().any(Option::is_some),
        };
        if !otherwise.iter().any(is_at_stake) {
            return;
        }
        let mut unstored = Unstored {
            uid: last.uid,
            deleted_at: revision,
            since: now,
            last: last.labels,
            otherwise,
            decided: BTreeSet::new(),
            is_excused: false,
            is_overtaken: false,
        };
        if !is_heard {
            unstored.excuse(&mut self.expected, ledger);
        }
        self.unstored.push(unstored);
    }

    /// What its labels may be if its last words are not heard.
    fn otherwise(&self, last: &SeenNode) -> BTreeMap<String, Values> {
        let stored = self.record.as_ref().map(|seen| &seen.record);
        let is_own = self.has_own_record(last);
        let stored_version = stored.and_then(|record| record.node_version).map_or(0, |version| version.0);
        let since: Vec<_> = self
            .versions
            .iter()
            .filter(|version| version.uid == last.uid && version.revision > stored_version)
            .collect();
        let mut keys: BTreeSet<&String> = self.expected.keys().chain(last.labels.keys()).collect();
        keys.extend(stored.into_iter().flat_map(|record| record.labels.keys()));
        keys.extend(since.iter().flat_map(|version| version.labels.keys()));
        let values = |key: &String| {
            let mut values = Values::from([stored.and_then(|record| record.labels.get(key).cloned())]);
            for version in &since {
                let value = version.labels.get(key).cloned();
                // What a Node lacks that is not restored yet says nothing.
                if is_own || version.marker.is_some() || value.is_some() {
                    values.insert(value);
                }
            }
            for earlier in &self.unstored {
                values.insert(earlier.last.get(key).cloned());
                values.extend(earlier.otherwise.get(key).cloned().unwrap_or_default());
            }
            values
        };
        keys.into_iter().map(|key| (key.clone(), values(key))).collect()
    }

    /// Judges deletions whose last labels are not stored, by how far the storers have come.
    pub(crate) fn judge_deletions(&mut self, passage: impl Fn(&str, u64) -> Passage, ledger: &mut Ledger) {
        for mut unstored in std::mem::take(&mut self.unstored) {
            let deletion = unstored.deleted_at;
            match passage(&self.name, deletion) {
                _ if unstored.is_excused => {}
                Passage::Ahead => {}
                _ if self.has_what_is_right(&unstored) => continue,
                Passage::Forgotten => unstored.excuse(&mut self.expected, ledger),
                Passage::Skipped(storer) => {
                    let what = format!(
                        "{storer} is past its deletion at {deletion}, its last labels {:?} are not stored, and the API server \
                         had not forgotten them",
                        unstored.last
                    );
                    ledger.wrong(Kind::Lost, &self.name, deletion, what);
                    // Said once.
                    unstored.is_excused = true;
                    unstored.widen(&mut self.expected);
                }
            }
            self.unstored.push(unstored);
        }
    }

    /// True if the record has what the last change was about, so that nothing is left to be stored.
    fn has_what_is_right(&self, unstored: &Unstored) -> bool {
        let stored =
            |key: &String| self.record.as_ref().and_then(|seen| seen.record.labels.get(key).cloned());
        let is_right = |key: &String| match self.expected.get(key) {
            Some(expected) => expected.contains(&stored(key)),
            None => stored(key).is_none(),
        };
        unstored.otherwise.keys().filter(|key| !unstored.decided.contains(*key)).all(is_right)
    }

    /// A record was created or replaced.
    /// `is_past`: whether the storers can't hear of this deletion any more, though the API server had not forgotten it.
    pub(crate) fn record_written(
        &mut self,
        seen: SeenRecord,
        is_past: impl Fn(&str, u64) -> bool,
        now: Instant,
        ledger: &mut Ledger,
    ) {
        ledger.versions += 1;
        let Record { uid, node_version, generation, labels_generation, departed_at, labels, .. } =
            &seen.record;
        let (uid, departed) = (uid.as_ref().map_or("", |uid| short(uid.as_str())), departed_at.is_some());
        self.tell(seen.revision, format!("record {generation} (labels {labels_generation:?}) of node {uid} at {node_version:?} is {labels:?}, departed {departed}"));
        if let Err(what) = self.check_record(&seen) {
            ledger.wrong(Kind::BadRecord, &self.name, seen.revision, what);
        }
        let version = seen.record.node_version.map_or(0, |version| version.0);
        let uid = seen.record.uid.as_ref().map(ToString::to_string).unwrap_or_default();
        // A view from before the deletion will do, where nothing was changed between the two.
        let has_all = |unstored: &Unstored| uid == unstored.uid && seen.record.labels == unstored.last;
        let (closed, open): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unstored)
            .into_iter()
            .partition(|unstored| version >= unstored.deleted_at || has_all(unstored));
        self.unstored = open;
        for unstored in closed {
            let are_kept = uid == unstored.uid && version == unstored.deleted_at || has_all(&unstored);
            if are_kept && !unstored.is_excused {
                ledger.last_words_kept += 1;
            }
            let is_last = self.versions.back().is_some_and(|last| last.revision == unstored.deleted_at);
            if are_kept && is_last {
                // They have been stored after all, and nobody was restored without them: nothing is open any more.
                for key in unstored.otherwise.keys() {
                    let value = seen.record.labels.get(key).cloned();
                    if self.expected.get(key).is_some_and(|values| values.contains(&value)) {
                        self.expected.insert(key.clone(), [value].into());
                    }
                }
            } else if !are_kept && !unstored.is_excused {
                // Somebody stored the next incarnation first.
                let widened = unstored.widen(&mut self.expected);
                if (widened > 0 || unstored.is_overtaken) && is_past(&self.name, unstored.deleted_at) {
                    let what =
                        format!("its deletion at {} was skipped: {:?}", unstored.deleted_at, unstored.last);
                    ledger.wrong(Kind::Lost, &self.name, seen.revision, what);
                } else {
                    ledger.overtaken(widened, &self.name, seen.revision, now.duration_since(unstored.since));
                }
            }
        }
        let before = self.record.as_ref().map(|before| &before.record.labels);
        if before != Some(&seen.record.labels) {
            self.labels_changed = Some((seen.revision, now));
        }
        self.record = Some(seen);
        self.judge_if_settled(now, ledger);
    }

    /// A record says what its Node said at the moment that it names.
    fn check_record(&self, seen: &SeenRecord) -> Result<(), String> {
        let record = &seen.record;
        let (Some(uid), Some(version)) = (&record.uid, record.node_version) else {
            return Err("it does not say what it was made from".to_owned());
        };
        if let Some(before) = self.record.as_ref().map(|before| &before.record) {
            if record.node_version < before.node_version {
                return Err(format!(
                    "it goes back from version {:?} to {version} of its node",
                    before.node_version
                ));
            }
            if record.generation != before.generation + 1 {
                return Err(format!("generation {} follows {}", record.generation, before.generation));
            }
            if (&record.uid, record.node_version) == (&before.uid, before.node_version) {
                return if record.labels == before.labels {
                    Ok(())
                } else {
                    Err(format!(
                        "of the same version it says {:?}, and said {:?}",
                        record.labels, before.labels
                    ))
                };
            }
        }
        let made_from = self
            .versions
            .iter()
            .find(|known| known.uid == uid.as_str() && known.revision == version.0)
            .ok_or_else(|| format!("there never was a version {version} of {uid}"))?;
        let merged = self.record.as_ref().map(|before| {
            let mut merged = before.record.labels.clone();
            merged.extend(made_from.labels.clone());
            merged
        });
        let is_merged = record.departed_at.is_some() && merged.as_ref() == Some(&record.labels);
        if record.labels == made_from.labels || is_merged {
            Ok(())
        } else {
            let (said, says) = (&made_from.labels, &record.labels);
            Err(format!("it says {says:?}, and version {version} of its node said {said:?}"))
        }
    }

    /// A record was deleted: only ever one that says nothing.
    pub(crate) fn record_deleted(&mut self, revision: u64, ledger: &mut Ledger) {
        ledger.versions += 1;
        self.tell(revision, "record is deleted".to_owned());
        if let Some(before) = self.record.take()
            && !before.record.labels.is_empty()
        {
            let what = format!("it was deleted with {:?}", before.record.labels);
            ledger.wrong(Kind::BadRecord, &self.name, revision, what);
        }
    }

    /// Whether all is as it must be in the end. If not, why.
    pub(crate) fn check(&self) -> Result<(), String> {
        let nothing = Labels::new();
        let stored = self.record.as_ref().map_or(&nothing, |seen| &seen.record.labels);
        match &self.node {
            Some(life) if life.now.labels.is_empty() && stored.is_empty() => {
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
                    life.now.labels, self.expected
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
        let keys: BTreeSet<_> = life.now.labels.keys().chain(self.expected.keys()).cloned().collect();
        for key in keys {
            let found = life.now.labels.get(&key).cloned();
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
        self.has_own_record(&life.now) && record.record.labels == life.now.labels
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
