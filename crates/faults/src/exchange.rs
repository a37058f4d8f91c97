//! One request and its answer, and the fault that is applied to them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, TRANSFER_ENCODING,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use kube::Client;

use crate::edit::{self, Format, Frames};
use crate::fault::{Class, Fault};
use crate::recordings::{Answer, Question, Recordings};
use crate::request::{Request, Verb};
use crate::script::Script;

/// The reason to reset a connection to a daemon.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Reset(String);

impl Reset {
    fn because(reason: impl std::fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

pub(crate) type Body = UnsyncBoxBody<Bytes, Reset>;

/// An event about a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    /// The client has requested it.
    Asked,
    /// The server or the proxy has answered 410, and the client is about to read that.
    Expired,
}

/// Called for each event about a watch.
pub(crate) type Witness = Arc<dyn Fn(&Request, Watched) + Send + Sync>;

/// The state that all connections share.
pub(crate) struct Exchange {
    /// The client for the real server, without credentials: daemons send their own.
    client: Client,
    script: Mutex<Box<dyn Script>>,
    counts: Mutex<BTreeMap<Class, u64>>,
    recordings: Mutex<Recordings>,
    late_arrivals: Arc<AtomicUsize>,
    pub(crate) witness: OnceLock<Witness>,
}

/// A panic elsewhere does not leave this state inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Exchange {
    pub(crate) fn new(client: Client, script: impl Script) -> Self {
        Self {
            client,
            script: Mutex::new(Box::new(script)),
            counts: Mutex::default(),
            recordings: Mutex::default(),
            late_arrivals: Arc::default(),
            witness: OnceLock::new(),
        }
    }

    pub(crate) fn late_arrivals(&self) -> usize {
        self.late_arrivals.load(Ordering::Relaxed)
    }

    pub(crate) fn set_script(&self, script: impl Script) {
        *lock(&self.script) = Box::new(script);
    }

    pub(crate) fn counts(&self) -> BTreeMap<Class, u64> {
        lock(&self.counts).clone()
    }

    fn count(&self, fault: Fault) {
        if let Some(class) = fault.class() {
            *lock(&self.counts).entry(class).or_default() += 1;
        }
    }

    fn tell(&self, request: &Request, watched: Watched) {
        if request.verb == Verb::Watch
            && let Some(witness) = self.witness.get()
        {
            witness(request, watched);
        }
    }

