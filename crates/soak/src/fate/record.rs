//! What a record must say.

use std::time::Instant;

use label_storage::Record;

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
}
