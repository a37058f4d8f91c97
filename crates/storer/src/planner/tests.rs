use jiff::Timestamp;
use label_storage::decision::Urgency;
use label_storage::{Record, ResourceVersion, Uid};
use label_storage_runtime::cache::Reading;

use super::*;

const TIDY: Duration = Duration::from_secs(2);
const UNRESTORED: Duration = Duration::from_secs(30);

/// One Node, its record, and a planner.
struct World {
    cache: Cache,
    planner: StorePlanner,
    heard: Option<ResourceVersion>,
}

fn node(uid: &str, version: u64, pool: &str) -> Node {
    let labels = [("pool".to_owned(), pool.to_owned())].into();
    let uid = Uid::new(uid).expect("a uid");
    Node {
        name: "a".to_owned(),
        uid,
        version: ResourceVersion(version),
        labels,
        marker: None,
        extras: Default::default(),
    }
}

impl World {
    /// The Node is there, and its record says the same.
    fn new() -> Self {
        let rules = Rules { retention: Duration::from_secs(3600), ..Rules::default() };
        let (clock, metrics) = Default::default();
        let planner = StorePlanner::new(Arc::new(rules), false, clock, metrics);
        let mut world = Self { cache: Cache::default(), planner, heard: None };
        world.cache.see_node(None, "a", node("u1", 5, "gold").summary());
        world.store(&node("u1", 5, "gold"), 6);
        world
    }

    fn store(&mut self, node: &Node, version: u64) {
        let record = Record::of(node, Timestamp::now()).summary();
        self.cache.see_record(None, "a", ResourceVersion(version), Stored::Record(record));
    }

    fn when(&mut self, is_event: bool) -> When {
        let entry = &self.cache.get("a").expect("an entry");
        self.planner.decide(Look { entry, view: None, is_event, is_unsure: false, heard: self.heard }).when
    }

    fn delete(&mut self, last: Node, is_unsettled: bool) -> When {
        self.cache.lose_node("a", last.version);
        let writes = Writes { is_in_flight: is_unsettled, ..Writes::default() };
        self.planner.deleted(&mut self.cache, &RecordKey::from("a"), last, writes);
        self.when(true)
    }

    fn task(&mut self) -> Result<StoreTask, Option<Duration>> {
        let entry = &self.cache.get("a").expect("an entry");
        let look = Look { entry, view: None, is_event: false, is_unsure: false, heard: self.heard };
        self.planner.begin(look)
    }

    /// The turn of the Node comes, and goes like this. Returns the last labels that were to be stored.
    fn work(&mut self, succeeds: bool) -> Option<Node> {
        let (name, task) = (RecordKey::from("a"), self.task().expect("its turn"));
        let final_labels = task.final_labels.clone();
        let done = Done { outcome: Some("stored"), node: Reading::None, record: Reading::None };
        if succeeds {
            self.planner.done(&mut self.cache, &name, task, &done);
        }
        final_labels
    }
}

#[test]
fn what_is_stored_costs_nothing_and_what_has_changed_comes_first() {
    let mut world = World::new();
    assert_eq!(world.when(true), When::Never);
    world.cache.see_node(None, "a", node("u1", 7, "silver").summary());
    assert_eq!(world.when(true), When::Now(Urgency::Soon));
    assert_eq!(world.when(false), When::Now(Urgency::Routine));
}

#[test]
fn last_labels_are_kept_until_they_are_stored() {
    let mut world = World::new();
    let last = node("u1", 8, "silver");
    assert_eq!(world.delete(last.clone(), false), When::Now(Urgency::Urgent));
    assert_eq!(world.work(false), Some(last.clone()));
    assert_eq!(world.when(true), When::Now(Urgency::Urgent), "after a failure, too");
    assert_eq!(world.work(true), Some(last.clone()));
    world.store(&last, 9);
    assert_eq!(world.when(true), When::After(TIDY, Urgency::Departed));
    assert_eq!(world.work(true), None);
}

#[test]
fn a_record_is_not_given_to_another_incarnation_before_the_watch_has_come_to_it() {
    let mut world = World::new();
    let restored = Node { marker: Some("u2/1".to_owned()), ..node("u2", 9, "bronze") };
    world.cache.see_node(None, "a", restored.summary());
    world.heard = Some(ResourceVersion(6));
    assert_eq!(world.task().err(), Some(Some(LOOK_AGAIN)));
    // There it is: what the one before it said last.
    let last = node("u1", 8, "silver");
    assert_eq!(world.delete(last.clone(), false), When::Now(Urgency::Urgent));
    assert_eq!(world.work(true), Some(last));
    assert_eq!(world.task().err(), Some(Some(LOOK_AGAIN)));
    world.heard = Some(ResourceVersion(9));
    assert!(world.task().is_ok());
    // Nobody waits for what is not watched, nor with what is the record's own.
    world.heard = None;
    assert!(world.task().is_ok());
    let mut world = World::new();
    world.cache.see_node(None, "a", node("u1", 9, "silver").summary());
    world.heard = Some(ResourceVersion(6));
    assert!(world.task().is_ok());
}

