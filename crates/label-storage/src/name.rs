//! The name of a record's ConfigMap. It follows from the Node's name, or from another identity that the rules choose (see
//! [`Node::filed_under`](crate::Node::filed_under)).

use crate::key::hex_sha256;

const MAX_NAME: usize = 253;
const PREFIX: &str = "label-storage.";
/// Differs from [`PREFIX`] before its end, so that no node's name can lead to another node's record.
const SHORTENED_PREFIX: &str = "label-storage-long.";
/// For records that are filed under another identity than the name.
const IDENTITY_PREFIX: &str = "label-storage-id.";
const HASH: usize = 64;
/// A Node's name can't have this character; every other identity has it.
const IDENTITY: char = '=';

/// The ConfigMap's name: `label-storage.` and the node's name. A name that is too long is cut and hashed. Any other
/// identity is hashed after the part of it that is legible.
pub fn record_name(filed_under: &str) -> String {
    if let Some((_, value)) = filed_under.split_once(IDENTITY) {
        let slug = value.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let room = MAX_NAME - IDENTITY_PREFIX.len() - 1 - HASH;
        // The end tells one instance from another.
        let slug = slug[slug.len().saturating_sub(room)..].trim_matches('-');
        let separator = if slug.is_empty() { "" } else { "-" };
        return format!("{IDENTITY_PREFIX}{slug}{separator}{}", hex_sha256(filed_under));
    }
    if PREFIX.len() + filed_under.len() <= MAX_NAME {
        return format!("{PREFIX}{filed_under}");
    }
    let room = MAX_NAME - SHORTENED_PREFIX.len() - 1 - HASH;
    let head = filed_under[..filed_under.floor_char_boundary(room)].trim_end_matches(['-', '.']);
    format!("{SHORTENED_PREFIX}{head}-{}", hex_sha256(filed_under))
}

/// True if a ConfigMap of this name can be a record.
pub fn is_record_name(name: &str) -> bool {
    [PREFIX, SHORTENED_PREFIX, IDENTITY_PREFIX].iter().any(|prefix| name.starts_with(prefix))
}

/// True if this is an identity other than a Node's name.
pub(crate) fn is_identity(filed_under: &str) -> bool {
    filed_under.contains(IDENTITY)
}

/// The Node's name, if the ConfigMap's name has all of it.
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
