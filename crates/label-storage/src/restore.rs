//! The restorer's decision: the patch of a Node, given its record.

mod anticipation;
mod schedule;
mod startup_taints;

pub use self::anticipation::{Baseline, anticipate, can_anticipate, keeps_final_labels};
pub use self::schedule::{View, decide_contested};
pub use self::startup_taints::StartupTaints;
pub use crate::withheld::Why;
use std::collections::BTreeSet;

use strum::IntoStaticStr;

use crate::item::{Item, MAX_ANNOTATIONS};
use crate::node::{KEEP, RESTORED, STARTUP_TAINT, Taint};
use crate::record::Origin;
use crate::rules::{Winner, builtin_exclusions};
use crate::store::Stored;
use crate::summary::{NodeSummary, RecordSummary};
use crate::withheld::EVERYTHING;
use crate::{Labels, Node, Record, ResourceVersion, Rules, Uid};

/// The restorer's plan, and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The patch of the Node, if any.
    pub patch: Option<Patch>,
    /// The reason, which logs and metrics show.
    pub reason: Reason,
}

/// One patch of a Node: the restored items and the marker. The API server applies it as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// The incarnation that was read. The API server answers 422 if the Node was re-created since.
    pub uid: Uid,
    /// The version that was read. The API server answers 409 if the Node has changed since.
    pub version: ResourceVersion,
    /// The items that are set, by name (see [`Item`]): those that the Node lacks, and those for which the record wins.
    pub restored: Labels,
    /// The items that both have, with different values.
    pub conflicts: Vec<Conflict>,
    /// The items of the record that this Node does not get.
    pub withheld: Vec<Withheld>,
    /// The whole new list of taints, if it changes: it can only be written as a whole.
    pub taints: Option<Vec<Taint>>,
    /// True if the start-up taint is removed.
    pub lifts_startup_taint: bool,
    /// The new value of the [`RESTORED`] annotation; `None` if nothing is restored.
    pub marker: Option<String>,
    /// The generation of the record that it comes from.
    pub generation: u64,
}

/// An item with different values on the Node and in its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Its name.
    pub name: String,
    /// The side whose value is used.
    pub winner: Winner,
}

/// An item that was not restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withheld {
    /// Its name.
    pub name: String,
    /// The reason.
    pub why: Why,
}

/// The reason for a decision of the restorer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Reason {
    /// The Node has no record, or an empty one.
    NothingStored,
    /// The ConfigMap can't be read: a person has to fix it.
    RecordUnreadable,
    /// The record was made from this incarnation: missing labels were removed from the Node.
    SameIncarnation,
    /// This incarnation was restored from these labels before: missing labels were removed from the Node.
    AlreadyRestored,
    /// A new incarnation lacks labels that the record has.
    Returned,
    /// A new incarnation lacks no label. It is marked nevertheless, or the storer would wait for ever.
    ReturnedWhole,
    /// The Node has the ignore annotation.
    Ignored,
    /// The Node is on another machine than that of the record, and by the rules gets nothing.
    OtherMachine,
    /// The Node lacks the identity that the rules require, perhaps only for now.
    NoIdentity,
    /// The whole Node has to be read before a decision, not only its metadata.
    SeenInPart,
    /// The Node's annotations leave no room for the marker, without which the storer would wait for ever: a person has to remove some.
    NoRoom,
}

impl Reason {
    /// The name in logs and metrics. Users rely on it, so it does not change.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// True if nothing will be restored, so that the start-up taint can be removed.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::NothingStored | Self::SameIncarnation | Self::AlreadyRestored | Self::Ignored)
    }
}

/// Plans the patch of a Node. Existing values are never overwritten, unless the rules let the record win.
///
/// The record has to be read *after* the Node: one that was read before may have a label whose removal was stored before this incarnation was
/// created. The Node must be complete, not seen through the rules. `is_overdue`: the start-up taint has been on the Node for as long as the
/// rules allow.
pub fn plan_restore(node: &Node, stored: Stored<&Record>, rules: &Rules, is_overdue: bool) -> Plan {
    let reason = decide(&node.summary(), stored.map(Record::summary));
    match (reason, stored) {
        (Reason::Returned, Stored::Record(record)) => restore(node, record, rules, is_overdue),
        _ => Plan { patch: lift(node, rules, reason.is_final() || is_overdue), reason },
    }
}

