//! Every fault, between a client and a small server that counts requests.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use kube::client::Body;
use label_storage_wire as wire;
use label_storage_wire::fixtures::{self, Head, head};
use tempfile::TempDir;

use super::*;
use crate::fault::Fault;

const ASKED: wire::Asked<'_> = wire::Asked { content: wire::Content::ConfigMap, annotations: &|_| false };

/// An event of a watch, with its length prefix.
fn event(version: usize) -> Bytes {
    let object = fixtures::object("ConfigMap", &object("a", version).into());
    fixtures::frame(&fixtures::event("ADDED", object)).into()
}

fn object(name: &str, version: usize) -> wire::Object {
    let (name, resource_version) = (name.to_owned(), version.to_string());
    wire::Object { name, resource_version, ..wire::Object::default() }
}

/// Answers every request with its number, and a watch with one event, and a second one on demand. Version 5 has expired.
struct Server {
    seen: AtomicUsize,
    more: watch::Sender<bool>,
}

impl Server {
    async fn start() -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let server = Arc::new(Self { seen: AtomicUsize::new(0), more: watch::Sender::new(false) });
        let this = Arc::clone(&server);
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let this = Arc::clone(&this);
                let service = service_fn(move |request| std::future::ready(this.answer(&request)));
                tokio::spawn(
                    http1::Builder::new().serve_connection(TokioIo::new(connection), service).into_future(),
                );
            }
        });
        (server, url)
    }

    #[expect(clippy::unnecessary_wraps, reason = "a service may fail")]
    fn answer(
        &self,
        request: &Request<Incoming>,
    ) -> Result<Response<impl http_body::Body<Data = Bytes, Error = Infallible> + use<>>, Infallible> {
        assert_eq!(request.headers()[AUTHORIZATION], "Bearer secret", "credentials are passed on");
        let number = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        let uri = request.uri().to_string();
        let mut more = self.more.subscribe();
        let items: Vec<_> = (0..6)
            .filter(|_| !uri.contains("fieldSelector"))
            .map(|item| object(&format!("n{item}"), 1).into())
            .collect();
        let head = Head { kind: "ConfigMapList", resource_version: number.to_string(), ..head() };
        let list = fixtures::list(&head, &items);
        let chunks = if uri.contains("resourceVersion=5") {
            stream::iter([Bytes::from(crate::edit::expired_event())]).boxed()
        } else if uri.contains("watch=true") {
            let second = async move {
                let _ = more.wait_for(|more| *more).await;
                event(2)
            };
            stream::iter([event(1)]).chain(stream::once(second)).boxed()
        } else {
            stream::iter([Bytes::from(list)]).boxed()
        };
        let body = StreamBody::new(chunks.map(|chunk| Ok(Frame::data(chunk))));
        let protobuf = crate::edit::Format::Protobuf.media_type();
        Ok(Response::builder().header(CONTENT_TYPE, protobuf).body(body).expect("an answer"))
    }

    fn seen(&self) -> usize {
        self.seen.load(Ordering::Relaxed)
    }
}

struct Stage {
    server: Arc<Server>,
    proxy: Proxy,
    client: Client,
    _folder: TempDir,
}

impl Stage {
    async fn new(fault: Fault) -> Self {
        let (server, url) = Server::start().await;
        let folder = TempDir::new().expect("a folder");
        let upstream = folder.path().join("upstream");
        let config = serde_json::json!({
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        });
        std::fs::write(&upstream, config.to_string()).expect("a file");
        let proxied = folder.path().join("proxied");
        let proxy = Proxy::start(&upstream, &proxied, move |_: &crate::Request| fault).await;
        let proxy = proxy.expect("a proxy");
        let client = client(proxy.kubeconfig()).await;
        Self { server, proxy, client, _folder: folder }
    }

    async fn ask(&self, method: Method, uri: &str) -> Result<Response<Body>, kube::Error> {
        let request = Request::builder().method(method).uri(uri).body(Body::empty()).expect("a request");
        self.client.send(request).await
    }

    /// The body of the answer, if it is complete.
    async fn body(&self, uri: &str) -> Option<Bytes> {
        let body = self.ask(Method::GET, uri).await.ok()?.into_body();
        body.collect().await.ok().map(http_body_util::Collected::to_bytes)
    }

    async fn list(&self) -> Option<(Vec<String>, String)> {
        let (body, mut names) = (self.body("/api/v1/nodes").await?, Vec::new());
        let each = |object: Result<wire::Object, _>| names.push(object.expect("an object").name);
        let listed = wire::read_list(&ASKED, &body[..], each).ok()?;
        Some((names, listed.resource_version))
    }
}

