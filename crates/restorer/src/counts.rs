//! What the restorer counts.

use label_storage_runtime::metrics::census::{Defined, Gauges};
use label_storage_runtime::metrics::{Counter, Latencies, Metrics, Own};
use prometheus_client::registry::Registry;

/// What the restorer counts beside what both daemons do.
#[derive(Debug, Default)]
pub struct Counts {
    /// Nodes that were restored.
    pub(crate) nodes: Counter,
    /// Labels that they were given back.
    pub(crate) labels: Counter,
    /// Labels that they had already, with another value.
    pub(crate) conflicts: Counter,
    /// From a Node's creation until it was restored.
    pub(crate) latency: Latencies,
}

const GAUGES: &[Defined] = &[
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

impl Own for Counts {
    fn register(&self, registry: &mut Registry, common: &Metrics) {
        registry.register_collector(Box::new(Gauges::new(&common.census, GAUGES)));
        registry.register(
            "restore_latency_seconds",
            "From a node's creation until its labels were back",
            self.latency.0.clone(),
        );
        registry.register("nodes_restored", "Nodes that were restored", self.nodes.clone());
        registry.register("labels_restored", "Labels that nodes were given back", self.labels.clone());
        registry.register(
            "restore_conflicts",
            "Labels that a node had with another value than its record when it was restored: they were left alone",
            self.conflicts.clone(),
        );
    }
}
