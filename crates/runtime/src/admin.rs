//! The admin port: `/livez`, `/readyz` and `/metrics` over plain HTTP, without authentication.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::health::Health;
use crate::metrics::Exposition;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves until the process ends. The log has the address: port 0 stands for any free port.
pub(crate) async fn serve(address: SocketAddr, router: Router) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("can't listen on {address}: choose another --admin-address or --probe-address")
    })?;
    let address = listener.local_addr().unwrap_or(address);
    tracing::info!(%address, "serving health and metrics");
    tokio::spawn(axum::serve(listener, router).into_future());
    Ok(())
}

pub(crate) fn router(health: Arc<Health>, metrics: Exposition) -> Router {
    let (ready, metrics) = (Arc::clone(&health), Arc::new(metrics));
    Router::new()
        .route("/livez", get(async move || probe(&health.what_is_dead(Instant::now()))))
        .route("/readyz", get(async move || probe(&ready.what_is_not_ready(Instant::now()))))
        .route("/metrics", get(async move || ([(CONTENT_TYPE, OPEN_METRICS)], metrics.to_string())))
}

fn probe(reasons_against: &[String]) -> (StatusCode, String) {
    match reasons_against {
        [] => (StatusCode::OK, "ok\n".to_owned()),
        reasons => (StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n") + "\n"),
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use prometheus_client::registry::Registry;
    use tower::ServiceExt;

    use super::*;
    use crate::metrics::{Metrics, Own};

    #[derive(Default)]
    struct NoOwn;

    impl Own for NoOwn {
        fn register(&self, _: &mut Registry, _: &Metrics) {}
    }

    async fn get(health: &Arc<Health>, path: &str) -> (u16, String) {
        let metrics = Metrics::default();
        metrics.shards.set(3);
        let exposition = Exposition::new("storer", &metrics, &NoOwn, 1);
        let request =
            axum::http::Request::builder().uri(path).body(axum::body::Body::empty()).expect("a request");
        let answer = router(Arc::clone(health), exposition).oneshot(request).await.expect("an answer");
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        (code, String::from_utf8(body.into()).expect("text"))
    }

    #[tokio::test]
    async fn health_says_why_not() {
        let health = Arc::default();
        let (alive, ready) = (get(&health, "/livez"), get(&health, "/readyz"));
        assert_eq!(alive.await, (200, "ok\n".to_owned()));
        assert_eq!(ready.await, (503, "nodes and records have not been listed yet\n".to_owned()));
        health.listed();
        assert_eq!(get(&health, "/readyz").await.0, 200);
    }

    #[tokio::test]
    async fn every_metric_says_which_daemon_it_is_of() {
        let (_, text) = get(&Arc::default(), "/metrics").await;
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(samples.contains(&"label_storage_shards{daemon=\"storer\"} 3"), "{text}");
        assert!(samples.iter().all(|line| line.contains("daemon=\"storer\"")), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
