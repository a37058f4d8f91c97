//! The key of a record.

use super::*;

fn rules(identity: &str) -> Rules {
    Rules { identity: identity.parse().expect("an identity"), ..Rules::default() }
}

#[test]
fn a_record_is_filed_under_what_makes_a_node_the_same() {
    let mut node = node("a").machine("A").label("serial", "7").annotated("asset", "8 = 9");
    node.extras.machine.provider_id = Some("aws:///i-0".to_owned());
    for (identity, filed_under) in [
        ("name", Some("a")),
        ("providerID", Some("providerID=aws:///i-0")),
        ("systemUUID", Some("systemUUID=a")),
        ("label:serial", Some("label:serial=7")),
        ("annotation:asset", Some("annotation:asset=8 = 9")),
        ("label:asset", None),
        ("annotation:serial", None),
    ] {
        let filed = node.clone().filed(&rules(identity));
        assert_eq!(filed.extras.is_unidentified, filed_under.is_none(), "{identity}");
        assert_eq!(filed.filed_under(), filed_under.unwrap_or("a"), "{identity}");
    }
}

#[test]
fn what_is_missing_or_others_have_as_well_files_nothing() {
    let is_filed = |node: Node, identity: &str| {
        let filed = node.filed(&rules(identity));
        assert_eq!(filed.extras.is_unidentified, filed.extras.identity.is_none());
        !filed.extras.is_unidentified
    };
    let too_long = "x".repeat(1025);
    for value in
        ["", "00000000-0000-0000-0000-000000000000", "03000200-0400-0500-0006-000700080009", &too_long]
    {
        assert!(!is_filed(node("a").machine(value), "systemUUID"), "{value}");
    }
    assert!(!is_filed(node("a"), "systemUUID"));
    assert!(!is_filed(node("a").label("serial", ""), "label:serial"));
    let not_utf8 = "A\u{fffd}";
    for (value, expected) in [("", false), ("x", true), (too_long.as_str(), false), (not_utf8, false)] {
        assert_eq!(is_filed(node("a").annotated("asset", value), "annotation:asset"), expected);
    }
}
