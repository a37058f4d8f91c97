//! Whatever a record holds, whatever the rules: no patch that the API server would refuse, that overwrites what is the Node's, or that
//! touches what is nobody's to bring back.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;

use super::*;
use crate::fixtures::{decode, encode, some_choice};
use crate::node::Extras;
use crate::rules::OtherMachine;
use crate::{key, label, record};

const NAMES: [&str; 22] = [
    "pool",
    "example.com/pool",
    "kubernetes.io/hostname",
    "node-restriction.kubernetes.io/tier",
    "example.com.node-restriction.kubernetes.io/fips",
    "annotation:owner",
    "annotation:Example.com/Owner",
    "annotation:large",
    "annotation:label-storage/keep",
    "annotation:label-storage/restored",
    "annotation:csi.volume.kubernetes.io/nodeid",
    "taint:NoSchedule:gpu",
    "taint:NoExecute:gpu",
    "taint:PreferNoSchedule:example.com/spot",
    "taint:NoExecute:node.kubernetes.io/not-ready",
    "taint:NoSchedule:label-storage/restoring",
    "taint:Never:gpu",
    "cordon:",
    "history:3",
    "history:x",
    "not a name",
    "",
];

/// Those of them that are nobody's to bring back.
const NEVER: [&str; 4] = [
    "annotation:label-storage/restored",
    "annotation:csi.volume.kubernetes.io/nodeid",
    "taint:NoExecute:node.kubernetes.io/not-ready",
    "taint:NoSchedule:label-storage/restoring",
];

fn some_value() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => proptest::sample::select(vec!["", "x", "y", "true"]).prop_map(str::to_owned),
        1 => Just("no label value".to_owned()),
        1 => Just("x".repeat(120 << 10)),
        1 => (0..500usize).prop_map(|short| "x".repeat((256 << 10) - short)),
        1 => Just(r#"{"kept":{"pool":"x"}}"#.to_owned()),
    ]
}

/// A ConfigMap that anyone may have edited.
fn some_stored() -> impl Strategy<Value = ConfigMap> {
    let name = proptest::sample::select(&NAMES[..]);
    let data = proptest::collection::btree_map(name.clone(), some_value(), 0..12);
    let origin = proptest::sample::select(vec!["", "A", "B"]);
    let withheld = proptest::collection::btree_map(name, origin.clone(), 0..4);
    (data, withheld, proptest::option::weighted(0.9, origin), any::<bool>()).prop_map(
        |(data, withheld, machine, is_garbled)| {
            let mut config_map = encode(&crate::fixtures::record("a", "u1"));
            config_map.data = Some(data.iter().map(|(name, value)| key::encode_entry(name, value)).collect());
            let annotations = config_map.metadata.annotations.get_or_insert_default();
            let withheld =
                if is_garbled { "{".to_owned() } else { serde_json::to_string(&withheld).expect("JSON") };
            annotations.insert(record::WITHHELD.to_owned(), withheld);
            annotations.extend(machine.map(|machine| (record::SYSTEM_UUID.to_owned(), machine.to_owned())));
            config_map
        },
    )
}

