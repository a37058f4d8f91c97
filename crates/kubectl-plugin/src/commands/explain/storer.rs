//! The next step of the storer.

use label_storage::decision::When;
use label_storage::node_state::{NodeState, Skip};
use label_storage::record::NODE_RESOURCE_VERSION;
use label_storage::rules::IdentityBy;
use label_storage::store::View;
use label_storage::store::{Action, Circumstances, Plan, Reason, Stored};
use label_storage::{Labels, Node, Record};

use super::{Case, Hint, Step, hint};
use crate::changes::{diff_lines, differences};

pub(super) fn step(
    case: &Case<'_>,
    plan: &Plan,
    node: Option<&Node>,
    stored: Stored<&Record>,
    at: Circumstances,
) -> Step {
    let before = match stored {
        Stored::Record(record) => Some(record),
        Stored::Nothing | Stored::Unreadable => None,
    };
    let view = View {
        node: node.map(Node::summary),
        is_surely_gone: node.is_none(),
        is_contested: false,
        stored: stored.map(Record::summary),
        has_final_labels: false,
        is_event: false,
        at,
    };
    let waits = match view.decide(Default::default).when {
        When::After(time, _) if !time.is_zero() => format!(" after {} s without a change", time.as_secs()),
        _ => String::new(),
    };
    let record = case.record_name();
    let does = match &plan.action {
        Action::Nothing if plan.reason.state(false) == NodeState::Skipped(Skip::AwaitingRestore) => {
            "waits".to_owned()
        }
        Action::Nothing => "does nothing".to_owned(),
        Action::Create(_) => format!("creates configmap {record}"),
        Action::Replace(_) => format!("replaces configmap {record}{waits}"),
        Action::Delete => format!("deletes configmap {record}{waits}"),
    };
    let (place, because) = why(plan.reason, before.is_some_and(Record::is_empty));
    Step { reason: plan.reason.as_str(), place, does, because, changes: changes(plan, before) }
}

fn changes(plan: &Plan, before: Option<&Record>) -> Vec<String> {
    let (Action::Create(after) | Action::Replace(after)) = &plan.action else { return Vec::new() };
    let none = Labels::new();
    let mut lines = diff_lines(&differences(before.map_or(&none, |record| &record.labels), &after.labels));
    match (before.and_then(|record| record.departed_at), after.departed_at) {
        (None, Some(_)) => lines.push("departed-at is set".to_owned()),
        (Some(_), None) => lines.push("departed-at is removed".to_owned()),
        _ => {}
    }
    let withheld = after.more.withheld.keys();
    let withheld = withheld.filter(|name| before.is_none_or(|it| !it.more.withheld.contains_key(*name)));
    lines.extend(withheld.map(|name| format!("{name} is set aside: it was withheld from the node")));
    lines
}

