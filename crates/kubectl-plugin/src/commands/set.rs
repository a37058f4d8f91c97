//! `set`: changes the labels that an absent Node returns with.

use anyhow::{Result, bail};
use label_storage::restore::{Reason, is_never_kept};
use label_storage::rules::{IdentityBy, units::DisplayDuration};
use label_storage::{Record, item::Item};

use crate::commands::history::edit;
use crate::write::{Proposal, Write, carry_out};
use crate::{Ended, changes::Preview, cluster::Cluster, find::NOT_DEPARTED, flags::Change, hints::quoted};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubectl label-storage set my-node pool=gold old-
  kubectl label-storage set my-node taint:NoSchedule:dedicated=gpu")]
pub struct Args {
    /// The name of the node, which may not exist yet
    node: String,
    /// KEY=VALUE sets a label, KEY- removes it. KEY can also be annotation:KEY, taint:EFFECT:KEY or cordon:
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = parse_edit)]
    edits: Vec<Edit>,
    /// The identity of a node that does not exist yet, if the rules do not identify nodes by name, such as systemUUID=VALUE
    #[arg(long, value_name = "KIND=VALUE")]
    identity: Option<String>,
    /// Continue even if no storer has stored the deletion of the node: its final labels may be lost
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    change: Change,
}

/// The name of an item and its new value; `None` removes it.
type Edit = (String, Option<String>);

fn parse_edit(text: &str) -> Result<Edit, String> {
    let (name, value) = match (text.split_once('='), text.strip_suffix('-')) {
        (Some((name, value)), _) => (name, Some(value)),
        (None, Some(name)) => (name, None),
        (None, None) => return Err(format!("write {text}=VALUE to set it, or {text}- to remove it")),
    };
    let Some(item) = Item::parse(name) else {
        let kinds = "KEY, annotation:KEY, taint:EFFECT:KEY or cordon:";
        return Err(format!("{name:?} is not a valid key: write {kinds}"));
    };
    match value {
        Some(_) if is_never_kept(item) => Err(format!("{name} is never restored, so it can't be set")),
        Some(value) if !item.takes(value) => {
            let hint = if item == Item::Cordon { ": write cordon:=true" } else { "" };
            Err(format!("{value:?} is not a valid value of {name}{hint}"))
        }
        _ => Ok((name.to_owned(), value.map(str::to_owned))),
    }
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let count = |name: &str| args.edits.iter().filter(|(other, _)| other == name).count();
    if let Some((name, _)) = args.edits.iter().find(|(name, _)| count(name) > 1) {
        bail!("{name} is given more than once");
    }
    let by = &cluster.rules.identity;
    match &args.identity {
        Some(_) if *by == IdentityBy::Name => bail!("the rules identify nodes by name: omit --identity"),
        Some(identity) if identity.strip_prefix(&format!("{by}=")).is_none_or(str::is_empty) => {
            bail!("the rules identify nodes by {by}: write --identity {by}=VALUE")
        }
        _ => (),
    }
    let plan = async |args: &Args, _: Option<&Preview>| plan(cluster, args).await;
    carry_out(cluster, args.change, ("Change", "record"), &[args], true, plan).await
}

