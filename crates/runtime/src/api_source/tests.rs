//! Against a service in place of a server: what a real one sends rarely, or never.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::combinators::BoxBody;
use http_body_util::{Full, StreamBody};
use label_storage::Rules;
use label_storage::rules::{Patterns, Selection};
use label_storage_wire::fixtures::{self, Head, frame, head};
use label_storage_wire::{NodePart, Status, Taint};
use tokio::sync::oneshot;
use tower::service_fn;

use super::*;
use crate::projection::Detail;

type Answer = Response<BoxBody<Bytes, io::Error>>;

/// A client whose every request is answered by this.
fn client(answer: impl Fn(&Request<Body>) -> Answer + Send + Sync + 'static) -> Client {
    let answer = Arc::new(answer);
    let service = service_fn(move |request: Request<Body>| {
        let answer = Arc::clone(&answer);
        async move { Ok::<_, std::convert::Infallible>(answer(&request)) }
    });
    Client::new(service, "default")
}

fn answer(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Answer {
    let response = Response::builder().status(status).header(CONTENT_TYPE, content_type);
    let body = Full::new(Bytes::from(body.into())).map_err(|never| match never {});
    response.body(BoxBody::new(body)).expect("a response")
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).expect("memory");
    encoder.finish().expect("memory")
}

fn metadata(name: &str, version: &str) -> Object {
    Object {
        name: name.to_owned(),
        uid: "u1".to_owned(),
        resource_version: version.to_owned(),
        ..Object::default()
    }
}

/// A list of Nodes of these names, at version 9.
fn protobuf(names: &[&str]) -> Vec<u8> {
    let items: Vec<_> = names.iter().map(|name| metadata(name, "7").into()).collect();
    fixtures::list(&Head { resource_version: "9".to_owned(), ..head() }, &items)
}

async fn list(client: Client) -> (Vec<String>, Result<Listed, Error>) {
    let names = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&names);
    let listed = ApiSource::nodes(client)
        .list(move |object| {
            seen.lock().expect("no panic").push(object.expect("an object").name);
        })
        .await;
    (names.lock().expect("no panic").clone(), listed)
}

#[tokio::test]
async fn a_list_is_read_in_protobuf_compressed_or_not() {
    let plain = protobuf(&["a", "b"]);
    for is_compressed in [false, true] {
        let body = if is_compressed { gzip(&plain) } else { plain.clone() };
        let bytes = body.len() as u64;
        let (names, listed) = list(client(move |request| {
            assert_eq!(request.uri(), "/api/v1/nodes");
            let accepted = format!("{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
            assert_eq!(request.headers()[ACCEPT], accepted.as_str());
            let mut response = answer(200, PROTOBUF, body.clone());
            if is_compressed {
                response.headers_mut().insert(CONTENT_ENCODING, "gzip".parse().expect("a header"));
            }
            response
        }))
        .await;
        assert_eq!(names, ["a", "b"]);
        assert_eq!(listed.expect("a list"), Listed { version: ResourceVersion(9), items: 2, bytes });
    }
}

#[tokio::test]
async fn a_list_that_breaks_off_is_an_error() {
    let whole = protobuf(&["a", "b"]);
    for cut in 0..whole.len() {
        let body = whole[..cut].to_vec();
        let (_, listed) = list(client(move |_| answer(200, PROTOBUF, body.clone()))).await;
        assert_eq!(listed.expect_err("a part is not all").kind, call::FailureKind::Unclear, "cut at {cut}");
    }
    let compressed = gzip(&whole);
    for cut in 0..compressed.len() {
        let body = compressed[..cut].to_vec();
        let (_, listed) = list(client(move |_| {
            let mut response = answer(200, PROTOBUF, body.clone());
            response.headers_mut().insert(CONTENT_ENCODING, "gzip".parse().expect("a header"));
            response
        }))
        .await;
        assert!(listed.is_err(), "cut at {cut}, of the checksum at least");
    }
}

#[tokio::test]
async fn an_answer_that_was_not_asked_for_is_an_error() {
    for content_type in ["application/json", "text/html; charset=utf-8", ""] {
        let (names, listed) = list(client(move |_| answer(200, content_type, protobuf(&["a"])))).await;
        assert_eq!(names, [""; 0], "{content_type}");
        let found = content_type.split(';').next().expect("a part");
        let expected = format!(
            "can't list nodes: the API server does not serve protobuf: the content type is {found:?}"
        );
        assert_eq!(listed.expect_err("not asked for").to_string(), expected);
    }
    let (_, listed) = list(client(|_| {
        let mut response = answer(200, PROTOBUF, protobuf(&["a"]));
        response.headers_mut().insert(CONTENT_ENCODING, "br".parse().expect("a header"));
        response
    }))
    .await;
    assert!(listed.expect_err("not asked for").message.contains("\"br\""));
}

#[tokio::test]
async fn a_server_that_does_not_serve_protobuf_is_an_error_that_says_so() {
    let asked = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&asked);
    let source = ApiSource::nodes(client(move |request| {
        counter.fetch_add(1, Ordering::Relaxed);
        let accept = request.headers()[ACCEPT].to_str().expect("text");
        assert!(accept.starts_with(PROTOBUF), "{accept}");
        answer(406, "text/plain", "only the following media types are accepted: application/json\n")
    }));
    let errors = [
        source.list(|_| ()).await.expect_err("refused"),
        source.get("a").await.expect_err("refused"),
        source.watch(ResourceVersion(7)).await.err().expect("refused"),
    ];
    for (error, what) in errors.iter().zip(["list nodes", "get node", "watch nodes"]) {
        assert_eq!((error.kind, error.code), (call::FailureKind::Refused, Some(406)));
        let expected = format!(
            "can't {what}: the API server does not serve protobuf: \
             only the following media types are accepted: application/json (406)"
        );
        assert_eq!(error.to_string(), expected);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 3, "no request is sent again");
}

