//! The storer: keeps each Node's labels in a ConfigMap of its own.
//!
//! ```text
//!   lists, watches ─► table ─► planner: anything to write? ──no──► nothing, not even a call
//!                                          │ yes
//!                                          ▼
//!                     GET record, GET Node, plan_store, guarded write     (apply)
//! ```
//!
//! - `planner`: what is to be stored, and how urgently; it keeps the last labels of Nodes that were deleted.
//! - `apply`: the one place that writes; `in_doubt`: writes whose outcome is not known.
//! - `waiting`: nodes that nobody restores.
//! - `counts`: what is counted; `churn`: labels that do not come to rest.
//! - `cleanup`: how many records may be deleted in an hour.
//! - `evidence`: how many Nodes may be missing before that is taken for a faulty answer.

mod apply;
mod churn;
mod cleanup;
mod counts;
mod evidence;
mod in_doubt;
mod planner;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use label_storage::rules::{Draft, Share, amount};
use label_storage_runtime::args::rules::HEADING;
use label_storage_runtime::args::{Common, STYLES};
use label_storage_runtime::eyes::Sight;
use label_storage_runtime::preflight::Right;
use label_storage_runtime::{Daemon, Replica};

use crate::apply::Apply;
pub use crate::counts::Counts;
use crate::planner::StorePlanner;

/// Keeps the labels of Kubernetes Nodes in ConfigMaps, so that they survive the Node.
///
/// Watches all nodes, and stores the labels of each in a ConfigMap `label-storage.NODE`. Works on the current
/// kubeconfig context, or in a pod with its service account. The restorer brings the labels back.
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "storer", version, styles = STYLES, max_term_width = 100, args_override_self = true)]
pub struct Args {
    /// What both daemons share.
    #[command(flatten)]
    pub common: Common,

    /// How long to keep the labels of a node that is gone: at least 1m, or forever [default: 30d]
    #[arg(long, env = "LABEL_STORAGE_RETENTION", value_name = "TIME", help_heading = HEADING, value_parser = amount::retention)]
    pub retention: Option<Duration>,

    /// How many of all records to delete in an hour, at most, since their nodes are gone for so long [default: 10%]
    #[arg(long, env = "LABEL_STORAGE_CLEANUP_SHARE", value_name = "PERCENT", help_heading = HEADING)]
    pub cleanup_share: Option<Share>,

    /// How many earlier states of a node its record remembers, from 0 to 20 [default: 3]
    #[arg(long, env = "LABEL_STORAGE_HISTORY", value_name = "N", help_heading = HEADING, value_parser = amount::history)]
    pub history: Option<usize>,
}

impl Daemon for Args {
    const WRITES: &[Right] = &[
        Right::new("create", "configmaps"),
        Right::new("update", "configmaps"),
        Right::new("delete", "configmaps"),
    ];

    fn common(&self) -> &Common {
        &self.common
    }

    // A node's last labels are in the event of its deletion and nowhere else.
    const RESUMES: bool = true;

    type Own = Counts;

    // Of what it does not store it is not to know.
    const SIGHT: Sight = Sight::WhatIsKept;

    fn draft(&self) -> Draft {
        Draft {
            retention: self.retention,
            cleanup_share: self.cleanup_share,
            history: self.history,
            ..self.common.rules.draft()
        }
    }

    async fn run(&self, replica: Replica, counts: Arc<Counts>) {
        let in_doubt = Arc::clone(&counts.in_doubt);
        let apply = Apply { replica, counts, in_doubt };
        let (rules, clock) = (Arc::clone(&apply.replica.rules), Arc::clone(&apply.replica.clock));
        let (in_doubt, counts) = (Arc::clone(&apply.in_doubt), Arc::clone(&apply.counts));
        let planner = StorePlanner::new(rules, self.common.dry_run, clock, in_doubt, counts);
        apply.replica.run(planner, &apply).await;
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn rules_of_the_storer_alone_have_flags_too() {
        for (args, file) in [
            (&[][..], ""),
            (&["--retention", "7d", "--fence"][..], "{retention: 7d, identity: {fence: true}}"),
            (&["--retention=forever"], "retention: forever"),
            (&["--cleanup-share", "2.5%", "--history", "0"], "{cleanupShare: 2.5%, history: 0}"),
        ] {
            let read = Args::try_parse_from(std::iter::once(&"storer").chain(args)).expect("good flags");
            assert_eq!(read.draft(), Draft::from_yaml(file).expect(file), "{args:?}");
        }
        for (arg, advice) in [
            ("--retention=59s", "at least 1m, such as 30d, or forever"),
            ("--cleanup-share=10", "such as 10%"),
            ("--cleanup-share=0%", "above 0%"),
            ("--history=21", "from 0 to 20"),
        ] {
            let refused = Args::try_parse_from(["storer", arg]).expect_err(arg).to_string();
            assert!(refused.contains(advice), "{arg}: {refused}");
        }
    }
}
