//! The restorer, where a server is slow or a Node changes all the time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use label_storage::node::Machine;
use label_storage::record::WithheldValue;
use label_storage::rules::OtherMachine;
use label_storage::{Labels, Record, ResourceVersion, Uid};
use label_storage_runtime::cache::Cache;
use label_storage_runtime::fixtures::{self, Calls, Reply};
use label_storage_runtime::reconciler::{Look, Planner};
use serde_json::{Value, json};

use super::*;
use crate::planner::RestorePlanner;

fn node(uid: &str, version: u64, pool: Option<&str>) -> Node {
    let labels: Labels = pool.map(|pool| ("pool".to_owned(), pool.to_owned())).into_iter().collect();
    Node::new("a".to_owned(), uid.to_owned(), &version.to_string(), labels, None).expect("a node")
}

const STRATEGIC: &str = "PATCH /api/v1/nodes/a application/strategic-merge-patch+json";
const TESTED: &str = "PATCH /api/v1/nodes/a application/json-patch+json";

fn metadata(node: &Node) -> Value {
    json!({"name": node.name, "uid": node.uid.as_str(), "resourceVersion": node.version.to_string(), "labels": node.labels})
}

/// A restorer, a server that has a Node which has returned and its record, and a task with the Node as it was just seen.
struct World {
    apply: Apply,
    calls: Calls,
    task: RestoreTask,
    reads: FreshReads,
}

impl World {
    /// The server takes this long to answer for the record. If the Node changes all the time, it refuses patches of one version.
    fn new(takes: Duration, is_changing: bool) -> Self {
        let returned = node("u2", 20, None);
        let mut config_map = ConfigMap::default();
        let mut record = Record::of(&node("u1", 5, Some("gold")), Timestamp::UNIX_EPOCH);
        record.encode_into(&mut config_map).expect("it fits");
        (config_map.metadata.uid, config_map.metadata.resource_version) =
            (Some("c1".into()), Some("6".into()));
        record.config_map = Uid::new("c1");
        let live = returned.clone();
        let (replica, calls) = fixtures::replica(move |call: String| {
            let (stored, live) = (config_map.clone(), live.clone());
            async move {
                match call.as_str() {
                    STRATEGIC if is_changing => Reply::Refusal(409, "the node has changed"),
                    STRATEGIC | TESTED => Reply::Json(200, json!({"metadata": metadata(&live)})),
                    "GET /api/v1/nodes/a" => Reply::Node(Box::new(live)),
                    _ => {
                        tokio::time::advance(takes).await;
                        Reply::Record(Box::new(stored))
                    }
                }
            }
        })
        .expect("a replica");
        let mut cache = Cache::default();
        cache.see_node(None, "a", returned.summary());
        cache.see_record(None, "a", ResourceVersion(6), Stored::Record(record.summary()));
        let entry = cache.get("a").expect("an entry");
        let mut planner = RestorePlanner::new(Arc::default(), false);
        let look =
            Look { entry: &entry, view: Some(&returned), is_event: true, is_unsure: false, heard: None };
        planner.decide(look);
        let task = planner.begin(look).expect("its turn");
        assert!(task.view.is_some());
        let reads = FreshReads::by_name(entry.known());
        Self { apply: Apply { replica, metrics: Arc::default() }, calls, task, reads }
    }

