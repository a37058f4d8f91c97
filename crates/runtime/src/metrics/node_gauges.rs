//! Gauges about the Nodes of all shards of a process. Engines report from time to time; the sums are made when metrics are read.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use label_storage::node_state::Skip;
use label_storage::withheld::Why;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::sync::watch;

use crate::api_source::Resource;

/// The state of the Nodes of one shard, or the sum of several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    pub nodes: usize,
    pub records: usize,
    pub unreadable: usize,
    /// Nodes that need work, and the time since the first of them does.
    pub due: usize,
    pub due_since: Option<Instant>,
    /// Existing Nodes that need work, or can't get any.
    pub behind: usize,
    /// Nodes that get no work for now, by reason.
    pub skipped: BTreeMap<&'static str, usize>,
    /// Stored items that existing Nodes do not get, by reason.
    pub withheld: BTreeMap<&'static str, usize>,
    pub queued: usize,
    /// Nodes that failed often in a row, and the most failures in a row of any Node.
    pub failing: usize,
    pub most_failures: u32,
    pub watching: BTreeMap<&'static str, usize>,
}

impl Snapshot {
    /// The longest time that a Node has needed work.
    pub fn oldest(&self) -> Duration {
        self.due_since.map(|since| since.elapsed()).unwrap_or_default()
    }

    fn add(&mut self, other: &Self) {
        self.nodes += other.nodes;
        self.records += other.records;
        self.unreadable += other.unreadable;
        self.due += other.due;
        self.due_since = [self.due_since, other.due_since].into_iter().flatten().min();
        self.behind += other.behind;
        self.queued += other.queued;
        self.failing += other.failing;
        self.most_failures = self.most_failures.max(other.most_failures);
        for (sum, counts) in [
            (&mut self.skipped, &other.skipped),
            (&mut self.withheld, &other.withheld),
            (&mut self.watching, &other.watching),
        ] {
            for (word, count) in counts {
                *sum.entry(word).or_default() += count;
            }
        }
    }
}

/// The latest snapshot of each shard.
#[derive(Debug, Default)]
pub struct NodeGauges(Mutex<Vec<watch::Receiver<Snapshot>>>);

impl NodeGauges {
    pub fn total(&self) -> Snapshot {
        let mut total = Snapshot::default();
        self.shards().iter().for_each(|shard| total.add(&shard.borrow()));
        total
    }

    /// Adds a shard, until the returned value is dropped.
    pub(crate) fn seat(&self) -> watch::Sender<Snapshot> {
        let shard = watch::Sender::default();
        self.shards().push(shard.subscribe());
        shard
    }

    fn shards(&self) -> MutexGuard<'_, Vec<watch::Receiver<Snapshot>>> {
        let mut shards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shards.retain(|shard| shard.has_changed().is_ok());
        shards
    }
}

/// The name, help and value of a gauge.
pub type GaugeRow = (&'static str, &'static str, fn(&Snapshot) -> f64);

const COMMON: [GaugeRow; 5] = [
    ("nodes", "Nodes of the shards that this replica holds", |all| all.nodes as f64),
    ("records", "Records of the shards that this replica holds", |all| all.records as f64),
    ("records_unreadable", "Records that can't be read: a person has to fix them", |all| {
        all.unreadable as f64
    }),
    ("queue_length", "Nodes that are queued or in progress", |all| all.queued as f64),
    ("nodes_failing", "Nodes that have failed five times or more in a row", |all| all.failing as f64),
];

/// Serves the gauges of both daemons, and these of one.
#[derive(Debug)]
pub(super) struct Gauges(pub(super) Arc<NodeGauges>, pub(super) &'static [GaugeRow]);

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // Each reason and each resource is shown, if only with the value 0.
        let mut total = Snapshot {
            skipped: Skip::ALL.iter().map(|skip| (skip.as_str(), 0)).collect(),
            withheld: Why::ALL.iter().map(|why| (why.as_str(), 0)).collect(),
            watching: Resource::ALL.map(|kind| (kind.resource(), 0)).into(),
            ..Snapshot::default()
        };
        total.add(&self.0.total());
        for (name, help, value) in COMMON.iter().chain(self.1) {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value(&total)).encode(gauge)?;
        }
        for (name, help, label, counts) in [
            (
                "nodes_skipped",
                "Nodes that are not stored or restored for now, by reason",
                "reason",
                total.skipped,
            ),
            (
                "items_withheld",
                "Stored items that were not restored to existing nodes, by reason",
                "reason",
                total.withheld,
            ),
            ("watching", "Shards with a working watch, by resource", "resource", total.watching),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (word, count) in counts {
                ConstGauge::new(count as f64).encode(family.encode_family(&[(label, word)])?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_add_up_and_are_forgotten_with_their_engines() {
        let (node_gauges, early) = (NodeGauges::default(), Instant::now());
        let (one, other) = (node_gauges.seat(), node_gauges.seat());
        let snapshot = |nodes, since, failures| Snapshot {
            nodes,
            due: 1,
            due_since: since,
            most_failures: failures,
            skipped: [("awaiting-restore", nodes)].into(),
            ..Snapshot::default()
        };
        one.send_replace(snapshot(3, None, 7));
        one.send_replace(snapshot(4, None, 2));
        other.send_replace(snapshot(5, Some(early), 1));
        let total = node_gauges.total();
        assert_eq!((total.nodes, total.due, total.most_failures), (9, 2, 2));
        assert_eq!((total.due_since, total.skipped), (Some(early), [("awaiting-restore", 9)].into()));
        drop(one);
        assert_eq!(node_gauges.total().nodes, 5);
    }
}
