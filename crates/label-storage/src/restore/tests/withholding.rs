//! Withheld items, and the reasons.

use std::time::Duration;

use super::*;
use crate::decision::{Urgency, When};
use crate::node::Machine;
use crate::rules::OtherMachine;

const TIER: &str = "node-restriction.kubernetes.io/tier";

/// The withheld items with their reasons, and the marker.
fn withheld(node: &Node, record: &Record, rules: &Rules) -> (Vec<(String, Why)>, String) {
    let patch = plan_restore(node, Stored::Record(record), rules, false).patch.expect("a patch");
    let withheld = patch.withheld.into_iter().map(|withheld| (withheld.name, withheld.why)).collect();
    (withheld, patch.marker.expect("a marker"))
}

/// A machine, from `providerID/systemUUID`, either of which may be empty.
fn machine(text: &str) -> Machine {
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let (provider_id, system_uuid) = text.split_once('/').expect("two names");
    Machine { provider_id: known(provider_id), system_uuid: known(system_uuid) }
}

/// The restored items, and the withheld ones with their reasons; `None` if the Node is not even marked.
fn restored_to(node: &Node, record: &Record, rules: &Rules) -> Option<[Vec<String>; 2]> {
    let plan = plan_restore(node, Stored::Record(record), rules, false);
    assert_eq!(plan.patch.is_none(), plan.reason == Reason::OtherMachine);
    let patch = plan.patch?;
    let withheld = patch.withheld.iter().map(|it| format!("{}:{}", it.why.as_str(), it.name)).collect();
    Some([patch.restored.into_keys().collect(), withheld])
}

/// The documented table, for each way in which machines can be the same, unknown or different.
#[test]
fn another_machine_gets_what_the_rules_say() {
    let placeholder = "/03000200-0400-0500-0006-000700080009";
    let all = || Some([vec![TIER.to_owned(), "pool".to_owned()], vec![]]);
    let untrusted = || Some([vec!["pool".to_owned()], vec![format!("other-machine:{TIER}")]]);
    for (had, has, is_other) in [
        ("p/A", "p/A", false),
        ("/ab-CD", "/AB-cd", false),
        ("/", "/", false),
        ("/A", "/", false),
        ("/", "/A", false),
        ("p/", "/A", false),
        ("/A", "p/", false),
        (placeholder, placeholder, false),
        ("/A", "/B", true),
        ("p/A", "p/B", true),
        ("p/A", "q/A", true),
        ("p/A", "/B", true),
        ("p/", "q/B", true),
    ] {
        let mut node = node("a").incarnation("u2").whole();
        node.extras.machine = machine(has);
        let mut record = record("a", "u1").label("pool", "gold").label(TIER, "x");
        record.more.machine = machine(had);
        for (rule, other) in
            [(OtherMachine::All, all()), (OtherMachine::Untrusted, untrusted()), (OtherMachine::None, None)]
        {
            let rules = Rules { other_machine: rule, ..Rules::default() };
            let expected = if is_other { other } else { all() };
            assert_eq!(restored_to(&node, &record, &rules), expected, "{rule}: {had} {has}");
        }
    }
}

/// The record was made from one machine, and has withheld items of another.
#[test]
fn a_withheld_item_is_restored_as_its_own_origin_allows() {
    let mut record =
        record("a", "u1").withheld(TIER, "x", Some("A")).withheld("pool", "gold", Some("A")).machine("B");
    record.more.machine.provider_id = Some("p".to_owned());
    let restored = |machine: &str, other_machine| {
        let rules = Rules { other_machine, ..Rules::default() };
        restored_to(&node("a").incarnation("u2").machine(machine), &record, &rules)
            .map(|[restored, _]| restored)
    };
    let (all, pool) = (Some(vec![TIER.to_owned(), "pool".to_owned()]), Some(vec!["pool".to_owned()]));
    assert_eq!(restored("B", OtherMachine::All), all);
    assert_eq!(restored("B", OtherMachine::Untrusted), pool);
    assert_eq!(restored("B", OtherMachine::None), Some(vec![]));
    assert_eq!(restored("A", OtherMachine::Untrusted), all);
    assert_eq!(restored("A", OtherMachine::None), None);
}