    /// Answers a request, or resets the connection that it came over.
    pub(crate) async fn answer(&self, request: http::Request<Incoming>) -> Result<Response<Body>, Reset> {
        let (mut head, body) = request.into_parts();
        let body = body.collect().await.map_err(Reset::because)?.to_bytes();
        let client = take_client(&mut head.uri);
        let request = Request { client, ..Request::new(&head.method, &head.uri, &body) };
        self.tell(&request, Watched::Asked);
        let fault = lock(&self.script).fault(&request);
        let fault = if fault.applies_to(request.verb) { fault } else { Fault::None };
        let question = Question::new(&head);
        let recorded = lock(&self.recordings).oldest(&question).filter(|_| fault == Fault::Stale);
        // There may be no earlier answer.
        if fault != Fault::Stale || recorded.is_some() {
            self.count(fault);
        }
        let format = Format::asked_for(&head.headers);
        match fault {
            Fault::None => self.pass(head, body, question, request).await,
            Fault::Latency(pause) => {
                tokio::time::sleep(pause).await;
                self.pass(head, body, question, request).await
            }
            Fault::Stale => match recorded {
                Some(Answer { status, headers, body }) => Ok(response(status, headers, full(body))),
                None => self.pass(head, body, question, request).await,
            },
            Fault::ResetBefore => Err(Reset::because("before the request")),
            Fault::BlackHole => std::future::pending().await,
            Fault::Late(pause) => {
                let (client, request) = (self.client.clone(), passed_on(head, body));
                let arrivals = Arc::clone(&self.late_arrivals);
                tokio::spawn(async move {
                    tokio::time::sleep(pause).await;
                    let _ = client.send(request).await;
                    arrivals.fetch_add(1, Ordering::Relaxed);
                });
                std::future::pending().await
            }
            Fault::Status { code, retry_after } => {
                if code == StatusCode::GONE.as_u16() {
                    self.tell(&request, Watched::Expired);
                }
                refusal(format, code, retry_after)
            }
            Fault::ExpiredWatch => {
                self.tell(&request, Watched::Expired);
                Ok(made_up(Format::Protobuf, 200, edit::expired_event()))
            }
            Fault::ResetAfter => {
                self.send(head, body).await?;
                Err(Reset::because("after the request"))
            }
            Fault::StatusAfter(code) => {
                self.send(head, body).await?;
                refusal(format, code, None)
            }
            Fault::Truncated | Fault::Shortened => {
                let answer = self.send(head, body).await?;
                halved(answer, request.verb == Verb::Watch, fault == Fault::Truncated).await
            }
            Fault::EmptyList => {
                head.uri = without_items(&head.uri)?;
                self.send(head, body).await.map(streamed)
            }
            Fault::PartialList => {
                head.headers.remove(ACCEPT_ENCODING);
                partial(self.send(head, body).await?).await
            }
            Fault::DuplicateEvents => {
                head.headers.remove(ACCEPT_ENCODING);
                let answer = self.send(head, body).await?;
                Ok(self.watch(answer, request, true))
            }
            Fault::SilentWatch => {
                let (head, body) = self.send(head, body).await?.into_parts();
                // The connection to the server stays open.
                let nothing = stream::pending().map(move |never: Infallible| {
                    let _ = &body;
                    match never {}
                });
                Ok(response(head.status, head.headers, stream_body(nothing)))
            }
        }
    }

    /// Passes a request on to the server, and its answer back. The answer may be recorded.
    async fn pass(
        &self,
        head: Parts,
        body: Bytes,
        question: Question,
        request: Request,
    ) -> Result<Response<Body>, Reset> {
        let answer = self.send(head, body).await?;
        let verb = request.verb;
        if verb == Verb::Watch {
            return Ok(self.watch(answer, request, false));
        }
        let is_telling = matches!(answer.status(), StatusCode::OK | StatusCode::NOT_FOUND);
        if !is_telling || !lock(&self.recordings).wants(&question, verb) {
            return Ok(streamed(answer));
        }
        let answer = collected(answer).await?;
        lock(&self.recordings).keep(question, answer.clone());
        Ok(response(answer.status, answer.headers, full(answer.body)))
    }

    /// Passes the events of a watch on, once or twice.
    fn watch(
        &self,
        answer: Response<kube::client::Body>,
        request: Request,
        is_doubled: bool,
    ) -> Response<Body> {
        if answer.status() == StatusCode::GONE {
            self.tell(&request, Watched::Expired);
        }
        if answer.status() != StatusCode::OK {
            return streamed(answer);
        }
        let (head, body) = answer.into_parts();
        let witness = self.witness.get().cloned();
        let mut frames = Frames::default();
        let chunks = chunks(body).map_ok(move |chunk| {
            let events = frames.push(&chunk);
            // A server that has dropped a version sends an event with that error.
            if let Some(witness) = &witness
                && events.iter().any(|event| edit::is_expired(event))
            {
                witness(&request, Watched::Expired);
            }
            if is_doubled { edit::doubled(&events) } else { chunk }
        });
        response(head.status, head.headers, stream_body(chunks))
    }

    /// Sends a request to the server.
    async fn send(&self, head: Parts, body: Bytes) -> Result<Response<kube::client::Body>, Reset> {
        let mut answer = self.client.send(passed_on(head, body)).await.map_err(Reset::because)?;
        for of_this_connection in [CONNECTION, TRANSFER_ENCODING] {
            answer.headers_mut().remove(of_this_connection);
        }
        Ok(answer)
    }
}

/// The request that the server gets.
fn passed_on(mut head: Parts, body: Bytes) -> http::Request<kube::client::Body> {
    for of_this_connection in [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
        head.headers.remove(of_this_connection);
    }
    head.version = http::Version::HTTP_11;
    http::Request::from_parts(head, kube::client::Body::from(body))
}

