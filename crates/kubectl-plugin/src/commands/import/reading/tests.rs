use jiff::Timestamp;
use k8s_openapi::ByteString;
use label_storage::node::Machine;
use label_storage::record::{Leftovers, More, Version, WithheldValue};
use label_storage::{Labels, ResourceVersion, Uid};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::commands::export::to_yaml;

/// Texts that YAML reads differently if they are not quoted.
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
        // A value with U+FFFD was not UTF-8, and is not restored.
        any::<String>().prop_map(|text| text.replace('\u{fffd}', "")),
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
    let versions = btree_map(0..1000u64, (seconds(), labels()), 0..3);
    let withheld = btree_map(
        name().prop_filter("label", |name| !name.contains(':')),
        (value(), option::of(some_text()), option::of(some_text()), option::of(some_text())),
        0..3,
    );
    let more =
        (option::of(some_text()), option::of(some_text()), option::of(some_text()), withheld, versions);
    ("[a-z0-9]{1,9}(\\.[a-z0-9]{1,9})?", labels(), (1000..2000u64), seconds(), seconds(), more).prop_map(
        |(node, labels, generation, captured_at, departed_at, more)| {
            let (identity, provider_id, system_uuid, withheld, versions) = more;
            let withheld = withheld.into_iter().filter(|(name, _)| !labels.contains_key(name));
            Record {
                config_map: None,
                node,
                uid: Uid::new("u1"),
                node_version: Some(ResourceVersion(7)),
                generation,
                labels_generation: Some(generation),
                captured_at,
                departed_at,
                more: More {
                    identity: identity.map(|text| format!("label:a={text}")),
                    machine: Machine { provider_id, system_uuid },
                    withheld: withheld
                        .map(|(name, (value, node, provider_id, system_uuid))| {
                            let machine = Machine { provider_id, system_uuid };
                            (name, WithheldValue { value, node, machine })
                        })
                        .collect(),
                    history: versions
                        .into_iter()
                        .map(|(generation, (at, labels))| Version { generation, at, labels })
                        .collect(),
                    is_anticipated: false,
                    is_unlabelled: false,
                },
                labels,
                leftovers: Leftovers::default(),
            }
        },
    )
}

/// An export of these records.
fn export(records: &[Record]) -> String {
    let mut text = format!("{HEADER} of namespace a\n");
    for record in records {
        let mut config_map = ConfigMap::default();
        record.encode_into(&mut config_map).expect("it fits");
        text += &format!("---\n{}", to_yaml(&config_map).expect("YAML"));
    }
    text + &format!("---\n{END}: {} records\n", records.len())
}

fn read(text: &str) -> Contents {
    Contents::read(text.as_bytes()).expect("a file")
}

fn problems(text: &str) -> Vec<(u64, String)> {
    read(text).problems
}

fn document(name: &str, data: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  labels:\n    \
         app.kubernetes.io/managed-by: label-storage\ndata: {data}\n"
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn an_export_is_read_as_it_was_written(record in record()) {
        let text = export(std::slice::from_ref(&record));
        let read = read(&text);
        prop_assert_eq!(&read.problems, &[], "{}", text);
        let (_, entry) = read.entries.first_key_value().expect("a record");
        prop_assert_eq!(get(&read.spool, entry).expect("a record").1, record, "{}", text);
    }

    #[test]
    fn no_text_does_harm(text in any_text(), place in 0..4usize) {
        let key = ["apiVersion", "kind", "metadata", "data"][place];
        let read = read(&format!("{key}: {text}\n{}", document("label-storage.a", "{a: b}")));
        prop_assert!(read.entries.contains_key("label-storage.a") || !read.problems.is_empty());
    }
}

#[test]
fn unusable_entries_are_in_the_export_and_refused_with_key_and_value() {
    let mut record = Record::awaiting("a", None);
    record.leftovers.data.insert("-no-label".to_owned(), "kept".to_owned());
    record.leftovers.data.insert("pool".to_owned(), "a b".to_owned());
    record.leftovers.binary_data.insert("raw".to_owned(), ByteString(vec![0, 255]));
    let text = export(&[record]);
    assert!(text.contains("-no-label: kept\n") && text.contains("raw: AP8=\n"), "{text}");
    let found = problems(&text);
    assert_eq!(found.len(), 3, "{found:?}");
    for part in ["\"-no-label\" is not a label key", "\"pool\" can't have the value \"a b\"", "\"raw\""] {
        assert!(found.iter().any(|(line, what)| *line == 3 && what.contains(part)), "{part}: {found:?}");
    }
}

#[test]
fn records_are_found_by_the_names_of_their_config_maps() {
    let read = read(&format!(
        "# mine\n{}\n{}",
        document("label-storage.a", "{a: yes}"),
        document("label-storage.b", "{a: 010}")
    ));
    assert_eq!(read.problems, []);
    for (name, node, value, line) in [("label-storage.a", "a", "yes", 3), ("label-storage.b", "b", "010", 12)]
    {
        let entry = &read.entries[name];
        let (_, record) = get(&read.spool, entry).expect("a record");
        assert_eq!((record.node.as_str(), record.labels["a"].as_str(), entry.line), (node, value, line));
        assert_eq!(record.generation, 1, "annotations may be missing");
    }
}

