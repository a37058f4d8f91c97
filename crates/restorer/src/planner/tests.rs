//! The restorer's decisions, from the cache.

use label_storage::node::{IGNORE, Machine, STARTUP_TAINT, Taint};
use label_storage::record::WithheldValue;
use label_storage::rules::{OtherMachine, Selection};
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

/// The versions of the final labels that a Node is restored from; `None` if it has to wait. The watch has come to `heard`.
fn turn(planner: &mut RestorePlanner, cache: &Cache, heard: Option<u64>) -> Option<Vec<u64>> {
    let (entry, heard) = (&cache.get("a").expect("an entry"), heard.map(ResourceVersion));
    let look = Look { entry, view: None, is_event: false, is_unsure: false, heard };
    let task = planner.begin(look).ok()?;
    Some(task.final_labels.iter().map(|last| last.version.0).collect())
}

/// Rules by which final labels have to be stored before they are restored.
fn waiting() -> Rules {
    Rules { other_machine: OtherMachine::None, ..Rules::default() }
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
fn what_the_cluster_refused_is_tried_again_within_hours() {
    let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::default(), false));
    let refused = Node { marker: Some("u1/1/refused:rack".to_owned()), ..node("a", "u1", 5) };
    let mut record = Record::of(&refused, jiff::Timestamp::now());
    let rack = WithheldValue { value: "7".to_owned(), node: None, machine: Machine::default() };
    record.more.withheld.insert("rack".to_owned(), rack);
    cache.see_record(None, "a", ResourceVersion(6), Stored::Record(record.summary()));
    cache.see_node(None, "a", refused.summary());
    let key = RecordKey::from("a");
    assert_eq!(when(&mut planner, &cache, &refused, false), When::Never);
    let at = planner.retries[&key];
    assert!(at <= Instant::now() + RETRY && at + LOOK_AGAIN > Instant::now() + RETRY / 10);
    when(&mut planner, &cache, &refused, false);
    assert_eq!(planner.retries[&key], at, "it is not put off");
    planner.retries.insert(key.clone(), Instant::now());
    assert_eq!(when(&mut planner, &cache, &refused, false), When::After(Duration::ZERO, Urgency::Tidy));
    settle(&mut planner, &mut cache, "a", true);
    assert_eq!(when(&mut planner, &cache, &refused, false), When::Never, "that was the try");
    cache.lose_node("a", ResourceVersion(7));
    planner.listed(&mut cache);
    assert!(planner.retries.is_empty());
}

#[test]
fn a_new_incarnation_is_restored_as_it_was_last_seen() {
    let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::default(), false));
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
        ("node-role.kubernetes.io/database", false),
        ("annotation:example.com/owner", true),
        ("cordon:", true),
    ] {
        let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::default(), false));
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
fn without_a_watch_the_labels_of_the_last_list_are_restored() {
    let first = node("a", "u1", 5);
    let changed = Node { labels: [("pool".to_owned(), "silver".to_owned())].into(), ..node("a", "u1", 8) };
    let again = Node { version: ResourceVersion(9), ..first.clone() };
    let back = Node { labels: Default::default(), ..node("a", "u2", 10) };
    let record = |node| Stored::Record(Record::of(node, jiff::Timestamp::now()).summary());
    for (rules, listed, restored) in [
        (Rules::default(), &[&changed][..], vec![8]),
        (Rules::default(), &[&changed, &again], vec![]),
        (waiting(), &[&changed], vec![]),
    ] {
        let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::new(rules), true));
        cache.see_record(None, "a", ResourceVersion(6), record(&first));
        for node in listed.iter().copied().chain([&back]) {
            cache.see_node(None, "a", node.summary());
            when(&mut planner, &cache, node, false);
            planner.listed(&mut cache);
        }
        assert_eq!(turn(&mut planner, &cache, None), Some(restored));
        cache.see_record(None, "a", ResourceVersion(11), record(&changed));
        assert_eq!(turn(&mut planner, &cache, None), Some(vec![]), "they are stored");
        planner.listed(&mut cache);
        assert!(planner.unstored.is_empty());
    }
    // The deletion has the final labels.
    let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::default(), true));
    cache.see_record(None, "a", ResourceVersion(6), record(&first));
    cache.see_node(None, "a", changed.summary());
    when(&mut planner, &cache, &changed, false);
    let last = Node { version: ResourceVersion(9), ..changed };
    cache.lose_node("a", last.version);
    planner.deleted(&mut cache, &RecordKey::from("a"), last, Writes::default());
    cache.see_node(None, "a", back.summary());
    assert_eq!(turn(&mut planner, &cache, None), Some(vec![9]));
}

