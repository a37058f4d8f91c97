//! What the restorer makes of what it sees.

use label_storage::node::IGNORE;
use label_storage::rules::Selection;
use label_storage::{Record, ResourceVersion, Uid};
use label_storage_runtime::cache::Reading;

use super::*;

fn node(name: &str, uid: &str, version: u64) -> Node {
    let uid = Uid::new(uid).expect("a uid");
    let labels = [("pool".to_owned(), "gold".to_owned())].into();
    Node {
        name: name.to_owned(),
        uid,
        version: ResourceVersion(version),
        labels,
        marker: None,
        extras: Default::default(),
    }
}

fn when(planner: &mut RestorePlanner, cache: &Cache, node: &Node, is_unsure: bool) -> When {
    let entry = &cache.get(&node.name).expect("an entry");
    planner.decide(Look { entry, view: Some(node), is_event: true, is_unsure, heard: None }).when
}

/// Whether the turn of a node has come, where so much was heard.
fn has_turn(planner: &mut RestorePlanner, cache: &Cache, heard: Option<u64>) -> bool {
    let (entry, heard) = (&cache.get("a").expect("an entry"), heard.map(ResourceVersion));
    let look = Look { entry, view: None, is_event: false, is_unsure: false, heard };
    planner.begin(look).is_ok()
}

fn settle(planner: &mut RestorePlanner, cache: &mut Cache, node: &str, succeeds: bool) -> Option<Node> {
    let entry = &cache.get(node).expect("an entry");
    let look = Look { entry, view: None, is_event: false, is_unsure: false, heard: None };
    let (name, task) = (entry.key().clone(), planner.begin(look).expect("its turn"));
    let view = task.view.clone().map(|(node, _)| node);
    let done = Done { outcome: None, node: Reading::None, record: Reading::None };
    if succeeds {
        planner.done(cache, &name, task, &done);
    }
    view
}

#[test]
fn a_new_incarnation_is_restored_as_it_was_last_seen() {
    let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::default()));
    let record = Record::of(&node("a", "u1", 5), jiff::Timestamp::now());
    cache.see_record(None, "a", ResourceVersion(6), Stored::Record(record.summary()));
    cache.see_node(None, "a", node("a", "u1", 5).summary());
    assert_eq!(when(&mut planner, &cache, &node("a", "u1", 5), false), When::Never);
    for version in [8, 9] {
        cache.see_node(None, "a", node("a", "u2", version).summary());
        let soon = When::Now(Urgency::Soon);
        assert_eq!(when(&mut planner, &cache, &node("a", "u2", version), false), soon);
    }
    assert_eq!(settle(&mut planner, &mut cache, "a", true), Some(node("a", "u2", 9)));
    assert_eq!(settle(&mut planner, &mut cache, "a", true), None);
}

#[test]
fn a_part_of_a_node_is_not_kept_if_its_record_needs_all_of_it() {
    for (name, needs_whole) in [
        ("pool", false),
        ("node-role.kubernetes.io/database", true),
        ("annotation:example.com/owner", true),
        ("cordon:", true),
    ] {
        let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::default()));
        let mut record = Record::of(&node("a", "u1", 5), jiff::Timestamp::now());
        record.labels.insert(name.to_owned(), "true".to_owned());
        cache.see_record(None, "a", ResourceVersion(6), Stored::Record(record.summary()));
        for is_whole in [false, true] {
            let mut back = node("a", "u2", 8);
            back.extras.is_whole = is_whole;
            cache.see_node(None, "a", back.summary());
            assert_eq!(when(&mut planner, &cache, &back, false), When::Now(Urgency::Soon));
            let expected = (is_whole || !needs_whole).then_some(back);
            assert_eq!(settle(&mut planner, &mut cache, "a", true), expected, "{name}");
        }
    }
}

