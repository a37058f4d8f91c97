//! The records that a command is about.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use jiff::Timestamp;
use label_storage::{Labels, name::node_in_record_name, rules::Selector};
use label_storage_runtime::records;

use crate::cluster::{Cluster, fold};
use crate::diagnose::state::{State, Subject};
use crate::{diagnose::survey::Nodes, find::Found};

/// Names of nodes, or a selection of all records.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Which {
    /// Names of nodes, which may be absent
    #[arg(value_name = "NODE", conflicts_with_all = ["selector", "departed", "pending", "all"])]
    nodes: Vec<String>,
    /// Select records with these labels, such as pool=gold,tier!=1
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    selector: Option<Selector>,
    /// Select records of absent nodes
    #[arg(long, conflicts_with = "pending")]
    departed: bool,
    /// Select records of nodes that are not restored yet
    #[arg(long)]
    pending: bool,
    /// Select all records
    #[arg(long)]
    all: bool,
}

/// A record and its state.
pub(crate) struct Selected {
    pub(crate) record: records::Found,
    pub(crate) state: State,
}

impl Which {
    pub(crate) fn are_named(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// The records, and an error for each named node without one. Without names and flags, all records.
    pub(crate) async fn records(&self, cluster: &Cluster) -> Result<(Vec<Selected>, Vec<String>)> {
        if !self.are_named() {
            let (which, rules, now) = (self.clone(), cluster.rules.clone(), Timestamp::now());
            let begin = (Nodes::list(cluster, None).await?, Vec::new());
            let (_, selected) = fold(cluster.record_source(), begin, move |(nodes, selected), object| {
                let record = records::Found::from(object);
                let (state, _) = nodes.state_of(&record.clone().seen_through(&rules, None), now);
                selected.extend(Some(Selected { record, state }).filter(|selected| which.includes(selected)));
            })
            .await?;
            return Ok((selected, Vec::new()));
        }
        let (mut selected, mut missing) = (Vec::new(), Vec::new());
        for name in self.nodes.iter().collect::<BTreeSet<_>>() {
            let (found, state) = find_with_state(cluster, name).await?;
            match found.record {
                Some(record) => selected.push(Selected { record, state }),
                None if found.node.is_some() => {
                    let explain = cluster.hints.plugin(&format!("explain {name}"));
                    missing.push(format!("node {name} has no record: `{explain}` shows the reason"));
                }
                None => missing.push(format!("there is no node {name:?} and no record of one")),
            }
        }
        Ok((selected, missing))
    }

    /// Names that [`Cluster::find`] takes, each once; an error if nothing was chosen.
    pub(crate) async fn names(&self, cluster: &Cluster) -> Result<Vec<String>> {
        let is_selection = self.all || self.departed || self.pending || self.selector.is_some();
        let names: BTreeSet<_> = match self.are_named() {
            true => self.nodes.iter().cloned().collect(),
            false if is_selection => {
                self.records(cluster).await?.0.iter().filter_map(Selected::name).collect()
            }
            false => bail!("choose nodes: by name, -l SELECTOR, --pending, --departed or --all"),
        };
        Ok(names.into_iter().collect())
    }

    /// True for a record that these names or flags choose.
    pub(crate) fn includes(&self, selected: &Selected) -> bool {
        let Selected { record, state } = selected;
        let (none, decoded) = (Labels::new(), record.content.as_ref());
        let labels = decoded.map_or(&none, |decoded| &decoded.record.labels);
        (!self.departed || *state == State::Departed)
            && (!self.pending || *state == State::Pending)
            && self.selector.as_ref().is_none_or(|selector| selector.matches(labels))
            && (!self.are_named() || selected.name().is_some_and(|name| self.nodes.contains(&name)))
    }
}

impl Selected {
    /// The name of the node, or the identity of an absent one.
    fn name(&self) -> Option<String> {
        let name = match &self.record.content {
            Ok(decoded) if self.state == State::Departed => Some(decoded.record.filed_under()),
            Ok(decoded) => Some(decoded.record.node.as_str()),
            Err(_) => self.record.config_map.metadata.name.as_deref().and_then(node_in_record_name),
        };
        name.map(str::to_owned)
    }
}

/// Finds a node and its record, and their state.
pub(crate) async fn find_with_state(cluster: &Cluster, name: &str) -> Result<(Found, State)> {
    let found = cluster.find(name).await?;
    let is_contested = !cluster.rivals(&found).await?.is_empty();
    let state = state(cluster, &found, is_contested, Timestamp::now());
    Ok((found, state))
}

/// The state of one node.
pub(crate) fn state(cluster: &Cluster, found: &Found, is_contested: bool, now: Timestamp) -> State {
    let (node, record) = found.seen_by_storer(&cluster.rules);
    // A node without identity has no record, whatever its name is.
    let node = node.filter(|node| record.is_none() || !node.extras.is_unidentified);
    let subject = node.as_ref().map(|node| Subject { is_contested, ..Subject::new(node, &cluster.rules) });
    State::of(subject.as_ref(), record.as_ref(), now)
}
