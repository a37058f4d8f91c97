//! What the storer counts.

use std::sync::Arc;

use label_storage::Labels;
use label_storage::store::Reason;
use label_storage_runtime::metrics::node_gauges::{Defined, Gauges};
use label_storage_runtime::metrics::{Counter, Metrics, One, Own};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::in_doubt::WritesInDoubt;

/// What the storer counts beside what both daemons do.
#[derive(Debug, Default)]
pub struct StorerMetrics {
    labels_stored: Counter,
    labels_removed: Counter,
    writes: Family<One, Counter>,
    cleanups: Family<One, Counter>,
    label_changes: Counter,
    /// Records that are over, and whose deletion has to wait.
    pub(crate) cleanups_held_back: Gauge,
    /// Lists that lacked a large share of the Nodes, and were not used.
    pub(crate) brakings: Counter,
    /// Final labels that are lost, because there were too many to keep, or they fit into no record.
    pub(crate) final_labels_given_up: Counter,
    /// Not counted, but as lasting: a shard may be handed over and come back before a write arrives.
    pub(crate) in_doubt: Arc<WritesInDoubt>,
}

impl StorerMetrics {
    /// A record was created, or replaced.
    pub(crate) fn stored(&self, before: Option<&Labels>, after: &Labels) {
        let action = if before.is_some() { "updated" } else { "created" };
        self.writes.get_or_create(&[("action", action)]).inc();
        let nothing = Labels::new();
        let (is_new, before) = (before.is_none(), before.unwrap_or(&nothing));
        let set = after.iter().filter(|(key, value)| before.get(*key) != Some(value)).count() as u64;
        let removed = before.keys().filter(|key| !after.contains_key(*key)).count() as u64;
        self.labels_stored.inc_by(set);
        self.labels_removed.inc_by(removed);
        if !is_new {
            self.label_changes.inc_by(set + removed);
        }
    }

    /// A record was deleted.
    pub(crate) fn deleted(&self, reason: Reason) {
        self.writes.get_or_create(&[("action", "deleted")]).inc();
        self.cleanups.get_or_create(&[("reason", reason.as_str())]).inc();
    }
}

const GAUGES: &[Defined] = &[(
    "nodes_stored",
    "Nodes whose latest labels are stored, or have none, or are for the restorer to bring back first",
    |all| all.nodes.saturating_sub(all.behind) as f64,
)];

impl Own for StorerMetrics {
    fn register(&self, registry: &mut Registry, common: &Metrics) {
        // So that they are there, at 0, before the first one.
        for action in ["created", "updated", "deleted"] {
            let _ = self.writes.get_or_create(&[("action", action)]);
        }
        for reason in [Reason::RetentionOver, Reason::EmptyForGood] {
            let _ = self.cleanups.get_or_create(&[("reason", reason.as_str())]);
        }
        registry.register_collector(Box::new(Gauges::new(&common.node_gauges, GAUGES)));
        registry.register(
            "store_latency_seconds",
            "From when a node was seen to differ from its record until it was stored",
            common.latency.0.clone(),
        );
        registry.register(
            "labels_stored",
            "Labels that were added to records, or changed in them",
            self.labels_stored.clone(),
        );
        registry.register(
            "labels_removed",
            "Labels that were taken out of records, because they were removed from their node",
            self.labels_removed.clone(),
        );
        registry.register(
            "record_writes",
            "Records that were written, by what was done",
            self.writes.clone(),
        );
        registry.register("cleanups", "Records that were deleted, by the reason", self.cleanups.clone());
        registry.register(
            "cleanups_held_back",
            "Records that are to be deleted and have to wait, because so many were deleted within an hour",
            self.cleanups_held_back.clone(),
        );
        registry.register(
            "label_changes",
            "Labels that were added, changed or removed in records that existed: churn",
            self.label_changes.clone(),
        );
        registry.register(
            "brake_engagements",
            "Lists that lacked a large share of the nodes, and were not used",
            self.brakings.clone(),
        );
        registry.register(
            "final_labels_given_up",
            "Deleted nodes whose final labels are lost: nothing could be stored, and there were too many to keep, or they fit into no \
             record",
            self.final_labels_given_up.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_counted_by_label() {
        let labels = |all: &[(&str, &str)]| -> Labels {
            all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let counts = StorerMetrics::default();
        let (first, second) = (labels(&[("a", "1"), ("b", "1")]), labels(&[("a", "2"), ("c", "1")]));
        counts.stored(None, &first);
        counts.stored(Some(&first), &second);
        counts.stored(Some(&second), &first);
        counts.stored(Some(&first), &second);
        assert_eq!((counts.labels_stored.get(), counts.labels_removed.get()), (2 + 2 + 2 + 2, 3));
        assert_eq!(counts.label_changes.get(), 3 * 3, "each time a changes, and b and c come or go");
        let writes = |action| counts.writes.get_or_create(&[("action", action)]).get();
        assert_eq!((writes("created"), writes("updated")), (1, 3));
    }
}
