//! Restores Nodes now, once.

use anyhow::{Result, bail};
use label_storage::item::Item;
use label_storage::restore::{self, Reason, Why};
use label_storage::rules::{Conflicts, Trust, Winner};
use label_storage::store::Stored;
use label_storage::{Node, Record, Rules, plan_restore};
use label_storage_runtime::patch::merge_patch;
use label_storage_runtime::records;

use crate::Ended;
use crate::cli::Change;
use crate::cluster::Cluster;
use crate::preview::Preview;
use crate::write::{Operation, Proposal, Write, carry_out, each_once};

/// Flags of `restore`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The nodes, by name
    #[arg(value_name = "NODE", required = true)]
    pub nodes: Vec<String>,

    /// Give the node what is stored, also where it has another value
    #[arg(long)]
    pub overwrite: bool,

    /// Give back labels under node-restriction.kubernetes.io/, too, whichever machine it is
    #[arg(long)]
    pub trust: bool,

    /// Restore also where the rules fence the node off, since it is another machine than the one whose labels are stored
    #[arg(long)]
    pub other_machine: bool,

    /// Whether to ask.
    #[command(flatten)]
    pub change: Change,
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let rules = rules(&cluster.rules, &args)?;
    let restore = |node| Restore { node, rules: rules.clone(), overwrite: args.overwrite };
    let operations: Vec<_> = each_once(args.nodes).into_iter().map(restore).collect();
    carry_out(cluster, args.change, "Restore this?", &operations).await
}

/// The rules, but for what the person has said otherwise.
fn rules(rules: &Rules, args: &Args) -> Result<Rules> {
    let mut rules = rules.clone();
    if args.overwrite {
        rules.conflicts = Conflicts::default();
        rules.conflicts.add("*", Winner::Record)?;
    }
    if args.trust {
        rules.trust = Trust::Name;
    }
    rules.fence &= !args.other_machine;
    Ok(rules)
}

struct Restore {
    node: String,
    rules: Rules,
    overwrite: bool,
}

impl Operation for Restore {
    fn node(&self) -> &str {
        &self.node
    }

    async fn plan(&self, cluster: &Cluster, _: u32) -> Result<Proposal> {
        // The Node is read first and the record last, as the restorer does it.
        let found = cluster.find_known(&self.node).await?;
        let name = &self.node;
        let Some(node) = &found.node else {
            bail!(
                "node {name} is not there: it is restored when it returns; \
                 `kubectl label-storage set {name} KEY=VALUE` says what it will return with"
            );
        };
        let record = match found.stored() {
            Stored::Record(record) => record,
            Stored::Nothing => bail!("nothing is stored of node {name}"),
            Stored::Unreadable => {
                let what = found.record.as_ref().and_then(records::Found::complaint).unwrap_or_default();
                bail!("the record of node {name} can't be used: {what}");
            }
        };
        cluster.require_uncontested(&found).await?;
        let (plan, is_again) = plan(node, record, &self.rules, self.overwrite);
        let patch = match (plan.reason, plan.patch) {
            (Reason::Returned | Reason::ReturnedWhole, Some(patch)) => patch,
            (Reason::Ignored, _) => {
                bail!("node {name} is not to be touched: remove its annotation label-storage/ignore first")
            }
            (Reason::NoIdentity, _) => bail!(
                "node {name} does not have what its record would be filed under, which is its {}",
                cluster.rules.identity
            ),
            (Reason::OtherMachine, _) => bail!(
                "node {name} is another machine than the one whose labels are stored, and the rules have a fence: \
                 --other-machine restores it all the same"
            ),
            (Reason::NothingStored, _) => bail!("nothing is left in the record of node {name}"),
            (reason, _) => bail!("node {name} can't be restored: {}", reason.as_str()),
        };
        let has_effect = !patch.restored.is_empty() || patch.lifts_startup_taint || !is_again;
        let preview = show(node, record, &patch, has_effect);
        let mut writes = Vec::new();
        if has_effect {
            writes.push(Write::patch(node, &merge_patch(&patch))?);
        }
        Ok(Proposal { preview, writes, done: format!("node/{name} restored") })
    }
}

/// What the restorer would do if it had never had to do with this Node: what was removed since is given again, if it is still stored. Says
/// whether it had. What it has given a Node counts for more than a record, so that is forgotten, too, where the Node is to be overwritten.
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

fn show(node: &Node, record: &Record, patch: &restore::Patch, has_effect: bool) -> Preview {
    let name = &node.name;
    let mut preview = match has_effect {
        true => Preview::new(format!("node {name} is restored:")),
        false => Preview::new(format!("node {name} has all that it can be given")),
    };
    for (name, value) in &patch.restored {
        preview.changes(name, Item::parse(name).and_then(|kept| node.value_of(kept)), Some(value));
    }
    if patch.lifts_startup_taint {
        preview.also("pods may come: the taint label-storage/restoring is taken off");
    }
    if has_effect && patch.restored.is_empty() {
        preview.also("it lacks nothing, and is marked as restored: from then on its own labels are stored");
    }
    for conflict in patch.conflicts.iter().filter(|conflict| conflict.winner != Winner::Record) {
        let name = &conflict.name;
        let own = Item::parse(name).and_then(|kept| node.value_of(kept)).unwrap_or_default();
        let stored = record.all().find(|(its, _, _)| its == name).map(|(_, value, _)| value);
        let stored = stored.unwrap_or_default();
        preview.note(format!("{name} stays {own}, though {stored} is stored: --overwrite gives it that"));
    }
    for withheld in &patch.withheld {
        let why = match withheld.why {
            Why::OtherMachine => "it is another machine than the one that was trusted: --trust gives it",
            Why::MachineUnknown => {
                "nobody knows whether it is the machine that was trusted: --trust gives it"
            }
            Why::Never => "such is never given back",
            Why::TooLarge => "there is no room left in the node's annotations",
        };
        preview.note(format!("{} is withheld: {why}", withheld.name));
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
        // Never restored, restored from an older record, from this one, and the one that it was made from.
        for (uid, marker, again) in
            [("u1", None, false), ("u1", Some("u1/3"), false), ("u1", Some("u1/5"), true), ("u0", None, true)]
        {
            let (plan, is_again) = plan(&node(uid, "silver", marker), &record, &rules, true);
            let restored = plan.patch.map(|patch| patch.restored);
            assert_eq!((restored, is_again), (Some(labels("gold")), again), "{uid} {marker:?}");
        }
    }
}
