//! A daemon that a test has started: its log, and what it says on its admin port.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use sandbox::process::{Exit, Guarded};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::scenario::{PATIENCE, Scenario};

/// A storer or restorer that runs as a process of its own, and ends with the test.
pub struct Daemon {
    pub process: Guarded,
    log: Mutex<Log>,
}

/// A log, as far as it was read.
#[derive(Default)]
struct Log {
    /// The complete lines.
    text: String,
    /// The beginning of another.
    rest: Vec<u8>,
    at: u64,
}

impl Log {
    fn follow(&mut self, file: &Path) -> std::io::Result<()> {
        let mut file = File::open(file)?;
        file.seek(SeekFrom::Start(self.at))?;
        self.at += file.read_to_end(&mut self.rest)? as u64;
        let end = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let lines: Vec<_> = self.rest.drain(..end).collect();
        self.text.push_str(&String::from_utf8_lossy(&lines));
        Ok(())
    }
}

impl Daemon {
    pub fn new(process: Guarded) -> Self {
        Self { process, log: Mutex::default() }
    }

    /// Reads what was added to its log.
    fn follow(&self) -> MutexGuard<'_, Log> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        // It may not exist yet.
        let _ = log.follow(self.process.log());
        log
    }

    pub fn log(&self) -> String {
        let log = self.follow();
        format!("{}{}", log.text, String::from_utf8_lossy(&log.rest))
    }

    /// True if one line of its log has all of these.
    pub fn has_logged(&self, parts: &[&str]) -> bool {
        self.follow().text.lines().any(|line| parts.iter().all(|part| line.contains(part)))
    }

    /// Where its admin port is, as its log says.
    pub fn admin_address(&self) -> Result<SocketAddr> {
        let log = self.log();
        let line = log.lines().find(|line| line.contains("serving health and metrics")).context("not yet")?;
        Ok(line.rsplit_once("address=").context("an address")?.1.trim().parse()?)
    }

    /// Gets a path of its admin port, on which it must have been started (`--admin-address`).
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        get(self.admin_address()?, path).await
    }

    /// The sum of all samples of its metrics that have these parts, as in `name{` and `label="value"`.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> Result<f64> {
        let (code, text) = self.get("/metrics").await?;
        ensure!(code == 200, "{text}");
        let start = format!("label_storage_{name}{{");
        let samples = text.lines().filter(|line| line.starts_with(&start));
        let of_label = samples.filter(|line| labels.iter().all(|label| line.contains(label)));
        of_label.map(|line| Ok(line.rsplit_once(' ').context("no value")?.1.parse::<f64>()?)).sum()
    }

    /// Waits until its metrics say this.
    pub async fn eventually_counted(
        &self,
        s: &Scenario,
        name: &str,
        labels: &[&str],
        value: f64,
    ) -> Result<()> {
        s.eventually(&format!("{name} {labels:?}"), value, async || self.metric(name, labels).await).await
    }

    /// How often it has decided about a node so far.
    pub fn decisions(&self, node: &str) -> usize {
        let field = format!("node=\"{node}\"");
        self.follow().text.lines().filter(|line| line.contains("decided") && line.contains(&field)).count()
    }

    /// Waits for its end, which must come by itself.
    pub async fn exit(&self) -> Result<Exit> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.process.try_wait() {
                Some(exit) => return Ok(exit),
                None if Instant::now() > deadline => bail!("{} did not end", self.process.name()),
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

/// Gets a path over HTTP.
pub async fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let answer = async {
        let (mut stream, mut text) = (TcpStream::connect(address).await?, String::new());
        stream.write_all(request.as_bytes()).await?;
        stream.read_to_string(&mut text).await?;
        anyhow::Ok(text)
    };
    let text = tokio::time::timeout(PATIENCE, answer).await.context("no answer")??;
    let (head, body) = text.split_once("\r\n\r\n").context("no end of the head")?;
    let code = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok((code, body.to_owned()))
}