#[test]
fn an_edit_of_the_record_counts_more_than_labels_that_were_kept() {
    let first = node("a", "u1", 5);
    let changed = Node { labels: [("pool".to_owned(), "silver".to_owned())].into(), ..node("a", "u1", 8) };
    let record = Record::of(&first, jiff::Timestamp::now());
    let edited = Record { labels: [("pool".to_owned(), "bronze".to_owned())].into(), ..record.clone() };
    let stamped = record.with_departed_at(Some(jiff::Timestamp::now()));
    let stored = |record: &Record| Stored::Record(record.summary());
    for polls in [false, true] {
        for (next, restored) in [
            (stored(&stamped), vec![8]),
            (Stored::Unreadable, vec![]),
            (stored(&edited), vec![]),
            (stored(&Record { node_version: None, ..edited.clone() }), vec![]),
        ] {
            let mut planner = RestorePlanner::new(Arc::default(), polls);
            let mut cache = Cache::default();
            cache.see_record(None, "a", ResourceVersion(6), stored(&record));
            cache.see_node(None, "a", changed.summary());
            when(&mut planner, &cache, &changed, false);
            cache.lose_node("a", changed.version);
            if !polls {
                planner.deleted(&mut cache, &RecordKey::from("a"), changed.clone(), Writes::default());
            }
            let mut version = 9;
            let mut see = |planner: &mut RestorePlanner, cache: &mut Cache, stored| {
                version += 1;
                cache.see_record(None, "a", ResourceVersion(version), stored);
                let entry = &cache.get("a").expect("an entry");
                planner.decide(Look { entry, view: None, is_event: true, is_unsure: false, heard: None });
            };
            see(&mut planner, &mut cache, next);
            cache.see_node(None, "a", Node { labels: Default::default(), ..node("a", "u2", 9) }.summary());
            let is_edited = restored.is_empty() && next != Stored::Unreadable;
            if next != Stored::Unreadable {
                assert_eq!(turn(&mut planner, &cache, None), Some(restored), "{next:?}");
            }
            see(&mut planner, &mut cache, stored(&record));
            let expected = if is_edited { vec![] } else { vec![8] };
            assert_eq!(turn(&mut planner, &cache, None), Some(expected), "{next:?}");
            planner.listed(&mut cache);
            let is_kept = cache.final_labels.contains("a") || planner.unstored.contains_key("a");
            assert_eq!((is_kept, planner.baselines.len()), (!is_edited, usize::from(!is_edited)));
        }
    }
}

#[test]
fn a_storer_that_stores_an_earlier_version_edits_nothing() {
    let [first, second, last] = [(5, "gold"), (7, "bronze"), (8, "silver")].map(|(version, pool)| Node {
        labels: [("pool".to_owned(), pool.to_owned())].into(),
        ..node("a", "u1", version)
    });
    let (mut planner, mut cache) = (RestorePlanner::new(Arc::default(), false), Cache::default());
    let stored = |node: &Node| Stored::Record(Record::of(node, jiff::Timestamp::now()).summary());
    cache.see_record(None, "a", ResourceVersion(6), stored(&first));
    cache.see_node(None, "a", last.summary());
    cache.lose_node("a", last.version);
    planner.deleted(&mut cache, &RecordKey::from("a"), last, Writes::default());
    cache.see_record(None, "a", ResourceVersion(9), stored(&second));
    let entry = &cache.get("a").expect("an entry");
    planner.decide(Look { entry, view: None, is_event: true, is_unsure: false, heard: None });
    cache.see_node(None, "a", Node { labels: Default::default(), ..node("a", "u2", 9) }.summary());
    assert_eq!(turn(&mut planner, &cache, None), Some(vec![8]));
}

