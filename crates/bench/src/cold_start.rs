//! Cold start: the time that a storer without any records takes to store all Nodes.

use std::time::Instant;

use crate::cluster::{AS_A_DAEMON, each};
use crate::machine::Machine;
use crate::report::{ColdStart, ServerCost};
use crate::requests::Meter;
use crate::stage::{STORER, Stage};
use crate::watch::Watch;

/// The namespace of the records that later measurements use.
pub(crate) const NAMESPACE: &str = "label-storage";
/// The namespace of the records that the bench creates itself, for comparison.
const BY_HAND: &str = "by-hand";

/// Creates the records of all Nodes, once with a storer and once with the bench's own calls.
pub(crate) async fn measure(stage: &mut Stage) -> anyhow::Result<ColdStart> {
    let nodes = stage.nodes.len();
    let (storing, first, storing_cost) = store_all(stage).await?;

    eprintln!("the same records of {nodes} nodes, by hand");
    stage.cluster.create_namespace(BY_HAND).await?;
    stage.calm().await?;
    let mut records = Watch::records(&stage.cluster, BY_HAND).await?;
    let create = async |machine: Machine| match stage.nodes.get(&machine) {
        Some(node) => stage.cluster.create_record(BY_HAND, &machine.record(node)?).await.map(drop),
        None => Ok(()),
    };
    let machines = Machine::first(u32::try_from(nodes)?);
    let meter = Meter::start(stage).await?;
    each("creating records", &machines, AS_A_DAEMON, create).await?;
    let created = stage.see_all("records of nodes", nodes, &mut records, &[], |_| true).await?;
    let creating_cost = meter.stop(stage).await?;
    Ok(ColdStart { nodes, storing, creating: created.seconds(), first, storing_cost, creating_cost })
}

/// Runs a storer until all Nodes are stored, unless they already are.
pub(crate) async fn ensure_records(stage: &mut Stage) -> anyhow::Result<()> {
    if stage.stored { Ok(()) } else { store_all(stage).await.map(drop) }
}

/// Runs a storer until all Nodes are stored. Returns the seconds from the first record to the last, those from its start to the first,
/// and the cost.
async fn store_all(stage: &mut Stage) -> anyhow::Result<(f64, f64, ServerCost)> {
    let nodes = stage.nodes.len();
    eprintln!("cold start of a storer at {nodes} nodes");
    stage.cluster.create_namespace(NAMESPACE).await?;
    stage.calm().await?;
    let mut records = Watch::records(&stage.cluster, NAMESPACE).await?;
    let meter = Meter::start(stage).await?;
    let began = Instant::now();
    let storer = stage.daemon(STORER, NAMESPACE, 0, 1)?;
    let stored = stage.see_all("storing nodes", nodes, &mut records, &[&storer], |_| true).await?;
    let cost = meter.stop(stage).await?;
    stage.stored = true;
    Ok((stored.seconds(), stored.first.saturating_duration_since(began).as_secs_f64(), cost))
}
