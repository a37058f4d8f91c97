//! The record key, and the machine in a record.

use super::*;
use crate::fixtures::{decode, node};

fn filed(identity: &str) -> Record {
    let mut record = good().machine("A");
    record.more.identity = Some(identity.to_owned());
    record.more.machine.provider_id = Some("aws:///eu-west-1a/i-0".to_owned());
    record
}

#[test]
fn what_a_record_is_filed_under_survives_the_round_trip() {
    for identity in [
        "providerID=aws:///eu-west-1a/i-0",
        "systemUUID=A",
        "label:example.com/serial=7",
        "annotation:x=ä = b\n",
    ] {
        let record = filed(identity);
        let config_map = encode(&record);
        assert_eq!(config_map.metadata.name, Some(record_name(identity)));
        let decoded = decode(&config_map);
        assert_eq!((decoded.record.filed_under(), decoded.damage), (identity, vec![]));
        assert_eq!(decoded.record, record);
    }
    assert_eq!(good().filed_under(), "my-new-node");
}

#[test]
fn a_record_follows_what_its_node_is_called() {
    let mut node = node("new-name").incarnation("u2").marked("u2/4").machine("A");
    node.extras.identity = Some("systemUUID=A".to_owned());
    let next = filed("systemUUID=A").retaken(&node, second(1), &Rules::default());
    assert_eq!((next.node.as_str(), next.filed_under()), ("new-name", "systemUUID=A"));
    assert_eq!(encode(&next).metadata.name, encode(&filed("systemUUID=A")).metadata.name);
}

#[test]
fn a_record_that_says_another_identity_than_its_name_is_not_believed() {
    for (identity, other) in [("systemUUID=A", "systemUUID=B"), ("systemUUID=A", "providerID=A")] {
        let mut config_map = encode(&filed(identity));
        annotate(&mut config_map, IDENTITY, other);
        let refused = Record::decode(&config_map);
        assert!(matches!(refused, Err(Unreadable::AnotherIdentity { .. })), "{refused:?}");
    }
    let refused = tampered(|config_map| annotate(config_map, IDENTITY, "systemUUID=A"));
    assert!(matches!(refused, Err(Unreadable::AnotherIdentity { .. })), "{refused:?}");
    // And one that has lost it is not taken for a node's.
    let mut config_map = encode(&filed("systemUUID=A"));
    remove_annotation(&mut config_map, IDENTITY);
    assert!(matches!(Record::decode(&config_map), Err(Unreadable::AnotherNode { .. })));
    remove_annotation(&mut config_map, NODE);
    assert!(matches!(Record::decode(&config_map), Err(Unreadable::NoNode(_))));
}

#[test]
fn a_mere_name_is_no_identity() {
    let decoded = tampered(|config_map| annotate(config_map, IDENTITY, "my-new-node"));
    assert_eq!(decoded, Ok(Decoded { record: good(), damage: vec![Damage::Annotation(IDENTITY)] }));
    let refused = tampered(|config_map| {
        annotate(config_map, IDENTITY, "my-new-node");
        annotate(config_map, NODE, "other");
    });
    assert!(matches!(refused, Err(Unreadable::AnotherNode { .. })), "{refused:?}");
}

#[test]
fn a_machine_without_a_name_is_unknown() {
    let decoded = tampered(|config_map| annotate(config_map, SYSTEM_UUID, "")).expect("readable");
    assert_eq!(decoded, Decoded { record: good(), damage: vec![] });
    // So is one whose name is longer than any: the record could not be written at all.
    let mut node = node("a").label("k", "v").machine(&"x".repeat(300 << 10));
    node.extras.machine.provider_id = Some("x".repeat(1025));
    assert!(Record::of(&node, second(1)).more.machine.is_unknown());
    node.extras.machine.provider_id = Some("x".repeat(1024));
    assert!(!Record::of(&node, second(1)).more.machine.is_unknown());
}

#[test]
fn what_was_withheld_survives_the_round_trip() {
    let record = good()
        .machine("B")
        .withheld("node-restriction.kubernetes.io/tier", "x", Some("A"))
        .withheld("annotation:large", "any text", None);
    let config_map = encode(&record);
    let annotations = config_map.metadata.annotations.as_ref().expect("annotations");
    assert_eq!(
        annotations[WITHHELD],
        r#"{"annotation:large":{"node":"my-new-node"},"node-restriction.kubernetes.io/tier":{"node":"my-new-node","systemUUID":"A"}}"#
    );
    assert_eq!(config_map.data.as_ref().expect("data")["annotation-COLON-large"], "any text");
    assert_eq!(decode(&config_map), Decoded { record, damage: vec![] });
}

#[test]
fn the_origin_of_a_withheld_item_may_be_a_system_uuid_alone() {
    let mut config_map = encode(&good().withheld("k", "v", None).withheld("l", "v", None));
    annotate(&mut config_map, WITHHELD, r#"{"k":"A","l":""}"#);
    let decoded = decode(&config_map);
    assert_eq!(decoded.damage, []);
    let origin = |name: &str| {
        let kept = &decoded.record.more.withheld[name];
        (kept.node.as_deref(), kept.machine.system_uuid.as_deref())
    };
    assert_eq!((origin("k"), origin("l")), ((None, Some("A")), (None, None)));
}

#[test]
fn without_a_readable_origin_a_withheld_item_is_one_of_the_nodes_own() {
    for garbage in ["", "{", "[]", r#"{"k":1}"#, r#"{"k":null}"#] {
        let mut config_map = encode(&good().machine("B").withheld("k", "v", Some("A")));
        annotate(&mut config_map, WITHHELD, garbage);
        let decoded = decode(&config_map);
        assert_eq!(decoded.damage, [Damage::Annotation(WITHHELD)]);
        assert_eq!(decoded.record, good().machine("B").label("k", "v"), "{garbage}");
    }
}

#[test]
fn what_a_person_removes_from_data_is_not_withheld_any_more() {
    let mut config_map = encode(&good().withheld("k", "v", Some("A")));
    config_map.data.get_or_insert_default().remove("k");
    let decoded = decode(&config_map);
    assert_eq!(decoded, Decoded { record: good(), damage: vec![] });
}

proptest! {
    #[test]
    fn no_two_things_are_filed_under_one_name(a in ".{0,20}", b in ".{0,20}", kind in "(systemUUID|providerID|label:a|annotation:b)") {
        let identity = format!("{kind}={a}");
        prop_assert_eq!(record_name(&identity) == record_name(&format!("{kind}={b}")), a == b);
        prop_assert_ne!(record_name(&identity), record_name(&a.replace('=', "")));
        prop_assert!(record_name(&identity).len() <= 253);
    }
}
