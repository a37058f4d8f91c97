use proptest::prelude::*;

use super::patterns::{KeyKind, is_match};
use super::*;
use crate::item::MACHINE_FACT_KEYS;
use crate::label;

mod defaults;

fn patterns(text: &str) -> Patterns {
    text.parse().expect("patterns")
}

fn text(patterns: &Patterns) -> String {
    patterns.words().collect::<Vec<_>>().join(",")
}

#[test]
fn all_labels_and_nothing_else_are_kept_unless_it_is_said() {
    let rules = Rules::default();
    assert!(rules.labels.selects_all() && rules.labels.selects("kubernetes.io/hostname"));
    assert!(!rules.keeps_annotation("example.com/owner") && !rules.keeps("taint:NoSchedule:dedicated", None));
    for text in ["", " "] {
        assert_eq!(patterns(text), Patterns::default());
        assert!(Selection::all_but(patterns(text)).selects_all());
    }
}

#[test]
fn what_is_never_kept_is_not_even_if_all_is_included() {
    let rules = Rules { annotations: Selection::all(), taints: Selection::all(), ..Rules::default() };
    assert!(rules.keeps_annotation("example.com/owner") && rules.keeps("taint:NoSchedule:dedicated", None));
    assert!(!rules.keeps_annotation("csi.volume.kubernetes.io/nodeid"));
    assert!(!rules.keeps_annotation("label-storage/restored"));
    assert!(!rules.keeps("taint:NoSchedule:node.kubernetes.io/not-ready", None));
}

#[test]
fn annotations_are_wanted_that_are_ours_or_stored_or_tell_who_it_is() {
    let mut rules = Rules::default();
    assert!(rules.wants_annotation("label-storage/restored"));
    for key in ["example.com/owner", "example.com/serial"] {
        assert!(!rules.wants_annotation(key));
    }
    rules.annotations.include = patterns("example.com/o*");
    rules.identity = IdentityBy::Annotation("example.com/serial".to_owned());
    for key in ["example.com/owner", "example.com/serial"] {
        assert!(rules.wants_annotation(key));
    }
    assert!(!rules.wants_annotation("example.com/else"));
}

#[test]
fn keys_and_patterns_exclude_what_they_match_and_nothing_else() {
    for (pattern, excluded, kept) in [
        ("pool", &["pool"][..], &["pools", "example.com/pool", "Pool"][..]),
        ("example.com/pool", &["example.com/pool"], &["pool", "example.com/pools", "a.example.com/pool"]),
        (
            "example.com/*",
            &["example.com/pool", "example.com/x"],
            &["example.com.evil/x", "a.example.com/x", "pool"],
        ),
        ("*.example.com/*", &["a.example.com/x", "a.b.example.com/x"], &["example.com/x", "aexample.com/x"]),
        ("*example.com/*", &["a.example.com/x", "example.com/x"], &["example.com.org/x"]),
        ("*/pool", &["example.com/pool"], &["pool", "example.com/pools"]),
        ("a*a", &["aa", "aba", "a.b/a"], &["a", "ab"]),
        ("ab*ba", &["abba", "ab-ba"], &["aba"]),
        ("*x*y*", &["xy", "a.x/b.y-c"], &["yx", "x"]),
        ("*", &["a", "example.com/a"], &[]),
        ("a, b ,c/*", &["a", "b", "c/d"], &["c", "d"]),
    ] {
        let rules = Rules { labels: Selection::all_but(patterns(pattern)), ..Rules::default() };
        assert!(!rules.labels.selects_all());
        for key in excluded {
            assert!(!rules.labels.selects(key), "{pattern} and {key}");
        }
        for key in kept {
            assert!(rules.labels.selects(key), "{pattern} and {key}");
        }
    }
}