#[test]
fn a_node_waits_for_the_first_record_of_the_one_before() {
    let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::default(), false));
    let key = RecordKey::from("a");
    cache.lose_node("a", ResourceVersion(8));
    planner.deleted(&mut cache, &key, node("a", "u1", 8), Writes::default());
    let mut back = node("a", "u2", 9);
    let (taint, effect) = (STARTUP_TAINT.to_owned(), "NoSchedule".to_owned());
    back.extras.taints.push(Taint { key: taint, effect, value: String::new(), time_added: None });
    cache.see_node(None, "a", back.summary());
    assert_eq!(turn(&mut planner, &cache, None), None, "the start-up taint stays");
    planner.waiting.insert(key, Instant::now() - Rules::default().patience);
    assert_eq!(turn(&mut planner, &cache, None), Some(vec![]));
    let stored = Record::of(&node("a", "u1", 8), jiff::Timestamp::now());
    cache.see_record(None, "a", ResourceVersion(10), Stored::Record(stored.summary()));
    assert_eq!(turn(&mut planner, &cache, None), Some(vec![]), "they are stored");
    settle(&mut planner, &mut cache, "a", true);
    assert!(planner.waiting.is_empty());
}

#[test]
fn final_labels_that_are_not_stored_yet_are_restored_or_waited_for() {
    let first = node("a", "u1", 5);
    let changed = Node { labels: [("pool".to_owned(), "silver".to_owned())].into(), ..node("a", "u1", 8) };
    let back = Node { labels: Default::default(), ..node("a", "u2", 9) };
    let unrestored = Node { uid: Uid::new("u0").expect("a uid"), ..changed.clone() };
    let bare = Node { labels: Default::default(), ..unrestored.clone() };
    let mut ignored = changed.clone();
    ignored.extras.annotations.insert(IGNORE.to_owned(), "true".to_owned());
    let impatient = Rules { patience: Duration::ZERO, ..waiting() };
    for (last, is_kept) in [
        (&changed, true),
        (&node("a", "u1", 8), false),
        (&unrestored, true),
        (&bare, false),
        (&ignored, false),
    ] {
        for (rules, of_kept) in
            [(Rules::default(), Some(vec![8])), (waiting(), None), (impatient.clone(), Some(vec![]))]
        {
            let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::new(rules), false));
            let record = |node| Stored::Record(Record::of(node, jiff::Timestamp::now()).summary());
            cache.see_record(None, "a", ResourceVersion(6), record(&first));
            cache.see_node(None, "a", first.summary());
            cache.lose_node("a", last.version);
            planner.deleted(&mut cache, &RecordKey::from("a"), last.clone(), Writes::default());
            cache.see_node(None, "a", back.summary());
            let pending: Vec<_> = cache.final_labels.unstored().map(|(_, version)| version).collect();
            assert_eq!(pending.first().copied(), is_kept.then_some(last.version), "for the next holder, too");
            assert_eq!(turn(&mut planner, &cache, None), if is_kept { of_kept } else { Some(vec![]) });
            cache.see_record(None, "a", ResourceVersion(10), record(last));
            assert_eq!(turn(&mut planner, &cache, None), Some(vec![]), "they are stored");
            settle(&mut planner, &mut cache, "a", true);
            assert!(cache.final_labels.is_empty());
        }
    }
}

