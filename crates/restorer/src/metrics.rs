//! What the restorer counts.

use label_storage::restore::{Patch, Why};
use label_storage::rules::Winner;
use label_storage_runtime::metrics::node_gauges::{Defined, Gauges};
use label_storage_runtime::metrics::{Counter, Latencies, Metrics, One, Own};
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// What the restorer counts beside what both daemons do.
#[derive(Debug, Default)]
pub struct RestorerMetrics {
    nodes: Counter,
    labels: Counter,
    conflicts: Family<One, Counter>,
    withheld: Family<One, Counter>,
    lifts: Family<One, Counter>,
    /// From a Node's creation until it was restored.
    pub(crate) latency: Latencies,
}

impl RestorerMetrics {
    /// A Node was restored.
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

    /// Pods may come to a Node.
    pub(crate) fn lifted(&self, why: &'static str) {
        self.lifts.get_or_create(&[("why", why)]).inc();
    }
}

const LIFTS: [&str; 9] = [
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

impl Own for RestorerMetrics {
    fn register(&self, registry: &mut Registry, common: &Metrics) {
        // So that they are there, at 0, before the first one.
        for winner in [Winner::Node, Winner::Record, Winner::Report] {
            let _ = self.conflicts.get_or_create(&[("winner", winner.as_str())]);
        }
        for why in Why::ALL {
            let _ = self.withheld.get_or_create(&[("why", why.as_str())]);
        }
        for why in LIFTS {
            let _ = self.lifts.get_or_create(&[("why", why)]);
        }
        registry.register_collector(Box::new(Gauges::new(&common.node_gauges, GAUGES)));
        registry.register(
            "restore_latency_seconds",
            "From a node's creation until its labels were back",
            self.latency.0.clone(),
        );
        registry.register("nodes_restored", "Nodes that were restored", self.nodes.clone());
        registry.register("labels_restored", "Labels that nodes were given back", self.labels.clone());
        registry.register(
            "restore_conflicts",
            "Labels that a node had with another value than its record when it was restored, by whose value it has since",
            self.conflicts.clone(),
        );
        registry.register(
            "labels_withheld",
            "Labels that a node was not given back, though its record has them, by the reason",
            self.withheld.clone(),
        );
        registry.register(
            "startup_taints_lifted",
            "Times that pods were let come to a node that had kept them away until its labels were back, by the reason",
            self.lifts.clone(),
        );
    }
}
