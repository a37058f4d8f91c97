//! Metrics of the restorer.

use label_storage::restore::{Patch, Why};
use label_storage::rules::Winner;
use label_storage_runtime::metrics::node_gauges::GaugeRow;
use label_storage_runtime::metrics::{Counter, LatencyHistogram, Metrics, OneLabel, Own, start_at_zero};
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Debug, Default)]
pub struct RestorerMetrics {
    nodes: Counter,
    labels: Counter,
    conflicts: Family<OneLabel, Counter>,
    withheld: Family<OneLabel, Counter>,
    pub(crate) lifts: Family<OneLabel, Counter>,
    pub(crate) latency: LatencyHistogram,
}

impl RestorerMetrics {
    pub(crate) fn restored(&self, patch: &Patch) {
        self.nodes.inc();
        self.labels.inc_by(patch.restored.len() as u64);
        for conflict in &patch.conflicts {
            self.conflicts.get_or_create(&[("winner", conflict.winner.as_str())]).inc();
        }
        for withheld in &patch.withheld {
            self.withheld.get_or_create(&[("reason", withheld.why.as_str())]).inc();
        }
    }
}

/// The reasons to remove a start-up taint.
pub(crate) const LIFTS: [&str; 9] = [
    "restored",
    "nothing-to-restore",
    "record-unreadable",
    "other-machine",
    "no-identity",
    "contested",
    "no-answer",
    "no-room",
    "refused",
];

impl Own for RestorerMetrics {
    const GAUGES: &'static [GaugeRow] = &[
        ("restores_pending", "Nodes that wait to be restored", |all| all.due as f64),
        ("restore_pending_oldest_seconds", "Longest time that a node has waited to be restored", |all| {
            all.oldest().as_secs_f64()
        }),
        ("restore_attempts_max", "Most failed attempts in a row for any node", |all| {
            f64::from(all.most_failures)
        }),
    ];

    fn register(&self, registry: &mut Registry, _: &Metrics) {
        let winners = [Winner::Node, Winner::Record, Winner::Report].map(Winner::as_str);
        start_at_zero(&self.conflicts, "winner", &winners);
        start_at_zero(&self.withheld, "reason", &Why::ALL.iter().map(|why| why.as_str()).collect::<Vec<_>>());
        start_at_zero(&self.lifts, "reason", &LIFTS);
        let help = "Time from the creation of a node until it was restored";
        registry.register("restore_latency_seconds", help, self.latency.0.clone());
        registry.register("nodes_restored", "Nodes that were restored", self.nodes.clone());
        registry.register("labels_restored", "Labels that were restored", self.labels.clone());
        let help = "Labels whose value on the node differed from the record, by winner";
        registry.register("restore_conflicts", help, self.conflicts.clone());
        registry.register(
            "labels_withheld",
            "Labels that were not restored, by reason",
            self.withheld.clone(),
        );
        registry.register("startup_taints_lifted", "Removed start-up taints, by reason", self.lifts.clone());
    }
}
