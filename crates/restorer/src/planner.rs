//! Which Nodes are to be restored: from what lists and watches have told, without a single call.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use label_storage::restore::{self, Reason};
use label_storage::summary::UidDigest;
use label_storage::{Node, ResourceVersion};
use label_storage_runtime::engine::{Done, Doubts, Look, Planner, Verdict};
use label_storage_runtime::queue::Urgency;
use label_storage_runtime::table::{Known, Name, Row, Table};

use crate::apply::WOULD_RESTORE;

/// So many Nodes that wait to be restored are remembered as they were seen, which saves a call for each. Those beyond
/// are read again when their turn comes: memory is bounded, whatever returns at once.
const MOST_VIEWS: usize = 8192;

/// The restorer's memory: what no list can tell.
pub(crate) struct RestorePlanner {
    /// Nodes that wait to be restored, as they were seen, and when.
    views: HashMap<Name, (Node, Instant)>,
    /// Nodes whose records may have changed unseen, until they have been read.
    unsure: HashSet<Name>,
    /// In a dry run: what has been said already, by Node.
    said: Option<HashMap<Name, News>>,
}

/// What a dry run's words depend on: the Node's incarnation and the record's version.
type News = (UidDigest, ResourceVersion);

/// What is to be done with one Node.
pub(crate) struct Task {
    /// The Node, and when it looked like this.
    pub(crate) view: Option<(Node, Instant)>,
    /// What an answer must not be older than.
    pub(crate) known: Known,
    news: Option<News>,
}

impl RestorePlanner {
    pub(crate) fn new(dry_run: bool) -> Self {
        Self { views: HashMap::new(), unsure: HashSet::new(), said: dry_run.then(HashMap::new) }
    }

    fn remember(&mut self, name: &Name, node: &Node) {
        if self.views.len() < MOST_VIEWS || self.views.contains_key(name) {
            self.views.insert(Name::clone(name), (node.clone(), Instant::now()));
        }
    }
}

fn news(row: &Row) -> Option<News> {
    Some((row.node()?.uid, row.record_version()))
}

impl Planner for RestorePlanner {
    type Task = Task;

    fn verdict(&mut self, look: Look<'_>) -> Verdict {
        let name = look.row.name();
        let reason = look.row.node().map(|node| restore::decide(&node, look.row.stored()));
        if let Some(reason) = reason {
            tracing::debug!(node = &**name, reason = reason.as_str(), "decided");
        }
        let is_said = self.said.as_ref().is_some_and(|said| said.get(name) == news(look.row).as_ref());
        if look.is_unsure {
            self.unsure.insert(Name::clone(name));
        }
        let is_due = match reason {
            Some(Reason::Returned | Reason::ReturnedWhole) => !is_said,
            Some(_) => self.unsure.contains(name),
            None => false,
        };
        match (is_due, look.view) {
            (false, _) => drop(self.views.remove(name)),
            (true, Some(node)) => self.remember(name, node),
            (true, None) => (),
        }
        if is_due { Verdict::Now(Urgency::Soon) } else { Verdict::Nothing }
    }

    /// The storer's business.
    fn deleted(&mut self, _: Node, row: &Row, _: bool) {
        self.views.remove(row.name());
    }

    fn task(&mut self, row: &Row) -> Task {
        let news = self.said.as_ref().and_then(|_| news(row));
        Task { view: self.views.remove(row.name()), known: row.known(), news }
    }

    fn done(&mut self, name: &Name, task: Task, done: Option<&Done>) {
        if done.is_some() {
            self.unsure.remove(name);
        }
        let outcome = done.and_then(|done| done.outcome);
        if let (Some(said), Some(news), Some(WOULD_RESTORE)) = (&mut self.said, task.news, outcome) {
            said.insert(Name::clone(name), news);
        }
    }

