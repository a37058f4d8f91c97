//! A mass return as the dashboard shows it: a real Prometheus scrapes real daemons, and then evaluates the queries of the dashboard.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use sandbox::dashboard::Dashboard;
use sandbox::process::Guarded;
use sandbox::prometheus::{Prometheus, Target};

use crate::Arguments;
use crate::load::{Daemons, Meter, SETTLE, pass_time};
use crate::machine::{Dress, Machine};
use crate::report::{Drawn, Evaluated, Line, Picture};
use crate::stage::{RESTORER, STORER, Stage};
use crate::watch::{Sight, Watch};

const DASHBOARD: &str = include_str!("../../../deploy/chart/files/dashboard.json");
/// Replicas of each daemon, as in the manifests.
const REPLICAS: u32 = 2;
/// A daemon must serve its metrics within this time.
const PATIENCE: Duration = Duration::from_secs(60);
/// The seconds before and after the mass return that are shown.
const MARGIN: u64 = 20;
/// Lines that stay below this share of their panel's maximum are left out, because they would overlap at the bottom.
const FAINT: f64 = 0.02;
/// The window of rates.
const RATE: &str = "5s";

/// The panels of the dashboard that are drawn, by their titles, and their units.
const PANELS: [(&str, &str); 8] = [
    ("Latest labels stored", "share"),
    ("Nodes waiting for labels", "nodes"),
    ("Nodes, and those whose latest labels are stored", ""),
    ("Nodes and labels restored", "per second"),
    ("Restore latency", "seconds"),
    ("Records written", "per second"),
    ("Queue", "nodes"),
    ("Requests", "per second"),
];

/// Needs Nodes with all their labels, and leaves them so.
pub(crate) async fn measure(stage: &mut Stage, arguments: &Arguments) -> anyhow::Result<Picture> {
    let nodes = stage.nodes.len();
    let machines = Machine::first(u32::try_from(nodes)?);
    let namespace = format!("picture-{nodes}");
    stage.cluster.create_namespace(&namespace).await?;
    let mut records = Watch::records(&stage.cluster, &namespace).await?;

    eprintln!("{REPLICAS} storers and {REPLICAS} restorers at {nodes} nodes, and Prometheus");
    let flags = ["--admin-address", "127.0.0.1:0"];
    let mut daemons = Daemons { storers: Vec::new(), restorers: Vec::new() };
    for index in 0..REPLICAS {
        daemons.storers.push(stage.daemon_with(STORER, &namespace, index, REPLICAS, &flags)?);
        daemons.restorers.push(stage.daemon_with(RESTORER, &namespace, index, REPLICAS, &flags)?);
    }
    let all: Vec<&Guarded> = daemons.storers.iter().chain(&daemons.restorers).collect();
    let mut targets = Vec::new();
    for daemon in &all {
        let labels = [("cluster", "bench"), ("namespace", namespace.as_str()), ("pod", daemon.name())];
        let labels: BTreeMap<_, _> = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        targets.push(Target { address: address(daemon).await?, labels });
    }
    let rules =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart/files/alerts.yaml").canonicalize()?;
    let prometheus = Prometheus::start(&targets, Some(&rules))?;
    let scraped = now();
    stage.see_all("storing nodes", nodes, &mut records, &all, |_| true).await?;
    tokio::time::sleep(SETTLE).await;
    stage.calm().await?;

    let meter = Meter::start(stage, &daemons)?;
    pass_time("idle, seconds", Duration::from_secs(arguments.window.max(MARGIN))).await;
    stage.check(&all)?;
    let idle = meter.stop(0.0)?;

    eprintln!("mass return of {nodes} nodes");
    let began = now();
    let meter = Meter::start(stage, &daemons)?;
    stage.delete(&machines).await?;
    let mut whole = Watch::whole_nodes(&stage.cluster).await?;
    stage.create(&machines, Dress::Bare).await?;
    stage.see_all("labels back on nodes", nodes, &mut whole, &all, |_| true).await?;
    let is_current =
        |sight: &Sight| stage.nodes.get(&sight.machine).is_some_and(|node| node.uid == sight.uid);
    stage.see_all("storing nodes again", nodes, &mut records, &all, is_current).await?;
    let busy = meter.stop(0.0)?;
    pass_time("after the mass return, seconds", Duration::from_secs(MARGIN)).await;
    stage.check(&all)?;

    let from = began - MARGIN as f64;
    let panels = panels(&prometheus, from, now()).await?;
    let dashboard = dashboard(&prometheus, scraped, now()).await?;
    Ok(Picture { nodes, replicas: REPLICAS, idle, busy, panels, dashboard })
}

/// The address at which a daemon serves its metrics, from its log.
async fn address(daemon: &Guarded) -> anyhow::Result<SocketAddr> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let log = std::fs::read_to_string(daemon.log()).unwrap_or_default();
        let found = log
            .lines()
            .find_map(|line| line.split_once(" address=")?.1.split_whitespace().next()?.parse().ok());
        match found {
            Some(address) => return Ok(address),
            None if Instant::now() > deadline => {
                anyhow::bail!("the log of {} has no metrics address:\n{}", daemon.name(), daemon.log_tail(5))
            }
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn panels(prometheus: &Prometheus, from: f64, to: f64) -> anyhow::Result<Vec<Drawn>> {
    let dashboard = Dashboard::read(DASHBOARD)?;
    let mut panels = Vec::new();
    for (title, unit) in PANELS {
        let panel =
            dashboard.panel(title).with_context(|| format!("the dashboard has no panel {title:?}"))?;
        let mut lines = Vec::new();
        for query in &panel.queries {
            for series in prometheus.query_range(&query.resolved(RATE), from, to, 1.0).await? {
                let points = series.points.iter().map(|&(at, value)| (at - from, value));
                lines.push(Line { name: query.name(&series.labels), points: points.collect() });
            }
        }
        anyhow::ensure!(!lines.is_empty(), "{title:?}: Prometheus has no data");
        let top = lines.iter().map(Line::top).fold(0.0, f64::max);
        lines.retain(|line| line.top() >= top * FAINT);
        panels.push(Drawn { title: title.to_owned(), unit, lines });
    }
    Ok(panels)
}

async fn dashboard(prometheus: &Prometheus, from: f64, to: f64) -> anyhow::Result<Vec<Evaluated>> {
    let mut evaluated = Vec::new();
    for panel in Dashboard::read(DASHBOARD)?.panels {
        let mut answers = Vec::new();
        for query in &panel.queries {
            let expression = query.resolved(RATE);
            answers.push(match panel.r#type.as_str() {
                "table" => prometheus.query(&expression).await?,
                _ => prometheus.query_range(&expression, from, to, 1.0).await?,
            });
        }
        evaluated.push(Evaluated { panel, answers });
    }
    Ok(evaluated)
}

fn now() -> f64 {
    jiff::Timestamp::now().as_millisecond() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_drawn_is_on_the_dashboard() {
        let dashboard = Dashboard::read(DASHBOARD).unwrap();
        for (title, _) in PANELS {
            assert!(dashboard.panel(title).is_some(), "{title}");
        }
    }
}
