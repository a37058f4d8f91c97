//! The storer stores each Node's labels in a ConfigMap. `planner` decides when, and `apply` reads and writes.

mod apply;
mod in_doubt;
mod metrics;
mod planner;

use std::sync::Arc;

use label_storage_runtime::args::{Common, STYLES};
use label_storage_runtime::cache::Cache;
use label_storage_runtime::preflight::Right;
use label_storage_runtime::projection::Detail;
use label_storage_runtime::{Daemon, ShardContext, engine};

use crate::apply::Apply;
pub use crate::metrics::StorerMetrics;
use crate::planner::StorePlanner;

/// Store the labels of Kubernetes Nodes in ConfigMaps
///
/// The storer watches all nodes, and stores the labels of each in a ConfigMap `label-storage.NODE`. When a node is re-created, the
/// restorer adds its labels again. The storer uses the current kubeconfig context or, in a pod, the pod's service account.
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "storer", version, styles = STYLES, max_term_width = 100, args_override_self = true)]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
}

impl Daemon for Args {
    const WRITES: &[Right] = &[("create", "configmaps"), ("update", "configmaps"), ("delete", "configmaps")];
    const DETAIL: Detail = Detail::WhatIsKept;
    type Own = StorerMetrics;

    fn common(&self) -> &Common {
        &self.common
    }

    async fn run(&self, replica: ShardContext, metrics: Arc<StorerMetrics>) {
        let apply = Apply { replica, metrics };
        let planner = || {
            let ShardContext { rules, clock, .. } = &apply.replica;
            let (rules, clock) = (Arc::clone(rules), Arc::clone(clock));
            StorePlanner::new(rules, self.common.dry_run, clock, Arc::clone(&apply.metrics))
        };
        engine::run(&apply.replica, Cache::default(), planner, &apply).await;
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
