//! The client: kube's, without its hidden retries.
//!
//! By default kube sends a request again for minutes when the server is busy, writes included. Here a write is never
//! sent twice. So the retries are off, and a layer keeps the server's `Retry-After` for the callers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use http::Response;
use http::header::RETRY_AFTER;
use hyper_util::client::proxy::matcher::Matcher;
use kube::client::ClientBuilder;
use kube::config::KubeConfigOptions;
use kube::{Client, Config};
use tower::BoxError;
use tower::layer::layer_fn;
use tower::util::{MapResponseLayer, MapResultLayer};

use crate::backoff;
use crate::call::{Throttled, in_one_line};
use crate::metrics::Metrics;
use crate::requests::Counted;
use crate::server_clock::ServerClock;

/// Connects to the current kubeconfig context or, without a kubeconfig, to the pod's own cluster. Returns the URL, too.
pub(crate) async fn connect(metrics: Arc<Metrics>, clock: Arc<ServerClock>) -> Result<(Client, String)> {
    let is_set = std::env::var_os("KUBECONFIG").is_some_and(|path| !path.is_empty());
    let default = std::env::home_dir().map(|home| home.join(".kube/config"));
    // A kubeconfig that can't be used is an error: the pod's own cluster may not be the one that is meant.
    let mut config = if is_set || default.is_some_and(|path| path.exists()) {
        Config::from_kubeconfig(&KubeConfigOptions::default()).await.map_err(bad_config)?
    } else {
        Config::incluster().map_err(|error| {
            let error = in_one_line(&error);
            anyhow!("no cluster to connect to: set KUBECONFIG to a kubeconfig file, or run in a pod with a service account ({error})")
        })?
    };
    set_proxy(&mut config);
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    let url = config.cluster_url.to_string();
    let client = ClientBuilder::try_from(config)
        .map_err(bad_config)?
        .with_layer(&MapResponseLayer::new(move |response| {
            clock.read(&response);
            response
        }))
        .with_layer(&MapResultLayer::new(notice_throttling))
        .with_layer(&layer_fn(|inner| Counted { inner, metrics: Arc::clone(&metrics) }))
        .build();
    Ok((client, url))
}

/// Uses the proxy of the environment, unless the kubeconfig has one of its own or `NO_PROXY` has the API server. kube compares `NO_PROXY` with
/// the address of the proxy instead.
pub fn set_proxy(config: &mut Config) {
    let variable = ["HTTPS_PROXY", "https_proxy"].iter().find_map(|name| std::env::var(name).ok());
    let from_env = variable.as_ref().and_then(|url| url.parse().ok());
    if config.proxy_url.is_none() || config.proxy_url == from_env {
        let is_all = |name: &&str| std::env::var(name).is_ok_and(|hosts| hosts.trim() == "*");
        let is_used = Matcher::from_env().intercept(&config.cluster_url).is_some();
        let is_used = is_used && !["NO_PROXY", "no_proxy"].iter().any(is_all);
        let with_scheme = |url: String| if url.contains("://") { url } else { format!("http://{url}") };
        config.proxy_url = variable.filter(|_| is_used).and_then(|url| with_scheme(url).parse().ok());
    }
}

/// A client without retries, for the plugin. Its calls are not counted.
pub fn without_retries(mut config: Config) -> Result<Client> {
    config.default_retry = false;
    let builder = ClientBuilder::try_from(config).map_err(bad_config)?;
    Ok(builder.with_layer(&MapResultLayer::new(notice_throttling)).build())
}

fn bad_config(error: impl std::error::Error + 'static) -> anyhow::Error {
    let error = in_one_line(&error);
    anyhow!("the kubeconfig can't be used: {error}: correct it, or set KUBECONFIG to another")
}

fn notice_throttling<B>(answer: Result<Response<B>, BoxError>) -> Result<Response<B>, BoxError> {
    let response = answer?;
    let status = response.status().as_u16();
    match response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()) {
        Some(seconds) if matches!(status, 429 | 503) => {
            let retry_after = backoff::retry_after(seconds.trim().parse().ok());
            Err(Throttled { status, retry_after }.into())
        }
        _ => Ok(response),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, retry_after: Option<&str>) -> Option<Throttled> {
        let mut response = Response::builder().status(status);
        if let Some(value) = retry_after {
            response = response.header(RETRY_AFTER, value);
        }
        let error = notice_throttling(response.body(()).map_err(Into::into)).err()?;
        error.downcast_ref::<Throttled>().copied()
    }

    #[test]
    fn a_busy_server_is_believed() {
        let after = |status, seconds| Some(Throttled { status, retry_after: Duration::from_secs(seconds) });
        assert_eq!(answer(429, Some("7")), after(429, 7));
        assert_eq!(answer(503, Some(" 2 ")), after(503, 2));
        assert_eq!(answer(429, Some("a while")), after(429, 1));
        assert_eq!(answer(429, Some("86400")), after(429, 60), "not for a whole day");
        assert_eq!(answer(429, None), None);
        assert_eq!(answer(200, Some("7")), None);
    }
}
