//! The second pass: guarded writes, a few at a time, and as many as the API server takes without complaint.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use label_storage::Record;
use label_storage_runtime::api_source::ApiSource;
use label_storage_runtime::backoff;
use label_storage_runtime::call::{Error, FailureKind};
use label_storage_runtime::limiter::Limiter;
use label_storage_runtime::projection::Detail;
use label_storage_runtime::records::{self, Found};
use label_storage_runtime::shutdown::Shutdown;

use super::TOLD;
use super::imported::imported;
use super::reading::record_at;
use super::survey::{Entry, Life, Options, There, life};
use crate::cluster::Cluster;
use crate::commands::export::document::{Tags, fingerprint};
use crate::progress::{Progress, Unit};
use crate::write::Write;

/// So many records are written at the same time, at most.
const IN_FLIGHT: usize = 16;

/// For how long nothing may succeed before it is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// And for how long nobody may even listen.
const CONNECTING: Duration = Duration::from_secs(10);

/// So often is one record tried where the world has moved.
const ATTEMPTS: u32 = 5;

/// How far an import came.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) created: usize,
    pub(super) replaced: usize,
    /// As the file says already, when it was their turn.
    pub(super) same: usize,
    /// Those that were left alone when it was their turn.
    pub(super) left: usize,
    /// The first of them, and why.
    pub(super) left_first: Vec<(String, String)>,
    /// Why it did not come to the end, if it did not.
    pub(super) stopped: Option<String>,
    /// How many it did not come to.
    pub(super) unwritten: usize,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { created, replaced, same, left, .. } = self;
        write!(f, "{created} created, {replaced} replaced, {same} the same, {left} left alone")
    }
}

impl Written {
    fn leave(&mut self, node: String, why: String) {
        self.left += 1;
        if self.left_first.len() < TOLD {
            self.left_first.push((node, why));
        }
    }
}

/// What became of one.
enum Outcome {
    Created,
    Replaced,
    Same,
    /// The Node, and why.
    Left(String, String),
}

struct Turn {
    entry: Entry,
    tries: u32,
}

/// Writes all of them, until it is asked to stop or the API server is gone.
pub(super) async fn write_all(
    cluster: &Cluster,
    file: &File,
    todo: Vec<Entry>,
    options: Options,
    shutdown: &Shutdown,
) -> Written {
    let writer = Writer::new(cluster, file, options, shutdown);
    let mut progress = Progress::new("written", Unit::Of("records"), Some(todo.len() as u64));
    let mut fresh = todo.into_iter();
    let mut again = VecDeque::new();
    let mut written = Written::default();
    let mut limiter = Limiter::new(IN_FLIGHT);
    let mut in_flight = FuturesUnordered::new();
    let mut progressed_at = Instant::now();
    loop {
        let may_begin = written.stopped.is_none() && !shutdown.stop.is_cancelled();
        // Read once: between two looks at the clock a pause may end, and then nobody would wait for its end, nor for anything else.
        let now = Instant::now();
        while may_begin && limiter.has_room(in_flight.len(), now) {
            let next = || fresh.next().map(|entry| Turn { entry, tries: 0 });
            let Some(turn) = again.pop_front().or_else(next) else { break };
            in_flight.push(writer.turn(turn));
        }
        let is_over = !may_begin || (again.is_empty() && fresh.len() == 0);
        if in_flight.is_empty() && is_over {
            break;
        }
        let resumes = limiter.paused_until.filter(|until| !is_over && *until > now);
        let (turn, began, outcome) = tokio::select! {
            Some(done) = in_flight.next() => done,
            () = sleep_until(resumes) => continue,
            () = shutdown.stop.cancelled(), if may_begin => continue,
            () = shutdown.abort.cancelled() => break,
        };
        let Some(outcome) = outcome else {
            again.push_front(turn);
            continue;
        };
        limiter.note(began, outcome.as_ref().err(), Instant::now());
        match outcome {
            Ok(outcome) => {
                progressed_at = Instant::now();
                progress.step(1);
                match outcome {
                    Outcome::Created => written.created += 1,
                    Outcome::Replaced => written.replaced += 1,
                    Outcome::Same => written.same += 1,
                    Outcome::Left(node, why) => written.leave(node, why),
                }
            }
            Err(error) => match error.kind {
                FailureKind::Moved if turn.tries >= ATTEMPTS => {
                    written.leave(writer.node(&turn.entry), error.to_string());
                }
                // One that can't be written is no reason to leave out the others; a right that is missing is.
                FailureKind::Refused if !matches!(error.code, None | Some(401 | 403)) => {
                    written.leave(writer.node(&turn.entry), error.to_string());
                }
                FailureKind::Refused => {
                    again.push_front(turn);
                    written.stopped.get_or_insert(error.to_string());
                }
                kind => {
                    again.push_front(turn);
                    let patience = if kind == FailureKind::NotConnected { CONNECTING } else { PATIENCE };
                    if progressed_at.elapsed() > patience {
                        written.stopped.get_or_insert(error.to_string());
                    }
                }
            },
        }
    }
    written.unwritten = again.len() + fresh.len() + in_flight.len();
    if shutdown.stop.is_cancelled() && written.unwritten > 0 {
        written.stopped.get_or_insert("interrupted".to_owned());
    }
    written
}