#[test]
fn what_a_node_said_last_is_waited_for() {
    let first = node("a", "u1", 5);
    let changed = Node { labels: [("pool".to_owned(), "silver".to_owned())].into(), ..node("a", "u1", 8) };
    let back = Node { labels: Default::default(), ..node("a", "u2", 9) };
    let unrestored = Node { uid: Uid::new("u0").expect("a uid"), ..changed.clone() };
    let bare = Node { labels: Default::default(), ..unrestored.clone() };
    let mut ignored = changed.clone();
    ignored.extras.annotations.insert(IGNORE.to_owned(), "true".to_owned());
    for (last, is_awaited) in [
        (&changed, true),
        (&node("a", "u1", 8), false),
        (&unrestored, true),
        (&bare, false),
        (&ignored, false),
    ] {
        let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::default()));
        let record = |node| Stored::Record(Record::of(node, jiff::Timestamp::now()).summary());
        cache.see_record(None, "a", ResourceVersion(6), record(&first));
        cache.see_node(None, "a", first.summary());
        cache.lose_node("a", last.version);
        planner.deleted(&mut cache, &RecordKey::from("a"), last.clone(), Writes::default());
        cache.see_node(None, "a", back.summary());
        let pending: Vec<_> = cache.final_labels.unstored().map(|(_, version)| version).collect();
        assert_eq!(pending.first().copied(), is_awaited.then_some(last.version), "whoever comes after, too");
        assert_eq!(has_turn(&mut planner, &cache, None), !is_awaited);
        cache.see_record(None, "a", ResourceVersion(10), record(last));
        assert!(has_turn(&mut planner, &cache, None));
        settle(&mut planner, &mut cache, "a", true);
        assert!(cache.final_labels.is_empty(), "and nobody who comes after waits for them");
    }
}

#[test]
fn a_deletion_that_is_heard_of_before_the_record_is_known_is_waited_for() {
    let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::default()));
    let changed = Node { labels: [("pool".to_owned(), "silver".to_owned())].into(), ..node("a", "u1", 8) };
    cache.lose_node("a", changed.version);
    planner.deleted(&mut cache, &RecordKey::from("a"), changed, Writes::default());
    let record = Record::of(&node("a", "u1", 5), jiff::Timestamp::now());
    cache.see_record(None, "a", ResourceVersion(6), Stored::Record(record.summary()));
    cache.see_node(None, "a", node("a", "u2", 9).summary());
    assert!(!has_turn(&mut planner, &cache, None));
}

#[test]
fn what_no_storer_keeps_is_not_waited_for() {
    let labels = Selection::all_but("machine-facts".parse().expect("patterns"));
    let rules = Arc::new(Rules { labels, ..Rules::default() });
    let host = |node: Node, host: &str| {
        let mut labels = node.labels.clone();
        labels.insert("kubernetes.io/hostname".to_owned(), host.to_owned());
        Node { labels, ..node }
    };
    let stored = |node| Record::of(&node, jiff::Timestamp::now()).seen_through(&rules, None);
    let (first, last) = (node("a", "u1", 5), host(node("a", "u1", 8), "new"));
    let changed = Node { labels: [("pool".to_owned(), "silver".to_owned())].into(), ..last.clone() };
    // Whether the record holds none of it, or what was stored before it was excluded.
    for record in [stored(first.clone()), stored(host(first.clone(), "old"))] {
        for (last, is_awaited) in [(&last, false), (&host(changed.clone(), "new"), true)] {
            let mut planner = RestorePlanner::new(Arc::clone(&rules));
            let mut cache = Cache::default();
            cache.see_record(None, "a", ResourceVersion(6), Stored::Record(record.summary()));
            cache.lose_node("a", last.version);
            planner.deleted(&mut cache, &RecordKey::from("a"), last.clone(), Writes::default());
            cache.see_node(None, "a", node("a", "u2", 9).summary());
            assert_eq!(has_turn(&mut planner, &cache, None), !is_awaited);
        }
    }
}