#[test]
fn machine_facts_are_what_comes_back_by_itself() {
    let facts = patterns("machine-facts,pool");
    let rules = Rules { labels: Selection::all_but(facts.clone()), ..Rules::default() };
    for key in MACHINE_FACT_KEYS.iter().chain(&["pool"]) {
        assert!(label::is_key(key), "{key}");
        assert!(!rules.labels.selects(key), "{key}");
    }
    for key in ["node-role.kubernetes.io/worker", "kubernetes.io/role", "topology.kubernetes.io/rack"] {
        assert!(rules.labels.selects(key), "{key}");
    }
    assert_eq!(text(&facts), "machine-facts,pool");
    assert_eq!(facts, patterns(&[&MACHINE_FACT_KEYS[..], &["pool"]].concat().join(",")));
    assert_eq!(text(&facts).parse(), Ok(facts));
}

#[test]
fn controller_labels_are_told_from_those_that_people_set() {
    let set = patterns("controller-labels,machine-facts");
    for key in [
        "topology.ebs.csi.aws.com/zone",
        "topology.gke.io/zone",
        "topology.disk.csi.azure.com/zone",
        "topology.cinder.csi.openstack.org/zone",
        "topology.csi.vmware.com/k8s-zone",
        "topology.hostpath.csi/node",
        "feature.node.kubernetes.io/cpu-model.id",
        "vendor.feature.node.kubernetes.io/x",
        "nvidia.com/gpu.product",
        "beta.amd.com/gpu.family.AI",
        "cpu-model.node.kubevirt.io/EPYC",
        "karpenter.sh/nodepool",
        "karpenter.k8s.aws/instance-cpu",
        "kubernetes.azure.com/agentpool",
        "topology.k8s.aws/zone-id",
        "kubernetes.io/hostname",
    ] {
        assert!(set.matches(key), "{key}");
    }
    for key in ["pool", "example.com/gpu", "topology.example.com/rack", "node-role.kubernetes.io/worker"] {
        assert!(!set.matches(key), "{key}");
    }
    assert_eq!(text(&set), "machine-facts,controller-labels");
    assert_eq!(text(&set).parse(), Ok(set));
}

#[test]
fn patterns_that_match_nothing_are_refused() {
    for text in [",", "a,", ",a", "a,,b"] {
        let refused = text.parse::<Patterns>().expect_err(text).to_string();
        assert!(refused.ends_with("or after the last one: remove a comma"), "{text}: {refused}");
    }
    for text in
        ["a b", "a/b/c", "a/b/*", "Example.com/*", "/a", "a/", "*/", "[ab]", "{a,b}", "a?", "-*", "ä*", "a=b"]
    {
        let refused = text.parse::<Patterns>().expect_err(text).to_string();
        assert!(refused.contains("\" matches no label key: give keys such as"), "{text}: {refused}");
    }
}

#[test]
fn keys_of_annotations_may_have_capital_letters_and_others_may_not() {
    let is_read = |kind| Patterns::of(kind, ["Example.com/Owner", "Example.com/*"]).is_ok();
    assert!(is_read(KeyKind::Annotation));
    assert!(!is_read(KeyKind::Label) && !is_read(KeyKind::Taint));
    assert!(Patterns::of(KeyKind::Taint, ["machine-facts"]).is_err());
    let refused = Patterns::of(KeyKind::Taint, ["a b"]).expect_err("no key").to_string();
    assert!(refused.starts_with("\"a b\" matches no taint key: give keys such as"), "{refused}");
}