async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}

struct Writer<'a> {
    cluster: &'a Cluster,
    file: &'a File,
    options: Options,
    shutdown: &'a Shutdown,
    records: Api<ConfigMap>,
    nodes: ApiSource,
}

impl<'a> Writer<'a> {
    fn new(cluster: &'a Cluster, file: &'a File, options: Options, shutdown: &'a Shutdown) -> Self {
        let client = &cluster.frank;
        let nodes = ApiSource::nodes(client.clone()).seen_by(cluster.projection(Detail::WhatIsThere));
        let records = Api::namespaced(client.clone(), &cluster.namespace);
        Self { cluster, file, options, shutdown, records, nodes }
    }

    /// One attempt, after a pause where there were others before it; nothing is begun once the end was asked for.
    async fn turn(&self, turn: Turn) -> (Turn, Instant, Option<Result<Outcome, Error>>) {
        if turn.tries > 0 {
            let pause = backoff::exponential(Duration::from_millis(50), turn.tries, Duration::from_secs(5));
            tokio::select! {
                () = tokio::time::sleep(pause) => (),
                () = self.shutdown.stop.cancelled() => return (turn, Instant::now(), None),
            }
        }
        let began = Instant::now();
        let outcome = self.attempt(&turn.entry, turn.tries).await;
        (Turn { tries: turn.tries + 1, ..turn }, began, Some(outcome))
    }

    /// One attempt at one record. After a failure it begins with a read: nobody knows whether the write before had an effect.
    async fn attempt(&self, entry: &Entry, tries: u32) -> Result<Outcome, Error> {
        let refuse = |error: anyhow::Error| Error::refused("read the file", format!("{error:#}"));
        let (record, tags) = record_at(self.file, entry.document.place).map_err(refuse)?;
        let left = |why: &str| Ok(Outcome::Left(record.node.clone(), why.to_owned()));
        let is_new = entry.there == There::Nothing;
        let found = if is_new && tries == 0 {
            None
        } else {
            records::get(&self.records, record.filed_under()).await?
        };
        let before = match found.as_ref().map(|found| &found.content) {
            Some(Err(error)) => return left(&error.to_string()),
            Some(Ok(before)) if fingerprint(&before.record) == entry.document.fingerprint => {
                // It may well have been written by the attempt before, and who asks wants to know what is there now.
                return Ok(if tries > 0 && is_new { Outcome::Created } else { Outcome::Same });
            }
            Some(Ok(before)) => Some(&before.record),
            None => None,
        };
        let version = found.as_ref().and_then(Found::version);
        match (&entry.there, version) {
            (There::Nothing, None) => (),
            (There::Differs(seen), Some(version)) if *seen == version && self.options.replace => (),
            (_, Some(_)) => return left("it was changed meanwhile, and was not overwritten"),
            (_, None) => return left("it was deleted meanwhile"),
        }
        let node = match entry.life {
            Life::Absent => None,
            _ => {
                let node = self.nodes.get_node(entry.alias.as_deref().unwrap_or(&record.node)).await?;
                node.filter(|node| node.filed_under() == record.filed_under())
            }
        };
        let rules = &self.cluster.rules;
        let next = imported(&record, before, node.as_ref(), Timestamp::now(), rules);
        match node.as_ref().map(|node| life(node, &next, rules)) {
            Some(Life::Whole) => return Ok(Outcome::Same),
            Some(Life::Refused(why)) => return left(&format!("its node would not be given it: {why}")),
            _ => (),
        }
        self.write(&next, &tags, found).await
    }

    async fn write(&self, next: &Record, tags: &Tags, found: Option<Found>) -> Result<Outcome, Error> {
        let unwritable = |error| Error::refused("encode the record", error);
        if let Some(mut found) = found {
            tags.put_on(&mut found.config_map);
            Write::replace(next, &found, None).map_err(unwritable)?.send(self.cluster, false).await?;
            return Ok(Outcome::Replaced);
        }
        let mut model = ConfigMap::default();
        tags.put_on(&mut model);
        match Write::create(next, Some(&model)).map_err(unwritable)?.send(self.cluster, false).await {
            Ok(()) => Ok(Outcome::Created),
            // There is no such namespace, and there will be none the next time.
            Err(error) if error.code == Some(404) => {
                Err(Error { kind: FailureKind::Refused, code: None, ..error })
            }
            Err(error) => Err(error),
        }
    }

    /// The Node of a document, by name.
    fn node(&self, entry: &Entry) -> String {
        let record = record_at(self.file, entry.document.place);
        record.map_or_else(|_| format!("line {}", entry.document.place.line), |(record, _)| record.node)
    }
}
