//! What a replica counts, for whoever watches over it.
//!
//! Nothing here has a Node's name in it: a hundred thousand of them would be as many series. Which Node it is, the log says.

pub mod node_gauges;

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter as AnyCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use self::node_gauges::{Gauges, NodeGauges};
use crate::api_source::{Listed, Resource};
use crate::call::{Error, FailureKind};

/// Something that only grows.
pub type Counter = AnyCounter<u64, AtomicU64>;

/// One label, of a few values that are known in advance.
pub type One = [(&'static str, &'static str); 1];

/// Which requests: what is done, to which kind of objects.
type Requests = [(&'static str, &'static str); 2];

/// And how they were answered.
type Answers = [(&'static str, String); 3];

/// What a daemon counts beside what both count.
pub trait Own: Default + Send + Sync + 'static {
    /// Puts all of it into a registry.
    fn register(&self, registry: &mut Registry, common: &Metrics);
}

/// A histogram of what takes milliseconds.
#[derive(Debug, Clone)]
pub struct Durations(pub Histogram);

/// A histogram of what takes seconds, and minutes when something is wrong.
#[derive(Debug, Clone)]
pub struct Latencies(pub Histogram);

impl Default for Durations {
    fn default() -> Self {
        Self(duration_histogram())
    }
}

impl Default for Latencies {
    fn default() -> Self {
        let bounds = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0];
        Self(Histogram::new(bounds))
    }
}

/// Histograms of what takes milliseconds, by label.
#[derive(Debug)]
struct Timings<L>(Family<L, Histogram, fn() -> Histogram>);

impl<L: Clone + Eq + Hash> Default for Timings<L> {
    fn default() -> Self {
        Self(Family::new_with_constructor(duration_histogram))
    }
}

fn duration_histogram() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
}

/// All that both daemons count.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Number of shards that there are to be. 0 until it is known.
    pub(crate) shards: Gauge,
    /// Shards that this process works on.
    pub(crate) shards_held: Gauge,
    /// Shards that somebody works on, as far as this process can see.
    pub(crate) shards_covered: Gauge,
    /// Shards that it took over from others.
    pub(crate) adoptions: Counter,
    /// Leases that could not be read or written.
    pub(crate) lease_errors: Counter,
    /// Watches that could not go on where they were: changes of Nodes that were deleted meanwhile may be lost.
    pub(crate) history_lost: Counter,
    watch_restarts: Family<One, Counter>,
    reconciliations: Family<One, Counter>,
    reconciliation_seconds: Durations,
    /// From when a Node was seen to need work until that was done.
    pub latency: Latencies,
    errors: Family<One, Counter>,
    requests: Family<Answers, Counter>,
    request_seconds: Timings<Requests>,
    lists: Family<[(&'static str, &'static str); 2], Counter>,
    list_seconds: Timings<One>,
    list_bytes: Family<One, Counter>,
    list_items: Family<One, Gauge>,
    /// Kubernetes Events, by reason and by what became of them.
    pub(crate) events: Family<[(&'static str, &'static str); 2], Counter>,
    /// How the Nodes stand.
    pub node_gauges: Arc<NodeGauges>,
}

impl Metrics {
    /// One attempt at one Node has ended like this.
    pub(crate) fn reconciled(&self, outcome: Result<Option<&'static str>, &Error>, took: Duration) {
        let word = match outcome {
            Ok(word) => word.unwrap_or("nothing"),
            Err(error) => {
                self.failed(error);
                "failed"
            }
        };
        self.reconciliations.get_or_create(&[("outcome", word)]).inc();
        self.reconciliation_seconds.0.observe(took.as_secs_f64());
    }

    /// Something did not work.
    pub(crate) fn failed(&self, error: &Error) {
        self.errors.get_or_create(&[("kind", error.kind.as_str())]).inc();
    }

    /// A request was answered with this status, or not at all.
    pub(crate) fn requested(
        &self,
        verb: &'static str,
        resource: &'static str,
        code: Option<u16>,
        took: Duration,
    ) {
        let code = code.map_or_else(|| "error".to_owned(), |code| code.to_string());
        let labels = [("verb", verb.to_owned()), ("resource", resource.to_owned()), ("code", code)];
        self.requests.get_or_create(&labels).inc();
        // How long a watch lasts is the server's choice.
        if verb != "watch" {
            let labels = [("verb", verb), ("resource", resource)];
            self.request_seconds.0.get_or_create(&labels).observe(took.as_secs_f64());
        }
    }