/// The decision from summaries only. [`Reason::Returned`] can also mean [`Reason::ReturnedWhole`], [`Reason::OtherMachine`] or
/// [`Reason::NoRoom`].
pub fn decide(node: &NodeSummary, stored: Stored<RecordSummary>) -> Reason {
    match stored {
        _ if node.traits.is_ignored => Reason::Ignored,
        _ if node.traits.is_unidentified => Reason::NoIdentity,
        Stored::Nothing => Reason::NothingStored,
        Stored::Unreadable => Reason::RecordUnreadable,
        Stored::Record(record) if record.is_of(node) => Reason::SameIncarnation,
        Stored::Record(record) if record.is_restored_to(node) => Reason::AlreadyRestored,
        Stored::Record(record) if record.is_empty => Reason::NothingStored,
        Stored::Record(_) => Reason::Returned,
    }
}

/// Plans another try of the items that are withheld from this Node: the rules, the cluster or the Node may have changed since. `None` if the
/// Node gets none of them, and its marker is right. The record is of this incarnation.
pub fn plan_retry(node: &Node, record: &Record, rules: &Rules) -> Option<Plan> {
    let is_named = |name: &str| node.withheld().any(|withheld| withheld == name || withheld == EVERYTHING);
    let is_lacking = |name: &str| Item::parse(name).is_some_and(|item| node.value_of(item).is_none());
    // Items that the Node lacks, and that its marker does not name, were removed from it.
    let mut open = Record { labels: Labels::new(), ..record.clone() };
    open.more.withheld.retain(|name, _| is_named(name) && is_lacking(name));
    let plan = restore(node, &open, rules, false);
    let is_news = |patch: &Patch| {
        let next = Node { marker: patch.marker.clone(), ..node.clone() };
        !patch.restored.is_empty() || next.withheld_with_reasons().ne(node.withheld_with_reasons())
    };
    match plan.reason {
        Reason::SeenInPart => Some(plan),
        Reason::Returned | Reason::ReturnedWhole if plan.patch.as_ref().is_some_and(is_news) => {
            Some(Plan { reason: Reason::SameIncarnation, ..plan })
        }
        _ => None,
    }
}

fn restore(node: &Node, record: &Record, rules: &Rules, is_overdue: bool) -> Plan {
    // Annotations that the rules do not need were not read.
    let is_label = |(name, _, _)| matches!(Item::parse(name), Some(Item::Label(_)));
    let needs_whole =
        rules.depends_on_machine() || rules.startup_taint.is_some() || !record.all().all(is_label);
    if !node.extras.is_whole && needs_whole {
        return Plan { patch: None, reason: Reason::SeenInPart };
    }
    if rules.excludes(node, record) {
        return Plan { patch: lift(node, rules, is_overdue), reason: Reason::OtherMachine };
    }
    let mut patch = Patch::empty(node);
    let mut room = Room::beside(&node.extras.annotations);
    // After an earlier restore, a different value was set by a person.
    let is_first = node.restored_from().is_none();
    for (name, value, origin) in record.all() {
        // The items of a record are checked when it is read.
        let Some(kept) = Item::parse(name) else { continue };
        let own = node.value_of(kept);
        if own == Some(value) {
            continue;
        }
        let mut withhold = |why| patch.withheld.push(Withheld { name: name.to_owned(), why });
        match (reason_to_withhold(kept, origin, node, rules), own) {
            (Some(why), None) => withhold(why),
            // The Node's own value wins.
            (Some(_), Some(_)) => (),
            (None, None) if !room.takes(kept, None, value) => withhold(Why::TooLarge),
            (None, None) => _ = patch.restored.insert(name.to_owned(), value.to_owned()),
            (None, own) => {
                let winner = match rules.conflicts.winner(name) {
                    Winner::Record if !is_first || !room.takes(kept, own, value) => Winner::Node,
                    winner => winner,
                };
                patch.conflicts.push(Conflict { name: name.to_owned(), winner });
                if winner == Winner::Record {
                    patch.restored.insert(name.to_owned(), value.to_owned());
                }
            }
        }
    }
    patch.lifts_startup_taint = rules.startup_taint.is_some() && node.has_startup_taint();
    patch.taints = taints(node, &patch);
    let Some(marker) = marker(node, record, &patch.withheld, room) else {
        return Plan { patch: lift(node, rules, is_overdue), reason: Reason::NoRoom };
    };
    patch.marker = Some(marker);
    patch.generation = record.generation;
    let reason = if patch.restored.is_empty() { Reason::ReturnedWhole } else { Reason::Returned };
    Plan { patch: Some(patch), reason }
}

/// The marker, with the names of the withheld items, or with the reasons alone if there is no room for the names.
fn marker(node: &Node, record: &Record, withheld: &[Withheld], room: Room) -> Option<String> {
    let fits = |marker: &String| room.takes_marker(marker);
    let names: BTreeSet<_> = withheld.iter().map(|it| (it.why.as_str(), it.name.as_str())).collect();
    let reasons: BTreeSet<_> = names.iter().map(|(why, _)| (*why, EVERYTHING)).collect();
    let marker = |list| Some(node.marker_for(record, list)).filter(fits);
    marker(names).or_else(|| marker(reasons))
}

