//! What the restorer may do to a Node.

use std::time::Instant;

use super::{Fate, Life, absent};
use crate::ledger::{Kind, Ledger};
use crate::object::{SeenNode, SeenRecord};

impl Fate {
    /// The restorer may add what is missing, and nothing else.
    pub(super) fn restored(&mut self, life: Life, seen: SeenNode, now: Instant, ledger: &mut Ledger) {
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
}
