//! Mass return: all Nodes are deleted and re-created. Measures the time until all labels are restored.

use std::time::Instant;

use sandbox::process::Guarded;

use crate::cluster::{AS_A_DAEMON, each};
use crate::load::SETTLE;
use crate::machine::{Dress, Machine};
use crate::process::Process;
use crate::report::{Compared, Growth, MassReturn, Part};
use crate::requests::Meter;
use crate::stage::{LISTED, RESTORER, STORER, Stage};
use crate::watch::{Sight, Watch};

/// The generation of a record that is a few writes old. Only its number of digits matters.
const GENERATION: u64 = 3;
/// Larger sizes are not compared with bare calls, which would take an hour.
const MOST_COMPARED: usize = 20_000;

/// Needs Nodes with all their labels, and leaves them so.
pub(crate) async fn measure(stage: &mut Stage) -> anyhow::Result<MassReturn> {
    let nodes = stage.nodes.len();
    let machines = Machine::first(u32::try_from(nodes)?);
    let namespace = format!("mass-return-{nodes}");
    stage.cluster.create_namespace(&namespace).await?;

    let mut records = Watch::records(&stage.cluster, &namespace).await?;
    let storer = stage.daemon(STORER, &namespace, 0, 1)?;
    stage.see_all("storing nodes", nodes, &mut records, &[&storer], |_| true).await?;
    // The peak of the next storer does not include the writing of all records.
    drop(storer);
    let storer = stage.daemon(STORER, &namespace, 0, 1)?;
    let restorer = stage.daemon(RESTORER, &namespace, 0, 1)?;
    let daemons = [&storer, &restorer];
    for daemon in daemons {
        stage.await_log(daemon, LISTED).await?;
    }
    tokio::time::sleep(SETTLE).await;
    stage.calm().await?;
    let before = peaks(daemons)?;

    eprintln!("mass return of {nodes} nodes, with both daemons at work");
    stage.delete(&machines).await?;
    let mut whole = Watch::whole_nodes(&stage.cluster).await?;
    let meter = Meter::start(stage).await?;
    let first_create = Instant::now();
    let last_create = stage.create(&machines, Dress::Bare).await?;
    let back = stage.see_all("labels back on nodes", nodes, &mut whole, &daemons, |_| true).await?;
    let cost = meter.stop(stage).await?;
    let last_label = back.last.saturating_duration_since(last_create).as_secs_f64();

    // Each record must be of the current Node: otherwise the next measurement would restore other labels.
    let is_current =
        |sight: &Sight| stage.nodes.get(&sight.machine).is_some_and(|node| node.uid == sight.uid);
    stage.see_all("storing nodes again", nodes, &mut records, &daemons, is_current).await?;
    let after = peaks(daemons)?;
    let [of_storer, of_restorer] = [0, 1].map(|at| Growth { before: before[at], after: after[at] });
    drop((storer, restorer, records));
    let compared =
        if nodes <= MOST_COMPARED { Some(compare(stage, &namespace, &machines).await?) } else { None };
    let creating = (last_create - first_create).as_secs_f64();
    Ok(MassReturn { nodes, creating, last_label, cost, storer: of_storer, restorer: of_restorer, compared })
}

async fn compare(stage: &mut Stage, namespace: &str, machines: &[Machine]) -> anyhow::Result<Compared> {
    let nodes = machines.len();
    eprintln!("mass return of {nodes} nodes, with a restorer that starts after the last create");
    stage.delete(machines).await?;
    stage.create(machines, Dress::Bare).await?;
    stage.calm().await?;
    let mut whole = Watch::whole_nodes(&stage.cluster).await?;
    let meter = Meter::start(stage).await?;
    let restorer = stage.daemon(RESTORER, namespace, 0, 1)?;
    let restored = stage.see_all("labels back on nodes", nodes, &mut whole, &[&restorer], |_| true).await?;
    let held_back = Part { seconds: restored.seconds(), cost: meter.stop(stage).await? };
    drop(restorer);

    eprintln!("the same patches of {nodes} nodes, by hand");
    stage.delete(machines).await?;
    // The bench watches during these creates, too, because a watch costs the API server CPU time.
    let mut whole = Watch::whole_nodes(&stage.cluster).await?;
    let meter = Meter::start(stage).await?;
    let first_bare = Instant::now();
    let last_bare = stage.create(machines, Dress::Bare).await?;
    let seconds = (last_bare - first_bare).as_secs_f64();
    let bare_creates = Part { seconds, cost: meter.stop(stage).await? };
    stage.calm().await?;
    let patch = async |machine: Machine| {
        let patch = stage.nodes.get(&machine).map(|node| machine.restoring_patch(node, GENERATION));
        stage.cluster.patch_node(machine, "label-storage-restorer", &patch.unwrap_or_default()).await
    };
    let meter = Meter::start(stage).await?;
    each("patching nodes", machines, AS_A_DAEMON, patch).await?;
    let patched = stage.see_all("labels back on nodes", nodes, &mut whole, &[], |_| true).await?;
    let bare_patches = Part { seconds: patched.seconds(), cost: meter.stop(stage).await? };

    Ok(Compared { bare_creates, bare_patches, held_back })
}

/// The peak memory of each daemon, in bytes.
fn peaks(daemons: [&Guarded; 2]) -> anyhow::Result<[u64; 2]> {
    let peak = |daemon: &Guarded| anyhow::Ok(Process(daemon.pid()).memory()?.peak);
    Ok([peak(daemons[0])?, peak(daemons[1])?])
}
