//! What the restorer makes of what it sees.

use label_storage::node::IGNORE;
use label_storage::rules::Selection;
use label_storage::{Record, Uid};
use label_storage_runtime::reconciler::Reading;

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

fn when(planner: &mut RestorePlanner, table: &Table, node: &Node, is_unsure: bool) -> When {
    let row = table.get(&node.name).expect("a row");
    planner.decide(Look { row, view: Some(node), is_event: true, is_unsure, heard: None }).when
}

/// Whether the turn of a node has come, where so much was heard.
fn has_turn(planner: &mut RestorePlanner, table: &Table, heard: Option<u64>) -> bool {
    let (row, heard) = (table.get("a").expect("a row"), heard.map(ResourceVersion));
    let look = Look { row, view: None, is_event: false, is_unsure: false, heard };
    planner.task(look).is_ok()
}

fn settle(planner: &mut RestorePlanner, table: &Table, node: &str, succeeds: bool) -> Option<Node> {
    let row = table.get(node).expect("a row");
    let look = Look { row, view: None, is_event: false, is_unsure: false, heard: None };
    let (name, task) = (RecordKey::clone(row.key()), planner.task(look).expect("its turn"));
    let view = task.view.clone().map(|(node, _)| node);
    let done = Done { outcome: None, node: Reading::None, record: Reading::None };
    planner.done(&name, task, succeeds.then_some(&done));
    view
}

#[test]
fn a_new_incarnation_is_restored_as_it_was_last_seen() {
    let (mut table, mut planner) = (Table::default(), RestorePlanner::new(Arc::default(), false));
    let record = Record::of(&node("a", "u1", 5), jiff::Timestamp::now());
    table.see_record("a", ResourceVersion(6), Stored::Record(record.summary()));
    table.see_node("a", node("a", "u1", 5).summary());
    assert_eq!(when(&mut planner, &table, &node("a", "u1", 5), false), When::Never);
    for version in [8, 9] {
        table.see_node("a", node("a", "u2", version).summary());
        let soon = When::Now(Urgency::Soon);
        assert_eq!(when(&mut planner, &table, &node("a", "u2", version), false), soon);
    }
    assert_eq!(settle(&mut planner, &table, "a", true), Some(node("a", "u2", 9)));
    assert_eq!(settle(&mut planner, &table, "a", true), None);
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
        let (mut table, mut planner) = (Table::default(), RestorePlanner::new(Arc::default(), false));
        let record = |node| Stored::Record(Record::of(node, jiff::Timestamp::now()).summary());
        table.see_record("a", ResourceVersion(6), record(&first));
        table.see_node("a", first.summary());
        table.lose_node("a", last.version);
        planner.deleted(last.clone(), table.get("a").expect("a row"), false);
        table.see_node("a", back.summary());
        let pending: Vec<_> = planner.pending_deletions().into_iter().map(|(_, version)| version).collect();
        assert_eq!(pending.first().copied(), is_awaited.then_some(last.version), "whoever comes after, too");
        assert_eq!(has_turn(&mut planner, &table, None), !is_awaited);
        table.see_record("a", ResourceVersion(10), record(last));
        assert!(has_turn(&mut planner, &table, None));
    }
}

