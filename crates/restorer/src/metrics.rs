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
            self.withheld.get_or_create(&[("why", withheld.why.as_str())]).inc();
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
        ("restores_pending", "Nodes that are to be restored", |all| all.due as f64),
        (
            "restore_pending_oldest_seconds",
            "For how long the node has been waiting that has waited for longest; 0: none does",
            |all| all.oldest().as_secs_f64(),
        ),
        ("restore_attempts_most", "How often in a row the node has failed that has failed most", |all| {
            f64::from(all.most_failures)
        }),
    ];

    fn register(&self, registry: &mut Registry, _: &Metrics) {
        let winners = [Winner::Node, Winner::Record, Winner::Report].map(Winner::as_str);
        start_at_zero(&self.conflicts, "winner", &winners);
        start_at_zero(&self.withheld, "why", &Why::ALL.iter().map(|why| why.as_str()).collect::<Vec<_>>());
        start_at_zero(&self.lifts, "why", &LIFTS);
        let help = "From a node's creation until its labels were back";
        registry.register("restore_latency_seconds", help, self.latency.0.clone());
        registry.register("nodes_restored", "Nodes that were restored", self.nodes.clone());
        registry.register("labels_restored", "Labels that nodes were given back", self.labels.clone());
        let help = "Labels that a node had with another value than its record when it was restored, by \
            whose value it has since";
        registry.register("restore_conflicts", help, self.conflicts.clone());
        let help = "Labels that a node was not given back, though its record has them, by the reason";
        registry.register("labels_withheld", help, self.withheld.clone());
        let help = "Times that pods were let come to a node that had kept them away until its labels \
            were back, by the reason";
        registry.register("startup_taints_lifted", help, self.lifts.clone());
    }
}
