//! One replica of a daemon: what it was told, which Nodes are its share, and how it reaches the cluster.

use std::sync::Arc;

use kube::Client;

use crate::args::{Common, Share};
use crate::engine::{self, Planner, Worker};
use crate::nodes::Nodes;
use crate::records::Records;
use crate::shutdown::Shutdown;
use crate::source::Source;

/// What a daemon has to work with.
pub struct Replica {
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
    pub(crate) node_source: Arc<Source>,
    pub(crate) record_source: Arc<Source>,
}

impl Replica {
    /// A replica that works on this cluster.
    pub fn new(args: Common, share: Share, client: Client, namespace: &str, shutdown: Shutdown) -> Self {
        let node_source = Arc::new(Source::nodes(client.clone()));
        let record_source = Arc::new(Source::records(client.clone(), namespace));
        Self {
            args,
            share,
            nodes: Nodes::new(client.clone(), Arc::clone(&node_source)),
            records: Records::new(client, namespace),
            shutdown,
            node_source,
            record_source,
        }
    }

    /// Works until the shutdown: `planner` says what is to be done, `worker` does it.
    pub async fn run<P: Planner>(&self, planner: P, worker: &impl Worker<P::Task>) {
        engine::run(self, planner, worker).await;
    }
}
