//! One look at all Nodes and records, and the work that follows from it.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use label_storage::name::{node_in_record_name, record_name};
use label_storage::store::{Action, Plan, Reason, Sighting};
use label_storage::{Node, plan_store};
use label_storage_runtime::call::Error;
use label_storage_runtime::pace::Failures;
use label_storage_runtime::pass::{Replica, View};
use label_storage_runtime::records::{DamageReport, Found};

use crate::apply::{Apply, Outcome, Tombstone};
use crate::evidence::Evidence;
use crate::waiting::Waiting;

/// The storer between two passes: it remembers only what no list can tell.
pub(crate) struct Storer {
    apply: Apply,
    /// Nodes that failed, and when they are due again.
    failures: Failures,
    /// Records that are empty, or whose Node is gone, by name, and since when this process sees them so.
    tombstones: HashMap<String, Tombstone>,
    evidence: Evidence,
    damage: DamageReport,
    /// What a dry run has said already, by Node.
    said: HashMap<String, u64>,
    waiting: Waiting,
}

/// A Node whose record needs a write, as far as the lists tell.
struct Work {
    node: String,
    tombstone: Option<Tombstone>,
    /// What a dry run would say about it.
    news: u64,
}

impl Storer {
    pub(crate) fn new(replica: Replica, retention: Duration) -> Self {
        Self {
            apply: Apply { replica, retention },
            failures: Failures::default(),
            tombstones: HashMap::new(),
            evidence: Evidence::default(),
            damage: DamageReport::default(),
            said: HashMap::new(),
            waiting: Waiting::default(),
        }
    }

    fn replica(&self) -> &Replica {
        &self.apply.replica
    }

    /// Looks at everything once and does what follows. Returns how long the listing took.
    pub(crate) async fn pass(&mut self) -> Result<Duration, Error> {
        let Some(view) = self.replica().look().await? else { return Ok(Duration::ZERO) };
        let View { nodes, mut records, all_nodes, took, .. } = view;
        records.retain(|name, found| self.is_ours(name, found));
        self.remember_tombstones(&records);
        self.damage.tell(&records);

        let mut work = self.work_for_living(&nodes, &records);
        let living: HashSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        work.extend(self.work_for_missing(&living, &records));
        let concerns = |node: &str| living.contains(node) || records.contains_key(&record_name(node));
        self.failures.retain(concerns);
        self.said.retain(|node, _| concerns(node));
        self.waiting.tell(concerns);

        let planned = work.len();
        let began = Instant::now();
        let attempt = async |work: &Work, _| self.apply.attempt(&work.node, work.tombstone.as_ref()).await;
        let outcomes = self.replica().settle_all(work, attempt).await;

        let mut counts: HashMap<Outcome, usize> = HashMap::new();
        let mut failed = 0;
        let interval = self.replica().args.interval;
        for (work, outcome) in outcomes {
            match self.failures.note(&work.node, outcome, interval) {
                Some(outcome) => {
                    *counts.entry(outcome).or_default() += 1;
                    if outcome == Outcome::WouldWrite {
                        self.said.insert(work.node, work.news);
                    }
                }
                None => failed += 1,
            }
        }
        let count = |outcome| counts.get(&outcome).copied().unwrap_or_default();
        let (stored, stamped, deleted) =
            (count(Outcome::Stored), count(Outcome::Stamped), count(Outcome::Deleted));
        if stored + stamped + deleted + failed > 0 {
            tracing::info!(
                all_nodes, nodes = nodes.len(), records = records.len(), planned, stored, stamped, deleted, failed,
                listing = ?took, writing = ?began.elapsed(), "pass"
            );
        }
        Ok(took)
    }

    fn is_ours(&self, name: &str, found: &Found) -> bool {
        match &found.content {
            Ok(decoded) => self.replica().share.includes(&decoded.record.node),
            // Nobody's, then: whoever handles a node of that name tells about it, or the first replica.
            Err(_) => match node_in_record_name(name) {
                Some(node) => self.replica().share.includes(node),
                None => self.replica().share.index == 0,
            },
        }
    }

    fn remember_tombstones(&mut self, records: &HashMap<String, Found>) {
        let is_deletable = |found: &Found| {
            let record = found.content.as_ref().ok().map(|decoded| &decoded.record);
            record.is_some_and(|record| record.is_empty() || record.departed_at.is_some())
        };
        let same = |name: &String, tombstone: &Tombstone| {
            records.get(name).is_some_and(|found| is_deletable(found) && found.version == tombstone.version)
        };
        self.tombstones.retain(|name, tombstone| same(name, tombstone));
        for (name, found) in records.iter().filter(|(_, found)| is_deletable(found)) {
            let tombstone = || Tombstone { version: found.version.clone(), since: Instant::now() };
            self.tombstones.entry(name.clone()).or_insert_with(tombstone);
        }
    }

    fn work_for_living(&mut self, nodes: &[Node], records: &HashMap<String, Found>) -> Vec<Work> {
        nodes.iter().filter_map(|node| self.work(&node.name, Sighting::Live(node), records)).collect()
    }

    fn work_for_missing(&mut self, living: &HashSet<&str>, records: &HashMap<String, Found>) -> Vec<Work> {
        let decoded = records.values().filter_map(|found| found.content.as_ref().ok());
        let stored: Vec<_> = decoded.map(|decoded| &decoded.record).collect();
        let is_missing = |node: &str| !living.contains(node);

        let here = stored.iter().filter(|record| record.departed_at.is_none() && !record.is_empty());
        let (known, missing) = here.fold((0, 0), |(known, missing), record| {
            (known + 1, missing + usize::from(is_missing(&record.node)))
        });
        if !self.evidence.suffices(missing, known, Instant::now()) {
            return Vec::new();
        }
        let missing = stored.iter().filter(|record| is_missing(&record.node));
        missing.filter_map(|record| self.work(&record.node, Sighting::Gone, records)).collect()
    }

    /// Decides from the lists alone. What needs no write costs no call.
    fn work(
        &mut self,
        node: &str,
        sighting: Sighting<&Node>,
        records: &HashMap<String, Found>,
    ) -> Option<Work> {
        let name = record_name(node);
        let (found, tombstone) = (records.get(&name), self.tombstones.get(&name));
        let plan = plan_store(sighting, Found::stored(found), self.apply.circumstances(found, tombstone));
        tracing::debug!(node, reason = plan.reason.as_str(), "decided");
        self.waiting.note(node, plan.reason);
        // A view that is older than the record is worth a closer look, too: it may stay so for ever.
        if plan.action == Action::Nothing && plan.reason != Reason::ViewOlderThanRecord {
            self.said.remove(node);
            return None;
        }
        let work = Work { node: node.to_owned(), tombstone: tombstone.cloned(), news: news(&plan) };
        let is_said = self.replica().args.dry_run && self.said.get(node) == Some(&work.news);
        (self.failures.is_due(node, Instant::now()) && !is_said).then_some(work)
    }
}

/// Stands for what a dry run says about a plan: two that say the same are said once.
fn news(plan: &Plan) -> u64 {
    let mut hasher = DefaultHasher::new();
    plan.reason.hash(&mut hasher);
    if let Action::Create(record) | Action::Replace(record) = &plan.action {
        (&record.uid, &record.labels).hash(&mut hasher);
    }
    hasher.finish()
}
