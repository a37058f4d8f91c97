//! The engine by itself: what it makes of what it is told, without a cluster.

use clap::Parser;
use label_storage::decision::Decision;
use label_storage::name::record_name;
use label_storage::node_state::{NodeState, Skip};
use label_storage::store::{Stored, Writes};
use label_storage::{Position, Uid};
use tower::service_fn;

use super::*;
use crate::api_source::Listed;
use crate::args::{Common, Surroundings};
use crate::fresh::{Extent, Needs};
use crate::list_watch::SeenRecord;
use crate::projection::Projection;

mod identity;

#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    common: Common,
}

/// A replica whose API server never answers.
fn replica() -> ShardContext {
    let silence = service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
    });
    let common = Args::parse_from(["daemon"]).common;
    let share = common.share(&Surroundings::default()).expect("one shard");
    ShardContext::new(common, share, kube::Client::new(silence, "default"), "default", Projection::default())
}

/// Wants to work on every Node that is there, and on those that were deleted until that is done.
#[derive(Default)]
struct Everything {
    deleted: Vec<Node>,
    /// Rows that it was told to make nothing of.
    contested: Vec<RecordKey>,
    /// Rows that it was to be unsure about.
    unsure: Vec<RecordKey>,
    /// True if every turn comes too early.
    is_too_early: bool,
    /// At each deletion, true if a write may have been under way.
    unsettled: Vec<bool>,
}

impl Planner for Everything {
    type Task = ();

    fn decide(&mut self, look: Look<'_>) -> Decision {
        if look.entry.is_contested() {
            self.contested.push(look.entry.key().clone());
            return Decision {
                reason: "test",
                when: When::Never,
                state: NodeState::Skipped(Skip::Contested),
            };
        }
        if look.is_unsure {
            self.unsure.push(look.entry.key().clone());
        }
        let is_there = look.entry.node().is_some();
        let state = if is_there { NodeState::Due } else { NodeState::Settled };
        let when = if look.entry.final_labels().is_some() {
            When::Now(Urgency::Urgent)
        } else if is_there {
            When::Now(Urgency::Soon)
        } else {
            When::Never
        };
        Decision { reason: "test", when, state }
    }

    fn deleted(&mut self, cache: &mut Cache, key: &RecordKey, last: Node, writes: Writes) {
        self.unsettled.push(writes.is_in_flight || writes.has_failed);
        cache.final_labels.push(key, last.clone(), Instant::now());
        self.deleted.push(last);
    }

    fn begin(&mut self, look: Look<'_>) -> Result<(), Option<Duration>> {
        if look.entry.is_contested() {
            Err(None)
        } else if self.is_too_early {
            Err(Some(Duration::from_secs(1)))
        } else {
            Ok(())
        }
    }

    fn needs(&self, _: &Entry<'_>) -> Needs {
        Needs::Node(Extent::Listed)
    }

    fn done(&mut self, cache: &mut Cache, key: &RecordKey, (): (), _: &Done) {
        while let Some(last) = cache.final_labels.first(key).cloned() {
            cache.final_labels.stored(key, &last);
        }
        self.deleted.retain(|deleted| deleted.filed_under() != &**key);
    }

    fn listed(&mut self, _: &mut Cache) -> bool {
        true
    }
}

type TestEngine<'a> = Engine<'a, Everything, fn() -> Everything>;

fn new_engine(replica: &ShardContext) -> TestEngine<'_> {
    let (audience, _) = mpsc::channel(64);
    Engine::new(replica, Cache::default(), Everything::default, audience)
}

fn node(uid: &str, version: u64) -> Node {
    let uid = Uid::new(uid).expect("a uid");
    let labels = Default::default();
    Node {
        name: "a".to_owned(),
        uid,
        version: ResourceVersion(version),
        labels,
        marker: None,
        extras: Default::default(),
    }
}

fn seen(node: Node) -> Observed {
    Observed::Changed(Update::Node(node))
}

const NOTHING: Done = Done { outcome: None, node: Reading::None, record: Reading::None };

