//! What becomes of Nodes whose records are not filed by name.

use label_storage::store::Stored;

use super::*;
use crate::list_watch::OtherNode;
use crate::recorder::tests::Overheard;

const K: &str = "providerID=k";
const L: &str = "providerID=l";

/// An engine that has seen that there is nothing, and watches.
fn engine(replica: &ShardContext) -> Engine<'_, Everything> {
    let mut engine = polling(replica);
    for kind in [Resource::Nodes, Resource::Records] {
        engine.observe(Observed::Watching(kind, ResourceVersion(1)));
    }
    engine
}

/// One that does not watch.
fn polling(replica: &ShardContext) -> Engine<'_, Everything> {
    let mut engine = super::engine(replica);
    engine.cache = Cache::by_identity();
    engine
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

fn other(name: &str, version: u64) -> Item {
    Item::Other(OtherNode { name: name.to_owned(), version: ResourceVersion(version) })
}

fn deleted(node: Node) -> Observed {
    Observed::Deleted(Item::Node(node))
}

impl<P: Planner> Engine<'_, P> {
    /// A list of Nodes.
    fn list_nodes(&mut self, nodes: &[Node], version: u64) {
        self.informers.begin_now(&mut self.cache);
        let (list, items) = (self.cache.begin_list(), nodes.len());
        for node in nodes {
            self.observe(Observed::Listed { list, items: vec![Item::Node(node.clone())] });
        }
        let outcome = Ok(Listed { version: ResourceVersion(version), items, bytes: 0 });
        self.observe(Observed::ListEnded { kind: Resource::Nodes, list, outcome, took: Duration::ZERO });
    }

    fn shown(&self, under: &str) -> Option<&str> {
        self.cache.get(under).filter(|entry| entry.node().is_some()).map(Entry::node_name)
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
    assert_eq!((engine.shown(K), engine.shown(L)), (None, Some("a")));
    assert!(engine.cache.get(K).is_some_and(Entry::is_surely_gone));
    assert!(engine.planner.deleted.is_empty());
    assert!(!engine.queue.contains(K), "the entry that it left was decided upon");
    assert_eq!(engine.take().map(|ticket| ticket.node), Some(RecordKey::from(L)));
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
        assert!(engine.cache.get(K).is_some_and(Entry::is_surely_gone));
        assert!(engine.planner.deleted.is_empty() && engine.take().is_none());
        assert_eq!(engine.watch.seen(), ResourceVersion(9), "the watch has come so far");
    }
}

#[tokio::test]
async fn a_deletion_counts_for_what_the_node_was_filed_under_at_last() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.observe(seen(named("a", K, 5)));
    // The change from K to L was missed.
    engine.observe(deleted(named("a", L, 9)));
    assert_eq!((engine.shown(K), engine.shown(L)), (None, None));
    assert_eq!(engine.planner.deleted, [named("a", L, 9)]);
    assert!(engine.queue.contains(L) && !engine.queue.contains(K));
}

