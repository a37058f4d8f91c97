//! The facts about a node, and the rules that matter to it.

use jiff::SignedDuration;
use label_storage::node::{KEEP, Machine, STARTUP_TAINT};
use label_storage::rules::units::DisplayDuration;
use label_storage::rules::{IdentityBy, Patterns};
use label_storage::withheld::EVERYTHING;
use label_storage::{Labels, Node};
use label_storage_runtime::records;

use super::Case;
use crate::output::age;

pub(super) fn facts(case: &Case<'_>) -> Vec<String> {
    let (found, name) = (case.found, case.record_name());
    let mut lines = vec![match &found.node {
        None => format!("Node {} is absent.", found.name),
        Some(node) => {
            let since = case.created_at.map(|at| format!(" was created {},", case.ago(at)));
            let marker =
                node.restored_from().map(|from| format!("restored from generation {}", from.generation));
            let (since, marker) =
                (since.unwrap_or_default(), marker.unwrap_or("not marked as restored".into()));
            format!("Node {}{since} has uid {} and is {marker}.", node.name, node.uid)
        }
    }];
    if let Some(problem) = found.record.as_ref().and_then(records::Found::complaint) {
        lines.push(format!("Its record is configmap {name}: {problem}."));
    }
    if found.record.is_none() {
        lines.push("It has no record.".to_owned());
    }
    if let Some(record) = found.record() {
        let stored = record.captured_at.map(|at| format!(", stored {}", case.ago(at))).unwrap_or_default();
        let gone = record.departed_at.map(|at| format!("; departed {}", case.ago(at))).unwrap_or_default();
        let of = match (&record.uid, &found.node) {
            (None, _) => String::new(),
            (Some(uid), Some(node)) if *uid == node.uid => " from this incarnation".to_owned(),
            (Some(uid), _) => format!(" from incarnation {uid}"),
        };
        let generation = record.generation;
        lines.push(format!("Its record is configmap {name}, generation {generation}{stored}{of}{gone}."));
    }
    if !case.rivals.is_empty() {
        lines.push(format!("The same identity is claimed by {}.", case.rivals.join(", ")));
    }
    lines
}

pub(super) fn rules(case: &Case<'_>) -> Vec<String> {
    let (found, rules) = (case.found, &case.cluster.rules);
    let mut lines = Vec::new();
    if let (Some(node), Some(seen)) = (&found.node, &case.node) {
        lines.extend(selected(case, node, seen));
        lines.extend(startup_taint(case, node));
    }
    if let (Some(record), Some(stored)) = (found.record(), case.stored()) {
        let left = missing(&record.labels, &stored.labels);
        if !left.is_empty() {
            lines.push(format!("In the record, but not stored any more by the rules: {}.", left.join(", ")));
        }
    }
    if rules.identity != IdentityBy::Name {
        lines.push(format!(
            "identity.by: {}: the record is filed under {}.",
            rules.identity, found.filed_under
        ));
    }
    lines.extend(other_machine(case));
    for (name, kept) in found.record().into_iter().flat_map(|record| &record.more.withheld) {
        let mut reasons = found.node.iter().flat_map(Node::withheld_with_reasons);
        let why = reasons.find(|(_, its)| [name, EVERYTHING].contains(its));
        let why = why.map(|(why, _)| format!(" ({why})")).unwrap_or_default();
        let node = kept.node.as_deref().unwrap_or("unknown");
        let machine = kept.machine.system_uuid.as_deref().unwrap_or("unknown");
        lines.push(format!(
            "Withheld{why}: {name}={}, read from node {node} (machine {machine}).",
            kept.value
        ));
    }
    lines.extend(retention(case));
    lines
}

fn missing(all: &Labels, seen: &Labels) -> Vec<String> {
    all.keys().filter(|name| !seen.contains_key(*name)).cloned().collect()
}

/// The labels and the nodes that the rules select.
fn selected(case: &Case<'_>, node: &Node, seen: &Node) -> Vec<String> {
    let rules = &case.cluster.rules;
    let list = node.keep_list().map(|list| (list, list.parse::<Patterns>()));
    let mut lines = Vec::from_iter(list.as_ref().map(|(list, parsed)| match parsed {
        Ok(_) => format!("Its annotation {KEEP} selects labels: {list}."),
        Err(error) => format!("Its annotation {KEEP} ({list}) can't be read: {error}."),
    }));
    let why = |key: &str| match () {
        () if rules.labels.exclude.matches(key) => "labels.exclude",
        () if matches!(&list, Some((_, Ok(_)))) => KEEP,
        () => "labels.include",
    };
    let left_out = missing(&node.labels, &seen.labels);
    if !left_out.is_empty() {
        let left_out: Vec<_> = left_out.iter().map(|key| format!("{key} ({})", why(key))).collect();
        lines.push(format!("Not stored: {}.", left_out.join(", ")));
    }
    if seen.extras.is_unselected {
        let why = match rules.selector.matches(&node.labels) {
            true => format!("nodes.optIn: it lacks the annotation {KEEP}"),
            false => format!("nodes.selector: {}", rules.selector),
        };
        let has_record = case.found.record().is_some();
        let but = if has_record { "; its existing record is still updated" } else { "" };
        lines.push(format!("It is not selected ({why}){but}."));
    }
    lines
}

fn startup_taint(case: &Case<'_>, node: &Node) -> Option<String> {
    let patch = case.to_restore.as_ref().and_then(|plan| plan.patch.as_ref());
    let is_lifted = patch.is_some_and(|patch| patch.lifts_startup_taint);
    node.has_startup_taint().then(|| match case.cluster.rules.startup_taint.map(DisplayDuration) {
        None => {
            format!("It has the taint {STARTUP_TAINT}, which is not removed: startupTaint is disabled in the rules.")
        }
        Some(_) if is_lifted => format!("The restorer removes the taint {STARTUP_TAINT} now."),
        Some(at_most) => {
            let late = format!("or {at_most} after it first saw the node");
            format!("The restorer removes the taint {STARTUP_TAINT} with the restore, {late}.")
        }
    })
}

fn other_machine(case: &Case<'_>) -> Option<String> {
    let (rules, node, record) = (&case.cluster.rules, case.found.node.as_ref()?, case.found.record()?);
    let (own, stored) = (&node.extras.machine, &record.more.machine);
    let name = |machine: &Machine| {
        let names = [&machine.provider_id, &machine.system_uuid];
        names.into_iter().flatten().cloned().collect::<Vec<_>>().join(", ")
    };
    let sentence = match own.differs_from(stored) {
        true => format!("this machine ({}) is another than that of the record ({})", name(own), name(stored)),
        false => "this counts as the machine of the record".to_owned(),
    };
    rules.depends_on_machine().then(|| format!("identity.otherMachine: {}: {sentence}.", rules.other_machine))
}

fn retention(case: &Case<'_>) -> Option<String> {
    let record = case.found.record().filter(|record| case.found.node.is_none() && !record.is_empty())?;
    let retention = case.cluster.rules.retention;
    let rest = match (SignedDuration::try_from(retention), record.departed_at) {
        (Err(_), _) => ": the record is kept until the node returns".to_owned(),
        (_, None) => ", from when the storer has stored the deletion".to_owned(),
        (Ok(retention), Some(at)) => {
            let left = retention.saturating_sub(case.now.duration_since(at));
            if left.is_positive() { format!(": {} left", age(left)) } else { ": expired".to_owned() }
        }
    };
    Some(format!("retention: {}{rest}.", DisplayDuration(retention)))
}