impl TestEngine<'_> {
    /// A list of this kind, without anything in it.
    fn list_nothing(&mut self, kind: Resource, version: u64) {
        let list = self.cache.begin_list();
        let outcome = Ok(Listed { version: ResourceVersion(version), items: 0, bytes: 0 });
        self.observe(Observed::ListEnded { kind, list, outcome, took: Duration::ZERO });
    }

    fn take(&mut self) -> Option<Ticket<()>> {
        self.next(Urgency::Tidy, Instant::now())
    }
}

/// An engine that has seen that there is nothing.
fn engine(replica: &ShardContext) -> TestEngine<'_> {
    engine_after(replica, 1)
}

/// The same, in lists at this version.
fn engine_after(replica: &ShardContext, version: u64) -> TestEngine<'_> {
    let mut engine = new_engine(replica);
    engine.informers.begin_if_due(&mut engine.cache);
    engine.list_nothing(Resource::Records, version);
    engine.list_nothing(Resource::Nodes, version);
    engine
}

#[tokio::test]
async fn an_absence_does_not_hide_what_was_seen_meanwhile() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.observe(seen(node("u1", 5)));
    let ticket = engine.take().expect("work");
    engine.observe(seen(node("u2", 20)));
    engine.finish(ticket, Instant::now(), Ok(Done { node: Reading::Absent, ..NOTHING }));
    assert_eq!(engine.cache.get("a").and_then(|entry| entry.node()), Some(node("u2", 20).summary()));
}

#[tokio::test]
async fn an_absence_counts_where_nothing_was_seen_meanwhile() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.observe(seen(node("u1", 5)));
    let ticket = engine.take().expect("work");
    engine.finish(ticket, Instant::now(), Ok(Done { node: Reading::Absent, ..NOTHING }));
    assert!(engine.cache.get("a").is_some_and(|entry| entry.is_surely_gone()));
    assert!(engine.take().is_none());
}

#[tokio::test]
async fn what_a_list_lacks_and_no_watch_has_told_of_is_looked_for_soon() {
    for (known, is_hurried) in [(false, false), (true, true)] {
        let replica = replica();
        let mut engine = engine(&replica);
        for kind in [Resource::Nodes, Resource::Records] {
            engine.observe(Observed::Watching(kind, ResourceVersion(1)));
        }
        if known {
            engine.observe(seen(node("u1", 5)));
        }
        engine.informers.begin_now(&mut engine.cache);
        engine.list_nothing(Resource::Records, 9);
        engine.list_nothing(Resource::Nodes, 9);
        let soon = Instant::now() + replica.args.interval * 2;
        assert_eq!(engine.informers.due() < soon, is_hurried);
    }
}

fn undecodable(list: u32, kind: Resource, name: &str) -> Observed {
    let update = Update::Undecodable { kind, name: name.to_owned(), why: "no".to_owned() };
    Observed::Listed { list, items: vec![update] }
}

#[tokio::test]
async fn what_a_list_has_and_can_not_be_decoded_is_not_absent() {
    for (broken, is_missing) in [(Some("a"), false), (Some(""), false), (Some("b"), true), (None, true)] {
        let replica = replica();
        let mut engine = engine(&replica);
        engine.observe(seen(node("u1", 5)));
        // The list that is begun below.
        let list = engine.cache.begin_list() + 1;
        if let Some(name) = broken {
            engine.observe(undecodable(list, Resource::Nodes, name));
        }
        engine.list_nothing(Resource::Nodes, 9);
        let node = engine.cache.get("a").and_then(|entry| entry.node());
        assert_eq!(node.is_none(), is_missing, "{broken:?}");
    }
}

#[tokio::test]
async fn a_list_with_a_record_of_unknown_key_shows_no_absence() {
    for is_clear in [true, false] {
        let replica = replica();
        let mut engine = engine(&replica);
        engine.cache.see_record(None, "a", ResourceVersion(5), Stored::Unreadable);
        let list = engine.cache.begin_list() + 1;
        if !is_clear {
            engine.observe(undecodable(list, Resource::Records, "label-storage-id.x"));
        }
        engine.list_nothing(Resource::Records, 9);
        assert_eq!(engine.cache.count().records, usize::from(!is_clear));
    }
}

