//! Changes what a Node that is away will come back with.

use std::str::FromStr;

use anyhow::{Result, bail};
use label_storage::item::Item;
use label_storage::restore::{Reason, decide, is_never_kept};
use label_storage::rules::{IdentityBy, Trust};
use label_storage::store::Stored;
use label_storage::{Node, Record};
use label_storage_runtime::records;

use crate::Ended;
use crate::cli::Change;
use crate::cluster::Cluster;
use crate::find::Found;
use crate::preview::Preview;
use crate::node_presence::{NOT_DEPARTED, Wait, NodePresence};
use crate::write::{Operation, Proposal, Write, carry_out};

/// Flags of `set`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The node, by name; it may be one that has never been there
    #[arg(value_name = "NODE")]
    pub node: String,

    /// What it is to have, KEY=VALUE, and what not, KEY-; beside labels annotation:KEY=VALUE, taint:EFFECT:KEY=VALUE and cordon:=true
    #[arg(value_name = "KEY=VALUE", required = true)]
    pub edits: Vec<Edit>,

    /// What a node that has never been there will be known by, where that is not its name: such as systemUUID=VALUE
    #[arg(long, value_name = "KIND=VALUE")]
    pub identity: Option<String>,

    /// Also where no storer notes that the node is gone: what it was given last may be lost then
    #[arg(long)]
    pub force: bool,

    /// Whether to ask.
    #[command(flatten)]
    pub change: Change,
}

/// One thing that a Node is to come back with, or without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The name of what is kept.
    name: String,
    /// Its value; `None` takes it away.
    value: Option<String>,
}

impl FromStr for Edit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = match (text.split_once('='), text.strip_suffix('-')) {
            (Some((name, value)), _) => (name, Some(value)),
            (None, Some(name)) => (name, None),
            (None, None) => return Err("write KEY=VALUE, or KEY- to take it away".to_owned()),
        };
        let Some(kept) = Item::parse(name) else {
            return Err(format!(
                "{name:?} is no key: give that of a label, annotation:KEY, taint:EFFECT:KEY or cordon:"
            ));
        };
        if let Some(value) = value
            && !kept.takes(value)
        {
            return Err(match kept {
                Item::Cordon => "write cordon:=true, or cordon:- to take it away".to_owned(),
                _ => format!("{value:?} is no value that {name} can have"),
            });
        }
        if value.is_some() && is_never_kept(kept) {
            return Err(format!("{name} is never given back: it tells of a machine's present state"));
        }
        Ok(Self { name: name.to_owned(), value: value.map(str::to_owned) })
    }
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    for (at, edit) in args.edits.iter().enumerate() {
        if args.edits[..at].iter().any(|before| before.name == edit.name) {
            bail!("{} is said twice", edit.name);
        }
    }
    if let Some(identity) = &args.identity {
        let by = &cluster.rules.identity;
        if *by == IdentityBy::Name {
            bail!("nodes are known by their names here: leave --identity away");
        }
        if identity.strip_prefix(&format!("{by}=")).is_none_or(str::is_empty) {
            bail!("nodes are known by {by} here: write --identity {by}=VALUE");
        }
    }
    let change = args.change;
    carry_out(cluster, change, "Change this?", &[Set { wait: Wait::new(args.force), args }]).await
}

struct Set {
    args: Args,
    wait: Wait,
}

impl Operation for Set {
    fn node(&self) -> &str {
        &self.args.node
    }

    async fn plan(&self, cluster: &Cluster, _: u32) -> Result<Proposal> {
        let name = &self.args.node;
        let found = cluster.find(self.args.identity.as_ref().unwrap_or(name)).await?;
        let found = cluster.once_departed(found, &self.wait).await?;
        if let Some(Err(error)) = found.record.as_ref().map(|found| &found.content) {
            bail!("the record of node {name} can't be used: {error}");
        }
        let record = self.record(cluster, &found)?;
        // The Node is looked for last, so that it was not there when the record was as it is.
        let seen = match cluster.node_presence(&found).await? {
            NodePresence::Absent(seen) => Some(seen),
            NodePresence::Present(claimants) => {
                require_awaiting(&claimants, found.node.as_ref(), &found)?;
                None
            }
        };
        let (mut labels, mut withheld) = (record.labels.clone(), record.more.withheld.clone());
        let mut preview = Preview::new(format!("node {name} will come back with this:"));
        for Edit { name, value } in &self.args.edits {
            let before = record.all().find(|(its, _, _)| its == name).map(|(_, value, _)| value);
            match (value, before) {
                (Some(value), _) => {
                    preview.changes(name, before, Some(value));
                    withheld.remove(name);
                    labels.insert(name.clone(), value.clone());
                }
                (None, Some(before)) => {
                    preview.changes(name, Some(before), None);
                    withheld.remove(name);
                    labels.remove(name);
                }
                (None, None) => preview.note(format!("{name} is not stored")),
            }
        }
        let edited = record.edited(labels, withheld, seen, jiff::Timestamp::now(), &cluster.rules);
        // A label that was withheld and is set to the same value: it shows nowhere, and is a change all the same.
        let is_same = edited.labels == record.labels && edited.more.withheld == record.more.withheld;
        if is_same {
            preview.note("it is so already");
        } else {
            self.notes(&mut preview, cluster, &found, &edited);
        }
        let mut writes = Vec::new();
        if !is_same {
            writes.push(match &found.record {
                Some(found) => Write::replace(&edited, found, None)?,
                None => Write::create(&edited, None)?,
            });
        }
        Ok(Proposal { preview, writes, done: format!("record of node/{name} changed") })
    }
}

