//! The documentation's table of flags and variables: it has all of them, and what stands in it can be given like that.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::Value;

use super::life::eventually_in_force;
use super::{CONFIGURATION, example};
use crate::scenario::Scenario;

/// The rules of all flags together, each with the value that it has in the table.
const BOTH: &str = "labels: {include: [pool, 'persist.demo/*'], exclude: [machine-facts]}, \
    annotations: {include: ['example.com/*'], exclude: [example.com/seen-at]}, \
    taints: {include: [dedicated], exclude: [example.com/draining]}, cordon: true, \
    nodes: {selector: 'env in (prod,stage)', optIn: true}, \
    conflicts: [{keys: [pool], wins: record}, {keys: ['example.com/*'], wins: report}], \
    identity: {by: providerID, fence: true, trustLabels: name}, startupTaint: {enabled: true, atMost: 5m}";

/// And of those that are the storer's alone.
const STORERS: &str = "retention: forever, cleanupShare: 25%, history: 0";

/// A row of the table.
struct Row {
    /// What it is in the file.
    rule: &'static str,
    /// How it can be given as a flag.
    flags: Vec<&'static str>,
    variable: &'static str,
    is_storers: bool,
}

impl Row {
    fn all() -> Vec<Self> {
        let rows = CONFIGURATION.lines().filter(|line| line.starts_with("| `") && line.contains("| `--"));
        rows.map(|row| {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            let [_, rule, flags, variable, _] = cells[..] else { panic!("a row of three cells: {row}") };
            Self {
                rule: rule.trim_matches('`'),
                flags: flags.split('`').skip(1).step_by(2).collect(),
                variable: variable.trim_matches('`'),
                is_storers: flags.ends_with("(storer)"),
            }
        })
        .collect()
    }

    fn is_for(&self, kind: &str) -> bool {
        kind == "storer" || !self.is_storers
    }

    /// The last way to give it: its name, and its value, as a shell would give it to the program.
    fn flag(&self) -> (&'static str, Option<String>) {
        let flag = self.flags.last().expect("a flag");
        match flag.split_once([' ', '=']) {
            Some((name, value)) => (name, Some(value.trim_matches('\'').to_owned())),
            None => (flag, None),
        }
    }

    /// As an argument or two, just as it stands there.
    fn arguments(&self) -> Vec<String> {
        match self.flags.last().and_then(|flag| flag.split_once(' ')) {
            Some((name, value)) => vec![name.to_owned(), value.trim_matches('\'').to_owned()],
            None => self.flags.last().map(|flag| (*flag).to_owned()).into_iter().collect(),
        }
    }
}

/// The flags about rules that a daemon has, with their variables, as its help says.
async fn told(s: &Scenario, kind: &str) -> Result<BTreeSet<(String, String)>> {
    let daemon = s.run_binary(kind, &["--help".to_owned()], None)?;
    assert_eq!(daemon.exit().await?.code(), 0);
    let help = daemon.log();
    let rules = help.split("\nRules:\n").nth(1).context("no rules in the help")?;
    let rules = rules.lines().take_while(|line| line.is_empty() || line.starts_with(' '));
    let mut flags = BTreeSet::new();
    let mut flag = None;
    for line in rules {
        // What is said of it stands further to the right, and may begin with a flag, too.
        if let Some(line) = line.strip_prefix("      ").filter(|line| line.starts_with("--")) {
            flag = line.split([' ', '[']).next();
        } else if let Some(variable) = line.trim().strip_prefix("[env: ") {
            let variable = variable.split('=').next().context("a variable")?;
            flags.insert((flag.take().context("a flag")?.to_owned(), variable.to_owned()));
        }
    }
    Ok(flags)
}

/// What can be chosen in a file, as the defaults show it.
fn in_the_file() -> Result<BTreeSet<String>> {
    let defaults: Value = serde_saphyr::from_str(example("defaults")?)?;
    let mut rules = BTreeSet::new();
    for (key, value) in defaults.as_object().context("a map")? {
        match value.as_object() {
            // Both of it in one flag.
            Some(_) if key == "startupTaint" => _ = rules.insert(key.clone()),
            Some(below) => rules.extend(below.keys().map(|below| format!("{key}.{below}"))),
            None => _ = rules.insert(key.clone()),
        }
    }
    Ok(rules)
}

pub async fn the_table_of_flags_is_what_the_daemons_have(s: &Scenario) -> Result<()> {
    let rows = Row::all();
    let documented: BTreeSet<_> = rows.iter().map(|row| row.rule.to_owned()).collect();
    assert_eq!(documented, in_the_file()?, "what is in the table, and in the file");
    assert!(CONFIGURATION.contains("`--config FILE`, or `LABEL_STORAGE_CONFIG`"));
    for kind in ["storer", "restorer"] {
        let own: Vec<_> = rows.iter().filter(|row| row.is_for(kind)).collect();
        let mut documented: BTreeSet<_> =
            own.iter().map(|row| (row.flag().0.to_owned(), row.variable.to_owned())).collect();
        documented.insert(("--config".to_owned(), "LABEL_STORAGE_CONFIG".to_owned()));
        let told = told(s, kind).await?;
        let undocumented: Vec<_> = told.difference(&documented).collect();
        assert!(
            undocumented.is_empty(),
            "the {kind} has more than the table of docs/configuration.md: {undocumented:?}"
        );
        let unknown: Vec<_> = documented.difference(&told).collect();
        assert!(unknown.is_empty(), "docs/configuration.md has flags that the {kind} has not: {unknown:?}");

        let rules = if kind == "storer" { format!("{{{BOTH}, {STORERS}}}") } else { format!("{{{BOTH}}}") };
        let mut flags = s.flags();
        flags.push("--dry-run".to_owned());
        let kubeconfig = || Some(s.sandbox.kubeconfig().to_owned());
        let given: Vec<_> = flags.iter().cloned().chain(own.iter().flat_map(|row| row.arguments())).collect();
        eventually_in_force(s, &s.run_binary(kind, &given, kubeconfig())?, &rules).await?;
        let variables: Vec<_> =
            own.iter().map(|row| (row.variable, row.flag().1.unwrap_or_else(|| "true".to_owned()))).collect();
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        eventually_in_force(s, &s.run_with_env(kind, &flags, kubeconfig(), &variables)?, &rules).await?;
    }
    Ok(())
}
