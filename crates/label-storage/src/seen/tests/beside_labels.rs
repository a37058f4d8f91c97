//! Items other than labels.

use super::*;

#[test]
fn an_annotation_that_is_not_utf8_is_not_stored() {
    let rules = Rules { annotations: Selection::all(), ..Rules::default() };
    let node = node("a").annotated("motd", "gold\u{fffd}").annotated("owner", "me");
    assert_eq!(node.not_intact(&rules).collect::<Vec<_>>(), ["motd"]);
    assert_eq!(node.not_intact(&Rules::default()).count(), 0, "it is not asked for");
    assert_eq!(node.seen_through(&rules).labels.keys().collect::<Vec<_>>(), ["annotation:owner"]);
}

#[test]
fn what_the_rules_do_not_ask_for_is_set_aside() {
    let stored = record("a", "u1")
        .label("pool", "gold")
        .label("annotation:owner", "me")
        .label("annotation:label-storage/keep", "*")
        .label("taint:NoSchedule:gpu", "x")
        .label("cordon:", "true");
    let default = Rules::default;
    let keep = "annotation:label-storage/keep";
    for (rules, names) in [
        (default(), &[keep, "pool"][..]),
        (Rules { annotations: Selection::all(), ..default() }, &[keep, "annotation:owner", "pool"]),
        (Rules { taints: Selection::all(), ..default() }, &[keep, "pool", "taint:NoSchedule:gpu"]),
        (Rules { cordon: true, ..default() }, &[keep, "cordon:", "pool"]),
        (Rules { labels: Selection::none(), ..default() }, &[keep]),
    ] {
        let seen = stored.clone().seen_through(&rules, Some(&node("a").whole()));
        assert_eq!(seen.labels.keys().collect::<Vec<_>>(), names, "{rules}");
        assert_eq!(written(&seen), written(&stored), "it is written back as it was");
    }
}
