//! The facts about a node, and the rules that matter to it.

use jiff::SignedDuration;
use label_storage::node::{KEEP, Machine, STARTUP_TAINT};
use label_storage::restore::Plan;
use label_storage::rules::units::DisplayDuration;
use label_storage::rules::{IdentityBy, Patterns};
use label_storage::{Labels, Node, Record};
use label_storage_runtime::records;

use super::Case;
use crate::output::age;

pub(super) fn facts(case: &Case<'_>) -> Vec<String> {
    let found = case.found;
    let mut lines = vec![match &found.node {
        None => format!("Node {} is absent.", found.name),
        Some(node) => {
            let marker = match node.restored_from() {
                Some(from) => format!("restored from generation {}", from.generation),
                None => "not marked as restored".to_owned(),
            };
            let since =
                case.created_at.map(|at| format!(" was created {},", case.ago(at))).unwrap_or_default();
            format!("Node {}{since} has uid {} and is {marker}.", node.name, node.uid)
        }
    }];
    let name = case.record_name();
    if let Some(problem) = found.record.as_ref().and_then(records::Found::complaint) {
        lines.push(format!("Its record is configmap {name}: {problem}."));
    }
    match found.record() {
        None if found.record.is_some() => {}
        None => lines.push("It has no record.".to_owned()),
        Some(record) => {
            let stored =
                record.captured_at.map(|at| format!(", stored {}", case.ago(at))).unwrap_or_default();
            let of = match (&record.uid, &found.node) {
                (None, _) => String::new(),
                (Some(uid), Some(node)) if *uid == node.uid => " from this incarnation".to_owned(),
                (Some(uid), _) => format!(" from incarnation {uid}"),
            };
            let gone =
                record.departed_at.map(|at| format!("; departed {}", case.ago(at))).unwrap_or_default();
            lines.push(format!(
                "Its record is configmap {name}, generation {}{stored}{of}{gone}.",
                record.generation
            ));
        }
    }
    if !case.rivals.is_empty() {
        lines.push(format!("The same identity is claimed by {}.", case.rivals.join(", ")));
    }
    lines
}

/// The rules that matter. `seen` and `stored` are the node and the record as the storer sees them.
pub(super) fn rules(
    case: &Case<'_>,
    seen: Option<&Node>,
    stored: Option<&Record>,
    plan: Option<&Plan>,
) -> Vec<String> {
    let rules = &case.cluster.rules;
    let mut lines = Vec::new();
    if let (Some(node), Some(seen)) = (&case.found.node, seen) {
        lines.extend(selected(case, node, seen));
        lines.extend(startup_taint(case, node, plan));
    }
    if let (Some(record), Some(stored)) = (case.found.record(), stored) {
        let left = missing(&record.labels, &stored.labels);
        if !left.is_empty() {
            lines.push(format!("In the record, and not stored any more by the rules: {}.", left.join(", ")));
        }
    }
    if rules.identity != IdentityBy::Name {
        lines.push(format!(
            "identity.by: {}: the record is filed under {}.",
            rules.identity, case.found.filed_under
        ));
    }
    lines.extend(fence(case));
    for (name, kept) in case.found.record().into_iter().flat_map(|record| &record.more.withheld) {
        let machine = kept.system_uuid.as_deref().unwrap_or("unknown");
        lines.push(format!("Withheld until its machine ({machine}) returns: {name}={}.", kept.value));
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
    let mut lines = Vec::new();
    let list = node.keep_list().map(|list| (list, list.parse::<Patterns>()));
    match &list {
        Some((list, Ok(_))) => lines.push(format!("Its annotation {KEEP} selects labels: {list}.")),
        Some((list, Err(error))) => {
            lines.push(format!("Its annotation {KEEP} ({list}) can't be read: {error}."));
        }
        None => {}
    }
    let why = |key: &str| match () {
        () if rules.labels.exclude.matches(key) => "labels.exclude",
        () if matches!(&list, Some((_, Ok(_)))) => KEEP,
        () => "labels.include",
    };
    let left_out: Vec<_> =
        missing(&node.labels, &seen.labels).iter().map(|key| format!("{key} ({})", why(key))).collect();
    if !left_out.is_empty() {
        lines.push(format!("Not stored: {}.", left_out.join(", ")));
    }
    if seen.extras.is_unselected {
        let why = match rules.selector.matches(&node.labels) {
            true => format!("nodes.optIn: it lacks the annotation {KEEP}"),
            false => format!("nodes.selector: {}", rules.selector),
        };
        let but =
            if case.found.record().is_some() { "; its record is kept up to date all the same" } else { "" };
        lines.push(format!("It is not selected ({why}){but}."));
    }
    lines
}

fn startup_taint(case: &Case<'_>, node: &Node, plan: Option<&Plan>) -> Option<String> {
    let is_lifted = plan.and_then(|plan| plan.patch.as_ref()).is_some_and(|patch| patch.lifts_startup_taint);
    let at_most = case.cluster.rules.startup_taint;
    node.has_startup_taint().then(|| match at_most {
        None => format!("It has the taint {STARTUP_TAINT}, and by the rules nobody removes it (startupTaint)."),
        Some(_) if is_lifted => format!("The restorer removes the taint {STARTUP_TAINT} now."),
        Some(at_most) => format!(
            "The restorer removes the taint {STARTUP_TAINT} with the restore, or {} after it first saw the node.",
            DisplayDuration(at_most)
        ),
    })
}

fn fence(case: &Case<'_>) -> Option<String> {
    let (node, record) = (case.found.node.as_ref()?, case.found.record()?);
    let (own, stored) = (&node.extras.machine, &record.more.machine);
    let name = |machine: &Machine| {
        let names = [&machine.provider_id, &machine.system_uuid];
        names.into_iter().flatten().cloned().collect::<Vec<_>>().join(", ")
    };
    case.cluster.rules.is_fenced().then(|| match () {
        () if own.differs_from(stored) => {
            format!(
                "identity.fence: this machine ({}) is another than that of the record ({}).",
                name(own),
                name(stored)
            )
        }
        () if own.is_surely(stored) => "identity.fence: this is the machine of the record.".to_owned(),
        () => {
            "identity.fence: nothing tells that this is another machine, so it counts as the same.".to_owned()
        }
    })
}

fn retention(case: &Case<'_>) -> Option<String> {
    let record = case.found.record().filter(|record| case.found.node.is_none() && !record.is_empty())?;
    let written = DisplayDuration(case.cluster.rules.retention);
    let Ok(retention) = SignedDuration::try_from(case.cluster.rules.retention) else {
        return Some(format!("retention: {written}: the record is kept until the node returns."));
    };
    let Some(departed_at) = record.departed_at else {
        return Some(format!("retention: {written}, as soon as the storer has noticed the departure."));
    };
    let left = retention.saturating_sub(case.now.duration_since(departed_at));
    Some(if left.is_positive() {
        format!("retention: {written}: {} left.", age(left))
    } else {
        format!("retention: {written}: it is over.")
    })
}
