//! Prometheus metrics. No label has a Node's name: 100,000 Nodes would be as many series. The log names Nodes.

pub mod node_gauges;
#[cfg(target_os = "linux")]
mod process;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter as AnyCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use strum::VariantNames;

use self::node_gauges::{GaugeRow, Gauges, NodeGauges};
use crate::api_source::{Listed, Resource};
use crate::call::{Error, FailureKind};

pub type Counter = AnyCounter<u64, AtomicU64>;
pub type OneLabel = Labels<1>;
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// The metrics of one daemon only.
pub trait Own: Default + Send + Sync + 'static {
    const GAUGES: &'static [GaugeRow] = &[];

    fn register(&self, registry: &mut Registry, common: &Metrics);
}

/// Creates the series at 0: Prometheus sees no increase in a counter that begins with 1.
pub fn start_at_zero(counters: &Family<OneLabel, Counter>, label: &'static str, values: &[&'static str]) {
    for value in values {
        drop(counters.get_or_create(&[(label, *value)]));
    }
}

/// Latencies of seconds, or of minutes if something is wrong.
#[derive(Debug, Clone)]
pub struct LatencyHistogram(pub Histogram);

impl Default for LatencyHistogram {
    fn default() -> Self {
        let bounds = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0];
        Self(Histogram::new(bounds))
    }
}

/// Durations of milliseconds, by label.
#[derive(Debug)]
struct Durations<const LABELS: usize>(Family<Labels<LABELS>, Histogram, fn() -> Histogram>);

impl<const LABELS: usize> Default for Durations<LABELS> {
    fn default() -> Self {
        Self(Family::new_with_constructor(|| {
            Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
        }))
    }
}

