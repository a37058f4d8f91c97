//! Nodes and records as somebody with rules sees them.

use crate::item::Item;
use crate::node::{KEEP, MAX_IDENTITY, is_own_uuid};
use crate::rules::{IdentityBy, Patterns};
use crate::{Node, Record, Rules, key};

/// Where the record of a Node is to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filing {
    /// Under the Node's name.
    ByName,
    /// Under this.
    Under(String),
    /// Nowhere: the Node does not have what would make it the same when it returns, or does not have it yet, or it is what others
    /// have as well.
    Nowhere,
}

impl Rules {
    /// Whether something of this name is kept of a Node with this list of its own.
    pub fn keeps(&self, name: &str, keep: Option<&Patterns>) -> bool {
        match Item::parse(name) {
            None => false,
            Some(Item::Label(key)) => match keep {
                Some(keep) => keep.matches(key) && !self.labels.exclude.matches(key),
                None => self.keeps_label(key),
            },
            Some(Item::Annotation(KEEP)) => true,
            Some(Item::Annotation(key)) => self.keeps_annotation(key),
            Some(Item::Taint { key, .. }) => self.keeps_taint(key),
            Some(Item::Cordon) => self.cordon,
        }
    }

    /// Where the record of a Node is to be found, given all of the Node that [`needs_whole_nodes`](Self::needs_whole_nodes) asks for.
    pub fn filing(&self, node: &Node) -> Filing {
        let machine = &node.extras.machine;
        let system_uuid;
        let (kind, value) = match &self.identity {
            IdentityBy::Name => return Filing::ByName,
            IdentityBy::ProviderId => ("providerID".to_owned(), machine.provider_id.as_deref()),
            IdentityBy::SystemUuid => {
                // Kernels and firmware do not agree on upper and lower case.
                system_uuid = machine.system_uuid.as_ref().map(|uuid| uuid.to_ascii_lowercase());
                ("systemUUID".to_owned(), system_uuid.as_deref())
            }
            IdentityBy::Label(key) => (format!("label:{key}"), node.value_of(Item::Label(key))),
            IdentityBy::Annotation(key) => {
                (format!("annotation:{key}"), node.value_of(Item::Annotation(key)))
            }
        };
        let is_own = |value: &&str| match self.identity {
            IdentityBy::SystemUuid => is_own_uuid(value),
            _ => true,
        };
        match value.filter(|value| (1..=MAX_IDENTITY).contains(&value.len())).filter(is_own) {
            Some(value) => Filing::Under(format!("{kind}={value}")),
            None => Filing::Nowhere,
        }
    }

    /// Whether a Node's metadata is not enough to tell what is to be stored of it, or where.
    pub fn needs_whole_nodes(&self) -> bool {
        let is_by_machine = matches!(self.identity, IdentityBy::ProviderId | IdentityBy::SystemUuid);
        // What a Node said last is not to be stored in the record of another machine.
        self.cordon || is_by_machine || self.is_fenced() || !self.taints.selects_none()
    }

    /// Whether a Node is kept from what another machine of its name had. What is filed under something else needs no fence.
    pub fn is_fenced(&self) -> bool {
        self.fence && self.identity == IdentityBy::Name
    }

    /// Whether a record is made of a Node: it is selected, and has said which labels to keep where it has to.
    fn selects(&self, node: &Node) -> bool {
        self.selector.matches(&node.labels) && (!self.opt_in || node.keep_list().is_some())
    }
}

/// A Node's own list of what to keep. One that can't be read is none: then rather too much is kept than too little.
fn keep_patterns(list: Option<&str>) -> Option<Patterns> {
    list?.parse().ok()
}

impl Node {
    /// The Node, filed as these rules say.
    pub fn filed(mut self, rules: &Rules) -> Self {
        match rules.filing(&self) {
            Filing::ByName => (),
            Filing::Under(identity) => self.extras.identity = Some(identity),
            Filing::Nowhere => self.extras.is_unidentified = true,
        }
        self
    }

    /// Which of its labels are to be kept, where it says so in a way that can be read.
    pub fn keep_patterns(&self) -> Option<Patterns> {
        keep_patterns(self.keep_list())
    }

    /// The Node as a storer with these rules sees it: its labels are all that it stores, and nothing else. Not for a restorer, which
    /// must know all that a Node has, lest it overwrites something.
    pub fn seen_through(mut self, rules: &Rules) -> Self {
        self.extras.is_unselected = !rules.selects(&self);
        let keep = self.keep_patterns();
        if keep.is_some() || !rules.keeps_all_labels() {
            self.labels.retain(|key, _| rules.keeps(key, keep.as_ref()));
        }
        let annotations = self.extras.annotations.iter();
        let annotations = annotations.map(|(key, value)| (Item::Annotation(key).to_string(), value.clone()));
        let taints = self.extras.taints.iter().map(|taint| {
            let kept = Item::Taint { effect: &taint.effect, key: &taint.key };
            (kept.to_string(), taint.value.clone())
        });
        let cordon = self.extras.is_unschedulable.then(|| (Item::Cordon.to_string(), "true".to_owned()));
        let others = annotations.chain(taints).chain(cordon);
        self.labels.extend(others.filter(|(name, _)| rules.keeps(name, None)));
        self
    }
}

impl Record {
    /// The record as a storer with these rules sees it: what it would not store is set aside with all else in there that is not
    /// its business. So it makes the record no different from its Node, and not empty, and is written back as it was. The list
    /// of what is to be kept is the Node's, where that is known: it may be another than the record remembers. And where only the
    /// Node's metadata is known, the record is right about all else.
    pub fn seen_through(mut self, rules: &Rules, node: Option<&Node>) -> Self {
        let keep = match node {
            Some(node) => node.keep_patterns(),
            None => self.keep_patterns(),
        };
        let keeps_all = keep.is_none() && rules.keeps_all_labels();
        let is_unknown = node.is_some_and(|node| !node.extras.is_whole);
        let is_unseen = |name: &str| is_unknown && Item::parse(name).is_some_and(Item::is_in_spec);
        let keeps = |name: &str| keeps_all && !name.contains(':') || rules.keeps(name, keep.as_ref());
        let is_beyond = |name: &str| !keeps(name) || is_unseen(name);
        let beyond = self.labels.extract_if(.., |name, _| is_beyond(name));
        self.leftovers.data.extend(beyond.map(|(name, value)| key::encode_entry(&name, &value)));
        self
    }

    /// The list of what is to be kept of its Node, as the record remembers it.
    pub fn keep_patterns(&self) -> Option<Patterns> {
        let list = self.labels.get(&Item::Annotation(KEEP).to_string());
        keep_patterns(list.map(String::as_str))
    }
}

#[cfg(test)]
mod tests;
