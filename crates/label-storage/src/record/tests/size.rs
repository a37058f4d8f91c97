//! The size of a record, to the byte.

use super::*;
use crate::fixtures::decode;

/// A record of this many bytes of `data` and `binaryData`, most of them binary.
fn of_size(record: &Record, bytes: usize) -> Record {
    let mut record = record.clone();
    let data = record.labels.iter().map(|(name, value)| key::encode(name).len() + value.len());
    let binary = bytes - data.sum::<usize>() - "blob".len();
    record.leftovers.binary_data.insert("blob".to_owned(), ByteString(vec![0; binary]));
    record
}

fn versions(record: &Record) -> Vec<u64> {
    decode(&encode(record)).record.more.history.iter().map(|version| version.generation).collect()
}

#[test]
fn labels_and_binary_data_together_may_fill_a_config_map_to_the_byte() {
    let full = of_size(&good(), MAX_BYTES);
    assert_eq!(decode(&encode(&full)).record, full);
    let over = of_size(&good(), MAX_BYTES + 1).encode_into(&mut ConfigMap::default());
    assert_eq!(over, Err(TooLarge { node: "my-new-node".to_owned(), bytes: MAX_BYTES + 1 }));
    let far_over = of_size(&good(), 2 * MAX_BYTES).encode_into(&mut ConfigMap::default());
    assert_eq!(far_over, Err(TooLarge { node: "my-new-node".to_owned(), bytes: 2 * MAX_BYTES }));
}

#[test]
fn versions_fill_what_is_left_to_the_byte() {
    let version = |generation: u64, length: usize| Version {
        generation,
        at: None,
        labels: [("annotation:note".to_owned(), "x".repeat(length))].into(),
    };
    let mut record = good();
    record.more.history = vec![version(1, 10), version(2, 2000), version(3, 300)];
    let data = encode(&record).data.expect("data");
    let size = |generation: u64| {
        let data_key = format!("history-COLON-{generation}");
        data_key.len() + data[&data_key].len()
    };
    let with_left = |left: usize| versions(&of_size(&record, MAX_BYTES - left));
    assert_eq!(with_left(0), [0; 0]);
    assert_eq!(with_left(size(3) - 1), [0; 0]);
    assert_eq!(with_left(size(3)), [3]);
    assert_eq!(with_left(size(3) + size(2) - 1), [3], "the oldest does not take the place of a later one");
    assert_eq!(with_left(size(3) + size(2)), [2, 3]);
    assert_eq!(with_left(size(3) + size(2) + size(1) - 1), [2, 3]);
    assert_eq!(with_left(size(3) + size(2) + size(1)), [1, 2, 3]);
}
