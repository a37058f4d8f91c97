//! Nodes of which only the metadata is known.

use super::*;

#[test]
fn what_metadata_can_not_tell_is_set_aside_and_nothing_else() {
    let rules =
        Rules { annotations: Selection::all(), taints: Selection::all(), cordon: true, ..Rules::default() };
    let stored = record("a", "u1")
        .label("pool", "gold")
        .label("annotation:owner", "me")
        .label("taint:NoSchedule:gpu", "x")
        .label("cordon:", "true");
    let names = |node: Option<&Node>| {
        stored.clone().seen_through(&rules, node).labels.into_keys().collect::<Vec<_>>()
    };
    let all = ["annotation:owner", "cordon:", "pool", "taint:NoSchedule:gpu"];
    assert_eq!(names(Some(&node("a"))), ["annotation:owner", "pool"]);
    assert_eq!(names(Some(&node("a").whole())), all);
    assert_eq!(names(None), all);
}

#[test]
fn metadata_is_enough_unless_a_rule_asks_for_more() {
    let default = Rules::default;
    let identity = |text: &str| Rules { identity: text.parse().expect("an identity"), ..default() };
    let taints = |include: &str, exclude: &str| {
        let patterns = |text: &str| text.parse().expect("patterns");
        let taints = Selection { include: patterns(include), exclude: patterns(exclude) };
        Rules { taints, ..default() }
    };
    for (rules, is_needed) in [
        (default(), false),
        (Rules { annotations: Selection::all(), opt_in: true, ..default() }, false),
        (Rules { cordon: true, ..default() }, true),
        (Rules { other_machine: OtherMachine::Untrusted, ..default() }, true),
        (Rules { other_machine: OtherMachine::None, ..default() }, true),
        (identity("providerID"), true),
        (identity("systemUUID"), true),
        (identity("label:serial"), false),
        (identity("annotation:serial"), false),
        (taints("gpu", ""), true),
        (taints("*", "gpu"), true),
        (taints("gpu", "*"), false),
    ] {
        assert_eq!(rules.needs_whole_nodes(), is_needed, "{rules}");
    }
}
