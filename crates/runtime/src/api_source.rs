//! Reads Nodes and ConfigMaps: all of them as a stream, one by name, or the changes.
//!
//! A list of 100,000 Nodes must be cheap. It has their metadata only, unless the [rules need more](Projection). Lists are decoded
//! object by object while they arrive, so that memory does not grow with the list. All requests are for protobuf, which
//! takes a tenth of the time of JSON on both sides. A server that does not serve protobuf is an error.

mod blocks;

use std::io::{self, BufReader};
use std::time::Duration;

use bytes::Bytes;
use flate2::bufread::GzDecoder;
use futures::{Stream, StreamExt, TryStreamExt};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use label_storage::ResourceVersion;
use label_storage::record::MANAGED_BY;
use label_storage_wire::{
    Asked, Content, Event, MAX_ITEM, Object, Status, read_event, read_list, read_object, read_status,
};
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};
use tokio_util::io::StreamReader;

use crate::call::{self, Error, within};
use crate::projection::Projection;

/// One kind of objects on one API server.
pub struct ApiSource {
    client: Client,
    kind: Resource,
    path: String,
    projection: Projection,
    /// For how long a list may take.
    limit: Duration,
}

/// What is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// All Nodes of the cluster.
    Nodes,
    /// The ConfigMaps of a namespace that are records.
    Records,
}

impl Resource {
    /// As the API server calls it.
    pub(crate) const fn resource(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Records => "configmaps",
        }
    }

    const fn list(self) -> &'static str {
        match self {
            Self::Nodes => "list nodes",
            Self::Records => "list configmaps",
        }
    }

    const fn get(self) -> &'static str {
        match self {
            Self::Nodes => "get node",
            Self::Records => "get configmap",
        }
    }

    const fn watch(self) -> &'static str {
        match self {
            Self::Nodes => "watch nodes",
            Self::Records => "watch configmaps",
        }
    }
}

/// How many an answer has: a list of metadata is called otherwise than one object's, or one event's.
#[derive(Clone, Copy)]
enum Number {
    All,
    One,
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The `Accept` header.
fn accept(content: Content, number: Number) -> String {
    match (content, number) {
        (Content::Metadata, Number::All) => {
            format!("{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
        }
        (Content::Metadata, Number::One) => format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
        (Content::Node | Content::ConfigMap, _) => PROTOBUF.to_owned(),
    }
}

/// A list that was read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// What is not in it did not exist at this version.
    pub version: ResourceVersion,
    /// How many there are.
    pub items: usize,
    /// What came over the wire.
    pub bytes: u64,
}

impl ApiSource {
    /// All Nodes of the cluster.
    pub fn nodes(client: Client) -> Self {
        Self::new(client, Resource::Nodes, "/api/v1/nodes".to_owned())
    }

    /// The records in a namespace.
    pub fn records(client: Client, namespace: &str) -> Self {
        Self::new(client, Resource::Records, format!("/api/v1/namespaces/{namespace}/configmaps"))
    }

    fn new(client: Client, kind: Resource, path: String) -> Self {
        Self { client, kind, path, projection: Projection::default(), limit: call::ALL }
    }

    /// The same, seen by these.
    pub fn seen_by(self, projection: Projection) -> Self {
        Self { projection, ..self }
    }

