use label_storage::key;
use label_storage::node::Machine;
use label_storage::record::{Leftovers, More};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::*;

/// Texts that YAML has other ideas about.
const HOSTILE: [&str; 40] = [
    "",
    " ",
    "yes",
    "no",
    "on",
    "off",
    "y",
    "n",
    "true",
    "FALSE",
    "null",
    "~",
    "1e3",
    "0x1F",
    "0o17",
    "010",
    "1_000",
    "1:30",
    ".inf",
    "-.INF",
    ".nan",
    "2026-11-16",
    "<<",
    "=",
    "- a",
    "a: b",
    "a #b",
    "#a",
    "'",
    "\"",
    "|",
    ">",
    "%a",
    "@a",
    "`a",
    "*a",
    "&a",
    "!a",
    "---",
    "...",
];

fn any_text() -> impl Strategy<Value = String> {
    let lines = vec(
        prop_oneof!["[ -~]{0,20}", Just("---".to_owned()), Just(" x ".to_owned()), Just("\t".to_owned())],
        0..6,
    );
    prop_oneof![
        proptest::sample::select(&HOSTILE[..]).prop_map(str::to_owned),
        any::<String>(),
        lines.prop_map(|lines| lines.join("\n")),
        proptest::sample::select(&HOSTILE[..])
            .prop_map(|text| format!(" {text}\n\n  {text} \r\n\u{85}\u{2028}\u{feff}\u{7f}\0{text}\n\n")),
        "[a-z ]{70,200}",
    ]
}

fn name() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        "[A-Za-z0-9]([A-Za-z0-9._-]{0,20}[A-Za-z0-9])?",
        Just("y".to_owned()),
        Just("1e3".to_owned()),
        Just("null".to_owned())
    ];
    let key = (option::of("[a-z]{1,9}(\\.[a-z0-9]{1,9}){0,2}"), word)
        .prop_map(|(prefix, word)| prefix.map_or(word.clone(), |prefix| format!("{prefix}/{word}")));
    (0..6, key, proptest::sample::select(&label_storage::item::EFFECTS[..])).prop_map(
        |(kind, key, effect)| match kind {
            0 | 1 => format!("annotation:{key}"),
            2 => format!("taint:{effect}:{key}"),
            _ => key,
        },
    )
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        "([A-Za-z0-9]([A-Za-z0-9._-]{0,20}[A-Za-z0-9])?)?",
        proptest::sample::select(vec!["yes", "1e3", "true", "null", "010", "1_0"]).prop_map(str::to_owned)
    ]
}

fn labels() -> impl Strategy<Value = Labels> {
    let all = vec((name(), value(), any_text()), 1..8);
    (all, any::<bool>()).prop_map(|(all, cordon)| {
        let own = |name: &str, value, text| if name.starts_with("annotation:") { text } else { value };
        let mut labels: Labels = all
            .into_iter()
            .map(|(name, value, text)| {
                let value = own(&name, value, text);
                (name, value)
            })
            .collect();
        if cordon {
            labels.insert("cordon:".to_owned(), "true".to_owned());
        }
        labels
    })
}

fn seconds() -> impl Strategy<Value = Option<Timestamp>> {
    option::of((0..4_000_000_000i64).prop_map(|second| Timestamp::from_second(second).expect("a time")))
}

fn some_text() -> impl Strategy<Value = String> {
    any_text().prop_filter("a name", |text| !text.is_empty() && text.len() <= 1024)
}