    async fn attempt(&self, tries: u32) -> Result<Done, Error> {
        self.apply.attempt(&RecordKey::from("a"), &self.task, &self.reads, tries).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_view_is_used_while_it_is_young() {
    for (age, reads) in [(Duration::from_secs(4), 0), (Duration::from_secs(6), 1)] {
        let world = World::new(Duration::ZERO, false);
        tokio::time::advance(age).await;
        world.attempt(0).await.expect("restored");
        assert_eq!(
            (world.calls.count("GET /api/v1/nodes/"), world.calls.count("PATCH")),
            (reads, 1),
            "{age:?}"
        );
    }
    let world = World::new(Duration::ZERO, false);
    world.attempt(1).await.expect("restored");
    assert_eq!(world.calls.count("GET /api/v1/nodes/"), 1, "a write was refused because of it");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_re_created_meanwhile_is_decided_upon_again() {
    let mut world = World::new(Duration::ZERO, false);
    let decided = world.task.decided.as_mut().expect("a node");
    decided.uid = node("u1", 5, None).uid.digest();
    let done = world.attempt(1).await.expect("read");
    assert_eq!((done.outcome, world.calls.count("PATCH")), (None, 0), "final labels may be on their way");
    assert_eq!(done.node, Reading::Present(node("u2", 20, None).summary()));
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_has_become_too_old_is_not_carried_out() {
    let world = World::new(PLAN_LIFETIME + Duration::from_secs(1), false);
    let error = world.attempt(0).await.expect_err("too late");
    assert!(error.to_string().contains("too old"), "{error}");
    assert_eq!(world.calls.count("PATCH"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_keeps_changing_is_patched_with_tests_instead_of_its_version() {
    let world = World::new(Duration::ZERO, true);
    for tries in 0..CHANGING {
        let error = world.attempt(tries).await.expect_err("it has changed");
        assert_eq!(error.kind, FailureKind::Moved, "{tries}");
    }
    world.attempt(CHANGING).await.expect("restored");
    assert_eq!((world.calls.count(STRATEGIC), world.calls.count(TESTED)), (CHANGING as usize, 1));
}

/// An attempt at a Node with these labels in its record, on a server that refuses these of the patches. Returns the outcome and the number
/// of patches.
async fn refusing(record: Record, view: Node, refused: &'static [usize]) -> (Option<&'static str>, usize) {
    let mut config_map = ConfigMap::default();
    record.encode_into(&mut config_map).expect("it fits");
    (config_map.metadata.uid, config_map.metadata.resource_version) = (Some("c1".into()), Some("6".into()));
    let (live, patches) = (view.clone(), AtomicUsize::new(0));
    let (replica, calls) = fixtures::replica(move |call: String| {
        let is_patch = call.starts_with("PATCH");
        let number = patches.fetch_add(usize::from(is_patch), Ordering::Relaxed) + 1;
        let (stored, live) = (config_map.clone(), live.clone());
        async move {
            match call.as_str() {
                _ if is_patch && refused.contains(&number) => Reply::Refusal(403, "no"),
                _ if is_patch => Reply::Json(200, json!({"metadata": metadata(&live)})),
                "GET /api/v1/nodes/a" => Reply::Node(Box::new(live)),
                _ => Reply::Record(Box::new(stored)),
            }
        }
    })
    .expect("a replica");
    let mut cache = Cache::default();
    cache.see_node(None, "a", view.summary());
    let entry = cache.get("a").expect("an entry");
    let (reads, decided) = (FreshReads::by_name(entry.known()), Decided::of(&entry));
    let view = Some((view, Instant::now()));
    let task = RestoreTask {
        node: "a".to_owned(),
        contested: None,
        is_overdue: false,
        view,
        decided,
        final_labels: Vec::new(),
    };
    let apply = Apply { replica, metrics: Arc::default() };
    let done = apply.attempt(&RecordKey::from("a"), &task, &reads, 0).await;
    (done.ok().and_then(|done| done.outcome), calls.count("PATCH"))
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_once_is_not_withheld() {
    let mut record = Record::of(&node("u1", 5, Some("gold")), Timestamp::UNIX_EPOCH);
    record.labels.insert("rack".to_owned(), "7".to_owned());
    // The patch, the one without labels, both labels, each of the two; and the one that was refused again.
    let outcome = refusing(record.clone(), node("u2", 20, None), &[1, 3, 5]).await;
    assert_eq!(outcome, (None, 6), "the refusal has passed: another attempt follows");
    let outcome = refusing(record, node("u2", 20, None), &[1, 3, 5, 6]).await;
    assert_eq!(outcome, (Some("restored"), 7), "the other label is restored");
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_is_restored_once_it_is_accepted() {
    let mut record = Record::of(&node("u2", 15, Some("gold")), Timestamp::UNIX_EPOCH);
    let rack = WithheldValue { value: "7".to_owned(), node: None, machine: Machine::default() };
    record.more.withheld.insert("rack".to_owned(), rack);
    let mut view = node("u2", 20, Some("gold"));
    assert_eq!(refusing(record.clone(), view.clone(), &[]).await, (None, 0), "nothing was refused");
    view.marker = Some("u2/1@c1/refused:rack".to_owned());
    assert_eq!(refusing(record.clone(), view.clone(), &[]).await, (Some("restored"), 1));
    assert_eq!(refusing(record, view, &[1, 3, 4]).await, (None, 4), "it is refused again");
}

#[test]
fn a_patch_that_rests_on_more_than_it_tests_is_not_sent_without_a_version() {
    let (returned, rules) = (node("u2", 20, None), Rules::default());
    assert!(may_be_tested(&returned, &rules));
    for other_machine in [OtherMachine::Untrusted, OtherMachine::None] {
        assert!(!may_be_tested(&returned, &Rules { other_machine, ..Rules::default() }));
    }
    let mut filed = returned;
    filed.extras.identity = Some("label:serial=1".to_owned());
    assert!(!may_be_tested(&filed, &rules));
}