/// The place in docs/protocol.md, and the reason in words.
fn why(reason: Reason, is_empty: bool) -> (&'static str, &'static str) {
    match reason {
        Reason::FirstSeen => ("row 1", "The node has labels to keep, and no record yet."),
        Reason::NoLabels => ("row 1", "The node has no label that the rules keep, so it needs no record."),
        Reason::UpToDate => ("row 2", "The record was made from this incarnation, and has its labels."),
        Reason::LabelsChanged if is_empty => {
            ("row 8", "The record is empty, so the labels of the node count.")
        }
        Reason::LabelsChanged => {
            ("row 2", "The record was made from this incarnation, so the labels of the node count.")
        }
        Reason::Restored => ("row 4", "This incarnation was restored, so the labels of the node count."),
        Reason::NotGone => ("row 2", "The record says that the node departed, and it exists."),
        Reason::AwaitingRestore => {
            ("row 3", "This incarnation is not restored yet, so a label that it lacks was not removed.")
        }
        Reason::Returned => {
            ("row 3", "The node is back and not restored yet, so only departed-at is removed.")
        }
        Reason::ViewOlderThanRecord => {
            ("guards", "The record claims a later version of the node than there is.")
        }
        Reason::RecordUnreadable => ("the record", "The record can't be read, and is left for a person."),
        Reason::EmptyForNow | Reason::EmptyForGood => ("row 9", "The record has nothing to restore."),
        Reason::LastWords => ("row 5", "The node was deleted, and these were its last labels."),
        Reason::LeftUnrestored => ("row 6", "The node was deleted before it was restored."),
        Reason::Departed => ("row 7", "The node departed: the retention begins."),
        Reason::Away => ("row 7", "The node departed, and its record waits for it."),
        Reason::RetentionOver => ("row 7", "The retention is over; cleanupShare may delay the deletion."),
        Reason::NothingStored => ("row 7", "The node departed, and has no record."),
        Reason::Ignored => {
            ("rules", "The node has the annotation label-storage/ignore; its record stays as it is.")
        }
        Reason::NotSelected => ("rules", "The rules do not select this node."),
        Reason::NoIdentity => ("rules", "The node lacks the identity that the rules ask for."),
        Reason::OtherMachine => ("rules", "The node was another machine than that of the record."),
        Reason::OutcomeUnknown => ("guards", "An earlier write of the record may still arrive."),
    }
}

pub(super) fn hints(case: &Case<'_>, plan: &Plan) -> Vec<Hint> {
    let (node, rules, hints) = (&case.found.name, &case.cluster.rules, &case.cluster.hints);
    let (record, argument) = (case.record_name(), case.argument());
    let label = hints.kubectl(&format!("label node {node} KEY=VALUE"));
    match plan.reason {
        _ if !case.rivals.is_empty() => {
            let rivals = case.rivals.join(" and ");
            let to = format!("to have it handled, give {rivals} another {} than {node}", rules.identity);
            vec![hint(to, hints.kubectl(&format!("describe node {node}")))]
        }
        Reason::UpToDate | Reason::FirstSeen => vec![hint("to store another label", label)],
        Reason::NoLabels => vec![hint("to get a record", label)],
        Reason::Ignored => {
            vec![hint(
                "to have it handled again",
                hints.kubectl(&format!("annotate node {node} label-storage/ignore-")),
            )]
        }
        Reason::NotSelected if rules.opt_in => {
            vec![hint(
                "to get a record",
                hints.kubectl(&format!("annotate node {node} label-storage/keep='*'")),
            )]
        }
        Reason::NotSelected => {
            vec![hint(format!("to get a record, match {:?}", rules.selector.to_string()), label)]
        }
        Reason::NoIdentity => {
            let to = format!("to get a record, the node needs its {}", rules.identity);
            vec![hint(to, hints.kubectl(&format!("describe node {node}")))]
        }
        Reason::RecordUnreadable => vec![
            hint("to repair the record", hints.in_namespace(&format!("edit configmap {record}"))),
            hint("or to give it up", hints.in_namespace(&format!("delete configmap {record}"))),
        ],
        Reason::ViewOlderThanRecord => {
            let remove = format!("annotate configmap {record} {NODE_RESOURCE_VERSION}-");
            vec![hint("if the record was copied from another cluster", hints.in_namespace(&remove))]
        }
        Reason::Away | Reason::Departed => {
            let set = hints.plugin(&format!("set {argument} KEY=VALUE KEY-"));
            let forget = hints.plugin(&format!("forget {argument}"));
            let mut all = vec![
                hint("to change the labels that it returns with", set),
                hint("to let it return without labels", forget),
            ];
            if rules.identity == IdentityBy::Name {
                let rename = hints.plugin(&format!("rename {argument} NEW"));
                all.push(hint("if it returns under another name", rename));
            }
            all
        }
        Reason::RetentionOver => {
            vec![hint(
                "to keep it, extend the retention",
                hints.in_namespace("edit configmap label-storage-rules"),
            )]
        }
        _ => Vec::new(),
    }
}
