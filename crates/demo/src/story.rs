//! Deletes and re-creates Nodes, and waits for their labels.

use std::time::Instant;

use k8s_openapi::api::core::v1::ConfigMap;
use sandbox::progress::Progress;

use crate::narrator::Narrator;
use crate::nodes::{Cluster, Comparison, Machine};
use crate::stage::{NAMESPACE, Stage};

/// The most missing labels that an error lists.
const NAMED: usize = 20;

/// Deletes and re-creates one node, step by step.
pub(crate) async fn one_node(stage: &Stage, narrator: &Narrator) -> anyhow::Result<()> {
    let cluster = Cluster::new(&stage.client);
    let machine = Machine::new(
        "worker-1",
        [
            ("disk", "nvme".to_owned()),
            ("node-role.kubernetes.io/database", String::new()),
            ("team", "payments".to_owned()),
            ("topology.kubernetes.io/zone", "eu-north-1a".to_owned()),
        ],
    );
    let machines = std::slice::from_ref(&machine);

    narrator.heading("One node");
    cluster.create_bare(machines).await?;
    cluster.label(machines).await?;
    narrator.say(format!("created node {}, and labelled it:", machine.name));
    let labels: Vec<_> = machine.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    narrator.block(&labels.join("\n"));

    stage.until("storing the labels", async || Ok(whole(&cluster.in_records(machines).await?))).await?;
    narrator.say("a storer has stored the labels");

    cluster.delete(machines).await?;
    narrator.say(format!("deleted node {} with its labels; this ConfigMap still has them:", machine.name));
    narrator.block(&yaml(&cluster.record(&machine).await?)?);

    cluster.create_bare(machines).await?;
    let returned = Instant::now();
    narrator.say(format!("re-created node {}, without the labels", machine.name));
    stage.until("restoring the labels", async || Ok(whole(&cluster.on_nodes(machines).await?))).await?;
    let seconds = returned.elapsed().as_secs_f64();
    narrator.succeed(format!(
        "all {} labels are restored, {seconds:.1} s after the node was created",
        machine.labels.len()
    ));
    Ok(())
}

/// Deletes and re-creates many nodes at the same time.
pub(crate) async fn many_nodes(stage: &Stage, narrator: &Narrator, count: u32) -> anyhow::Result<()> {
    let cluster = Cluster::new(&stage.client);
    let machines: Vec<_> = (0..count).map(pool_machine).collect();
    let labels: usize = machines.iter().map(|machine| machine.labels.len()).sum();

    narrator.heading(&format!("{count} nodes at once"));
    cluster.create_bare(&machines).await?;
    cluster.label(&machines).await?;
    narrator.say(format!("created {count} nodes with {labels} labels, different for each node"));
    follow(stage, "storing labels of nodes", &machines, async || cluster.in_records(&machines).await).await?;
    narrator.say("the storers have stored all labels");

    cluster.delete(&machines).await?;
    narrator.say(format!("deleted all {count} nodes"));
    let returning = Instant::now();
    cluster.create_bare(&machines).await?;
    narrator.say("re-created all of them, without the labels");
    follow(stage, "restoring labels of nodes", &machines, async || cluster.on_nodes(&machines).await).await?;
    let seconds = returning.elapsed().as_secs_f64();
    narrator.succeed(format!(
        "all {labels} labels of all {count} nodes are restored, {seconds:.1} s after the first node was re-created"
    ));
    Ok(())
}

/// Commands to try while the cluster is kept running.
pub(crate) fn suggestions() -> String {
    [
        "kubectl get nodes --show-labels",
        &format!("kubectl get configmaps -n {NAMESPACE}"),
        "kubectl label node worker-1 tier=gold",
        &format!("kubectl get configmap label-storage.worker-1 -n {NAMESPACE} -o yaml --watch"),
        "kubectl delete node worker-1",
        r#"echo '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"}}' | kubectl create -f -"#,
        "kubectl get node worker-1 --show-labels --watch",
    ]
    .join("\n")
}

/// A machine of a large pool. Its labels differ from those of all others, so a mix-up is detected.
fn pool_machine(index: u32) -> Machine {
    Machine::new(
        format!("pool-{index:03}"),
        [
            ("rack", format!("rack-{}", index / 20)),
            ("serial-number", format!("sn-{index:06}")),
            ("team", ["payments", "search", "storage"][index as usize % 3].to_owned()),
            ("topology.kubernetes.io/zone", format!("eu-north-1{}", ["a", "b", "c"][index as usize % 3])),
        ],
    )
}

/// Waits until a comparison finds nothing missing, and shows the progress.
async fn follow(
    stage: &Stage,
    what: &str,
    machines: &[Machine],
    mut compare: impl AsyncFnMut() -> anyhow::Result<Comparison>,
) -> anyhow::Result<()> {
    let mut progress = Progress::new(what, machines.len() as u64);
    let reached = stage
        .until(what, async || {
            let comparison = compare().await?;
            progress.set(comparison.complete);
            Ok(whole(&comparison))
        })
        .await;
    progress.clear();
    reached
}

/// An error with the missing labels, if there are any.
pub(crate) fn whole(comparison: &Comparison) -> Result<(), String> {
    let missing = &comparison.missing;
    if missing.is_empty() {
        return Ok(());
    }
    let mut lines: Vec<_> = missing.iter().take(NAMED).cloned().collect();
    if missing.len() > NAMED {
        lines.push(format!("and {} more", missing.len() - NAMED));
    }
    Err(lines.join("\n"))
}

/// The same as `kubectl get -o yaml`: sorted, and without the managed fields.
fn yaml(config_map: &ConfigMap) -> anyhow::Result<String> {
    let mut config_map = config_map.clone();
    config_map.metadata.managed_fields = None;
    Ok(serde_saphyr::to_string(&serde_json::to_value(&config_map)?)?)
}
