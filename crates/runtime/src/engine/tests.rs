//! The engine by itself: what it makes of what it is told, without a cluster.

use clap::Parser;
use label_storage::Uid;
use tower::service_fn;

use super::*;
use crate::args::{Common, Surroundings};
use crate::shutdown::Shutdown;
use crate::source::Listed;

mod identity;

#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    common: Common,
}

/// A replica whose API server never answers.
fn replica() -> Replica {
    let silence = service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
    });
    let common = Args::parse_from(["daemon"]).common;
    let share = common.share(&Surroundings::default()).expect("one shard");
    Replica::new(common, share, kube::Client::new(silence, "default"), "default", Shutdown::default())
}

/// Wants to work on every Node that is there, and on those that were deleted until that is done.
#[derive(Default)]
struct Everything {
    deleted: Vec<Node>,
    /// Rows that it was told to make nothing of.
    contested: Vec<Name>,
    /// Rows that it was to be unsure about.
    unsure: Vec<Name>,
}

impl Planner for Everything {
    type Task = ();

    fn verdict(&mut self, look: Look<'_>) -> Verdict {
        assert!(!look.row.is_contested());
        if look.is_unsure {
            self.unsure.push(Name::clone(look.row.name()));
        }
        if self.deleted.iter().any(|node| node.filed_under() == &**look.row.name()) {
            Verdict::Now(Urgency::Urgent)
        } else if look.row.node().is_some() {
            Verdict::Now(Urgency::Soon)
        } else {
            Verdict::Nothing
        }
    }

    fn standing(&self, row: &Row) -> Standing {
        assert!(!row.is_contested());
        if row.node().is_some() { Standing::Due } else { Standing::Settled }
    }

    fn deleted(&mut self, last: Node, _: &Row, _: bool) {
        self.deleted.push(last);
    }

    fn contested(&mut self, row: &Row) -> Option<Duration> {
        self.contested.push(Name::clone(row.name()));
        None
    }

    fn task(&mut self, look: Look<'_>) -> Result<(), Duration> {
        assert!(!look.row.is_contested());
        Ok(())
    }

    fn done(&mut self, node: &Name, (): (), done: Option<&Done>) {
        if done.is_some() {
            self.deleted.retain(|deleted| deleted.filed_under() != &**node);
        }
    }

    fn owes_since(&self) -> Option<ResourceVersion> {
        self.deleted.iter().map(|node| node.version).min()
    }

    fn listed(&mut self, _: &mut Table) -> Doubts {
        Doubts::default()
    }

    fn start_over(&mut self) {}
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
    Observed::Changed(Item::Node(node))
}

const NOTHING: Done = Done { outcome: None, node: Reading::None, record: Reading::None };

impl<P: Planner> Engine<'_, P> {
    /// A list of this kind, without anything in it.
    fn list_nothing(&mut self, kind: Kind, version: u64) {
        let list = self.table.begin_list();
        let outcome = Ok(Listed { version: ResourceVersion(version), items: 0, bytes: 0 });
        self.observe(Observed::ListEnded { kind, list, outcome, took: Duration::ZERO });
    }

    fn take(&mut self) -> Option<Ticket<P::Task>> {
        self.next(Urgency::Tidy, Instant::now())
    }
}

/// An engine that has seen that there is nothing.
fn engine(replica: &Replica) -> Engine<'_, Everything> {
    let (audience, _) = mpsc::channel(64);
    let mut engine = Engine::new(replica, Everything::default(), Sweeps::new(replica, audience, false));
    engine.sweeps.begin_if_due(&mut engine.table);
    engine.list_nothing(Kind::Records, 1);
    engine.list_nothing(Kind::Nodes, 1);
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
    assert_eq!(engine.table.get("a").and_then(Row::node), Some(node("u2", 20).summary()));
}

#[tokio::test]
async fn an_absence_counts_where_nothing_was_seen_meanwhile() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.observe(seen(node("u1", 5)));
    let ticket = engine.take().expect("work");
    engine.finish(ticket, Instant::now(), Ok(Done { node: Reading::Absent, ..NOTHING }));
    assert!(engine.table.get("a").is_some_and(Row::is_surely_gone));
    assert!(engine.take().is_none());
}

#[tokio::test]
async fn what_a_list_lacks_and_no_watch_has_told_of_is_looked_for_soon() {
    for (known, is_hurried) in [(false, false), (true, true)] {
        let replica = replica();
        let mut engine = engine(&replica);
        for kind in [Kind::Nodes, Kind::Records] {
            engine.observe(Observed::Watching(kind, ResourceVersion(1)));
        }
        if known {
            engine.observe(seen(node("u1", 5)));
        }
        engine.sweeps.begin_now(&mut engine.table);
        engine.list_nothing(Kind::Records, 9);
        engine.list_nothing(Kind::Nodes, 9);
        let soon = Instant::now() + replica.args.interval * 2;
        assert_eq!(engine.sweeps.due() < soon, is_hurried);
    }
}

#[tokio::test]
async fn what_a_watch_has_skipped_is_looked_for_soon_though_it_goes_on() {
    let replica = replica();
    let mut engine = engine(&replica);
    let watching = |engine: &mut Engine<'_, _>, version| {
        for kind in [Kind::Nodes, Kind::Records] {
            engine.observe(Observed::Watching(kind, ResourceVersion(version)));
        }
    };
    watching(&mut engine, 1);
    engine.sweeps.begin_now(&mut engine.table);
    engine.list_nothing(Kind::Records, 9);
    engine.list_nothing(Kind::Nodes, 9);
    let soon = Instant::now() + replica.args.interval * 2;
    assert!(engine.sweeps.due() > soon);
    engine.observe(Observed::Skipped(Kind::Nodes));
    watching(&mut engine, 20);
    assert!(engine.sweeps.due() < soon);
}

#[tokio::test]
async fn what_is_left_to_do_survives_a_list_that_has_nothing_of_it() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.observe(Observed::Deleted(Item::Node(node("u1", 5))));
    engine.list_nothing(Kind::Nodes, 9);
    let ticket = engine.take().expect("still there");
    engine.finish(ticket, Instant::now(), Err(Error::unclear("try", "lost")));
    engine.list_nothing(Kind::Nodes, 10);
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
    assert!(engine.tally.due().is_some());
    let now = Instant::now();
    engine.tally.tell_if_due(&engine.queue, now);
    assert_eq!(engine.tally.due(), None);
    engine.standings.tell_if_due(&engine.table, &engine.queue, &engine.sweeps, now);
    assert!(engine.wake_at(now) > now);
    let told = replica.metrics.census.total();
    assert_eq!((told.nodes, told.due, told.most_failures), (1, 1, 1));
}

#[tokio::test]
async fn a_list_that_is_older_than_one_before_proves_nothing_unless_it_stays_so() {
    let replica = replica();
    let mut engine = engine(&replica);
    engine.sweeps.begin_now(&mut engine.table);
    engine.list_nothing(Kind::Nodes, 100);
    engine.observe(seen(node("u1", 50)));
    for _ in 0..4 {
        engine.sweeps.begin_now(&mut engine.table);
        engine.list_nothing(Kind::Nodes, 60);
        assert!(engine.table.get("a").is_some_and(|row| row.node().is_some()));
    }
    engine.list_nothing(Kind::Nodes, 60);
    assert!(engine.table.get("a").is_none(), "another cluster: everything is seen anew");
    assert!(!engine.sweeps.has_listed_records());
}
