//! What there is, and which rules have a part in it.

use jiff::SignedDuration;
use label_storage::Node;
use label_storage::node::{KEEP, STARTUP_TAINT};
use label_storage::restore::Plan;
use label_storage::rules::units::DisplayDuration;
use label_storage::rules::{IdentityBy, Patterns};
use label_storage::store::Circumstances;

use super::Case;
use crate::output::age;

/// What there is.
pub(super) fn facts(case: &Case<'_>) -> Vec<String> {
    let found = case.found;
    let mut lines = vec![match &found.node {
        None => format!("Node {} is not there.", found.name),
        Some(node) => {
            let marker = match node.restored_from() {
                Some(from) => format!(", marked as restored from generation {}", from.generation),
                None if node.marker.is_some() => {
                    ", with a marker of another incarnation, which counts as none".to_owned()
                }
                None => ", not marked as restored".to_owned(),
            };
            let since = case.created_at.map(|at| format!(" since {}", case.ago(at))).unwrap_or_default();
            format!("Node {} is there{since}: uid {}{marker}.", node.name, node.uid)
        }
    }];
    if let Some(problem) = found.record.as_ref().and_then(label_storage_runtime::records::Found::complaint) {
        lines.push(format!("Its record, configmap {}: {problem}.", case.record_name()));
    }
    match found.record() {
        None if found.record.is_some() => (),
        None => lines.push("There is no record of it.".to_owned()),
        Some(record) => {
            let stored =
                record.captured_at.map(|at| format!(", stored {}", case.ago(at))).unwrap_or_default();
            let of = match (&record.uid, &found.node) {
                (None, _) => ", which does not say of which incarnation".to_owned(),
                (Some(uid), Some(node)) if *uid == node.uid => " from this very incarnation".to_owned(),
                (Some(uid), _) => format!(" from incarnation {uid}"),
            };
            let gone = record.departed_at.map(|at| format!("; it was seen to be gone {}", case.ago(at)));
            lines.push(format!(
                "Its record is configmap {}, generation {}{stored}{of}{}.",
                case.record_name(),
                record.generation,
                gone.unwrap_or_default()
            ));
        }
    }
    if !case.rivals.is_empty() {
        lines.push(format!("The same record is claimed by {}.", case.rivals.join(", ")));
    }
    lines
}

/// Which rules have a part in it. `seen`: the Node as the storer sees it.
pub(super) fn rules(
    case: &Case<'_>,
    seen: Option<&Node>,
    plan: Option<&Plan>,
    at: Circumstances,
) -> Vec<String> {
    let rules = &case.cluster.rules;
    let mut lines = Vec::new();
    if let (Some(node), Some(seen)) = (&case.found.node, seen) {
        lines.extend(which_labels(case, node, seen));
        lines.extend(which_nodes(case, node, seen));
        lines.extend(startup(case, node, plan));
    }
    if rules.identity != IdentityBy::Name {
        lines.push(format!(
            "identity.by: {}: the record is filed under {}.",
            rules.identity, case.found.filed_under
        ));
    }
    lines.extend(machines(case));
    lines.extend(set_aside(case));
    lines.extend(retention(case, at));
    lines.push(
        "Flags of the daemons count for more: those in their StatefulSets are known here, all others are not.".to_owned(),
    );
    lines
}

/// Which labels are kept.
fn which_labels(case: &Case<'_>, node: &Node, seen: &Node) -> Vec<String> {
    let rules = &case.cluster.rules;
    let list = node.keep_list().map(|list| (list, list.parse::<Patterns>()));
    let mut lines = Vec::new();
    match &list {
        Some((list, Ok(_))) => lines.push(format!("Its own list of what to keep counts: {KEEP}: {list}.")),
        Some((list, Err(error))) => {
            lines.push(format!("Its own list of what to keep ({KEEP}: {list}) counts as none: {error}."));
        }
        None => (),
    }
    let is_listed = matches!(&list, Some((_, Ok(_))));
    let why = |key: &str| match () {
        () if rules.labels.exclude.matches(key) => "labels.exclude",
        () if is_listed => "its own list",
        () => "labels.include",
    };
    let left_out = node.labels.keys().filter(|key| !seen.labels.contains_key(*key));
    let left_out: Vec<_> = left_out.map(|key| format!("{key} ({})", why(key))).collect();
    if !left_out.is_empty() {
        lines.push(format!("Not stored: {}.", left_out.join(", ")));
    }
    lines
}