#[tokio::test]
async fn what_can_not_be_decoded_is_counted_once() {
    let replica = replica();
    let mut engine = engine(&replica);
    let counted = || replica.metrics.objects_undecodable.get_or_create(&[("resource", "nodes")]).get();
    for expected in [1, 1, 1] {
        let list = engine.cache.begin_list() + 1;
        engine.observe(undecodable(list, Resource::Nodes, "a"));
        engine.list_nothing(Resource::Nodes, 9);
        assert_eq!(counted(), expected);
    }
    // It is decoded for a while.
    engine.list_nothing(Resource::Nodes, 10);
    engine.observe(undecodable(99, Resource::Nodes, "a"));
    assert_eq!(counted(), 2);
}

#[tokio::test]
async fn what_a_watch_has_skipped_is_looked_for_soon_though_it_goes_on() {
    let replica = replica();
    let mut engine = engine(&replica);
    let watching = |engine: &mut TestEngine<'_>, version| {
        for kind in [Resource::Nodes, Resource::Records] {
            engine.observe(Observed::Watching(kind, ResourceVersion(version)));
        }
    };
    watching(&mut engine, 1);
    engine.informers.begin_now(&mut engine.cache);
    engine.list_nothing(Resource::Records, 9);
    engine.list_nothing(Resource::Nodes, 9);
    let soon = Instant::now() + replica.args.interval * 2;
    assert!(engine.informers.due() > soon);
    engine.observe(Observed::Skipped(Resource::Nodes, ResourceVersion(20)));
    watching(&mut engine, 20);
    assert!(engine.informers.due() < soon);
}

#[tokio::test]
async fn what_is_left_to_do_survives_a_list_that_has_nothing_of_it() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.observe(Observed::Deleted(Update::Node(node("u1", 5))));
    engine.list_nothing(Resource::Nodes, 9);
    let ticket = engine.take().expect("still there");
    engine.finish(ticket, Instant::now(), Err(Error::unclear("try", "lost")));
    engine.list_nothing(Resource::Nodes, 10);
    assert!(engine.queue.contains("a"), "it waits, after a failure");
    assert!(engine.take().is_none());
}

#[tokio::test]
async fn a_failure_is_told_of_and_keeps_nobody_awake() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.observe(seen(node("u1", 5)));
    let ticket = engine.take().expect("work");
    engine.finish(ticket, Instant::now(), Err(Error::refused("try", "no")));
    assert!(engine.progress.due(&engine.queue).is_some());
    let now = Instant::now();
    engine.progress.tell_if_due(&engine.queue, now);
    assert_eq!(engine.progress.due(&engine.queue), None);
    engine.states.tell_if_due(&engine.cache, &engine.queue, &engine.informers, now);
    assert!(engine.wake_at(now) > now);
    let told = replica.metrics.node_gauges.total();
    assert_eq!((told.nodes, told.due, told.most_failures), (1, 1, 1));
}

#[tokio::test]
async fn a_list_that_is_older_than_one_before_proves_nothing_unless_it_stays_so() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.informers.begin_now(&mut engine.cache);
    engine.list_nothing(Resource::Nodes, 100);
    engine.observe(seen(node("u1", 50)));
    for _ in 0..4 {
        engine.informers.begin_now(&mut engine.cache);
        engine.list_nothing(Resource::Nodes, 60);
        assert!(engine.cache.get("a").is_some_and(|entry| entry.node().is_some()));
    }
    engine.list_nothing(Resource::Nodes, 60);
    assert!(engine.cache.get("a").is_none(), "another cluster: everything is seen anew");
    assert!(!engine.informers.has_listed(Resource::Records));
}

fn position(version: u64, pending: &[(&str, u64)]) -> Position {
    let pending = pending.iter().map(|(key, version)| (*key, ResourceVersion(*version)));
    Position::new(ResourceVersion(version), pending)
}

fn deletion(name: &str, version: u64) -> Observed {
    Observed::Deleted(Update::Node(Node { name: name.to_owned(), ..node("u1", version) }))
}