#[test]
fn what_a_machine_said_that_is_kept_out_is_not_waited_for() {
    let (first, other, back) = (node("a", "u1", 5), node("a", "u2", 8), node("a", "u3", 10));
    let last = Node { labels: [("own".to_owned(), "1".to_owned())].into(), ..node("a", "u2", 9) };
    let record = Record::of(&first, jiff::Timestamp::now()).summary();
    // Where the record was written meanwhile, it may not be kept out any more.
    for (is_rewritten, is_awaited) in [(false, false), (true, true)] {
        let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::default()));
        cache.see_record(None, "a", ResourceVersion(6), Stored::Record(record));
        cache.see_node(None, "a", other.summary());
        let entry = cache.get("a").expect("an entry");
        let look = Look { entry: &entry, view: None, is_event: false, is_unsure: false, heard: None };
        let (name, task) = (entry.key().clone(), planner.begin(look).expect("its turn"));
        let done = Done { outcome: Some(FENCED), node: Reading::None, record: Reading::None };
        planner.done(&mut cache, &name, task, &done);
        if is_rewritten {
            cache.see_record(None, "a", ResourceVersion(7), Stored::Record(record));
        }
        cache.lose_node("a", last.version);
        planner.deleted(&mut cache, &RecordKey::from("a"), last.clone(), Writes::default());
        cache.see_node(None, "a", back.summary());
        assert_eq!(has_turn(&mut planner, &cache, None), !is_awaited);
    }
}

#[test]
fn a_deletion_that_is_still_to_be_heard_of_is_waited_for() {
    let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::default()));
    let record = Record::of(&node("a", "u1", 5), jiff::Timestamp::now());
    cache.see_record(None, "a", ResourceVersion(6), Stored::Record(record.summary()));
    let back = node("a", "u2", 9);
    cache.see_node(None, "a", back.summary());
    let mut after = |heard| has_turn(&mut planner, &cache, heard);
    assert_eq!([Some(7), Some(9), None].map(&mut after), [false, true, true]);
}

#[test]
fn where_records_may_have_changed_unseen_a_new_node_is_reason_to_read_one() {
    let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::default()));
    cache.see_node(None, "a", node("a", "u1", 5).summary());
    let soon = When::Now(Urgency::Soon);
    assert_eq!(when(&mut planner, &cache, &node("a", "u1", 5), true), soon);
    settle(&mut planner, &mut cache, "a", false);
    assert_eq!(when(&mut planner, &cache, &node("a", "u1", 5), false), soon, "until it was read");
    settle(&mut planner, &mut cache, "a", true);
    assert_eq!(when(&mut planner, &cache, &node("a", "u1", 5), false), When::Never);
}

#[test]
fn a_view_is_not_kept_while_others_claim_to_be_the_same() {
    let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::default()));
    let (record, back) = (Record::of(&node("a", "u1", 5), jiff::Timestamp::now()), node("a", "u2", 8));
    cache.see_record(None, "a", ResourceVersion(6), Stored::Record(record.summary()));
    cache.see_node(None, "a", back.summary());
    assert_eq!(when(&mut planner, &cache, &back, false), When::Now(Urgency::Soon));
    assert_eq!(planner.views.len(), 1);
    planner.decide_contested(&cache.get("a").expect("an entry"));
    assert!(planner.views.is_empty(), "it may be restored to another");
}

#[test]
fn only_so_many_views_are_kept() {
    let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::default()));
    let record = Record::of(&node("a", "u1", 5), jiff::Timestamp::now());
    for number in 0..MOST_VIEWS + 10 {
        let node = node(&format!("n{number}"), "u2", 8);
        cache.see_record(None, node.name.as_str(), ResourceVersion(6), Stored::Record(record.summary()));
        cache.see_node(None, node.name.as_str(), node.summary());
        assert_eq!(when(&mut planner, &cache, &node, false), When::Now(Urgency::Soon));
    }
    assert_eq!(planner.views.len(), MOST_VIEWS);
}