#[test]
fn trust_does_not_come_back_by_an_identity_that_a_kubelet_can_claim() {
    use crate::rules::IdentityBy::{Annotation, Label, Name, ProviderId, SystemUuid};
    let slot = || "example.com/slot".to_owned();
    for (identity, is_claimed) in [
        (Name, false),
        (ProviderId, true),
        (SystemUuid, true),
        (Label(slot()), true),
        (Annotation(slot()), true),
        (Label("node-restriction.kubernetes.io/slot".to_owned()), false),
    ] {
        let record = record("a", "u1").label(TIER, "x").label("pool", "gold").machine("A");
        for other_machine in [OtherMachine::All, OtherMachine::Untrusted, OtherMachine::None] {
            for (name, is_withheld) in [("a", false), ("b", is_claimed)] {
                let node = node(name).incarnation("u2").machine("A");
                let rules = Rules { identity: identity.clone(), other_machine, ..Rules::default() };
                let expected: Vec<_> =
                    is_withheld.then(|| (TIER.to_owned(), Why::OtherName)).into_iter().collect();
                assert_eq!(withheld(&node, &record, &rules).0, expected, "{identity} {other_machine} {name}");
            }
        }
    }
}

#[test]
fn trust_stays_withheld_from_a_name_that_has_taken_over_the_record() {
    let rules = Rules { identity: crate::rules::IdentityBy::SystemUuid, ..Rules::default() };
    let mut stored = record("victim", "u1").label(TIER, "x").label("pool", "gold").machine("A");
    stored.more.identity = Some("systemUUID=a".to_owned());
    for incarnation in ["u2", "u3", "u4"] {
        let thief = node("thief").incarnation(incarnation).machine("A");
        let (names, marker) = withheld(&thief, &stored, &rules);
        assert_eq!(names, [(TIER.to_owned(), Why::OtherName)], "{incarnation}");
        let restored = thief.marked(&marker).label("pool", "gold");
        stored = crate::fixtures::written(&stored.retaken(&restored, crate::fixtures::second(1), &rules));
        assert_eq!(stored.node, "thief");
    }
    let victim = node("victim").incarnation("u5").machine("A");
    assert_eq!(withheld(&victim, &stored, &rules).0, []);
    // A name that is not known is not the same.
    stored.more.withheld.get_mut(TIER).expect("it is kept").node = None;
    assert_eq!(withheld(&victim, &stored, &rules).0, [(TIER.to_owned(), Why::OtherName)]);
}

#[test]
fn trust_that_the_machine_has_by_now_is_not_overruled_by_another_machines() {
    let node = node("a").incarnation("u2").machine("B").label(TIER, "mine");
    let record = record("a", "u1").label(TIER, "x").machine("A");
    let conflicts = "*=record".parse().expect("conflicts");
    let rules = Rules { conflicts, other_machine: OtherMachine::Untrusted, ..Rules::default() };
    let patch = plan_restore(&node, Stored::Record(&record), &rules, false).patch.expect("a patch");
    assert!(patch.restored.is_empty() && patch.withheld.is_empty() && patch.conflicts.is_empty());
}

#[test]
fn what_tells_of_a_machines_state_is_never_brought_back() {
    let names = [
        "annotation:csi.volume.kubernetes.io/nodeid",
        "annotation:label-storage/ignore",
        "annotation:label-storage/restored",
        "annotation:volumes.kubernetes.io/controller-managed-attach-detach",
        "taint:NoExecute:node.kubernetes.io/not-ready",
        "taint:NoExecute:node.kubernetes.io/out-of-service",
        "taint:NoSchedule:label-storage/restoring",
        "taint:NoSchedule:node.cloudprovider.kubernetes.io/shutdown",
        "taint:NoSchedule:node.cloudprovider.kubernetes.io/uninitialized",
        "taint:NoSchedule:node.kubernetes.io/unschedulable",
    ];
    let record = names.iter().fold(record("a", "u1"), |record, name| record.label(name, "x"));
    let record = record.label("annotation:label-storage/keep", "pool");
    let node = node("a").incarnation("u2").whole();
    let patch =
        plan_restore(&node, Stored::Record(&record), &Rules::default(), false).patch.expect("a patch");
    assert_eq!(patch.withheld.iter().map(|withheld| &withheld.name).collect::<Vec<_>>(), names);
    assert!(patch.withheld.iter().all(|withheld| withheld.why == Why::Never));
    assert_eq!(patch.annotations().collect::<Vec<_>>(), [("label-storage/keep", "pool")]);
    assert_eq!(patch.taints, None);
}

