//! Just enough of an API server to have a daemon in the middle of a write for as long as a test likes. A real one
//! answers too soon.

use std::sync::Arc;

use anyhow::Result;
use label_storage_wire::fixtures::{self, Head, head};
use label_storage_wire::{NodePart, Object};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct SlowServer {
    pub url: String,
    /// How many writes wait for an answer.
    writes: Arc<watch::Sender<usize>>,
    /// True if writes are answered.
    answers: watch::Sender<bool>,
}

impl SlowServer {
    /// Serves on this test's runtime.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let (writes, answers) = (Arc::new(watch::Sender::new(0)), watch::Sender::new(false));
        let (counted, answered) = (Arc::clone(&writes), answers.subscribe());
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, Arc::clone(&counted), answered.clone()));
            }
        });
        Ok(Self { url, writes, answers })
    }

    pub fn has_writes(&self) -> bool {
        *self.writes.borrow() > 0
    }

    /// Answers the writes that wait, and all later ones.
    pub fn answer(&self) {
        self.answers.send_replace(true);
    }
}

async fn serve(
    connection: TcpStream,
    writes: Arc<watch::Sender<usize>>,
    mut answers: watch::Receiver<bool>,
) -> Result<()> {
    let mut connection = BufReader::new(connection);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if connection.read_until(b'\n', &mut head).await? == 0 {
                return Ok(());
            }
        }
        let head = String::from_utf8(head)?;
        let length = head
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        connection.read_exact(&mut body).await?;
        let request = head.lines().next().unwrap_or_default();
        if request.starts_with("POST") && request.contains("/configmaps") {
            writes.send_modify(|writes| *writes += 1);
            answers.wait_for(|answers| *answers).await?;
        }
        if request.contains("watch=true") {
            // Nothing ever happens here.
            std::future::pending::<()>().await;
        }
        let (status, media_type, answer) = answer(request);
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        connection.write_all(&[head.as_bytes(), &answer].concat()).await?;
    }
}

/// The daemon reads lists and Nodes in protobuf, and everything else in JSON.
fn answer(request: &str) -> (&'static str, &'static str, Vec<u8>) {
    match protobuf(request) {
        Some(answer) => ("200 OK", "application/vnd.kubernetes.protobuf", answer),
        None => {
            let (status, answer) = json(request);
            (status, "application/json", answer.to_string().into_bytes())
        }
    }
}

/// One Node and no record.
fn protobuf(request: &str) -> Option<Vec<u8>> {
    let node = || Object {
        name: "a".to_owned(),
        uid: "u1".to_owned(),
        resource_version: "1".to_owned(),
        labels: [("pool".to_owned(), "gold".to_owned())].into(),
        ..Object::default()
    };
    let is_list = |resource: &str| request.contains(resource) && !request.contains(&format!("{resource}/"));
    if !request.starts_with("GET") {
        None
    } else if request.contains("/nodes/") {
        let node = Object { node: Some(NodePart::default()), ..node() };
        Some(fixtures::object("Node", &node.into()))
    } else if is_list("/nodes") {
        Some(fixtures::list(&head(), &[node().into()]))
    } else if is_list("/configmaps") {
        Some(fixtures::list(&Head { kind: "ConfigMapList", ..head() }, &[]))
    } else {
        None
    }
}

/// All permissions, and a lease for every caller.
fn json(request: &str) -> (&'static str, Value) {
    if request.contains("selfsubjectaccessreviews") {
        ("201 Created", json!({"spec": {}, "status": {"allowed": true}}))
    } else if request.contains("/leases") && request.starts_with("GET") {
        ("200 OK", json!({"metadata": {"resourceVersion": "1"}, "items": []}))
    } else if request.contains("/leases") {
        let spec = json!({"holderIdentity": "a"});
        ("200 OK", json!({"metadata": {"name": "a", "resourceVersion": "1"}, "spec": spec}))
    } else if request.starts_with("POST") {
        ("201 Created", json!({"metadata": {"name": "label-storage.a"}}))
    } else if request.contains("/configmaps/") {
        ("404 Not Found", json!({"status": "Failure", "reason": "NotFound", "code": 404}))
    } else {
        ("200 OK", json!({"metadata": {"name": "default"}}))
    }
}
