mod encoder;
mod hostile;
mod lists;
mod objects;

use proptest::collection::btree_map;
use proptest::prelude::*;

use crate::{Format, OURS, Object};

const BOTH: [Format; 2] = [Format::Protobuf, Format::Json];

/// An object, and what else the API server sends with it.
#[derive(Debug, Clone, Default)]
struct Sample {
    object: Object,
    foreign_annotations: Vec<(String, String)>,
    managed_fields: Vec<u8>,
    number: i64,
}

fn sample(name: &str) -> Sample {
    let object = Object {
        name: name.to_owned(),
        uid: "0a1b".to_owned(),
        resource_version: "42".to_owned(),
        labels: [("kubernetes.io/hostname".to_owned(), name.to_owned())].into(),
        annotations: [(format!("{OURS}node"), name.to_owned())].into(),
        ..Object::default()
    };
    let foreign_annotations = vec![("example.com/huge".to_owned(), "x".repeat(300))];
    Sample { object, foreign_annotations, managed_fields: b"{\"f:metadata\":{}}".to_vec(), number: 1 }
}

fn format() -> impl Strategy<Value = Format> {
    prop_oneof![Just(Format::Protobuf), Just(Format::Json)]
}

fn any_sample() -> impl Strategy<Value = Sample> {
    let texts = || btree_map(".{0,40}", ".{0,40}", 0..6);
    let ours = btree_map("label-storage/[a-z]{0,9}", ".{0,40}", 0..4);
    let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
    let binary_data = btree_map("[a-z]{0,9}", bytes(), 0..3);
    let foreign = proptest::collection::vec(("[a-k].{0,20}", ".{0,300}"), 0..5);
    let head = (".{1,63}", ".{0,36}", "[0-9]{0,9}", any::<bool>());
    (head, texts(), ours, texts(), binary_data, foreign, bytes(), any::<i64>()).prop_map(
        |(head, labels, annotations, data, binary_data, foreign_annotations, managed_fields, number)| {
            let (name, uid, resource_version, is_terminating) = head;
            let object = Object {
                name,
                uid,
                resource_version,
                is_terminating,
                labels,
                annotations,
                data,
                binary_data,
            };
            Sample { object, foreign_annotations, managed_fields, number }
        },
    )
}