#[test]
fn annotations_that_the_node_has_no_room_for_are_withheld_and_no_others() {
    let kilobytes = |count: usize| "x".repeat(count << 10);
    let record = record("a", "u1")
        .label("annotation:a", &kilobytes(100))
        .label("annotation:b", &kilobytes(100))
        .label("annotation:c", &kilobytes(50))
        .label("annotation:d", "small")
        .label("pool", "gold");
    for (own, too_large) in [
        (0, &["annotation:c"][..]),
        (60, &["annotation:b"]),
        (200, &["annotation:a", "annotation:b", "annotation:c"]),
    ] {
        let node = node("a").incarnation("u2").whole().annotated("own", &kilobytes(own));
        // The marker that is replaced takes no room.
        let node = node.annotated(crate::node::RESTORED, &kilobytes(50)).marked(&kilobytes(50));
        let (names, _) = withheld(&node, &record, &Rules::default());
        let expected: Vec<_> = too_large.iter().map(|name| ((*name).to_owned(), Why::TooLarge)).collect();
        assert_eq!(names, expected, "beside {own} KiB");
    }
    // A value that stays takes no room. A value that replaces another takes only the difference.
    let node =
        node("a").incarnation("u2").whole().annotated("a", &kilobytes(99)).annotated("b", &kilobytes(99));
    let record_wins = Rules { conflicts: "*=record".parse().expect("conflicts"), ..Rules::default() };
    for rules in [Rules::default(), record_wins] {
        assert_eq!(withheld(&node, &record, &rules).0, [("annotation:c".to_owned(), Why::TooLarge)]);
    }
}

#[test]
fn a_record_that_can_not_win_for_lack_of_room_does_not() {
    let node = node("a").incarnation("u2").whole().annotated("a", "mine");
    let record = record("a", "u1").label("annotation:a", &"x".repeat(250 << 10));
    let record_wins = Rules { conflicts: "*=record".parse().expect("conflicts"), ..Rules::default() };
    let patch = plan_restore(&node, Stored::Record(&record), &record_wins, false).patch.expect("a patch");
    assert_eq!(patch.conflicts, [Conflict { name: "annotation:a".to_owned(), winner: Winner::Node }]);
    assert!(patch.restored.is_empty() && patch.withheld.is_empty());
}

#[test]
fn a_marker_without_room_for_names_has_only_the_reasons() {
    let name = |i: usize| format!("{}.node-restriction.kubernetes.io/{i:04}", "x".repeat(60));
    let stored = |count| (0..count).fold(record("a", "u1"), |record, i| record.label(&name(i), "x"));
    // Read from machine A.
    let stored = |count| stored(count).machine("A");
    let node = node("a").incarnation("u2").machine("B");
    let untrusted = Rules { other_machine: OtherMachine::Untrusted, ..Rules::default() };
    for (count, named) in [(1, 1), (100, 100), (200, 1)] {
        let record = stored(count);
        let (names, marker) = withheld(&node, &record, &untrusted);
        assert_eq!(names.len(), count);
        assert!(marker.len() <= 16 << 10);
        assert_eq!(marker.ends_with("/other-machine:*"), named < count, "{marker}");
        let marked = node.clone().marked(&marker);
        assert_eq!(marked.withheld().count(), named, "{marker}");
        assert_eq!(marked.restored_from().map(|from| from.generation), Some(4));
        // Either way the storer keeps all of it.
        let now = crate::fixtures::second(1);
        let kept = record.retaken(&marked, now, &Rules::default());
        assert_eq!(kept.more.withheld.len(), count);
        assert_eq!(kept.labels, Labels::new());
    }
}