/// Whose deletions are to be dealt with.
fn pending<'a>(engine: &'a TestEngine<'_>) -> Vec<(&'a str, u64)> {
    engine.planner.deleted.iter().map(|node| (node.name.as_str(), node.version.0)).collect()
}

#[tokio::test]
async fn a_deletion_that_the_replica_before_has_dealt_with_is_not_dealt_with_again() {
    let mut replica = replica();
    replica.resume = vec![position(20, &[("y", 10)])];
    let mut engine = engine_after(&replica, 30);
    engine.observe(Observed::Watching(Resource::Nodes, ResourceVersion(9)));
    for (name, version) in [("y", 10), ("x", 15), ("y", 16), ("x", 21)] {
        engine.observe(deletion(name, version));
    }
    assert_eq!(pending(&engine), [("y", 10), ("y", 16), ("x", 21)]);
    assert_eq!(replica.position.borrow().clone(), Some(position(21, &[("y", 10), ("x", 21)])));
}

#[tokio::test]
async fn what_is_still_to_be_heard_of_again_stays_pending() {
    let mut replica = replica();
    replica.resume = vec![position(20, &[("y", 10), ("z", 12)])];
    let mut engine = engine_after(&replica, 30);
    engine.observe(Observed::Watching(Resource::Nodes, ResourceVersion(9)));
    assert_eq!(replica.position.borrow().clone(), Some(position(20, &[("y", 10), ("z", 12)])));
    engine.observe(deletion("y", 10));
    let ticket = engine.take().expect("work");
    engine.finish(ticket, Instant::now(), Ok(NOTHING));
    assert_eq!(replica.position.borrow().clone(), Some(position(20, &[("y", 10), ("z", 12)])));
    engine.observe(Observed::At(Resource::Nodes, ResourceVersion(20)));
    assert_eq!(replica.position.borrow().clone(), Some(position(20, &[])), "all of it was heard");
}

#[tokio::test]
async fn what_is_stored_is_not_pending_any_more() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.observe(Observed::Watching(Resource::Nodes, ResourceVersion(1)));
    engine.observe(deletion("a", 5));
    assert_eq!(replica.position.borrow().clone(), Some(position(5, &[("a", 5)])));
    let ticket = engine.take().expect("work");
    engine.finish(ticket, Instant::now(), Ok(NOTHING));
    assert_eq!(replica.position.borrow().clone(), Some(position(5, &[])));
}

#[tokio::test]
async fn a_pending_deletion_that_is_forgotten_does_not_cost_the_later_ones() {
    let mut replica = replica();
    replica.resume = vec![position(20, &[("y", 10)])];
    let mut engine = engine_after(&replica, 30);
    engine.observe(Observed::Expired(Resource::Nodes));
    assert_eq!(engine.informers.seen(), ResourceVersion(20));
    assert!(engine.informers.heard().is_some(), "from where the replica before was");
    engine.observe(deletion("x", 25));
    assert_eq!(pending(&engine), [("x", 25)]);
    engine.observe(Observed::Expired(Resource::Nodes));
    assert!(engine.informers.heard().is_none(), "that is forgotten, too");
}

#[tokio::test]
async fn final_labels_of_another_history_are_still_stored() {
    let replica = replica();
    let mut engine = engine_after(&replica, 100);
    engine.observe(deletion("a", 105));
    for _ in 0..5 {
        engine.informers.begin_now(&mut engine.cache);
        engine.list_nothing(Resource::Nodes, 60);
    }
    assert!(!engine.informers.has_listed(Resource::Records), "another cluster");
    assert_eq!(engine.take().map(|ticket| ticket.key.to_string()).as_deref(), Some("a"));
}

