//! The restorer's decision: what a Node gets back, given its record.

mod schedule;
mod startup_taints;

pub use self::schedule::{View, awaits, decide_contested, will_await};
pub use self::startup_taints::StartupTaints;
use strum::{IntoStaticStr, VariantArray};

use crate::item::{Item, MAX_ANNOTATIONS};
use crate::node::{EVERYTHING, KEEP, RESTORED, STARTUP_TAINT, Taint, is_proof};
use crate::rules::{Trust, Winner, builtin_exclusions};
use crate::store::Stored;
use crate::summary::{NodeSummary, RecordSummary};
use crate::{Labels, Node, Record, ResourceVersion, Rules, Uid};

/// The restorer's plan, and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The patch of the Node, if any.
    pub patch: Option<Patch>,
    /// Why: what logs and metrics show.
    pub reason: Reason,
}

/// A patch of a Node, all of it or nothing: what it gets back, and the marker that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// The incarnation that was read. The API server answers 422 where the Node is another by now.
    pub uid: Uid,
    /// The version that was read. Sent along, it makes the API server answer 409 where the Node has changed since.
    pub version: ResourceVersion,
    /// The items that the Node gets, by name (see [`Item`]): those that it lacks, and those whose value in the record counts.
    pub restored: Labels,
    /// The items that both have, with different values.
    pub conflicts: Vec<Conflict>,
    /// The items of the record that this Node does not get.
    pub withheld: Vec<Withheld>,
    /// All taints that the Node is to have, where that are others than it has: the list can only be written as a whole.
    pub taints: Option<Vec<Taint>>,
    /// True if the start-up taint is removed.
    pub lifts_startup_taint: bool,
    /// The new value of the [`RESTORED`] annotation; `None` where nothing is restored.
    pub marker: Option<String>,
    /// The generation of the record that it comes from.
    pub generation: u64,
}

/// Something that a Node and its record both have, with different values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Its name.
    pub name: String,
    /// The side whose value counts from now on.
    pub winner: Winner,
}

/// Something that a Node was not given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withheld {
    /// Its name.
    pub name: String,
    /// Why.
    pub why: Why,
}

/// Why a Node is not given something that its record has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Why {
    /// It says that another machine can be trusted.
    OtherMachine,
    /// It may say that another machine can be trusted: the machine is not known.
    MachineUnknown,
    /// It may say that another machine can be trusted: the Node has another name, and a kubelet can claim any identity of this kind.
    OtherName,
    /// It says how the machine is, or belongs to kubelet, network or storage.
    Never,
    /// The Node's annotations would be larger than the API server takes.
    TooLarge,
    /// The cluster refused it: an admission policy, a webhook or the API server.
    Refused,
}

impl Why {
    /// All of them.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// A word for markers, logs and metrics; part of what users build upon, so it stays.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Why the restorer does what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Reason {
    /// Nothing is stored of this Node, or no label is left of what was.
    NothingStored,
    /// The ConfigMap can't be read: a person has to look.
    RecordUnreadable,
    /// The record was made from this very incarnation: what is not on the Node was removed from it.
    SameIncarnation,
    /// This incarnation has been given these labels before: what is not on the Node was removed from it.
    AlreadyRestored,
    /// A new incarnation lacks labels that the record has.
    Returned,
    /// A new incarnation lacks none; it is marked all the same, or the storer would wait for ever.
    ReturnedWhole,
    /// A person has taken the Node out of all this.
    Ignored,
    /// The Node is another machine than the one that had these labels, and the rules forbid to give them to it.
    OtherMachine,
    /// The Node does not have what its record would be filed under, or does not have it yet.
    NoIdentity,
    /// To decide, more has to be read of the Node than its metadata.
    SeenInPart,
    /// The Node's annotations leave no room for the marker, without which the storer would wait for ever: a person has to remove some.
    NoRoom,
}

impl Reason {
    /// A word for logs and metrics; part of what users build upon, so it stays.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// True if there is nothing to wait for, so that pods may come to the Node.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::NothingStored | Self::SameIncarnation | Self::AlreadyRestored | Self::Ignored)
    }
}

/// Decides what a Node gets back. What it has is never overwritten, unless the rules say that the record's word counts.
///
/// The record has to be read *after* the Node: one that was read before may hold a label that was removed, and
/// stored as removed, before this incarnation was created. The Node is to be seen as it is, not through the rules. `is_overdue`:
/// pods were kept away from it for as long as the rules allow.
pub fn plan_restore(node: &Node, stored: Stored<&Record>, rules: &Rules, is_overdue: bool) -> Plan {
    let reason = decide(&node.summary(), stored.map(Record::summary));
    match (reason, stored) {
        (Reason::Returned, Stored::Record(record)) => restore(node, record, rules, is_overdue),
        _ => Plan { patch: lift(node, rules, reason.is_final() || is_overdue), reason },
    }
}

