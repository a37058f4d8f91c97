use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::rules::{IdentityBy, OtherMachine, Percentage};

/// All that a file can say, with its defaults.
const DEFAULTS: &str = r#"
labels:      {include: ["*"], exclude: []}
annotations: {include: [],    exclude: []}
taints:      {include: [],    exclude: []}
cordon: false
nodes: {selector: "", optIn: false}
conflicts: []
identity: {by: name, otherMachine: all}
startupTaint: {enabled: false, atMost: 2m}
retention: 30d
cleanupShare: 10%
history: 3
"#;

fn rules(text: &str) -> Rules {
    Rules::from_yaml(text).unwrap_or_else(|refused| panic!("{text}: {refused}"))
}

fn patterns(text: &str) -> Patterns {
    text.parse().expect("patterns")
}

#[test]
fn a_file_that_says_nothing_changes_nothing() {
    for text in
        ["", "\n\n", "# nothing yet\n", "---\n", "{}", "~", "labels:\nnodes:\n  selector:\nretention:\n"]
    {
        assert_eq!(rules(text), Rules::default(), "{text:?}");
    }
}

#[test]
fn what_is_documented_as_default_is_the_default() {
    assert_eq!(rules(DEFAULTS), Rules::default());
}

#[test]
fn rules_can_stand_below_their_key_in_the_values_of_the_chart() {
    let bare = "labels: {include: [pool]}\nhistory: 5";
    assert_eq!(rules("rules:\n  labels: {include: [pool]}\n  history: 5\n"), rules(bare));
    assert_eq!(rules("{rules: {labels: {include: [pool]}, history: 5}}"), rules(bare));
    for (text, line, part) in [
        ("rules:\n  history: 5\ncordon: true\n", 2, "there are keys beside rules"),
        ("rules:\n  rules: {history: 5}\n", 2, "there are keys beside rules"),
        ("rules:\n  history: soon\n", 2, "history"),
        ("image: {tag: a}\nrules: {history: 5}\n", 1, "\"image\""),
    ] {
        let refused = Rules::from_yaml(text).expect_err(text);
        assert!(refused.line == Some(line) && refused.reason.contains(part), "{text}: {refused}");
    }
}

