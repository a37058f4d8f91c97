//! Records that a person changes.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{More, Record, Withheld};
use crate::{Labels, ResourceVersion, Rules};

impl Record {
    /// A record for a Node that is still to come, of what a person wants it to have: without labels yet.
    pub fn awaiting(node: &str, identity: Option<String>) -> Self {
        Self {
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
        mut withheld: BTreeMap<String, Withheld>,
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
}