fn some_node() -> impl Strategy<Value = Node> {
    let labels = proptest::collection::btree_map(proptest::sample::select(&NAMES[..5]), "[xy]", 0..3);
    let annotations =
        proptest::collection::btree_map(proptest::sample::select(&NAMES[5..11]), some_value(), 0..3);
    let taints = proptest::sample::subsequence(&NAMES[11..16], 0..4);
    let machine = proptest::sample::select(vec![None, Some("A"), Some("B")]);
    let marker = proptest::sample::select(vec![None, Some("u2/3"), Some("u2/4"), Some("u1/4")]);
    (labels, annotations, taints, machine, marker, any::<bool>(), any::<bool>()).prop_map(
        |(labels, annotations, taints, machine, marker, is_unschedulable, is_whole)| {
            let text = |(name, value): (&str, String)| (name.to_owned(), value);
            let annotation = |(name, value): (&str, String)| (name["annotation:".len()..].to_owned(), value);
            let mut node = node("a").incarnation("u2");
            node.labels = labels.into_iter().map(text).collect();
            node.marker = marker.map(str::to_owned);
            node.extras.annotations = annotations.into_iter().map(annotation).collect();
            if is_whole {
                let taint = |name: &str| match Item::parse(name) {
                    Some(Item::Taint { effect, key }) => {
                        Some(crate::fixtures::taint(&format!("{key}=x:{effect}")))
                    }
                    _ => None,
                };
                let mut taints: Vec<_> = taints.into_iter().filter_map(taint).collect();
                taints
                    .iter_mut()
                    .for_each(|taint| taint.time_added = Some("2026-11-16T06:48:56Z".to_owned()));
                let machine =
                    crate::node::Machine { provider_id: None, system_uuid: machine.map(str::to_owned) };
                let extras = std::mem::take(&mut node.extras);
                node.extras = Extras { taints, machine, is_unschedulable, is_whole, ..extras };
            }
            node
        },
    )
}

fn some_rules() -> impl Strategy<Value = Rules> {
    let winner = || proptest::sample::select(vec!["node", "record", "report"]);
    let pattern = proptest::sample::select(vec!["pool", "annotation:*", "taint:*:gpu", "*gpu", "cordon:"]);
    let other_machine =
        proptest::sample::select(vec![OtherMachine::All, OtherMachine::Untrusted, OtherMachine::None]);
    (some_choice(), pattern, winner(), winner(), any::<bool>(), other_machine).prop_map(
        |(choice, pattern, one, other, startup, other_machine)| Rules {
            conflicts: format!("{pattern}={one},*={other}").parse().expect("conflicts"),
            other_machine,
            startup_taint: startup.then_some(Rules::STARTUP_TAINT),
            ..choice
        },
    )
}

fn annotation_bytes(node: &Node) -> usize {
    node.extras.annotations.iter().map(|(key, value)| key.len() + value.len()).sum()
}

/// The Node after a patch, as the API server makes it; it panics where that would refuse it.
fn patched(node: &Node, patch: &Patch) -> Node {
    assert_eq!((&patch.uid, patch.version), (&node.uid, node.version), "guarded by what was read");
    let mut after = node.clone();
    for (key, value) in patch.labels() {
        assert!(label::is_key(key) && label::is_value(value), "{key}={value}");
        after.labels.insert(key.to_owned(), value.to_owned());
    }
    let marker = patch.marker.iter().map(|marker| (crate::node::RESTORED, marker.as_str()));
    for (key, value) in patch.annotations().chain(marker) {
        assert!(label::is_annotation_key(key));
        after.extras.annotations.insert(key.to_owned(), value.to_owned());
    }
    let size = annotation_bytes(&after);
    let grows = after.extras.annotations != node.extras.annotations;
    assert!(size <= 256 << 10 || !grows, "annotations of {size} bytes");
    after.marker = patch.marker.clone().or(after.marker);
    after.extras.is_unschedulable |= patch.cordons();
    if let Some(taints) = &patch.taints {
        let mut seen = BTreeSet::new();
        for taint in taints {
            assert!(label::is_key(&taint.key) && label::is_value(&taint.value), "{taint:?}");
            assert!(seen.insert((&taint.key, &taint.effect)), "{taint:?} twice");
        }
        after.extras.taints.clone_from(taints);
    }
    after
}

