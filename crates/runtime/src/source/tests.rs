//! Against a service in place of a server: what a real one sends rarely, or never.

use std::io::Write;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::combinators::BoxBody;
use http_body_util::{Full, StreamBody};
use label_storage::Rules;
use label_storage::rules::{Patterns, Selection};
use label_storage_wire::{NodePart, Taint};
use tokio::sync::oneshot;
use tower::service_fn;

use super::*;
use crate::eyes::Sight;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

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

/// A field of a protobuf message that holds bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 128 {
        field.push(length as u8 | 128);
        length >>= 7;
    }
    field.push(length as u8);
    [&field, content].concat()
}

/// A list of Nodes of these names, at version 9.
fn protobuf(names: &[&str]) -> Vec<u8> {
    let meta = |name: &str| [field(1, name.as_bytes()), field(5, b"u1"), field(6, b"7")].concat();
    let items = names.iter().flat_map(|name| field(2, &field(1, &meta(name))));
    let list: Vec<u8> = field(1, &field(2, b"9")).into_iter().chain(items).collect();
    let unknown = [field(2, &list), field(3, b""), field(4, b"")].concat();
    [b"k8s\0", &unknown[..]].concat()
}

const JSON: &str = r#"{"metadata":{"resourceVersion":"9"},"items":[
    {"metadata":{"name":"a","uid":"u1","resourceVersion":"7"}},{"metadata":{"name":"b","uid":"u1","resourceVersion":"7"}}]}"#;

async fn list(client: Client) -> (Vec<String>, Result<Listed, Error>) {
    let names = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&names);
    let listed =
        Source::nodes(client).list(move |object| seen.lock().expect("no panic").push(object.name)).await;
    (names.lock().expect("no panic").clone(), listed)
}

/// The same from a server that speaks no protobuf.
async fn list_json(body: &'static str) -> (Vec<String>, Result<Listed, Error>) {
    let is_protobuf =
        |request: &Request<Body>| request.headers()[ACCEPT].as_bytes().starts_with(PROTOBUF.as_bytes());
    list(client(move |request| {
        if is_protobuf(request) {
            answer(406, "text/plain", "")
        } else {
            answer(200, "application/json", body)
        }
    }))
    .await
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
        assert_eq!(listed.expect_err("a part is not all").kind, call::Kind::Unclear, "cut at {cut}");
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
        assert!(listed.expect_err("not asked for").message.starts_with("asked for application/vnd"));
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
async fn json_is_read_where_protobuf_is_refused_and_only_there() {
    let asked = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&asked);
    let client = client(move |request| {
        counter.fetch_add(1, Ordering::Relaxed);
        let accept = request.headers()[ACCEPT].to_str().expect("text");
        if accept.starts_with(PROTOBUF) {
            return answer(
                406,
                "text/plain",
                "only the following media types are accepted: application/json",
            );
        }
        assert_eq!(accept, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
        answer(200, "application/json", JSON)
    });
    let source = Source::nodes(client);
    for asked_so_far in [2, 3] {
        assert_eq!(source.list(|_| ()).await.expect("a list").items, 2);
        assert_eq!(asked.load(Ordering::Relaxed), asked_so_far, "it is refused once");
    }
}

#[tokio::test]
async fn a_list_in_json_that_breaks_off_is_an_error() {
    for cut in 0..JSON.len() {
        let (_, listed) = list_json(&JSON[..cut]).await;
        assert!(listed.is_err(), "cut at {cut}");
    }
}

#[tokio::test]
async fn what_the_server_says_when_it_refuses_is_passed_on() {
    let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"nodes is forbidden","reason":"Forbidden","code":403}"#;
    let (_, listed) = list(client(move |_| answer(403, "application/json", status))).await;
    let error = listed.expect_err("refused");
    assert_eq!((error.kind, error.code), (call::Kind::Refused, Some(403)));
    assert_eq!(error.to_string(), "can't list nodes: nodes is forbidden (403)");
    let (_, listed) = list(client(|_| answer(502, "text/html", "<html>bad gateway</html>"))).await;
    assert_eq!(listed.expect_err("refused").to_string(), "can't list nodes: <html>bad gateway</html> (502)");
}

#[tokio::test]
async fn a_node_that_is_not_there_is_no_error() {
    let source = Source::nodes(client(|request| {
        assert_eq!(request.uri(), "/api/v1/nodes/a");
        answer(404, "text/plain", "no such node")
    }));
    assert_eq!(source.get("a").await.expect("an answer"), None);
}

/// Sees whole Nodes, and one annotation beside our own.
fn whole() -> Eyes {
    let owner: Patterns = "example.com/owner".parse().expect("a key");
    let annotations = Selection { include: owner, ..Selection::none() };
    let rules = Arc::new(Rules { cordon: true, annotations, ..Rules::default() });
    Eyes { rules, sight: Sight::WhatIsKept }
}

