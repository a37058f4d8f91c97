//! The daemons' metrics in Prometheus and Grafana: every query of the dashboard and of the alert rules finds something, and the
//! documentation lists all metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use faults::{Fault, Proxy, Request, Verb};
use sandbox::assets::{self, Binary};
use sandbox::dashboard::Dashboard;
use sandbox::prometheus::{Prometheus, Series, Target};
use serde_json::json;

use crate::daemon::Daemon;
use crate::scenario::{Scenario, labels};

const DASHBOARD: &str = include_str!("../../deploy/chart/files/dashboard.json");
const OBSERVABILITY: &str = include_str!("../../docs/observability.md");

/// Longer than the test takes: what happened in it shows in every rate.
const RATE: &str = "5m";

fn rules() -> Result<PathBuf> {
    Ok(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart/files/alerts.yaml").canonicalize()?)
}

/// True if there is a Prometheus. Without one, the test prints that it is skipped; in CI that is an error.
fn has_prometheus() -> Result<bool> {
    match assets::find(Binary::Prometheus) {
        Ok(_) => Ok(true),
        Err(error) if std::env::var_os("CI").is_some_and(|ci| !ci.is_empty()) => Err(error.into()),
        Err(error) => {
            eprintln!("SKIPPED, and nothing was checked: {error}");
            Ok(false)
        }
    }
}

/// Two storers, and a restorer whose first patches are refused by a proxy, which has to stay.
async fn daemons(s: &Scenario) -> Result<(Vec<Daemon>, Proxy)> {
    let refused = AtomicUsize::new(0);
    let proxy = s.proxy(move |request: &Request| match request.verb {
        Verb::Patch if refused.fetch_add(1, Ordering::Relaxed) < 2 => {
            Fault::Status { code: 503, retry_after: None }
        }
        _ => Fault::None,
    });
    let proxy = proxy.await?;
    let admin = ["--admin-address", "127.0.0.1:0"];
    let storer =
        |index: &str| s.storer(&[&admin[..], &["--replicas", "2", "--replica-index", index]].concat());
    let daemons = vec![storer("0")?, storer("1")?, s.daemon_through(&proxy, "restorer", &admin)?];
    for daemon in &daemons {
        s.eventually("ready", 200, async || Ok(daemon.get("/readyz").await?.0)).await?;
    }
    Ok((daemons, proxy))
}

/// A bit of everything that can happen to Nodes.
async fn make_history(s: &Scenario) -> Result<()> {
    let nodes: Vec<_> = (0..8).map(|number| s.node(&number.to_string())).collect();
    let kept = labels([("pool", "gold"), ("zone", "1")]);
    // A foreign ConfigMap has the name of its record, so every attempt fails.
    s.occupy_record(&nodes[7]).await?;
    for node in &nodes {
        s.create(node, kept.clone()).await?;
    }
    for node in &nodes[..7] {
        s.eventually_stored(node, kept.clone()).await?;
    }
    // A record that can't be read.
    let names_another = json!({"metadata": {"annotations": {"label-storage/node": "another"}}});
    s.patch_record(&nodes[4], names_another).await?;
    // Emptied, and cleaned up half a minute later.
    s.label(&nodes[6], [("pool", None), ("zone", None)]).await?;
    // Set back to what it was before.
    for pool in ["silver", "gold"] {
        s.label(&nodes[5], [("pool", Some(pool))]).await?;
        s.eventually_stored(&nodes[5], labels([("pool", pool), ("zone", "1")])).await?;
    }
    for node in &nodes[..4] {
        s.delete(node).await?;
        s.eventually_departed(node).await?;
        // With a value of its own.
        s.create(node, labels([("zone", "2")])).await?;
        s.eventually_labelled(node, labels([("pool", "gold"), ("zone", "2")])).await?;
        s.eventually_stored(node, labels([("pool", "gold"), ("zone", "2")])).await?;
    }
    s.eventually_after("the empty record is gone", true, async || Ok(s.record(&nodes[6]).await?.is_none()))
        .await
}

fn has_data(series: &[Series]) -> bool {
    series.iter().flat_map(|series| &series.points).any(|(_, value)| !value.is_nan())
}

pub async fn every_query_finds_what_the_daemons_tell_of(s: &Scenario) -> Result<()> {
    s.list_often();
    if !has_prometheus()? {
        return Ok(());
    }
    let (daemons, _proxy) = daemons(s).await?;
    let mut targets = Vec::new();
    for (index, daemon) in daemons.iter().enumerate() {
        let labels =
            [("namespace", s.namespace.clone()), ("pod", format!("{}-{index}", daemon.process.name()))];
        let labels: BTreeMap<_, _> = labels.map(|(key, value)| (key.to_owned(), value)).into();
        targets.push(Target { address: daemon.admin_address()?, labels });
    }
    let prometheus = Prometheus::start(&targets, Some(&rules()?))?;
    s.eventually("all are scraped", targets.len(), async || Ok(prometheus.query("up == 1").await?.len()))
        .await?;
    make_history(s).await?;

    for panel in Dashboard::read(DASHBOARD)?.panels {
        for query in &panel.queries {
            let expression = query.resolved(RATE);
            s.eventually(&format!("{:?}: {expression}", panel.title), true, async || {
                Ok(has_data(&prometheus.query(&expression).await?))
            })
            .await?;
        }
    }
    let rules = prometheus.rules().await?;
    ensure!(rules.len() >= 10, "{rules:?}");
    for rule in &rules {
        s.eventually(&rule.name, "ok".to_owned(), async || {
            let found = prometheus.rules().await?.into_iter().find(|found| found.query == rule.query);
            let found = found.context("the rule is gone")?;
            ensure!(found.last_error.is_empty(), "{}", found.last_error);
            Ok(found.health)
        })
        .await?;
        // An alert is silent where all is well. What it looks at has to be there all the same.
        for selector in prometheus.selectors(&rule.query).await? {
            s.eventually(&format!("{}: {selector}", rule.name), true, async || {
                Ok(has_data(&prometheus.query(&selector).await?))
            })
            .await?;
        }
    }
    let pending = r#"ALERTS{alertname="LabelStorageRecordUnreadable", alertstate="pending"}"#;
    s.eventually("an alert about the unreadable record", 1, async || {
        Ok(prometheus.query(pending).await?.len())
    })
    .await
}

/// The metric families of a daemon: name and type, as in the documentation.
async fn told(daemon: &Daemon) -> Result<BTreeSet<(String, String)>> {
    let (code, text) = daemon.get("/metrics").await?;
    ensure!(code == 200, "{text}");
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let named = types.map(|(name, kind)| match kind {
        "counter" => (format!("{name}_total"), kind.to_owned()),
        "info" => (format!("{name}_info"), "gauge".to_owned()),
        _ => (name.to_owned(), kind.to_owned()),
    });
    Ok(named.collect())
}

/// The documented metrics of this daemon.
fn documented(kind: &str) -> BTreeSet<(String, String)> {
    let prefixes = ["| `label_storage_", "| `process_"];
    let rows = OBSERVABILITY.lines().filter(|line| prefixes.iter().any(|prefix| line.starts_with(prefix)));
    let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    let own = cells.filter(|cells| ["both", kind].contains(&cells[3]));
    own.map(|cells| (cells[1].trim_matches('`').to_owned(), cells[2].to_owned())).collect()
}

pub async fn the_documentation_lists_exactly_what_the_daemons_tell_of(s: &Scenario) -> Result<()> {
    let (daemons, _proxy) = daemons(s).await?;
    let node = s.node("a");
    s.leaves_and_returns(&node, &labels([("pool", "gold")])).await?;
    s.eventually_labelled(&node, labels([("pool", "gold")])).await?;
    for (daemon, kind) in [(&daemons[0], "storer"), (&daemons[2], "restorer")] {
        let (told, documented) = (told(daemon).await?, documented(kind));
        let undocumented: Vec<_> = told.difference(&documented).collect();
        let untold: Vec<_> = documented.difference(&told).collect();
        assert!(
            undocumented.is_empty(),
            "the {kind} tells of more than docs/observability.md: {undocumented:?}"
        );
        assert!(untold.is_empty(), "docs/observability.md has more than the {kind} tells of: {untold:?}");
    }
    Ok(())
}