/// Whether a record is made of it at all.
fn which_nodes(case: &Case<'_>, node: &Node, seen: &Node) -> Vec<String> {
    let rules = &case.cluster.rules;
    let mut lines = Vec::new();
    if node.is_ignored() {
        lines.push("It is ignored: label-storage/ignore: \"true\".".to_owned());
    }
    if seen.extras.is_unselected {
        let why = if rules.selector.matches(&node.labels) {
            "nodes.optIn: it does not say itself what to keep".to_owned()
        } else {
            format!("nodes.selector: {}", rules.selector)
        };
        let follows = case.found.record().is_some();
        let follows = if follows { "; but a record that exists follows its node all the same" } else { "" };
        lines.push(format!("It is not selected ({why}){follows}."));
    }
    lines
}

/// What keeps pods away until it is restored.
fn startup(case: &Case<'_>, node: &Node, plan: Option<&Plan>) -> Option<String> {
    if !node.has_startup_taint() {
        return None;
    }
    let comes_off = plan.and_then(|plan| plan.patch.as_ref()).is_some_and(|patch| patch.lifts_startup_taint);
    Some(match case.cluster.rules.startup_taint {
        None => {
            format!("It has the taint {STARTUP_TAINT}, and the rules have nobody take it off (startupTaint).")
        }
        Some(_) if comes_off => format!("The restorer takes the taint {STARTUP_TAINT} off now."),
        Some(at_most) => format!(
            "The taint {STARTUP_TAINT} stays on until it can be restored, and comes off {} after the restorer has first seen it.",
            DisplayDuration(at_most)
        ),
    })
}

/// Whether it is the machine that it was.
fn machines(case: &Case<'_>) -> Option<String> {
    let (node, record) = (case.found.node.as_ref()?, case.found.record()?);
    if !case.cluster.rules.is_fenced() {
        return None;
    }
    let (own, stored) = (&node.extras.machine, &record.more.machine);
    Some(if own.differs_from(stored) {
        let name = |machine: &label_storage::node::Machine| {
            let names = [&machine.provider_id, &machine.system_uuid];
            names.into_iter().flatten().cloned().collect::<Vec<_>>().join(", ")
        };
        format!(
            "identity.fence: this machine ({}) is another than the record's ({}).",
            name(own),
            name(stored)
        )
    } else if own.is_surely(stored) {
        "identity.fence: it is the machine that the record was made from.".to_owned()
    } else {
        "identity.fence: nothing says that this is another machine than the record's, so it counts as the same.".to_owned()
    })
}

/// What an earlier incarnation had, and this one was not given.
fn set_aside(case: &Case<'_>) -> Vec<String> {
    let withheld = case.found.record().into_iter().flat_map(|record| &record.more.withheld);
    withheld
        .map(|(name, kept)| {
            let machine = kept.system_uuid.as_deref().unwrap_or("nobody knows which");
            format!(
                "Withheld until its machine ({machine}) returns, or a person sets it: {name}={}.",
                kept.value
            )
        })
        .collect()
}

/// How long its record is kept.
fn retention(case: &Case<'_>, at: Circumstances) -> Option<String> {
    let record = case.found.record()?;
    if case.found.node.is_some() || record.is_empty() {
        return None;
    }
    let written = DisplayDuration(at.retention);
    let Ok(retention) = SignedDuration::try_from(at.retention) else {
        return Some(format!("retention: {written}: the record is kept until the node returns."));
    };
    let Some(departed_at) = record.departed_at else {
        return Some(format!("retention: {written}, from when the storer sees that the node is gone."));
    };
    let left = retention.saturating_sub(at.now.duration_since(departed_at));
    Some(if left.is_positive() {
        format!("retention: {written}: {} are left.", age(left))
    } else {
        format!("retention: {written}: it is over.")
    })
}