/// The decision itself, as far as summaries tell: [`Reason::Returned`] stands for [`Reason::ReturnedWhole`],
/// [`Reason::OtherMachine`] and [`Reason::NoRoom`] too.
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

fn restore(node: &Node, record: &Record, rules: &Rules, is_overdue: bool) -> Plan {
    let needs_whole = |(name, _, _)| {
        // Of an annotation that the rules do not ask for, it is not even known that the Node has it.
        Item::parse(name).is_some_and(|kept| !matches!(kept, Item::Label(_)) || needs_proof(kept, rules))
    };
    let needs_whole = rules.is_fenced() || rules.startup_taint.is_some() || record.all().any(needs_whole);
    if !node.extras.is_whole && needs_whole {
        return Plan { patch: None, reason: Reason::SeenInPart };
    }
    if rules.is_fenced() && node.extras.machine.differs_from(&record.more.machine) {
        return Plan { patch: lift(node, rules, is_overdue), reason: Reason::OtherMachine };
    }
    let mut patch = Patch::empty(node);
    let mut room = Room::beside(&node.extras.annotations);
    // A value that differs since the Node was restored once was changed by somebody.
    let is_first = node.restored_from().is_none();
    for (name, value, origin) in record.all() {
        // The items of a record are checked when it is read.
        let Some(kept) = Item::parse(name) else { continue };
        let own = node.value_of(kept);
        if own == Some(value) {
            continue;
        }
        let mut withhold = |why| patch.withheld.push(Withheld { name: name.to_owned(), why });
        match (reason_to_withhold(kept, origin, node, record, rules), own) {
            (Some(why), None) => withhold(why),
            // It has one that counts.
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

/// The marker, with a name for each that was withheld as long as there is room for them.
fn marker(node: &Node, record: &Record, withheld: &[Withheld], room: Room) -> Option<String> {
    let names = withheld.iter().map(|withheld| (withheld.why.as_str(), withheld.name.as_str()));
    let fits = |marker: &String| room.takes_marker(marker);
    let short = || Some(node.marker_for(record, [("many", EVERYTHING)])).filter(fits);
    Some(node.marker_for(record, names)).filter(fits).or_else(short)
}

/// How much may still come to a Node's annotations. One too many would have the API server refuse the whole patch.
#[derive(Debug, Clone, Copy)]
struct Room(usize);

impl Room {
    /// The room for the marker. It is a hundred bytes long, unless very much was withheld.
    const MARKER: usize = 16 << 10;

    fn beside(annotations: &Labels) -> Self {
        let others = annotations.iter().filter(|(key, _)| *key != RESTORED);
        let bytes = others.map(|(key, value)| key.len() + value.len()).sum();
        Self(MAX_ANNOTATIONS.saturating_sub(bytes))
    }

    /// Takes room for a value in the place of the Node's own. Returns false if there is not enough.
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

/// True if only the very machine that had an item gets it back.
fn needs_proof(kept: Item<'_>, rules: &Rules) -> bool {
    kept.is_trust() && rules.trust == Trust::SameMachine
}

fn reason_to_withhold(
    kept: Item<'_>,
    origin: Option<&str>,
    node: &Node,
    record: &Record,
    rules: &Rules,
) -> Option<Why> {
    if is_never_kept(kept) {
        return Some(Why::Never);
    }
    if node.extras.refused.contains_key(&kept.to_string()) {
        return Some(Why::Refused);
    }
    if !needs_proof(kept, rules) {
        return None;
    }
    if rules.identity.is_forgeable() && node.name != record.node {
        return Some(Why::OtherName);
    }
    match (origin, &node.extras.machine.system_uuid) {
        (Some(origin), Some(own)) if is_proof(origin, own) => None,
        (Some(origin), Some(own)) if !origin.eq_ignore_ascii_case(own) => Some(Why::OtherMachine),
        _ => Some(Why::MachineUnknown),
    }
}

/// True if an item is never brought back. A record may have it all the same: people write them, too.
pub fn is_never_kept(kept: Item<'_>) -> bool {
    match kept {
        Item::Annotation(KEEP) | Item::Label(_) | Item::Cordon => false,
        Item::Annotation(key) => builtin_exclusions::is_machine_annotation(key),
        Item::Taint { key, .. } => builtin_exclusions::is_lifecycle_taint(key),
    }
}

/// The patch that does nothing but let pods come.
fn lift(node: &Node, rules: &Rules, is_time: bool) -> Option<Patch> {
    let lifts_startup_taint = rules.startup_taint.is_some() && node.has_startup_taint() && is_time;
    let mut patch = Patch { lifts_startup_taint, ..Patch::empty(node) };
    patch.taints = taints(node, &patch);
    lifts_startup_taint.then_some(patch)
}

/// All taints of a Node after a patch, where that changes them.
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
