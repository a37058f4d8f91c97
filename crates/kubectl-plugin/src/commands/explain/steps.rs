//! The next steps of the daemons, with their reasons, and the commands that would change the outcome.

use label_storage::decision::When;
use label_storage::item::Item;
use label_storage::node_state::{NodeState, Skip};
use label_storage::record::NODE_RESOURCE_VERSION;
use label_storage::restore::{self, Why};
use label_storage::rules::{IdentityBy, Winner};
use label_storage::store::{self, Action, View};
use label_storage::{Labels, Node, Record};
use label_storage_runtime::records::Found;
use serde::Serialize;

use super::Case;
use crate::changes::{diff_lines, differences};
use crate::hints::quoted;

/// The next step of a daemon.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Step {
    /// The word for it in logs and metrics.
    pub(super) reason: &'static str,
    pub(super) does: String,
    pub(super) because: &'static str,
    /// The place in docs/protocol.md.
    #[serde(rename = "where")]
    pub(super) place: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) changes: Vec<String>,
}

impl Step {
    fn nothing(reason: &'static str, place: &'static str, because: &'static str) -> Self {
        Self { reason, does: "does nothing".to_owned(), because, place, changes: Vec::new() }
    }

    fn contested() -> Self {
        let because = "Several nodes have this identity, so none of them is stored or restored.";
        Self::nothing("identity-contested", "rules", because)
    }
}

pub(super) fn storer(case: &Case<'_>) -> Step {
    if !case.rivals.is_empty() {
        return Step::contested();
    }
    let (plan, before, record) = (&case.to_store, case.stored(), case.record_name());
    let view = View {
        node: case.node.as_ref().map(Node::summary),
        is_surely_gone: case.node.is_none(),
        is_contested: false,
        stored: Found::stored(case.record.as_ref()).map(Record::summary),
        has_final_labels: false,
        is_event: false,
        at: case.at,
    };
    let waits = match view.decide(Default::default).when {
        When::After(time, _) if !time.is_zero() => format!(" after {} s without a change", time.as_secs()),
        _ => String::new(),
    };
    let is_waiting = plan.reason.state(false) == NodeState::Skipped(Skip::AwaitingRestore);
    let (place, because) = why_store(plan.reason, before.is_some_and(Record::is_empty));
    let nothing = Step::nothing(plan.reason.as_str(), place, because);
    let (does, after) = match &plan.action {
        Action::Nothing if is_waiting => ("waits".to_owned(), None),
        Action::Nothing => return nothing,
        Action::Create(after) => (format!("creates configmap {record}"), Some(after)),
        Action::Replace(after) => (format!("replaces configmap {record}{waits}"), Some(after)),
        Action::Delete => (format!("deletes configmap {record}{waits}"), None),
    };
    let changes = after.map(|after| record_changes(before, after)).unwrap_or_default();
    Step { does, changes, ..nothing }
}

fn record_changes(before: Option<&Record>, after: &Record) -> Vec<String> {
    let labels = before.map(|record| &record.labels);
    let mut lines = diff_lines(&differences(labels.unwrap_or(&Labels::new()), &after.labels));
    match (before.and_then(|record| record.departed_at), after.departed_at) {
        (None, Some(_)) => lines.push("departed-at is set".to_owned()),
        (Some(_), None) => lines.push("departed-at is removed".to_owned()),
        _ => {}
    }
    let is_new = |name: &&String| before.is_none_or(|before| !before.more.withheld.contains_key(*name));
    let withheld = after.more.withheld.keys().filter(is_new);
    lines.extend(withheld.map(|name| format!("{name} is kept as withheld: it was not restored")));
    lines
}

/// The place in docs/protocol.md, and the reason in words.
const fn why_store(reason: store::Reason, is_empty: bool) -> (&'static str, &'static str) {
    use store::Reason::*;
    match reason {
        FirstSeen => ("row 1", "The node has labels to keep, and no record yet."),
        NoLabels => ("row 1", "The node has no label that the rules keep, so it needs no record."),
        UpToDate => ("row 2", "The record was made from this incarnation, and has its labels."),
        LabelsChanged if is_empty => ("row 8", "The record is empty, so the labels of the node are stored."),
        LabelsChanged => {
            ("row 2", "The record is of this incarnation, so the labels of the node are stored.")
        }
        Restored => ("row 4", "This incarnation was restored, so the labels of the node are stored."),
        NotGone => ("row 2", "The record is marked as departed, but the node exists."),
        AwaitingRestore => {
            ("row 3", "The node is not restored yet, so its missing labels are not treated as removed.")
        }
        Returned => {
            ("row 3", "The node was re-created and is not restored yet, so only departed-at is removed.")
        }
        ViewOlderThanRecord => {
            ("guards", "The record names a later version of the node than the cluster has.")
        }
        RecordUnreadable => ("the record", "The record can't be read: a person has to fix it."),
        EmptyForNow | EmptyForGood => ("row 9", "The record has nothing to restore."),
        FinalLabels => ("row 5", "The node was deleted, and its final labels are stored."),
        LeftUnrestored => ("row 6", "The node was deleted before it was restored."),
        Departed => ("row 7", "The node was deleted: its retention begins."),
        Away => ("row 7", "The node is absent, and its record is kept for its return."),
        RetentionOver => {
            ("row 7", "The retention has expired; cleanupShare may delay the deletion of the record.")
        }
        NothingStored => ("row 7", "The node is absent, and has no record."),
        Ignored => {
            ("rules", "The node has the annotation label-storage/ignore, so its record is not changed.")
        }
        NotSelected => ("rules", "The rules do not select this node."),
        NoIdentity => ("rules", "The node lacks the identity that the rules require."),
        OtherMachine => ("rules", "The node was on another machine than that of the record."),
        OutcomeUnknown => ("guards", "The outcome of an earlier write of the record is unknown."),
        LabelLost => ("the record", "The record has lost the label app.kubernetes.io/managed-by."),
    }
}