#[test]
fn labels_that_are_stored_for_certain_are_not_kept() {
    let mut world = World::new();
    assert_eq!(world.delete(node("u1", 8, "gold"), false), When::After(TIDY, Urgency::Departed));
    let mut world = World::new();
    let when = world.delete(node("u1", 8, "gold"), true);
    assert_eq!(when, When::Now(Urgency::Urgent), "a write under way may change that");
    let mut world = World::new();
    world.delete(node("u1", 4, "silver"), false);
    assert_eq!(world.work(true), None, "the record is newer");
}

#[test]
fn labels_that_a_write_without_an_answer_may_change_are_kept() {
    let mut world = World::new();
    world.planner.metrics.in_doubt.send_without_answer(&RecordKey::from("a"), Some(ResourceVersion(6)));
    assert_eq!(world.delete(node("u1", 8, "gold"), false), When::Now(Urgency::Urgent));
}

#[test]
fn what_had_to_be_given_up_is_counted() {
    let mut world = World::new();
    let mut deletions = 0;
    while world.planner.metrics.final_labels_given_up.get() < 3 {
        deletions += 1;
        let mut last = node(&format!("u{deletions}"), 10 + deletions, "silver");
        last.name = format!("n{deletions}");
        world.cache.lose_node(last.name.as_str(), last.version);
        let key = RecordKey::from(last.name.as_str());
        world.planner.deleted(&mut world.cache, &key, last, Writes::default());
    }
    assert_eq!(world.cache.final_labels.len() as u64, deletions - 3);
    assert!(!world.cache.final_labels.contains("n1") && world.cache.final_labels.contains("n4"));
}

#[test]
fn several_deletions_are_stored_in_their_order() {
    let mut world = World::new();
    for version in 10..20 {
        world.delete(node(&format!("u{version}"), version, "silver"), false);
    }
    let versions: Vec<_> = std::iter::from_fn(|| world.work(true)).map(|node| node.version.0).collect();
    assert_eq!(versions, (10..20).collect::<Vec<_>>());
}

#[test]
fn last_labels_that_were_pushed_out_while_they_were_stored_take_no_others_along() {
    let mut world = World::new();
    world.delete(node("u10", 10, "silver"), false);
    let (name, task) = (RecordKey::from("a"), world.task().expect("its turn"));
    for version in 11..15 {
        world.delete(node(&format!("u{version}"), version, "silver"), false);
    }
    let done = Done { outcome: Some("stored"), node: Reading::None, record: Reading::None };
    world.planner.done(&mut world.cache, &name, task, &done);
    let versions: Vec<_> = std::iter::from_fn(|| world.work(true)).map(|node| node.version.0).collect();
    assert_eq!(versions, [11, 12, 13, 14]);
}

#[test]
fn a_lost_label_is_added_once_an_hour() {
    let mut world = World::new();
    let mut record = Record::of(&node("u1", 5, "gold"), Timestamp::now());
    record.more.is_unlabelled = true;
    let unlabelled = Stored::Record(record.summary());
    world.cache.see_record(None, "a", ResourceVersion(7), unlabelled);
    assert_eq!(world.when(true), When::After(TIDY, Urgency::Tidy));
    let mut departed = record.with_departed_at(Some(Timestamp::now()));
    departed.node_version = Some(ResourceVersion(9));
    world.cache.see_record(None, "a", ResourceVersion(8), Stored::Record(departed.summary()));
    world.cache.lose_node("a", ResourceVersion(9));
    assert_eq!(world.when(true), When::After(TIDY, Urgency::Tidy), "of an absent Node, too");
    // The cluster removes it again.
    let (key, task) = (RecordKey::from("a"), world.task().expect("its turn"));
    assert!(task.may_add_label);
    let done = Done { outcome: Some("stamped"), node: Reading::None, record: Reading::None };
    world.planner.done(&mut world.cache, &key, task, &done);
    assert_eq!(world.when(true), When::Never);
    assert!(!world.task().expect("its turn").may_add_label);
    let before = Instant::now() - LABEL_AGAIN;
    world.planner.labelled.insert(key, before);
    world.planner.listed(&mut world.cache);
    assert_eq!(world.when(true), When::After(TIDY, Urgency::Tidy), "an hour later");
}

#[test]
fn a_node_that_is_back_is_not_hurried() {
    let mut world = World::new();
    let gone = Record::of(&node("u1", 5, "gold"), Timestamp::now()).with_departed_at(Some(Timestamp::now()));
    world.cache.see_record(None, "a", ResourceVersion(7), Stored::Record(gone.summary()));
    world.cache.see_node(None, "a", node("u2", 9, "gold").summary());
    assert_eq!(world.when(true), When::After(UNRESTORED, Urgency::Tidy));
    assert!(!world.cache.get("a").is_some_and(|entry| entry.is_surely_gone()));
}

#[test]
fn a_node_that_a_list_lacks_is_left_alone_until_that_is_certain() {
    let mut world = World::new();
    let list = world.cache.begin_list();
    world.cache.end_list_of_nodes(list, ResourceVersion(50));
    assert_eq!(world.when(false), When::Never);
    assert!(world.planner.listed(&mut world.cache), "one of one is believed");
    assert_eq!(world.when(false), When::After(TIDY, Urgency::Departed));
}
