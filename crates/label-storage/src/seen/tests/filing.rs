//! What a record is filed under.

use super::*;

fn rules(identity: &str) -> Rules {
    Rules { identity: identity.parse().expect("an identity"), ..Rules::default() }
}

#[test]
fn a_record_is_filed_under_what_makes_a_node_the_same() {
    let mut node = node("a").machine("A").label("serial", "7").annotated("asset", "8 = 9");
    node.extras.machine.provider_id = Some("aws:///i-0".to_owned());
    for (identity, filed) in [
        ("name", Filing::ByName),
        ("providerID", Filing::Under("providerID=aws:///i-0".to_owned())),
        ("systemUUID", Filing::Under("systemUUID=a".to_owned())),
        ("label:serial", Filing::Under("label:serial=7".to_owned())),
        ("annotation:asset", Filing::Under("annotation:asset=8 = 9".to_owned())),
        ("label:asset", Filing::Nowhere),
        ("annotation:serial", Filing::Nowhere),
    ] {
        let rules = rules(identity);
        assert_eq!(rules.filing(&node), filed, "{identity}");
        let named = node.clone().filed(&rules);
        assert_eq!(named.extras.is_unidentified, filed == Filing::Nowhere);
        let expected = if let Filing::Under(identity) = &filed { identity } else { "a" };
        assert_eq!(named.filed_under(), expected);
    }
}

#[test]
fn what_is_missing_or_others_have_as_well_files_nothing() {
    let too_long = "x".repeat(1025);
    for value in
        ["", "00000000-0000-0000-0000-000000000000", "03000200-0400-0500-0006-000700080009", &too_long]
    {
        assert_eq!(rules("systemUUID").filing(&node("a").machine(value)), Filing::Nowhere, "{value}");
    }
    assert_eq!(rules("systemUUID").filing(&node("a")), Filing::Nowhere);
    assert_eq!(rules("label:serial").filing(&node("a").label("serial", "")), Filing::Nowhere);
    for (value, is_too_long) in [("", true), ("x", false), (too_long.as_str(), true)] {
        let filed = rules("annotation:asset").filing(&node("a").annotated("asset", value));
        assert_eq!(filed == Filing::Nowhere, is_too_long);
    }
}
