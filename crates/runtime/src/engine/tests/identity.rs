//! What becomes of Nodes whose records are not filed by name.

use super::*;
use crate::recorder::tests::Overheard;

const K: &str = "providerID=k";
const L: &str = "providerID=l";

/// An engine that has seen that there is nothing, and watches.
fn engine(replica: &ShardContext) -> TestEngine<'_> {
    let mut engine = polling(replica);
    for kind in [Resource::Nodes, Resource::Records] {
        engine.observe(Observed::Watching(kind, ResourceVersion(1)));
    }
    engine
}

/// One that does not watch.
fn polling(replica: &ShardContext) -> TestEngine<'_> {
    super::engine(replica)
}

fn uid(name: &str) -> String {
    format!("00000000-0000-4000-8000-{:0>12}", name.len())
}

/// A Node whose uid follows from the length of its name.
fn named(name: &str, under: &str, version: u64) -> Node {
    let mut node = Node { name: name.to_owned(), ..node(&uid(name), version) };
    node.extras.identity = Some(under.to_owned());
    node
}

fn other(name: &str, version: u64) -> Update {
    Update::Elsewhere { name: name.to_owned(), version: ResourceVersion(version) }
}

fn deleted(node: Node) -> Observed {
    Observed::Deleted(Update::Node(node))
}

impl TestEngine<'_> {
    /// A list of Nodes.
    fn list_nodes(&mut self, nodes: &[Node], version: u64) {
        self.informers.begin_now(&mut self.cache);
        let (list, items) = (self.cache.begin_list(), nodes.len());
        for node in nodes {
            self.observe(Observed::Listed { list, items: vec![Update::Node(node.clone())] });
        }
        let outcome = Ok(Listed { version: ResourceVersion(version), items, bytes: 0 });
        self.observe(Observed::ListEnded { kind: Resource::Nodes, list, outcome, took: Duration::ZERO });
    }

    fn shown(&self, under: &str) -> Option<String> {
        let entry = self.cache.get(under).filter(|entry| entry.node().is_some())?;
        Some(entry.node_name().to_owned())
    }

    fn told(&mut self, replica: &ShardContext) -> crate::metrics::node_gauges::Snapshot {
        let due = self.states.due().expect("something has changed");
        self.states.tell_if_due(&self.cache, &self.queue, &self.informers, due);
        replica.metrics.node_gauges.total()
    }
}

#[tokio::test]
async fn a_node_that_changes_its_identity_is_no_deletion() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.observe(seen(named("a", K, 5)));
    engine.observe(seen(named("a", L, 6)));
    assert_eq!((engine.shown(K).as_deref(), engine.shown(L).as_deref()), (None, Some("a")));
    assert!(engine.cache.get(K).is_some_and(|entry| entry.is_surely_gone()));
    assert!(engine.planner.deleted.is_empty());
    assert!(!engine.queue.contains(K), "the entry that it left was decided upon");
    assert_eq!(engine.take().map(|ticket| ticket.key), Some(RecordKey::from(L)));
    assert!(engine.take().is_none());
}

#[tokio::test]
async fn a_node_that_another_shard_has_now_leaves_its_row() {
    for is_deleted in [false, true] {
        let replica = replica();
        let mut engine = engine(&replica);
        engine.observe(seen(named("a", K, 5)));
        let item = other("a", 9);
        engine.observe(if is_deleted { Observed::Deleted(item) } else { Observed::Changed(item) });
        assert!(engine.cache.get(K).is_some_and(|entry| entry.is_surely_gone()));
        assert!(engine.planner.deleted.is_empty() && engine.take().is_none());
        assert_eq!(engine.informers.seen(), ResourceVersion(9), "the watch has come so far");
    }
}

#[tokio::test]
async fn a_deletion_counts_for_what_the_node_was_filed_under_at_last() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.observe(seen(named("a", K, 5)));
    // The change from K to L was missed.
    engine.observe(deleted(named("a", L, 9)));
    assert_eq!((engine.shown(K).as_deref(), engine.shown(L).as_deref()), (None, None));
    assert_eq!(engine.planner.deleted, [named("a", L, 9)]);
    assert!(engine.queue.contains(L) && !engine.queue.contains(K));
}

