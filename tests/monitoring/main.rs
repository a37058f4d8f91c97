//! Checks the alert rules, the dashboard and the runbook, as far as that is possible without a cluster. `scenarios/monitoring.rs` checks
//! their queries against running daemons.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test program")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Output};

use sandbox::assets::{self, Binary};
use sandbox::dashboard::{Dashboard, Place};
use serde::Deserialize;

const ALERTS: &str = include_str!("../../deploy/chart/files/alerts.yaml");
const DASHBOARD: &str = include_str!("../../deploy/chart/files/dashboard.json");
const RUNBOOK: &str = include_str!("../../docs/runbook.md");
const RUNBOOK_URL: &str = "https://github.com/OWNER/REPOSITORY/blob/main/docs/runbook.md";
const OBSERVABILITY: &str = include_str!("../../docs/observability.md");

#[derive(Deserialize)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Rule {
    record: Option<String>,
    alert: Option<String>,
    expr: String,
    #[serde(default)]
    r#for: String,
    #[serde(default)]
    labels: Labels,
    #[serde(default)]
    annotations: Annotations,
}

#[derive(Debug, PartialEq, Default, Deserialize)]
struct Labels {
    #[serde(default)]
    severity: String,
}

#[derive(Debug, PartialEq, Default, Deserialize)]
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

