//! Records that a person has edited.

use super::*;
use crate::fixtures::{decode, node, written};
use crate::restore::{self, plan_restore};
use crate::store::{Action, Circumstances, Reason, Sighting, Stored};
use crate::{plan_store, store};

fn labels<const N: usize>(pairs: [(&str, &str); N]) -> Labels {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

fn edit(record: &Record, to: Labels, seen: u64) -> Record {
    let withheld = record.more.withheld.clone();
    written(&record.edited(to, withheld, Some(ResourceVersion(seen)), second(900), &Rules::default()))
}

fn store(node: Sighting<&Node>, record: &Record) -> store::Plan {
    let at = Circumstances { retention: Rules::default().retention, ..Circumstances::at(second(1000)) };
    plan_store(node, Stored::Record(record), at, &Rules::default())
}

#[test]
fn what_was_there_before_is_remembered() {
    let before = record("a", "u1").label("pool", "gold");
    let after = edit(&before, labels([("pool", "silver")]), 20);
    assert_eq!(
        (after.generation, after.labels_generation, after.captured_at),
        (5, Some(5), Some(second(900)))
    );
    assert_eq!((&after.uid, after.node_version), (&before.uid, Some(ResourceVersion(20))));
    let version = Version { generation: 4, at: Some(second(500)), labels: before.labels.clone() };
    assert_eq!(after.more.history, [version]);
    let same = edit(&before, before.labels.clone(), 5);
    assert_eq!(
        (same.generation, same.labels_generation, same.node_version),
        (5, Some(4), before.node_version)
    );
    assert_eq!(same.more.history, []);
}

#[test]
fn what_the_node_said_before_does_not_come_over_it() {
    let last = node("a").at(15).label("pool", "bronze");
    let before = record("a", "u1").label("pool", "gold");
    assert_eq!(store(Sighting::Deleted(&last), &before).reason, Reason::FinalLabels);
    let after = edit(&before, labels([("pool", "silver")]), 20);
    assert_eq!(store(Sighting::Deleted(&last), &after).reason, Reason::ViewOlderThanRecord);
}

#[test]
fn a_node_that_was_never_there_gets_what_is_written_down_for_it() {
    let seeded = edit(&Record::awaiting("a", None), labels([("pool", "gold")]), 20);
    assert_eq!(decode(&encode(&seeded)).damage, []);
    assert_eq!((seeded.generation, seeded.labels_generation, &seeded.uid), (1, Some(1), &None));
    let came = node("a").at(21);
    assert_eq!(store(Sighting::Live(&came), &seeded).reason, Reason::AwaitingRestore);
    let plan = plan_restore(&came, Stored::Record(&seeded), &Rules::default(), false);
    assert_eq!(plan.reason, restore::Reason::Returned);
    let patch = plan.patch.expect("a patch");
    assert_eq!(patch.restored, labels([("pool", "gold")]));
    let given = came.marked(&patch.marker.expect("a marker")).at(22).label("pool", "gold");
    let plan = store(Sighting::Live(&given), &seeded);
    assert_eq!(plan.reason, Reason::Restored);
    let Action::Replace(record) = plan.action else { panic!("it is stored") };
    assert_eq!((record.uid, record.labels), (Some(given.uid), given.labels));
}

#[test]
fn what_is_not_withheld_any_more_is_given_to_a_node_that_was_restored_without_it() {
    let mut before = record("a", "u1").label("pool", "gold");
    let kept = WithheldValue { value: "1".to_owned(), node: None, machine: Machine::default() };
    before.more.withheld.insert("tier".to_owned(), kept);
    let restored = node("a").incarnation("u2").marked("u2/4");
    assert!(before.summary().is_restored_to(&restored.summary()));
    let after = edit(&before, labels([("pool", "gold"), ("tier", "1")]), 20);
    assert!(after.more.withheld.is_empty());
    assert!(!after.summary().is_restored_to(&restored.summary()));
}
