//! One replica of a daemon: what it was told, which Nodes are its share, and how it reaches the cluster.

use std::sync::Arc;

use kube::Client;

use label_storage::{Position, Rules};

use crate::api_source::ApiSource;
use crate::args::{Common, Share};
use crate::health::Health;
use crate::lease::deadline::LeaseDeadline;
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::position::Published;
use crate::projection::{Detail, Projection};
use crate::recorder::EventRecorder;
use crate::records::Records;
use crate::server_clock::ServerClock;
use crate::shutdown::Shutdown;

/// What a daemon has to work with.
pub struct ShardContext {
    /// What it was told.
    pub args: Common,
    /// Which Nodes it handles.
    pub share: Share,
    /// Nodes by name.
    pub nodes: Nodes,
    /// Records by their Node's name.
    pub records: Records,
    /// Whether to go on.
    pub shutdown: Shutdown,
    pub clock: Arc<ServerClock>,
    /// Which labels are stored.
    pub rules: Arc<Rules>,
    /// What it tells people about Nodes.
    pub events: EventRecorder,
    /// What it counts.
    pub metrics: Arc<Metrics>,
    /// Whether it does.
    pub(crate) health: Arc<Health>,
    /// For how long it may work.
    pub(crate) deadline: LeaseDeadline,
    /// Where a replica before it may have left off, the best first.
    pub(crate) resume: Vec<Position>,
    /// Where this one would leave off.
    pub(crate) position: Arc<Published>,
    pub(crate) node_source: Arc<ApiSource>,
    pub(crate) record_source: Arc<ApiSource>,
}

impl ShardContext {
    /// A replica that works on this cluster, without a lease, and by the usual rules.
    pub fn new(args: Common, share: Share, client: Client, namespace: &str, shutdown: Shutdown) -> Self {
        let projection = Projection::default();
        let node_source = Arc::new(ApiSource::nodes(client.clone()).seen_by(projection.clone()));
        Self {
            rules: Arc::clone(&projection.rules),
            args,
            share,
            nodes: Nodes::new(client.clone(), Arc::clone(&node_source)),
            records: Records::new(client.clone(), namespace),
            shutdown,
            clock: Arc::default(),
            events: EventRecorder::default(),
            metrics: Arc::default(),
            health: Arc::default(),
            deadline: LeaseDeadline::unlimited(),
            resume: Vec::new(),
            position: Arc::default(),
            node_source,
            record_source: Arc::new(ApiSource::records(client, namespace).seen_by(projection)),
        }
    }

    /// The same with these rules, for a daemon that sees this much of a Node.
    pub fn with_rules(self, rules: Arc<Rules>, detail: Detail) -> Self {
        let (client, namespace) =
            (self.nodes.api().clone().into_client(), self.records.namespace().to_owned());
        let projection = Projection { rules, detail };
        let node_source = Arc::new(ApiSource::nodes(client.clone()).seen_by(projection.clone()));
        Self {
            rules: Arc::clone(&projection.rules),
            nodes: Nodes::new(client.clone(), Arc::clone(&node_source)),
            node_source,
            record_source: Arc::new(ApiSource::records(client, &namespace).seen_by(projection)),
            ..self
        }
    }

    /// The same, on a lease: it works while that holds, goes on where the one before has left off, and says how far it is.
    pub(crate) fn on_lease(
        self,
        deadline: LeaseDeadline,
        resume: Vec<Position>,
        position: Arc<Published>,
    ) -> Self {
        Self { deadline, resume, position, ..self }
    }
}
