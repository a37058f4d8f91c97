//! Deletions whose final labels are not stored yet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use label_storage::Labels;

use super::{Fate, Life, Values, absent, short};
use crate::ledger::{Kind, Ledger};
use crate::object::{SeenNode, SeenRecord};
use crate::storers::Passage;

/// An incarnation that was deleted before its last change was stored.
#[derive(Debug)]
pub(super) struct Unstored {
    pub(super) uid: String,
    pub(super) deleted_at: u64,
    pub(super) since: Instant,
    pub(super) last: Labels,
    /// The expected values of labels if its last change is lost.
    pub(super) otherwise: BTreeMap<String, Values>,
    /// Labels that were set again since, so that their earlier values do not matter.
    pub(super) decided: BTreeSet<String>,
    /// Its last change may be lost: the loss is excused, or was reported.
    pub(super) is_excused: bool,
    /// The API server had dropped the deletion before a storer could receive it.
    pub(super) is_dropped: bool,
    /// A storer is past the deletion for that reason.
    pub(super) is_forgotten: bool,
    /// The next incarnation was restored from a record without the last change.
    pub(super) is_overtaken: bool,
}

impl Unstored {
    /// Accepts the loss of its last change. Returns the number of labels that this concerns.
    pub(super) fn widen(&self, expected: &mut BTreeMap<String, Values>) -> u64 {
        let mut widened = 0;
        for (key, values) in self.otherwise.iter().filter(|(key, _)| !self.decided.contains(*key)) {
            let expected = expected.entry(key.clone()).or_insert_with(absent);
            let before = expected.len();
            expected.extend(values.iter().cloned());
            widened += u64::from(expected.len() > before);
        }
        widened
    }

    /// Counts labels for which its next incarnation came first.
    pub(super) fn overtaken(
        &self,
        labels: u64,
        node: &str,
        revision: u64,
        now: Instant,
        ledger: &mut Ledger,
    ) {
        if self.is_dropped {
            ledger.undetermined.unheard += labels;
        } else {
            ledger.overtaken(labels, node, revision, now.duration_since(self.since));
        }
    }

    /// No storer could receive its last change.
    pub(super) fn excuse(&mut self, expected: &mut BTreeMap<String, Values>, ledger: &mut Ledger) {
        self.is_excused = true;
        ledger.undetermined.unheard += self.widen(expected);
    }
}

impl Fate {
    /// A person deleted a Node. `is_heard`: storers watch, so one receives the deletion sooner or later.
    pub(crate) fn node_deleted(&mut self, revision: u64, is_heard: bool, now: Instant, ledger: &mut Ledger) {
        ledger.versions += 1;
        let Some(Life { now: last, .. }) = self.node.take() else { return };
        self.tell(revision, format!("node {} was deleted, watched: {is_heard}", short(&last.uid)));
        self.changed = None;
        self.remember(SeenNode { revision, ..last.clone() });
        if self.record.is_none() && last.kept.is_empty() {
            // Nothing is left to be stored.
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
            last: last.kept,
            otherwise,
            decided: BTreeSet::new(),
            is_excused: false,
            is_dropped: false,
            is_forgotten: false,
            is_overtaken: false,
        };
        if !is_heard {
            unstored.excuse(&mut self.expected, ledger);
        }
        self.unstored.push(unstored);
    }

    /// Notes the deletions that the API server has dropped.
    pub(crate) fn note_dropped(&mut self, is_dropped: impl Fn(&str, u64) -> bool) {
        for unstored in &mut self.unstored {
            unstored.is_dropped |= is_dropped(&self.name, unstored.deleted_at);
        }
    }

    /// The expected values of its labels if no storer receives the deletion.
    fn otherwise(&self, last: &SeenNode) -> BTreeMap<String, Values> {
        let stored = self.record.as_ref().map(|seen| &seen.record);
        let is_own = self.has_own_record(last);
        let stored_version = stored.and_then(|record| record.node_version).map_or(0, |version| version.0);
        let since: Vec<_> = self
            .versions
            .iter()
            .filter(|version| version.uid == last.uid && version.revision > stored_version)
            .collect();
        let mut keys: BTreeSet<&String> = self.expected.keys().chain(last.kept.keys()).collect();
        keys.extend(stored.into_iter().flat_map(|record| record.labels.keys()));
        keys.extend(since.iter().flat_map(|version| version.kept.keys()));
        let values = |key: &String| {
            let mut values = Values::from([stored.and_then(|record| record.labels.get(key).cloned())]);
            for version in &since {
                let value = version.kept.get(key).cloned();
                // A label that is missing on a Node before its restore was not removed.
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

    /// Judges deletions whose final labels are not stored, by the positions of the storers.
    pub(crate) fn judge_deletions(
        &mut self,
        passage: impl Fn(&str, u64) -> Passage,
        is_forgotten: impl Fn(&str, u64) -> bool,
        ledger: &mut Ledger,
    ) {
        for mut unstored in std::mem::take(&mut self.unstored) {
            let deletion = unstored.deleted_at;
            unstored.is_forgotten |= is_forgotten(&self.name, deletion);
            match passage(&self.name, deletion) {
                _ if unstored.is_excused => {}
                Passage::Ahead => {}
                Passage::Unclaimed if !unstored.is_forgotten => {}
                _ if self.has_what_is_right(&unstored, self.record.as_ref()) => continue,
                Passage::Forgotten | Passage::Unclaimed => unstored.excuse(&mut self.expected, ledger),
                Passage::Skipped(storer) => {
                    let what = format!(
                        "{storer} is past the deletion at {deletion}, the final labels {:?} are not stored, and the API server \
                         still had the deletion",
                        unstored.last
                    );
                    ledger.wrong(Kind::Lost, &self.name, deletion, what);
                    // Reported once.
                    unstored.is_excused = true;
                    unstored.widen(&mut self.expected);
                }
            }
            self.unstored.push(unstored);
        }
    }

    /// True if this record has the last change, so that nothing is left to be stored.
    pub(super) fn has_what_is_right(&self, unstored: &Unstored, record: Option<&SeenRecord>) -> bool {
        let stored = |key: &String| record.and_then(|seen| seen.record.labels.get(key).cloned());
        let is_right = |key: &String| match self.expected.get(key) {
            Some(expected) => expected.contains(&stored(key)),
            None => stored(key).is_none(),
        };
        unstored.otherwise.keys().filter(|key| !unstored.decided.contains(*key)).all(is_right)
    }
}