/// The remaining room for annotations of a Node. If they exceed the limit, the API server refuses the whole patch.
#[derive(Debug, Clone, Copy)]
struct Room(usize);

impl Room {
    /// The room for the marker. It has about a hundred bytes, unless many items were withheld.
    const MARKER: usize = 16 << 10;

    fn beside(annotations: &Labels) -> Self {
        let others = annotations.iter().filter(|(key, _)| *key != RESTORED);
        let bytes = others.map(|(key, value)| key.len() + value.len()).sum();
        Self(MAX_ANNOTATIONS.saturating_sub(bytes))
    }

    /// Reserves room for a value that replaces the Node's own. Returns false if there is not enough.
    fn takes(&mut self, kept: Item<'_>, own: Option<&str>, value: &str) -> bool {
        let Item::Annotation(key) = kept else { return true };
        let more = own.map_or(key.len() + value.len(), |own| value.len().saturating_sub(own.len()));
        let fits = more + Self::MARKER <= self.0;
        if fits {
            self.0 -= more;
        }
        fits
    }

    fn takes_marker(self, marker: &str) -> bool {
        RESTORED.len() + marker.len() <= self.0.min(Self::MARKER)
    }
}

fn reason_to_withhold(kept: Item<'_>, origin: Origin<'_>, node: &Node, rules: &Rules) -> Option<Why> {
    if is_never_kept(kept) {
        return Some(Why::Never);
    }
    if node.extras.refused.contains_key(&kept.to_string()) {
        return Some(Why::Refused);
    }
    origin.withholds(kept, node, rules)
}

/// True if an item is never restored. A record may still have it, because people write records, too.
pub fn is_never_kept(kept: Item<'_>) -> bool {
    match kept {
        Item::Annotation(KEEP) | Item::Label(_) | Item::Cordon => false,
        Item::Annotation(key) => builtin_exclusions::is_machine_annotation(key),
        Item::Taint { key, .. } => builtin_exclusions::is_lifecycle_taint(key),
    }
}

/// The patch that only removes the start-up taint.
fn lift(node: &Node, rules: &Rules, is_time: bool) -> Option<Patch> {
    let lifts_startup_taint = rules.startup_taint.is_some() && node.has_startup_taint() && is_time;
    let mut patch = Patch { lifts_startup_taint, ..Patch::empty(node) };
    patch.taints = taints(node, &patch);
    lifts_startup_taint.then_some(patch)
}

/// All taints of a Node after a patch, if the patch changes them.
fn taints(node: &Node, patch: &Patch) -> Option<Vec<Taint>> {
    let mut taints = node.extras.taints.clone();
    if patch.lifts_startup_taint {
        taints.retain(|taint| taint.key != STARTUP_TAINT);
    }
    for (name, value) in &patch.restored {
        let Some(Item::Taint { effect, key }) = Item::parse(name) else { continue };
        match taints.iter_mut().find(|taint| taint.effect == effect && taint.key == key) {
            Some(taint) => taint.value.clone_from(value),
            None => {
                let (key, value, effect) = (key.to_owned(), value.clone(), effect.to_owned());
                taints.push(Taint { key, value, effect, time_added: None });
            }
        }
    }
    (taints != node.extras.taints).then_some(taints)
}

impl Patch {
    fn empty(node: &Node) -> Self {
        Self {
            uid: node.uid.clone(),
            version: node.version,
            restored: Labels::new(),
            conflicts: Vec::new(),
            withheld: Vec::new(),
            taints: None,
            lifts_startup_taint: false,
            marker: None,
            generation: 0,
        }
    }

    /// The same patch with some of its items.
    pub fn with(&self, node: &Node, is_kept: impl Fn(&str) -> bool) -> Self {
        let mut patch = self.clone();
        patch.restored.retain(|name, _| is_kept(name));
        patch.taints = taints(node, &patch);
        patch
    }

    /// The labels that are set.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.kept().filter_map(|(kept, value)| match kept {
            Item::Label(key) => Some((key, value)),
            _ => None,
        })
    }

    /// The annotations that are set, the marker not among them.
    pub fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        self.kept().filter_map(|(kept, value)| match kept {
            Item::Annotation(key) => Some((key, value)),
            _ => None,
        })
    }

    /// True if the Node is cordoned.
    pub fn cordons(&self) -> bool {
        self.kept().any(|(kept, _)| kept == Item::Cordon)
    }

    fn kept(&self) -> impl Iterator<Item = (Item<'_>, &str)> {
        self.restored.iter().filter_map(|(name, value)| Some((Item::parse(name)?, value.as_str())))
    }
}

#[cfg(test)]
mod tests;