#[tokio::test]
async fn nothing_is_decided_before_all_nodes_are_known_that_may_have_the_same_identity() {
    let mut replica = replica();
    replica.resume = vec![position(4, &[])];
    let (audience, _) = mpsc::channel(64);
    let mut engine = Engine::new(&replica, Everything::default(), Informers::new(&replica, audience));
    engine.cache = Cache::by_identity();
    engine.informers.begin_if_due(&mut engine.cache);
    engine.list_nothing(Resource::Records, 9);
    engine.observe(Observed::Watching(Resource::Nodes, ResourceVersion(4)));
    engine.observe(seen(named("a", K, 5)));
    assert!(engine.take().is_none(), "another one may have it, too");
    engine.list_nodes(&[named("a", K, 5), named("bb", K, 6), named("ccc", L, 7)], 9);
    let tasks: Vec<_> = std::iter::from_fn(|| engine.take()).map(|ticket| ticket.node.to_string()).collect();
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
        format!(
            "Neither stored nor restored while others have the same identity, {K}. These have it, too: {others}"
        )
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
    type Resolve = fn(&mut Engine<'_, Everything>);
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
        assert_eq!(engine.shown(K), Some("bb"), "{how}");
        assert!(engine.planner.deleted.is_empty(), "{how}: nobody knows whose labels they are");
        let ticket = std::iter::from_fn(|| engine.take()).find(|ticket| &*ticket.node == K);
        assert_eq!(ticket.and_then(|ticket| ticket.asked_for), Some(RecordKey::from("bb")), "{how}");
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
    engine.observe(Observed::Listed { list, items: vec![Item::Node(named("bb", K, 20))] });
    engine.observe(deleted(named("a", K, 10)));
    assert_eq!(engine.planner.deleted, [named("a", K, 10)]);
    assert_eq!(engine.shown(K), Some("bb"));
}

#[tokio::test]
async fn nothing_is_said_of_a_claim_that_may_be_over() {
    let (events, mut overheard) = Overheard::events();
    let replica = ShardContext { events, ..replica() };
    for mut engine in [engine(&replica), polling(&replica)] {
        engine.list_nodes(&[named("a", K, 5)], 5);
        let list = engine.cache.begin_list();
        engine.observe(Observed::Listed { list, items: vec![Item::Node(named("bb", K, 9))] });
        assert!(engine.cache.get(K).is_some_and(Entry::is_contested));
        let outcome = Ok(Listed { version: ResourceVersion(10), items: 1, bytes: 0 });
        engine.observe(Observed::ListEnded { kind: Resource::Nodes, list, outcome, took: Duration::ZERO });
        assert_eq!((engine.shown(K), overheard.take()), (Some("bb"), vec![]), "the other is gone");
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
    assert_eq!(ticket.asked_for, Some(RecordKey::from("a")));
    let read = named("a", K, 8).summary();
    engine.finish(ticket, Instant::now(), Ok(Done { node: Reading::Present(read), ..NOTHING }));
    assert_eq!(engine.cache.get(K).and_then(Entry::node), Some(read));
    assert!(!engine.cache.get(K).is_some_and(Entry::is_contested));
    // One that became contested meanwhile, and one that is not there.
    let later = Instant::now() + Duration::from_secs(600);
    let ticket = engine.next(Urgency::Tidy, later).expect("work");
    engine.observe(seen(named("bb", K, 9)));
    engine.finish(ticket, Instant::now(), Ok(Done { node: Reading::Absent, ..NOTHING }));
    assert_eq!(engine.shown(K), Some("bb"));
    assert!(engine.queue.contains(K));
}

#[tokio::test]
async fn nothing_is_made_of_an_answer_about_a_node_without_a_name() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.cache.see_record(K, ResourceVersion(3), Stored::Unreadable);
    let (node, versions) = (RecordKey::from(K), engine.cache.get(K).expect("an entry").versions());
    let ticket = Ticket { node, asked_for: None, task: (), earlier_tries: 0, versions, due_since: None };
    let read = Reading::Present(named("a", L, 8).summary());
    engine.finish(ticket, Instant::now(), Ok(Done { node: read, ..NOTHING }));
    assert_eq!(engine.shown(K), None);
}

#[tokio::test]
async fn an_answer_about_a_node_that_nobody_knows_moves_none() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.observe(seen(named("a", K, 5)));
    engine.observe(seen(named("a", L, 6)));
    let entry = engine.cache.get(K).expect("an entry");
    let (node, asked_for, versions) = (RecordKey::from(K), entry.asked_for().cloned(), entry.versions());
    assert_eq!(asked_for, Some(RecordKey::from("a")));
    let ticket = Ticket { node, asked_for, task: (), earlier_tries: 0, versions, due_since: None };
    // The record names another, which was asked for, and has just come back.
    let read = Reading::Present(named("bb", K, 9).summary());
    engine.finish(ticket, Instant::now(), Ok(Done { node: read, ..NOTHING }));
    assert_eq!((engine.shown(K), engine.shown(L)), (None, Some("a")));
    engine.observe(seen(named("bb", K, 9)));
    assert_eq!(engine.shown(K), Some("bb"));
}