#[tokio::test]
async fn a_position_that_the_cluster_has_not_come_to_is_dropped() {
    for (resume, from) in [
        (vec![position(20, &[])], 20),
        (vec![position(1_000_000, &[])], 30),
        (vec![position(u64::MAX, &[("y", 10)])], 30),
        (vec![position(1_000_000, &[]), position(25, &[("y", 22)]), position(20, &[])], 21),
    ] {
        let mut replica = replica();
        replica.resume = resume.clone();
        let mut engine = new_engine(&replica);
        // The API server answers such a watch with success, and then with silence.
        engine.observe(Observed::Watching(Resource::Nodes, engine.informers.seen()));
        engine.informers.begin_if_due(&mut engine.cache);
        engine.list_nothing(Resource::Records, 30);
        engine.list_nothing(Resource::Nodes, 30);
        assert_eq!(engine.informers.seen(), ResourceVersion(from), "{resume:?}");
        // Nothing is taken for dealt with because of it.
        engine.observe(deletion("x", 31));
        assert_eq!(pending(&engine), [("x", 31)]);
        engine.observe(Observed::Watching(Resource::Nodes, ResourceVersion(32)));
        assert_eq!(
            replica.position.borrow().clone().map(|position| position.version),
            Some(ResourceVersion(32))
        );
    }
}

#[tokio::test]
async fn lists_of_records_do_not_hide_that_those_of_nodes_have_gone_back() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.informers.begin_now(&mut engine.cache);
    engine.list_nothing(Resource::Records, 100);
    engine.list_nothing(Resource::Nodes, 100);
    engine.observe(seen(node("u1", 50)));
    for _ in 0..5 {
        assert!(engine.cache.get("a").is_some());
        engine.informers.begin_now(&mut engine.cache);
        engine.list_nothing(Resource::Records, 101);
        engine.list_nothing(Resource::Nodes, 60);
    }
    assert!(engine.cache.get("a").is_none(), "another cluster: everything is seen anew");
}

/// An engine that has seen this Node at 95 and its record at 96.
fn engine_that_has_seen<'a>(replica: &'a ShardContext, last: &str) -> TestEngine<'a> {
    let mut engine = engine_after(replica, 90);
    engine.observe(seen(node(last, 95)));
    engine.observe(Observed::Changed(record(96)));
    engine
}

fn record(version: u64) -> Update {
    let (name, filed_under, node) = (record_name("a"), "a".to_owned(), "a".to_owned());
    let (version, stored) = (ResourceVersion(version), Stored::Unreadable);
    Update::Record(SeenRecord { name, filed_under, node, version, stored, complaint: None })
}

impl TestEngine<'_> {
    /// A list of this kind, at this version, with this in it. `meanwhile` is observed before it ends.
    fn list_one(&mut self, kind: Resource, item: Update, version: u64, meanwhile: Option<Observed>) {
        self.informers.begin_now(&mut self.cache);
        let list = self.cache.begin_list();
        self.observe(Observed::Listed { list, items: vec![item] });
        meanwhile.into_iter().for_each(|observed| self.observe(observed));
        let outcome = Ok(Listed { version: ResourceVersion(version), items: 1, bytes: 0 });
        self.observe(Observed::ListEnded { kind, list, outcome, took: Duration::ZERO });
    }
}

#[tokio::test]
async fn an_object_that_is_older_in_a_later_list_shows_another_history() {
    for (kind, item) in [
        (Resource::Nodes, Update::Node(node("u1", 80))),
        (Resource::Nodes, Update::Node(node("u0", 80))),
        (Resource::Records, record(80)),
    ] {
        let replica = replica();
        let mut engine = engine_that_has_seen(&replica, "u1");
        engine.list_one(kind, item, 1_000, None);
        assert!(engine.cache.get("a").is_none(), "{kind:?}: everything is seen anew");
        assert!(!engine.informers.has_listed(Resource::Records));
    }
    let replica = replica();
    let mut engine = engine_that_has_seen(&replica, "u1");
    engine.observe(deletion("a", 97));
    engine.list_one(Resource::Nodes, Update::Node(node("u1", 95)), 1_000, None);
    assert!(!engine.informers.has_listed(Resource::Records), "it was deleted in the other history");
}