impl Set {
    /// The record that there is, or one for a Node that is still to come.
    fn record(&self, cluster: &Cluster, found: &Found) -> Result<Record> {
        let name = &self.args.node;
        if let Some(record) = found.record() {
            return Ok(record.clone());
        }
        if cluster.rules.identity != IdentityBy::Name && self.args.identity.is_none() && found.node.is_none()
        {
            bail!(
                "nothing is stored of node {name}, and nodes are known by {0} here: give --identity {0}=VALUE to have \
                 something stored for it",
                cluster.rules.identity
            );
        }
        Ok(Record::awaiting(name, self.args.identity.clone()))
    }

    fn notes(&self, preview: &mut Preview, cluster: &Cluster, found: &Found, edited: &Record) {
        let (rules, name) = (&cluster.rules, &self.args.node);
        match found.record() {
            None => preview.note(format!(
                "nothing was stored of node {name} yet: this is given to it when it first comes, within {}",
                within(rules.retention)
            )),
            Some(_) if edited.is_empty() => preview.note("nothing is left: the storer deletes the record"),
            Some(_) if found.node.is_some() => {
                preview
                    .note("the node is there, to be restored: it may be given what was stored before this");
            }
            Some(_) if found.is_departing() => preview.note(NOT_DEPARTED),
            Some(_) => (),
        }
        let is_given = |edit: &&Edit| edit.value.is_some();
        for Edit { name, .. } in self.args.edits.iter().filter(is_given) {
            let is_trust = Item::parse(name).is_some_and(Item::is_trust);
            if is_trust && rules.trust == Trust::SameMachine {
                let whom = match &edited.more.machine.system_uuid {
                    Some(uuid) => format!("the machine {uuid}"),
                    None => "a machine that is known by then, and none is: `kubectl label-storage restore --trust` gives it".to_owned(),
                };
                preview.note(format!("{name} is given back only to {whom}"));
            }
            if !rules.keeps(name, None) {
                preview
                    .note(format!("{name} is given back, and then not followed: the rules do not keep it"));
            }
        }
    }
}

fn within(retention: std::time::Duration) -> String {
    match i64::try_from(retention.as_secs()) {
        Ok(seconds) if seconds < i64::MAX / 1000 => {
            crate::output::age(jiff::SignedDuration::from_secs(seconds))
        }
        _ => "any time".to_owned(),
    }
}

/// An error, unless the Node is still to be given what is stored: what it has itself counts otherwise.
fn require_awaiting(claimants: &[String], node: Option<&Node>, found: &Found) -> Result<()> {
    let names = claimants.join(" and ");
    let stored = records::Found::stored(found.record.as_ref()).map(Record::summary);
    match (node.map(|node| decide(&node.summary(), stored)), stored) {
        (Some(Reason::Returned | Reason::Ignored), Stored::Record(_)) => Ok(()),
        _ => bail!(
            "node {names} is there, and what it has is what is stored: change the node itself, as with `kubectl label node {names} KEY=VALUE`"
        ),
    }
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
            let expected = Edit { name: name.to_owned(), value: value.map(str::to_owned) };
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for (text, why) in [
            ("pool", "write KEY=VALUE"),
            ("=x", "is no key"),
            ("-", "is no key"),
            ("a-=b", "is no key"),
            ("po ol=x", "is no key"),
            ("pool=a b", "is no value"),
            ("label:a=b", "is no key"),
            ("taint:Never:a=b", "is no key"),
            ("cordon:=false", "write cordon:=true"),
            ("taint:NoExecute:node.kubernetes.io/not-ready=", "never given back"),
            ("annotation:label-storage/restored=x", "never given back"),
        ] {
            let refused = text.parse::<Edit>().expect_err(text);
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