#[tokio::test]
async fn what_the_server_says_when_it_refuses_is_passed_on() {
    let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"nodes is forbidden","reason":"Forbidden","code":403}"#;
    let (_, listed) = list(client(move |_| answer(403, "application/json", status))).await;
    let error = listed.expect_err("refused");
    assert_eq!((error.kind, error.code), (call::FailureKind::Refused, Some(403)));
    assert_eq!(error.to_string(), "can't list nodes: nodes is forbidden (403)");
    let (_, listed) = list(client(|_| answer(502, "text/html", "<html>bad gateway</html>"))).await;
    assert_eq!(listed.expect_err("refused").to_string(), "can't list nodes: <html>bad gateway</html> (502)");
}

#[tokio::test]
async fn a_node_that_is_not_there_is_no_error() {
    let source = ApiSource::nodes(client(|request| {
        assert_eq!(request.uri(), "/api/v1/nodes/a");
        answer(404, "text/plain", "no such node")
    }));
    assert_eq!(source.get("a").await.expect("an answer"), None);
}

/// Sees whole Nodes, and one annotation beside our own.
fn whole() -> Projection {
    let owner: Patterns = "example.com/owner".parse().expect("a key");
    let annotations = Selection { include: owner, ..Selection::none() };
    let rules = Arc::new(Rules { cordon: true, annotations, ..Rules::default() });
    Projection { rules, detail: Detail::WhatIsKept }
}

/// A server of one Node. All requests must be for whole Nodes.
fn whole_nodes(request: &Request<Body>) -> Answer {
    let uri = request.uri().to_string();
    assert_eq!(request.headers()[ACCEPT], PROTOBUF, "{uri}");
    let all = [("example.com/owner", "me"), ("example.com/other", "x"), ("label-storage/restored", "u1/1")];
    let sample = whole_node(&all).into();
    let body = if uri.contains("watch=true") {
        frame(&fixtures::event("ADDED", fixtures::object("Node", &sample)))
    } else if uri == "/api/v1/nodes/a" {
        fixtures::object("Node", &sample)
    } else {
        let head = Head { kind: "NodeList", resource_version: "9".to_owned(), ..head() };
        fixtures::list(&head, std::slice::from_ref(&sample))
    };
    answer(200, PROTOBUF, body)
}

