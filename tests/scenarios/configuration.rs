//! Runs every example of docs/configuration.md, and checks its documented effect.
//!
//! - [`rules`] and [`recipes`]: what each example promises, written by hand.
//! - [`identities`]: the table of what another machine and another name get.
//! - [`life`]: what becomes of nodes, in steps.

mod identities;
mod life;
mod recipes;
mod rules;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, stream};
use label_storage::Rules;
use serde_json::Value;

use self::life::Example;
use crate::scenario::{self, Scenario};

const CONFIGURATION: &str = include_str!("../../docs/configuration.md");
const VALUES: &str = include_str!("../../deploy/chart/values.yaml");

/// The keys of a rules file.
const RULES: [&str; 12] = [
    "labels",
    "annotations",
    "taints",
    "cordon",
    "nodes",
    "conflicts",
    "identity",
    "startupTaint",
    "patience",
    "retention",
    "cleanupShare",
    "history",
];

/// How many examples of a section are run at a time: each has two daemons of its own.
const AT_A_TIME: usize = 3;

/// The examples of the documentation, by name.
fn documented() -> Result<BTreeMap<&'static str, &'static str>> {
    let mut examples = BTreeMap::new();
    for part in CONFIGURATION.split("<!-- example: ").skip(1) {
        let (name, rest) = part.split_once(" -->\n```yaml\n").context("an example without its block")?;
        let (file, _) = rest.split_once("```\n").with_context(|| format!("{name} does not end"))?;
        ensure!(examples.insert(name, file).is_none(), "there are two examples {name}");
    }
    Ok(examples)
}

fn example(name: &str) -> Result<&'static str> {
    documented()?.remove(name).with_context(|| format!("docs/configuration.md has no example {name}"))
}

/// Runs the examples of a section.
async fn keep_their_promises(s: &Scenario, examples: Vec<Example>) -> Result<()> {
    let with_file = |its: Example| Ok((example(its.name)?, its));
    run_all(s, examples.into_iter().map(with_file).collect::<Result<_>>()?).await
}

/// Runs examples with their files, a few at a time, each in a namespace of its own.
async fn run_all(s: &Scenario, examples: Vec<(&'static str, Example)>) -> Result<()> {
    let runs = examples.iter().map(async |(file, its)| {
        let name = format!("example-{}", its.name);
        let run = scenario::within(&s.sandbox, &name, s.watch, async |s: &Scenario| its.run(s, file).await);
        run.await.map_err(|report| format!("example {}: {report}", its.name))
    });
    let results: Vec<Result<(), String>> = stream::iter(runs).buffer_unordered(AT_A_TIME).collect().await;
    let failed: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("\n")) }
}

pub async fn what_is_kept_is_what_the_examples_say(s: &Scenario) -> Result<()> {
    keep_their_promises(s, rules::what()).await
}

pub async fn whose_word_counts_is_what_the_examples_say(s: &Scenario) -> Result<()> {
    keep_their_promises(s, rules::whose()).await
}

pub async fn who_is_the_same_is_what_the_examples_say(s: &Scenario) -> Result<()> {
    keep_their_promises(s, rules::who()).await
}

pub async fn when_and_for_how_long_is_what_the_examples_say(s: &Scenario) -> Result<()> {
    keep_their_promises(s, rules::when()).await
}

pub async fn recipes_for_machines_do_what_they_say(s: &Scenario) -> Result<()> {
    keep_their_promises(s, recipes::machines()).await
}

pub async fn recipes_for_instances_do_what_they_say(s: &Scenario) -> Result<()> {
    keep_their_promises(s, recipes::instances()).await
}

/// In all rows of the table, and in no other, the documentation says what is shown.
pub async fn who_is_the_same_is_what_the_table_says(s: &Scenario) -> Result<()> {
    let rows = identities::rows();
    let shown: BTreeSet<_> = rows.iter().map(|(row, ..)| *row).collect();
    let documented: BTreeSet<_> = CONFIGURATION.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(documented, shown, "the table in docs/configuration.md, and what is shown of it");
    run_all(s, rows.into_iter().map(|(_, file, example)| (file, example)).collect()).await
}

pub async fn every_example_is_run(_s: &Scenario) -> Result<()> {
    let sections =
        [rules::what, rules::whose, rules::who, rules::when, recipes::machines, recipes::instances];
    let run: Vec<_> = sections.iter().flat_map(|section| section()).map(|example| example.name).collect();
    let names: BTreeSet<_> = run.iter().copied().collect();
    assert_eq!(names.len(), run.len(), "one of them is run twice: {run:?}");
    let documented: BTreeSet<_> = documented()?.into_keys().collect();
    let not_run: Vec<_> = documented.difference(&names).collect();
    assert!(not_run.is_empty(), "examples of docs/configuration.md that nobody runs: {not_run:?}");
    let unknown: Vec<_> = names.difference(&documented).collect();
    assert!(unknown.is_empty(), "examples that docs/configuration.md does not have: {unknown:?}");
    // One without a name would be no example at all.
    let blocks = CONFIGURATION.matches("```yaml\n").count();
    assert_eq!(blocks, documented.len(), "each block of YAML has a name");
    Ok(())
}

pub async fn the_defaults_and_the_charts_rules_are_as_documented(_s: &Scenario) -> Result<()> {
    let defaults: Value = serde_saphyr::from_str(example("defaults")?)?;
    let keys: BTreeSet<_> =
        defaults["rules"].as_object().context("a map")?.keys().map(String::as_str).collect();
    assert_eq!(keys, BTreeSet::from(RULES), "the defaults show every rule");
    assert_eq!(Rules::from_yaml(example("defaults")?)?, Rules::default());
    assert!(CONFIGURATION.contains("`--config FILE`, or `LABEL_STORAGE_CONFIG`"));
    let mut values: Value = serde_saphyr::from_str(VALUES)?;
    let chart: Value = serde_saphyr::from_str(example("chart")?)?;
    assert_eq!(chart["rules"], values["rules"].take());
    Ok(())
}
