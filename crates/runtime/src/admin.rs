//! The admin port: `/livez`, `/readyz` and `/metrics` over plain HTTP, without authentication.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
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

/// Serves until the process ends, and returns the address: port 0 stands for any free port.
pub(crate) async fn serve(address: SocketAddr, router: Router) -> anyhow::Result<SocketAddr> {
    let listener = bind(address, TcpListener::bind).await.with_context(|| {
        format!("can't listen on {address}: choose another --admin-address or --probe-address")
    })?;
    let address = listener.local_addr().unwrap_or(address);
    tracing::info!(%address, "serving health and metrics");
    tokio::spawn(axum::serve(listener, router).into_future());
    Ok(address)
}

/// `[::]` stands for all addresses of IPv6 and IPv4. Where a machine has no IPv6, those of IPv4 are left.
async fn bind<T>(address: SocketAddr, bind: impl AsyncFn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    match bind(address).await {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && error.kind() != io::ErrorKind::AddrInUse => {
            bind((Ipv4Addr::UNSPECIFIED, address.port()).into()).await
        }
        bound => bound,
    }
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
    use std::net::IpAddr;

    use http_body_util::BodyExt;
    use prometheus_client::registry::Registry;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
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
    async fn one_address_is_served_over_ipv6_and_ipv4() {
        let health = Arc::<Health>::default();
        let exposition = Exposition::new("storer", &Metrics::default(), &NoOwn, 1);
        let address = "[::]:0".parse().expect("an address");
        let port = serve(address, router(health, exposition)).await.expect("a server").port();
        let hosts = [Ipv6Addr::LOCALHOST.into(), IpAddr::from(Ipv4Addr::LOCALHOST)];
        let has_ipv6 = TcpListener::bind("[::1]:0").await.is_ok();
        for host in hosts.into_iter().filter(|host| has_ipv6 || host.is_ipv4()) {
            let mut stream = TcpStream::connect((host, port)).await.expect("a connection");
            let request = b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            stream.write_all(request).await.expect("a request");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{host}: {answer}");
        }
    }

    #[tokio::test]
    async fn without_ipv6_all_addresses_of_ipv4_are_served() {
        use io::ErrorKind::{AddrInUse, Unsupported};
        for (address, failure, expected) in [
            ("[::]:80", None, Ok("[::]:80")),
            ("[::]:80", Some(Unsupported), Ok("0.0.0.0:80")),
            ("[::]:80", Some(AddrInUse), Err(AddrInUse)),
            ("[::1]:80", Some(Unsupported), Err(Unsupported)),
        ] {
            let listen = async |address: SocketAddr| match failure.filter(|_| address.is_ipv6()) {
                Some(failure) => Err(failure.into()),
                None => Ok(address.to_string()),
            };
            let bound = bind(address.parse().expect("an address"), listen).await;
            assert_eq!(bound.map_err(|error| error.kind()), expected.map(str::to_owned), "{address}");
        }
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
