//! `restore`: restores Nodes now, as the restorer would.

use anyhow::{Result, bail};
use label_storage::node::{IGNORE, STARTUP_TAINT};
use label_storage::restore::{self, Reason, Why};
use label_storage::rules::{Conflicts, IdentityBy, OtherMachine, Winner};
use label_storage::{Node, Record, Rules, item::Item, plan_restore, store::Stored};
use label_storage_runtime::patch::merge_patch;

use crate::write::{Proposal, Write, carry_out};
use crate::{Ended, changes::Preview, cluster::Cluster, flags::Change, hints::quoted, select::Which};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubectl label-storage restore my-node
  kubectl label-storage restore --pending -l pool=gold --dry-run=server")]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Replace values on the node that differ from the stored ones
    #[arg(long)]
    overwrite: bool,
    /// Restore labels that a kubelet may not set, such as node-restriction.kubernetes.io/*, even if they were on another machine or node
    #[arg(long)]
    trust: bool,
    /// Restore a node that the rules exclude because it is on another machine (identity.otherMachine: none)
    #[arg(long)]
    other_machine: bool,
    #[command(flatten)]
    change: Change,
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let mut rules = Rules::clone(&cluster.rules);
    if args.other_machine && rules.other_machine == OtherMachine::None {
        rules.other_machine = OtherMachine::Untrusted;
    }
    if args.overwrite {
        rules.conflicts = Conflicts::default();
        rules.conflicts.add("*", Winner::Record)?;
    }
    if args.trust {
        // With this identity, no label needs the same name.
        rules.identity = IdentityBy::Name;
        if rules.other_machine == OtherMachine::Untrusted {
            rules.other_machine = OtherMachine::All;
        }
    }
    let names = args.which.names(cluster).await?;
    let propose = async |name: &String, _: Option<&Preview>| propose(cluster, &args, &rules, name).await;
    carry_out(cluster, args.change, ("Restore", "node"), &names, args.which.are_named(), propose).await
}

async fn propose(cluster: &Cluster, args: &Args, rules: &Rules, argument: &str) -> Result<Proposal> {
    let found = cluster.find_known(argument).await?;
    let name = &found.name;
    let Some(node) = &found.node else {
        let set = cluster.hints.plugin(&format!("set {} KEY=VALUE", quoted(argument)));
        bail!(
            "node {name} does not exist: it is restored when it is re-created; `{set}` changes its stored labels"
        );
    };
    let record = found.require_record()?;
    if !cluster.rivals(&found).await?.is_empty() {
        bail!("another node has the same identity, {}: delete one of them", found.filed_under);
    }
    let (plan, is_again) = plan(node, record, rules, args.overwrite);
    let patch = match (plan.reason, plan.patch) {
        (Reason::Returned | Reason::ReturnedWhole, Some(patch)) => patch,
        (Reason::Ignored, _) => bail!("node {name} has the annotation {IGNORE}: remove it first"),
        (Reason::OtherMachine, _) => {
            bail!("node {name} is on another machine than its record: give --other-machine to restore it")
        }
        (reason, _) => bail!("node {name} can't be restored: {}", reason.as_str()),
    };
    let has_effect = !patch.restored.is_empty() || patch.lifts_startup_taint || !is_again;
    let writes = if has_effect { vec![Write::patch(node, merge_patch(&patch))] } else { Vec::new() };
    let preview = preview(node, record, &patch, rules, has_effect);
    Ok(Proposal { preview, writes, done: format!("node/{name} restored") })
}

/// The restorer's plan as if the Node was never restored, so that removed items come back; and true if it was.
fn plan(node: &Node, record: &Record, rules: &Rules, overwrite: bool) -> (restore::Plan, bool) {
    let plan = plan_restore(node, Stored::Record(record), rules, false);
    let is_again = matches!(plan.reason, Reason::SameIncarnation | Reason::AlreadyRestored);
    if !is_again && !overwrite {
        return (plan, false);
    }
    let node = Node { marker: None, ..node.clone() };
    let record = Record { uid: None, ..record.clone() };
    (plan_restore(&node, Stored::Record(&record), rules, false), is_again)
}

fn preview(node: &Node, record: &Record, patch: &restore::Patch, rules: &Rules, has_effect: bool) -> Preview {
    let heading = if has_effect { "is restored:" } else { "has everything that can be restored" };
    let mut preview = Preview::new(&format!("node {} {heading}", node.name));
    let own = |name: &str| Item::parse(name).and_then(|item| node.value_of(item));
    let stored = |name: &str| record.all().find(|(its, _, _)| *its == name).map_or("", |(_, value, _)| value);
    for (name, value) in &patch.restored {
        preview.changes(name, own(name), Some(value));
    }
    if patch.lifts_startup_taint {
        preview.also(&format!("the start-up taint {STARTUP_TAINT} is removed"));
    }
    if has_effect && patch.restored.is_empty() {
        preview.also("the node is marked as restored, and its own labels are stored from now on");
    }
    for conflict in patch.conflicts.iter().filter(|conflict| conflict.winner != Winner::Record) {
        let (name, own) = (&conflict.name, own(&conflict.name).unwrap_or_default());
        preview.note(&format!(
            "{name}={own} is not changed: give --overwrite to restore {name}={}",
            stored(name)
        ));
    }
    for restore::Withheld { name, why } in &patch.withheld {
        let hint = match why {
            Why::OtherMachine if rules.other_machine == OtherMachine::None => {
                ": give --other-machine to restore it"
            }
            Why::OtherMachine | Why::OtherName => ": give --trust to restore it",
            Why::Never | Why::TooLarge | Why::Refused => "",
        };
        preview.note(&format!("{name}={} is withheld ({}){hint}", stored(name), why.as_str()));
    }
    preview
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use label_storage::Labels;

    use super::*;

    #[test]
    fn what_is_overwritten_does_not_depend_on_what_the_node_was_given_before() {
        let labels = |pool: &str| Labels::from([("pool".to_owned(), pool.to_owned())]);
        let node = |uid: &str, pool: &str, marker: Option<&str>| {
            let marker = marker.map(str::to_owned);
            Node::new("a".to_owned(), uid.to_owned(), "7", labels(pool), marker).expect("a node")
        };
        let mut record = Record::of(&node("u0", "gold", None), Timestamp::UNIX_EPOCH);
        (record.generation, record.labels_generation) = (5, Some(5));
        let rules = Rules::from_yaml("conflicts: [{keys: ['*'], wins: record}]").expect("rules");
        // Never restored, restored from an older record, restored from this record, and the incarnation of the record.
        for (uid, marker, again) in
            [("u1", None, false), ("u1", Some("u1/3"), false), ("u1", Some("u1/5"), true), ("u0", None, true)]
        {
            let (plan, is_again) = plan(&node(uid, "silver", marker), &record, &rules, true);
            let restored = plan.patch.map(|patch| patch.restored);
            assert_eq!((restored, is_again), (Some(labels("gold")), again), "{uid} {marker:?}");
        }
    }
}
