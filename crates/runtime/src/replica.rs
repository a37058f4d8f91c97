//! One replica of a daemon: what it was told, which Nodes are its share, and how it reaches the cluster.

use std::sync::Arc;

use kube::Client;

use label_storage::rules::Selection;
use label_storage::{ResourceVersion, Rules};

use crate::args::{Common, Share};
use crate::clock::Clock;
use crate::engine::{self, Planner, Worker};
use crate::events::Events;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::ownership::Position;
use crate::records::Records;
use crate::shutdown::Shutdown;
use crate::source::Source;
use crate::tenure::Tenure;

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
    /// What time it is.
    pub clock: Arc<Clock>,
    /// Which labels are stored.
    pub rules: Arc<Rules>,
    /// What it tells people about Nodes.
    pub events: Events,
    /// What it counts.
    pub metrics: Arc<Metrics>,
    /// Whether it does.
    pub(crate) health: Arc<Health>,
    /// For how long it may work.
    pub(crate) tenure: Tenure,
    /// Where a replica before it has left off.
    pub(crate) resume: Option<ResourceVersion>,
    /// Where this one would leave off.
    pub(crate) position: Arc<Position>,
    pub(crate) node_source: Arc<Source>,
    pub(crate) record_source: Arc<Source>,
}

impl Replica {
    /// A replica that works on this cluster, without a lease.
    pub fn new(args: Common, share: Share, client: Client, namespace: &str, shutdown: Shutdown) -> Self {
        let node_source = Arc::new(Source::nodes(client.clone()));
        let labels = Selection::all_but(args.exclude_labels.clone());
        let rules = Arc::new(Rules { labels, ..Rules::default() });
        // What is listed and watched of a record is only ever compared with a Node that is seen through the same rules.
        let record_source = Arc::new(Source::records(client.clone(), namespace).seen_through(&rules));
        Self {
            rules,
            args,
            share,
            nodes: Nodes::new(client.clone(), Arc::clone(&node_source)),
            records: Records::new(client, namespace),
            shutdown,
            clock: Arc::default(),
            events: Events::default(),
            metrics: Arc::default(),
            health: Arc::default(),
            tenure: Tenure::unlimited(),
            resume: None,
            position: Arc::default(),
            node_source,
            record_source,
        }
    }

    /// The same, for a storer: of a Node it sees what it would store, and no more.
    pub fn blind_to_what_is_excluded(self) -> Self {
        let client = self.nodes.api().clone().into_client();
        let node_source = Arc::new(Source::nodes(client.clone()).seen_through(&self.rules));
        Self { nodes: Nodes::new(client, Arc::clone(&node_source)), node_source, ..self }
    }

    /// The same, on a lease: it works while that holds, goes on where the one before has left off, and says how far it is.
    pub(crate) fn on_lease(
        self,
        tenure: Tenure,
        resume: Option<ResourceVersion>,
        position: Arc<Position>,
    ) -> Self {
        Self { tenure, resume, position, ..self }
    }

    /// Works until the shutdown: `planner` says what is to be done, `worker` does it.
    pub async fn run<P: Planner>(&self, planner: P, worker: &impl Worker<P::Task>) {
        engine::run(self, planner, worker).await;
    }
}
