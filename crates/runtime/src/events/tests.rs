use std::collections::BTreeMap;
use std::sync::Mutex;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::events::v1::Event;
use kube::client::Body;
use label_storage::{ResourceVersion, Uid};
use tower::service_fn;

use super::book::{AGAIN, BURST, SUMMARY};
use super::*;

const UID: &str = "189fb836-0000-4000-8000-0123456789ab";

/// What the API server was asked, and what it answers: a status.
#[derive(Default)]
struct Server {
    asked: Mutex<Vec<(Method, String, Event)>>,
    refuses: Mutex<Option<u16>>,
}

impl Server {
    fn start(self: &Arc<Self>) -> Client {
        let server = Arc::clone(self);
        let answer = move |request: Request<Body>| {
            let server = Arc::clone(&server);
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.expect("a body").to_bytes();
                let event: Event = serde_json::from_slice(&body).expect("an event");
                let path = head.uri.path().to_owned();
                server.asked.lock().expect("a lock").push((head.method, path, event));
                let refused = *server.refuses.lock().expect("a lock");
                let (code, body) = match refused {
                    None => (201, Body::from(body.to_vec())),
                    Some(code) => {
                        let status = serde_json::json!({"kind": "Status", "code": code, "message": "no", "reason": "no"});
                        (code, Body::from(status.to_string().into_bytes()))
                    }
                };
                Ok::<_, std::convert::Infallible>(
                    Response::builder().status(code).body(body).expect("an answer"),
                )
            }
        };
        Client::new(service_fn(answer), "default")
    }

    fn asked(&self) -> Vec<(Method, String, Event)> {
        std::mem::take(&mut self.asked.lock().expect("a lock"))
    }

    fn refuse(&self, code: Option<u16>) {
        *self.refuses.lock().expect("a lock") = code;
    }
}

fn open(server: &Arc<Server>) -> (Events, Office, Arc<Metrics>) {
    let metrics = Arc::default();
    let (events, office) = Events::open(server.start(), "restorer", "restorer-0", "records", &metrics);
    (events, office, metrics)
}

fn node(number: usize) -> Node {
    let (name, uid) = (format!("n{number}"), Uid::new(UID).expect("a uid"));
    Node {
        name,
        uid,
        version: ResourceVersion(7),
        labels: Labels::new(),
        marker: None,
        extras: Default::default(),
    }
}

fn pool() -> Labels {
    Labels::from([("pool".to_owned(), "gold".to_owned())])
}

/// Lets the clerk do what there is to do.
async fn settle() {
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
}

fn counted(metrics: &Metrics, outcome: &'static str) -> u64 {
    let all = REASONS.map(|reason| [("reason", reason.as_str()), ("outcome", outcome)]);
    all.iter().map(|labels| metrics.events.get_or_create(labels).get()).sum()
}

#[tokio::test(start_paused = true)]
async fn an_event_says_all_about_one_node() {
    let server = Arc::new(Server::default());
    let (events, _office, _) = open(&server);
    events.restored(&node(1), &pool());
    events.restored(&node(2), &Labels::new());
    events.conflict(&node(3), [].iter());
    settle().await;
    let asked = server.asked();
    assert_eq!(asked.len(), 1, "nothing is said of nothing");
    let (method, path, event) = &asked[0];
    assert_eq!((method, path.as_str()), (&Method::POST, "/apis/events.k8s.io/v1/namespaces/default/events"));
    let regarding = event.regarding.clone().expect("a node");
    assert_eq!(
        (regarding.kind.as_deref(), regarding.name.as_deref(), regarding.uid.as_deref(), regarding.namespace),
        (Some("Node"), Some("n1"), Some(UID), None)
    );
    assert_eq!(event.reporting_controller.as_deref(), Some("label-storage/restorer"));
    assert_eq!(event.reporting_instance.as_deref(), Some("restorer-0"));
    assert_eq!((event.reason.as_deref(), event.type_.as_deref()), (Some("LabelsRestored"), Some("Normal")));
    assert_eq!(event.note.as_deref(), Some("Given back from its record: pool"));
}

#[tokio::test(start_paused = true)]
async fn many_are_a_burst_and_a_summary() {
    let server = Arc::new(Server::default());
    let (events, _office, metrics) = open(&server);
    for number in 0..5000 {
        events.restored(&node(number), &pool());
    }
    settle().await;
    assert_eq!(server.asked().len(), BURST as usize);
    tokio::time::sleep(SUMMARY + Duration::from_secs(2)).await;
    settle().await;
    let asked = server.asked();
    assert_eq!(asked.len(), 1);
    let (_, path, event) = &asked[0];
    assert_eq!(path, "/apis/events.k8s.io/v1/namespaces/records/events");
    let note = event.note.clone().expect("a note");
    assert!(note.starts_with("4950 further nodes were given their labels back"), "{note}");
    assert_eq!((counted(&metrics, "written"), counted(&metrics, "summarised")), (51, 4950));
}

