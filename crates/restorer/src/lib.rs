//! The restorer adds the missing labels when a Node comes back. `planner` decides when, and `apply` reads and writes.

mod apply;
mod metrics;
mod planner;

use std::sync::Arc;

use label_storage_runtime::args::{Common, STYLES};
use label_storage_runtime::cache::Cache;
use label_storage_runtime::preflight::Right;
use label_storage_runtime::projection::Detail;
use label_storage_runtime::{Daemon, ShardContext, engine};

use crate::apply::Apply;
pub use crate::metrics::RestorerMetrics;
use crate::planner::{FINAL_LABELS_LIFETIME, RestorePlanner};

/// Restore the labels of re-created Kubernetes Nodes from ConfigMaps
///
/// The restorer watches all nodes. When a node is re-created, it adds the labels of the ConfigMap `label-storage.NODE` that the node
/// lacks. By default it overwrites no label. The storer writes the ConfigMaps. The restorer uses the current kubeconfig context or, in a
/// pod, the pod's service account.
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "restorer", version, styles = STYLES, max_term_width = 100, args_override_self = true)]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
}

impl Daemon for Args {
    const WRITES: &[Right] = &[("patch", "nodes")];
    const DETAIL: Detail = Detail::WhatIsThere;
    type Own = RestorerMetrics;

    fn common(&self) -> &Common {
        &self.common
    }

    async fn run(&self, replica: ShardContext, metrics: Arc<RestorerMetrics>) {
        let apply = Apply { replica, metrics };
        let polls = !apply.replica.args.watch;
        let planner = || RestorePlanner::new(Arc::clone(&apply.replica.rules), polls);
        engine::run(&apply.replica, Cache::new(FINAL_LABELS_LIFETIME), planner, &apply).await;
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }
}
