//! The name of the ConfigMap that keeps a Node's labels.

use crate::key::hex_sha256;

const MAX_NAME: usize = 253;
const PREFIX: &str = "label-storage.";
/// Differs from [`PREFIX`] before its end, so that no node, however it is named, has another's record.
const SHORTENED_PREFIX: &str = "label-storage-long.";
const HASH: usize = 64;

/// The ConfigMap's name for a Node: `label-storage.` and the node's name, or, where that is over the limit of
/// 253 characters, the beginning of the name and a hash of all of it.
pub fn record_name(node: &str) -> String {
    if PREFIX.len() + node.len() <= MAX_NAME {
        return format!("{PREFIX}{node}");
    }
    let room = MAX_NAME - SHORTENED_PREFIX.len() - 1 - HASH;
    let mut cut = room.min(node.len());
    while !node.is_char_boundary(cut) {
        cut -= 1;
    }
    let head = node[..cut].trim_end_matches(['-', '.']);
    format!("{SHORTENED_PREFIX}{head}-{}", hex_sha256(node))
}

/// The Node's name, where the ConfigMap's name holds all of it.
pub fn node_in_record_name(record: &str) -> Option<&str> {
    record.strip_prefix(PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_fits_is_kept_whole() {
        assert_eq!(record_name("my-new-node"), "label-storage.my-new-node");
        let longest = "n".repeat(239);
        assert_eq!(record_name(&longest).len(), 253);
        assert_eq!(node_in_record_name(&record_name(&longest)), Some(longest.as_str()));
    }

    #[test]
    fn a_longer_name_is_shortened_and_hashed() {
        for length in [240, 252, 253] {
            let node = "n".repeat(length);
            let name = record_name(&node);
            assert!(name.len() <= 253, "{}", name.len());
            assert_eq!(name, record_name(&node), "the name is stable");
            assert_eq!(node_in_record_name(&name), None);
        }
    }

    #[test]
    fn names_that_differ_only_at_the_end_do_not_collide() {
        let head = "n".repeat(252);
        assert_ne!(record_name(&format!("{head}a")), record_name(&format!("{head}b")));
    }

    #[test]
    fn a_node_named_after_a_shortened_record_does_not_collide_with_it() {
        let long = "n".repeat(253);
        let shortened = record_name(&long);
        let impostor = &shortened[SHORTENED_PREFIX.len()..];
        assert_ne!(record_name(impostor), shortened);
    }

    #[test]
    fn the_cut_leaves_a_name_that_the_api_server_takes() {
        let node = format!("{}.{}", "a".repeat(168), "b".repeat(84));
        let name = record_name(&node);
        assert!(!name.contains(".-") && !name.contains("-."), "{name}");
    }
}
