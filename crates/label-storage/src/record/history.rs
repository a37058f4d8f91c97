//! The earlier versions of the labels in a record.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::config_map::to_the_second;
use super::{Record, Version};
use crate::item::Item;
use crate::{Labels, Rules, key};

/// The name of a version in `data`, before its generation.
const NAME: &str = "history:";

/// A version as JSON, without its generation.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    kept: Labels,
}

/// A version as an entry of `data`.
pub(super) fn encode(version: &Version) -> (String, String) {
    let entry = Entry { at: version.at.map(to_the_second), kept: version.labels.clone() };
    // A map of texts is always JSON.
    let value = serde_json::to_string(&entry).unwrap_or_default();
    key::encode_entry(&format!("{NAME}{}", version.generation), &value)
}

/// The generation in the name of a version, in its only spelling.
pub(super) fn generation(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(NAME)?;
    digits.parse().ok().filter(|generation: &u64| generation.to_string() == digits)
}

/// Reads a version. `None` if it is not one that [`encode`] could have written.
pub(super) fn decode(generation: u64, value: &str) -> Option<Version> {
    let Entry { at, kept: labels } = serde_json::from_str(value).ok()?;
    let at = at.map(|at| at.parse::<Timestamp>()).transpose().ok()?;
    let is_item = |(name, value): (&String, &String)| Item::parse(name).is_some_and(|item| item.takes(value));
    labels.iter().all(is_item).then_some(Version { generation, at, labels })
}

impl Record {
    /// The history of the next generation.
    pub(super) fn history_after(&self, has_changed: bool, rules: &Rules) -> Vec<Version> {
        let mut history = self.more.history.clone();
        if has_changed {
            history.extend(self.present());
        }
        latest(history, rules)
    }

    /// The history of another record that replaces this one: both histories in the order of time, then this record's
    /// labels. Generations are raised where they would not grow, because those of two records can't be compared.
    pub fn history_under(&self, other: &Self, rules: &Rules) -> Vec<Version> {
        let mut history = self.more.history.clone();
        for version in &other.more.history {
            let is_same = |its: &Version| its.at == version.at && its.labels == version.labels;
            if !history.iter().any(is_same) {
                let at = history.iter().position(|its| its.at > version.at).unwrap_or(history.len());
                history.insert(at, version.clone());
            }
        }
        if self.labels != other.labels {
            history.extend(self.present());
        }
        let mut history = latest(history, rules);
        let mut least = 0;
        for version in &mut history {
            version.generation = version.generation.max(least);
            least = version.generation.saturating_add(1);
        }
        history
    }

    fn present(&self) -> Option<Version> {
        let generation = self.labels_generation.unwrap_or(self.generation);
        let present = || Version { generation, at: self.captured_at, labels: self.labels.clone() };
        (!self.labels.is_empty()).then(present)
    }
}

fn latest(mut history: Vec<Version>, rules: &Rules) -> Vec<Version> {
    history.drain(..history.len().saturating_sub(rules.history));
    history
}