fn record() -> impl Strategy<Value = Record> {
    let leftovers = (
        btree_map("-[A-Z]{1,5}-[a-z]{1,5}", any_text(), 0..3),
        btree_map("[a-z]{1,5}", vec(any::<u8>(), 0..9), 0..2),
    );
    let versions = btree_map(0..1000u64, (seconds(), labels()), 0..3);
    let withheld = btree_map(
        name().prop_filter("label", |name| !name.contains(':')),
        (value(), option::of(some_text())),
        0..3,
    );
    let more =
        (option::of(some_text()), option::of(some_text()), option::of(some_text()), withheld, versions);
    ("[a-z0-9]{1,9}(\\.[a-z0-9]{1,9})?", labels(), (1000..2000u64), seconds(), seconds(), leftovers, more)
        .prop_map(|(node, labels, generation, captured_at, departed_at, (data, binary), more)| {
            let (identity, provider_id, system_uuid, withheld, versions) = more;
            let withheld = withheld.into_iter().filter(|(name, _)| !labels.contains_key(name));
            let is_leftover = |key: &String| key::decode_entry(key, "").is_err();
            Record {
                config_map: None,
                node,
                uid: None,
                node_version: None,
                generation,
                labels_generation: None,
                captured_at,
                departed_at,
                more: More {
                    identity: identity.map(|text| format!("label:a={text}")),
                    machine: Machine { provider_id, system_uuid },
                    withheld: withheld
                        .map(|(name, (value, system_uuid))| (name, WithheldValue { value, system_uuid }))
                        .collect(),
                    history: versions
                        .into_iter()
                        .map(|(generation, (at, labels))| Version { generation, at, labels })
                        .collect(),
                },
                labels,
                leftovers: Leftovers {
                    data: data.into_iter().filter(|(key, _)| is_leftover(key)).collect(),
                    binary_data: binary.into_iter().map(|(key, bytes)| (key, ByteString(bytes))).collect(),
                },
            }
        })
}

fn read(yaml: &str) -> Result<Record, Vec<Problem>> {
    Ok(Document::parse(yaml).map_err(|problem| vec![problem])?.record()?.0)
}