/// The prefix of the path for a client with its own kubeconfig; the name of the client follows.
pub(crate) const CLIENT: &str = "/as/";

/// Removes the client's name from the path, and returns it.
fn take_client(uri: &mut Uri) -> String {
    let named = uri.path_and_query().and_then(|path| path.as_str().strip_prefix(CLIENT)?.split_once('/'));
    let Some((client, Ok(path))) =
        named.map(|(client, path)| (client.to_owned(), format!("/{path}").parse()))
    else {
        return String::new();
    };
    *uri = path;
    client
}

fn response(status: StatusCode, headers: HeaderMap, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    response
}

fn full(body: Bytes) -> Body {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

fn stream_body(chunks: impl Stream<Item = Result<Bytes, Reset>> + Send + 'static) -> Body {
    StreamBody::new(chunks.map_ok(Frame::data)).boxed_unsync()
}

fn chunks(body: kube::client::Body) -> impl Stream<Item = Result<Bytes, Reset>> + Send + 'static {
    body.into_data_stream().map_err(Reset::because)
}

/// Streams the body as it arrives.
fn streamed(answer: Response<kube::client::Body>) -> Response<Body> {
    let (head, body) = answer.into_parts();
    response(head.status, head.headers, stream_body(chunks(body)))
}

/// Reads the whole body.
async fn collected(answer: Response<kube::client::Body>) -> Result<Answer, Reset> {
    let (head, body) = answer.into_parts();
    let body = body.collect().await.map_err(Reset::because)?.to_bytes();
    Ok(Answer { status: head.status, headers: head.headers, body })
}

fn made_up(format: Format, code: u16, body: Vec<u8>) -> Response<Body> {
    let headers = [(CONTENT_TYPE, HeaderValue::from_static(format.media_type()))];
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response(status, headers.into_iter().collect(), full(body.into()))
}

fn refusal(format: Format, code: u16, retry_after: Option<u32>) -> Result<Response<Body>, Reset> {
    let mut refusal = made_up(format, code, edit::status(format, code, retry_after));
    if let Some(seconds) = retry_after {
        refusal.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    Ok(refusal)
}

/// The first half of an answer, or of the first events of a watch. Then the connection is reset, or ends as if the answer were complete.
async fn halved(
    answer: Response<kube::client::Body>,
    is_watch: bool,
    breaks: bool,
) -> Result<Response<Body>, Reset> {
    let (status, mut headers) = (answer.status(), answer.headers().clone());
    let whole = if is_watch {
        stream_body(chunks(answer.into_body()).take(1))
    } else {
        full(collected(answer).await?.body)
    };
    if !breaks {
        headers.remove(CONTENT_LENGTH);
    }
    let half = whole.into_data_stream().map_ok(|chunk| chunk.slice(..chunk.len() / 2));
    let end = stream::once(async move {
        // The bytes before the reset must be sent first.
        tokio::task::yield_now().await;
        Err(Reset::because("in the middle of the answer"))
    });
    let end = end.filter(move |_| std::future::ready(breaks));
    Ok(response(status, headers, stream_body(half.chain(end))))
}

/// The same request with a selector that matches no object.
fn without_items(uri: &Uri) -> Result<Uri, Reset> {
    let separator = if uri.query().is_some() { '&' } else { '?' };
    let nobody = "fieldSelector=metadata.name%3Dthere-is-none-of-this-name";
    format!("{uri}{separator}{nobody}").parse().map_err(Reset::because)
}

async fn partial(answer: Response<kube::client::Body>) -> Result<Response<Body>, Reset> {
    if answer.status() != StatusCode::OK {
        return Ok(streamed(answer));
    }
    let Answer { status, mut headers, body } = collected(answer).await?;
    let body = edit::without_a_third(Format::of(&headers), &body).map_err(Reset::because)?;
    headers.remove(CONTENT_LENGTH);
    Ok(response(status, headers, full(body.into())))
}
