//! What a record must say.

use std::time::Instant;

use label_storage::record::Version;
use label_storage::{Labels, Record, ResourceVersion};

use super::unstored::Unstored;
use super::{Fate, short};
use crate::ledger::{Kind, Ledger};
use crate::object::SeenRecord;

impl Fate {
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

    /// A record says what its Node said at the moment that it names.
    fn check_record(&self, seen: &SeenRecord) -> Result<(), String> {
        let record = &seen.record;
        let before = self.record.as_ref().map(|before| &before.record);
        if !record.more.withheld.is_empty() {
            return Err(format!("it withholds {:?}, without a reason", record.more.withheld));
        }
        let history = before.map(|before| history(before, record, self.rules.history)).unwrap_or_default();
        if record.more.history != history {
            return Err(format!("its history is {:?}, and {history:?} is right", record.more.history));
        }
        if before.is_none() && is_tombstone(record) {
            return Ok(());
        }
        let (Some(uid), Some(version)) = (&record.uid, record.node_version) else {
            return Err("it does not say what it was made from".to_owned());
        };
        if let Some(before) = before {
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
        if record.node != made_from.name {
            return Err(format!("it says that its node is {}, and that is {}", record.node, made_from.name));
        }
        let is_merged = record.departed_at.is_some()
            && before.is_some_and(|before| record.labels == self.merged(&before.labels, &made_from.kept));
        if record.labels == made_from.kept || is_merged {
            Ok(())
        } else {
            let (said, says) = (&made_from.kept, &record.labels);
            Err(format!("it says {says:?}, and version {version} of its node said {said:?}"))
        }
    }

    /// What is stored of a Node that was deleted before it was restored.
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

/// The history of a record, given the one before it and how many versions the rules keep.
fn history(before: &Record, after: &Record, most: usize) -> Vec<Version> {
    let mut history = before.more.history.clone();
    if before.labels != after.labels && !before.labels.is_empty() {
        let generation = before.labels_generation.unwrap_or(before.generation);
        history.push(Version { generation, at: before.captured_at, labels: before.labels.clone() });
    }
    history.split_off(history.len().saturating_sub(most))
}