#[test]
fn a_deletion_that_is_heard_of_before_the_record_is_known_is_waited_for() {
    let (mut table, mut planner) = (Table::default(), RestorePlanner::new(Arc::default(), false));
    let changed = Node { labels: [("pool".to_owned(), "silver".to_owned())].into(), ..node("a", "u1", 8) };
    table.lose_node("a", changed.version);
    planner.deleted(changed, table.get("a").expect("a row"), false);
    let record = Record::of(&node("a", "u1", 5), jiff::Timestamp::now());
    table.see_record("a", ResourceVersion(6), Stored::Record(record.summary()));
    table.see_node("a", node("a", "u2", 9).summary());
    assert!(!has_turn(&mut planner, &table, None));
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
            let mut planner = RestorePlanner::new(Arc::clone(&rules), false);
            let mut table = Table::default();
            table.see_record("a", ResourceVersion(6), Stored::Record(record.summary()));
            table.lose_node("a", last.version);
            planner.deleted(last.clone(), table.get("a").expect("a row"), false);
            table.see_node("a", node("a", "u2", 9).summary());
            assert_eq!(has_turn(&mut planner, &table, None), !is_awaited);
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
        let (mut table, mut planner) = (Table::default(), RestorePlanner::new(Arc::default(), false));
        table.see_record("a", ResourceVersion(6), Stored::Record(record));
        table.see_node("a", other.summary());
        let row = table.get("a").expect("a row");
        let look = Look { row, view: None, is_event: false, is_unsure: false, heard: None };
        let (name, task) = (RecordKey::clone(row.key()), planner.task(look).expect("its turn"));
        let done = Done { outcome: Some(FENCED), node: Reading::None, record: Reading::None };
        planner.done(&name, task, Some(&done));
        if is_rewritten {
            table.see_record("a", ResourceVersion(7), Stored::Record(record));
        }
        table.lose_node("a", last.version);
        planner.deleted(last.clone(), table.get("a").expect("a row"), false);
        table.see_node("a", back.summary());
        assert_eq!(has_turn(&mut planner, &table, None), !is_awaited);
    }
}

#[test]
fn a_deletion_that_is_still_to_be_heard_of_is_waited_for() {
    let (mut table, mut planner) = (Table::default(), RestorePlanner::new(Arc::default(), false));
    let record = Record::of(&node("a", "u1", 5), jiff::Timestamp::now());
    table.see_record("a", ResourceVersion(6), Stored::Record(record.summary()));
    let back = node("a", "u2", 9);
    table.see_node("a", back.summary());
    let mut after = |heard| has_turn(&mut planner, &table, heard);
    assert_eq!([Some(7), Some(9), None].map(&mut after), [false, true, true]);
}

#[test]
fn where_records_may_have_changed_unseen_a_new_node_is_reason_to_read_one() {
    let (mut table, mut planner) = (Table::default(), RestorePlanner::new(Arc::default(), false));
    table.see_node("a", node("a", "u1", 5).summary());
    let soon = When::Now(Urgency::Soon);
    assert_eq!(when(&mut planner, &table, &node("a", "u1", 5), true), soon);
    settle(&mut planner, &table, "a", false);
    assert_eq!(when(&mut planner, &table, &node("a", "u1", 5), false), soon, "until it was read");
    settle(&mut planner, &table, "a", true);
    assert_eq!(when(&mut planner, &table, &node("a", "u1", 5), false), When::Never);
}

#[test]
fn a_view_is_not_kept_while_others_claim_to_be_the_same() {
    let (mut table, mut planner) = (Table::default(), RestorePlanner::new(Arc::default(), false));
    let (record, back) = (Record::of(&node("a", "u1", 5), jiff::Timestamp::now()), node("a", "u2", 8));
    table.see_record("a", ResourceVersion(6), Stored::Record(record.summary()));
    table.see_node("a", back.summary());
    assert_eq!(when(&mut planner, &table, &back, false), When::Now(Urgency::Soon));
    assert_eq!(planner.views.len(), 1);
    planner.decide_contested(table.get("a").expect("a row"));
    assert!(planner.views.is_empty(), "it may be restored to another");
}

#[test]
fn only_so_many_views_are_kept() {
    let (mut table, mut planner) = (Table::default(), RestorePlanner::new(Arc::default(), false));
    let record = Record::of(&node("a", "u1", 5), jiff::Timestamp::now());
    for number in 0..MOST_VIEWS + 10 {
        let node = node(&format!("n{number}"), "u2", 8);
        table.see_record(&node.name, ResourceVersion(6), Stored::Record(record.summary()));
        table.see_node(&node.name, node.summary());
        assert_eq!(when(&mut planner, &table, &node, false), When::Now(Urgency::Soon));
    }
    assert_eq!(planner.views.len(), MOST_VIEWS);
}
