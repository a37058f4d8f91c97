//! The storer, where a server is slow, behind or does not answer.

use label_storage::{Labels, Node, ResourceVersion, Uid};
use label_storage_runtime::cache::{Cache, KnownVersion, STALE};
use label_storage_runtime::fixtures::{self, Calls, Reply};
use label_storage_runtime::reconciler::{Look, Planner};
use serde_json::{Value, json};

use super::*;
use crate::planner::StorePlanner;

fn node(uid: &str, version: u64, pool: Option<&str>) -> Node {
    let labels: Labels = pool.map(|pool| ("pool".to_owned(), pool.to_owned())).into_iter().collect();
    Node::new("a".to_owned(), uid.to_owned(), &version.to_string(), labels, None).expect("a node")
}

/// A storer, a server that has this Node and no record, and a task for the Node as it was seen before.
struct World {
    apply: Apply,
    calls: Calls,
    task: StoreTask,
    reads: FreshReads,
}

impl World {
    /// The server takes this long to answer for the Node, and answers creates with this.
    fn new(seen: &Node, live: &Node, takes: Duration, created: u16) -> Self {
        let live = live.clone();
        let (replica, calls) = fixtures::replica(move |call: String| {
            let live = live.clone();
            async move {
                if call.starts_with("GET /api/v1/nodes/") {
                    tokio::time::advance(takes).await;
                    return Reply::Node(Box::new(live));
                }
                match call.split(' ').next() {
                    Some("POST") if created == 201 => {
                        let meta = json!({"name": "label-storage.a", "uid": "c1", "resourceVersion": "30"});
                        Reply::Json(201, json!({"metadata": meta}))
                    }
                    Some("POST") => Reply::Refusal(created, "trouble"),
                    _ => Reply::Refusal(404, "not found"),
                }
            }
        })
        .expect("a replica");
        let apply = Apply { replica, metrics: Arc::default() };
        let mut cache = Cache::default();
        cache.see_node(None, "a", seen.summary());
        let entry = &cache.get("a").expect("an entry");
        let metrics = Arc::clone(&apply.metrics);
        let mut planner = StorePlanner::new(Arc::default(), false, Arc::default(), metrics);
        let look = Look { entry, view: None, is_event: true, is_unsure: false, heard: None };
        let task = planner.begin(look).expect("its turn");
        Self { apply, calls, task, reads: FreshReads::by_name(entry.known()) }
    }

    async fn attempt(&self, tries: u32) -> Result<Done, Error> {
        self.apply.attempt(&RecordKey::from("a"), &self.task, &self.reads, tries).await
    }