/// What is wrong with a document, with the lines.
fn wrong(yaml: &str) -> Vec<(u64, String)> {
    read(yaml).expect_err(yaml).into_iter().map(|problem| (problem.line, problem.what)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_written_is_read(record in record()) {
        let yaml = Document::of(&record, &Tags::default(), true).to_yaml().expect("YAML");
        prop_assert!(!yaml.lines().any(|line| line.starts_with("---")), "{}", yaml);
        prop_assert_eq!(read(&yaml), Ok(record), "{}", yaml);
    }

    #[test]
    fn nothing_that_is_read_does_harm(text in any_text(), place in 0..8usize) {
        let key = ["node", "identity", "labels", "annotations", "taints", "machine", "withheld", "history"][place];
        // It is a record or it is not, and every record can be written and is read again as it is.
        if let Ok(record) = read(&format!("node: a\n{key}: {text}\n")) {
            let yaml = Document::of(&record, &Tags::default(), true).to_yaml().expect("YAML");
            prop_assert_eq!(read(&yaml), Ok(record), "{}", yaml);
        }
    }
}

#[test]
fn a_document_is_plain_to_read() {
    let yaml = "\
node: my-new-node
identity: systemUUID=4c4c4544
labels:
  example.com/pool: gold
  odd: \"yes\"
annotations:
  example.com/note: |-
    two
    lines
taints:
- key: dedicated
  value: gpu
  effect: NoSchedule
cordon: true
departedAt: \"2026-11-16T06:49:15Z\"
capturedAt: \"2026-11-16T06:48:56Z\"
generation: 2
machine:
  providerID: aws:///eu-west-1a/i-0abc
  systemUUID: 4c4c4544
withheld:
- name: node-restriction.kubernetes.io/tier
  value: gold
  systemUUID: 8a3f
leftovers:
  labels:
    team: a
  annotations:
    example.com/why: moved here
  data:
    -NOT-a-label: kept
  binaryData:
    raw: AAE=
history:
- generation: 1
  at: \"2026-11-16T05:12:03Z\"
  labels:
    example.com/pool: silver
";
    let (record, tags) = Document::parse(yaml).expect("YAML").record().expect("a record");
    assert_eq!(Document::of(&record, &tags, true).to_yaml().expect("YAML"), yaml);
    let without = Document::of(&record, &tags, false).to_yaml().expect("YAML");
    assert_eq!(format!("{without}{}", &yaml[yaml.find("history").expect("one")..]), yaml);
}

#[test]
fn what_people_write_without_quotes_is_what_they_mean() {
    let record = read("node: a\nlabels: {a: yes, b: 1e3, c: 010, d: \"\", e: true}\n").expect("a record");
    let pairs = [("a", "yes"), ("b", "1e3"), ("c", "010"), ("d", ""), ("e", "true")];
    assert_eq!(record.labels, pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    assert_eq!(record.generation, 1);
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    for (yaml, expected) in [
        ("labels: {a: b}\n", vec![(1, "\"node\" is missing")]),
        ("node: a\nlabel: {a: b}\n", vec![(2, "there is no key \"label\"")]),
        ("node: A_b\n", vec![(1, "no node can have this name")]),
        ("node: a\nlabels:\n  a: b\n  a: c\n", vec![(4, "second time")]),
        ("node: a\nlabels:\n  ok: b\n  a b: c\n  d: e f\n", vec![(4, "\"a b\""), (5, "the value of \"d\"")]),
        ("node: a\nlabels:\n  annotation:x: b\n", vec![(3, "no label key")]),
        ("node: a\nlabels:\n  a:\n", vec![(3, "nothing here")]),
        ("node: a\nlabels:\n  a: ~\n", vec![(3, "nothing here")]),
        ("node: a\nlabels:\n  a: [b]\n", vec![(3, "can't be read")]),
        ("node: a\ntaints:\n- key: a\n  effect: Never\n", vec![(3, "taint:Never:a")]),
        (
            "node: a\ntaints: [{key: a, effect: NoExecute}, {key: a, effect: NoExecute, value: b}]\n",
            vec![(2, "one taint")],
        ),
        ("node: a\ncordon: perhaps\n", vec![(2, "can't be read")]),
        ("node: a\ncapturedAt: yesterday\n", vec![(2, "no time")]),
        ("node: a\nmachine:\n  systemUUID: ''\n", vec![(3, "no machine")]),
        ("node: a\nidentity: x\nlabels: {a: b}\n", vec![(2, "filed under")]),
        ("node: a\nlabels: {a: b}\nwithheld:\n- {name: a, value: c}\n", vec![(4, "second time")]),
        ("node: a\nleftovers: {data: {pool: gold}}\n", vec![(1, "belongs there")]),
        ("node: a\nleftovers: {data: {'a b': gold}}\n", vec![(1, "can't have the key")]),
        ("node: a\nleftovers: {labels: {a b: c}}\n", vec![(2, "can't have the label \"a b\"")]),
        ("node: a\nleftovers: {annotations: {a b: c}}\n", vec![(2, "can't have the annotation")]),
        (
            "node: a\nleftovers: {annotations: {label-storage/node: b}}\n",
            vec![(2, "by the daemons themselves")],
        ),
        ("node: a\nleftovers: {binaryData: {a: '?'}}\n", vec![(2, "can't be read")]),
        ("node: a\ngeneration: 18446744073709551615\nlabels: {a: b}\n", vec![(1, "too large")]),
        ("node: a\nlabels: {a: b\n", vec![(2, "can't be read")]),
        ("node: a\nlabels: *x\n", vec![(2, "can't be read")]),
        ("just text\n", vec![(1, "can't be read")]),
    ] {
        let found = wrong(yaml);
        let is_so = found.len() == expected.len()
            && found
                .iter()
                .zip(&expected)
                .all(|((line, what), (at, part))| line == at && what.contains(part));
        assert!(is_so, "{yaml}: expected {expected:?}, found {found:?}");
    }
    let large =
        format!("node: a\nannotations: {{a: {}, b: {0}, c: {0}, d: {0}, e: {0}}}\n", "x".repeat(255 << 10));
    assert!(wrong(&large)[0].1.contains("bytes"), "{:?}", &wrong(&large)[0].1);
}
