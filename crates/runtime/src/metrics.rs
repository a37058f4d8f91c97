//! What a replica counts, for whoever watches over it.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// All counters and gauges of a process.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// Shards that this process works on.
    pub shards_held: Gauge,
    /// Shards that it took over from others.
    pub adoptions: Counter<u64, AtomicU64>,
    /// Leases that could not be read or written.
    pub lease_errors: Counter<u64, AtomicU64>,
    /// Watches that could not go on where they were: changes of Nodes that were deleted meanwhile may be lost.
    pub history_lost: Counter<u64, AtomicU64>,
    /// Shards of this process whose Nodes seem to be gone in too large a share to be believed.
    pub brakes_engaged: Gauge,
    /// How often that was so.
    pub brakings: Counter<u64, AtomicU64>,
    /// Labels of restored Nodes that the record had with another value.
    pub restore_conflicts: Counter<u64, AtomicU64>,
    /// Kubernetes Events, by reason and by what became of them.
    pub events: Family<[(&'static str, &'static str); 2], Counter<u64, AtomicU64>>,
}

impl Metrics {
    /// Puts all of them into a registry.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("label_storage");
        registry.register("shards_held", "Shards that this replica works on", self.shards_held.clone());
        registry.register(
            "shard_adoptions",
            "Shards that this replica took over from another",
            self.adoptions.clone(),
        );
        registry.register(
            "lease_errors",
            "Calls for leases that failed, other than by somebody else being quicker",
            self.lease_errors.clone(),
        );
        registry.register(
            "watch_history_lost",
            "Watches that could not go on where they were, since the API server has forgotten what happened since: \
             the last change of a node that was deleted meanwhile may be lost",
            self.history_lost.clone(),
        );
        registry.register(
            "brake_engaged",
            "Shards of this replica in which so many nodes are missing that nothing is concluded from it",
            self.brakes_engaged.clone(),
        );
        registry.register(
            "brake_engagements",
            "Times that a large share of the nodes was suddenly missing from a list",
            self.brakings.clone(),
        );
        registry.register(
            "restore_conflicts",
            "Labels that a returning node had with another value than its record: the node kept its own",
            self.restore_conflicts.clone(),
        );
        registry.register(
            "events",
            "Kubernetes Events that were written, that were only counted and summed up in another, or that could not be written",
            self.events.clone(),
        );
    }
}
