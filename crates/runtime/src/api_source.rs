//! Reads Nodes and ConfigMaps: all of them as a stream, one by name, or the changes.
//!
//! A list of 100,000 Nodes must be cheap. It has their metadata only, unless the [rules need more](Projection). Lists are decoded
//! object by object while they arrive, so that memory does not grow with the list. All requests are for protobuf, which
//! takes a tenth of the time of JSON on both sides. A server that does not serve protobuf is an error.

use std::io::{self, BufReader, Read};
use std::pin::Pin;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use flate2::bufread::GzDecoder;
use futures::{Stream, StreamExt, TryStreamExt};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use label_storage::name::is_record_name;
use label_storage::record::MANAGED_BY;
use label_storage::{Node, ResourceVersion};
use label_storage_wire::{
    self as wire, Asked, Content, Event, MAX_ITEM, Object, Undecodable, read_event, read_list, read_object,
    read_status,
};
use tokio::io::{BufWriter, copy_buf};
use tokio_util::codec::{Decoder, FramedRead};
use tokio_util::io::{StreamReader, SyncIoBridge};

use crate::call::{self, Error, in_one_line, within};
use crate::projection::Projection;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const NO_PROTOBUF: &str = "the API server does not serve protobuf";

/// A server that compresses sends thousands of small chunks. Waking the thread that decodes for each costs more than decoding it,
/// so it gets blocks of about this size.
const BLOCK: usize = 1 << 16;

/// The time that a watch may be silent beyond the duration that was asked for.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resource {
    Nodes,
    /// The ConfigMaps of a namespace that are records.
    Records,
}

impl Resource {
    pub(crate) const ALL: [Self; 2] = [Self::Nodes, Self::Records];

    /// The name in URLs and metrics.
    pub(crate) const fn resource(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Records => "configmaps",
        }
    }

    /// The names of the calls to list, get and watch, in errors.
    const fn calls(self) -> [&'static str; 3] {
        match self {
            Self::Nodes => ["list nodes", "get node", "watch nodes"],
            Self::Records => ["list configmaps", "get configmap", "watch configmaps"],
        }
    }

    /// True if this is an object of the kind. Requests for records do not select them by their label, which tools remove.
    fn has(self, object: &Object) -> bool {
        let is_labelled = || object.labels.get(MANAGED_BY.0).is_some_and(|by| by == MANAGED_BY.1);
        self == Self::Nodes || is_record_name(&object.name) || is_labelled()
    }

    /// The same of an object of which only a part may have been decoded, perhaps not even the name.
    fn may_have(self, object: &Result<Object, Undecodable>) -> bool {
        match object {
            Ok(object) => self.has(object),
            Err(Undecodable { part, .. }) => part.name.is_empty() || self.has(part),
        }
    }
}

/// A list that was read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// Objects that are not in the list did not exist at this version.
    pub version: ResourceVersion,
    /// The number of objects, with those that can't be decoded, and with ConfigMaps that are not records.
    pub items: usize,
    /// The size of the body, compressed or not.
    pub bytes: u64,
}

/// One kind of objects on one API server.
pub struct ApiSource {
    client: Client,
    pub(crate) kind: Resource,
    path: String,
    pub(crate) projection: Projection,
    list_limit: Duration,
}

impl ApiSource {
    pub fn nodes(client: Client) -> Self {
        Self::new(client, Resource::Nodes, "/api/v1/nodes".to_owned())
    }

    pub fn records(client: Client, namespace: &str) -> Self {
        Self::new(client, Resource::Records, format!("/api/v1/namespaces/{namespace}/configmaps"))
    }

    fn new(client: Client, kind: Resource, path: String) -> Self {
        Self { client, kind, path, projection: Projection::default(), list_limit: call::ALL }
    }

    pub fn seen_by(self, projection: Projection) -> Self {
        Self { projection, ..self }
    }

    pub fn allowing(self, list_limit: Duration) -> Self {
        Self { list_limit, ..self }
    }

    /// Lists all objects in one consistent read. The request has no resourceVersion, so that it is not answered from a cache
    /// that lags, and no limit, because pages cost the server more. `each` is called as the objects arrive, on a thread
    /// of its own. After an error the objects that it got must be forgotten: they are not all.
    pub async fn list(
        &self,
        each: impl FnMut(Result<Object, Undecodable>) + Send + 'static,
    ) -> Result<Listed, Error> {
        self.list_as(self.content(), "gzip", each).await
    }

    /// Lists all objects, uncompressed: to compress would take the server longer than the rest, and the objects are needed soon.
    pub(crate) async fn list_uncompressed(
        &self,
        content: Content,
        each: impl FnMut(Result<Object, Undecodable>) + Send + 'static,
    ) -> Result<Listed, Error> {
        self.list_as(content, "identity", each).await
    }

