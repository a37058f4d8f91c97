//! The admin port: what people and machines that watch over a replica ask it.
//!
//! | | |
//! |---|---|
//! | `GET /livez` | 200, or 503 and why: a kubelet then starts it again |
//! | `GET /readyz` | 200, or 503 and why: it does not do its work yet, or can't |
//! | `GET /metrics` | for Prometheus and its relatives |
//! | `GET /log-level` | `info`, say |
//! | `PUT /log-level` | changes it until the next start; from this machine only, as `kubectl port-forward` is |
//!
//! Nobody has to prove who he is. So nothing is told here that is worth a secret, and a request has little time and room.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Extension, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use clap::ValueEnum;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::args::Level;
use crate::health::Health;
use crate::logging::Levels;
use crate::metrics::Exposition;

/// The format that Prometheus and its relatives ask for.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A request has to be complete by then.
const HEADERS: Duration = Duration::from_secs(5);

/// And to be answered, and the answer read. One connection, one request.
const ALL: Duration = Duration::from_secs(10);

/// So many bytes may be sent along: a word.
const BODY: usize = 64;

/// So many are answered at a time.
const CONNECTIONS: usize = 64;

/// What there is to tell.
pub(crate) struct Admin {
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Exposition,
    pub(crate) levels: Levels,
}

/// Serves on this address for as long as the process lives. Says and returns where, since port 0 is any that is free.
pub(crate) async fn serve(address: SocketAddr, admin: Admin) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("can't listen on {address}: choose another --admin-address"))?;
    let address = listener.local_addr().unwrap_or(address);
    tracing::info!(%address, "serving health and metrics");
    let router = router(Arc::new(admin));
    tokio::spawn(async move {
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            // Never closed.
            let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let router = router.clone();
                    tokio::spawn(async move {
                        answer(stream, peer, router).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    // Too many open files, most likely: that passes, or not, but is no reason to spin.
                    tracing::warn!(%error, "a connection to the admin port was not accepted");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    });
    Ok(address)
}

fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/log-level", get(level).put(set_level))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(admin)
}

/// One request of one connection. Whatever fails, there is nobody to tell.
async fn answer(stream: TcpStream, peer: SocketAddr, router: Router) {
    let service = TowerToHyperService::new(router.layer(Extension(Peer(peer))));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let _ = tokio::time::timeout(ALL, connection).await;
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
struct Peer(SocketAddr);

async fn livez(State(admin): State<Arc<Admin>>) -> Response {
    verdict(&admin.health.what_is_dead(Instant::now()))
}

async fn readyz(State(admin): State<Arc<Admin>>) -> Response {
    verdict(&admin.health.what_is_not_ready(Instant::now()))
}

fn verdict(reasons: &[String]) -> Response {
    if reasons.is_empty() {
        "ok\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", reasons.join("\n"))).into_response()
    }
}

async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    ([(CONTENT_TYPE, OPEN_METRICS)], admin.metrics.to_string()).into_response()
}

async fn level(State(admin): State<Arc<Admin>>) -> String {
    format!("{}\n", admin.levels.get())
}

async fn set_level(
    State(admin): State<Arc<Admin>>,
    Extension(Peer(peer)): Extension<Peer>,
    word: String,
) -> Response {
    if !peer.ip().to_canonical().is_loopback() {
        let advice = "only from the pod itself: kubectl port-forward POD 8080, then curl -X PUT -d debug localhost:8080/log-level\n";
        return (StatusCode::FORBIDDEN, advice).into_response();
    }
    let Ok(level) = Level::from_str(word.trim(), true) else {
        let advice = "give one of error, warn, info, debug, trace\n";
        return (StatusCode::BAD_REQUEST, advice).into_response();
    };
    match admin.levels.set(level) {
        Ok(()) => {
            tracing::info!(%level, "the log level was changed");
            format!("{level}\n").into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use prometheus_client::registry::Registry;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tower::ServiceExt;

    use super::*;
    use crate::metrics::{Metrics, Own};

    #[derive(Default)]
    struct NoOwn;

    impl Own for NoOwn {
        fn register(&self, _: &mut Registry, _: &Metrics) {}
    }

    fn admin() -> Admin {
        let metrics = Exposition::new("storer", &Metrics::default(), &NoOwn, 1, 3);
        Admin { health: Arc::default(), metrics, levels: Levels::new(Level::Info).0 }
    }

    async fn ask(admin: Admin, method: &str, path: &str, body: &str, peer: &str) -> (u16, String) {
        let peer = Peer(peer.parse().expect("an address"));
        let request = axum::http::Request::builder()
            .method(method)
            .uri(path)
            .body(axum::body::Body::from(body.to_owned()))
            .expect("a request");
        let answer =
            router(Arc::new(admin)).layer(Extension(peer)).oneshot(request).await.expect("an answer");
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        (code, String::from_utf8(body.into()).expect("text"))
    }

    const HERE: &str = "127.0.0.1:5000";

    #[tokio::test]
    async fn health_says_why_not() {
        let (alive, ready) =
            (ask(admin(), "GET", "/livez", "", HERE), ask(admin(), "GET", "/readyz", "", HERE));
        assert_eq!(alive.await, (200, "ok\n".to_owned()));
        assert_eq!(ready.await, (503, "nodes and records have not been listed yet\n".to_owned()));
        let listed = admin();
        listed.health.listed();
        assert_eq!(ask(listed, "GET", "/readyz", "", HERE).await.0, 200);
    }

    #[tokio::test]
    async fn every_metric_says_which_daemon_it_is_of() {
        let (_, text) = ask(admin(), "GET", "/metrics", "", HERE).await;
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(samples.contains(&"label_storage_shards{daemon=\"storer\"} 3"), "{text}");
        assert!(samples.iter().all(|line| line.contains("daemon=\"storer\"")), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    /// Whoever takes his time loses the connection, in the middle of a head or of a body.
    #[tokio::test(start_paused = true)]
    async fn a_request_has_little_time() {
        let address = serve("127.0.0.1:0".parse().expect("an address"), admin()).await.expect("a port");
        for half in [
            "",
            "GET /livez HTTP/1.1\r\nHost:",
            "PUT /log-level HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nde",
        ] {
            let mut stream = TcpStream::connect(address).await.expect("a connection");
            stream.write_all(half.as_bytes()).await.expect("sent");
            let mut answer = String::new();
            // Ends only when the other side does.
            let ended = tokio::time::timeout(ALL * 2, stream.read_to_string(&mut answer)).await;
            assert!(ended.is_ok(), "{half}");
            assert!(!answer.contains("200 OK"), "{half}: {answer}");
        }
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer, and its end");
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }

    #[tokio::test]
    async fn the_log_level_is_changed_from_here_alone() {
        let (levels, _layer) = Levels::new(Level::Info);
        let set =
            |body, peer| ask(Admin { levels: levels.clone(), ..admin() }, "PUT", "/log-level", body, peer);
        assert_eq!(set("debug\n", "10.0.0.7:5000").await.0, 403);
        assert_eq!(set("loud", HERE).await.0, 400);
        let long = "debug".repeat(100);
        assert_eq!(set(&long, HERE).await.0, 413);
        assert_eq!(levels.get(), Level::Info);
        assert_eq!(set("debug\n", "[::ffff:127.0.0.1]:5000").await, (200, "debug\n".to_owned()));
        assert_eq!(levels.get(), Level::Debug);
    }
}
