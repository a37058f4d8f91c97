//! Cost against the number of Nodes, up to a million. These Nodes have only metadata.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::Arguments;
use crate::cluster::each;
use crate::load::{Daemons, Meter, SETTLE, pass_time};
use crate::machine::Machine;
use crate::meta::Meta;
use crate::poll;
use crate::probe::Way;
use crate::process::available_memory;
use crate::report::Light;
use crate::stage::{LISTED, RESTORER, STORER, Stage};

const NAMESPACE: &str = "light";
/// Nodes in one transaction: etcd takes 128 writes.
const BATCH: u32 = 100;
const TRANSACTIONS_AT_ONCE: usize = 4;
/// Nodes are added while the machine has this many bytes of free memory.
const SPARE: u64 = 2_000_000_000;

/// Adds Nodes until there are `nodes`, each with its record, and measures.
pub(crate) async fn measure(stage: &mut Stage, nodes: u32, arguments: &Arguments) -> anyhow::Result<Light> {
    grow(stage, nodes).await?;
    let poll = poll::measure(stage, nodes, &[Way::Ours]).await?;
    let poll = poll.first().context("nothing was measured")?.cost;

    eprintln!("a storer and a restorer at {nodes} light nodes");
    let daemons = Daemons {
        storers: vec![stage.daemon(STORER, NAMESPACE, 0, 1)?],
        restorers: vec![stage.daemon(RESTORER, NAMESPACE, 0, 1)?],
    };
    for daemon in daemons.storers.iter().chain(&daemons.restorers) {
        stage.await_log(daemon, LISTED).await?;
    }
    tokio::time::sleep(SETTLE).await;
    stage.calm().await?;
    let meter = Meter::start(stage, &daemons)?;
    pass_time("idle, seconds", Duration::from_secs(arguments.window)).await;
    stage.check(&daemons.storers.iter().chain(&daemons.restorers).collect::<Vec<_>>())?;
    Ok(Light { nodes, poll, idle: meter.stop(0.0)? })
}

/// Writes Nodes and records directly into etcd, because creating them through the API server would take hours. The API server reads
/// JSON as well as the protobuf that it writes itself.
async fn grow(stage: &mut Stage, nodes: u32) -> anyhow::Result<()> {
    if stage.light == 0 {
        stage.cluster.create_namespace(NAMESPACE).await?;
    }
    let etcd = stage.sandbox.etcd_client()?;
    let write = async |Machine(first): Machine| {
        let spare = available_memory()?;
        anyhow::ensure!(spare >= SPARE, "this machine has only {} MB of free memory", spare / 1_000_000);
        let machines: Vec<Machine> = (first..nodes.min(first + BATCH)).map(Machine).collect();
        let node = |machine: &Machine| {
            let key = format!("/registry/minions/{}", machine.name());
            Ok((key, serde_json::to_vec(&machine.light_node())?))
        };
        let all = machines.iter().map(node).collect::<anyhow::Result<Vec<_>>>()?;
        let version = etcd.put_all(&all).await?;
        let all = machines.iter().map(|machine| record(*machine, version));
        etcd.put_all(&all.collect::<anyhow::Result<Vec<_>>>()?).await?;
        Ok(())
    };
    let firsts: Vec<Machine> = (stage.light..nodes).step_by(BATCH as usize).map(Machine).collect();
    each("writing hundreds of nodes", &firsts, TRANSACTIONS_AT_ONCE, write).await?;
    stage.light = nodes;
    stage.check(&[])?;
    stage.calm().await
}

/// The key and the value of a record in etcd.
fn record(machine: Machine, version: u64) -> anyhow::Result<(String, Vec<u8>)> {
    let node = Meta { uid: machine.uid(0), version, ..Meta::default() };
    let mut record = machine.record(&node)?;
    record.metadata.namespace = Some(NAMESPACE.to_owned());
    record.metadata.uid = Some(machine.uid(1));
    record.metadata.creation_timestamp = Some(Time(jiff::Timestamp::now()));
    let name = record.metadata.name.as_deref().unwrap_or_default();
    Ok((format!("/registry/configmaps/{NAMESPACE}/{name}"), serde_json::to_vec(&record)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_light_node_and_its_record_belong_together() {
        let node = serde_json::to_value(Machine(7).light_node()).unwrap();
        let node: k8s_openapi::api::core::v1::Node = serde_json::from_value(node).unwrap();
        let (key, record) = record(Machine(7), 12).unwrap();
        let record = String::from_utf8(record).unwrap();
        assert!(key.starts_with("/registry/configmaps/light/") && key.contains(&Machine(7).name()), "{key}");
        assert!(record.contains(&node.metadata.uid.unwrap()), "{record}");
        assert!(record.contains(r#""kind":"ConfigMap""#), "{record}");
    }
}