#[test]
fn all_that_a_file_can_say_is_read() {
    let text = r#"
labels:
  include: [pool, "example.com/*"]
  exclude:
    - machine-facts
annotations: {include: ["*"], exclude: [Example.com/Secret]}
taints: {include: [dedicated]}
cordon: true
nodes: {selector: "pool in (gold,silver),!gpu", optIn: yes}
conflicts:
  - {keys: [pool, "taint:*:dedicated"], wins: record}
  - keys: ['*']
    wins: report
identity: {by: "label:example.com/serial", otherMachine: untrusted}
startupTaint: {enabled: true, atMost: 90s}
patience: 30s
retention: forever
cleanupShare: 2.5%
history: 20
"#;
    let expected = Rules {
        labels: Selection { include: patterns("pool,example.com/*"), exclude: patterns("machine-facts") },
        annotations: Selection {
            include: Patterns::all(),
            exclude: Patterns::of(KeyKind::Annotation, ["Example.com/Secret"]).expect("a key"),
        },
        taints: Selection { include: patterns("dedicated"), exclude: Patterns::default() },
        cordon: true,
        selector: "pool in (gold,silver),!gpu".parse().expect("a selector"),
        opt_in: true,
        conflicts: "pool=record,taint:*:dedicated=record,*=report".parse().expect("conflicts"),
        identity: IdentityBy::Label("example.com/serial".to_owned()),
        other_machine: OtherMachine::Untrusted,
        startup_taint: Some(Duration::from_secs(90)),
        patience: Duration::from_secs(30),
        retention: Duration::MAX,
        cleanup_share: "2.5%".parse().expect("a share"),
        history: 20,
    };
    assert_eq!(rules(text), expected);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let keys = "labels, annotations, taints, cordon, nodes, conflicts, identity, startupTaint, patience, retention, cleanupShare, history, rules";
    for (text, refused) in [
        ("\n\nlables: {}\n", r#"line 3: unknown key "lables": did you mean "labels"?"#.to_owned()),
        ("startup-taint:\n", r#"line 1: unknown key "startup-taint": did you mean "startupTaint"?"#.to_owned()),
        ("cordon: true\nexclude: [a]\n", format!(r#"line 2: unknown key "exclude": write one of {keys}"#)),
        (
            "labels:\n  includes: [a]\n",
            r#"line 2: unknown key "includes": did you mean "include"?"#.to_owned(),
        ),
        (
            "retention: 1d\ncordon: true\nretention: 2d\n",
            r#"line 3: "retention" is given twice: remove one of the two"#.to_owned(),
        ),
        (
            "cordon: true\n---\ncordon: false\n",
            "line 3: the file has a second document: put all rules into one, without ---".to_owned(),
        ),
        ("\ncordon: maybe\n", "line 2: write true or false here".to_owned()),
        (
            "labels: all\n",
            "line 1: expected keys: write them with a colon, such as include: [pool]".to_owned(),
        ),
        (
            "- labels\n",
            "line 1: expected keys: write them with a colon, such as include: [pool]".to_owned(),
        ),
        (
            "labels:\n  include: pool\n",
            "line 2: expected a list: write [pool], or each value on a line with a dash".to_owned(),
        ),
        ("retention: [30d]\n", "line 1: expected a single value, not a list or keys".to_owned()),
        ("nodes:\n  selector: {a: b}\n", "line 2: expected a single value, not a list or keys".to_owned()),
        (
            "labels:\n  include:\n    - pool\n    -\n",
            "line 4: the value is missing: write one, or remove the line".to_owned(),
        ),
        (
            "labels:\n  include: [*]\n",
            "line 2: put a value that begins with * into quotes, such as '*.example.com/*'".to_owned(),
        ),
        (
            "labels:\n  include:\n    - *.example.com/pool\n",
            "line 3: put a value that begins with * into quotes, such as '*.example.com/*'".to_owned(),
        ),
        (
            "nodes:\n  selector: !gpu\n",
            "line 2: put a value that begins with ! into quotes, such as '!example.com/gpu'".to_owned(),
        ),
        (
            "nodes:\n  selector: !gpu,pool=gold\n",
            "line 2: put a value that begins with ! into quotes, such as '!example.com/gpu'".to_owned(),
        ),
        (
            "labels:\n  exclude:\n    - pool\n    - a b\n",
            "line 4: \"a b\" matches no label key: give keys such as example.com/pool, patterns such as example.com/* (* stands \
             for any characters), or the sets machine-facts and controller-labels"
                .to_owned(),
        ),
        (
            "labels:\n  exclude: [pool,\n    'tier,rank']\n",
            "line 3: \"tier,rank\" matches no label key: give keys such as example.com/pool, patterns such as example.com/* (* \
             stands for any characters), or the sets machine-facts and controller-labels"
                .to_owned(),
        ),
        (
            "taints:\n  include:\n  - dedicated\n  - node.kubernetes.io/not-ready\n",
            "line 4: \"node.kubernetes.io/not-ready\" is never kept: it describes the present state of a machine, and is set again \
             when it applies; remove it"
                .to_owned(),
        ),
        (
            "annotations: {include: [label-storage/keep]}\n",
            "line 1: \"label-storage/keep\" belongs to Label Storage, which handles it itself: remove it".to_owned(),
        ),
        (
            "nodes:\n  optIn: true\n  selector: a b\n",
            "line 3: nodes.selector: \"a b\" is not a valid selector: write a=b, a!=b, a in (b,c), a notin (b,c), a or !a, with commas between them"
                .to_owned(),
        ),
        (
            "conflicts:\n- keys: [pool]\n  wins: storer\n",
            "line 3: \"storer\" is not a valid winner: write node, record or report".to_owned(),
        ),
        (
            "conflicts:\n- keys:\n  - pool\n  - taint:dedicated\n  wins: node\n",
            "line 4: \"taint:dedicated\" can't match any item: give label keys or patterns such as example.com/*, \
             annotation:KEY, taint:EFFECT:KEY (such as taint:*:dedicated) or cordon:"
                .to_owned(),
        ),
        (
            "conflicts:\n- keys: []\n  wins: node\n",
            "line 2: the list of keys is empty: add keys, or remove the conflict".to_owned(),
        ),
        ("conflicts:\n- keys: [a]\n", r#"line 2: "wins" is missing: a conflict needs keys and wins"#.to_owned()),
        (
            "identity: {by: uid}\n",
            "line 1: identity.by: \"uid\" is not an identity: write name, providerID, systemUUID, label:KEY or annotation:KEY"
                .to_owned(),
        ),
        (
            "identity:\n  otherMachine: never\n",
            "line 2: identity.otherMachine: \"never\" is not a valid value: write all, untrusted or none".to_owned(),
        ),
        ("startupTaint:\n  atMost: 2h\n", "line 2: startupTaint.atMost: \"2h\" can't be used: give a time from 1s to 1h, such as 2m".to_owned()),
        ("\nretention: 30\n", "line 2: retention: \"30\" can't be used: give a time of at least 1m, such as 30d, or forever".to_owned()),
        ("cleanupShare: 10\n", "line 1: cleanupShare: \"10\" can't be used: give a percentage above 0% and up to 100%, such as 10% or 2.5%".to_owned()),
        ("cleanupShare: 101%\n", "line 1: cleanupShare: \"101%\" can't be used: give a percentage above 0% and up to 100%, such as 10% or 2.5%".to_owned()),
        ("history: 21\n", "line 1: history: \"21\" can't be used: give a number from 0 to 20".to_owned()),
        (
            "labels:\n  include:\n    - a\n   - b\n",
            "line 4: invalid YAML: while parsing a block mapping, did not find expected key".to_owned(),
        ),
    ] {
        assert_eq!(Rules::from_yaml(text).map_err(|refused| refused.to_string()), Err(refused), "{text}");
    }
}

#[test]
fn the_keys_that_other_machine_replaces_are_refused_with_the_new_one() {
    let reason = "identity.fence and identity.trustLabels are now identity.otherMachine: write none for fence: true, \
                  untrusted for trustLabels: same-machine, all for trustLabels: name";
    for text in [
        "identity:\n  fence: true\n",
        "identity:\n  trustLabels: name\n",
        "identity:\n  fence: x\n  by: name\n",
    ] {
        assert_eq!(
            Rules::from_yaml(text),
            Err(Refused { line: Some(2), reason: reason.to_owned() }),
            "{text}"
        );
    }
}

#[test]
fn a_file_that_was_made_to_do_harm_is_only_refused() {
    let laughs = (1..30).map(|n| format!("x{n}: &x{n} [*x{0}, *x{0}]\n", n - 1)).collect::<String>();
    for text in [
        "[".repeat(1 << 18),
        "{a: ".repeat(1 << 17),
        "- ".repeat(1 << 18),
        format!("labels: {{include: {}", "[".repeat(1 << 18)),
        format!("labels: {{include: &a [{}", "*a, ".repeat(1 << 16)),
        format!("x0: &x0 [a]\n{laughs}"),
        format!("retention: {}", "9".repeat(1 << 18)),
        format!("labels: {{include: ['{}']}}", "*a".repeat(1 << 17)),
        format!("{}: 1", "k".repeat(1 << 18)),
    ] {
        let refused = Rules::from_yaml(&text).expect_err("no rules").to_string();
        assert!(refused.len() < 4000, "{refused}");
    }
}

#[test]
fn rules_are_told_in_a_line_of_what_is_not_the_default() {
    for (text, told) in [
        ("", "{}"),
        (DEFAULTS, "{}"),
        ("labels: {exclude: [machine-facts, 'a*']}", "{labels: {exclude: [machine-facts, 'a*']}}"),
        ("labels: {include: []}", "{labels: {include: []}}"),
        (
            "cordon: true\nnodes: {selector: a in (b), optIn: true}",
            "{cordon: true, nodes: {selector: 'a=b', optIn: true}}",
        ),
        (
            "conflicts:\n- keys: [pool, 'taint:*:x']\n  wins: record\n- {keys: ['*'], wins: report}",
            "{conflicts: [{keys: [pool, 'taint:*:x'], wins: record}, {keys: ['*'], wins: report}]}",
        ),
        (
            "identity: {by: label:a, otherMachine: none}\nstartupTaint: {enabled: true}",
            "{identity: {by: 'label:a', otherMachine: none}, startupTaint: {enabled: true}}",
        ),
        (
            "retention: forever\ncleanupShare: 2.50%\nhistory: 0\nstartupTaint: {enabled: true, atMost: 90s}",
            "{startupTaint: {enabled: true, atMost: 1m30s}, retention: forever, cleanupShare: 2.5%, history: 0}",
        ),
        // Texts that YAML would read as another type.
        ("labels: {include: ['null', '1', 'true', 'no']}", "{labels: {include: ['1', no, 'null', true]}}"),
    ] {
        assert_eq!(rules(text).to_string(), told);
    }
}

fn some_words(kind: KeyKind) -> impl Strategy<Value = Vec<&'static str>> {
    let mut words = vec!["pool", "example.com/a", "example.com/*", "*", "null", "7", "a*b", "*/x", "true"];
    words.extend(
        (kind == KeyKind::Label).then_some(["machine-facts", "controller-labels"]).into_iter().flatten(),
    );
    proptest::sample::subsequence(words, 0..4)
}

fn some_selection(kind: KeyKind) -> impl Strategy<Value = Selection> {
    (some_words(kind), some_words(kind)).prop_map(move |(include, exclude)| Selection {
        include: Patterns::included(kind, include).expect("patterns"),
        exclude: Patterns::of(kind, exclude).expect("patterns"),
    })
}

fn some_conflicts() -> impl Strategy<Value = Conflicts> {
    let names =
        vec!["pool", "*", "annotation:*", "taint:*:x", "taint:NoExecute:x", "cordon:", "machine-facts"];
    let winner = prop_oneof![Just(Winner::Node), Just(Winner::Record), Just(Winner::Report)];
    let list = proptest::collection::vec((proptest::sample::subsequence(names, 1..3), winner), 0..4);
    list.prop_map(|list| {
        let mut conflicts = Conflicts::default();
        for (names, winner) in list {
            for name in names {
                conflicts.add(name, winner).expect("a name");
            }
        }
        conflicts
    })
}

prop_compose! {
    fn some_rules()(
        labels in some_selection(KeyKind::Label),
        annotations in some_selection(KeyKind::Annotation),
        taints in some_selection(KeyKind::Taint),
        (cordon, opt_in) in any::<(bool, bool)>(),
        selector in "|a|!a|a=b|a!=b,c|a in \\(,b\\),null|a notin \\(b,c\\)",
        conflicts in some_conflicts(),
        identity in "name|providerID|systemUUID|label:null|annotation:Example\\.com/A",
        other_machine in "all|untrusted|none",
        startup_taint in proptest::option::of(1_000u64..=3_600_000),
        patience in (1_000u64..=3_600_000).prop_map(Duration::from_millis),
        retention in prop_oneof![Just(Duration::MAX), (60u64..1 << 32).prop_map(Duration::from_secs)],
        hundredths in 1u32..=10_000,
        history in 0..=Rules::MOST_HISTORY,
    ) -> Rules {
        let cleanup_share: Percentage = format!("{}.{:02}%", hundredths / 100, hundredths % 100).parse().expect("a share");
        Rules {
            labels, annotations, taints, cordon, opt_in, conflicts, patience, retention, cleanup_share, history,
            selector: selector.parse().expect("a selector"),
            identity: identity.parse().expect("an identity"),
            other_machine: other_machine.parse().expect("a rule"),
            startup_taint: startup_taint.map(Duration::from_millis),
        }
    }
}

/// Lines that are nearly right, for mistakes that no random text would make.
fn nearly_a_file() -> impl Strategy<Value = String> {
    let lines = vec![
        "labels:",
        "  include: [a]",
        "  exclude:",
        "    - '*'",
        "    - *",
        "cordon: yes",
        "nodes: {selector: !a}",
        "conflicts:",
        "- keys: [a]",
        "  wins: node",
        "identity: {by: name",
        "retention: 30d",
        "---",
        "<<: *a",
        "&a b: c",
        "\tx: y",
        "...",
        "? a",
        "history: 0x3",
        "  - &b [*b]",
    ];
    proptest::sample::subsequence(lines, 0..8).prop_shuffle().prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn what_rules_tell_of_themselves_is_read_as_the_same_rules(rules in some_rules()) {
        let told = rules.to_string();
        prop_assert_eq!(told.lines().count(), 1);
        let read = Rules::from_yaml(&told);
        prop_assert_eq!(read, Ok(rules), "{}", told);
    }

    #[test]
    fn no_text_at_all_makes_the_reader_panic(text in any::<String>(), nearly in nearly_a_file()) {
        for text in [&text, &nearly] {
            if let Err(refused) = Rules::from_yaml(text) {
                let lines = text.lines().count().max(1) as u64 + 1;
                prop_assert!(refused.line.is_none_or(|line| line <= lines), "{}: {}", text, refused);
                prop_assert!(!refused.reason.is_empty());
            }
        }
    }
}
