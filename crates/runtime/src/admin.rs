//! The admin port: what people and machines that watch over a replica ask it.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::metrics::Metrics;

/// The format that Prometheus and its relatives ask for.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves on this address for as long as the process lives. Says where, since port 0 is any that is free.
pub(crate) async fn serve(address: SocketAddr, metrics: &Metrics) -> anyhow::Result<()> {
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let registry = Arc::new(registry);
    let metrics = move || {
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &registry);
        std::future::ready(([(CONTENT_TYPE, OPEN_METRICS)], text))
    };
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("can't listen on {address}: choose another --admin-address"))?;
    let address = listener.local_addr().unwrap_or(address);
    tracing::info!(%address, "serving metrics");
    let router = Router::new().route("/metrics", get(metrics));
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "metrics are not served any more");
        }
    });
    Ok(())
}
