//! Checks the writes of the restorer.

use std::time::{Duration, Instant};

use super::{Fate, Life, absent};
use crate::ledger::{Kind, Ledger};
use crate::object::{SeenNode, SeenRecord};

/// The oracle may see the creation of a Node this much later than the restorer.
const DELAY: Duration = Duration::from_secs(20);

impl Fate {
    /// The restorer may add missing items, and overwrite items for which the record wins, once. It may do nothing else.
    pub(super) fn restored(&mut self, life: Life, seen: SeenNode, now: Instant, ledger: &mut Ledger) {
        if seen.marker.as_deref().and_then(|marker| marker.split('/').next()) != Some(&seen.uid) {
            let what = format!("the marker {:?} is of another incarnation", seen.marker);
            ledger.wrong(Kind::Foreign, &self.name, seen.revision, what);
        }
        let is_first = life.now.marker.is_none();
        let may_overrule = |key: &String| is_first && self.is_records(key) && seen.kept.contains_key(key);
        self.check_untouched(&life.now, &seen, may_overrule, ledger);
        if self.rules.startup_taint.is_some() && seen.has_startup_taint {
            let what = "the node was restored, and kept its start-up taint".to_owned();
            ledger.wrong(Kind::StartupTaint, &self.name, seen.revision, what);
        }
        let added_late = self.final_labels_added(&life, &seen);
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
                unstored.overtaken(1, &self.name, seen.revision, now, ledger);
            } else if let Some(added) = added_late {
                ledger.overtaken(1, &self.name, seen.revision, now.duration_since(added));
            } else {
                let what = format!("{key} is {value:?} after the restore, expected {expected:?}");
                ledger.wrong(Kind::Resurrected, &self.name, seen.revision, what);
            }
            // Reported once.
            expected.insert(value);
        }
        if let Some(waits) = life.waits
            && ledger.is_timing
        {
            ledger.restored_after.push(now - waits);
        }
        self.node = Some(Life { now: seen, waits: None, ..life });
    }

    /// Checks that a daemon changed no existing item, except those for which the record wins, and nothing that the rules do not keep.
    fn check_untouched(
        &self,
        before: &SeenNode,
        after: &SeenNode,
        may_overrule: impl Fn(&String) -> bool,
        ledger: &mut Ledger,
    ) {
        for (key, value) in before.kept.iter().filter(|(key, _)| !may_overrule(key)) {
            if after.kept.get(key) != Some(value) {
                let what = format!("a daemon changed {key}={value} to {:?}", after.kept.get(key));
                ledger.wrong(Kind::Overwritten, &self.name, after.revision, what);
            }
        }
        if before.rest != after.rest {
            let what = format!(
                "a daemon changed {:?} to {:?}, which the rules do not keep",
                before.rest, after.rest
            );
            ledger.wrong(Kind::Overwritten, &self.name, after.revision, what);
        }
    }

    /// The restorer removed the start-up taint, and may have changed nothing else.
    pub(super) fn lifted(&mut self, life: Life, seen: SeenNode, now: Instant, ledger: &mut Ledger) {
        self.check_untouched(&life.now, &seen, |_| false, ledger);
        if seen.kept != life.now.kept {
            let what = format!("{:?} became {:?} without a marker", life.now.kept, seen.kept);
            ledger.wrong(Kind::Foreign, &self.name, seen.revision, what);
        }
        // The restorer reads the record after the Node, so it knows a record that existed all the time.
        let is_older = self.labels_changed.is_some_and(|(revision, _)| revision < life.born_at);
        let is_stored = self.record.as_ref().is_some_and(|seen| !seen.record.labels.is_empty());
        let is_restored = life.now.marker.is_some() || self.has_own_record(&life.now);
        let is_to_be_restored = is_older && is_stored && !is_restored;
        let is_overdue =
            self.rules.startup_taint.is_some_and(|bound| now.duration_since(life.born) + DELAY >= bound);
        if is_to_be_restored && !is_overdue {
            let what = "the start-up taint was removed before the node was restored".to_owned();
            ledger.wrong(Kind::StartupTaint, &self.name, seen.revision, what);
        }
        self.node = Some(Life { now: seen, ..life });
    }

    /// The time at which the final labels of an earlier incarnation were added to the record, if this one was restored from the record before.
    fn final_labels_added(&self, life: &Life, seen: &SeenNode) -> Option<Instant> {
        let (SeenRecord { record, .. }, (revision, added)) = (self.record.as_ref()?, self.labels_changed?);
        let source = seen.marker.as_deref().and_then(|marker| marker.split('/').nth(1));
        let generation = |source: &str| source.split('@').next()?.parse::<u64>().ok();
        let marked = source.and_then(generation);
        let is_of_another = record.uid.as_ref().is_none_or(|uid| uid.as_str() != seen.uid);
        (is_of_another && marked < record.labels_generation && revision > life.born_at).then_some(added)
    }
}