    /// The same, with lists that may take this long: for who does more with each object than a daemon does, or is far away.
    pub fn allowing(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// What is made of it.
    pub(crate) fn projection(&self) -> &Projection {
        &self.projection
    }

    /// What is asked for where many are: of a Node no more than is needed.
    fn content(&self) -> Content {
        match self.kind {
            Resource::Nodes if self.projection.needs_whole_nodes() => Content::Node,
            Resource::Nodes => Content::Metadata,
            Resource::Records => Content::ConfigMap,
        }
    }

    /// What is read.
    pub fn kind(&self) -> Resource {
        self.kind
    }

    /// Lists all, in one consistent read: without a resourceVersion, so that it is never answered from a cache that
    /// lags, and without pages, which cost the server more and can end early. `each` is called as the objects come
    /// in, on a thread of its own; what it was given is all there is only if this returns without an error.
    pub async fn list(&self, each: impl FnMut(Object) + Send + 'static) -> Result<Listed, Error> {
        let what = self.kind.list();
        within(self.limit, what, async {
            let content = self.content();
            let response = self.ask(what, &self.query(&[]), content, Number::All).await?;
            let is_compressed = is_gzip(what, response.headers())?;
            let (blocks, input) = blocks::channel();
            let projection = self.projection.clone();
            let reading = tokio::task::spawn_blocking(move || {
                let asked = Asked { content, annotations: &|key| projection.wants_annotation(content, key) };
                if is_compressed {
                    let input = BufReader::with_capacity(1 << 16, GzDecoder::new(input));
                    read_list(&asked, input, each)
                } else {
                    read_list(&asked, input, each)
                }
            });
            let bytes = blocks.send_all(chunks(response)).await;
            let listed = reading.await.map_err(|error| Error::unclear(what, error))?;
            let listed = listed.map_err(|error| Error::unclear(what, call::in_one_line(&error)))?;
            let version = version(what, &listed.resource_version)?;
            Ok(Listed { version, items: listed.items, bytes })
        })
        .await
    }

    /// Reads one, as it is now: a whole one, whatever lists have of it.
    pub async fn get(&self, name: &str) -> Result<Option<Object>, Error> {
        let what = self.kind.get();
        within(call::ONE, what, async {
            let content = match self.kind {
                Resource::Nodes => Content::Node,
                Resource::Records => Content::ConfigMap,
            };
            let response = match self.ask(what, &format!("/{name}"), content, Number::One).await {
                Ok(answer) => answer,
                Err(error) if error.code == Some(404) => return Ok(None),
                Err(error) => return Err(error),
            };
            let body = body(what, response).await?;
            let asked = Asked { content, annotations: &|key| self.projection.wants_annotation(content, key) };
            read_object(&asked, &body)
                .map(Some)
                .map_err(|error| Error::unclear(what, call::in_one_line(&error)))
        })
        .await
    }

    /// Asks for what changes after a version.
    pub async fn watch(&self, from: ResourceVersion) -> Result<Watch, Error> {
        let what = self.kind.watch();
        // The server ends it by itself after this time, if both are still there: so silence beyond it means that one
        // of them is not. Not all at the same time, lest all replicas come back at the same time for ever.
        let lasts = Duration::from_secs(rand::random_range(20..=30));
        let query = self.query(&[
            "watch=true",
            "allowWatchBookmarks=true",
            &format!("resourceVersion={from}"),
            &format!("timeoutSeconds={}", lasts.as_secs()),
        ]);
        let content = self.content();
        let response = within(call::ONE, what, self.ask(what, &query, content, Number::One)).await?;
        let input = StreamReader::new(Box::pin(chunks(response)) as Chunks);
        let frames = LengthDelimitedCodec::builder().max_frame_length(MAX_ITEM).new_read(input);
        Ok(Watch { what, frames, content, projection: self.projection.clone(), silence: lasts + GRACE })
    }

    fn query(&self, parameters: &[&str]) -> String {
        let selector = format!("labelSelector={}%3D{}", MANAGED_BY.0.replace('/', "%2F"), MANAGED_BY.1);
        let selector = (self.kind == Resource::Records).then_some(selector.as_str());
        let parameters: Vec<_> = selector.iter().chain(parameters).copied().collect();
        if parameters.is_empty() { String::new() } else { format!("?{}", parameters.join("&")) }
    }

    /// Sends a request for protobuf. The answer is a success, and is in protobuf.
    async fn ask(
        &self,
        what: &'static str,
        rest: &str,
        content: Content,
        number: Number,
    ) -> Result<Response<Body>, Error> {
        let request = Request::get(format!("{}{rest}", self.path))
            .header(ACCEPT, accept(content, number))
            .header(ACCEPT_ENCODING, "gzip")
            .body(Body::empty())
            .map_err(|error| Error::refused(what, error))?;
        let response = self.client.send(request).await.map_err(|error| Error::new(what, &error))?;
        if response.status() != StatusCode::OK {
            return Err(refusal(what, response).await);
        }
        match content_type(response.headers()) {
            PROTOBUF => Ok(response),
            other => Err(Error::unclear(what, format!("{NO_PROTOBUF}: the content type is {other:?}"))),
        }
    }
}

const NO_PROTOBUF: &str = "the API server does not serve protobuf";

/// How much longer than it should last a watch may be silent.
const GRACE: Duration = Duration::from_secs(5);

type Chunks = std::pin::Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;
type Input = StreamReader<Chunks, Bytes>;

/// What changes, as it changes.
pub struct Watch {
    what: &'static str,
    frames: FramedRead<Input, LengthDelimitedCodec>,
    content: Content,
    projection: Projection,
    silence: Duration,
}

impl Watch {
    /// The next event; `None` at an orderly end, from which one goes on with another watch. Within a minute it is
    /// noticed if the other side is not there any more.
    pub async fn next(&mut self) -> Result<Option<Event>, Error> {
        let content = self.content;
        let asked = Asked { content, annotations: &|key| self.projection.wants_annotation(content, key) };
        let frame = match tokio::time::timeout(self.silence, self.frames.next()).await {
            Err(_) => return Err(Error::unclear(self.what, "nothing was heard for too long")),
            Ok(None) => return Ok(None),
            Ok(Some(Err(error))) => return Err(Error::unclear(self.what, call::in_one_line(&error))),
            Ok(Some(Ok(frame))) => frame,
        };
        match read_event(&asked, &frame) {
            Err(error) => Err(Error::unclear(self.what, call::in_one_line(&error))),
            Ok(Event::Error(status)) => Err(self.refused(&status)),
            Ok(event) => Ok(Some(event)),
        }
    }

