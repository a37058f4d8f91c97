use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::fixtures::{encode, node, record, second, uid, written};
use crate::key;
use crate::name::record_name;

mod damage;
mod edited;
mod history;
mod identity;
mod machines;
mod merged;
mod set_aside;
mod size;
mod two_pasts;

fn good() -> Record {
    record("my-new-node", "u1")
        .label("my_key", "my_test_value")
        .label("example.com/pool", "gold")
        .departed(600)
}

fn tampered(tamper: impl FnOnce(&mut ConfigMap)) -> Result<Decoded, Unreadable> {
    let mut config_map = encode(&good());
    tamper(&mut config_map);
    Record::decode(&config_map)
}

fn annotate(config_map: &mut ConfigMap, name: &str, value: &str) {
    config_map.metadata.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
}

fn remove_annotation(config_map: &mut ConfigMap, name: &str) {
    config_map.metadata.annotations.get_or_insert_default().remove(name);
}

#[test]
fn a_record_is_a_config_map_that_a_person_can_read() {
    let expected = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "label-storage.my-new-node",
            "labels": {"app.kubernetes.io/managed-by": "label-storage"},
            "annotations": {
                "label-storage/node": "my-new-node",
                "label-storage/node-uid": "u1",
                "label-storage/node-resource-version": "10",
                "label-storage/generation": "4",
                "label-storage/labels-generation": "4",
                "label-storage/captured-at": "1970-01-01T00:08:20Z",
                "label-storage/departed-at": "1970-01-01T00:10:00Z",
            },
        },
        "data": {"my_key": "my_test_value", "example.com-SLASH-pool": "gold"},
    });
    assert_eq!(serde_json::to_value(encode(&good())).expect("JSON"), expected);
}

#[test]
fn a_record_survives_the_round_trip() {
    let long = format!("{}/{}", "p".repeat(253), "n".repeat(63));
    for record in [
        good(),
        record("a", "u1"),
        good().label(&long, "v").label("a-SLASH-b", "").label("a/b", "x"),
        Record { uid: None, node_version: None, labels_generation: None, captured_at: None, ..good() },
        Record { node: "n".repeat(253), ..good() },
        good().leftover("not a key", "whatever").leftover("bad-value", "white space"),
    ] {
        assert_eq!(Record::decode(&encode(&record)).expect("readable").record, record);
    }
    assert_eq!(tampered(|_| ()).expect("readable").damage, []);
}

#[test]
fn a_replace_keeps_what_others_put_on_the_config_map() {
    let mut config_map = encode(&good());
    config_map.metadata.resource_version = Some("77".to_owned());
    config_map.metadata.labels.get_or_insert_default().insert("team".to_owned(), "a".to_owned());
    annotate(&mut config_map, "note", "mine");
    let next = good().with_departed_at(None);
    next.encode_into(&mut config_map).expect("it fits");
    let annotations = config_map.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations.get("note").map(String::as_str), Some("mine"));
    assert_eq!(annotations.get(DEPARTED_AT), None);
    assert_eq!(config_map.metadata.labels.clone().unwrap_or_default().len(), 2);
    assert_eq!(config_map.metadata.resource_version.as_deref(), Some("77"));
    assert_eq!(Record::decode(&config_map).expect("readable").record, next);
}

#[test]
fn a_record_that_has_lost_its_label_is_known_by_its_annotation() {
    let mut of_identity = good();
    of_identity.more.identity = Some("systemUUID=a".to_owned());
    for labelled in [good(), Record { node: "n".repeat(253), ..good() }, of_identity] {
        let mut config_map = encode(&labelled);
        config_map.metadata.labels = None;
        let Decoded { record, damage } = Record::decode(&config_map).expect("readable");
        assert!(record.more.is_unlabelled && damage.is_empty());
        assert_eq!(written(&record), labelled, "a write adds the label");
    }
}

