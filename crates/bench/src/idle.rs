//! The requests of idle daemons, as the API server counts them.

use std::time::{Duration, Instant};

use crate::cold_start::{self, NAMESPACE};
use crate::load::{SETTLE, pass_time};
use crate::report::{IdleRequests, Requests};
use crate::requests::{Counts, counts};
use crate::stage::{LISTED, RESTORER, STORER, Stage};

/// Replicas of each daemon, as in the manifests.
const REPLICAS: u32 = 2;
/// Requests are counted for this long.
const WINDOW: Duration = Duration::from_secs(120);

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

    // The API server keeps its counters, so `with` has every kind that `without` has.
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
