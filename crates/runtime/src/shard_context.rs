//! The context of one engine: its flags, its share of the Nodes and its access to the cluster.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{Api, Client};
use label_storage::{Position, Rules};
use tokio::sync::watch;

use crate::api_source::{ApiSource, Resource};
use crate::args::{Common, Share};
use crate::health::Health;
use crate::lease::deadline::LeaseDeadline;
use crate::metrics::Metrics;
use crate::projection::Projection;
use crate::recorder::EventRecorder;
use crate::server_clock::ServerClock;
use crate::shutdown::Shutdown;

#[derive(Clone)]
pub struct ShardContext {
    pub args: Common,
    pub share: Share,
    pub nodes: Api<Node>,
    pub records: Api<ConfigMap>,
    pub node_source: Arc<ApiSource>,
    pub(crate) record_source: Arc<ApiSource>,
    pub rules: Arc<Rules>,
    pub shutdown: Shutdown,
    pub clock: Arc<ServerClock>,
    pub events: EventRecorder,
    pub metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    pub(crate) deadline: LeaseDeadline,
    /// The positions at which the holders before may have stopped, the newest first.
    pub(crate) resume: Vec<Position>,
    /// The position of this engine, for the Lease. `None` while it is not known.
    pub(crate) position: watch::Sender<Option<Position>>,
}

impl ShardContext {
    /// A context without a lease.
    pub fn new(args: Common, share: Share, client: Client, namespace: &str, projection: Projection) -> Self {
        let record_source = ApiSource::records(client.clone(), namespace).seen_by(projection.clone());
        Self {
            args,
            share,
            nodes: Api::all(client.clone()),
            records: Api::namespaced(client.clone(), namespace),
            rules: Arc::clone(&projection.rules),
            node_source: Arc::new(ApiSource::nodes(client).seen_by(projection)),
            record_source: Arc::new(record_source),
            shutdown: Shutdown::default(),
            clock: Arc::default(),
            events: EventRecorder::default(),
            metrics: Arc::default(),
            health: Arc::default(),
            deadline: LeaseDeadline::default(),
            resume: Vec::new(),
            position: watch::Sender::default(),
        }
    }

    pub(crate) fn source(&self, kind: Resource) -> Arc<ApiSource> {
        Arc::clone(match kind {
            Resource::Nodes => &self.node_source,
            Resource::Records => &self.record_source,
        })
    }
}
