//! The context of one engine: its flags, its share of the Nodes and its access to the cluster.

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

#[derive(Clone)]
pub struct ShardContext {
    pub args: Common,
    pub share: Share,
    pub nodes: Arc<Nodes>,
    pub records: Arc<Records>,
    pub shutdown: Shutdown,
    pub clock: Arc<ServerClock>,
    pub rules: Arc<Rules>,
    pub events: EventRecorder,
    pub metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    pub(crate) deadline: LeaseDeadline,
    /// The positions at which the holders before may have stopped, the newest first.
    pub(crate) resume: Vec<Position>,
    /// The position of this engine.
    pub(crate) position: Arc<Published>,
    pub(crate) node_source: Arc<ApiSource>,
    pub(crate) record_source: Arc<ApiSource>,
}

impl ShardContext {
    /// A context without a lease, with the default rules.
    pub fn new(args: Common, share: Share, client: Client, namespace: &str, shutdown: Shutdown) -> Self {
        let node_source = Arc::new(ApiSource::nodes(client.clone()));
        Self {
            args,
            share,
            nodes: Arc::new(Nodes::new(client.clone(), Arc::clone(&node_source))),
            records: Arc::new(Records::new(client.clone(), namespace)),
            shutdown,
            clock: Arc::default(),
            rules: Arc::default(),
            events: EventRecorder::default(),
            metrics: Arc::default(),
            health: Arc::default(),
            deadline: LeaseDeadline::unlimited(),
            resume: Vec::new(),
            position: Arc::default(),
            node_source,
            record_source: Arc::new(ApiSource::records(client, namespace)),
        }
    }

    /// The same with these rules, for a daemon that sees this much of a Node.
    pub fn with_rules(self, rules: Arc<Rules>, detail: Detail) -> Self {
        let client = self.nodes.api().clone().into_client();
        let projection = Projection { rules: Arc::clone(&rules), detail };
        let node_source = Arc::new(ApiSource::nodes(client.clone()).seen_by(projection.clone()));
        let record_source = ApiSource::records(client.clone(), self.records.namespace()).seen_by(projection);
        Self {
            rules,
            nodes: Arc::new(Nodes::new(client, Arc::clone(&node_source))),
            node_source,
            record_source: Arc::new(record_source),
            ..self
        }
    }
}