#[test]
fn final_labels_are_dropped_once_they_do_not_count_any_more() {
    let changed = Node { labels: [("pool".to_owned(), "silver".to_owned())].into(), ..node("a", "u1", 8) };
    let restored = Node { marker: Some("u2/1".to_owned()), ..node("a", "u2", 9) };
    let record = Record::of(&node("a", "u1", 5), jiff::Timestamp::now()).summary();
    let kept = |then: fn(&mut RestorePlanner, &mut Cache, &Node)| {
        let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::default(), false));
        cache.see_record(None, "a", ResourceVersion(6), Stored::Record(record));
        cache.lose_node("a", changed.version);
        planner.deleted(&mut cache, &RecordKey::from("a"), changed.clone(), Writes::default());
        assert_eq!(cache.final_labels.len(), 1);
        then(&mut planner, &mut cache, &restored);
        cache.final_labels.all("a").map(|last| last.version.0).collect::<Vec<_>>()
    };
    let list = |planner: &mut RestorePlanner, cache: &mut Cache, _: &Node| _ = planner.listed(cache);
    assert_eq!(kept(list), [8], "the Node is absent");
    let live = |planner: &mut RestorePlanner, cache: &mut Cache, restored: &Node| {
        cache.see_node(None, "a", restored.summary());
        planner.listed(cache);
    };
    assert!(kept(live).is_empty(), "a later incarnation was restored");
    let deleted = |planner: &mut RestorePlanner, cache: &mut Cache, restored: &Node| {
        cache.lose_node("a", restored.version);
        planner.deleted(cache, &RecordKey::from("a"), restored.clone(), Writes::default());
    };
    assert!(kept(deleted).is_empty(), "it was restored, and has the labels of the record");
}

#[test]
fn final_labels_of_a_node_that_no_storer_selects_are_dropped_once_it_has_no_record() {
    let rules = Arc::new(Rules { opt_in: true, ..Rules::default() });
    let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(rules, false));
    for number in 0..100 {
        let last = node(&format!("n{number}"), "u1", 8);
        cache.lose_node(last.name.as_str(), last.version);
        planner.deleted(&mut cache, &RecordKey::from(last.name.as_str()), last.clone(), Writes::default());
    }
    assert!(cache.final_labels.is_empty());
}

#[test]
fn a_node_whose_time_with_the_startup_taint_is_over_waits_for_nothing() {
    let rules = Rules { startup_taint: Some(Duration::ZERO), ..waiting() };
    let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::new(rules), false));
    let changed = Node { labels: [("pool".to_owned(), "silver".to_owned())].into(), ..node("a", "u1", 8) };
    let record = Record::of(&node("a", "u1", 5), jiff::Timestamp::now());
    cache.see_record(None, "a", ResourceVersion(6), Stored::Record(record.summary()));
    cache.lose_node("a", changed.version);
    planner.deleted(&mut cache, &RecordKey::from("a"), changed, Writes::default());
    let mut back = node("a", "u2", 9);
    cache.see_node(None, "a", back.summary());
    assert_eq!(turn(&mut planner, &cache, Some(9)), None);
    let (key, effect) = (STARTUP_TAINT.to_owned(), "NoSchedule".to_owned());
    back.extras.taints.push(Taint { key, effect, value: String::new(), time_added: None });
    back.version = ResourceVersion(10);
    cache.see_node(None, "a", back.summary());
    when(&mut planner, &cache, &back, false);
    assert_eq!(turn(&mut planner, &cache, Some(10)), Some(vec![]));
}

#[test]
fn a_deletion_that_is_reported_before_the_record_is_known_counts() {
    for (rules, expected) in [(Rules::default(), Some(vec![8])), (waiting(), None)] {
        let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::new(rules), false));
        let changed =
            Node { labels: [("pool".to_owned(), "silver".to_owned())].into(), ..node("a", "u1", 8) };
        cache.lose_node("a", changed.version);
        planner.deleted(&mut cache, &RecordKey::from("a"), changed, Writes::default());
        let record = Record::of(&node("a", "u1", 5), jiff::Timestamp::now());
        cache.see_record(None, "a", ResourceVersion(6), Stored::Record(record.summary()));
        cache.see_node(None, "a", node("a", "u2", 9).summary());
        assert_eq!(turn(&mut planner, &cache, None), expected);
    }
}

