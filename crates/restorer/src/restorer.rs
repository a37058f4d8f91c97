//! One look at all Nodes and records, and the work that follows from it.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use label_storage::name::record_name;
use label_storage::{Node, Uid, plan_restore};
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
    /// What a dry run has said already, by Node.
    said: HashMap<String, News>,
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
        self.said.retain(|node, _| names.contains(node.as_str()));
        self.damage.tell(nodes.iter().filter_map(|node| records.get_key_value(&record_name(&node.name))));
        let work: Vec<Node> = nodes.into_iter().filter(|node| self.has_work(node, &records)).collect();

        let planned = work.len();
        let began = Instant::now();
        let attempt = async |node: &Node, tries| self.apply.attempt(node, asked_at, tries).await;
        let outcomes = self.replica().settle_all(work, attempt).await;

        let (mut restored, mut failed) = (0, 0);
        let interval = self.replica().args.interval;
        for (node, outcome) in outcomes {
            match self.failures.note(&node.name, outcome, interval) {
                Some(outcome) => {
                    restored += usize::from(outcome == Outcome::Restored);
                    if outcome == Outcome::WouldRestore {
                        self.said.insert(node.name.clone(), news(&node, &records));
                    }
                }
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
    fn has_work(&self, node: &Node, records: &HashMap<String, Found>) -> bool {
        let plan = plan_restore(node, Found::stored(records.get(&record_name(&node.name))));
        tracing::debug!(node = node.name, reason = plan.reason.as_str(), "decided");
        let is_said =
            || self.replica().args.dry_run && self.said.get(&node.name) == Some(&news(node, records));
        plan.patch.is_some() && self.failures.is_due(&node.name, Instant::now()) && !is_said()
    }
}

/// What a dry run's words depend on: the Node's incarnation and the record's version.
type News = (Uid, Option<String>);

fn news(node: &Node, records: &HashMap<String, Found>) -> News {
    let found = records.get(&record_name(&node.name));
    (node.uid.clone(), found.and_then(|found| found.version.clone()))
}
