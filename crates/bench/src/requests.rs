//! The number of requests that the API server has answered, from its metrics, and its CPU time.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use http::Request;

use crate::report::ServerCost;
use crate::stage::Stage;

const COUNTER: &str = "apiserver_request_total{";

/// Counts, by verb and resource.
pub(crate) type Counts = BTreeMap<(String, String), f64>;

/// The state of the API server at the beginning of a measurement.
pub(crate) struct Meter {
    cpu: Duration,
    counts: Counts,
}

impl Meter {
    pub(crate) async fn start(stage: &Stage) -> anyhow::Result<Self> {
        let counts = counts(stage).await?;
        Ok(Self { cpu: stage.api_server().cpu()?, counts })
    }

    /// The cost since the start.
    pub(crate) async fn stop(self, stage: &Stage) -> anyhow::Result<ServerCost> {
        let cpu = (stage.api_server().cpu()? - self.cpu).as_secs_f64();
        let counts = counts(stage).await?;
        let of = |verbs: &[&str]| {
            let sum = |counts: &Counts| {
                let is_asked = |verb: &str| verbs.contains(&verb);
                counts.iter().filter(|((verb, _), _)| is_asked(verb)).map(|(_, count)| count).sum::<f64>()
            };
            sum(&counts) - sum(&self.counts)
        };
        let [gets, lists, writes] = [of(&["GET"]), of(&["LIST"]), of(&["POST", "PATCH", "PUT", "DELETE"])];
        Ok(ServerCost { cpu, gets, lists, writes })
    }
}

pub(crate) async fn counts(stage: &Stage) -> anyhow::Result<Counts> {
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
