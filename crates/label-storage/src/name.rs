//! The name of the ConfigMap that keeps a Node's labels: after what its record is filed under, which is the Node's name, unless the
//! rules say otherwise (see [`Node::filed_under`](crate::Node::filed_under)).

use crate::key::hex_sha256;

const MAX_NAME: usize = 253;
const PREFIX: &str = "label-storage.";
/// Differs from [`PREFIX`] before its end, so that no node, however it is named, has another's record.
const SHORTENED_PREFIX: &str = "label-storage-long.";
/// For what is no name: an instance, a machine, or whatever a label or an annotation says.
const IDENTITY_PREFIX: &str = "label-storage-id.";
const HASH: usize = 64;
/// What tells an identity from a Node's name, which can't have it.
const IDENTITY: char = '=';

/// The ConfigMap's name for what is filed under this: `label-storage.` and the node's name, or, where that is over the limit of
/// 253 characters, the beginning of the name and a hash of all of it. What is no node's name is hashed, too, after as much
/// of it as can be read.
pub fn record_name(node: &str) -> String {
    if let Some((_, value)) = node.split_once(IDENTITY) {
        let slug = value.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let room = MAX_NAME - IDENTITY_PREFIX.len() - 1 - HASH;
        // What comes last tells one instance from another.
        let slug = slug[slug.len().saturating_sub(room)..].trim_matches('-');
        let separator = if slug.is_empty() { "" } else { "-" };
        return format!("{IDENTITY_PREFIX}{slug}{separator}{}", hex_sha256(node));
    }
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

/// Whether a ConfigMap of this name is in the place of a record.
pub fn is_record_name(name: &str) -> bool {
    [PREFIX, SHORTENED_PREFIX, IDENTITY_PREFIX].iter().any(|prefix| name.starts_with(prefix))
}

/// Whether something is filed under this that is no Node's name.
pub(crate) fn is_identity(filed_under: &str) -> bool {
    filed_under.contains(IDENTITY)
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
    fn an_identity_that_is_no_name_can_still_be_recognised() {
        let name = record_name("providerID=aws:///eu-west-1a/i-0AbC");
        assert!(name.starts_with("label-storage-id.aws----eu-west-1a-i-0abc-"), "{name}");
        for identity in
            ["providerID=aws:///eu-west-1a/i-0abc", "label:a=i-0AbC", "systemUUID=", "label:x=äöü"]
        {
            let other = record_name(identity);
            assert_ne!(other, name);
            assert!(other.len() <= 253 && !other.contains(".-") && !other.contains("--label"), "{other}");
            assert!(
                other.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b))
            );
            assert_eq!(node_in_record_name(&other), None);
        }
        assert_eq!(record_name(&format!("providerID={}", "x".repeat(400))).len(), 253);
    }

    #[test]
    fn every_record_has_the_name_of_one_and_the_rules_do_not() {
        let long = "n".repeat(253);
        for filed_under in ["a", "rules", &long, "providerID=aws:///i-0abc"] {
            assert!(is_record_name(&record_name(filed_under)), "{filed_under}");
        }
        for other in ["label-storage", "label-storage-rules", "kube-root-ca.crt"] {
            assert!(!is_record_name(other), "{other}");
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

    #[test]
    fn a_name_is_cut_between_characters_and_fills_what_there_is() {
        let head = |node: &str| {
            let name = record_name(node);
            assert!(name.len() <= 253, "{name}");
            let (head, hash) = name.rsplit_once('-').expect("a hash");
            assert_eq!(hash, hex_sha256(node));
            head[SHORTENED_PREFIX.len()..].to_owned()
        };
        assert_eq!(head(&"n".repeat(253)), "n".repeat(169));
        assert_eq!(head(&"ä".repeat(126)), "ä".repeat(84));
        assert_eq!(head(&format!("n{}", "ä".repeat(125))), format!("n{}", "ä".repeat(84)));
    }
}