    async fn list_as(
        &self,
        content: Content,
        encoding: &'static str,
        each: impl FnMut(Result<Object, Undecodable>) + Send + 'static,
    ) -> Result<Listed, Error> {
        let (kind, mut each) = (self.kind, each);
        let each = move |object: Result<Object, Undecodable>| {
            if kind.may_have(&object) {
                each(object);
            }
        };
        let [what, ..] = kind.calls();
        within(self.list_limit, what, async {
            let response = self.ask(what, content, "List", "", encoding).await?;
            let is_compressed = is_gzip(what, response.headers())?;
            let (output, input) = tokio::io::duplex(2 * BLOCK);
            let projection = self.projection.clone();
            let reading = tokio::task::spawn_blocking(move || {
                let asked = Asked { content, annotations: &|key| projection.wants_annotation(content, key) };
                // Buffered, because every read from the bridge enters the async runtime.
                let input = BufReader::with_capacity(BLOCK, SyncIoBridge::new(input));
                if is_compressed {
                    read_list(&asked, BufReader::with_capacity(BLOCK, GzDecoder::new(input)), each)
                } else {
                    read_list(&asked, input, each)
                }
            });
            let mut output = BufWriter::with_capacity(BLOCK, output);
            let copied = copy_buf(&mut reader(response), &mut output).await;
            drop(output);
            let listed = reading.await.map_err(|error| Error::unclear(what, error))?;
            let listed = match copied {
                // Otherwise the thread has failed, and reports why.
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(wire::Error::Io(error)),
                copied => listed.map(|listed| (listed, copied.unwrap_or_default())),
            };
            let (listed, bytes) = listed.map_err(|error| Error::unclear(what, in_one_line(&error)))?;
            let (version, items) = (listed.resource_version, listed.items);
            let no_number = |_| Error::refused(what, format!("resourceVersion {version:?} is not a number"));
            Ok(Listed { version: version.parse().map_err(no_number)?, items, bytes })
        })
        .await
    }

    /// Reads one whole object, even if lists have only its metadata.
    pub async fn get(&self, name: &str) -> Result<Option<Object>, Error> {
        let ([_, what, _], content) = (self.kind.calls(), self.whole());
        within(call::ONE, what, async {
            let response = match self.ask(what, content, "", &format!("/{name}"), "gzip").await {
                Err(error) if error.code == Some(404) => return Ok(None),
                answer => answer?,
            };
            let body = body(what, response).await?;
            let asked = Asked { content, annotations: &|key| self.projection.wants_annotation(content, key) };
            let object = read_object(&asked, &body);
            object.map(Some).map_err(|error| Error::unclear(what, in_one_line(&error)))
        })
        .await
    }

    pub async fn get_node(&self, name: &str) -> Result<Option<Node>, Error> {
        self.get(name).await?.map(|object| self.to_node(object)).transpose()
    }

    pub(crate) fn to_node(&self, object: Object) -> Result<Node, Error> {
        self.projection.node(object).map_err(|error| Error::refused("get node", error))
    }

    /// The same from the API server's cache, which costs it less: the Node as it was at this version, or later.
    pub async fn get_cached_node(&self, name: &str, at: ResourceVersion) -> Result<Option<Node>, Error> {
        self.get_node(&format!("{name}?resourceVersion={at}")).await
    }

    /// Watches for changes after a version.
    pub async fn watch(&self, from: ResourceVersion) -> Result<Watch, Error> {
        // The server ends the watch after this time. It is random, so that replicas do not all return at the same time.
        let lasts = Duration::from_secs(rand::random_range(35..=45));
        let query = format!(
            "?watch=true&allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds={}",
            lasts.as_secs()
        );
        let [.., what] = self.kind.calls();
        let content = if self.projection.watches_whole_nodes() { self.whole() } else { self.content() };
        let response = within(call::ONE, what, self.ask(what, content, "", &query, "gzip")).await?;
        let frames = FramedRead::new(reader(response), Frames::default());
        let (kind, projection) = (self.kind, self.projection.clone());
        Ok(Watch { kind, frames, content, projection, silence: lasts + GRACE })
    }

    /// The content of lists of all objects.
    pub(crate) fn content(&self) -> Content {
        let is_metadata = self.kind == Resource::Nodes && !self.projection.needs_whole_nodes();
        if is_metadata { Content::Metadata } else { self.whole() }
    }

    pub(crate) fn whole(&self) -> Content {
        match self.kind {
            Resource::Nodes => Content::Node,
            Resource::Records => Content::ConfigMap,
        }
    }

    /// Sends a request. The answer is a success, and is protobuf. `list` is "List" for a list.
    async fn ask(
        &self,
        what: &'static str,
        content: Content,
        list: &str,
        rest: &str,
        encoding: &'static str,
    ) -> Result<Response<Body>, Error> {
        let metadata = format!(";as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1");
        let form = if content == Content::Metadata { &metadata } else { "" };
        let request = Request::get(format!("{}{rest}", self.path))
            .header(ACCEPT, format!("{PROTOBUF}{form}"))
            .header(ACCEPT_ENCODING, encoding)
            .body(Body::empty())
            .map_err(|error| Error::refused(what, error))?;
        let response = self.client.send(request).await.map_err(|error| Error::new(what, &error))?;
        if response.status() != StatusCode::OK {
            return Err(refusal(what, response).await);
        }
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        match content_type.and_then(|value| value.split(';').next()).unwrap_or_default().trim() {
            PROTOBUF => Ok(response),
            other => Err(Error::unclear(what, format!("{NO_PROTOBUF}: the content type is {other:?}"))),
        }
    }
}