#[tokio::test]
async fn nothing_is_decided_before_all_nodes_are_known_that_may_have_the_same_identity() {
    let mut replica = replica();
    replica.resume = vec![position(4, &[])];
    let mut engine = new_engine(&replica);
    engine.informers.begin_if_due(&mut engine.cache);
    engine.list_nothing(Resource::Records, 9);
    engine.observe(Observed::Watching(Resource::Nodes, ResourceVersion(4)));
    engine.observe(seen(named("a", K, 5)));
    assert!(engine.take().is_none(), "another one may have it, too");
    engine.list_nodes(&[named("a", K, 5), named("bb", K, 6), named("ccc", L, 7)], 9);
    let tasks: Vec<_> = std::iter::from_fn(|| engine.take()).map(|ticket| ticket.key.to_string()).collect();
    assert_eq!(tasks, [L]);
}

#[tokio::test]
async fn nothing_is_done_for_nodes_that_have_one_identity() {
    let (events, mut overheard) = Overheard::events();
    let replica = ShardContext { events, ..replica() };
    let mut engine = engine(&replica);
    engine.observe(seen(named("a", K, 5)));
    assert!(engine.queue.contains(K));
    engine.observe(seen(named("bb", K, 6)));
    assert!(!engine.queue.contains(K) && engine.take().is_none());
    assert_eq!(engine.planner.contested, [RecordKey::from(K)]);
    let told = engine.told(&replica);
    assert_eq!((told.nodes, told.behind, told.due), (2, 1, 0));
    assert_eq!(told.skipped.get("identity-contested"), Some(&1));
    let note = |others: &str| {
        format!("Neither stored nor restored, because other nodes have the same identity, {K}: {others}")
    };
    let event = |name: &str, others| ("IdentityContested", name.to_owned(), uid(name), note(others));
    assert_eq!(overheard.take(), [event("a", "bb"), event("bb", "a")]);
    // Once for all who are there.
    engine.observe(seen(named("a", K, 7)));
    engine.list_nodes(&[named("a", K, 7), named("bb", K, 6)], 8);
    assert_eq!(overheard.take(), []);
    engine.observe(seen(named("ccc", K, 9)));
    assert_eq!(overheard.take(), [event("a", "bb, ccc"), event("bb", "a, ccc"), event("ccc", "a, bb")]);
}

#[tokio::test]
async fn work_goes_on_when_one_is_left() {
    let (a, b) = (named("a", K, 5), named("bb", K, 6));
    type Resolve = fn(&mut TestEngine<'_>);
    let resolve: [(&str, Resolve); 4] = [
        ("deleted", |engine| engine.observe(deleted(named("a", K, 9)))),
        ("another identity", |engine| engine.observe(seen(named("a", L, 9)))),
        ("another shard's", |engine| engine.observe(Observed::Changed(other("a", 9)))),
        ("a list", |engine| engine.list_nodes(&[named("bb", K, 6)], 9)),
    ];
    for (how, resolve) in resolve {
        let replica = replica();
        let mut engine = engine(&replica);
        engine.observe(seen(a.clone()));
        engine.observe(seen(b.clone()));
        assert!(engine.take().is_none(), "{how}");
        resolve(&mut engine);
        assert_eq!(engine.shown(K).as_deref(), Some("bb"), "{how}");
        assert!(engine.planner.deleted.is_empty(), "{how}: nobody knows whose labels they are");
        let ticket = std::iter::from_fn(|| engine.take()).find(|ticket| &*ticket.key == K);
        assert_eq!(ticket.map(|ticket| ticket.node).as_deref(), Some("bb"), "{how}");
        assert_eq!(engine.told(&replica).skipped.get("identity-contested"), None, "{how}");
    }
}

#[tokio::test]
async fn a_record_may_have_changed_while_its_row_was_contested() {
    for is_watching in [true, false] {
        let replica = replica();
        let mut engine = if is_watching { engine(&replica) } else { polling(&replica) };
        let (a, b) = (named("a", K, 5), named("bb", K, 6));
        engine.list_nodes(&[a, b.clone()], 7);
        engine.planner.unsure.clear();
        engine.list_nodes(&[b], 8);
        assert_eq!(engine.planner.unsure.is_empty(), is_watching);
    }
}

#[tokio::test]
async fn last_labels_are_kept_where_the_other_came_after() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.observe(seen(named("a", K, 5)));
    // A list is ahead of the watch.
    let list = engine.cache.begin_list();
    engine.observe(Observed::Listed { list, items: vec![Update::Node(named("bb", K, 20))] });
    engine.observe(deleted(named("a", K, 10)));
    assert_eq!(engine.planner.deleted, [named("a", K, 10)]);
    assert_eq!(engine.shown(K).as_deref(), Some("bb"));
}

