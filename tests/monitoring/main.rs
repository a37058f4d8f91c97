//! What operators see is checked as far as it can be without a cluster: the alert rules, the dashboard and the runbook. That their
//! queries find what the daemons tell of is a scenario (`scenarios/monitoring.rs`).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test program")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use sandbox::assets::{self, Binary};
use sandbox::dashboard::{Dashboard, Place};
use serde::Deserialize;

const ALERTS: &str = include_str!("../../deploy/chart/files/alerts.yaml");
const DASHBOARD: &str = include_str!("../../deploy/chart/files/dashboard.json");
const RUNBOOK: &str = include_str!("../../docs/runbook.md");
const OBSERVABILITY: &str = include_str!("../../docs/observability.md");

#[derive(Deserialize)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    record: Option<String>,
    alert: Option<String>,
    expr: String,
    #[serde(default)]
    labels: Labels,
    #[serde(default)]
    annotations: Annotations,
}

#[derive(Default, Deserialize)]
struct Labels {
    #[serde(default)]
    severity: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Annotations {
    summary: String,
    description: String,
    runbook_url: String,
}

fn rules() -> Vec<Rule> {
    let rules: Rules = serde_saphyr::from_str(ALERTS).unwrap();
    rules.groups.into_iter().flat_map(|group| group.rules).collect()
}

fn alerts() -> Vec<(String, Rule)> {
    rules().into_iter().filter_map(|mut rule| Some((rule.alert.take()?, rule))).collect()
}

/// Promtool, or `None` where it can't be had, which is said aloud. In CI, it must be had.
fn promtool() -> Option<Command> {
    match assets::find(Binary::Promtool) {
        Ok(program) => {
            let mut promtool = Command::new(program);
            promtool.current_dir(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy"));
            Some(promtool)
        }
        Err(error) if std::env::var_os("CI").is_some_and(|ci| !ci.is_empty()) => panic!("{error}"),
        Err(error) => {
            eprintln!("SKIPPED, and nothing was checked: {error}");
            None
        }
    }
}

fn succeeds(mut promtool: Command, arguments: &[&str]) {
    let output = promtool.args(arguments).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "promtool {arguments:?}\n{stdout}{stderr}");
}

#[test]
fn promtool_finds_nothing_wrong_with_the_rules() {
    let Some(promtool) = promtool() else { return };
    succeeds(promtool, &["check", "rules", "--lint=all", "--lint-fatal", "chart/files/alerts.yaml"]);
}

#[test]
fn every_alert_fires_where_it_should_and_nowhere_else() {
    let Some(promtool) = promtool() else { return };
    succeeds(promtool, &["test", "rules", "alerts-test/alerts_test.yaml"]);
}

#[test]
fn every_alert_is_tested() {
    let tests = include_str!("../../deploy/alerts-test/alerts_test.yaml");
    for (alert, _) in alerts() {
        assert!(tests.contains(&format!("alertname: {alert}\n        exp_alerts:")), "{alert} never fires");
        assert!(tests.contains(&format!("alertname: {alert}}}")), "{alert} is never silent");
    }
}

#[test]
fn every_alert_says_what_it_means_and_what_to_do() {
    assert!(alerts().len() >= 9);
    for (alert, rule) in alerts() {
        assert!(["critical", "warning"].contains(&rule.labels.severity.as_str()), "{alert}");
        assert!(!rule.annotations.summary.is_empty() && !rule.annotations.description.is_empty(), "{alert}");
        let anchor = format!("docs/runbook.md#{}", alert.to_lowercase());
        assert_eq!(rule.annotations.runbook_url, anchor, "{alert}");
    }
}

#[test]
fn the_runbook_has_a_section_for_each_alert_and_for_no_other() {
    let sections: BTreeSet<&str> =
        RUNBOOK.lines().filter_map(|line| line.strip_prefix("## LabelStorage")).collect();
    let alerts = alerts();
    let expected: BTreeSet<&str> =
        alerts.iter().filter_map(|(alert, _)| alert.strip_prefix("LabelStorage")).collect();
    assert_eq!(sections, expected);
    for section in RUNBOOK.split("\n## ").skip(1).filter(|section| section.starts_with("LabelStorage")) {
        for part in ["**Means.**", "**Users notice.**", "**Look at.**", "**Do.**", "**Ignore it**"] {
            assert!(section.contains(part), "{} lacks {part}", section.lines().next().unwrap_or_default());
        }
    }
}

#[test]
fn panels_have_numbers_of_their_own_and_do_not_overlap() {
    let panels = Dashboard::read(DASHBOARD).unwrap().panels;
    let ids: BTreeSet<u32> = panels.iter().map(|panel| panel.id).collect();
    assert_eq!(ids.len(), panels.len());
    let apart =
        |a: Place, b: Place| a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y;
    for (index, panel) in panels.iter().enumerate() {
        assert!(panel.place.x + panel.place.w <= 24, "{}", panel.title);
        for other in &panels[..index] {
            assert!(apart(panel.place, other.place), "{} and {}", panel.title, other.title);
        }
        assert_eq!(panel.queries.is_empty(), panel.r#type == "row", "{}", panel.title);
    }
}

#[test]
fn whoever_looks_chooses_where_from() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    for panel in dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap().iter().map(|target| &target["datasource"]);
        for source in targets.chain([&panel["datasource"]]) {
            assert_eq!(source["uid"], "${datasource}", "{}", panel["title"]);
        }
    }
    for panel in Dashboard::read(DASHBOARD).unwrap().panels {
        for query in panel.queries {
            let selectors = query.expression.matches("label_storage_").count()
                + query.expression.matches("ALERTS").count();
            for variable in [r#"cluster=~"$cluster""#, r#"namespace=~"$namespace""#] {
                assert_eq!(query.expression.matches(variable).count(), selectors, "{}", query.expression);
            }
        }
    }
}

/// Names of metrics in an expression, as they are documented: without what Prometheus appends to a histogram's.
fn metrics(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    let names = words.filter(|word| word.starts_with("label_storage_") || word.starts_with("label_storage:"));
    names
        .map(|name| {
            name.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count").to_owned()
        })
        .collect()
}

/// The first column of the table of metrics.
fn documented() -> BTreeSet<String> {
    let rows = OBSERVABILITY.lines().filter_map(|line| line.strip_prefix("| `label_storage_"));
    rows.filter_map(|row| Some(format!("label_storage_{}", row.split_once('`')?.0))).collect()
}

#[test]
fn what_is_asked_for_is_documented_and_what_is_documented_is_shown() {
    let recorded: BTreeSet<String> = rules().into_iter().filter_map(|rule| rule.record).collect();
    let known: BTreeSet<String> = documented().into_iter().chain(recorded).collect();
    let panels = Dashboard::read(DASHBOARD).unwrap().panels;
    let shown: BTreeSet<String> =
        panels.iter().flat_map(|panel| &panel.queries).flat_map(|query| metrics(&query.expression)).collect();
    let ruled: BTreeSet<String> = rules().iter().flat_map(|rule| metrics(&rule.expr)).collect();
    let unknown: Vec<_> = shown.union(&ruled).filter(|name| !known.contains(*name)).collect();
    assert!(unknown.is_empty(), "not in docs/observability.md: {unknown:?}");
    // Which of the replicas it is stands on the replica itself.
    let hidden: Vec<_> = known.iter().filter(|name| !name.contains(':') && !shown.contains(*name)).collect();
    assert_eq!(hidden, ["label_storage_shard_index"], "not on the dashboard");
}