const NODE: &str = r#"{"kind":"Node",
    "metadata":{"name":"a","uid":"u1","resourceVersion":"7",
        "annotations":{"example.com/owner":"me","example.com/other":"x","label-storage/restored":"u1/1"}},
    "spec":{"unschedulable":true,"taints":[{"key":"k","effect":"NoSchedule"}]},
    "status":{"nodeInfo":{"systemUUID":"s1"}}}"#;

/// A server of [`NODE`] alone, in JSON, that wants every request to be for what is whole.
fn whole_nodes(request: &Request<Body>) -> Answer {
    let uri = request.uri().to_string();
    let accept = request.headers()[ACCEPT].to_str().expect("text");
    assert!([PROTOBUF, "application/json"].contains(&accept), "{uri}: {accept}");
    if accept == PROTOBUF {
        return answer(406, "text/plain", "");
    }
    let body = if uri.contains("watch=true") {
        format!(r#"{{"type":"ADDED","object":{}}}"#, NODE.replace('\n', ""))
    } else if uri == "/api/v1/nodes/a" {
        NODE.to_owned()
    } else {
        let item = NODE.replacen(r#""kind":"Node","#, "", 1);
        format!(r#"{{"kind":"NodeList","metadata":{{"resourceVersion":"9"}},"items":[{item}]}}"#)
    };
    answer(200, "application/json", body)
}

/// What there is to [`NODE`], with these of its annotations.
fn whole_node(annotations: &[(&str, &str)]) -> Object {
    let taint = Taint { key: "k".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    Object {
        name: "a".to_owned(),
        uid: "u1".to_owned(),
        resource_version: "7".to_owned(),
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
        ..Object::default()
    }
}

#[tokio::test]
async fn whole_nodes_are_listed_and_watched_where_they_are_wanted() {
    let source = Source::nodes(client(whole_nodes)).seen_by(whole());
    let expected = whole_node(&[("example.com/owner", "me"), ("label-storage/restored", "u1/1")]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&seen);
    source.list(move |object| all.lock().expect("no panic").push(object)).await.expect("a list");
    assert_eq!(*seen.lock().expect("no panic"), std::slice::from_ref(&expected));
    assert_eq!(source.get("a").await.expect("an answer").as_ref(), Some(&expected));
    let mut watch = source.watch(ResourceVersion(7)).await.expect("a watch");
    assert_eq!(watch.next().await.expect("an event"), Some(Event::Changed(expected)));
}

#[tokio::test]
async fn one_node_is_read_whole_whatever_lists_have_of_it() {
    let all = [("example.com/other", "x"), ("example.com/owner", "me"), ("label-storage/restored", "u1/1")];
    // Who must not overwrite anything has to know all of its annotations.
    for (sight, annotations) in [(Sight::WhatIsThere, &all[..]), (Sight::WhatIsKept, &all[2..])] {
        let eyes = Eyes { sight, ..Eyes::default() };
        let node = Source::nodes(client(whole_nodes)).seen_by(eyes).get("a").await.expect("an answer");
        assert_eq!(node, Some(whole_node(annotations)), "{sight:?}");
    }
}

#[tokio::test]
async fn whole_nodes_in_the_place_of_metadata_are_an_error() {
    let list = r#"{"kind":"NodeList","metadata":{"resourceVersion":"9"},"items":[]}"#;
    let (_, listed) = list_json(list).await;
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
    let (mut first, source) = (Some(first), Source::nodes(client));
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
    let source = Source::nodes(client(|request| {
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
    assert_eq!(error.to_string(), "can't watch nodes: nothing was heard for too long");
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn a_watch_tells_what_it_is_told_to_its_end() {
    let event = |kind: &str, object: &str| format!(r#"{{"type":"{kind}","object":{object}}}"#);
    let node = r#"{"kind":"PartialObjectMetadata","metadata":{"name":"a","uid":"u1","resourceVersion":"8"}}"#;
    let lines = [
        event("ADDED", node),
        event("DELETED", node),
        event("BOOKMARK", r#"{"kind":"PartialObjectMetadata","metadata":{"resourceVersion":"12"}}"#),
        event(
            "ERROR",
            r#"{"kind":"Status","message":"too old resource version","reason":"Expired","code":410}"#,
        ),
    ];
    let body = lines.join("\n");
    let source = Source::nodes(client(move |request| {
        let accept = request.headers()[ACCEPT].to_str().expect("text");
        if accept.starts_with(PROTOBUF) {
            answer(406, "text/plain", "")
        } else {
            answer(200, "application/json", body.as_bytes())
        }
    }));
    let mut watch = source.watch(ResourceVersion(7)).await.expect("a watch");
    assert!(matches!(watch.next().await, Ok(Some(Event::Changed(object))) if object.name == "a"));
    assert!(matches!(watch.next().await, Ok(Some(Event::Deleted(object))) if object.name == "a"));
    assert!(
        matches!(watch.next().await, Ok(Some(Event::Bookmark { resource_version })) if resource_version == "12")
    );
    assert_eq!(watch.next().await.expect_err("expired").code, Some(410));
    assert!(watch.next().await.expect("an end").is_none());
}
