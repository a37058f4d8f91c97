//! One look at all Nodes and records, and the work that follows from it.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use label_storage::name::record_name;
use label_storage::{Node, plan_restore};
use label_storage_runtime::call::Error;
use label_storage_runtime::pace::Failures;
use label_storage_runtime::pass::{Replica, View};
use label_storage_runtime::records::{DamageReport, Found};

use crate::apply::{Apply, Outcome};

/// The restorer between two passes: it remembers only what no list can tell.
pub(crate) struct Restorer {
    apply: Apply,
    /// Nodes that failed, and when they are due again.
    failures: Failures,
    damage: DamageReport,
    /// What a dry run has said already: the Node's incarnation and the record's version.
    said: HashSet<(String, Option<String>)>,
}

impl Restorer {
    pub(crate) fn new(replica: Replica) -> Self {
        let (failures, damage, said) = Default::default();
        Self { apply: Apply { replica }, failures, damage, said }
    }

    fn replica(&self) -> &Replica {
        &self.apply.replica
    }

    /// Looks at everything once and does what follows. Returns how long the listing took.
    pub(crate) async fn pass(&mut self) -> Result<Duration, Error> {
        let Some(view) = self.replica().look().await? else { return Ok(Duration::ZERO) };
        let View { nodes, records, all_nodes, asked_at, took } = view;
        let shard_nodes = nodes.len();
        let names: HashSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        self.failures.retain(|node| names.contains(node));
        let work: Vec<Node> = nodes.into_iter().filter(|node| self.has_work(node, &records)).collect();

        let planned = work.len();
        let began = Instant::now();
        let attempt = async |node: &Node, tries| self.apply.attempt(node, asked_at, tries).await;
        let outcomes = self.replica().settle_all(work, attempt).await;

        let (mut restored, mut failed) = (0, 0);
        let interval = self.replica().args.interval;
        for (node, outcome) in outcomes {
            match self.failures.note(&node.name, outcome, interval) {
                Some(outcome) => restored += usize::from(outcome == Outcome::Restored),
                None => failed += 1,
            }
        }
        if restored + failed > 0 {
            let records = records.len();
            tracing::info!(
                all_nodes, nodes = shard_nodes, records, planned, restored, failed,
                listing = ?took, writing = ?began.elapsed(), "pass"
            );
        }
        Ok(took)
    }

    /// Decides from the lists alone. A node that is settled costs no call.
    fn has_work(&mut self, node: &Node, records: &HashMap<String, Found>) -> bool {
        let name = record_name(&node.name);
        let found = records.get(&name);
        if let Some(found) = found {
            self.damage.tell(&name, found);
        }
        let plan = plan_restore(node, Found::stored(found));
        tracing::debug!(node = node.name, reason = plan.reason.as_str(), "decided");
        let is_due = plan.patch.is_some() && self.failures.is_due(&node.name, Instant::now());
        let news = || (node.uid.to_string(), found.and_then(|found| found.version.clone()));
        is_due && (!self.replica().args.dry_run || self.said.insert(news()))
    }
}