/// The Node, with these of its annotations.
fn whole_node(annotations: &[(&str, &str)]) -> Object {
    let taint = Taint { key: "k".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    Object {
        annotations: annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        node: Some(NodePart {
            is_unschedulable: true,
            taints: vec![taint],
            system_uuid: "s1".to_owned(),
            ..NodePart::default()
        }),
        ..metadata("a", "7")
    }
}

#[tokio::test]
async fn whole_nodes_are_listed_and_watched_where_they_are_wanted() {
    let source = ApiSource::nodes(client(whole_nodes)).seen_by(whole());
    let expected = whole_node(&[("example.com/owner", "me"), ("label-storage/restored", "u1/1")]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&seen);
    source.list(move |object| all.lock().expect("no panic").push(object)).await.expect("a list");
    assert_eq!(*seen.lock().expect("no panic"), [Ok(expected.clone())]);
    assert_eq!(source.get("a").await.expect("an answer").as_ref(), Some(&expected));
    let mut watch = source.watch(ResourceVersion(7)).await.expect("a watch");
    assert_eq!(watch.next().await.expect("an event"), Some(Event::Changed(expected)));
}

#[tokio::test]
async fn one_node_is_read_whole_whatever_lists_have_of_it() {
    let all = [("example.com/other", "x"), ("example.com/owner", "me"), ("label-storage/restored", "u1/1")];
    // Who must not overwrite anything has to know all of its annotations.
    for (detail, annotations) in [(Detail::WhatIsThere, &all[..]), (Detail::WhatIsKept, &all[2..])] {
        let projection = Projection { detail, ..Projection::default() };
        let node =
            ApiSource::nodes(client(whole_nodes)).seen_by(projection).get("a").await.expect("an answer");
        assert_eq!(node, Some(whole_node(annotations)), "{detail:?}");
    }
}

#[tokio::test]
async fn whole_nodes_in_the_place_of_metadata_are_an_error() {
    let nodes = fixtures::list(&Head { kind: "NodeList", ..head() }, &[]);
    let (_, listed) = list(client(move |_| answer(200, PROTOBUF, nodes.clone()))).await;
    assert!(listed.expect_err("not asked for").message.contains("NodeList, which was not asked for"));
}

/// A body that sends this and then nothing, without an end.
fn endless(start: Vec<u8>) -> BoxBody<Bytes, io::Error> {
    let start = futures::stream::iter([Ok(http_body::Frame::data(Bytes::from(start)))]);
    BoxBody::new(StreamBody::new(start.chain(futures::stream::pending())))
}

#[tokio::test]
async fn the_thread_that_reads_a_list_ends_when_nobody_waits_for_it() {
    let client = client(|_| {
        // More than one block, of which the first is passed on.
        let whole = protobuf(&["a"; 10_000]);
        let response = Response::builder().header(CONTENT_TYPE, PROTOBUF);
        response.body(endless(whole[..whole.len() - 9].to_vec())).expect("a response")
    });
    let (first, begun) = oneshot::channel();
    let (alive, ended) = oneshot::channel::<()>();
    let (mut first, source) = (Some(first), ApiSource::nodes(client));
    let each = move |_| {
        let _ = &alive;
        first.take().map(|first| first.send(()));
    };
    tokio::select! {
        _ = source.list(each) => panic!("it has no end"),
        _ = begun => (),
    }
    assert!(ended.await.is_err(), "dropped with the thread");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_goes_silent_is_noticed_within_a_minute() {
    let source = ApiSource::nodes(client(|request| {
        let uri = request.uri().to_string();
        assert!(uri.starts_with(
            "/api/v1/nodes?watch=true&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds="
        ));
        let response = Response::builder().header(CONTENT_TYPE, format!("{PROTOBUF};stream=watch"));
        response.body(endless(Vec::new())).expect("a response")
    }));
    let began = tokio::time::Instant::now();
    let mut watch = source.watch(ResourceVersion(7)).await.expect("a watch");
    let error = watch.next().await.expect_err("silent");
    assert_eq!(error.to_string(), "can't watch nodes: no event within the time limit");
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn a_watch_tells_what_it_is_told_to_its_end() {
    let node = fixtures::object("PartialObjectMetadata", &metadata("a", "8").into());
    let bookmark = fixtures::object("PartialObjectMetadata", &metadata("", "12").into());
    let expired = Status {
        code: 410,
        reason: "Expired".to_owned(),
        message: "too old resource version".to_owned(),
        retry_after_seconds: None,
    };
    let events = [
        fixtures::event("ADDED", node.clone()),
        fixtures::event("DELETED", node),
        fixtures::event("BOOKMARK", bookmark),
        fixtures::event("ERROR", fixtures::status(&expired)),
    ];
    let body: Vec<u8> = events.iter().flat_map(|event| frame(event)).collect();
    let source = ApiSource::nodes(client(move |request| {
        let accepted = format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
        assert_eq!(request.headers()[ACCEPT], accepted.as_str());
        answer(200, &format!("{PROTOBUF};stream=watch"), body.clone())
    }))
    .seen_by(Projection { detail: Detail::WhatIsKept, ..Projection::default() });
    let mut watch = source.watch(ResourceVersion(7)).await.expect("a watch");
    assert!(matches!(watch.next().await, Ok(Some(Event::Changed(object))) if object.name == "a"));
    assert!(matches!(watch.next().await, Ok(Some(Event::Deleted(object))) if object.name == "a"));
    assert!(
        matches!(watch.next().await, Ok(Some(Event::Bookmark { resource_version })) if resource_version == "12")
    );
    assert_eq!(watch.next().await.expect_err("expired").code, Some(410));
    assert!(watch.next().await.expect("an end").is_none());
}

#[tokio::test]
async fn an_event_that_can_not_be_decoded_does_not_end_the_watch() {
    let kind = "PartialObjectMetadata";
    let good = |name: &str, version: &str| fixtures::object(kind, &metadata(name, version).into());
    // A number in the place of a label.
    let bad = [fixtures::item(&metadata("b", "9").into()), b"\x0a\x02\x58\x01".to_vec()].concat();
    let events = [
        fixtures::event("ADDED", good("a", "8")),
        fixtures::event("MODIFIED", fixtures::enveloped(kind, bad)),
        vec![0; MAX_ITEM + 1],
        fixtures::event("DELETED", good("c", "11")),
    ];
    let body: Vec<u8> = events.iter().flat_map(|event| frame(event)).collect();
    let source =
        ApiSource::nodes(client(move |_| answer(200, &format!("{PROTOBUF};stream=watch"), body.clone())))
            .seen_by(Projection { detail: Detail::WhatIsKept, ..Projection::default() });
    let mut watch = source.watch(ResourceVersion(7)).await.expect("a watch");
    let mut seen = Vec::new();
    while let Some(event) = watch.next().await.expect("no error") {
        seen.push(match event {
            Event::Changed(object) => ("changed", object.name, object.resource_version),
            Event::Deleted(object) => ("deleted", object.name, object.resource_version),
            Event::Undecodable(Undecodable { part, .. }) => ("undecodable", part.name, part.resource_version),
            other => panic!("{other:?}"),
        });
    }
    let expected =
        [("changed", "a", "8"), ("undecodable", "b", "9"), ("undecodable", "", ""), ("deleted", "c", "11")];
    assert_eq!(seen, expected.map(|(what, name, version)| (what, name.to_owned(), version.to_owned())));
}

#[tokio::test]
async fn a_watch_that_is_cut_in_an_event_is_an_error() {
    let event = frame(&fixtures::event(
        "ADDED",
        fixtures::object("PartialObjectMetadata", &metadata("a", "8").into()),
    ));
    for cut in 1..event.len() {
        let body = event[..cut].to_vec();
        let client = client(move |_| answer(200, &format!("{PROTOBUF};stream=watch"), body.clone()));
        let mut watch = ApiSource::nodes(client).watch(ResourceVersion(7)).await.expect("a watch");
        assert!(watch.next().await.is_err(), "cut at {cut}");
    }
}

#[tokio::test]
async fn a_restorer_watches_whole_nodes() {
    let sample = Object { node: Some(NodePart::default()), ..metadata("a", "8") };
    let body = frame(&fixtures::event("ADDED", fixtures::object("Node", &sample.into())));
    let source = ApiSource::nodes(client(move |request| {
        assert_eq!(request.headers()[ACCEPT], PROTOBUF);
        answer(200, &format!("{PROTOBUF};stream=watch"), body.clone())
    }));
    let mut watch = source.watch(ResourceVersion(7)).await.expect("a watch");
    assert!(matches!(watch.next().await, Ok(Some(Event::Changed(object))) if object.node.is_some()));
}

/// A record that has its label, one that has lost it, and a ConfigMap that is not a record.
fn config_maps() -> [Object; 3] {
    let labels = [(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned())].into_iter().collect();
    let labelled = Object { labels, ..metadata("imported", "7") };
    [labelled, metadata("label-storage.a", "8"), metadata("kube-root-ca.crt", "9")]
}

#[tokio::test]
async fn records_are_listed_by_name_or_label() {
    let items = config_maps().map(Into::into);
    let body =
        fixtures::list(&Head { kind: "ConfigMapList", resource_version: "9".to_owned(), ..head() }, &items);
    let client = client(move |request| {
        assert_eq!(request.uri(), "/api/v1/namespaces/ns/configmaps");
        answer(200, PROTOBUF, body.clone())
    });
    let names = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&names);
    let each = move |object: Result<Object, Undecodable>| {
        kept.lock().expect("no panic").push(object.expect("an object").name);
    };
    ApiSource::records(client, "ns").list(each).await.expect("a list");
    assert_eq!(*names.lock().expect("no panic"), ["imported", "label-storage.a"]);
}

#[tokio::test]
async fn of_a_config_map_that_is_not_a_record_a_watch_has_the_version() {
    let events =
        config_maps().map(|object| fixtures::event("ADDED", fixtures::object("ConfigMap", &object.into())));
    let body: Vec<u8> = events.iter().flat_map(|event| frame(event)).collect();
    let source = ApiSource::records(
        client(move |request| {
            assert!(request.uri().query().is_some_and(|query| query.starts_with("watch=true&")));
            answer(200, &format!("{PROTOBUF};stream=watch"), body.clone())
        }),
        "ns",
    );
    let mut watch = source.watch(ResourceVersion(6)).await.expect("a watch");
    let mut seen = Vec::new();
    while let Some(event) = watch.next().await.expect("no error") {
        seen.push(match event {
            Event::Changed(object) => object.name,
            Event::Bookmark { resource_version } => resource_version,
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(seen, ["imported", "label-storage.a", "9"]);
}
