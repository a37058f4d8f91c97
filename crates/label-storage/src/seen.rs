//! Nodes and records as the rules see them.

use crate::item::Item;
use crate::node::{KEEP, MAX_IDENTITY, is_own_uuid};
use crate::rules::{IdentityBy, OtherMachine, Patterns, builtin_exclusions};
use crate::{Node, Record, Rules, key, label};

impl Rules {
    /// True if the item of this name is stored. `keep` is the Node's own list, which takes the place of `labels.include`.
    pub fn keeps(&self, name: &str, keep: Option<&Patterns>) -> bool {
        match Item::parse(name) {
            None => false,
            Some(Item::Label(key)) => {
                keep.unwrap_or(&self.labels.include).matches(key) && !self.labels.exclude.matches(key)
            }
            Some(Item::Annotation(KEEP)) => true,
            Some(Item::Annotation(key)) => self.keeps_annotation(key),
            Some(Item::Taint { key, .. }) => {
                self.taints.selects(key) && !builtin_exclusions::is_lifecycle_taint(key)
            }
            Some(Item::Cordon) => self.cordon,
        }
    }

    /// True if these rules depend on more than a Node's metadata.
    pub fn needs_whole_nodes(&self) -> bool {
        let is_by_machine = matches!(self.identity, IdentityBy::ProviderId | IdentityBy::SystemUuid);
        self.cordon || is_by_machine || self.depends_on_machine() || !self.taints.selects_none()
    }

    /// True if the labels of a Node follow from its record and its final labels alone. Else, the storer may read the machine or the identity
    /// in another way than a watch has reported it.
    pub fn depend_on_name_alone(&self) -> bool {
        self.identity == IdentityBy::Name && !self.depends_on_machine()
    }

    /// True if a decision depends on the machine. Then final labels have to name it, too.
    pub fn depends_on_machine(&self) -> bool {
        self.other_machine != OtherMachine::All
    }

    /// True if a trust label may be withheld from a Node.
    pub fn may_withhold_trust(&self) -> bool {
        self.depends_on_machine() || self.identity.is_forgeable()
    }

    /// True if a Node is neither stored nor restored because it is another machine than that of its record.
    pub fn excludes(&self, node: &Node, record: &Record) -> bool {
        self.other_machine == OtherMachine::None && node.extras.machine.differs_from(&record.more.machine)
    }
}

impl Node {
    /// The Node with the identity that these rules file its record under. Its metadata may not be enough: see
    /// [`Rules::needs_whole_nodes`].
    pub fn filed(mut self, rules: &Rules) -> Self {
        let machine = &self.extras.machine;
        let value = match &rules.identity {
            IdentityBy::Name => return self,
            IdentityBy::ProviderId => machine.provider_id.clone(),
            IdentityBy::SystemUuid => {
                let own = machine.system_uuid.as_ref().filter(|uuid| is_own_uuid(uuid));
                // Kernels and firmware do not agree on upper and lower case.
                own.map(|uuid| uuid.to_ascii_lowercase())
            }
            IdentityBy::Label(key) => self.labels.get(key).cloned(),
            IdentityBy::Annotation(key) => self.extras.annotations.get(key).cloned(),
        };
        let is_usable = |value: &String| (1..=MAX_IDENTITY).contains(&value.len()) && label::is_intact(value);
        match value.filter(is_usable) {
            Some(value) => self.extras.identity = Some(format!("{}={value}", rules.identity)),
            None => self.extras.is_unidentified = true,
        }
        self
    }

    /// The Node's own list of labels to keep. An unreadable one counts as none: better to keep too much than too little.
    pub fn keep_patterns(&self) -> Option<Patterns> {
        self.keep_list()?.parse().ok()
    }

    /// The Node as a storer with these rules sees it: `labels` has all items that are stored, and nothing else. A
    /// restorer must not use this: it would overwrite what it does not see.
    pub fn seen_through(mut self, rules: &Rules) -> Self {
        let is_selected =
            rules.selector.matches(&self.labels) && (!rules.opt_in || self.keep_list().is_some());
        self.extras.is_unselected = !is_selected;
        let keep = self.keep_patterns();
        if keep.is_some() || !rules.labels.selects_all() {
            self.labels.retain(|key, _| rules.keeps(key, keep.as_ref()));
        }
        let annotations = self.extras.annotations.iter();
        let annotations = annotations.map(|(key, value)| (Item::Annotation(key), value.as_str()));
        let taints = self.extras.taints.iter();
        let taints = taints
            .map(|taint| (Item::Taint { effect: &taint.effect, key: &taint.key }, taint.value.as_str()));
        let cordon = self.extras.is_unschedulable.then_some((Item::Cordon, "true"));
        let others = annotations.chain(taints).chain(cordon);
        let others = others.filter(|(item, value)| item.takes(value));
        let others = others.map(|(item, value)| (item.to_string(), value.to_owned()));
        self.labels.extend(others.filter(|(name, _)| rules.keeps(name, None)));
        self
    }

    /// The annotations that these rules keep, and whose values were not UTF-8: they can't be stored.
    pub fn not_intact<'a>(&'a self, rules: &'a Rules) -> impl Iterator<Item = &'a str> {
        let annotations = self.extras.annotations.iter();
        let broken =
            annotations.filter(|(key, value)| rules.wants_annotation(key) && !label::is_intact(value));
        broken.map(|(key, _)| key.as_str())
    }
}

impl Record {
    /// The record as a storer with these rules sees it: items that it would not store are set aside in `leftovers`, and
    /// written back unchanged. The Node's own list of labels to keep counts for more than the record's copy. Where only
    /// the Node's metadata was read, items of its spec are set aside too.
    pub fn seen_through(mut self, rules: &Rules, node: Option<&Node>) -> Self {
        let keep = match node {
            Some(node) => node.keep_patterns(),
            None => self.keep_patterns(),
        };
        let keeps_all = keep.is_none() && rules.labels.selects_all();
        let is_partial = node.is_some_and(|node| !node.extras.is_whole);
        let is_in_spec = |name: &str| matches!(Item::parse(name), Some(Item::Taint { .. } | Item::Cordon));
        let keeps = |name: &str| keeps_all && !name.contains(':') || rules.keeps(name, keep.as_ref());
        let set_aside = self.labels.extract_if(.., |name, _| !keeps(name) || is_partial && is_in_spec(name));
        self.leftovers.data.extend(set_aside.map(|(name, value)| key::encode_entry(&name, &value)));
        self
    }

    /// The record's copy of its Node's own list of labels to keep.
    pub fn keep_patterns(&self) -> Option<Patterns> {
        self.labels.get(&Item::Annotation(KEEP).to_string())?.parse().ok()
    }
}

#[cfg(test)]
mod tests;
