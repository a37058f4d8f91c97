use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::events::v1::Event;
use kube::client::Body;
use label_storage::{ResourceVersion, Uid};
use tower::service_fn;
use tracing_subscriber::fmt::MakeWriter;

use super::*;

const UID: &str = "189fb836-0000-4000-8000-0123456789ab";

/// Receives recorded Events instead of writing them.
pub(crate) struct Overheard {
    _sender: mpsc::Sender<Queued>,
    queue: mpsc::Receiver<Queued>,
}

impl Overheard {
    pub(crate) fn events() -> (EventRecorder, Self) {
        let (sender, queue) = mpsc::channel(QUEUE);
        let events = EventRecorder { queue: Some(sender.downgrade()), metrics: Arc::default() };
        (events, Self { _sender: sender, queue })
    }

    /// The reason, the Node, its uid and the note of each Event since the last call.
    pub(crate) fn take(&mut self) -> Vec<(&'static str, String, String, String)> {
        let strings = |Queued { kind, node, note }: Queued| {
            (kind.1, node.name.unwrap_or_default(), node.uid.unwrap_or_default(), note)
        };
        std::iter::from_fn(|| self.queue.try_recv().ok()).map(strings).collect()
    }
}

/// An API server that keeps what it is asked, and answers with a status.
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

    fn methods(&self) -> Vec<Method> {
        self.asked().into_iter().map(|(method, ..)| method).collect()
    }

    fn refuse(&self, code: Option<u16>) {
        *self.refuses.lock().expect("a lock") = code;
    }
}

