//! Counts requests to the API server, and how long it takes to answer.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use tower::Service;

use crate::metrics::Metrics;

#[derive(Debug, Clone)]
pub(crate) struct Counted<S> {
    pub(crate) inner: S,
    pub(crate) metrics: Arc<Metrics>,
}

impl<S, B, A> Service<Request<B>> for Counted<S>
where
    S: Service<Request<B>, Response = Response<A>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let described = describe(request.method(), request.uri().path(), request.uri().query());
        let (metrics, began) = (Arc::clone(&self.metrics), Instant::now());
        let count = move |answer: &Result<S::Response, S::Error>| {
            let code = answer.as_ref().ok().map(|response| response.status().as_u16());
            metrics.requested(described, code, began.elapsed());
        };
        self.inner.call(request).inspect(count).boxed()
    }
}

/// The verb and the resource of a request. Both are known in advance, because each pair is a series.
fn describe(method: &Method, path: &str, query: Option<&str>) -> [&'static str; 2] {
    const RESOURCES: [&str; 6] = ["nodes", "configmaps", "leases", "events", "namespaces", "statefulsets"];
    // /api/v1/nodes/NAME, /apis/GROUP/v1/namespaces/NAMESPACE/leases/NAME
    let skipped = if path.starts_with("/apis/") { 3 } else { 2 };
    let mut parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).skip(skipped).collect();
    if parts.first() == Some(&"namespaces") && parts.len() > 2 {
        parts.drain(..2);
    }
    let resource = parts.first().and_then(|part| RESOURCES.into_iter().find(|name| name == part));
    let is_watch = query.is_some_and(|query| query.split('&').any(|part| part == "watch=true"));
    let verb = match *method {
        Method::GET if is_watch => "watch",
        Method::GET if parts.len() > 1 => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    };
    [verb, resource.unwrap_or("other")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart() {
        let lease = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l";
        for (method, path, query, expected) in [
            (Method::GET, "/api/v1/nodes", None, ["list", "nodes"]),
            (Method::GET, "/api/v1/nodes", Some("a=b&watch=true"), ["watch", "nodes"]),
            (Method::GET, "/api/v1/nodes/a", None, ["get", "nodes"]),
            (Method::PATCH, "/api/v1/nodes/a", None, ["patch", "nodes"]),
            (Method::GET, "/api/v1/namespaces/ns/configmaps", None, ["list", "configmaps"]),
            (Method::DELETE, "/api/v1/namespaces/ns/configmaps/c", None, ["delete", "configmaps"]),
            (Method::POST, "/apis/events.k8s.io/v1/namespaces/default/events", None, ["create", "events"]),
            (Method::PUT, lease, None, ["update", "leases"]),
            (Method::GET, "/apis/apps/v1/namespaces/ns/statefulsets/s", None, ["get", "statefulsets"]),
            (Method::GET, "/api/v1/namespaces/ns", None, ["get", "namespaces"]),
            (
                Method::POST,
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                None,
                ["create", "other"],
            ),
            (Method::GET, "/version", None, ["list", "other"]),
            (Method::GET, "", None, ["list", "other"]),
        ] {
            assert_eq!(describe(&method, path, query), expected, "{method} {path}");
        }
    }
}
