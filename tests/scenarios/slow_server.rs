//! Just enough of an API server to have a daemon in the middle of a write for as long as a test likes. A real one
//! answers too soon.

use std::sync::Arc;

use anyhow::Result;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct SlowServer {
    pub url: String,
    /// How many writes wait for an answer.
    writes: Arc<watch::Sender<usize>>,
    /// Whether writes are answered.
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
        let wants_protobuf =
            head.to_ascii_lowercase().contains("accept: application/vnd.kubernetes.protobuf");
        let (status, answer) = if wants_protobuf { NOT_ACCEPTABLE } else { answer(request) };
        let answer = answer.to_string();
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        connection.write_all((head + &answer).as_bytes()).await?;
    }
}

/// It speaks JSON alone, as some servers behind an API server do.
const NOT_ACCEPTABLE: (&str, Value) = ("406 Not Acceptable", Value::Null);

/// One node, no record yet, a lease for whoever asks, and every right.
fn answer(request: &str) -> (&'static str, Value) {
    let node =
        json!({"metadata": {"name": "a", "uid": "u1", "resourceVersion": "1", "labels": {"pool": "gold"}}});
    if request.contains("selfsubjectaccessreviews") {
        return ("201 Created", json!({"spec": {}, "status": {"allowed": true}}));
    } else if request.contains("/leases") && request.starts_with("GET") {
        return ("200 OK", json!({"metadata": {"resourceVersion": "1"}, "items": []}));
    } else if request.contains("/leases") {
        let spec = json!({"holderIdentity": "a"});
        return ("200 OK", json!({"metadata": {"name": "a", "resourceVersion": "1"}, "spec": spec}));
    } else if request.starts_with("POST") {
        return ("201 Created", json!({"metadata": {"name": "label-storage.a"}}));
    } else if request.contains("/configmaps/") {
        return ("404 Not Found", json!({"status": "Failure", "reason": "NotFound", "code": 404}));
    } else if request.contains("/configmaps") {
        return ("200 OK", json!({"metadata": {"resourceVersion": "1"}, "items": []}));
    } else if request.contains("/nodes/") {
        return ("200 OK", node);
    } else if request.contains("/nodes") {
        return ("200 OK", json!({"metadata": {"resourceVersion": "1"}, "items": [node]}));
    }
    ("200 OK", json!({"metadata": {"name": "default"}}))
}
