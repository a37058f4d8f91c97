//! An API server for unit tests. Unlike a real one, it can let time pass in the middle of a call.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Parser;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use label_storage::Node;
use label_storage::node::Machine;
use label_storage_wire::{NodePart, Object, Status, fixtures};
use serde_json::{Value, json};
use tower::service_fn;

use crate::ShardContext;
use crate::args::{Common, Surroundings};
use crate::projection::Projection;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON: &str = "application/json";

/// The calls that a server has had, as in `GET /api/v1/nodes/a`, `GET /api/v1/nodes metadata` or `PATCH /api/v1/nodes/a
/// application/json-patch+json`.
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

/// A reply of the server.
pub enum Reply {
    /// A Node, read in protobuf.
    Node(Box<Node>),
    /// A list of Nodes, read in protobuf.
    Nodes(Vec<Node>),
    /// A list of one whole Node of this name that can't be decoded.
    Broken(&'static str),
    /// A record, read in protobuf.
    Record(Box<ConfigMap>),
    /// An object, read in JSON.
    Json(u16, Value),
    /// A refusal, in the format that the caller accepts.
    Refusal(u16, &'static str),
}

/// A replica with a server that answers each call with this.
pub fn replica<F>(
    answer: impl Fn(String) -> F + Send + Sync + 'static,
) -> anyhow::Result<(ShardContext, Calls)>
where
    F: Future<Output = Reply> + Send + 'static,
{
    let (calls, answer) = (Calls::default(), Arc::new(answer));
    let noted = calls.clone();
    let server = service_fn(move |request: Request<Body>| {
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let accepted = header(ACCEPT).unwrap_or_default();
        let is_metadata = accepted.contains("as=PartialObjectMetadata") && accepted.starts_with(PROTOBUF);
        let content = match header(CONTENT_TYPE) {
            content if request.method() == http::Method::PATCH => content,
            _ => is_metadata.then_some("metadata"),
        };
        let call = format!("{} {} {}", request.method(), request.uri().path(), content.unwrap_or_default());
        let call = call.trim_end().to_owned();
        let wants_protobuf = accepted.starts_with(PROTOBUF);
        noted.0.lock().unwrap_or_else(PoisonError::into_inner).push(call.clone());
        let answer = Arc::clone(&answer);
        async move { Ok::<_, Infallible>(response(answer(call).await, wants_protobuf, is_metadata)) }
    });
    let common = Args::try_parse_from(["daemon"])?.common;
    let share = common.share(&Surroundings::default())?;
    let client = kube::Client::new(server, "default");
    Ok((ShardContext::new(common, share, client, "default", Projection::default()), calls))
}

fn response(answer: Reply, wants_protobuf: bool, is_metadata: bool) -> Response<Body> {
    let (code, media_type, body) = match answer {
        Reply::Node(node) => (200, PROTOBUF, fixtures::object("Node", &object(*node).into())),
        Reply::Nodes(nodes) => {
            let part = |object: Object| if is_metadata { Object { node: None, ..object } } else { object };
            let items: Vec<_> = nodes.into_iter().map(|node| part(object(node)).into()).collect();
            let kind = if is_metadata { "PartialObjectMetadataList" } else { "NodeList" };
            let head = fixtures::Head { kind, ..fixtures::head() };
            (200, PROTOBUF, fixtures::list(&head, &items))
        }
        Reply::Broken(name) => {
            let object = Object { name: name.to_owned(), ..Object::default() };
            // A number in the place of its spec.
            let item = [fixtures::item(&object.into()), b"\x10\x01".to_vec()].concat();
            let head = fixtures::Head { kind: "NodeList", ..fixtures::head() };
            (200, PROTOBUF, fixtures::list_of_items(&head, vec![item]))
        }
        Reply::Record(record) => {
            (200, PROTOBUF, fixtures::object("ConfigMap", &record_object(*record).into()))
        }
        Reply::Json(code, object) => (code, JSON, object.to_string().into_bytes()),
        Reply::Refusal(code, message) => {
            let reason = if code == 404 { "NotFound" } else { "" };
            if wants_protobuf {
                let (reason, message) = (reason.to_owned(), message.to_owned());
                let status = Status { code, reason, message, retry_after_seconds: None };
                (code, PROTOBUF, fixtures::status(&status))
            } else {
                let status = json!({"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code});
                (code, JSON, status.to_string().into_bytes())
            }
        }
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// The Node with its labels and its machine, and with no other fields.
fn object(node: Node) -> Object {
    let Machine { provider_id, system_uuid } = node.extras.machine;
    let [provider_id, system_uuid] = [provider_id, system_uuid].map(Option::unwrap_or_default);
    Object {
        name: node.name,
        uid: node.uid.as_str().to_owned(),
        resource_version: node.version.to_string(),
        labels: node.labels,
        node: Some(NodePart { provider_id, system_uuid, ..NodePart::default() }),
        ..Object::default()
    }
}

fn record_object(ConfigMap { metadata, data, .. }: ConfigMap) -> Object {
    Object {
        name: metadata.name.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default(),
        annotations: metadata.annotations.unwrap_or_default(),
        data: data.unwrap_or_default(),
        ..Object::default()
    }
}