#[tokio::test]
async fn nothing_is_said_of_a_claim_that_may_be_over() {
    let (events, mut overheard) = Overheard::events();
    let replica = ShardContext { events, ..replica() };
    for mut engine in [engine(&replica), polling(&replica)] {
        engine.list_nodes(&[named("a", K, 5)], 5);
        let list = engine.cache.begin_list();
        engine.observe(Observed::Listed { list, items: vec![Update::Node(named("bb", K, 9))] });
        assert!(engine.cache.get(K).is_some_and(|entry| entry.is_contested()));
        let outcome = Ok(Listed { version: ResourceVersion(10), items: 1, bytes: 0 });
        engine.observe(Observed::ListEnded { kind: Resource::Nodes, list, outcome, took: Duration::ZERO });
        assert_eq!((engine.shown(K).as_deref(), overheard.take()), (Some("bb"), vec![]), "the other is gone");
        engine.list_nodes(&[named("a", K, 11), named("bb", K, 9)], 12);
        assert_eq!(overheard.take().len(), 2, "both were in one list");
    }
}

#[tokio::test]
async fn an_attempt_that_waits_for_its_turn_is_dropped_when_its_row_is_contested() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.observe(seen(named("a", K, 5)));
    let ticket = engine.take().expect("work");
    engine.observe(seen(named("bb", K, 6)));
    engine.finish(ticket, Instant::now(), Err(Error::unclear("try", "lost")));
    assert!(engine.queue.contains(K), "a failure is not taken out");
    let later = Instant::now() + Duration::from_secs(600);
    assert!(engine.next(Urgency::Tidy, later).is_none());
    assert!(!engine.queue.contains(K));
    engine.observe(deleted(named("bb", K, 7)));
    // Nor is it tried again after one that succeeded.
    let ticket = engine.take().expect("work");
    engine.observe(seen(named("bb", K, 8)));
    engine.finish(ticket, Instant::now(), Ok(NOTHING));
    assert!(!engine.queue.contains(K));
}

#[tokio::test]
async fn what_an_attempt_has_read_counts_for_the_node_that_it_asked_for() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.observe(seen(named("a", K, 5)));
    let ticket = engine.take().expect("work");
    assert_eq!(ticket.node, "a");
    let read = named("a", K, 8).summary();
    engine.finish(ticket, Instant::now(), Ok(Done { node: Reading::Present(read), ..NOTHING }));
    assert_eq!(engine.cache.get(K).and_then(|entry| entry.node()), Some(read));
    assert!(!engine.cache.get(K).is_some_and(|entry| entry.is_contested()));
    // One that became contested meanwhile, and one that is not there.
    let later = Instant::now() + Duration::from_secs(600);
    let ticket = engine.next(Urgency::Tidy, later).expect("work");
    engine.observe(seen(named("bb", K, 9)));
    engine.finish(ticket, Instant::now(), Ok(Done { node: Reading::Absent, ..NOTHING }));
    assert_eq!(engine.shown(K).as_deref(), Some("bb"));
    assert!(engine.queue.contains(K));
}