pub(super) fn restorer(case: &Case<'_>) -> Step {
    let Some(plan) = &case.to_restore else {
        return Step::nothing("away", "row 7", "The node is absent. It is restored when it returns.");
    };
    if !case.rivals.is_empty() {
        return Step::contested();
    }
    let (place, because) = why_restore(plan.reason);
    let nothing = Step::nothing(plan.reason.as_str(), place, because);
    if case.awaits_final_labels && plan.patch.as_ref().is_some_and(|patch| patch.marker.is_some()) {
        let because =
            "The labels of the node changed before its deletion, and no storer has stored that yet.";
        let does =
            format!("waits for the final labels of {}, up to the patience in the rules", case.found.name);
        return Step { does, because, place: "final labels", ..nothing };
    }
    let Some(patch) = &plan.patch else { return nothing };
    let (generation, count) = (patch.generation, patch.restored.len());
    let does = match () {
        () if patch.marker.is_none() => "removes the start-up taint".to_owned(),
        () if count == 0 => format!("marks the node as restored from generation {generation}"),
        () => format!("restores {count} of generation {generation}"),
    };
    Step { does, changes: node_changes(case, patch), ..nothing }
}

const fn why_restore(reason: restore::Reason) -> (&'static str, &'static str) {
    use restore::Reason::*;
    match reason {
        NothingStored => ("the table", "The node has no record."),
        RecordUnreadable => ("the record", "The record can't be read: a person has to fix it."),
        SameIncarnation => {
            ("row 2", "The record is of this incarnation, so a missing label was removed on purpose.")
        }
        AlreadyRestored => {
            ("row 4", "The node was restored from this record, so a missing label was removed on purpose.")
        }
        Returned => ("row 3", "This is a new incarnation, and it lacks labels of the record."),
        ReturnedWhole => (
            "row 3",
            "This is a new incarnation with all labels of the record. The storer waits for its marker.",
        ),
        Ignored => ("rules", "The node has the annotation label-storage/ignore."),
        OtherMachine => {
            ("rules", "The node is on another machine than that of the record (identity.otherMachine: none).")
        }
        NoIdentity => ("rules", "The node lacks the identity that the rules require."),
        SeenInPart => ("rules", "The whole node has to be read, not only its metadata."),
        NoRoom => ("row 3", "The annotations of the node leave no room for the marker: remove some of them."),
    }
}

fn node_changes(case: &Case<'_>, patch: &restore::Patch) -> Vec<String> {
    let own = |name: &str| case.found.node.as_ref().and_then(|node| node.value_of(Item::parse(name)?));
    let mut lines = Vec::new();
    for (name, value) in &patch.restored {
        lines.extend(own(name).map(|own| format!("-{name}={own}")));
        lines.push(format!("+{name}={value}"));
    }
    for restore::Conflict { name, winner, .. } in &patch.conflicts {
        let side = if *winner == Winner::Record { "record" } else { "node" };
        let wins = format!("and the value of the {side} wins (wins: {winner})");
        lines.push(format!("{name}: the values of node and record differ, {wins}"));
    }
    for restore::Withheld { name, why } in &patch.withheld {
        let because = match why {
            Why::OtherMachine => "it was read from another machine (identity.otherMachine)",
            Why::OtherName => {
                "it is only restored to a node of the same name, and this node has another name"
            }
            Why::Never => {
                "items that describe a machine, or belong to kubelet, network or storage, are never restored"
            }
            Why::TooLarge => "the annotations of the node would become too large",
            Why::Refused => "the cluster refuses it",
        };
        lines.push(format!("{name} is withheld ({}): {because}", why.as_str()));
    }
    if patch.lifts_startup_taint && patch.marker.is_some() {
        lines.push("the start-up taint is removed".to_owned());
    }
    lines
}

