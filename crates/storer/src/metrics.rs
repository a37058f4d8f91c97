//! Metrics of the storer.

use std::sync::Arc;

use label_storage::Labels;
use label_storage::store::Reason;
use label_storage_runtime::metrics::node_gauges::GaugeRow;
use label_storage_runtime::metrics::{Counter, Metrics, OneLabel, Own, start_at_zero};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::in_doubt::WritesInDoubt;

#[derive(Debug, Default)]
pub struct StorerMetrics {
    labels_stored: Counter,
    labels_removed: Counter,
    writes: Family<OneLabel, Counter>,
    cleanups: Family<OneLabel, Counter>,
    label_changes: Counter,
    pub(crate) cleanups_held_back: Gauge,
    pub(crate) brakings: Counter,
    pub(crate) final_labels_given_up: Counter,
    /// Not a metric. It is here because it outlives a shard, which may come back before a write arrives.
    pub(crate) in_doubt: Arc<WritesInDoubt>,
}

impl StorerMetrics {
    /// Counts a record that was created or replaced.
    pub(crate) fn stored(&self, before: Option<&Labels>, after: &Labels) {
        let action = if before.is_some() { "updated" } else { "created" };
        self.writes.get_or_create(&[("action", action)]).inc();
        let value_before = |key| before.and_then(|before| before.get(key));
        let set = after.iter().filter(|(key, value)| value_before(*key) != Some(*value)).count() as u64;
        let removed =
            before.into_iter().flatten().filter(|(key, _)| !after.contains_key(*key)).count() as u64;
        self.labels_stored.inc_by(set);
        self.labels_removed.inc_by(removed);
        if before.is_some() {
            self.label_changes.inc_by(set + removed);
        }
    }

    pub(crate) fn deleted(&self, reason: Reason) {
        self.writes.get_or_create(&[("action", "deleted")]).inc();
        self.cleanups.get_or_create(&[("reason", reason.as_str())]).inc();
    }
}

impl Own for StorerMetrics {
    const GAUGES: &'static [GaugeRow] = &[(
        "nodes_stored",
        "Nodes whose latest labels are stored, that have none, or that must be restored first",
        |all| all.nodes.saturating_sub(all.behind) as f64,
    )];

    fn register(&self, registry: &mut Registry, common: &Metrics) {
        start_at_zero(&self.writes, "action", &["created", "updated", "deleted"]);
        let reasons = [Reason::RetentionOver, Reason::EmptyForGood].map(Reason::as_str);
        start_at_zero(&self.cleanups, "reason", &reasons);
        let help = "Time from when a node was seen to differ from its record until it was stored";
        registry.register("store_latency_seconds", help, common.latency.0.clone());
        registry.register("labels_stored", "Labels added or changed in records", self.labels_stored.clone());
        registry.register("labels_removed", "Labels removed from records", self.labels_removed.clone());
        registry.register("record_writes", "Record writes, by action", self.writes.clone());
        registry.register("cleanups", "Deleted records, by reason", self.cleanups.clone());
        let help = "Expired records whose deletion is delayed by cleanupShare";
        registry.register("cleanups_held_back", help, self.cleanups_held_back.clone());
        registry.register("label_changes", "Label changes in existing records", self.label_changes.clone());
        registry.register(
            "brake_engagements",
            "Lists that lacked more than a third of the nodes",
            self.brakings.clone(),
        );
        let help = "Deleted nodes whose final labels are lost: too many to keep, or too large for a record";
        registry.register("final_labels_given_up", help, self.final_labels_given_up.clone());
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