/// The metrics of both daemons. `register` has their names and meanings.
#[derive(Debug, Default)]
pub struct Metrics {
    pub(crate) shards: Gauge,
    pub(crate) shards_held: Gauge,
    pub(crate) adoptions: Counter,
    pub(crate) lease_errors: Counter,
    pub(crate) history_lost: Counter,
    watch_restarts: Family<OneLabel, Counter>,
    reconciliations: Family<OneLabel, Counter>,
    reconciliation_seconds: Durations<0>,
    /// The time from when a Node was seen to need work until the work was done.
    pub latency: LatencyHistogram,
    errors: Family<OneLabel, Counter>,
    requests: Family<[(&'static str, String); 3], Counter>,
    request_seconds: Durations<2>,
    lists: Family<Labels<2>, Counter>,
    list_seconds: Durations<1>,
    list_bytes: Family<OneLabel, Counter>,
    list_items: Family<OneLabel, Gauge>,
    pub(crate) objects_undecodable: Family<OneLabel, Counter>,
    pub(crate) events: Family<Labels<2>, Counter>,
    pub node_gauges: Arc<NodeGauges>,
}

impl Metrics {
    pub(crate) fn reconciled(&self, outcome: &'static str, took: Duration) {
        self.reconciliations.get_or_create(&[("outcome", outcome)]).inc();
        self.reconciliation_seconds.0.get_or_create(&[]).observe(took.as_secs_f64());
    }

    pub(crate) fn failed(&self, error: &Error) {
        self.errors.get_or_create(&[("kind", error.kind.into())]).inc();
    }

    /// Counts a request by verb, resource and status. Without an answer there is no status.
    pub(crate) fn requested(&self, request: [&'static str; 2], code: Option<u16>, took: Duration) {
        let [verb, resource] = request;
        let code = code.map_or_else(|| "error".to_owned(), |code| code.to_string());
        let labels = [("verb", verb.to_owned()), ("resource", resource.to_owned()), ("code", code)];
        self.requests.get_or_create(&labels).inc();
        // The server decides how long a watch lasts.
        if verb != "watch" {
            let labels = [("verb", verb), ("resource", resource)];
            self.request_seconds.0.get_or_create(&labels).observe(took.as_secs_f64());
        }
    }

    pub(crate) fn listed(&self, kind: Resource, outcome: Result<&Listed, &Error>, took: Duration) {
        let resource = ("resource", kind.resource());
        let word = if outcome.is_ok() { "ok" } else { "failed" };
        self.lists.get_or_create(&[resource, ("outcome", word)]).inc();
        self.list_seconds.0.get_or_create(&[resource]).observe(took.as_secs_f64());
        match outcome {
            Ok(listed) => {
                self.list_bytes.get_or_create(&[resource]).inc_by(listed.bytes);
                self.list_items.get_or_create(&[resource]).set(listed.items as i64);
            }
            Err(error) => self.failed(error),
        }
    }

    /// Counts a watch that ended before its time.
    pub(crate) fn watch_broke(&self, kind: Resource) {
        self.watch_restarts.get_or_create(&[("resource", kind.resource())]).inc();
    }

    fn register(&self, registry: &mut Registry, index: u32) {
        start_at_zero(&self.watch_restarts, "resource", &Resource::ALL.map(Resource::resource));
        start_at_zero(&self.objects_undecodable, "resource", &Resource::ALL.map(Resource::resource));
        start_at_zero(&self.errors, "kind", FailureKind::VARIANTS);
        start_at_zero(&self.reconciliations, "outcome", &["nothing", "failed"]);
        drop(self.reconciliation_seconds.0.get_or_create(&[]));
        for outcome in ["written", "failed", "dropped"] {
            drop(self.events.get_or_create(&[("reason", "RecordUnreadable"), ("outcome", outcome)]));
        }
        let version = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The version of this program", version);
        let home = Gauge::<i64>::default();
        home.set(index.into());
        registry.register("shard_index", "The shard that this replica holds by preference", home);
        registry.register("shards", "Number of shards, which is the number of replicas", self.shards.clone());
        registry.register("shards_held", "Shards that this replica holds", self.shards_held.clone());
        registry.register("shard_adoptions", "Shards taken over from other replicas", self.adoptions.clone());
        registry.register("lease_errors", "Failed API calls for leases", self.lease_errors.clone());
        registry.register("reconciliations", "Attempts at one node", self.reconciliations.clone());
        let help = "Duration of an attempt at one node: read, decide, write";
        registry.register("reconciliation_duration_seconds", help, self.reconciliation_seconds.0.clone());
        registry.register("errors", "Failed attempts, lists and watches, by class", self.errors.clone());
        registry.register("events", "Kubernetes Events", self.events.clone());
        registry.register("api_requests", "Requests to the API server, by answer", self.requests.clone());
        let help = "Time until the API server begins its answer, without watches";
        registry.register("api_request_duration_seconds", help, self.request_seconds.0.clone());
        registry.register("lists", "Lists of all objects of a kind", self.lists.clone());
        registry.register("list_duration_seconds", "Duration of a whole list", self.list_seconds.0.clone());
        registry.register("list_bytes", "Bytes of lists on the wire", self.list_bytes.clone());
        registry.register("list_items", "Objects in the last list", self.list_items.clone());
        let help = "Objects that can't be decoded, each counted once";
        registry.register("objects_undecodable", help, self.objects_undecodable.clone());
        registry.register("watch_restarts", "Broken watches that were reopened", self.watch_restarts.clone());
        let help = "Watches that could not resume because the API server had dropped the history";
        registry.register("watch_history_lost", help, self.history_lost.clone());
    }
}

/// All metrics of a daemon. Its `Display` is the text for Prometheus.
pub(crate) struct Exposition(Registry);

impl Exposition {
    pub(crate) fn new<O: Own>(daemon: &str, common: &Metrics, own: &O, index: u32) -> Self {
        let label = ("daemon".to_owned().into(), daemon.to_owned().into());
        let mut all = Registry::with_labels(std::iter::once(label));
        #[cfg(target_os = "linux")]
        all.sub_registry_with_prefix("process").register_collector(Box::new(process::Process));
        let registry = all.sub_registry_with_prefix("label_storage");
        common.register(registry, index);
        own.register(registry, common);
        registry.register_collector(Box::new(Gauges(Arc::clone(&common.node_gauges), O::GAUGES)));
        Self(all)
    }
}

impl fmt::Display for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        prometheus_client::encoding::text::encode(f, &self.0)
    }
}