/// A command that would change the outcome.
#[derive(Debug, Serialize)]
pub(super) struct Hint {
    pub(super) to: String,
    pub(super) run: String,
}

fn hint(to: impl Into<String>, run: String) -> Hint {
    Hint { to: to.into(), run }
}

pub(super) fn hints(case: &Case<'_>) -> Vec<Hint> {
    let (hints, rules, found) = (&case.cluster.hints, &case.cluster.rules, case.found);
    let name = &found.name;
    if !case.rivals.is_empty() {
        let rivals = case.rivals.join(" and ");
        let to = format!("to have it stored, give {rivals} another {} than {name}", rules.identity);
        return vec![hint(to, hints.kubectl(&format!("describe node {name}")))];
    }
    let mut all = storer_hints(case);
    let Some(plan) = &case.to_restore else { return all };
    let plugin = |command: &str, flag: &str| hints.plugin(&format!("{command} {name}{flag}"));
    let has = |is_any: fn(&Record) -> bool| found.record().is_some_and(is_any);
    match plan.reason {
        restore::Reason::Returned | restore::Reason::ReturnedWhole => {
            all.push(hint("to restore it now", plugin("restore", "")));
        }
        restore::Reason::OtherMachine => all.extend([
            hint("to restore the labels to this machine anyway", plugin("restore", " --other-machine")),
            hint("to delete the record, so that this machine is stored", plugin("forget", "")),
            hint("to restore other machines, too (identity.otherMachine)", edit_rules(case)),
        ]),
        restore::Reason::SameIncarnation | restore::Reason::AlreadyRestored
            if has(|record| !record.more.history.is_empty()) =>
        {
            all.push(hint("to return to an earlier version", plugin("history", "")));
        }
        _ => {}
    }
    let mut withheld = plan.patch.iter().flat_map(|patch| &patch.withheld);
    let is_withheld = withheld.any(|it| matches!(it.why, Why::OtherMachine | Why::OtherName));
    let was_withheld = has(|record| !record.more.withheld.is_empty());
    if is_withheld || was_withheld && plan.reason != restore::Reason::Ignored {
        all.push(hint("to restore the withheld labels, too", plugin("restore", " --trust")));
    }
    if was_withheld && plan.reason == restore::Reason::SameIncarnation {
        all.push(hint("to drop the withheld items, with the history", plugin("forget", "")));
    }
    all
}

fn edit_rules(case: &Case<'_>) -> String {
    case.cluster.hints.in_namespace("edit configmap label-storage-rules")
}

fn storer_hints(case: &Case<'_>) -> Vec<Hint> {
    use store::Reason::*;
    let (hints, rules, found) = (&case.cluster.hints, &case.cluster.rules, case.found);
    let (name, key, record) = (&found.name, &found.filed_under, case.record_name());
    let on_node = |verb: &str, change: &str| hints.kubectl(&format!("{verb} node {name}{change}"));
    let on_record =
        |verb: &str, change: &str| hints.in_namespace(&format!("{verb} configmap {record}{change}"));
    let label = on_node("label", " KEY=VALUE");
    // Several records may be of nodes of one name.
    let argument = quoted(if found.node.is_some() { name } else { key });
    let plugin = |command: &str, more: &str| hints.plugin(&format!("{command} {argument}{more}"));
    match case.to_store.reason {
        UpToDate | FirstSeen => vec![hint("to store another label", label)],
        NoLabels => vec![hint("to get a record", label)],
        Ignored => {
            vec![hint("to have it stored and restored again", on_node("annotate", " label-storage/ignore-"))]
        }
        NotSelected if rules.opt_in => {
            vec![hint("to get a record", on_node("annotate", " label-storage/keep='*'"))]
        }
        NotSelected => vec![hint(format!("to get a record, match {:?}", rules.selector.to_string()), label)],
        NoIdentity => {
            let to = format!("to get a record, the node needs its {}", rules.identity);
            vec![hint(to, on_node("describe", ""))]
        }
        RecordUnreadable => vec![
            hint("to repair the record", on_record("edit", "")),
            hint("or to delete the record", on_record("delete", "")),
        ],
        ViewOlderThanRecord => {
            let remove = on_record("annotate", &format!(" {NODE_RESOURCE_VERSION}-"));
            vec![hint("if the record was copied from another cluster", remove)]
        }
        Away | Departed => {
            let rename = hint("if it is re-created under another name", plugin("rename", " NEW"));
            let mut all = vec![
                hint("to change its stored labels", plugin("set", " KEY=VALUE KEY-")),
                hint("to delete its stored labels", plugin("forget", "")),
            ];
            all.extend((rules.identity == IdentityBy::Name).then_some(rename));
            all
        }
        RetentionOver => vec![hint("to keep the record, extend the retention", edit_rules(case))],
        _ => Vec::new(),
    }
}
