//! What the restorer may do to a Node.

use std::time::{Duration, Instant};

use super::{Fate, Life, absent};
use crate::ledger::{Kind, Ledger};
use crate::object::{SeenNode, SeenRecord};

/// The oracle may learn of a Node's birth this much later than the restorer.
const DELAY: Duration = Duration::from_secs(20);

impl Fate {
    /// The restorer may add what is missing, and overrule what the rules say, once. Nothing else.
    pub(super) fn restored(&mut self, life: Life, seen: SeenNode, now: Instant, ledger: &mut Ledger) {
        if seen.marker.as_deref().and_then(|marker| marker.split('/').next()) != Some(&seen.uid) {
            let what = format!("the mark {:?} is not its own", seen.marker);
            ledger.wrong(Kind::Foreign, &self.name, seen.revision, what);
        }
        let is_first = life.now.marker.is_none();
        let may_overrule = |key: &String| is_first && self.is_records(key) && seen.kept.contains_key(key);
        self.check_untouched(&life.now, &seen, may_overrule, ledger);
        if self.rules.startup_taint.is_some() && seen.has_startup_taint {
            let what = "it was restored, and kept its start-up taint".to_owned();
            ledger.wrong(Kind::StartupTaint, &self.name, seen.revision, what);
        }
        let added_late = self.last_words_added(&life, &seen);
        let is_checked = |key: &String| !life.now.kept.contains_key(key) || is_first && self.is_records(key);
        let checked: Vec<_> = seen.kept.iter().filter(|(key, _)| is_checked(key)).collect();
        for (key, value) in checked {
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
                let what = format!("{key} is {value:?} once it is restored, and {expected:?} is right");
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

    /// A daemon has left alone what a Node had, but for what it may overrule, and all that the rules do not keep.
    fn check_untouched(
        &self,
        before: &SeenNode,
        after: &SeenNode,
        may_overrule: impl Fn(&String) -> bool,
        ledger: &mut Ledger,
    ) {
        for (key, value) in before.kept.iter().filter(|(key, _)| !may_overrule(key)) {
            if after.kept.get(key) != Some(value) {
                let what = format!("{key}={value} became {:?} by a daemon", after.kept.get(key));
                ledger.wrong(Kind::Overwritten, &self.name, after.revision, what);
            }
        }
        if before.rest != after.rest {
            let what = format!("{:?} became {:?} by a daemon, and is not kept", before.rest, after.rest);
            ledger.wrong(Kind::Overwritten, &self.name, after.revision, what);
        }
    }

    /// The restorer lets pods come, and does nothing else.
    pub(super) fn lifted(&mut self, life: Life, seen: SeenNode, now: Instant, ledger: &mut Ledger) {
        self.check_untouched(&life.now, &seen, |_| false, ledger);
        if seen.kept != life.now.kept {
            let what = format!("{:?} became {:?} without a mark", life.now.kept, seen.kept);
            ledger.wrong(Kind::Foreign, &self.name, seen.revision, what);
        }
        // One that was there all the time is surely known to who has read it after the Node.
        let is_older = self.labels_changed.is_some_and(|(revision, _)| revision < life.born_at);
        let is_stored = self.record.as_ref().is_some_and(|seen| !seen.record.labels.is_empty());
        let is_restored = life.now.marker.is_some() || self.has_own_record(&life.now);
        let is_to_be_restored = is_older && is_stored && !is_restored;
        let is_overdue =
            self.rules.startup_taint.is_some_and(|bound| now.duration_since(life.born) + DELAY >= bound);
        if is_to_be_restored && !is_overdue {
            let what = "its start-up taint went before it was restored".to_owned();
            ledger.wrong(Kind::StartupTaint, &self.name, seen.revision, what);
        }
        self.node = Some(Life { now: seen, ..life });
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
