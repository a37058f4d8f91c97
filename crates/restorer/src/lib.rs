//! The restorer: gives a Node that returns the labels that its record has and it has not.
//!
//! ```text
//!   list Nodes ─► keep the shard ─► plan_restore: a new incarnation? ──no──► nothing, not even a call
//!   list records ─────────────────┘          │ yes
//!                                            ▼
//!                     (the Node first, then) GET record, plan_restore again, guarded patch     (apply)
//! ```
//!
//! - `restorer`: one look at all Nodes and records, and the work that follows from it.
//! - `apply`: the one place that writes.

mod apply;
mod restorer;

use label_storage_runtime::Daemon;
use label_storage_runtime::args::{Common, STYLES};
use label_storage_runtime::pass::{self, Replica};
use label_storage_runtime::preflight::Right;

use crate::restorer::Restorer;

/// Brings the labels of Kubernetes Nodes back from ConfigMaps, when a Node returns without them.
///
/// Looks at all nodes on an interval. A node that was re-created gets the labels that its ConfigMap `label-storage.NODE`
/// has and it has not; a label that it has is never overwritten. Works on the current kubeconfig context, or in a pod
/// with its service account. The storer writes the ConfigMaps.
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "restorer", version, styles = STYLES, max_term_width = 100, args_override_self = true)]
pub struct Args {
    /// What both daemons share.
    #[command(flatten)]
    pub common: Common,
}

impl Daemon for Args {
    const WRITES: &[Right] = &[Right::new("patch", "nodes")];

    fn common(&self) -> &Common {
        &self.common
    }

    async fn run(self, replica: Replica) {
        let shutdown = replica.shutdown.clone();
        let mut restorer = Restorer::new(replica);
        pass::run(&self.common, &shutdown, async || restorer.pass().await).await;
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
