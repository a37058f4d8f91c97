//! Storer and restorer together: a Node, its record, and whoever does something to them, a step at a time, with the real plan
//! functions and with the record written and read again between any two of them.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ConfigMap;

use crate::fixtures::{decode, encode, node, second};
use crate::item::Item;
use crate::node::{Extras, Machine, Taint};
use crate::restore::Patch;
use crate::store::{Action, Circumstances, Plan, Sighting, Stored};
use crate::{Node, Record, ResourceVersion, Rules, plan_restore, plan_store};

mod composed;
mod trust;

/// The next event.
#[derive(Debug, Clone)]
enum Step {
    /// The Node is created, on a machine of this name.
    Create { machine: &'static str },
    /// Another machine takes the Node over as it is: a reinstalled kubelet adopts a Node that was never deleted.
    Adopt { machine: &'static str },
    /// A person sets something, by its name.
    Set(&'static str, &'static str),
    /// A person removes something, by its name.
    Remove(&'static str),
    /// The Node is deleted. What the storer hears of it, if anything: all that the Node was, or its metadata.
    Delete { is_heard: bool, is_whole: bool },
    /// A storer with these rules (by index) looks at the Node, or stores what one said last. Of a Node that is there it may have
    /// read the metadata alone.
    Store { rules: usize, is_whole: bool },
    /// A restorer with these rules looks at the Node.
    Restore { rules: usize },
    /// A person edits the marker. `UID` stands for the Node's own.
    Mark(&'static str),
    /// A person removes the marker.
    Unmark,
}

/// The state of the cluster.
struct World {
    rules: Vec<Rules>,
    node: Option<Node>,
    /// Which machine the Node really is, whatever it says.
    machine: &'static str,
    stored: Option<ConfigMap>,
    /// The final labels of deleted Nodes that are not stored yet, the oldest first.
    final_labels: Vec<Node>,
    version: u64,
    incarnations: u64,
    /// Each machine, with all that it ever had that was not given to it by a restorer.
    had: BTreeSet<(&'static str, String, String)>,
}

impl World {
    fn new(rules: Vec<Rules>) -> Self {
        Self {
            rules,
            node: None,
            machine: "",
            stored: None,
            final_labels: Vec::new(),
            version: 100,
            incarnations: 0,
            had: BTreeSet::new(),
        }
    }

    /// Does what can be done, and says what a daemon did.
    fn take(&mut self, step: &Step) -> Done {
        self.version += 1;
        let version = ResourceVersion(self.version);
        match (step, &mut self.node) {
            (&Step::Create { machine }, None) => {
                self.incarnations += 1;
                let machine_of = Machine { provider_id: None, system_uuid: Some(machine.to_owned()) };
                let extras = Extras { machine: machine_of, is_whole: true, ..Extras::default() };
                let incarnation = format!("u{}", self.incarnations);
                self.node = Some(Node { version, extras, ..node("a").incarnation(&incarnation) });
                self.machine = machine;
            }
            (&Step::Adopt { machine }, Some(node)) => {
                node.extras.machine.system_uuid = Some(machine.to_owned());
                node.version = version;
                self.machine = machine;
            }
            (Step::Set(name, value), Some(node)) => {
                set(node, name, value);
                node.version = version;
            }
            (Step::Remove(name), Some(node)) => {
                remove(node, name);
                node.version = version;
            }
            (Step::Mark(marker), Some(node)) => {
                node.marker = Some(marker.replace("UID", node.uid.as_str()));
                node.version = version;
            }
            (Step::Unmark, Some(node)) => {
                node.marker = None;
                node.version = version;
            }
            (&Step::Delete { is_heard, is_whole }, Some(node)) => {
                node.version = version;
                let last = seen(node, is_whole);
                self.node = None;
                if is_heard {
                    self.final_labels.push(last);
                }
            }
            (&Step::Store { rules, is_whole }, _) => return self.store(rules, is_whole),
            (&Step::Restore { rules }, Some(_)) => return self.restore(rules),
            _ => {}
        }
        self.remember();
        Done::Nothing
    }

    /// Adds the present items to those that the machine has had.
    fn remember(&mut self) {
        let labels = self.node.iter().flat_map(|node| &node.labels);
        self.had.extend(labels.map(|(key, value)| (self.machine, key.clone(), value.clone())));
    }

    fn record(&self) -> Option<Record> {
        self.stored.as_ref().map(|config_map| decode(config_map).record)
    }

    /// The plan of a storer with these rules, and the Node as it sees it.
    fn plan(&self, rules: usize, is_whole: bool) -> (Plan, Option<Node>) {
        let rules = &self.rules[rules];
        let live = self.node.as_ref().map(|node| seen(node, is_whole));
        let (is_deleted, raw) = match self.final_labels.first() {
            Some(last) => (true, Some(last.clone())),
            None => (false, live),
        };
        let node = raw.map(|node| node.seen_through(rules));
        let sighting = match &node {
            None => Sighting::Gone,
            Some(node) if is_deleted => Sighting::Deleted(node),
            Some(node) => Sighting::Live(node),
        };
        let record = self.record().map(|record| record.seen_through(rules, node.as_ref()));
        let stored = record.as_ref().map_or(Stored::Nothing, Stored::Record);
        (plan_store(sighting, stored, circumstances(), rules), node)
    }

    fn store(&mut self, rules: usize, is_whole: bool) -> Done {
        let before = self.record();
        let (plan, node) = self.plan(rules, is_whole);
        match &plan.action {
            Action::Nothing => {}
            Action::Create(record) | Action::Replace(record) => {
                assert_eq!(matches!(plan.action, Action::Create(_)), self.stored.is_none());
                self.stored = Some(encode(record));
            }
            Action::Delete => self.stored = None,
        }
        // A storer is content with what it wrote.
        let (again, _) = self.plan(rules, is_whole);
        assert!(matches!(again.action, Action::Nothing), "{plan:?} and then {again:?}");
        self.final_labels.drain(..self.final_labels.len().min(1));
        Done::Stored { before, after: self.record(), node, rules }
    }

    fn restore(&mut self, rules: usize) -> Done {
        let Some(node) = &mut self.node else { return Done::Nothing };
        let record = self.stored.as_ref().map(|config_map| decode(config_map).record);
        let stored = record.as_ref().map_or(Stored::Nothing, Stored::Record);
        let Some(patch) = plan_restore(node, stored, &self.rules[rules], false).patch else {
            return Done::Nothing;
        };
        let before = node.clone();
        apply(&patch, node);
        node.version = ResourceVersion(self.version);
        Done::Restored { before, patch, machine: self.machine }
    }
}

/// The action of a daemon.
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum Done {
    Nothing,
    Stored { before: Option<Record>, after: Option<Record>, node: Option<Node>, rules: usize },
    Restored { before: Node, patch: Patch, machine: &'static str },
}

fn circumstances() -> Circumstances {
    Circumstances::at(second(1000))
}

/// A Node as somebody sees it who reads all of it, or its metadata.
fn seen(node: &Node, is_whole: bool) -> Node {
    let mut node = node.clone();
    if !is_whole {
        let annotations = node.extras.annotations;
        node.extras = Extras { annotations, ..Extras::default() };
    }
    node
}

/// The Node after a patch.
fn apply(patch: &Patch, node: &mut Node) {
    for (name, value) in &patch.restored {
        if !matches!(Item::parse(name), Some(Item::Taint { .. })) {
            set(node, name, value);
        }
    }
    if let Some(taints) = &patch.taints {
        node.extras.taints.clone_from(taints);
    }
    if let Some(marker) = &patch.marker {
        node.marker = Some(marker.clone());
    }
}

fn set(node: &mut Node, name: &str, value: &str) {
    let value = value.to_owned();
    match Item::parse(name).expect("a name") {
        Item::Label(key) => _ = node.labels.insert(key.to_owned(), value),
        Item::Annotation(key) => _ = node.extras.annotations.insert(key.to_owned(), value),
        Item::Taint { effect, key } => {
            remove(node, name);
            let (key, effect) = (key.to_owned(), effect.to_owned());
            node.extras.taints.push(Taint { key, value, effect, time_added: None });
        }
        Item::Cordon => node.extras.is_unschedulable = true,
    }
}

fn remove(node: &mut Node, name: &str) {
    match Item::parse(name).expect("a name") {
        Item::Label(key) => _ = node.labels.remove(key),
        Item::Annotation(key) => _ = node.extras.annotations.remove(key),
        Item::Taint { effect, key } => {
            node.extras.taints.retain(|taint| taint.key != key || taint.effect != effect);
        }
        Item::Cordon => node.extras.is_unschedulable = false,
    }
}
