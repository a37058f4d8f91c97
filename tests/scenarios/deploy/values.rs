//! Helm refuses everything that the rules parser refuses, so no daemon has to.

use anyhow::{Context, Result};
use label_storage::Rules;
use label_storage::rules::builtin_exclusions::{is_lifecycle_taint, is_machine_annotation};
use serde_json::{Value, json};

use super::manifests::{self, rendered};
use crate::scenario::Scenario;

/// Rules of each kind, as JSON, which is YAML.
fn with(path: &str, values: &[Value]) -> Vec<Value> {
    let nest = |value: &Value| path.rsplit('.').fold(value.clone(), |value, key| json!({key: value}));
    values.iter().map(nest).collect()
}

fn texts<const N: usize>(path: &str, texts: [&str; N]) -> Vec<Value> {
    with(path, &texts.map(Value::from))
}

/// A list with a good value before it.
fn lists<const N: usize>(path: &str, texts: [&str; N]) -> Vec<Value> {
    with(path, &texts.map(|text| json!(["example.com/pool", text])))
}

fn conflicts<const N: usize>(keys: [&str; N]) -> Vec<Value> {
    with("conflicts", &keys.map(|key| json!([{"keys": ["pool", key], "wins": "record"}])))
}

fn bad() -> Vec<Value> {
    let long_name = "n".repeat(64);
    let long_prefix = format!("{}/a", ["a".repeat(63).as_str(); 4].join(".").repeat(2));
    let no_key = ["", "a b", "tier,rank", "a/b/c", "/a", "a/", "-a", "a-", "Example.com/a", "ä", "a:b"];
    [
        // Keys that there are not, and values of another kind.
        with("lables", &[json!({})]),
        with("startup-taint", &[json!({"enabled": true})]),
        with(
            "labels",
            &[json!("all"), json!(["pool"]), json!({"includes": ["a"]}), json!({"include": "pool"})],
        ),
        with("labels.include", &[json!([null]), json!([["a"]]), json!({"a": "b"})]),
        with("cordon", &[json!("maybe"), json!(1), json!([])]),
        with("nodes.optIn", &[json!("maybe")]),
        with("nodes", &[json!({"select": "a"})]),
        with("retention", &[json!(30), json!(["30d"]), json!({"days": 30})]),
        with(
            "identity",
            &[
                json!({"by": {"a": "b"}}),
                json!({"key": "a"}),
                json!({"fence": true}),
                json!({"trustLabels": "name"}),
                json!({"otherMachine": true}),
            ],
        ),
        with("startupTaint", &[json!(true), json!({"enabled": "soon"}), json!({"atmost": "2m"})]),
        with("history", &[json!(21), json!(-1), json!("many"), json!(3.5)]),
        with(
            "conflicts",
            &[
                json!({}),
                json!([{"keys": [], "wins": "node"}]),
                json!([{"keys": ["a"]}]),
                json!([{"wins": "node"}]),
                json!([{"keys": ["a"], "wins": "storer"}]),
                json!([{"keys": "a", "wins": "node"}]),
                json!([{"keys": ["a"], "wins": "node", "unless": "b"}]),
            ],
        ),
        // Patterns.
        lists("labels.include", no_key),
        lists("labels.exclude", no_key),
        lists("labels.exclude", [&long_name, &long_prefix, "a b*", "*/*/*"]),
        lists("annotations.include", ["", "a b", "a/b/c", "machine-facts", &long_name, &long_prefix]),
        lists("annotations.exclude", ["a b", "controller-labels"]),
        lists("taints.include", ["a b", "Example.com/a", "machine-facts", &long_name]),
        lists("taints.exclude", ["a b", "controller-labels"]),
        lists(
            "taints.include",
            ["node.kubernetes.io/not-ready", "label-storage/restoring", "karpenter.sh/disrupted"],
        ),
        lists(
            "annotations.include",
            ["label-storage/keep", "csi.volume.kubernetes.io/nodeid", "k3s.io/node-args"],
        ),
        conflicts(["", "a b", "label:a", "taint:dedicated", "taint:Never:dedicated", "taint::dedicated"]),
        conflicts(["annotation:", "taint:*:a:b", "taint:NoSchedule:a b", "cordon:x", "annotation:a:b"]),
        // Selectors.
        texts(
            "nodes.selector",
            ["a,", ",", "a,,b", "a b", "a in b", "a in ()", "a in (b", "a in b)", "a is (b)"],
        ),
        texts(
            "nodes.selector",
            ["in (b)", "a>1", "a b in (c)", "a/b/c=d", "=b", "!", "!a=b", "a=b c", "a===b"],
        ),
        texts(
            "nodes.selector",
            ["a in (b c)", "a in ( )", "A.example.com/A/a", "a=-b", &format!("a={long_name}")],
        ),
        texts("nodes.selector", [&long_name, &long_prefix, &format!("a,{long_prefix}=b")]),
        // Words, times and shares.
        texts(
            "identity.by",
            ["", "uid", "providerid", "label:", "label:Example.com/serial", "annotation:a b"],
        ),
        texts("identity.by", ["label:*", "serial", "annotation:"]),
        texts("identity.otherMachine", ["", "never", "trusted"]),
        texts(
            "retention",
            ["", "7x", "59s", "0", "never", "30", "soon", "-5d", "1y", "1 month", "0d", "0h0m0s"],
        ),
        texts("retention", ["30d forever", "99999999999d", "59000ms", "1m1h", "d", "1d2d"]),
        texts(
            "startupTaint.atMost",
            ["", "0s", "999ms", "61m", "forever", "true", "2h", "3601s", "2", "1h1s", "0m"],
        ),
        texts(
            "cleanupShare",
            ["", "%", "10", "0%", "0.00%", "0.001%", "100.01%", "101%", "-1%", "+1%", "1e1%"],
        ),
        texts("cleanupShare", ["ten%", ".5%", "1.%", "00%", "1000%"]),
    ]
    .concat()
}

