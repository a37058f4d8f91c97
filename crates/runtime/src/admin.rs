//! The admin port: `/livez`, `/readyz` and `/metrics` over plain HTTP, without authentication.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::health::Health;
use crate::metrics::Exposition;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) struct Admin {
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Exposition,
}

/// Serves until the process ends. The log has the address: port 0 stands for any free port.
pub(crate) async fn serve(address: SocketAddr, admin: Admin) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("can't listen on {address}: choose another --admin-address"))?;
    let address = listener.local_addr().unwrap_or(address);
    tracing::info!(%address, "serving health and metrics");
    let router = router(Arc::new(admin));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(())
}

fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/livez", get(|admin| probe(admin, Health::what_is_dead)))
        .route("/readyz", get(|admin| probe(admin, Health::what_is_not_ready)))
        .route("/metrics", get(metrics))
        .with_state(admin)
}

async fn probe(
    State(admin): State<Arc<Admin>>,
    reasons_against: fn(&Health, Instant) -> Vec<String>,
) -> Response {
    let reasons = reasons_against(&admin.health, Instant::now());
    if reasons.is_empty() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", reasons.join("\n"))).into_response()
}

async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    ([(CONTENT_TYPE, OPEN_METRICS)], admin.metrics.to_string()).into_response()
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

    fn admin() -> Admin {
        let metrics = Metrics::default();
        metrics.shards.set(3);
        Admin { health: Arc::default(), metrics: Exposition::new("storer", &metrics, &NoOwn, 1) }
    }

    async fn get(admin: Admin, path: &str) -> (u16, String) {
        let request =
            axum::http::Request::builder().uri(path).body(axum::body::Body::empty()).expect("a request");
        let answer = router(Arc::new(admin)).oneshot(request).await.expect("an answer");
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        (code, String::from_utf8(body.into()).expect("text"))
    }

    #[tokio::test]
    async fn health_says_why_not() {
        let (alive, ready) = (get(admin(), "/livez"), get(admin(), "/readyz"));
        assert_eq!(alive.await, (200, "ok\n".to_owned()));
        assert_eq!(ready.await, (503, "nodes and records have not been listed yet\n".to_owned()));
        let listed = admin();
        listed.health.listed();
        assert_eq!(get(listed, "/readyz").await.0, 200);
    }

    #[tokio::test]
    async fn every_metric_says_which_daemon_it_is_of() {
        let (_, text) = get(admin(), "/metrics").await;
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(samples.contains(&"label_storage_shards{daemon=\"storer\"} 3"), "{text}");
        assert!(samples.iter().all(|line| line.contains("daemon=\"storer\"")), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
