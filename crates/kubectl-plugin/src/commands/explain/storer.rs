//! The storer's side.

use label_storage::node_state::{NodeState, Skip};
use label_storage::record::NODE_RESOURCE_VERSION;
use label_storage::rules::IdentityBy;
use label_storage::store::{Action, Plan, Reason, Stored, TOMBSTONE_LIFETIME};
use label_storage::{Labels, Record};
use label_storage_runtime::records;

use super::{Case, Decision, Step, step};
use crate::changes::{diff_lines, differences};

const WAITS: NodeState = NodeState::Skipped(Skip::AwaitingRestore);

/// What it would do, and why.
pub(super) fn decision(case: &Case<'_>, plan: &Plan, record: Option<&records::Found>) -> Decision {
    let before = match records::Found::stored(record) {
        Stored::Record(record) => Some(record),
        Stored::Nothing | Stored::Unreadable => None,
    };
    let does = match &plan.action {
        Action::Nothing if plan.reason.state(false) == WAITS => "waits".to_owned(),
        Action::Nothing => "does nothing".to_owned(),
        Action::Create(record) => {
            format!("creates configmap {} with {} kept", case.record_name(), record.labels.len())
        }
        Action::Replace(_) => format!("replaces configmap {}", case.record_name()),
        Action::Delete => format!(
            "deletes configmap {} once it has seen it unchanged for {} s",
            case.record_name(),
            TOMBSTONE_LIFETIME.as_secs()
        ),
    };
    let is_empty = before.is_some_and(Record::is_empty);
    let (place, because) = why(plan.reason, is_empty);
    Decision { reason: plan.reason.as_str(), place, does, because, changes: changes(plan, before) }
}

fn changes(plan: &Plan, before: Option<&Record>) -> Vec<String> {
    let (Action::Create(after) | Action::Replace(after)) = &plan.action else { return Vec::new() };
    let none = Labels::new();
    let before_labels = before.map_or(&none, |record| &record.labels);
    let mut lines = diff_lines(&differences(before_labels, &after.labels));
    match (before.and_then(|record| record.departed_at), after.departed_at) {
        (None, Some(_)) => lines.push("departed-at is stamped".to_owned()),
        (Some(_), None) => lines.push("departed-at is taken off".to_owned()),
        _ => (),
    }
    let set_aside = after.more.withheld.keys();
    let set_aside = set_aside.filter(|name| before.is_none_or(|it| !it.more.withheld.contains_key(*name)));
    lines.extend(set_aside.map(|name| format!("{name} is set aside: it was withheld from the node")));
    lines
}

const ROW_1: &str = "docs/protocol.md, row 1 of the table";
const ROW_2: &str = "docs/protocol.md, row 2 of the table";
const ROW_3: &str = "docs/protocol.md, row 3 of the table";
const ROW_4: &str = "docs/protocol.md, row 4 of the table";
const ROW_5: &str = "docs/protocol.md, row 5 of the table";
const ROW_6: &str = "docs/protocol.md, row 6 of the table";
const ROW_7: &str = "docs/protocol.md, row 7 of the table";
const ROW_8: &str = "docs/protocol.md, row 8 of the table";
const ROW_9: &str = "docs/protocol.md, row 9 of the table";
const GUARDS: &str = "docs/protocol.md, \"Guards\"";
const RECORD: &str = "docs/protocol.md, \"The record\"";
const CHOSEN: &str = "docs/protocol.md, \"What operators choose\"";

