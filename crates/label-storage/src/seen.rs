//! Nodes and records as somebody with rules sees them.

use crate::{Node, Record, Rules, key};

impl Node {
    /// The Node as a storer with these rules sees it: without the labels that it does not store. Not for a restorer, which must
    /// know all that a Node has, lest it overwrites something.
    pub fn seen_through(mut self, rules: &Rules) -> Self {
        if !rules.keeps_all_labels() {
            self.labels.retain(|key, _| rules.keeps_label(key));
        }
        self
    }
}

impl Record {
    /// The record as a storer with these rules sees it: what it would not store is set aside with all else in there that is not
    /// its business. So it makes the record no different from its Node, and not empty, and is written back as it was.
    pub fn seen_through(mut self, rules: &Rules) -> Self {
        if !rules.keeps_all_labels() {
            let beyond = self.labels.extract_if(.., |key, _| !rules.keeps_label(key));
            self.leftovers.data.extend(beyond.map(|(key, value)| key::encode_entry(&key, &value)));
        }
        self
    }
}

#[cfg(test)]
mod tests;