#[test]
fn final_labels_that_no_storer_keeps_are_not_waited_for() {
    let labels = Selection::all_but("machine-facts".parse().expect("patterns"));
    let rules = Arc::new(Rules { labels, ..waiting() });
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
            let mut planner = RestorePlanner::new(Arc::clone(&rules), false);
            let mut cache = Cache::default();
            cache.see_record(None, "a", ResourceVersion(6), Stored::Record(record.summary()));
            cache.lose_node("a", last.version);
            planner.deleted(&mut cache, &RecordKey::from("a"), last.clone(), Writes::default());
            cache.see_node(None, "a", node("a", "u2", 9).summary());
            assert_eq!(turn(&mut planner, &cache, None).is_some(), !is_awaited);
        }
    }
}

#[test]
fn final_labels_of_another_machine_are_not_waited_for() {
    let (first, other, back) = (node("a", "u1", 5), node("a", "u2", 8), node("a", "u3", 10));
    let last = Node { labels: [("own".to_owned(), "1".to_owned())].into(), ..node("a", "u2", 9) };
    let record = Record::of(&first, jiff::Timestamp::now()).summary();
    // Where the record was written meanwhile, it may not be kept out any more.
    for (is_rewritten, is_awaited) in [(false, false), (true, true)] {
        let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::new(waiting()), false));
        cache.see_record(None, "a", ResourceVersion(6), Stored::Record(record));
        cache.see_node(None, "a", other.summary());
        let entry = cache.get("a").expect("an entry");
        let look = Look { entry: &entry, view: None, is_event: false, is_unsure: false, heard: None };
        let (name, task) = (entry.key().clone(), planner.begin(look).expect("its turn"));
        let done = Done { outcome: Some(OTHER_MACHINE), node: Reading::None, record: Reading::None };
        planner.done(&mut cache, &name, task, &done);
        if is_rewritten {
            cache.see_record(None, "a", ResourceVersion(7), Stored::Record(record));
        }
        cache.lose_node("a", last.version);
        planner.deleted(&mut cache, &RecordKey::from("a"), last.clone(), Writes::default());
        cache.see_node(None, "a", back.summary());
        assert_eq!(turn(&mut planner, &cache, None).is_some(), !is_awaited);
    }
}

#[test]
fn a_deletion_that_is_still_to_be_heard_of_is_waited_for() {
    let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::default(), false));
    let record = Record::of(&node("a", "u1", 5), jiff::Timestamp::now());
    cache.see_record(None, "a", ResourceVersion(6), Stored::Record(record.summary()));
    let back = node("a", "u2", 9);
    cache.see_node(None, "a", back.summary());
    let mut after = |heard| turn(&mut planner, &cache, heard).is_some();
    assert_eq!([Some(7), Some(9), None].map(&mut after), [false, true, true]);
}

#[test]
fn where_records_may_have_changed_unseen_a_new_node_is_reason_to_read_one() {
    let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::default(), false));
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
    let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::default(), false));
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
    let (mut cache, mut planner) = (Cache::default(), RestorePlanner::new(Arc::default(), false));
    let record = Record::of(&node("a", "u1", 5), jiff::Timestamp::now());
    for number in 0..MOST_VIEWS + 10 {
        let node = node(&format!("n{number}"), "u2", 8);
        cache.see_record(None, node.name.as_str(), ResourceVersion(6), Stored::Record(record.summary()));
        cache.see_node(None, node.name.as_str(), node.summary());
        assert_eq!(when(&mut planner, &cache, &node, false), When::Now(Urgency::Soon));
    }
    assert_eq!(planner.views.len(), MOST_VIEWS);
}