async fn client(kubeconfig: &Path) -> Client {
    let config = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    let mut config = config.expect("a configuration");
    config.default_retry = false;
    Client::try_from(config).expect("a client")
}

fn names(numbers: &[usize]) -> Vec<String> {
    numbers.iter().map(|number| format!("n{number}")).collect()
}

#[tokio::test]
async fn a_reset_comes_before_or_after_the_server_has_seen_it() {
    for (fault, seen) in [(Fault::ResetBefore, 0), (Fault::ResetAfter, 1)] {
        let stage = Stage::new(fault).await;
        assert!(stage.ask(Method::POST, "/api/v1/nodes").await.is_err());
        assert_eq!(stage.server.seen(), seen, "{fault:?}");
        assert_eq!(stage.proxy.counts(), BTreeMap::from([(fault.class().expect("a class"), 1)]));
        stage.proxy.set_script(|_: &crate::Request| Fault::None);
        assert!(stage.ask(Method::POST, "/api/v1/nodes").await.is_ok(), "no more faults");
    }
}

#[tokio::test]
async fn a_status_comes_instead_of_the_server_or_after_it() {
    for (fault, code, seen) in [
        (Fault::Status { code: 429, retry_after: Some(7) }, 429, 0),
        (Fault::Status { code: 409, retry_after: None }, 409, 0),
        (Fault::StatusAfter(504), 504, 1),
    ] {
        let stage = Stage::new(fault).await;
        let answer = stage.ask(Method::PUT, "/api/v1/nodes/a").await.expect("an answer");
        assert_eq!((answer.status().as_u16(), stage.server.seen()), (code, seen), "{fault:?}");
        assert_eq!(answer.headers().contains_key(RETRY_AFTER), code == 429);
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        assert_eq!(wire::read_status(&body).code, code);
    }
}

#[tokio::test]
async fn half_an_answer_breaks_off_or_ends() {
    let whole = Stage::new(Fault::None).await.body("/api/v1/nodes").await.expect("an answer");
    let stage = Stage::new(Fault::Shortened).await;
    assert_eq!(stage.body("/api/v1/nodes").await, Some(whole.slice(..whole.len() / 2)));
    let stage = Stage::new(Fault::Truncated).await;
    let answer = stage.ask(Method::GET, "/api/v1/nodes").await.expect("its beginning");
    let mut chunks = answer.into_body().into_data_stream();
    assert_eq!(chunks.next().await.expect("the first half").ok(), Some(whole.slice(..whole.len() / 2)));
    assert!(chunks.next().await.expect("an end").is_err());
    // For a watch, it is half an event.
    let answer = stage.ask(Method::GET, "/api/v1/nodes?watch=true").await.expect("its beginning");
    let mut chunks = answer.into_body().into_data_stream();
    let half = event(1).slice(..event(1).len() / 2);
    assert_eq!(chunks.next().await.expect("half an event").ok(), Some(half));
    assert!(chunks.next().await.expect("an end").is_err());
}

#[tokio::test]
async fn lists_lack_items_and_are_right_all_the_same() {
    for (fault, expected) in [
        (Fault::None, names(&[0, 1, 2, 3, 4, 5])),
        (Fault::PartialList, names(&[0, 1, 3, 4])),
        (Fault::EmptyList, names(&[])),
        (Fault::Latency(Duration::from_millis(1)), names(&[0, 1, 2, 3, 4, 5])),
        // Applies only to watches.
        (Fault::DuplicateEvents, names(&[0, 1, 2, 3, 4, 5])),
    ] {
        let stage = Stage::new(fault).await;
        assert_eq!(stage.list().await, Some((expected, "1".to_owned())), "{fault:?}");
        assert_eq!(
            stage.proxy.counts().len(),
            usize::from(fault.class().is_some() && fault.applies_to(crate::Verb::List))
        );
    }
}

#[tokio::test]
async fn a_stale_answer_is_one_from_before() {
    let stage = Stage::new(Fault::Stale).await;
    let version = async || stage.list().await.map(|(_, version)| version);
    assert_eq!(version().await.as_deref(), Some("1"), "there is no earlier answer");
    assert_eq!(stage.proxy.counts(), BTreeMap::new());
    stage.proxy.set_script(|_: &crate::Request| Fault::None);
    assert_eq!(version().await.as_deref(), Some("2"));
    stage.proxy.set_script(|_: &crate::Request| Fault::Stale);
    assert_eq!(version().await.as_deref(), Some("1"));
    assert_eq!(stage.proxy.counts(), BTreeMap::from([(Class::Stale, 1)]));
}