type Reader = StreamReader<Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>, Bytes>;

/// Splits a watch into events. An event of more than [`MAX_ITEM`] bytes is skipped: it is `None`.
#[derive(Default)]
struct Frames {
    /// The bytes left of an event that is skipped.
    skipped: usize,
}

impl Decoder for Frames {
    type Item = Option<BytesMut>;
    type Error = io::Error;

    fn decode(&mut self, source: &mut BytesMut) -> io::Result<Option<Self::Item>> {
        let skipped = self.skipped.min(source.len());
        source.advance(skipped);
        self.skipped -= skipped;
        let Some(head) = source.first_chunk() else { return Ok(None) };
        let length = u32::from_be_bytes(*head) as usize;
        if length > MAX_ITEM {
            (self.skipped, *source) = (length, source.split_off(head.len()));
            return Ok(Some(None));
        }
        let is_whole = source.len() >= head.len() + length;
        Ok(is_whole.then(|| {
            source.advance(size_of::<u32>());
            Some(source.split_to(length))
        }))
    }
}

pub struct Watch {
    kind: Resource,
    frames: FramedRead<Reader, Frames>,
    content: Content,
    projection: Projection,
    /// The longest time without an event. After it the server must be gone.
    silence: Duration,
}

impl Watch {
    /// The next event, or `None` if the server ended the watch because its time is over.
    pub async fn next(&mut self) -> Result<Option<Event>, Error> {
        let [.., what] = self.kind.calls();
        let frame = match tokio::time::timeout(self.silence, self.frames.next()).await {
            Err(_) => return Err(Error::unclear(what, "no event within the time limit")),
            Ok(None) => return Ok(None),
            Ok(Some(frame)) => frame.map_err(|error| Error::unclear(what, in_one_line(&error)))?,
        };
        let Some(frame) = frame else {
            let error = wire::Error::TooLarge.to_string();
            return Ok(Some(Event::Undecodable(Undecodable { part: Box::default(), error })));
        };
        let (content, projection) = (self.content, &self.projection);
        let asked = Asked { content, annotations: &|key| projection.wants_annotation(content, key) };
        match read_event(&asked, &frame).map_err(|error| Error::unclear(what, in_one_line(&error)))? {
            Event::Error(status) => {
                Err(Error::answered(what, status.code, &status.message, status.retry_after_seconds))
            }
            // All that counts of an object of another kind is its version.
            Event::Changed(object) | Event::Deleted(object) if !self.kind.has(&object) => {
                Ok(Some(Event::Bookmark { resource_version: object.resource_version }))
            }
            event => Ok(Some(event)),
        }
    }
}

fn is_gzip(what: &'static str, headers: &HeaderMap) -> Result<bool, Error> {
    match headers.get(CONTENT_ENCODING) {
        None => Ok(false),
        Some(encoding) if encoding == "identity" || encoding == "gzip" => Ok(encoding == "gzip"),
        Some(other) => {
            Err(Error::unclear(what, format!("the answer is encoded as {other:?}, which was not asked for")))
        }
    }
}

fn reader(response: Response<Body>) -> Reader {
    StreamReader::new(Box::pin(response.into_body().into_data_stream().map_err(io::Error::other)))
}

async fn body(what: &'static str, response: Response<Body>) -> Result<Vec<u8>, Error> {
    let is_compressed = is_gzip(what, response.headers())?;
    let body = Limited::new(response.into_body(), MAX_ITEM).collect().await;
    let body = body.map_err(|error| Error::unclear(what, in_one_line(error.as_ref())))?.to_bytes();
    if !is_compressed {
        return Ok(body.into());
    }
    let mut plain = Vec::new();
    let read = GzDecoder::new(&body[..]).take(MAX_ITEM as u64).read_to_end(&mut plain);
    read.map(|_| plain).map_err(|error| Error::unclear(what, error))
}

/// The error in an answer other than success. Its body may be JSON or plain text.
async fn refusal(what: &'static str, response: Response<Body>) -> Error {
    let code = response.status();
    let mut status = match body(what, response).await {
        Ok(body) => read_status(&body),
        Err(error) => wire::Status { message: error.message, ..wire::Status::default() },
    };
    if code == StatusCode::NOT_ACCEPTABLE {
        status.message = format!("{NO_PROTOBUF}: {}", status.message);
    }
    Error::answered(what, code.as_u16(), &status.message, status.retry_after_seconds)
}

#[cfg(test)]
mod tests;