#[tokio::test(start_paused = true)]
async fn at_the_end_what_was_counted_is_told() {
    let server = Arc::new(Server::default());
    let (events, office, _) = open(&server);
    for number in 0..100 {
        events.restored(&node(number), &pool());
    }
    office.close().await;
    let asked = server.asked();
    assert_eq!(asked.len(), BURST as usize + 1);
    assert!(asked[BURST as usize].2.note.as_ref().is_some_and(|note| note.starts_with("50 further")));
}

#[tokio::test(start_paused = true)]
async fn the_same_again_makes_a_series() {
    let server = Arc::new(Server::default());
    let (events, _office, _) = open(&server);
    for _ in 0..3 {
        events.unreadable("a", node(1).uid.digest(), "it is somebody else's");
    }
    settle().await;
    let asked = server.asked();
    assert_eq!(asked.len(), 1);
    let name = asked[0].2.metadata.name.clone().expect("a name");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = server.asked();
    assert_eq!((asked.len(), &asked[0].0), (1, &Method::PATCH));
    assert!(asked[0].1.ends_with(&name));
    assert_eq!(asked[0].2.series.as_ref().map(|series| series.count), Some(3));
    // It is gone by now: the next begins anew.
    server.refuse(Some(404));
    events.unreadable("a", node(1).uid.digest(), "it is somebody else's");
    tokio::time::sleep(AGAIN + Duration::from_secs(2)).await;
    server.refuse(None);
    assert_eq!(server.asked().len(), 1);
    events.unreadable("a", node(1).uid.digest(), "it is somebody else's");
    settle().await;
    assert_eq!(server.asked().iter().map(|(method, ..)| method.clone()).collect::<Vec<_>>(), [Method::POST]);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_not_tried_again_and_told_later_as_a_number() {
    for (code, pause) in [(403, 600), (500, 60)] {
        let server = Arc::new(Server::default());
        server.refuse(Some(code));
        let (events, _office, metrics) = open(&server);
        for number in 0..100 {
            events.restored(&node(number), &pool());
        }
        settle().await;
        assert_eq!(server.asked().len(), 1, "one is enough to see that it is in vain");
        assert_eq!((counted(&metrics, "failed"), counted(&metrics, "summarised")), (1, 99));
        server.refuse(None);
        tokio::time::sleep(Duration::from_secs(pause) + SUMMARY).await;
        let notes: Vec<_> = server.asked().into_iter().filter_map(|(_, _, event)| event.note).collect();
        assert!(notes.len() == 1 && notes[0].starts_with("99 further"), "{notes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_holds_up_nobody() {
    let silence =
        service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, tower::BoxError>>());
    let metrics = Arc::default();
    let (events, office) =
        Events::open(Client::new(silence, "default"), "storer", "s-0", "records", &metrics);
    for number in 0..10_000 {
        events.restored(&node(number), &pool());
    }
    let began = tokio::time::Instant::now();
    office.close().await;
    assert_eq!(began.elapsed(), GOODBYE, "by a clock that only goes on where everybody waits");
}

#[test]
fn a_note_is_as_long_as_it_may_be() {
    let keys: Vec<_> = (0..100).map(|number| format!("example.com/a-rather-long-key-{number}")).collect();
    let note = with_keys("Given back", ".", keys.iter());
    assert!(note.len() <= MAX_NOTE && note.len() > MAX_NOTE - 80, "{}", note.len());
    let named = note.matches("example.com").count();
    assert!(note.ends_with(&format!(", and {} more.", 100 - named)), "{note}");
    assert_eq!(with_keys("Given back", ".", keys[..2].iter()).matches("example.com").count(), 2);
    let longest = vec!["n".repeat(317); 5];
    assert!(with_keys("Given back", "", longest.iter()).ends_with(", and 2 more"));
    let labels = BTreeMap::from([("a".to_owned(), String::new())]);
    assert_eq!(with_keys("Given back", "", labels.keys()), "Given back: a");
}

#[test]
fn a_contested_identity_names_the_others_however_many_and_however_long_it_is() {
    let (events, mut overheard) = Overheard::events();
    let uid = Uid::new(UID).expect("a uid").digest();
    let names: Vec<_> = (0..500).map(|number| format!("node-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    events.contested("node-1", uid, &format!("annotation:a={}", "ä".repeat(5000)), &names);
    let told = overheard.take();
    let (reason, node, uid, note) = &told[0];
    assert_eq!((*reason, node.as_str(), uid.as_str()), ("IdentityContested", "node-1", UID));
    assert!(
        note.len() <= MAX_NOTE && note.contains(": node-0, node-2, ") && note.ends_with(" more"),
        "{note}"
    );
    assert!(Reason::IdentityContested.is_warning());
}