#[test]
fn what_is_never_kept_can_be_matched_but_not_named() {
    for (kind, pattern, advice) in [
        (
            KeyKind::Taint,
            "node.kubernetes.io/not-ready",
            "\"node.kubernetes.io/not-ready\" is never kept: it describes",
        ),
        (
            KeyKind::Annotation,
            "csi.volume.kubernetes.io/nodeid",
            "\"csi.volume.kubernetes.io/nodeid\" is never kept",
        ),
        (
            KeyKind::Annotation,
            "label-storage/keep",
            "\"label-storage/keep\" belongs to Label Storage, which handles it",
        ),
    ] {
        let refused = Patterns::included(kind, ["pool", pattern]).expect_err("never kept").to_string();
        assert!(refused.starts_with(advice), "{refused}");
        assert!(Patterns::of(kind, [pattern]).is_ok(), "{pattern} may be excluded");
    }
    for pattern in ["*", "node.kubernetes.io/*", "label-storage/*"] {
        for kind in [KeyKind::Taint, KeyKind::Annotation] {
            assert!(Patterns::included(kind, [pattern]).is_ok(), "{pattern}");
        }
    }
    assert!(Patterns::included(KeyKind::Label, ["node.kubernetes.io/not-ready"]).is_ok());
}

#[test]
fn what_selects_nothing_or_everything_says_so() {
    assert!(Selection::none().selects_none() && !Selection::none().selects_all());
    assert!(Selection::all().selects_all() && !Selection::all().selects_none());
    assert!(Selection::all_but(patterns("**")).selects_none());
    let some = Selection { include: patterns("a,b*"), exclude: patterns("bc") };
    assert!(!some.selects_none() && !some.selects_all());
    assert_eq!(["a", "b", "bc", "c"].map(|key| some.selects(key)), [true, true, false, false]);
}

/// A slow and plain matcher for patterns.
fn slow(pattern: &[u8], key: &[u8]) -> bool {
    match pattern.split_first() {
        None => key.is_empty(),
        Some((b'*', rest)) => (0..=key.len()).any(|skipped| slow(rest, &key[skipped..])),
        Some((first, rest)) => key.first() == Some(first) && slow(rest, &key[1..]),
    }
}

proptest! {
    #[test]
    fn a_pattern_matches_what_a_slow_search_says(pattern in "[ab/]{0,3}[*][ab*/]{0,4}", key in "[ab/]{0,6}") {
        prop_assert_eq!(is_match(&pattern, &key), slow(pattern.as_bytes(), key.as_bytes()));
    }

    #[test]
    fn patterns_match_what_any_of_them_matches(
        list in proptest::collection::vec("[ab]?[*]?[ab]?(/[ab*]{1,2})?", 0..5),
        key in "[ab]{1,3}(/[ab]{1,2})?",
    ) {
        let Ok(read) = Patterns::of(KeyKind::Label, list.iter().map(String::as_str)) else { return Ok(()) };
        let any = list.iter().any(|pattern| slow(pattern.as_bytes(), key.as_bytes()));
        prop_assert_eq!(read.matches(&key), any);
        prop_assert_eq!(read.is_empty(), list.is_empty());
        prop_assert_eq!(text(&read).parse(), Ok(read));
    }

    #[test]
    fn no_text_at_all_makes_reading_panic(text in any::<String>(), near in "[a*/,:=!() in]{0,12}") {
        for text in [&text, &near] {
            let _ = text.parse::<Patterns>();
            let _ = text.parse::<Selector>();
            let _ = text.parse::<Conflicts>();
            let _ = text.parse::<IdentityBy>();
            let _ = text.parse::<OtherMachine>();
            let _ = text.parse::<Percentage>();
            let _ = (units::time(text), units::retention(text), units::history(text));
        }
    }
}

#[test]
fn all_taints_or_annotations_can_be_meant_at_once() {
    let conflicts: Conflicts = "taint:*=record,annotation:*=report".parse().expect("conflicts");
    assert_eq!(conflicts.winner("taint:NoSchedule:example.com/dedicated"), Winner::Record);
    assert_eq!(conflicts.winner("annotation:example.com/owner"), Winner::Report);
    assert_eq!(conflicts.winner("dedicated"), Winner::Node);
    for wrong in ["taints:*=record", "taint:dedicated=record", "a:b=node", "x y=node"] {
        assert!(wrong.parse::<Conflicts>().is_err(), "{wrong}");
    }
}