#[test]
fn a_list_of_kubectl_is_read() {
    let item = |text: String| text.trim_start_matches("---\n").replace('\n', "\n  ");
    let items = ["a", "b", "c"].map(|name| {
        let data = if name == "b" { "{a: b c}" } else { "{a: b}" };
        format!("- {}", item(document(&format!("label-storage.{name}"), data)).trim_end())
    });
    let text = format!(
        "apiVersion: v1\nitems:\n{}\nkind: List\nmetadata:\n  resourceVersion: \"\"\n",
        items.join("\n")
    );
    let read = read(&text);
    assert_eq!(
        read.entries.keys().map(|name| &**name).collect::<Vec<_>>(),
        ["label-storage.a", "label-storage.c"]
    );
    assert_eq!(read.problems.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [10], "{:?}", read.problems);
}

#[test]
fn an_export_that_was_cut_off_is_noticed_at_every_byte() {
    let mut record = Record::awaiting("a", None);
    record.labels.insert("a".to_owned(), "b".to_owned());
    let text = export(&[record.clone(), Record { node: "b".to_owned(), ..record }]);
    let end = text.find(END).expect("an end") + END.len();
    for length in 0..end {
        assert_ne!(problems(&text[..length]), [], "{length}");
    }
    assert_eq!(problems(&text), []);
    assert_eq!(problems(&text[..end]), []);
}

#[test]
fn problems_are_listed_with_their_lines() {
    let a = document("label-storage.a", "{a: b}");
    for (text, line, part) in [
        (String::new(), 1, "no records"),
        (format!("{a}{a}"), 10, "also on line 2"),
        (format!("{a}{}", document("label-storage.b", "{}")), 10, "has no labels"),
        (
            format!("{a}{}", document("label-storage.b", "{a b: c}")),
            10,
            "data key \"a b\" is not a label key",
        ),
        (
            format!("{a}{}", document("label-storage.b", "{a/b: c}")),
            10,
            "data key \"a/b\" is not a label key",
        ),
        (format!("{a}{}", document("label-storage.b", "{a: b c}")), 10, "\"a\" can't have the value \"b c\""),
        (format!("{a}{}", document("label-storage.b", "{a: ~}")), 16, "null"),
        (format!("{a}{}", document("label-storage.b", "{a: b, a: c}")), 16, "duplicate mapping key: a"),
        (document("label-storage.A_b", "{a: b}"), 2, "\"A_b\" is not a valid node name"),
        (document("mine", "{a: b}"), 2, "does not name its node"),
        (a.replace("managed-by", "made-by"), 2, "is not a record"),
        (a.replace("ConfigMap", "Secret"), 3, "\"Secret\", expected ConfigMap"),
        (
            a.replace("\ndata:", "\n  annotations: {label-storage/captured-at: soon}\ndata:"),
            2,
            "label-storage/captured-at is missing or unusable: \"soon\"",
        ),
        (a.replace("\ndata:", "\n  annotations: {label-storage/node: b}\ndata:"), 2, "names node \"b\""),
        (
            a.replace(
                "\ndata:",
                "\n  annotations: {label-storage/generation: '18446744073709551615'}\ndata:",
            ),
            2,
            "is too large",
        ),
        ("just text\n".to_owned(), 1, "expected"),
        (format!("{a}---\nkind: [\n"), 10, "expected"),
    ] {
        let found = problems(&text);
        let is_it = |(at, what): &(u64, String)| *at == line && what.contains(part);
        assert!(found.len() == 1 && found.iter().all(is_it), "{text}: {line}: {part}: {found:?}");
    }
    let large = format!(
        "{{annotation-COLON-a: {0}, annotation-COLON-b: {0}, annotation-COLON-c: {0}, annotation-COLON-d: {0}, annotation-COLON-e: {0}}}",
        "x".repeat(255 << 10)
    );
    assert!(problems(&document("label-storage.a", &large))[0].1.contains("bytes"));
    assert_eq!(problems(&document("label-storage.a", "{a: b c}").repeat(100)).len(), 100);
}

#[test]
fn fields_of_the_api_server_are_left_out() {
    let text = document("label-storage.a", "{a: b}").replace(
        "  name:",
        "  uid: 4c4c4544\n  resourceVersion: \"7\"\n  creationTimestamp: \"2026-11-16T06:48:56Z\"\n  namespace: other\n  \
         annotations: {kubectl.kubernetes.io/last-applied-configuration: x, why: because}\n  managedFields: [{manager: m}]\n  name:",
    );
    let read = read(&text);
    assert_eq!(read.problems, []);
    let (config_map, record) = get(&read.spool, &read.entries["label-storage.a"]).expect("a record");
    assert_eq!(record.config_map, None);
    let yaml = to_yaml(&config_map).expect("YAML");
    assert_eq!(
        yaml,
        "apiVersion: v1\nkind: ConfigMap\ndata:\n  a: b\nmetadata:\n  annotations:\n    why: because\n  labels:\n    \
         app.kubernetes.io/managed-by: label-storage\n  name: label-storage.a\n"
    );
}

#[test]
fn the_examples_of_the_documentation_can_be_imported() {
    let page = include_str!("../../../../../../docs/export.md");
    let examples: Vec<_> =
        page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!examples.is_empty());
    for example in examples {
        assert_eq!(problems(example), [], "{example}");
    }
}
