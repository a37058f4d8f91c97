//! The requests of daemons that have nothing to do, as the API server counts them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context;
use http::Request;

use crate::cold_start::{self, NAMESPACE};
use crate::load::{SETTLE, pass_time};
use crate::report::{IdleRequests, Requests};
use crate::stage::{LISTED, RESTORER, STORER, Stage};

/// Of each daemon, as in the manifests.
const REPLICAS: u32 = 2;
/// Requests are counted for this long.
const WINDOW: Duration = Duration::from_secs(120);
const COUNTER: &str = "apiserver_request_total{";

/// Counts, by verb and resource.
type Counts = BTreeMap<(String, String), f64>;

/// Counts requests without daemons first: those are the API server's own and the bench's.
pub(crate) async fn measure(stage: &mut Stage) -> anyhow::Result<IdleRequests> {
    cold_start::ensure_records(stage).await?;
    tokio::time::sleep(SETTLE).await;
    let without = per_minute(stage, "without daemons, seconds").await?;

    let mut daemons = Vec::new();
    for index in 0..REPLICAS {
        for kind in [STORER, RESTORER] {
            daemons.push(stage.daemon(kind, NAMESPACE, index, REPLICAS)?);
        }
    }
    for daemon in &daemons {
        stage.await_log(daemon, LISTED).await?;
    }
    tokio::time::sleep(SETTLE).await;
    stage.calm().await?;
    let with = per_minute(stage, "idle daemons, seconds").await?;
    stage.check(&daemons.iter().collect::<Vec<_>>())?;

    // The API server forgets no counter, so those without daemons are all there.
    let requests = with.into_iter().map(|(kind, with)| {
        let without = without.get(&kind).copied().unwrap_or_default();
        let (verb, resource) = kind;
        Requests { verb, resource, with, without }
    });
    let requests = requests.filter(|requests| requests.with > 0.0 || requests.without > 0.0).collect();
    Ok(IdleRequests { nodes: stage.nodes.len(), replicas: REPLICAS, requests })
}

async fn per_minute(stage: &Stage, what: &str) -> anyhow::Result<Counts> {
    let (before, began) = (counts(stage).await?, Instant::now());
    pass_time(what, WINDOW).await;
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    let rate = |(kind, count): ((String, String), f64)| {
        let rate = (count - before.get(&kind).copied().unwrap_or_default()) / minutes;
        (kind, rate)
    };
    Ok(counts(stage).await?.into_iter().map(rate).collect())
}

async fn counts(stage: &Stage) -> anyhow::Result<Counts> {
    let request = Request::get("/metrics").body(Vec::new())?;
    let metrics = stage.cluster.client.request_text(request).await.context("reading /metrics")?;
    Ok(counts_in(&metrics))
}

/// The requests of a Prometheus exposition. A watch is counted when it ends.
fn counts_in(metrics: &str) -> Counts {
    let mut counts = Counts::new();
    for line in metrics.lines().filter_map(|line| line.strip_prefix(COUNTER)) {
        let Some((labels, count)) = line.rsplit_once("} ") else { continue };
        let label = |key: &str| {
            let pair = labels.split(',').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
            pair.unwrap_or_default().trim_matches('"').to_owned()
        };
        let count: f64 = count.parse().unwrap_or_default();
        *counts.entry((label("verb"), label("resource"))).or_default() += count;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_verb_and_resource() {
        let metrics = r#"
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="leases",subresource="",verb="PUT",version="v1"} 7
apiserver_request_total{code="409",resource="leases",subresource="",verb="PUT",version="v1"} 2
apiserver_request_total{code="200",resource="nodes",subresource="status",verb="PATCH",version="v1"} 1e+03
apiserver_request_duration_seconds_count{resource="nodes",verb="LIST"} 5
"#;
        let expected = [(("PATCH", "nodes"), 1000.0), (("PUT", "leases"), 9.0)];
        let expected =
            expected.map(|((verb, resource), count)| ((verb.to_owned(), resource.to_owned()), count));
        assert_eq!(counts_in(metrics), Counts::from(expected));
    }
}
