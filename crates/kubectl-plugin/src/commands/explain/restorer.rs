//! The restorer's side.

use label_storage::restore::{Plan, Reason, Why};
use label_storage::rules::Winner;

use super::{Case, Decision, Step, step};

const TABLE: &str = "docs/protocol.md, the table";
const ROW_2: &str = "docs/protocol.md, row 2 of the table";
const ROW_3: &str = "docs/protocol.md, row 3 of the table";
const ROW_4: &str = "docs/protocol.md, row 4 of the table";
const ROW_7: &str = "docs/protocol.md, row 7 of the table";
const RECORD: &str = "docs/protocol.md, \"The record\"";
const CHOSEN: &str = "docs/protocol.md, \"What operators choose\"";

/// There is no Node.
pub(super) fn absent() -> Decision {
    Decision {
        reason: "away",
        place: ROW_7,
        does: "does nothing".to_owned(),
        because: "The node is not there: it is restored when it comes back.",
        changes: Vec::new(),
    }
}

/// What it would do, and why.
pub(super) fn decision(case: &Case<'_>, plan: &Plan) -> Decision {
    let (place, because) = match plan.reason {
        Reason::NothingStored => (TABLE, "Nothing is stored of this node."),
        Reason::RecordUnreadable => (RECORD, "The record can't be read, and is left for a person."),
        Reason::SameIncarnation => {
            (ROW_2, "The record was made from this very incarnation: what it lacks was removed from it.")
        }
        Reason::AlreadyRestored => {
            (ROW_4, "This incarnation has been restored from this record: what it lacks was removed from it.")
        }
        Reason::Returned => (ROW_3, "A new incarnation lacks what the record has."),
        Reason::ReturnedWhole => (
            ROW_3,
            "A new incarnation lacks nothing; it is marked all the same, or the storer would wait for ever.",
        ),
        Reason::Ignored => (CHOSEN, "A person has taken the node out of all this."),
        Reason::OtherMachine => (
            CHOSEN,
            "The node is another machine than the one whose labels are stored, and the rules have a fence.",
        ),
        Reason::NoIdentity => (CHOSEN, "The node does not have what its record would be filed under."),
        Reason::SeenInPart => (CHOSEN, "More has to be read of the node than its metadata."),
        Reason::NoRoom => {
            (ROW_3, "The node's annotations leave no room for the marker: remove some of them.")
        }
    };
    let does = match &plan.patch {
        None => "does nothing".to_owned(),
        Some(patch) if patch.marker.is_none() => "takes the start-up taint off".to_owned(),
        Some(patch) if patch.restored.is_empty() => {
            format!("marks the node as restored from generation {}", patch.generation)
        }
        Some(patch) => {
            format!("gives the node {} back, of generation {}", patch.restored.len(), patch.generation)
        }
    };
    Decision { reason: plan.reason.as_str(), place, does, because, changes: changes(case, plan) }
}

fn changes(case: &Case<'_>, plan: &Plan) -> Vec<String> {
    let Some(patch) = &plan.patch else { return Vec::new() };
    let own = |name: &str| {
        case.found.node.as_ref().and_then(|node| node.value_of(label_storage::item::Item::parse(name)?))
    };
    let mut lines = Vec::new();
    for (name, value) in &patch.restored {
        lines.extend(own(name).map(|own| format!("-{name}={own}")));
        lines.push(format!("+{name}={value}"));
    }
    lines.extend(patch.conflicts.iter().map(|conflict| {
        let name = &conflict.name;
        match conflict.winner {
            Winner::Record => format!(
                "{name}: both have a value, and the rules say that the record's counts (wins: record)"
            ),
            Winner::Node => format!("{name}: both have a value, and the node's counts (wins: node)"),
            Winner::Report => format!(
                "{name}: both have a value; the node's counts, and an Event tells of it (wins: report)"
            ),
        }
    }));
    lines.extend(patch.withheld.iter().map(|withheld| {
        let why = match withheld.why {
            Why::OtherMachine => "it is only for the machine that had it, and this is another",
            Why::MachineUnknown => {
                "it is only for the machine that had it, and nobody knows whether this is it"
            }
            Why::Never => "it says how a machine is, or belongs to kubelet, network or storage",
            Why::TooLarge => "the node's annotations would become too large",
        };
        format!("{} is withheld ({}): {why}", withheld.name, withheld.why.as_str())
    }));
    if patch.lifts_startup_taint && patch.marker.is_some() {
        lines.push("the start-up taint comes off with it".to_owned());
    }
    lines
}

/// What would have to happen for the restorer to do something else.
pub(super) fn steps(case: &Case<'_>, plan: &Plan) -> Vec<Step> {
    let (node, advice) = (&case.found.name, &case.cluster.advice);
    let withholds_now = plan.patch.as_ref().is_some_and(|patch| {
        patch.withheld.iter().any(|it| matches!(it.why, Why::OtherMachine | Why::MachineUnknown))
    });
    let has_withheld = case.found.record().is_some_and(|record| !record.more.withheld.is_empty());
    let mut steps = match plan.reason {
        _ if !case.rivals.is_empty() => return Vec::new(),
        Reason::Returned | Reason::ReturnedWhole => {
            vec![step("to have it restored at once", advice.plugin(&format!("restore {node}")))]
        }
        Reason::OtherMachine => vec![
            step(
                "to give this machine what the other had",
                advice.plugin(&format!("restore {node} --other-machine")),
            ),
            step(
                "to have this machine start anew, give up what is stored",
                advice.plugin(&format!("forget {node}")),
            ),
            step(
                "to have no fence (identity.fence)",
                advice.in_namespace("edit configmap label-storage-rules"),
            ),
        ],
        Reason::SameIncarnation | Reason::AlreadyRestored
            if !case.found.record().is_none_or(|record| record.more.history.is_empty()) =>
        {
            vec![step("to have an earlier version back", advice.plugin(&format!("history {node}")))]
        }
        _ => Vec::new(),
    };
    if withholds_now || has_withheld && plan.reason != Reason::Ignored {
        steps.push(step(
            "to trust this machine with what is withheld",
            advice.plugin(&format!("restore {node} --trust")),
        ));
    }
    steps
}