async fn plan(cluster: &Cluster, args: &Args) -> Result<Proposal> {
    let Args { node: name, identity, edits, .. } = args;
    let found = cluster.find(identity.as_ref().unwrap_or(name)).await?;
    let found = cluster.once_departed(found, args.force).await?;
    let (rules, by) = (&cluster.rules, &cluster.rules.identity);
    let record = match &found.record {
        Some(_) => found.require_record()?.clone(),
        None if *by != IdentityBy::Name && identity.is_none() && found.node.is_none() => {
            bail!("nothing is stored for node {name}: give --identity {by}=VALUE to create its record")
        }
        None => Record::awaiting(name, identity.clone()),
    };
    // Read after the record: if the Node is absent now, it was absent at that version of the record.
    let seen = cluster.absence(&found).await?;
    // A Node that is still to be restored gets the labels of its record. Otherwise its own labels are stored.
    let is_pending = matches!(found.restore_reason(), Some(Reason::Returned | Reason::Ignored));
    if seen.is_none() && !(is_pending && found.record.is_some()) {
        let label = cluster.hints.kubectl(&format!("label node {} KEY=VALUE", quoted(&found.name)));
        bail!("node {} exists, and its own labels are stored: run `{label}`", found.name);
    }
    let mut preview = Preview::new(&format!("the stored labels of node {name} change:"));
    for (name, value) in edits {
        let before = record.all().find(|(its, _, _)| its == name).map(|(_, value, _)| value);
        if value.is_none() && before.is_none() {
            preview.note(&format!("{name} is not stored"));
        }
        preview.changes(name, before, value.as_deref());
    }
    let done = format!("record of node/{name} changed");
    let Some(edited) = edit(&record, edits.iter().cloned().collect(), seen, rules) else {
        preview.note("nothing changes");
        return Ok(Proposal { preview, writes: Vec::new(), done });
    };
    if found.record.is_none() {
        let retention = DisplayDuration(rules.retention);
        preview.note(&format!(
            "a new record is created: it is restored to the node if that is created within {retention}"
        ));
    } else if edited.is_empty() {
        preview.note("the record becomes empty: the storer will delete it");
    } else if found.node.is_some() {
        preview.note("the node exists and is about to be restored: the restorer may use the present labels");
    } else if found.is_departing() {
        preview.note(NOT_DEPARTED);
    }
    for (name, _) in edits.iter().filter(|(_, value)| value.is_some()) {
        if Item::parse(name).is_some_and(Item::is_trust) && rules.may_withhold_trust() {
            preview.note(&format!("{name} may be withheld by the rules: `restore --trust` restores it then"));
        }
        if !rules.keeps(name, None) {
            preview.note(&format!("{name} is restored, but not stored again: the rules do not keep it"));
        }
    }
    let writes = vec![Write::put(&edited, found.record.as_ref(), None)?];
    Ok(Proposal { preview, writes, done })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_says_what_is_set_and_what_goes() {
        for (text, name, value) in [
            ("pool=gold", "pool", Some("gold")),
            ("pool=", "pool", Some("")),
            ("pool-", "pool", None),
            ("annotation:example.com/note=a=b -", "annotation:example.com/note", Some("a=b -")),
            ("annotation:label-storage/keep=pool", "annotation:label-storage/keep", Some("pool")),
            ("taint:NoSchedule:dedicated=gpu", "taint:NoSchedule:dedicated", Some("gpu")),
            ("taint:NoSchedule:dedicated-", "taint:NoSchedule:dedicated", None),
            ("cordon:=true", "cordon:", Some("true")),
            ("cordon:-", "cordon:", None),
            (
                "taint:NoExecute:node.kubernetes.io/not-ready-",
                "taint:NoExecute:node.kubernetes.io/not-ready",
                None,
            ),
        ] {
            let expected = (name.to_owned(), value.map(str::to_owned));
            assert_eq!(parse_edit(text), Ok(expected), "{text}");
        }
        for (text, why) in [
            ("pool", "write pool=VALUE"),
            ("=x", "is not a valid key"),
            ("-", "is not a valid key"),
            ("a-=b", "is not a valid key"),
            ("po ol=x", "is not a valid key"),
            ("pool=a b", "\"a b\" is not a valid value of pool"),
            ("label:a=b", "is not a valid key"),
            ("taint:Never:a=b", "is not a valid key"),
            ("cordon:=false", "\"false\" is not a valid value of cordon:: write cordon:=true"),
            ("taint:NoExecute:node.kubernetes.io/not-ready=", "is never restored"),
            ("annotation:label-storage/restored=x", "is never restored"),
        ] {
            let refused = parse_edit(text).expect_err(text);
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
