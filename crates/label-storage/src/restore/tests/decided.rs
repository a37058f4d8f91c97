//! Decisions that come before any record is looked at, and what a patch says of itself.

use super::*;

#[test]
fn a_node_without_an_identity_is_not_restored_whatever_is_stored() {
    let record = record("a", "u1").label("k", "v");
    let mut unidentified = node("a").incarnation("u2").label("own", "x");
    unidentified.extras.is_unidentified = true;
    for stored in [Stored::Nothing, Stored::Unreadable, Stored::Record(&record)] {
        expect(&unidentified, stored, Reason::NoIdentity, None);
        let ignored = unidentified.clone().annotated("label-storage/ignore", "true");
        expect(&ignored, stored, Reason::Ignored, None);
    }
}

#[test]
fn only_a_patch_that_restores_a_cordon_cordons() {
    let node = node("a").incarnation("u2").whole();
    for (name, value, cordons) in [
        ("cordon:", "true", true),
        ("pool", "gold", false),
        ("annotation:owner", "me", false),
        ("taint:NoSchedule:gpu", "", false),
    ] {
        let record = record("a", "u1").label(name, value);
        let patch = plan_restore(&node, Stored::Record(&record), &Rules::default(), false).patch;
        assert_eq!(patch.expect("a patch").cordons(), cordons, "{name}");
    }
    let both = record("a", "u1").label("cordon:", "true").label("pool", "gold");
    let patch = plan_restore(&node, Stored::Record(&both), &Rules::default(), false).patch;
    assert!(patch.expect("a patch").cordons());
}
