//! Checks records.

use std::time::Instant;

use label_storage::record::Version;
use label_storage::{Labels, Record, ResourceVersion};

use super::unstored::Unstored;
use super::{Fate, short};
use crate::ledger::{Kind, Ledger};
use crate::object::SeenRecord;

impl Fate {
    /// A record was created or replaced.
    /// `is_past`: true if the storers can't receive this deletion any more, although the API server still had it.
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
        self.tell(seen.revision, format!("record {generation} (labels {labels_generation:?}) of node {uid} at {node_version:?} has {labels:?}, departed {departed}"));
        if let Err(what) = self.check_record(&seen) {
            ledger.wrong(Kind::BadRecord, &self.name, seen.revision, what);
        }
        let version = seen.record.node_version.map_or(0, |version| version.0);
        let uid = seen.record.uid.as_ref().map(ToString::to_string).unwrap_or_default();
        // An earlier version is equivalent to the deletion if nothing changed in between.
        let has_all = |unstored: &Unstored| uid == unstored.uid && seen.record.labels == unstored.last;
        let (closed, open): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unstored)
            .into_iter()
            .partition(|unstored| version >= unstored.deleted_at || has_all(unstored));
        self.unstored = open;
        for unstored in closed {
            let are_kept = uid == unstored.uid && version == unstored.deleted_at || has_all(&unstored);
            // The next incarnation was restored with them.
            let are_given =
                !are_kept && !unstored.is_overtaken && self.has_what_is_right(&unstored, Some(&seen));
            if (are_kept || are_given) && !unstored.is_excused {
                ledger.final_labels_kept += 1;
            }
            let is_last = self.versions.back().is_some_and(|last| last.revision == unstored.deleted_at);
            if are_kept && is_last {
                // The final labels are stored after all, and no incarnation was restored without them. So nothing is undetermined any more.
                for key in unstored.otherwise.keys() {
                    let value = seen.record.labels.get(key).cloned();
                    if self.expected.get(key).is_some_and(|values| values.contains(&value)) {
                        self.expected.insert(key.clone(), [value].into());
                    }
                }
            } else if !are_kept && !are_given && !unstored.is_excused {
                // A storer stored the next incarnation first.
                let widened = unstored.widen(&mut self.expected);
                if (widened > 0 || unstored.is_overtaken) && is_past(&self.name, unstored.deleted_at) {
                    let what =
                        format!("the deletion at {} was skipped: {:?}", unstored.deleted_at, unstored.last);
                    ledger.wrong(Kind::Lost, &self.name, seen.revision, what);
                } else {
                    unstored.overtaken(widened, &self.name, seen.revision, now, ledger);
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

    /// A record was deleted. Only an empty record may be.
    pub(crate) fn record_deleted(&mut self, revision: u64, ledger: &mut Ledger) {
        ledger.versions += 1;
        self.tell(revision, "record was deleted".to_owned());
        if let Some(before) = self.record.take()
            && !before.record.labels.is_empty()
        {
            let what = format!("the record was deleted with {:?}", before.record.labels);
            ledger.wrong(Kind::BadRecord, &self.name, revision, what);
        }
    }

    /// Checks that a record has the labels of its Node at the version that it names.
    fn check_record(&self, seen: &SeenRecord) -> Result<(), String> {
        let record = &seen.record;
        let before = self.record.as_ref().map(|before| &before.record);
        if !record.more.withheld.is_empty() {
            return Err(format!("the record withholds {:?} without a reason", record.more.withheld));
        }
        let history = before.map(|before| history(before, record, self.rules.history)).unwrap_or_default();
        if record.more.history != history {
            return Err(format!("the history is {:?}, expected {history:?}", record.more.history));
        }
        if before.is_none() && is_tombstone(record) {
            return Ok(());
        }
        let (Some(uid), Some(version)) = (&record.uid, record.node_version) else {
            return Err("the record has no uid or no version of its node".to_owned());
        };
        if let Some(before) = before {
            if record.node_version < before.node_version {
                return Err(format!(
                    "the record goes back from version {:?} to {version} of its node",
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
                        "the record of the same version has {:?}, and had {:?}",
                        record.labels, before.labels
                    ))
                };
            }
        }
        let made_from = self
            .versions
            .iter()
            .find(|known| known.uid == uid.as_str() && known.revision == version.0)
            .ok_or_else(|| format!("version {version} of {uid} never existed"))?;
        if record.node != made_from.name {
            return Err(format!("the record names node {}, expected {}", record.node, made_from.name));
        }
        let is_merged = record.departed_at.is_some()
            && before.is_some_and(|before| record.labels == self.merged(&before.labels, &made_from.kept));
        if record.labels == made_from.kept || is_merged {
            Ok(())
        } else {
            let (said, says) = (&made_from.kept, &record.labels);
            Err(format!("the record has {says:?}, and version {version} of its node had {said:?}"))
        }
    }

    /// The labels that are stored for a Node that was deleted before it was restored.
    fn merged(&self, stored: &Labels, last: &Labels) -> Labels {
        let mut merged = stored.clone();
        let counts = |key: &String| !(stored.contains_key(key) && self.is_records(key));
        merged.extend(
            last.iter().filter(|(key, _)| counts(key)).map(|(key, value)| (key.clone(), value.clone())),
        );
        merged
    }
}

/// True for the empty record that refuses a create which may still arrive.
fn is_tombstone(record: &Record) -> bool {
    record.uid.is_none() && record.node_version == Some(ResourceVersion(0)) && record.labels.is_empty()
}

/// The expected history of a record, from the record before it. The rules keep `most` versions.
fn history(before: &Record, after: &Record, most: usize) -> Vec<Version> {
    let mut history = before.more.history.clone();
    if before.labels != after.labels && !before.labels.is_empty() {
        let generation = before.labels_generation.unwrap_or(before.generation);
        history.push(Version { generation, at: before.captured_at, labels: before.labels.clone() });
    }
    history.split_off(history.len().saturating_sub(most))
}