/// A tool in the folder deploy, or `None` where it can't be had, which is said aloud. In CI, it must be had.
fn tool(binary: Binary) -> Option<Command> {
    match assets::find(binary) {
        Ok(program) => {
            let mut tool = Command::new(program);
            tool.current_dir(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy"));
            Some(tool)
        }
        Err(error) if std::env::var_os("CI").is_some_and(|ci| !ci.is_empty()) => panic!("{error}"),
        Err(error) => {
            eprintln!("SKIPPED, and nothing was checked: {error}");
            None
        }
    }
}

fn succeeds(mut tool: Command, arguments: &[&str]) -> Output {
    let output = tool.args(arguments).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{tool:?}\n{stdout}{stderr}");
    output
}

#[test]
fn promtool_finds_nothing_wrong_with_the_rules() {
    let Some(promtool) = tool(Binary::Promtool) else { return };
    succeeds(promtool, &["check", "rules", "--lint=all", "--lint-fatal", "chart/files/alerts.yaml"]);
}

#[test]
fn every_alert_fires_where_it_should_and_nowhere_else() {
    let Some(promtool) = tool(Binary::Promtool) else { return };
    succeeds(promtool, &["test", "rules", "alerts-test/alerts_test.yaml", "alerts-test/week_test.yaml"]);
}

#[test]
fn every_alert_is_tested() {
    let tests = concat!(
        include_str!("../../deploy/alerts-test/alerts_test.yaml"),
        include_str!("../../deploy/alerts-test/week_test.yaml")
    );
    for (alert, _) in alerts() {
        assert!(tests.contains(&format!("alertname: {alert}\n        exp_alerts:")), "{alert} never fires");
        assert!(tests.contains(&format!("alertname: {alert}}}")), "{alert} is never silent");
    }
}

#[test]
fn every_alert_says_what_it_means_and_what_to_do() {
    assert!(alerts().len() >= 9);
    for (alert, rule) in alerts() {
        assert!(["critical", "warning", "info"].contains(&rule.labels.severity.as_str()), "{alert}");
        assert!(!rule.annotations.summary.is_empty() && !rule.annotations.description.is_empty(), "{alert}");
        assert_eq!(rule.annotations.runbook_url, format!("{RUNBOOK_URL}#{}", alert.to_lowercase()));
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
fn recorded_series_are_named_by_level_metric_and_operation() {
    for Rule { record, expr, .. } in rules() {
        let Some(record) = record else { continue };
        let [level, metric, operation] = record.split(':').collect::<Vec<_>>().try_into().unwrap();
        assert!(metric.starts_with("label_storage_") && !operation.is_empty(), "{record}");
        let labels = level.replace('_', ", ");
        assert!(expr.contains(&format!("by ({labels})")) || expr.contains(level), "{record}: {expr}");
    }
}

/// The rules of the chart's PrometheusRule.
fn rendered(arguments: &[&str]) -> Option<Vec<Rule>> {
    let mut helm = tool(Binary::Helm)?;
    helm.args(["template", "chart", "--show-only=templates/monitoring.yaml", "--set=alerts.enabled=true"]);
    let text = String::from_utf8(succeeds(helm, arguments).stdout).unwrap();
    #[derive(Deserialize)]
    struct PrometheusRule {
        spec: Rules,
    }
    let rule: PrometheusRule = serde_saphyr::from_str(&text).unwrap();
    Some(rule.spec.groups.into_iter().flat_map(|group| group.rules).collect())
}

#[test]
fn the_chart_installs_the_rules_as_they_are_in_the_file() {
    let Some(rendered) = rendered(&[]) else { return };
    assert_eq!(rendered, rules());
    let further = ["--set=alerts.extraRules[0].record=a", "--set=alerts.extraRules[0].expr=b"];
    let further = self::rendered(&further).unwrap();
    assert_eq!(further.len(), rules().len() + 1);
    assert_eq!(further.last().unwrap().record.as_deref(), Some("a"));
}

#[test]
fn each_alert_can_be_switched_off() {
    let off = alerts().into_iter().map(|(alert, _)| format!("--set=alerts.rules.{alert}.enabled=false"));
    let off: Vec<String> = off.collect();
    for (argument, (alert, _)) in off.iter().zip(alerts()) {
        let Some(rendered) = rendered(&[argument]) else { return };
        assert_eq!(rendered.len(), rules().len() - 1, "{alert}");
        assert!(rendered.iter().all(|rule| rule.alert.as_ref() != Some(&alert)), "{alert}");
    }
    let none = rendered(&off.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    assert!(none.iter().all(|rule| rule.alert.is_none()) && !none.is_empty());
}

#[test]
fn each_alert_can_be_retuned() {
    for (alert, before) in alerts() {
        let value = format!("--set=alerts.rules.{alert}");
        let runbook = "--set=alerts.runbookUrl=https://example.com/runbook";
        let arguments = [format!("{value}.for=17m"), format!("{value}.severity=info"), runbook.to_owned()];
        let Some(all) = rendered(&arguments.each_ref().map(String::as_str)) else { return };
        let after = all.into_iter().find(|rule| rule.alert.as_ref() == Some(&alert)).unwrap();
        assert_eq!((after.r#for.as_str(), after.labels.severity.as_str()), ("17m", "info"), "{alert}");
        let anchor = format!("https://example.com/runbook#{}", alert.to_lowercase());
        assert_eq!((after.annotations.runbook_url, &after.expr), (anchor, &before.expr));

        let threshold = format!("{value}.threshold=0.25");
        if ["Down", "HistoryLost", "Absent"].iter().any(|name| alert == format!("LabelStorage{name}")) {
            let mut helm = tool(Binary::Helm).unwrap();
            let refused = helm.args(["template", "chart", &threshold]).output().unwrap();
            assert!(!refused.status.success(), "{alert} has no threshold");
            continue;
        }
        let all = rendered(&[&threshold]).unwrap();
        let after = all.into_iter().find(|rule| rule.alert.as_ref() == Some(&alert)).unwrap();
        let changed = before.expr.split_whitespace().zip(after.expr.split_whitespace());
        let changed: Vec<_> = changed.filter(|(before, after)| before != after).collect();
        assert!(matches!(changed[..], [(_, "0.25")]), "{alert}: {changed:?}");
    }
}

#[test]
fn an_unknown_alert_is_refused() {
    let Some(mut helm) = tool(Binary::Helm) else { return };
    let refused = helm.args(["template", "chart", "--set=alerts.rules.LabelStorageTypo.enabled=false"]);
    let error = String::from_utf8(refused.output().unwrap().stderr).unwrap();
    assert!(error.contains("LabelStorageTypo"), "{error}");
}

#[test]
fn monitors_rules_and_dashboard_can_be_placed_and_relabelled() {
    let Some(mut helm) = tool(Binary::Helm) else { return };
    helm.args(["template", "chart", "--namespace=nodes", "--show-only=templates/monitoring.yaml"]);
    helm.args([
        "--set=alerts.enabled=true,alerts.namespace=rules,alerts.labels.team=a,metrics.labels.team=b",
    ]);
    helm.args(["--set=metrics.monitor=ServiceMonitor,metrics.namespace=monitors,metrics.scrapeTimeout=7s"]);
    helm.args(["--set=metrics.relabelings[0].targetLabel=cluster,metrics.relabelings[0].replacement=eu"]);
    helm.args(["--set=metrics.metricRelabelings[0].action=drop"]);
    helm.args([
        "--set=dashboard.enabled=true,dashboard.namespace=grafana,dashboard.annotations.folder=Nodes",
    ]);
    let text = String::from_utf8(succeeds(helm, &[]).stdout).unwrap();
    let all: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text).unwrap();
    let find = |kind: &str| all.iter().find(|object| object["kind"] == kind).unwrap();
    let (monitor, rule, dashboard) = (find("ServiceMonitor"), find("PrometheusRule"), find("ConfigMap"));
    assert_eq!(monitor["metadata"]["namespace"], "monitors");
    assert_eq!(monitor["metadata"]["labels"]["team"], "b");
    assert_eq!(monitor["spec"]["namespaceSelector"]["matchNames"][0], "nodes");
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!(endpoint["scrapeTimeout"], "7s");
    assert_eq!(endpoint["relabelings"][0]["replacement"], "eu");
    assert_eq!(endpoint["metricRelabelings"][0]["action"], "drop");
    assert_eq!(
        (&rule["metadata"]["namespace"], &rule["metadata"]["labels"]["team"]),
        (&"rules".into(), &"a".into())
    );
    assert_eq!(dashboard["metadata"]["namespace"], "grafana");
    assert_eq!(dashboard["metadata"]["annotations"]["folder"], "Nodes");
}

#[test]
fn every_reason_to_withhold_labels_is_documented() {
    let row =
        OBSERVABILITY.lines().find(|line| line.starts_with("| `label_storage_items_withheld`")).unwrap();
    for reason in label_storage::restore::Why::ALL {
        assert!(row.contains(&format!("`{}`", reason.as_str())), "{}", reason.as_str());
    }
}

#[test]
fn rows_after_the_third_are_closed() {
    let panels = Dashboard::read(DASHBOARD).unwrap().panels;
    let closed: Vec<_> =
        panels.iter().filter(|panel| panel.r#type == "row").map(|row| row.collapsed).collect();
    assert!(closed.len() > 3, "{closed:?}");
    assert!(closed.iter().enumerate().all(|(index, closed)| *closed == (index >= 3)), "{closed:?}");
}

#[test]
fn alerts_that_are_not_installed_are_not_shown_as_none() {
    let dashboard = Dashboard::read(DASHBOARD).unwrap();
    let panel = dashboard.panel("Alerts firing").unwrap();
    assert_eq!(panel.no_value(), "rules not installed");
    for query in dashboard.panels.iter().flat_map(|panel| &panel.queries) {
        assert!(!query.expression.contains("vector("), "a value without data: {}", query.expression);
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
    let outer = dashboard["panels"].as_array().unwrap().iter();
    let panels = outer.flat_map(|panel| panel["panels"].as_array().into_iter().flatten().chain([panel]));
    for panel in panels.filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap().iter().map(|target| &target["datasource"]);
        for source in targets.chain([&panel["datasource"]]) {
            assert_eq!(source["uid"], "${datasource}", "{}", panel["title"]);
        }
    }
    for panel in Dashboard::read(DASHBOARD).unwrap().panels {
        for query in panel.queries {
            let metrics = ["label_storage_", "process_", "ALERTS"];
            let selectors: usize =
                metrics.iter().map(|metric| query.expression.matches(metric).count()).sum();
            for variable in [r#"cluster=~"$cluster""#, r#"namespace=~"$namespace""#] {
                assert_eq!(query.expression.matches(variable).count(), selectors, "{}", query.expression);
            }
        }
    }
}

/// Names of metrics in an expression, as they are documented: without what Prometheus appends to a histogram's.
fn metrics(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    let names = words.filter(|word| word.contains("label_storage_") || word.starts_with("process_"));
    names
        .map(|name| {
            name.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count").to_owned()
        })
        .collect()
}

/// The first column of the table of metrics.
fn documented() -> BTreeSet<String> {
    let rows = OBSERVABILITY.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let names = rows.map(|(name, _)| name).filter(|name| !metrics(name).is_empty());
    names.map(str::to_owned).collect()
}

#[test]
fn what_is_asked_for_is_documented_and_what_is_documented_is_shown() {
    let recorded: BTreeSet<String> = rules().into_iter().filter_map(|rule| rule.record).collect();
    let known = documented();
    let (documented, _): (Vec<_>, Vec<_>) = known.iter().cloned().partition(|name| name.contains(':'));
    assert_eq!(documented, recorded.into_iter().collect::<Vec<_>>(), "recorded");
    let panels = Dashboard::read(DASHBOARD).unwrap().panels;
    let shown: BTreeSet<String> =
        panels.iter().flat_map(|panel| &panel.queries).flat_map(|query| metrics(&query.expression)).collect();
    let ruled: BTreeSet<String> = rules().iter().flat_map(|rule| metrics(&rule.expr)).collect();
    let unknown: Vec<_> = shown.union(&ruled).filter(|name| !known.contains(*name)).collect();
    assert!(unknown.is_empty(), "not in docs/observability.md: {unknown:?}");
    // Which of the replicas it is stands on the replica itself. Virtual memory says nothing of the memory that is used.
    let hidden: Vec<_> = known.iter().filter(|name| !name.contains(':') && !shown.contains(*name)).collect();
    assert_eq!(hidden, ["label_storage_shard_index", "process_virtual_memory_bytes"], "not on the dashboard");
}