#[tokio::test]
async fn nothing_is_made_of_an_answer_about_a_node_without_a_name() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.cache.see_record(None, K, ResourceVersion(3), Stored::Unreadable);
    let entry = engine.cache.get(K).expect("an entry");
    let (key, node, versions) = (RecordKey::from(K), entry.node_name().to_owned(), entry.versions());
    let reads = FreshReads::by_name(entry.known());
    assert_eq!(node, K);
    let ticket = Ticket { key, node, task: (), reads, earlier_tries: 0, versions, due_since: None };
    let read = Reading::Present(named("a", L, 8).summary());
    engine.finish(ticket, Instant::now(), Ok(Done { node: read, ..NOTHING }));
    assert_eq!(engine.shown(K).as_deref(), None);
}

#[tokio::test]
async fn an_answer_about_a_node_that_nobody_knows_moves_none() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.observe(seen(named("a", K, 5)));
    engine.observe(seen(named("a", L, 6)));
    engine.cache.see_record(None, Filed { under: K, name: "bb" }, ResourceVersion(3), Stored::Unreadable);
    let entry = engine.cache.get(K).expect("an entry");
    let (key, node, versions) = (RecordKey::from(K), entry.node_name().to_owned(), entry.versions());
    let reads = FreshReads::by_name(entry.known());
    assert_eq!(node, "bb");
    let ticket = Ticket { key, node, task: (), reads, earlier_tries: 0, versions, due_since: None };
    // The record names another, which was asked for, and has just come back.
    let read = Reading::Present(named("bb", K, 9).summary());
    engine.finish(ticket, Instant::now(), Ok(Done { node: read, ..NOTHING }));
    assert_eq!((engine.shown(K).as_deref(), engine.shown(L).as_deref()), (None, Some("a")));
    engine.observe(seen(named("bb", K, 9)));
    assert_eq!(engine.shown(K).as_deref(), Some("bb"));
}

/// `a` has an identity; then the watch has a gap, and after it `bb` has that identity, too, and is deleted at 15.
fn deleted_after_a_gap(engine: &mut TestEngine<'_>) {
    engine.observe(seen(named("a", K, 5)));
    engine.observe(Observed::Skipped(Resource::Nodes, ResourceVersion(10)));
    engine.observe(Observed::Watching(Resource::Nodes, ResourceVersion(10)));
    engine.observe(seen(named("bb", K, 12)));
    engine.observe(deleted(named("bb", K, 15)));
}

fn final_labels(engine: &TestEngine<'_>) -> Option<Node> {
    engine.cache.get(K)?.final_labels().cloned()
}

#[tokio::test]
async fn a_node_that_was_deleted_in_a_gap_of_the_watch_contests_no_later_deletion() {
    let replica = replica();
    let mut engine = engine(&replica);
    deleted_after_a_gap(&mut engine);
    assert_eq!(final_labels(&engine), None, "`a` may still exist");
    let position = replica.position.borrow().clone();
    assert_eq!(position, Some(super::position(15, &[(K, 15)])), "but the deletion is not stored yet");
    engine.list_nodes(&[], 20);
    assert_eq!(final_labels(&engine), Some(named("bb", K, 15)));
}

#[tokio::test]
async fn a_node_that_still_exists_after_a_gap_of_the_watch_contests_a_deletion() {
    for is_seen in [true, false] {
        let replica = replica();
        let mut engine = engine(&replica);
        deleted_after_a_gap(&mut engine);
        engine.list_nodes(&[named("a", K, 5)], 9);
        assert_eq!(final_labels(&engine), None, "that list was too early");
        let version = if is_seen { 17 } else { 5 };
        if is_seen {
            engine.observe(seen(named("a", K, version)));
            assert_eq!(final_labels(&engine), None);
        }
        engine.list_nodes(&[named("a", K, version)], 20);
        assert!(!engine.cache.final_labels.contains(K));
        engine.observe(deleted(named("ccc", K, 25)));
        assert!(!engine.cache.final_labels.contains(K), "the list has ended the gap");
    }
}