fn good() -> Vec<Value> {
    let longest = format!("{}/{}", &["a".repeat(63).as_str(); 4].join(".")[..253], "n".repeat(63));
    [
        with("cordon", &[json!(true), json!(false)]),
        with("history", &[json!(0), json!(20)]),
        with("conflicts", &[json!([])]),
        lists(
            "labels.include",
            [
                "pool",
                "A_b.c-9",
                "*",
                "example.com/*",
                "*.example.com/*",
                "a*b",
                "*/x",
                "machine-facts",
                "controller-labels",
            ],
        ),
        lists("labels.exclude", ["7", "null", "true", &longest]),
        lists(
            "annotations.include",
            ["*", "Example.com/Owner", "Example.com/*", "node.alpha.kubernetes.io/*"],
        ),
        lists("annotations.exclude", ["node.alpha.kubernetes.io/ttl"]),
        lists(
            "taints.include",
            ["dedicated", "*", "node.kubernetes.io/*", "node-role.kubernetes.io/control-plane"],
        ),
        lists("taints.exclude", ["node.kubernetes.io/not-ready"]),
        conflicts([
            "*",
            "taint:*",
            "*:dedicated",
            "taint:No*:a",
            "annotation:Example.com/*",
            "taint*",
            "cordon:",
        ]),
        conflicts([
            "machine-facts",
            "taint:NoExecute:x",
            "taint:*:dedicated",
            "annotation:*",
            "example.com/*",
        ]),
        texts(
            "nodes.selector",
            ["", " ", "pool", "pool=gold", "pool==gold", " pool = gold ", "pool=", "pool != a"],
        ),
        texts(
            "nodes.selector",
            ["pool in (silver,gold)", "pool in(gold)", "pool in ( silver , gold )", "a in (,b)"],
        ),
        texts(
            "nodes.selector",
            ["a notin (b)", "!pool", "! other", "in", "in in (x)", "notin", "a=b,!c", &longest],
        ),
        texts(
            "nodes.selector",
            ["a=b,c!=d,e in (f,g),h notin (,i),j,!k", "pool in (gold,silver),example.com/tier"],
        ),
        texts(
            "identity.by",
            ["name", "providerID", "systemUUID", "label:example.com/serial", "annotation:Example.com/A"],
        ),
        texts("identity.otherMachine", ["all", "untrusted", "none"]),
        texts(
            "retention",
            ["1m", "forever", "30d", "7d", "36h", "1m30s", "1h 30m", "60s", "90s", "2w", "1d12h"],
        ),
        texts("startupTaint.atMost", ["1s", "1h", "2m", "90s", "1m30s", "60m", "3600s", "5m"]),
        texts("cleanupShare", ["10%", "100%", "0.01%", "2.5%", "07%", "100.0%"]),
    ]
    .concat()
}

