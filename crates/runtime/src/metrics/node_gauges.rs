//! How the Nodes of all shards of a process stand. Engines tell now and then; gauges are worked out when somebody asks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use label_storage::node_state::Skip;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::api_source::Resource;

/// How the Nodes of one shard stand, or of several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Nodes that there are.
    pub nodes: usize,
    /// Records that there are.
    pub records: usize,
    /// Records among them that can't be read.
    pub unreadable: usize,
    /// Nodes that need work.
    pub due: usize,
    /// The one that has needed it for longest, since then.
    pub due_since: Option<Instant>,
    /// Nodes that are there and need work, or can't get any.
    pub behind: usize,
    /// Nodes that get no work for now, by the reason.
    pub skipped: BTreeMap<&'static str, usize>,
    /// Nodes that wait for their turn, or have it.
    pub queued: usize,
    /// Nodes that have failed often in a row.
    pub failing: usize,
    /// How often the one has that has failed most.
    pub most_failures: u32,
    /// Shards whose changes are told of as they happen.
    pub watching: BTreeMap<&'static str, usize>,
}

impl Snapshot {
    /// For how long the Node has needed work that has needed it for longest.
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
        let families = [(&mut self.skipped, &other.skipped), (&mut self.watching, &other.watching)];
        for (sum, counts) in families {
            for (word, count) in counts {
                *sum.entry(word).or_default() += count;
            }
        }
    }
}

/// What the shards of a process have told.
#[derive(Debug, Default)]
pub struct NodeGauges {
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    seats: u64,
    shards: BTreeMap<u64, Snapshot>,
}

impl NodeGauges {
    /// All shards together.
    pub fn total(&self) -> Snapshot {
        let mut total = Snapshot::default();
        self.lock().shards.values().for_each(|shard| total.add(shard));
        total
    }

    /// A place for one shard, until it is dropped.
    pub(crate) fn seat(self: &Arc<Self>) -> ShardGauges {
        let mut told = self.lock();
        told.seats += 1;
        ShardGauges { number: told.seats, node_gauges: Arc::clone(self) }
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where one shard tells.
pub(crate) struct ShardGauges {
    number: u64,
    node_gauges: Arc<NodeGauges>,
}

impl ShardGauges {
    pub(crate) fn tell(&self, snapshot: Snapshot) {
        self.node_gauges.lock().shards.insert(self.number, snapshot);
    }
}

impl Drop for ShardGauges {
    fn drop(&mut self) {
        self.node_gauges.lock().shards.remove(&self.number);
    }
}

/// A gauge: its name, what it means, and how it follows from the node_gauges.
pub type Defined = (&'static str, &'static str, fn(&Snapshot) -> f64);

/// Gauges of both daemons.
pub(super) const COMMON: &[Defined] = &[
    ("nodes", "Nodes of the shards that this replica works on", |all| all.nodes as f64),
    ("records", "Records of the shards that this replica works on", |all| all.records as f64),
    ("records_unreadable", "Records that can't be read: a person has to look", |all| all.unreadable as f64),
    ("queue_length", "Nodes that wait for their turn, or have it", |all| all.queued as f64),
    ("nodes_failing", "Nodes that have failed five times or more in a row", |all| all.failing as f64),
];

/// Serves gauges that follow from the node_gauges.
#[derive(Clone)]
pub struct Gauges {
    node_gauges: Arc<NodeGauges>,
    all: &'static [Defined],
}

impl Gauges {
    /// Serves these.
    pub fn new(node_gauges: &Arc<NodeGauges>, all: &'static [Defined]) -> Self {
        Self { node_gauges: Arc::clone(node_gauges), all }
    }
}

impl fmt::Debug for Gauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all.iter().map(|(name, ..)| name)).finish()
    }
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let total = self.node_gauges.total();
        for (name, help, value) in self.all {
            let gauge = ConstGauge::new(value(&total));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

/// Serves the gauges that have a label of their own.
#[derive(Debug)]
pub(super) struct Families(pub(super) Arc<NodeGauges>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let total = self.0.total();
        let of_none = Skip::ALL.map(|skip| (skip.as_str(), 0));
        let skipped: BTreeMap<_, _> = of_none.into_iter().chain(total.skipped).collect();
        let skipped = ("nodes_skipped", "Nodes that get no work for now, by the reason", "reason", skipped);
        let of_none = [Resource::Nodes, Resource::Records].map(|kind| (kind.resource(), 0));
        let watching: BTreeMap<_, _> = of_none.into_iter().chain(total.watching).collect();
        let watching = ("watching", "Shards whose changes are told of as they happen", "resource", watching);
        for (name, help, label, counts) in [skipped, watching] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (word, count) in counts {
                let gauge = ConstGauge::new(count as f64);
                gauge.encode(family.encode_family(&[(label, word)])?)?;
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
        let (node_gauges, early) = (Arc::<NodeGauges>::default(), Instant::now());
        let (one, other) = (node_gauges.seat(), node_gauges.seat());
        let snapshot = |nodes, since, failures| Snapshot {
            nodes,
            due: 1,
            due_since: since,
            most_failures: failures,
            skipped: [("awaiting-restore", nodes)].into(),
            ..Snapshot::default()
        };
        one.tell(snapshot(3, None, 7));
        one.tell(snapshot(4, None, 2));
        other.tell(snapshot(5, Some(early), 1));
        let total = node_gauges.total();
        assert_eq!((total.nodes, total.due, total.most_failures), (9, 2, 2));
        assert_eq!((total.due_since, total.skipped), (Some(early), [("awaiting-restore", 9)].into()));
        drop(one);
        assert_eq!(node_gauges.total().nodes, 5);
    }
}