    fn writes(&self) -> usize {
        self.calls.count("POST") + self.calls.count("PUT") + self.calls.count("DELETE")
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_has_become_too_old_is_not_carried_out() {
    let gold = node("u1", 5, Some("gold"));
    let world = World::new(&gold, &gold, PLAN_LIFETIME + Duration::from_secs(1), 201);
    let error = world.attempt(0).await.expect_err("too late");
    assert!(error.to_string().contains("too old"), "{error}");
    assert_eq!(world.writes(), 0);
    let world = World::new(&gold, &gold, PLAN_LIFETIME / 2, 201);
    world.attempt(0).await.expect("in time");
    assert_eq!(world.writes(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_re_created_meanwhile_is_decided_upon_again() {
    let (seen, live) = (node("u1", 5, Some("gold")), node("u2", 9, Some("silver")));
    let world = World::new(&seen, &live, Duration::ZERO, 201);
    let done = world.attempt(0).await.expect("nothing is wrong");
    assert_eq!((done.outcome, done.node), (None, Reading::Present(live.summary())));
    assert_eq!(world.writes(), 0, "the final labels of the one before may be on their way");
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_is_followed_by_another() {
    for (code, is_in_doubt) in
        [(500, true), (504, true), (503, true), (403, false), (409, false), (429, false)]
    {
        let gold = node("u1", 5, Some("gold"));
        let world = World::new(&gold, &gold, Duration::ZERO, code);
        world.attempt(0).await.expect_err("refused");
        assert_eq!(world.apply.metrics.in_doubt.contains("a"), is_in_doubt, "{code}");
        // The label is removed meanwhile.
        let bare = World::new(&gold, &node("u1", 7, None), Duration::ZERO, 201);
        let apply = Apply { metrics: Arc::clone(&world.apply.metrics), ..bare.apply };
        let bare = World { apply, ..bare };
        bare.attempt(1).await.expect("an answer");
        assert_eq!(
            (bare.writes() == 1, bare.apply.metrics.in_doubt.contains("a")),
            (is_in_doubt, false),
            "{code}"
        );
    }
}

fn saw<'a>(live: Option<&'a Node>, last: &'a Node, found: Option<&Found>) -> Option<Sighting<&'a Node>> {
    store::sighting(live, Some(last), Found::stored(found).map(Record::summary), false)
}

/// A storer that is to store these final labels. The server still has the Node, and no record.
fn deleted(last: &Node, live: &Node, known: ResourceVersion) -> World {
    let mut world = World::new(last, live, Duration::ZERO, 201);
    world.task = StoreTask { final_labels: Some(last.clone()), uid: None, ..world.task };
    world.reads.known.node = KnownVersion::new(known, false);
    world
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_has_a_deleted_node_is_stale_unless_it_stays_so() {
    let (last, before) = (node("u1", 9, Some("gold")), node("u1", 5, Some("silver")));
    // If etcd was restored from a backup, the cache has nothing to compare the answer with.
    for known in [last.version, ResourceVersion(0)] {
        let world = deleted(&last, &before, known);
        for _ in 0..30 {
            world.attempt(0).await.expect_err("stale");
        }
        assert_eq!(world.writes(), 0, "{known}");
        tokio::time::advance(STALE).await;
        let done = world.attempt(0).await.expect("it stays so");
        assert_eq!((done.node, world.writes()), (Reading::Present(before.summary()), 0), "{known}");
    }
    let next = node("u2", 12, None);
    assert!(matches!(saw(Some(&next), &last, None), Some(Sighting::Deleted(it)) if *it == last));
    assert!(matches!(saw(None, &last, None), Some(Sighting::Deleted(it)) if *it == last));
}

#[test]
fn final_labels_that_are_history_are_not_stored() {
    let (last, mut next) = (node("u1", 9, Some("gold")), node("u2", 12, None));
    next.marker = Some("u2/3@c1".to_owned());
    assert!(matches!(saw(Some(&next), &last, None), Some(Sighting::Live(live)) if *live == next));
    // Where there is a record, versions decide.
    let mut record = Record::of(&node("u0", 3, Some("gold")), jiff::Timestamp::UNIX_EPOCH);
    record.config_map = Uid::new("c1");
    record.node_version = Some(ResourceVersion(3));
    let mut config_map = ConfigMap::default();
    record.encode_into(&mut config_map).expect("it fits");
    let found = Found::from(config_map);
    assert!(matches!(saw(Some(&next), &last, Some(&found)), Some(Sighting::Deleted(_))));
}

#[test]
fn a_record_that_is_being_deleted_is_not_written_to() {
    let meta = json!({"uid": "c1", "resourceVersion": "7"});
    let found = |meta: Value| {
        let config_map: ConfigMap = serde_json::from_value(json!({"metadata": meta})).expect("a ConfigMap");
        Some(Found::from(config_map))
    };
    assert!(guarded(found(meta.clone())).is_ok());
    let mut deleted = meta;
    deleted["deletionTimestamp"] = json!("2026-11-17T10:00:00Z");
    let error = guarded(found(deleted)).expect_err("it vanishes");
    assert!(error.to_string().contains("finalizers"), "{error}");
    assert!(guarded(found(json!({"uid": "c1"}))).is_err() && guarded(None).is_err(), "nothing guards it");
}
