//! The rule files in docs/configuration.md are rule files, and say what the text around them says of them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test program")]

use std::collections::BTreeMap;

use label_storage::Rules;

const CONFIGURATION: &str = include_str!("../../../docs/configuration.md");
const VALUES: &str = include_str!("../../../deploy/chart/values.yaml");

/// The examples, by name.
fn examples() -> BTreeMap<&'static str, &'static str> {
    let mut examples = BTreeMap::new();
    for part in CONFIGURATION.split("<!-- example: ").skip(1) {
        let (name, rest) = part.split_once(" -->\n```yaml\n").expect("a name and a block of YAML");
        let (yaml, _) = rest.split_once("```").expect("an end");
        assert!(examples.insert(name, yaml).is_none(), "two examples are called {name}");
    }
    examples
}

fn rules(name: &str, yaml: &str) -> Rules {
    Rules::from_yaml(yaml).unwrap_or_else(|why| panic!("{name}: {why}"))
}

#[test]
fn every_block_of_yaml_is_an_example_that_is_accepted() {
    let examples = examples();
    assert_eq!(CONFIGURATION.matches("```yaml").count(), examples.len(), "a block of YAML has no name");
    for (name, yaml) in &examples {
        let rules = rules(name, yaml);
        assert!(*name == "defaults" || rules != Rules::default(), "{name} shows nothing");
    }
}

#[test]
fn the_defaults_are_the_defaults() {
    let examples = examples();
    assert_eq!(rules("defaults", examples["defaults"]), Rules::default());
    // As it stands in the chart, but for comments.
    let (_, chart) = VALUES.split_once("\nrules:\n").expect("rules in the chart's values");
    let lines = chart.lines().take_while(|line| line.is_empty() || line.starts_with(' '));
    let lines = lines.filter(|line| !line.trim_start().starts_with('#')).map(|line| format!("{line}\n"));
    assert_eq!(rules("values.yaml", &lines.collect::<String>()), rules("chart", examples["chart"]));
}