/// Only restored items change, and no item that the Node has.
fn check(node: &Node, after: &Node, patch: &Patch, rules: &Rules) {
    for (name, value) in &patch.restored {
        let kept = Item::parse(name).expect("a name");
        assert_eq!(after.value_of(kept), Some(value.as_str()), "{name}");
        assert!(node.value_of(kept).is_none() || rules.conflicts.winner(name) == Winner::Record, "{name}");
        assert!(!NEVER.contains(&name.as_str()), "{name}");
    }
    for taint in &node.extras.taints {
        let name = Item::Taint { effect: &taint.effect, key: &taint.key }.to_string();
        let found =
            after.extras.taints.iter().find(|other| other.effect == taint.effect && other.key == taint.key);
        match found {
            Some(found) => {
                assert_eq!(found.time_added, taint.time_added);
                assert!(found.value == taint.value || patch.restored.contains_key(&name), "{name}");
            }
            None => assert!(taint.key == STARTUP_TAINT && rules.startup_taint.is_some(), "{name} is gone"),
        }
    }
    let added =
        |taint: &&Taint| node.value_of(Item::Taint { effect: &taint.effect, key: &taint.key }).is_none();
    for taint in after.extras.taints.iter().filter(added) {
        let name = Item::Taint { effect: &taint.effect, key: &taint.key }.to_string();
        assert!(patch.restored.contains_key(&name), "{name} came from nowhere");
    }
}

/// All that the record has is there, or it is said why not.
fn check_complete(node: &Node, after: &Node, record: &Record, patch: &Patch) {
    for (name, value, _) in record.all() {
        let kept = Item::parse(name).expect("a name");
        let is_there = after.value_of(kept) == Some(value);
        let is_in_conflict = node.value_of(kept).is_some();
        let is_withheld = patch.withheld.iter().any(|withheld| withheld.name == name);
        assert!(is_there || is_in_conflict || is_withheld, "{name}");
        assert!(!(is_there && is_withheld), "{name} is there and withheld");
    }
    let named: BTreeSet<_> = after.withheld().collect();
    // Where there is no room for names, one stands for all of them.
    let is_full = annotation_bytes(after) + 200 > 256 << 10;
    if !(is_full && named.contains(EVERYTHING)) {
        assert_eq!(named, patch.withheld.iter().map(|withheld| withheld.name.as_str()).collect());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn every_patch_is_valid_and_touches_only_what_it_may(
        stored in some_stored(), node in some_node(), rules in some_rules(), is_overdue: bool,
    ) {
        let record = decode(&stored).record;
        let plan = plan_restore(&node, Stored::Record(&record), &rules, is_overdue);
        let Some(patch) = plan.patch else { return Ok(()) };
        // The restorer ignores keep lists.
        let conflicts = rules.conflicts.clone();
        let plain = Rules { conflicts, other_machine: rules.other_machine, startup_taint: rules.startup_taint, ..Rules::default() };
        let unchosen = plan_restore(&node, Stored::Record(&record), &plain, is_overdue);
        prop_assert_eq!(unchosen.patch.as_ref(), Some(&patch));
        let after = patched(&node, &patch);
        check(&node, &after, &patch, &rules);
        if patch.marker.is_some() {
            check_complete(&node, &after, &record, &patch);
        } else {
            prop_assert!(patch.restored.is_empty() && patch.lifts_startup_taint);
        }
        // Once is enough.
        let again = plan_restore(&after, Stored::Record(&record), &rules, is_overdue);
        prop_assert_eq!(again.patch, None);
    }

    #[test]
    fn no_trust_label_of_another_machine_is_restored(stored in some_stored(), node in some_node(), rules in some_rules()) {
        let rules = Rules { other_machine: OtherMachine::Untrusted, ..rules };
        let record = decode(&stored).record;
        let patch = plan_restore(&node, Stored::Record(&record), &rules, false).patch;
        for (name, value) in patch.iter().flat_map(|patch| &patch.restored) {
            if !name.contains("node-restriction") {
                continue;
            }
            let origin = record.all().find(|(other, its, _)| other == name && its == value);
            prop_assert!(origin.is_some_and(|(_, _, origin)| !origin.machine.differs_from(&node.extras.machine)));
        }
    }
}