    fn refused(&self, status: &Status) -> Error {
        Error::answered(self.what, status.code, &status.message, status.retry_after_seconds)
    }
}

/// A resourceVersion as a number, which it has to be to be compared.
fn version(what: &'static str, text: &str) -> Result<ResourceVersion, Error> {
    text.parse().map_err(|_| Error::refused(what, format!("resourceVersion {text:?} is no number")))
}

/// Without its parameters.
fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

fn is_gzip(what: &'static str, headers: &HeaderMap) -> Result<bool, Error> {
    match headers.get(CONTENT_ENCODING).map(http::HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(false),
        Some(b"gzip") => Ok(true),
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            Err(Error::unclear(what, format!("the answer is encoded as {other:?}, which was not asked for")))
        }
    }
}

fn chunks(response: Response<Body>) -> impl Stream<Item = io::Result<Bytes>> + Send {
    response.into_body().into_data_stream().map_err(io::Error::other)
}

/// All of a small answer.
async fn body(what: &'static str, response: Response<Body>) -> Result<Vec<u8>, Error> {
    let is_compressed = is_gzip(what, response.headers())?;
    let body = Limited::new(response.into_body(), MAX_ITEM).collect().await;
    let body = body.map_err(|error| Error::unclear(what, call::in_one_line(error.as_ref())))?.to_bytes();
    if !is_compressed {
        return Ok(body.into());
    }
    let mut plain = Vec::new();
    let read =
        io::Read::read_to_end(&mut io::Read::take(GzDecoder::new(&body[..]), MAX_ITEM as u64), &mut plain);
    read.map(|_| plain).map_err(|error| Error::unclear(what, error))
}

/// The error in an answer other than success. Its body may be JSON or plain text.
async fn refusal(what: &'static str, response: Response<Body>) -> Error {
    let status = response.status();
    let answered = |message: &str, retry_after| match status {
        StatusCode::NOT_ACCEPTABLE => {
            Error::answered(what, status.as_u16(), &format!("{NO_PROTOBUF}: {message}"), retry_after)
        }
        _ => Error::answered(what, status.as_u16(), message, retry_after),
    };
    match body(what, response).await {
        Ok(body) => {
            let status = read_status(&body);
            answered(&status.message, status.retry_after_seconds)
        }
        Err(error) => answered(&error.message, None),
    }
}

#[cfg(test)]
mod tests;
