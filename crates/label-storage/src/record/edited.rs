//! Records that a person changes.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{More, Record, Version, WithheldValue};
use crate::{Labels, ResourceVersion, Rules};

impl Record {
    /// A record for a Node that is still to come, of what a person wants it to have: without labels yet.
    pub fn awaiting(node: &str, identity: Option<String>) -> Self {
        Self {
            config_map: None,
            node: node.to_owned(),
            uid: None,
            node_version: None,
            generation: 0,
            labels_generation: None,
            captured_at: None,
            departed_at: None,
            labels: Labels::new(),
            more: More { identity, ..More::default() },
            leftovers: Default::default(),
        }
    }

    /// The next generation of this record, with what a person has put in place of labels and of what was withheld.
    ///
    /// `seen` is where the cluster was when its Node was seen to be gone. What a Node said before that counts no longer: the event of its
    /// deletion may come late, and would take back what the person has said since.
    pub fn edited(
        &self,
        labels: Labels,
        mut withheld: BTreeMap<String, WithheldValue>,
        seen: Option<ResourceVersion>,
        now: Timestamp,
        rules: &Rules,
    ) -> Self {
        let generation = self.next_generation();
        withheld.retain(|name, _| !labels.contains_key(name));
        // What was withheld and is not any more has to be given to a Node that was restored without it.
        let changed = labels != self.labels || withheld != self.more.withheld;
        let history = self.history_after(labels != self.labels, rules);
        let mut edited = self.clone();
        if changed {
            edited.labels_generation = Some(generation);
            edited.captured_at = Some(now);
        }
        edited.generation = generation;
        edited.node_version = edited.node_version.max(seen);
        edited.more.withheld = withheld;
        edited.more.history = history;
        edited.labels = labels;
        edited
    }
    /// The past of this record once another, which has a past of its own, takes its place: that of both, and what this one holds, as it came
    /// about. The oldest go where there are more than the rules keep. Generations grow with it, so that each names one version: those of one
    /// record say nothing about the other's.
    pub fn history_under(&self, other: &Self, rules: &Rules) -> Vec<Version> {
        let mut history = self.more.history.clone();
        for version in &other.more.history {
            let is_same = |its: &Version| its.at == version.at && its.labels == version.labels;
            if !history.iter().any(is_same) {
                let at = history.iter().position(|its| its.at > version.at).unwrap_or(history.len());
                history.insert(at, version.clone());
            }
        }
        // That has been so until now, whenever it was read.
        if self.labels != other.labels && !self.labels.is_empty() {
            history.push(self.present());
        }
        let too_many = history.len().saturating_sub(rules.history);
        history.drain(..too_many);
        let mut least = 0;
        for version in &mut history {
            version.generation = version.generation.max(least);
            least = version.generation.saturating_add(1);
        }
        history
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(value: &str) -> Labels {
        Labels::from([("pool".to_owned(), value.to_owned())])
    }

    fn version(generation: u64, at: i64, value: &str) -> Version {
        let at = Timestamp::from_second(at).ok();
        Version { generation, at, labels: labels(value) }
    }

    fn record(generation: u64, at: i64, value: &str, history: Vec<Version>) -> Record {
        let Version { at, labels, .. } = version(generation, at, value);
        let mut record = Record::awaiting("a", None);
        (record.generation, record.captured_at, record.labels) = (generation, at, labels);
        record.more.history = history;
        record
    }

    #[test]
    fn two_pasts_become_one_in_the_order_of_time_and_each_generation_names_one_version() {
        let rules = Rules { history: 20, ..Rules::default() };
        let mine = record(3, 40, "mine", vec![version(1, 10, "a"), version(2, 30, "b")]);
        let other = record(3, 50, "other", vec![version(1, 10, "a"), version(2, 20, "c")]);
        let all = [version(1, 10, "a"), version(2, 20, "c"), version(3, 30, "b"), version(4, 40, "mine")];
        assert_eq!(mine.history_under(&other, &rules), all);
        let few = Rules { history: 2, ..rules };
        assert_eq!(mine.history_under(&other, &few), [version(2, 30, "b"), version(3, 40, "mine")]);
        // What is the same is no past.
        let same = record(9, 50, "mine", Vec::new());
        assert_eq!(mine.history_under(&same, &few), mine.more.history);
    }
}