fn start(server: &Arc<Server>) -> (EventRecorder, Publishing, Arc<Metrics>) {
    let metrics = Arc::default();
    let (events, publishing) = EventRecorder::start(server.start(), "restorer", "restorer-0", &metrics);
    (events, publishing, metrics)
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

/// Lets the publisher handle the queue.
async fn settle() {
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
}

fn counted(metrics: &Metrics, outcome: &'static str) -> u64 {
    metrics.events.get_or_create(&[("reason", LABELS_RESTORED.1), ("outcome", outcome)]).get()
}

/// The lines logged by this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("a lock").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Log {
    fn start(&self) -> tracing::subscriber::DefaultGuard {
        tracing::subscriber::set_default(tracing_subscriber::fmt().with_writer(self.clone()).finish())
    }

    fn lines(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.0.lock().expect("a lock"));
        String::from_utf8(bytes).expect("text").lines().map(str::to_owned).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_says_all_about_one_node() {
    let server = Arc::new(Server::default());
    let (events, _publishing, _) = start(&server);
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
    assert_eq!(event.note.as_deref(), Some("Restored from its record: pool"));
}

#[tokio::test(start_paused = true)]
async fn beyond_a_burst_one_a_second_is_written_and_the_rest_is_dropped() {
    let server = Arc::new(Server::default());
    let (events, _publishing, metrics) = start(&server);
    let written = async |recorded: usize, after: u64| {
        tokio::time::sleep(Duration::from_secs(after)).await;
        (0..recorded).for_each(|number| events.restored(&node(number), &pool()));
        settle().await;
        server.asked().len()
    };
    assert_eq!(written(QUEUE, 0).await, 50);
    assert_eq!((counted(&metrics, "written"), counted(&metrics, "dropped")), (50, QUEUE as u64 - 50));
    assert_eq!(written(100, 20).await, 20, "one more for each second");
    assert_eq!(written(100, 3600).await, 50, "not more than at first");
    assert_eq!((counted(&metrics, "written"), counted(&metrics, "failed")), (120, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_queued_is_written_at_the_end() {
    let server = Arc::new(Server::default());
    let (events, publishing, _) = start(&server);
    for number in 0..10 {
        events.restored(&node(number), &pool());
    }
    publishing.close().await;
    assert_eq!(server.asked().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn the_same_again_makes_a_series() {
    let server = Arc::new(Server::default());
    let (events, _publishing, _) = start(&server);
    for _ in 0..3 {
        events.unreadable("a", node(1).uid.digest(), "it is somebody else's");
    }
    settle().await;
    let asked = server.asked();
    let name = asked[0].2.metadata.name.clone().expect("a name");
    assert_eq!((asked.len(), &asked[0].0, &asked[2].0), (3, &Method::POST, &Method::PATCH));
    assert!(asked[2].1.ends_with(&name));
    assert_eq!(asked[2].2.series.as_ref().map(|series| series.count), Some(3));
    // It is gone by now: the next begins anew.
    server.refuse(Some(404));
    events.unreadable("a", node(1).uid.digest(), "it is somebody else's");
    settle().await;
    server.refuse(None);
    assert_eq!(server.asked().len(), 1);
    events.unreadable("a", node(1).uid.digest(), "it is somebody else's");
    settle().await;
    assert_eq!(server.methods(), [Method::POST]);
}

#[tokio::test(start_paused = true)]
async fn another_note_is_another_event() {
    let server = Arc::new(Server::default());
    let (events, _publishing, _) = start(&server);
    for what in ["a", "b", "a", "b"] {
        events.unreadable("a", node(1).uid.digest(), what);
    }
    settle().await;
    assert_eq!(server.methods(), [Method::POST, Method::POST, Method::PATCH, Method::PATCH]);
}

#[tokio::test(start_paused = true)]
async fn only_so_many_series_are_remembered() {
    let server = Arc::new(Server::default());
    let (events, publishing, _) = start(&server);
    for number in 0..=MAX_RECORDERS {
        events.unreadable("a", node(1).uid.digest(), &number.to_string());
        tokio::time::sleep(REFILL).await;
    }
    events.unreadable("a", node(1).uid.digest(), "0");
    publishing.close().await;
    assert_eq!(server.methods(), vec![Method::POST; MAX_RECORDERS + 2], "the first has been forgotten");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_logged_once_and_no_event_is_retried() {
    let (server, log) = (Arc::new(Server::default()), Log::default());
    let _logging = log.start();
    let (events, _publishing, metrics) = start(&server);
    for code in [401, 403] {
        server.refuse(Some(code));
        (0..5).for_each(|number| events.restored(&node(number), &pool()));
        tokio::time::sleep(LOG_INTERVAL * 2).await;
        assert_eq!(server.asked().len(), 5);
    }
    assert_eq!((counted(&metrics, "failed"), counted(&metrics, "written")), (10, 0));
    let lines = log.lines();
    assert!(lines.len() == 1 && lines[0].contains("--events=false"), "{lines:?}");
    // After a success, a refusal is news.
    for code in [None, Some(403)] {
        server.refuse(code);
        events.restored(&node(1), &pool());
        settle().await;
    }
    assert_eq!(log.lines().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn other_failures_are_logged_now_and_then() {
    let (server, log) = (Arc::new(Server::default()), Log::default());
    let _logging = log.start();
    server.refuse(Some(500));
    let (events, _publishing, metrics) = start(&server);
    for _ in 0..2 {
        (0..10).for_each(|number| events.restored(&node(number), &pool()));
        settle().await;
        let lines = log.lines();
        assert!(lines.len() == 1 && !lines[0].contains("--events=false"), "{lines:?}");
        tokio::time::sleep(LOG_INTERVAL).await;
    }
    assert_eq!((counted(&metrics, "failed"), server.asked().len()), (20, 20));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_holds_up_nobody() {
    let silence =
        service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, tower::BoxError>>());
    let metrics = Arc::default();
    let (events, publishing) =
        EventRecorder::start(Client::new(silence, "default"), "storer", "s-0", &metrics);
    for number in 0..10_000 {
        events.restored(&node(number), &pool());
    }
    assert_eq!(counted(&metrics, "dropped"), 10_000 - QUEUE as u64, "the queue is bounded");
    let began = tokio::time::Instant::now();
    publishing.close().await;
    assert_eq!(began.elapsed(), FLUSH, "by a clock that only goes on where everybody waits");
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_ends() {
    let silence =
        service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, tower::BoxError>>());
    let metrics = Arc::default();
    let (events, _publishing) =
        EventRecorder::start(Client::new(silence, "default"), "storer", "s-0", &metrics);
    events.restored(&node(1), &pool());
    tokio::time::sleep(call::ONE * 2).await;
    assert_eq!(counted(&metrics, "failed"), 1);
}

#[test]
fn a_note_is_as_long_as_it_may_be() {
    let keys: Vec<_> = (0..100).map(|number| format!("example.com/a-rather-long-key-{number}")).collect();
    let note = with_keys("Given back", keys.iter(), ".");
    assert!(note.len() <= MAX_NOTE && note.len() > MAX_NOTE - 80, "{}", note.len());
    let named = note.matches("example.com").count();
    assert!(note.ends_with(&format!(", and {} more.", 100 - named)), "{note}");
    assert_eq!(with_keys("Given back", keys[..2].iter(), ".").matches("example.com").count(), 2);
    let longest = vec!["n".repeat(317); 5];
    assert!(with_keys("Given back", longest.iter(), "").ends_with(", and 2 more"));
    let labels = BTreeMap::from([("a".to_owned(), String::new())]);
    assert_eq!(with_keys("Given back", labels.keys(), ""), "Given back: a");
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
    assert_eq!(IDENTITY_CONTESTED.0, EventType::Warning);
}