#[test]
fn withheld_items_are_tried_again() {
    let stored = record("a", "u2").withheld("bad", "x", Some("A")).withheld(TIER, "y", Some("A"));
    let stored = stored.withheld("other", "z", Some("A")).label("pool", "gold");
    let marked = |list: &str| node("a").incarnation("u2").machine("B").marked(&format!("u2/3{list}"));
    let untrusted = Rules { other_machine: OtherMachine::Untrusted, ..Rules::default() };
    let expect = |node: &Node, rules: &Rules, restored: &[&str], marker: &str| {
        let plan = plan_retry(node, &stored, rules).expect("a plan");
        assert_eq!(plan.reason, Reason::SameIncarnation);
        let patch = plan.patch.expect("a patch");
        assert_eq!(patch.restored.keys().collect::<Vec<_>>(), restored, "{node:?}");
        assert_eq!(patch.marker.as_deref(), Some(marker), "{node:?}");
    };
    // A trust label stays with its machine. The label `pool` was removed from the Node.
    let other_machine = format!("u2/4/other-machine:{TIER}");
    let all = format!("/other-machine:{TIER},refused:bad,refused:other");
    expect(&marked(&all), &untrusted, &["bad", "other"], &other_machine);
    // The rules have changed, and the marker may have had no room for the names.
    expect(&marked("/other-machine:*"), &Rules::default(), &["bad", TIER, "other"], "u2/4");
    // The Node has changed: only the marker is wrong.
    let whole = marked(&all).label("bad", "own").label("other", "own");
    expect(&whole, &untrusted, &[], &other_machine);
    // One is refused again.
    let mut again = marked(&all);
    again.extras.refused = [("bad".to_owned(), "no".to_owned())].into();
    expect(&again, &untrusted, &["other"], &format!("{other_machine},refused:bad"));
    // All are withheld again.
    let trusted = record("a", "u2").withheld(TIER, "y", Some("A"));
    let same = marked(&format!("/other-machine:{TIER}"));
    assert_eq!(plan_retry(&same, &trusted, &untrusted), None);
    // The Node had the others, and a person has removed them.
    expect(&marked("/refused:bad"), &untrusted, &["bad"], "u2/4");
    assert_eq!(plan_retry(&marked(""), &stored, &untrusted), None);
}

#[test]
fn withheld_items_that_need_the_whole_node_are_read_first() {
    let stored = record("a", "u2").withheld("annotation:owner", "me", None);
    let node = node("a").incarnation("u2").marked("u2/3/refused:annotation:owner");
    let plan = plan_retry(&node, &stored, &Rules::default()).expect("a plan");
    assert_eq!((plan.reason, plan.patch), (Reason::SeenInPart, None));
}

#[test]
fn a_retry_waits_for_its_time() {
    let record = record("a", "u2").label("k", "v").summary();
    let when = |of: &Node, left: Option<u64>| {
        let view = View {
            node: Some(of.summary()),
            stored: Stored::Record(record),
            is_unsure: false,
            is_other_machine: false,
            taint_left: None,
            until_retry: left.map(Duration::from_secs),
        };
        view.decide().when
    };
    let own = node("a").incarnation("u2");
    assert_eq!(when(&own, None), When::Never);
    assert_eq!(when(&own, Some(3600)), When::Never, "the next list shows it again");
    for left in [60, 0] {
        assert_eq!(when(&own, Some(left)), When::After(Duration::from_secs(left), Urgency::Tidy));
    }
    let new = node("a").incarnation("u3");
    assert_eq!(when(&new, Some(0)), When::Now(Urgency::Soon), "all of it is restored");
}

#[test]
fn what_the_cluster_refuses_is_withheld_and_the_rest_is_restored() {
    let mut node = node("a").incarnation("u2").label("own", "mine").whole();
    let record = record("a", "u1").label("bad", "x").label("good", "y").label("own", "theirs");
    node.extras.refused = ["bad", "own"].map(|name| (name.to_owned(), "no".to_owned())).into();
    let rules = Rules { conflicts: "*=record".parse().expect("conflicts"), ..Rules::default() };
    let patch = plan_restore(&node, Stored::Record(&record), &rules, false).patch.expect("a patch");
    assert_eq!(patch.restored, [("good".to_owned(), "y".to_owned())].into());
    assert_eq!(patch.withheld, [Withheld { name: "bad".to_owned(), why: Why::Refused }]);
    assert_eq!(patch.marker.as_deref(), Some("u2/4/refused:bad"));
}
