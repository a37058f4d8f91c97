//! The next step of the restorer.

use label_storage::item::Item;
use label_storage::restore::{Plan, Reason, Why};
use label_storage::rules::Winner;

use super::{Case, Hint, Step, hint};

/// The step for a node that does not exist.
pub(super) fn absent() -> Step {
    Step {
        reason: "away",
        place: "row 7",
        does: "does nothing".to_owned(),
        because: "The node is absent. It is restored when it returns.",
        changes: Vec::new(),
    }
}

pub(super) fn step(case: &Case<'_>, plan: &Plan) -> Step {
    let (place, because) = match plan.reason {
        Reason::NothingStored => ("the table", "The node has no record."),
        Reason::RecordUnreadable => ("the record", "The record can't be read, and is left for a person."),
        Reason::SameIncarnation => {
            ("row 2", "The record was made from this incarnation: a label that it lacks was removed from it.")
        }
        Reason::AlreadyRestored => (
            "row 4",
            "This incarnation was restored from this record: a label that it lacks was removed from it.",
        ),
        Reason::Returned => ("row 3", "This is a new incarnation, and it lacks labels of the record."),
        Reason::ReturnedWhole => (
            "row 3",
            "This is a new incarnation that lacks nothing. It is marked, since the storer waits for the marker.",
        ),
        Reason::Ignored => ("rules", "The node has the annotation label-storage/ignore."),
        Reason::OtherMachine => {
            ("rules", "The node is another machine than that of the record, and the rules have a fence.")
        }
        Reason::NoIdentity => ("rules", "The node lacks the identity that the rules ask for."),
        Reason::SeenInPart => ("rules", "More than the metadata of the node has to be read."),
        Reason::NoRoom => ("row 3", "The annotations of the node leave no room for the marker: remove some."),
    };
    let does = match &plan.patch {
        None => "does nothing".to_owned(),
        Some(patch) if patch.marker.is_none() => "removes the start-up taint".to_owned(),
        Some(patch) if patch.restored.is_empty() => {
            format!("marks the node as restored from generation {}", patch.generation)
        }
        Some(patch) => format!("restores {} of generation {}", patch.restored.len(), patch.generation),
    };
    Step { reason: plan.reason.as_str(), place, does, because, changes: changes(case, plan) }
}

fn changes(case: &Case<'_>, plan: &Plan) -> Vec<String> {
    let Some(patch) = &plan.patch else { return Vec::new() };
    let own = |name: &str| case.found.node.as_ref().and_then(|node| node.value_of(Item::parse(name)?));
    let mut lines = Vec::new();
    for (name, value) in &patch.restored {
        lines.extend(own(name).map(|own| format!("-{name}={own}")));
        lines.push(format!("+{name}={value}"));
    }
    lines.extend(patch.conflicts.iter().map(|conflict| {
        let side = if conflict.winner == Winner::Record { "record" } else { "node" };
        format!(
            "{}: node and record have a value, and that of the {side} wins (wins: {})",
            conflict.name, conflict.winner
        )
    }));
    lines.extend(patch.withheld.iter().map(|withheld| {
        let why = match withheld.why {
            Why::OtherMachine => "it is only for the machine that had it, and this is another",
            Why::MachineUnknown => "it is only for the machine that had it, and this one is unknown",
            Why::Never => "it describes a machine, or belongs to kubelet, network or storage",
            Why::TooLarge => "the annotations of the node would become too large",
        };
        format!("{} is withheld ({}): {why}", withheld.name, withheld.why.as_str())
    }));
    if patch.lifts_startup_taint && patch.marker.is_some() {
        lines.push("the start-up taint is removed".to_owned());
    }
    lines
}

pub(super) fn hints(case: &Case<'_>, plan: &Plan) -> Vec<Hint> {
    let (node, hints) = (&case.found.name, &case.cluster.hints);
    let withholds_now = plan.patch.as_ref().is_some_and(|patch| {
        patch.withheld.iter().any(|it| matches!(it.why, Why::OtherMachine | Why::MachineUnknown))
    });
    let record = case.found.record();
    let has_withheld = record.is_some_and(|record| !record.more.withheld.is_empty());
    let plugin = |words: &str| hints.plugin(&words.replace("NODE", node));
    let mut all = match plan.reason {
        _ if !case.rivals.is_empty() => return Vec::new(),
        Reason::Returned | Reason::ReturnedWhole => vec![hint("to restore it now", plugin("restore NODE"))],
        Reason::OtherMachine => vec![
            hint("to give this machine the labels of the other", plugin("restore NODE --other-machine")),
            hint("to let this machine start without them", plugin("forget NODE")),
            hint(
                "to remove the fence (identity.fence)",
                hints.in_namespace("edit configmap label-storage-rules"),
            ),
        ],
        Reason::SameIncarnation | Reason::AlreadyRestored
            if record.is_some_and(|record| !record.more.history.is_empty()) =>
        {
            vec![hint("to return to an earlier version", plugin("history NODE"))]
        }
        _ => Vec::new(),
    };
    if withholds_now || has_withheld && plan.reason != Reason::Ignored {
        all.push(hint("to give this machine the withheld labels", plugin("restore NODE --trust")));
    }
    all
}