#[test]
fn every_write_counts_one_up() {
    let node = crate::fixtures::node("a").label("k", "v");
    let first = Record::of(&node, second(1));
    assert_eq!((first.generation, first.retaken(&node, second(2), &Rules::default()).generation), (1, 2));
    assert_eq!(first.with_departed_at(Some(second(3))).generation, 2);
    let last = Record { generation: u64::MAX, ..first };
    assert_eq!(last.retaken(&node, second(2), &Rules::default()).generation, u64::MAX);
}

#[test]
fn only_a_change_of_labels_counts_as_one() {
    let node = crate::fixtures::node("a").label("k", "v");
    let first = Record::of(&node, second(1));
    assert_eq!(first.labels_generation, Some(1));
    assert_eq!(first.with_departed_at(Some(second(3))).labels_generation, Some(1));
    assert_eq!(
        first.retaken(&node.clone().incarnation("u2"), second(2), &Rules::default()).labels_generation,
        Some(1)
    );
    let changed = node.clone().label("k", "w");
    assert_eq!(first.retaken(&changed, second(2), &Rules::default()).labels_generation, Some(2));
    assert_eq!(first.merged(&changed, second(2), &Rules::default()).labels_generation, Some(2));
    assert_eq!(
        first.merged(&crate::fixtures::node("a"), second(2), &Rules::default()).labels_generation,
        Some(1)
    );
}

#[test]
fn a_marker_made_from_a_record_always_satisfies_it() {
    for (generation, labels_generation) in
        [("4", "4"), ("many", "17"), ("3", "17"), ("4", "x"), ("0", "18446744073709551615")]
    {
        let decoded = tampered(|config_map| {
            annotate(config_map, GENERATION, generation);
            annotate(config_map, LABELS_GENERATION, labels_generation);
        });
        let record = decoded.expect("readable").record;
        let node = crate::fixtures::node("my-new-node").incarnation("u2");
        assert!(!record.summary().is_restored_to(&node.summary()));
        let marker = node.marker_for(&record, []);
        assert!(
            record.summary().is_restored_to(&node.marked(&marker).summary()),
            "{generation} {labels_generation}"
        );
    }
}