#[tokio::test]
async fn a_watch_repeats_itself_or_expires() {
    let stage = Stage::new(Fault::DuplicateEvents).await;
    stage.server.more.send_replace(true);
    let body = stage.body("/api/v1/nodes?watch=true").await.expect("events");
    assert_eq!(body, [event(1), event(1), event(2), event(2)].concat());
    assert_ne!(event(1), event(2));
    let stage = Stage::new(Fault::ExpiredWatch).await;
    let body = stage.body("/api/v1/nodes?watch=true").await.expect("an event");
    assert!(
        matches!(wire::read_event(&ASKED, &body[4..]), Ok(wire::Event::Error(status)) if status.code == 410)
    );
}

#[tokio::test]
async fn who_asked_for_a_watch_and_from_where_is_told_and_whether_it_had_expired() {
    let mut stage = Stage::new(Fault::None).await;
    stage.client = client(&stage.proxy.kubeconfig_of("a-0").expect("a kubeconfig")).await;
    let (told, mut tells) = tokio::sync::mpsc::unbounded_channel();
    stage.proxy.set_witness(move |request, watched| {
        let _ = told.send((request.client.clone(), request.resource_version(), watched));
    });
    stage.server.more.send_replace(true);
    let asked = |version| ("a-0".to_owned(), Some(version), Watched::Asked);
    let expired = |version| ("a-0".to_owned(), Some(version), Watched::Expired);
    for (fault, version, expected) in [
        (Fault::None, 4, vec![asked(4)]),
        (Fault::None, 5, vec![asked(5), expired(5)]),
        (Fault::DuplicateEvents, 5, vec![asked(5), expired(5)]),
        (Fault::ExpiredWatch, 6, vec![asked(6), expired(6)]),
        (Fault::Status { code: 410, retry_after: None }, 7, vec![asked(7), expired(7)]),
        (Fault::Status { code: 500, retry_after: None }, 8, vec![asked(8)]),
        // The answer is cut before the client can read the error.
        (Fault::Shortened, 5, vec![asked(5)]),
    ] {
        stage.proxy.set_script(move |_: &crate::Request| fault);
        let uri = format!("/api/v1/nodes?watch=true&resourceVersion={version}");
        let _ = stage.body(&uri).await;
        let told: Vec<_> = std::iter::from_fn(|| tells.try_recv().ok()).collect();
        assert_eq!(told, expected, "{fault:?} {version}");
    }
    stage.proxy.set_script(|_: &crate::Request| Fault::None);
    assert!(stage.list().await.is_some());
    assert!(tells.try_recv().is_err(), "a list is not a watch");
}

/// These faults cause no answer at all. Other requests are answered meanwhile, so the answer is not just late.
#[tokio::test]
async fn what_is_silent_stays_so_while_others_are_served() {
    let stage = Stage::new(Fault::None).await;
    stage.proxy.set_script(|request: &crate::Request| match request.name.as_deref() {
        Some("hole") => Fault::BlackHole,
        _ => Fault::SilentWatch,
    });
    let mut hole = std::pin::pin!(stage.ask(Method::GET, "/api/v1/nodes/hole"));
    let watch = stage.ask(Method::GET, "/api/v1/nodes?watch=true").await.expect("it begins");
    let mut events = watch.into_body().into_data_stream();
    for _ in 0..20 {
        tokio::select! {
            biased;
            answer = &mut hole => panic!("{answer:?}"),
            event = events.next() => panic!("{event:?}"),
            listed = stage.list() => assert!(listed.is_some()),
        }
    }
    assert_eq!(stage.proxy.counts(), BTreeMap::from([(Class::BlackHole, 1), (Class::SilentWatch, 1)]));
}

#[tokio::test]
async fn connections_are_cut_or_go_silent_and_new_ones_are_not() {
    let stage = Stage::new(Fault::None).await;
    let mut watches = Vec::new();
    for _ in 0..2 {
        let watch = stage.ask(Method::GET, "/api/v1/nodes?watch=true").await.expect("it begins");
        let mut events = watch.into_body().into_data_stream();
        assert!(events.next().await.expect("an event").is_ok());
        watches.push(events);
        if watches.len() == 1 {
            stage.proxy.cut();
            assert!(watches[0].next().await.expect("an end").is_err());
        }
    }
    stage.proxy.silence();
    // The order is carried out before a new connection is served, because this runtime has one thread.
    let listed = stage.list().await.expect("a new connection");
    assert_eq!(listed.0.len(), 6);
    stage.server.more.send_replace(true);
    for _ in 0..20 {
        tokio::select! {
            biased;
            event = watches[1].next() => panic!("{event:?}"),
            listed = stage.list() => assert!(listed.is_some()),
        }
    }
    drop(stage.proxy);
    assert!(watches[1].next().await.expect("an end").is_err());
}
