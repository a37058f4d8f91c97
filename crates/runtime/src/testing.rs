//! An API server for unit tests, where a real one can't do on demand what is to be shown: let time pass in the middle of a call.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Parser;
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use crate::Replica;
use crate::args::{Common, Surroundings};
use crate::shutdown::Shutdown;

/// The calls that a server has had, as in `GET /api/v1/nodes/a`, or `PATCH /api/v1/nodes/a application/json-patch+json`.
#[derive(Clone, Default)]
pub struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    /// How many begin with this.
    pub fn count(&self, start: &str) -> usize {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.iter().filter(|call| call.starts_with(start)).count()
    }
}

#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    common: Common,
}

/// A replica whose server answers each call with a status and an object, or a message.
pub fn replica<F>(answer: impl Fn(String) -> F + Send + Sync + 'static) -> anyhow::Result<(Replica, Calls)>
where
    F: Future<Output = (u16, Value)> + Send + 'static,
{
    let (calls, answer) = (Calls::default(), Arc::new(answer));
    let noted = calls.clone();
    let server = service_fn(move |request: Request<Body>| {
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let content = header(http::header::CONTENT_TYPE).filter(|_| request.method() == http::Method::PATCH);
        let call = format!("{} {} {}", request.method(), request.uri().path(), content.unwrap_or_default());
        let (call, accepted) = (call.trim_end().to_owned(), header(http::header::ACCEPT));
        let is_protobuf = accepted.is_some_and(|accepted| accepted.contains("protobuf"));
        if !is_protobuf {
            noted.0.lock().unwrap_or_else(PoisonError::into_inner).push(call.clone());
        }
        let answer = Arc::clone(&answer);
        async move {
            let (code, content) =
                if is_protobuf { (406, Value::from("only JSON")) } else { answer(call).await };
            let content = match content {
                Value::String(message) => {
                    let reason = if code == 404 { "NotFound" } else { "" };
                    json!({"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code})
                }
                object => object,
            };
            let mut response = Response::new(Body::from(content.to_string().into_bytes()));
            *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
            let json = http::HeaderValue::from_static("application/json");
            response.headers_mut().insert(http::header::CONTENT_TYPE, json);
            Ok::<_, Infallible>(response)
        }
    });
    let common = Args::try_parse_from(["daemon"])?.common;
    let share = common.share(&Surroundings::default())?;
    let client = kube::Client::new(server, "default");
    Ok((Replica::new(common, share, client, "default", Shutdown::default()), calls))
}