    fn listed(&mut self, table: &mut Table) -> Doubts {
        let is_there = |name: &Name| table.get(name).is_some_and(|row| row.node().is_some());
        self.unsure.retain(is_there);
        if let Some(said) = &mut self.said {
            said.retain(|name, _| is_there(name));
        }
        Doubts::default()
    }

    fn start_over(&mut self) {
        *self = Self::new(self.said.is_some());
    }
}

#[cfg(test)]
mod tests {
    use label_storage::store::Stored;
    use label_storage::{Record, Uid};
    use label_storage_runtime::engine::Reading;

    use super::*;

    fn node(name: &str, uid: &str, version: u64) -> Node {
        let uid = Uid::new(uid).expect("a uid");
        let labels = [("pool".to_owned(), "gold".to_owned())].into();
        Node { name: name.to_owned(), uid, version: ResourceVersion(version), labels, marker: None }
    }

    fn verdict(planner: &mut RestorePlanner, table: &Table, node: &Node, is_unsure: bool) -> Verdict {
        let row = table.get(&node.name).expect("a row");
        planner.verdict(Look { row, view: Some(node), is_event: true, is_unsure })
    }

    fn settle(planner: &mut RestorePlanner, table: &Table, node: &str, succeeds: bool) -> Option<Node> {
        let row = table.get(node).expect("a row");
        let (name, task) = (Name::clone(row.name()), planner.task(row));
        let view = task.view.clone().map(|(node, _)| node);
        let done = Done { outcome: None, node: Reading::None, record: Reading::None };
        planner.done(&name, task, succeeds.then_some(&done));
        view
    }

    #[test]
    fn a_new_incarnation_is_restored_as_it_was_last_seen() {
        let (mut table, mut planner) = (Table::default(), RestorePlanner::new(false));
        let record = Record::of(&node("a", "u1", 5), jiff::Timestamp::now());
        table.see_record("a", ResourceVersion(6), Stored::Record(record.summary()));
        table.see_node("a", node("a", "u1", 5).summary());
        assert_eq!(verdict(&mut planner, &table, &node("a", "u1", 5), false), Verdict::Nothing);
        for version in [8, 9] {
            table.see_node("a", node("a", "u2", version).summary());
            let soon = Verdict::Now(Urgency::Soon);
            assert_eq!(verdict(&mut planner, &table, &node("a", "u2", version), false), soon);
        }
        assert_eq!(settle(&mut planner, &table, "a", true), Some(node("a", "u2", 9)));
        assert_eq!(settle(&mut planner, &table, "a", true), None);
    }

    #[test]
    fn where_records_may_have_changed_unseen_a_new_node_is_reason_to_read_one() {
        let (mut table, mut planner) = (Table::default(), RestorePlanner::new(false));
        table.see_node("a", node("a", "u1", 5).summary());
        let soon = Verdict::Now(Urgency::Soon);
        assert_eq!(verdict(&mut planner, &table, &node("a", "u1", 5), true), soon);
        settle(&mut planner, &table, "a", false);
        assert_eq!(verdict(&mut planner, &table, &node("a", "u1", 5), false), soon, "until it was read");
        settle(&mut planner, &table, "a", true);
        assert_eq!(verdict(&mut planner, &table, &node("a", "u1", 5), false), Verdict::Nothing);
    }

    #[test]
    fn only_so_many_views_are_kept() {
        let (mut table, mut planner) = (Table::default(), RestorePlanner::new(false));
        let record = Record::of(&node("a", "u1", 5), jiff::Timestamp::now());
        for number in 0..MOST_VIEWS + 10 {
            let node = node(&format!("n{number}"), "u2", 8);
            table.see_record(&node.name, ResourceVersion(6), Stored::Record(record.summary()));
            table.see_node(&node.name, node.summary());
            assert_eq!(verdict(&mut planner, &table, &node, false), Verdict::Now(Urgency::Soon));
        }
        assert_eq!(planner.views.len(), MOST_VIEWS);
    }
}