/// Renders the chart with these values beside the default ones.
fn render(s: &Scenario, values: &Value) -> Result<Vec<Value>> {
    let file = s.file("values.json");
    std::fs::write(&file, values.to_string())?;
    rendered(s, &["--values", file.to_str().context("a path")?])
}

/// As Helm does: maps are merged, everything else is replaced.
fn merge(values: &mut Value, over: &Value) {
    match (values, over) {
        (Value::Object(values), Value::Object(over)) => {
            over.iter().for_each(|(key, over)| merge(values.entry(key).or_insert(Value::Null), over));
        }
        (value, over) => *value = over.clone(),
    }
}

pub async fn helm_refuses_the_rules_that_the_storer_refuses(s: &Scenario) -> Result<()> {
    let mut accepted = Vec::new();
    for rules in bad() {
        let refusals = [
            ("the storer", Rules::from_yaml(&rules.to_string()).is_err()),
            ("helm", render(s, &json!({"rules": rules})).is_err()),
        ];
        accepted.extend(
            refusals
                .into_iter()
                .filter(|(_, is_refused)| !is_refused)
                .map(|(who, _)| format!("{who}: {rules}")),
        );
    }
    assert_eq!(accepted, Vec::<String>::new(), "these should be refused");
    let documentation = manifests::text("../docs/configuration.md")?;
    let examples = documentation.split("```yaml\n").skip(1).filter_map(|rest| rest.split_once("```"));
    let examples =
        examples.map(|(yaml, _)| serde_saphyr::from_str(yaml)).collect::<Result<Vec<Value>, _>>()?;
    assert!(examples.len() > 10, "{} examples", examples.len());
    let shipped: Value = serde_saphyr::from_str(manifests::rules(&rendered(s, &[])?)?)?;
    // The examples work as printed, with `--config` and with `helm --values`.
    for values in good().into_iter().map(|rules| json!({"rules": rules})).chain(examples) {
        Rules::from_yaml(&values.to_string()).with_context(|| values.to_string())?;
        let documents = render(s, &values).with_context(|| values.to_string())?;
        let read = Rules::from_yaml(manifests::rules(&documents)?).with_context(|| values.to_string())?;
        let mut expected = shipped.clone();
        merge(&mut expected, &values["rules"]);
        assert_eq!(read, Rules::from_yaml(&expected.to_string())?, "{values}");
    }
    // Each key that is never kept: it is refused if it is named.
    let lists: Value = serde_saphyr::from_str(&manifests::text("chart/files/lists.yaml")?)?;
    for (kind, is_never_kept) in
        [("annotations", is_machine_annotation as fn(&str) -> bool), ("taints", is_lifecycle_taint)]
    {
        for pattern in lists[format!("never/{kind}")].as_array().context("a list")? {
            let key = pattern.as_str().context("a pattern")?.replace('*', "x");
            assert!(is_never_kept(&key), "{key}");
            let rules = json!({kind: {"include": [key]}});
            assert!(Rules::from_yaml(&rules.to_string()).is_err(), "the storer accepts {rules}");
            assert!(render(s, &json!({"rules": rules})).is_err(), "helm accepts {rules}");
        }
    }
    Ok(())
}