/// Where it stands, and why it is so.
fn why(reason: Reason, is_empty: bool) -> (&'static str, &'static str) {
    match reason {
        Reason::FirstSeen => (ROW_1, "The node has something to be kept, and there is no record yet."),
        Reason::NoLabels => (ROW_1, "The node has nothing that the rules keep, so it needs no record."),
        Reason::UpToDate => {
            (ROW_2, "The record was made from this very incarnation, and says what the node says.")
        }
        Reason::LabelsChanged if is_empty => {
            (ROW_8, "The record is empty, so nothing is to be restored, and the node is right.")
        }
        Reason::LabelsChanged => {
            (ROW_2, "The record was made from this very incarnation, and the node is right.")
        }
        Reason::Restored => {
            (ROW_4, "The restorer has marked this incarnation: from here on the node is right.")
        }
        Reason::NotGone => (ROW_2, "The record says that the node is gone, and it is there."),
        Reason::AwaitingRestore => {
            (ROW_3, "This incarnation has not been restored, so that it lacks something says nothing yet.")
        }
        Reason::Returned => (
            ROW_3,
            "The node is back and has not been restored; of the record only departed-at is taken off.",
        ),
        Reason::ViewOlderThanRecord => {
            (GUARDS, "The record claims to be made from a later version of the node than there is.")
        }
        Reason::RecordUnreadable => (RECORD, "The record can't be read, and is left for a person."),
        Reason::EmptyForNow | Reason::EmptyForGood => {
            (ROW_9, "Nothing is left in the record that could come back.")
        }
        Reason::LastWords => (ROW_5, "The node was deleted: these were its last labels."),
        Reason::LeftUnrestored => (ROW_6, "The node was deleted before it was restored."),
        Reason::Departed => (ROW_7, "The node is gone: from now on the retention counts."),
        Reason::Away => (ROW_7, "The node is gone, and its record waits for it."),
        Reason::RetentionOver => {
            (ROW_7, "The node has been gone for longer than the retention; cleanupShare may hold this up.")
        }
        Reason::NothingStored => (ROW_7, "The node is gone, and nothing is stored of it."),
        Reason::Ignored => {
            (CHOSEN, "A person has taken the node out of all this; what was stored before stays.")
        }
        Reason::NotSelected => (CHOSEN, "The rules have no record made of this node."),
        Reason::NoIdentity => (CHOSEN, "The node does not have what its record would be filed under."),
        Reason::OtherMachine => {
            (CHOSEN, "The node was another machine than the one that the record is kept for.")
        }
        Reason::OutcomeUnknown => (GUARDS, "An earlier write of the record may still arrive."),
    }
}

/// What would have to happen for the storer to do something else.
pub(super) fn steps(case: &Case<'_>, plan: &Plan) -> Vec<Step> {
    let (node, rules, advice) = (&case.found.name, &case.cluster.rules, &case.cluster.advice);
    let (record, argument) = (case.record_name(), case.argument());
    let label = advice.kubectl(&format!("label node {node} KEY=VALUE"));
    match plan.reason {
        _ if !case.rivals.is_empty() => vec![step(
            format!(
                "to have it handled, give each of {} another identity than {node}, by",
                case.rivals.join(", ")
            ),
            format!("what the rules go by, which is {}", rules.identity),
        )],
        Reason::UpToDate | Reason::FirstSeen => {
            vec![step("to have something else stored, change the node", label)]
        }
        Reason::NoLabels => vec![step("to have a record, give the node a label", label)],
        Reason::Ignored => vec![step(
            "to have it handled again",
            advice.kubectl(&format!("annotate node {node} label-storage/ignore-")),
        )],
        Reason::NotSelected if rules.opt_in => vec![step(
            "to have a record, have the node say what to keep",
            advice.kubectl(&format!("annotate node {node} label-storage/keep='*'")),
        )],
        Reason::NotSelected => vec![step(
            format!("to have a record, label the node so that it matches {:?}", rules.selector.to_string()),
            label,
        )],
        Reason::NoIdentity => vec![step(
            format!("to have a record, the node needs what the rules go by ({})", rules.identity),
            advice.kubectl(&format!("describe node {node}")),
        )],
        Reason::RecordUnreadable => vec![
            step("to mend the record", advice.in_namespace(&format!("edit configmap {record}"))),
            step("or to give it up", advice.in_namespace(&format!("delete configmap {record}"))),
        ],
        Reason::ViewOlderThanRecord => vec![step(
            "if the record was copied from another cluster",
            advice.in_namespace(&format!("annotate configmap {record} {NODE_RESOURCE_VERSION}-")),
        )],
        Reason::Away | Reason::Departed => {
            let mut steps = vec![
                step(
                    "to change what it comes back with",
                    advice.plugin(&format!("set {argument} KEY=VALUE KEY-")),
                ),
                step("to have it come back with nothing", advice.plugin(&format!("forget {argument}"))),
            ];
            // By anything else it is the same machine under any name.
            steps.extend((rules.identity == IdentityBy::Name).then(|| {
                let rename = advice.plugin(&format!("rename {argument} NEW"));
                step("if it comes back under another name", rename)
            }));
            steps
        }
        Reason::RetentionOver => vec![step(
            "to keep it, have a longer retention",
            advice.in_namespace("edit configmap label-storage-rules"),
        )],
        _ => Vec::new(),
    }
}