    /// A list has ended.
    pub(crate) fn listed(&self, kind: Resource, outcome: Result<&Listed, &Error>, took: Duration) {
        let resource = ("resource", kind.resource());
        let word = if outcome.is_ok() { "ok" } else { "failed" };
        self.lists.get_or_create(&[resource, ("outcome", word)]).inc();
        self.list_seconds.0.get_or_create(&[resource]).observe(took.as_secs_f64());
        match outcome {
            Ok(listed) => {
                self.list_bytes.get_or_create(&[resource]).inc_by(listed.bytes);
                let items = i64::try_from(listed.items).unwrap_or(i64::MAX);
                self.list_items.get_or_create(&[resource]).set(items);
            }
            Err(error) => self.failed(error),
        }
    }

    /// A watch has to be opened again, other than because its time was up.
    pub(crate) fn watch_broke(&self, kind: Resource) {
        self.watch_restarts.get_or_create(&[("resource", kind.resource())]).inc();
    }

    /// Puts all of them into a registry, for a replica of this index.
    pub(crate) fn register(&self, registry: &mut Registry, index: u32) {
        // So that they are there, at 0, before the first one: a family without any is not told of at all, and what begins with 1
        // does not count as an increase.
        for kind in [Resource::Nodes, Resource::Records] {
            let _ = self.watch_restarts.get_or_create(&[("resource", kind.resource())]);
        }
        for kind in FailureKind::ALL {
            let _ = self.errors.get_or_create(&[("kind", kind.as_str())]);
        }
        for outcome in ["nothing", "failed"] {
            let _ = self.reconciliations.get_or_create(&[("outcome", outcome)]);
        }
        for outcome in ["written", "failed", "dropped"] {
            let _ = self.events.get_or_create(&[("reason", "RecordUnreadable"), ("outcome", outcome)]);
        }
        let own = Gauge::<i64>::default();
        own.set(index.into());
        registry.register(
            "build",
            "The version of this program",
            Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]),
        );
        registry.register("shard_index", "The shard that this replica is the home of", own);
        registry.register("shards", "Number of shards: replicas that there should be", self.shards.clone());
        registry.register("shards_held", "Shards that this replica works on", self.shards_held.clone());
        registry.register(
            "shards_covered",
            "Shards that some replica works on, as far as this one can see: all of them, if all is well",
            self.shards_covered.clone(),
        );
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
        self.register_work(registry);
        self.register_reading(registry);
        registry.register_collector(Box::new(Gauges::new(&self.node_gauges, node_gauges::COMMON)));
        registry.register_collector(Box::new(node_gauges::Families(Arc::clone(&self.node_gauges))));
    }

    fn register_work(&self, registry: &mut Registry) {
        registry.register(
            "reconciliations",
            "Attempts at one node that came to an end, by what they did",
            self.reconciliations.clone(),
        );
        registry.register(
            "reconciliation_duration_seconds",
            "How long an attempt at one node takes: to read, to decide and to write",
            self.reconciliation_seconds.0.clone(),
        );
        registry.register(
            "errors",
            "Attempts, lists and watches that failed, by what that means",
            self.errors.clone(),
        );
        registry.register(
            "events",
            "Kubernetes Events that were written, failed, or were dropped by the rate limit",
            self.events.clone(),
        );
    }

    fn register_reading(&self, registry: &mut Registry) {
        registry.register(
            "api_requests",
            "Requests to the API server, by the status of the answer; error: there was none",
            self.requests.clone(),
        );
        registry.register(
            "api_request_duration_seconds",
            "How long the API server takes to begin its answer; without watches",
            self.request_seconds.0.clone(),
        );
        registry.register("lists", "Lists of all objects of a kind", self.lists.clone());
        registry.register(
            "list_duration_seconds",
            "How long a list of all objects takes, to its end",
            self.list_seconds.0.clone(),
        );
        registry.register(
            "list_bytes",
            "Bytes that lists brought over the wire, compressed where they were",
            self.list_bytes.clone(),
        );
        registry.register("list_items", "Objects that the last list had", self.list_items.clone());
        registry.register(
            "watch_restarts",
            "Watches that broke and had to be opened again",
            self.watch_restarts.clone(),
        );
        registry.register(
            "watch_history_lost",
            "Watches that could not go on where they were, since the API server has forgotten what happened since: \
             the last change of a node that was deleted meanwhile may be lost",
            self.history_lost.clone(),
        );
    }
}

/// All that a daemon counts, as text.
pub(crate) struct Exposition(Registry);

impl Exposition {
    /// Of a replica of this daemon, of this index.
    pub(crate) fn new(daemon: &str, common: &Metrics, own: &impl Own, index: u32) -> Self {
        let label = ("daemon".to_owned().into(), daemon.to_owned().into());
        let mut registry = Registry::with_prefix_and_labels("label_storage", std::iter::once(label));
        common.register(&mut registry, index);
        own.register(&mut registry, common);
        Self(registry)
    }
}

impl fmt::Display for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        prometheus_client::encoding::text::encode(f, &self.0)
    }
}
