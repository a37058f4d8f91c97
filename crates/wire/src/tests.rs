mod hostile;
mod lists;
mod nodes;
mod objects;

use jiff::Timestamp;
use proptest::collection::btree_map;
use proptest::prelude::*;

use crate::fixtures::{self, Sample};
use crate::{Asked, Content, NodePart, Object, Taint};

/// The prefix of the annotations that are kept here.
const OURS: &str = "label-storage/";

const METADATA: Asked<'_> = asked(Content::Metadata);
const CONFIG_MAP: Asked<'_> = asked(Content::ConfigMap);
const NODE: Asked<'_> = asked(Content::Node);

const fn asked(content: Content) -> Asked<'static> {
    Asked { content, annotations: &|key| key.starts_with(OURS) }
}

fn sample(name: &str) -> Sample {
    let object = Object {
        name: name.to_owned(),
        uid: "0a1b".to_owned(),
        resource_version: "42".to_owned(),
        created_at: Timestamp::from_second(1_700_000_000).ok(),
        labels: [("kubernetes.io/hostname".to_owned(), name.to_owned())].into(),
        annotations: [(format!("{OURS}node"), name.to_owned())].into(),
        ..Object::default()
    };
    let foreign_annotations = vec![("example.com/huge".to_owned(), "x".repeat(300))];
    Sample { object, foreign_annotations, managed_fields: b"{\"f:metadata\":{}}".to_vec(), number: 1 }
}

/// A Node with all fields that are read.
fn node_sample(name: &str) -> Sample {
    let taint = |key: &str, value: &str, effect: &str, time_added: Option<&str>| Taint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect: effect.to_owned(),
        time_added: time_added.map(str::to_owned),
    };
    let node = NodePart {
        provider_id: "aws:///eu-west-1a/i-0123456789abcdef0".to_owned(),
        is_unschedulable: true,
        taints: vec![
            taint("dedicated", "gpu", "NoSchedule", None),
            taint("example.com/drain", "", "NoExecute", Some("2026-01-01T00:00:00Z")),
        ],
        system_uuid: "ec2e1916-9099-7caf-fd21-32c3a1e70b84".to_owned(),
    };
    let sample = sample(name);
    Sample { object: Object { node: Some(node), ..sample.object }, ..sample }
}

/// An event of a Node or a ConfigMap.
fn event(r#type: &str, sample: &Sample) -> Vec<u8> {
    let kind = if sample.object.node.is_some() { "Node" } else { "ConfigMap" };
    fixtures::event(r#type, fixtures::object(kind, sample))
}

fn any_sample() -> impl Strategy<Value = Sample> {
    let texts = || btree_map(".{0,40}", ".{0,40}", 0..6);
    let ours = btree_map("label-storage/[a-z]{0,9}", ".{0,40}", 0..4);
    let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
    let binary_data = btree_map("[a-z]{0,9}", bytes(), 0..3);
    let foreign = proptest::collection::vec(("[a-k].{0,20}", ".{0,300}"), 0..5);
    let created_at = proptest::option::of(time());
    let head = (".{1,63}", ".{0,36}", "[0-9]{0,9}", created_at, any::<bool>());
    (head, texts(), ours, texts(), binary_data, foreign, bytes(), any::<i64>()).prop_map(
        |(head, labels, annotations, data, binary_data, foreign_annotations, managed_fields, number)| {
            let (name, uid, resource_version, created_at, is_terminating) = head;
            let object = Object {
                name,
                uid,
                resource_version,
                created_at,
                is_terminating,
                labels,
                annotations,
                data,
                binary_data,
                node: None,
            };
            Sample { object, foreign_annotations, managed_fields, number }
        },
    )
}

/// From the year 1 to 9999.
fn time() -> impl Strategy<Value = Timestamp> {
    (-62_135_596_799..=Timestamp::MAX.as_second())
        .prop_map(|seconds| Timestamp::from_second(seconds).expect("a time"))
}

fn any_node_sample() -> impl Strategy<Value = Sample> {
    let time = time().prop_map(|time| time.to_string());
    let taint = (".{0,40}", ".{0,40}", "[A-Za-z]{0,16}", proptest::option::of(time))
        .prop_map(|(key, value, effect, time_added)| Taint { key, value, effect, time_added });
    let taints = proptest::collection::vec(taint, 0..4);
    (any_sample(), ".{0,60}", any::<bool>(), taints, ".{0,36}").prop_map(
        |(sample, provider_id, is_unschedulable, taints, system_uuid)| {
            let node = Some(NodePart { provider_id, is_unschedulable, taints, system_uuid });
            let (data, binary_data) = Default::default();
            Sample { object: Object { node, data, binary_data, ..sample.object }, ..sample }
        },
    )
}