#[test]
fn a_bad_annotation_costs_only_itself() {
    let cases: [(&'static str, &[&str], Record); 6] = [
        (NODE_UID, &["", "a b", "u/1", "ü"], Record { uid: None, ..good() }),
        (
            NODE_RESOURCE_VERSION,
            &["", "x", "-1", "1.5", "99999999999999999999"],
            Record { node_version: None, ..good() },
        ),
        (GENERATION, &["", "many", "-1", "1e9", "99999999999999999999"], good()),
        (LABELS_GENERATION, &["", "some", "-1"], Record { labels_generation: None, ..good() }),
        (
            CAPTURED_AT,
            &["", "yesterday", "0", "2026-13-01T00:00:00Z"],
            Record { captured_at: None, ..good() },
        ),
        (DEPARTED_AT, &["", "soon", "2026-11-16"], Record { departed_at: None, ..good() }),
    ];
    for (annotation, values, expected) in cases {
        for value in values {
            let decoded = tampered(|config_map| annotate(config_map, annotation, value)).expect("readable");
            assert_eq!(
                decoded,
                Decoded { record: expected.clone(), damage: vec![Damage::Annotation(annotation)] },
                "{value}"
            );
        }
    }
    for annotation in [NODE_RESOURCE_VERSION, GENERATION, LABELS_GENERATION, CAPTURED_AT, NODE] {
        let decoded = tampered(|config_map| remove_annotation(config_map, annotation)).expect("readable");
        assert_eq!(decoded.damage, [Damage::Annotation(annotation)]);
    }
    for annotation in [DEPARTED_AT, NODE_UID] {
        let decoded = tampered(|config_map| remove_annotation(config_map, annotation)).expect("readable");
        assert_eq!(decoded.damage, [], "{annotation}");
    }
}

#[test]
fn a_bad_entry_costs_only_itself_and_is_kept() {
    let long = format!("-LONG-{}", "0".repeat(64));
    let cases = [
        ("a/b", "v", Damage::Key("a/b".to_owned())),
        ("-DASH-x", "v", Damage::Key("-DASH-x".to_owned())),
        ("-SLASH-x", "v", Damage::Key("-SLASH-x".to_owned())),
        ("..a", "v", Damage::Key("..a".to_owned())),
        ("pool", "white space", Damage::Value("pool".to_owned(), "white space".to_owned())),
        ("pool", "multi\nline", Damage::Value("pool".to_owned(), "multi\nline".to_owned())),
        (long.as_str(), "v", Damage::Value(long.clone(), "v".to_owned())),
    ];
    for (key, value, damage) in cases {
        let decoded = tampered(|config_map| {
            config_map.data.get_or_insert_default().insert(key.to_owned(), value.to_owned());
        });
        assert_eq!(decoded, Ok(Decoded { record: good().leftover(key, value), damage: vec![damage] }));
    }
}

#[test]
fn binary_data_is_no_label_and_is_kept() {
    let decoded = tampered(|config_map| {
        config_map.binary_data = Some([("blob".to_owned(), ByteString(vec![0, 255]))].into());
    })
    .expect("readable");
    assert_eq!(decoded.damage, [Damage::Binary("blob".to_owned())]);
    assert_eq!(decoded.record.labels, good().labels);
    let again = Record::decode(&encode(&decoded.record)).expect("readable");
    assert_eq!(again, decoded);
}

#[test]
fn a_value_that_was_not_utf8_is_not_restored_and_is_kept() {
    for key in ["my_key", "annotation-COLON-example.com-SLASH-motd"] {
        let decoded = tampered(|config_map| {
            config_map.data.get_or_insert_default().insert(key.to_owned(), "gold\u{fffd}".to_owned());
        })
        .expect("readable");
        assert_eq!(decoded.damage, [Damage::Value(key.to_owned(), "gold\u{fffd}".to_owned())]);
        assert_eq!(encode(&decoded.record).data.expect("data")[key], "gold\u{fffd}");
    }
}

#[test]
fn somebody_elses_config_map_is_not_a_record() {
    let foreign = Err(Unreadable::Foreign("label-storage.my-new-node".to_owned()));
    let other = [(MANAGED_BY.0.to_owned(), "helm".to_owned())];
    for labels in [None, Some(other.into())] {
        for node in [None, Some("other")] {
            let decoded = tampered(|config_map| {
                config_map.metadata.labels = labels.clone();
                remove_annotation(config_map, NODE);
                node.into_iter().for_each(|node| annotate(config_map, NODE, node));
            });
            assert_eq!(decoded, foreign);
        }
    }
}

#[test]
fn a_record_that_names_another_node_is_not_believed() {
    let another = tampered(|config_map| annotate(config_map, NODE, "other"));
    let record = "label-storage.my-new-node".to_owned();
    assert_eq!(another, Err(Unreadable::AnotherNode { record, node: "other".to_owned() }));
}

#[test]
fn a_shortened_record_without_the_full_name_is_not_guessed_at() {
    let mut config_map = encode(&Record { node: "n".repeat(253), ..good() });
    remove_annotation(&mut config_map, NODE);
    assert!(matches!(Record::decode(&config_map), Err(Unreadable::NoNode(_))));
}

#[test]
fn an_empty_config_map_is_refused_without_a_panic() {
    assert_eq!(Record::decode(&ConfigMap::default()), Err(Unreadable::Foreign(String::new())));
}

#[test]
fn json_of_the_wrong_types_is_refused_without_a_panic() {
    for wrong in [json!({"data": {"k": 1}}), json!({"data": "k"}), json!({"metadata": {"annotations": []}})] {
        assert!(serde_json::from_value::<ConfigMap>(wrong).is_err());
    }
    let null = json!({"metadata": {"name": null, "annotations": null}, "data": null});
    let config_map: ConfigMap = serde_json::from_value(null).expect("nulls are absent fields");
    assert!(Record::decode(&config_map).is_err());
}

#[test]
fn a_record_at_the_size_limit_is_written_and_one_over_it_is_not() {
    let size =
        |record: &Record| record.labels.iter().map(|(k, v)| key::encode(k).len() + v.len()).sum::<usize>();
    // 7 characters of key and 63 of value each.
    let labels = (MAX_BYTES - size(&good())) / 70;
    let record = (0..labels).fold(good(), |record, i| record.label(&format!("k{i:06}"), &"v".repeat(63)));
    let room = MAX_BYTES - size(&record);
    let record = record.label("x", &"v".repeat(room.saturating_sub(1).min(63)));
    assert!(size(&record) <= MAX_BYTES);
    assert_eq!(Record::decode(&encode(&record)).expect("readable").record, record);

    let over = record.label("one-more", &"v".repeat(63)).label("and-another", &"v".repeat(63));
    let bytes = size(&over);
    let refused = over.encode_into(&mut ConfigMap::default());
    assert_eq!(refused, Err(TooLarge { node: "my-new-node".to_owned(), bytes }));
}

#[test]
fn a_huge_hostile_entry_is_named_in_few_words() {
    let decoded = tampered(|config_map| {
        config_map.data.get_or_insert_default().insert("ü".repeat(1 << 19), "v".to_owned());
    });
    let damage = decoded.expect("readable").damage;
    assert!(damage.iter().all(|what| what.to_string().len() < 300), "{damage:?}");
}

proptest! {
    #[test]
    fn nothing_in_a_config_map_makes_decoding_panic_or_lose_an_entry(
        data in proptest::collection::btree_map(".{0,300}", ".{0,80}", 0..20),
        annotations in proptest::collection::btree_map(
            prop_oneof![Just(NODE_UID), Just(GENERATION), Just(CAPTURED_AT), Just(DEPARTED_AT), Just(NODE_RESOURCE_VERSION)],
            ".{0,40}", 0..5),
    ) {
        let mut config_map = encode(&record("a", "u1"));
        for (name, value) in &annotations {
            annotate(&mut config_map, name, value);
        }
        config_map.data = Some(data.clone());
        let decoded = Record::decode(&config_map).expect("readable");
        prop_assert_eq!(decoded.record.labels.len() + decoded.record.leftovers.data.len(), data.len());
        let mut again = ConfigMap::default();
        decoded.record.encode_into(&mut again).expect("it fits");
        prop_assert_eq!(again.data, Some(data));
    }
}

#[test]
fn a_uid_that_could_not_be_written_into_a_marker_is_none() {
    assert_eq!(uid("189fb836-92a5-4a4b-a3a6-3ab1a1f1c1ab").as_str().len(), 36);
    for bad in ["", "a/b", "a b", "\n"] {
        assert_eq!(Uid::new(bad), None);
    }
}

#[test]
fn a_record_stays_in_its_config_map() {
    let record = Record { config_map: Some(uid("c1")), ..record("a", "u1").label("k", "v") };
    let (next, rules) = (node("a").label("k", "w").at(12), Rules::default());
    for record in [
        record.touched(),
        record.with_departed_at(None),
        record.retaken(&next, second(1), &rules),
        record.merged(&next, second(1), &rules),
    ] {
        assert_eq!(record.config_map, Some(uid("c1")), "{record:?}");
    }
    assert_eq!(Record::of(&next, second(1)).config_map, None, "it has none yet");
}

#[test]
fn a_tombstone_has_nothing_of_its_node_but_the_name() {
    let tombstone = Record::tombstone(&node("a").label("k", "v").at(12).machine("M"), second(1));
    assert!(tombstone.is_empty() && tombstone.labels.is_empty() && tombstone.uid.is_none());
    assert!(tombstone.more.machine.is_unknown());
    assert_eq!((tombstone.node.as_str(), tombstone.node_version), ("a", Some(ResourceVersion(0))));
}
