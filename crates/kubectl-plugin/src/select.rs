//! The records that a command is about.

use anyhow::{Result, bail};
use jiff::Timestamp;
use label_storage::Labels;
use label_storage::name::node_in_record_name;
use label_storage::rules::Selector;
use label_storage_runtime::records;

use crate::cluster::{Cluster, fold};
use crate::diagnose::state::{State, Subject};
use crate::diagnose::survey::Nodes;
use crate::find::Found;

/// Names of nodes, or a selection of all records.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Which {
    /// Names of nodes, which may be absent
    #[arg(value_name = "NODE", conflicts_with_all = ["selector", "departed", "pending", "all"])]
    nodes: Vec<String>,

    /// Records with these labels, as in pool=gold,tier!=1
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    selector: Option<Selector>,

    /// Records of absent nodes
    #[arg(long, conflicts_with = "pending")]
    departed: bool,

    /// Records of nodes that are not restored yet
    #[arg(long)]
    pending: bool,

    /// All records
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
        let now = Timestamp::now();
        if !self.are_named() {
            let (which, rules) = (self.clone(), cluster.rules.clone());
            let nodes = Nodes::list(cluster, None).await?;
            let source = cluster.record_source();
            let (_, selected) = fold(source, (nodes, Vec::new()), move |(nodes, selected), object| {
                let record = records::Found::from(object);
                let (state, _) = nodes.state_of(&record.clone().seen_through(&rules, None), now);
                selected.extend(which.wants(&record, state).then_some(Selected { record, state }));
            })
            .await?;
            return Ok((selected, Vec::new()));
        }
        let (mut selected, mut missing) = (Vec::new(), Vec::new());
        for name in each_once(&self.nodes) {
            let found = cluster.find(&name).await?;
            let is_contested = !cluster.rivals(&found).await?.is_empty();
            match (state(cluster, &found, is_contested, now), found.record) {
                (state, Some(record)) => selected.push(Selected { record, state }),
                (_, None) if found.node.is_some() => {
                    let explain = cluster.hints.plugin(&format!("explain {name}"));
                    missing.push(format!("node {name} has no record: `{explain}` tells why"));
                }
                _ => missing.push(format!("there is no node {name:?} and no record of one")),
            }
        }
        Ok((selected, missing))
    }

    /// Names that [`Cluster::find`] takes, each once; an error if nothing was chosen.
    pub(crate) async fn names(&self, cluster: &Cluster) -> Result<Vec<String>> {
        if self.are_named() {
            return Ok(each_once(&self.nodes));
        }
        if !(self.all || self.departed || self.pending || self.selector.is_some()) {
            bail!("choose nodes: by name, -l SELECTOR, --pending, --departed or --all");
        }
        let (selected, _) = self.records(cluster).await?;
        Ok(each_once(&selected.iter().filter_map(Selected::name).collect::<Vec<_>>()))
    }

    /// True for a record that these names or flags choose.
    pub(crate) fn includes(&self, selected: &Selected) -> bool {
        let are_named = |name: String| self.nodes.contains(&name);
        self.wants(&selected.record, selected.state)
            && (!self.are_named() || selected.name().is_some_and(are_named))
    }

    fn wants(&self, found: &records::Found, state: State) -> bool {
        let (none, decoded) = (Labels::new(), found.content.as_ref());
        let labels = decoded.map_or(&none, |decoded| &decoded.record.labels);
        (!self.departed || state == State::Departed)
            && (!self.pending || state == State::Pending)
            && self.selector.as_ref().is_none_or(|selector| selector.matches(labels))
    }
}

impl Selected {
    /// The name of the node, or the identity of an absent one.
    fn name(&self) -> Option<String> {
        match &self.record.content {
            Ok(decoded) if self.state == State::Departed => Some(decoded.record.filed_under().to_owned()),
            Ok(decoded) => Some(decoded.record.node.clone()),
            Err(_) => {
                node_in_record_name(self.record.config_map.metadata.name.as_deref()?).map(str::to_owned)
            }
        }
    }
}

/// The state of one node.
pub(crate) fn state(cluster: &Cluster, found: &Found, is_contested: bool, now: Timestamp) -> State {
    let (node, record) = found.seen_by_storer(&cluster.rules);
    // A node without identity has no record, whatever its name is.
    let node = node.filter(|node| record.is_none() || !node.extras.is_unidentified);
    let subject = node.as_ref().map(|node| Subject { is_contested, ..Subject::new(node, &cluster.rules) });
    State::of(subject.as_ref(), record.as_ref(), now)
}

fn each_once(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}