#[tokio::test]
async fn a_list_that_was_overtaken_shows_no_other_history() {
    let replica = replica();
    let mut engine = engine_that_has_seen(&replica, "u1");
    let same = || Update::Node(node("u1", 95));
    engine.list_one(Resource::Nodes, same(), 95, None);
    // The watch or an answer may be ahead of a list, and of what a list has sent.
    engine.observe(seen(node("u1", 101)));
    engine.list_one(Resource::Nodes, same(), 100, None);
    engine.list_one(Resource::Nodes, Update::Node(node("u1", 101)), 110, Some(seen(node("u1", 109))));
    assert_eq!(engine.cache.get("a").and_then(|entry| entry.node()), Some(node("u1", 109).summary()));
    // What a list had that has failed does not count against the next.
    engine.informers.begin_now(&mut engine.cache);
    let list = engine.cache.begin_list();
    engine.observe(Observed::Listed { list, items: vec![same()] });
    let (kind, outcome) = (Resource::Nodes, Err(Error::unclear("list nodes", "lost")));
    engine.observe(Observed::ListEnded { kind, list, outcome, took: Duration::ZERO });
    engine.list_one(Resource::Nodes, Update::Node(node("u1", 109)), 120, None);
    assert!(engine.informers.has_listed(Resource::Records));
}

#[tokio::test]
async fn a_turn_that_comes_too_early_is_no_success() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.observe(seen(node("u1", 5)));
    let ticket = engine.take().expect("work");
    engine.finish(ticket, Instant::now(), Err(Error::unclear("try", "lost")));
    engine.planner.is_too_early = true;
    let later = Instant::now() + Duration::from_secs(60);
    assert!(engine.next(Urgency::Tidy, later).is_none());
    assert_eq!((engine.queue.failures("a"), engine.queue.writes("a").has_failed), (1, true));
    engine.planner.is_too_early = false;
    let ticket = engine.next(Urgency::Tidy, later + Duration::from_secs(60)).expect("its turn");
    assert_eq!(ticket.earlier_tries, 1);
}

#[tokio::test]
async fn refused_answers_count_for_the_next_attempts_until_one_succeeds() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.observe(seen(node("u1", 5)));
    let mut now = Instant::now();
    for (is_accepted, outcome) in [
        (false, Err(Error::unclear("try", "lost"))),
        (false, Err(Error::unclear("try", "lost"))),
        (true, Ok(NOTHING)),
        (false, Ok(NOTHING)),
    ] {
        now += Duration::from_secs(60);
        let ticket = engine.next(Urgency::Tidy, now).expect("work");
        assert_eq!(ticket.reads.known.node.check("get node", None).is_ok(), is_accepted);
        engine.finish(ticket, now, outcome);
    }
}

#[tokio::test]
async fn a_deletion_is_told_with_whether_a_write_may_be_under_way() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.observe(deletion("other", 4));
    engine.observe(seen(node("u1", 5)));
    let ticket = engine.take().expect("the deletion of the other");
    engine.finish(ticket, Instant::now(), Ok(NOTHING));
    let ticket = engine.take().expect("work");
    engine.observe(deletion("a", 6));
    engine.finish(ticket, Instant::now(), Err(Error::unclear("try", "lost")));
    engine.observe(deletion("a", 7));
    assert_eq!(engine.planner.unsettled, [false, true, true]);
}

#[tokio::test]
async fn a_watch_resumes_once_the_records_are_listed() {
    let mut replica = replica();
    replica.resume = vec![position(20, &[])];
    let mut engine = new_engine(&replica);
    engine.informers.begin_if_due(&mut engine.cache);
    assert!(engine.informers.heard().is_none(), "each repeated deletion would count as not stored");
    engine.list_nothing(Resource::Records, 30);
    assert_eq!(engine.informers.heard(), Some(ResourceVersion(20)));
}

#[tokio::test]
async fn a_watch_does_not_wait_for_records_until_its_history_is_lost() {
    let mut replica = replica();
    replica.resume = vec![position(20, &[])];
    let mut engine = new_engine(&replica);
    engine.informers.begin_if_due(&mut engine.cache);
    assert!(engine.informers.due() <= Instant::now() + Duration::from_secs(30));
    engine.informers.resume_now(&mut engine.cache);
    assert_eq!(engine.informers.heard(), Some(ResourceVersion(20)));
}
