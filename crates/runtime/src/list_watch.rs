//! Seeing: lists and watches, each a task of its own, that tell the engine of what they see.

use std::sync::Arc;
use std::time::{Duration, Instant};

use label_storage::store::Stored;
use label_storage::summary::RecordSummary;
use label_storage::{Node, ResourceVersion, Rules};
use label_storage_wire::{Event, Object};
use tokio::sync::mpsc;

use crate::api_source::{ApiSource, Listed, Resource};
use crate::args::Share;
use crate::backoff;
use crate::cache::Elsewhere;
use crate::call::Error;
use crate::projection::Projection;
use crate::record_key::Filed;
use crate::records::{self, Found};

/// What was seen.
pub(crate) enum Observed {
    /// Some of what a list has.
    Listed {
        /// Which list.
        list: u32,
        /// Some of this shard's.
        items: Vec<Item>,
    },
    /// A list came to its end, or to nothing.
    ListEnded {
        /// Of what.
        kind: Resource,
        /// Which list.
        list: u32,
        /// All there is has been told of, unless this is an error.
        outcome: Result<Listed, Error>,
        /// How long it took.
        took: Duration,
    },
    /// Something new, or something changed.
    Changed(Item),
    /// Something was deleted, and looked like this just before.
    Deleted(Item),
    /// A watch works, and goes on from here.
    Watching(Resource, ResourceVersion),
    /// A watch has come this far: all that it had to tell until then has been told.
    At(Resource, ResourceVersion),
    /// A watch does not work. It is tried again.
    NotWatching(Resource, Error),
    /// A watch can't go on where it was, and goes on where the server's memory begins.
    Skipped(Resource),
    /// A watch can't go on where it was: only a list can tell what happened since.
    Expired(Resource),
}

/// An object of this shard, or one that may have been.
pub(crate) enum Item {
    /// A Node.
    Node(Node),
    /// A Node that is not, or not any more. Only told of where that can change while it lives.
    Other(OtherNode),
    /// A record.
    Record(SeenRecord),
}

/// A Node that is filed in another shard.
pub(crate) struct OtherNode {
    /// Its name.
    pub(crate) name: String,
    /// When it was so.
    pub(crate) version: ResourceVersion,
}

impl OtherNode {
    /// What the cache is to know of it.
    pub(crate) fn as_elsewhere(&self) -> Elsewhere<'_> {
        Elsewhere { name: &self.name, version: self.version }
    }
}

/// A ConfigMap that is a record, or should be.
pub(crate) struct SeenRecord {
    /// Its own name.
    pub(crate) name: String,
    /// What it is filed under; where it does not say, something that no Node is.
    pub(crate) filed_under: String,
    /// The Node that it was last made from; where it does not say, the same.
    pub(crate) node: String,
    /// Its version.
    pub(crate) version: ResourceVersion,
    /// What it says.
    pub(crate) stored: Stored<RecordSummary>,
    /// What is wrong with it, for a person to see.
    pub(crate) complaint: Option<String>,
}

impl SeenRecord {
    /// Which entry it belongs to.
    pub(crate) fn filed(&self) -> Filed<'_> {
        Filed { under: &self.filed_under, name: &self.node }
    }
}

/// Where what was seen is told.
pub(crate) type Audience = mpsc::Sender<Observed>;

/// So many items are told of at once.
const BATCH: usize = 256;

/// Collects what a list has, and tells of it in batches.
struct Batches {
    list: u32,
    items: Vec<Item>,
    audience: Audience,
}

impl Batches {
    fn push(&mut self, item: Item) {
        self.items.push(item);
        if self.items.len() >= BATCH {
            self.tell();
        }
    }

    fn tell(&mut self) {
        let items = std::mem::take(&mut self.items);
        if !items.is_empty() {
            // Nobody listens any more at the end of the process: then nothing is lost either.
            let _ = self.audience.blocking_send(Observed::Listed { list: self.list, items });
        }
    }
}

/// Dropped on the thread that reads the list, once it has been read.
impl Drop for Batches {
    fn drop(&mut self) {
        self.tell();
    }
}

/// Lists all there is and tells of it. Says whether that went well.
pub(crate) async fn list(source: Arc<ApiSource>, share: Share, list: u32, audience: Audience) -> bool {
    let (kind, began) = (source.kind(), Instant::now());
    let mut batches = Batches { list, items: Vec::new(), audience: audience.clone() };
    let projection = source.projection().clone();
    let each = move |object| {
        if let Some(item) = item(kind, &share, &projection, object) {
            batches.push(item);
        }
    };
    let outcome = source.list(each).await;
    let is_complete = outcome.is_ok();
    let _ = audience.send(Observed::ListEnded { kind, list, outcome, took: began.elapsed() }).await;
    is_complete
}

/// Watches from this version on, for as long as the server knows what came after it. A watch that ends is followed by
/// another from where it ended; one that fails, too, after a pause, however often: only the server can tell that it no longer has
/// what came after that version.
pub(crate) async fn watch(source: Arc<ApiSource>, share: Share, from: ResourceVersion, audience: Audience) {
    let (kind, mut at, mut failures) = (source.kind(), from, 0u32);
    loop {
        let (before, began) = (at, Instant::now());
        let end = follow(&source, &share, &mut at, &audience).await;
        if audience.is_closed() {
            return;
        }
        // One that ends as soon as it has begun, and tells nothing, works no better than one that fails.
        let is_alive = at > before || began.elapsed() > Duration::from_secs(1);
        failures = if is_alive { 0 } else { failures.saturating_add(1) };
        let error = match end {
            Ok(()) if is_alive => continue,
            Ok(()) => Error::unclear("watch", "it ends as soon as it has begun"),
            Err(error) => error,
        };
        if let Some(oldest) = oldest_known(&error).filter(|oldest| *oldest > at) {
            let _ = audience.send(Observed::Skipped(kind)).await;
            at = oldest;
            continue;
        }
        if is_unknown_version(&error) {
            let _ = audience.send(Observed::Expired(kind)).await;
            return;
        }
        let retry_after = error.retry_after().map(backoff::a_little_more);
        let _ = audience.send(Observed::NotWatching(kind, error)).await;
        let pause = backoff::exponential(Duration::from_millis(100), failures + 1, Duration::from_secs(10));
        tokio::time::sleep(pause.max(retry_after.unwrap_or_default())).await;
    }
}

/// True if the server says that it no longer has what came after a version, or never had that version.
fn is_unknown_version(error: &Error) -> bool {
    error.code == Some(410) || error.message.contains("oo large resource version")
}

/// The oldest version that the server remembers, where it says so: `too old resource version: 5 (17)`. What came before that is
/// lost, and what came after it need not be.
fn oldest_known(error: &Error) -> Option<ResourceVersion> {
    let message = error.message.strip_suffix(" (410)")?;
    let (_, rest) = message.split_once("too old resource version: ")?;
    rest.split_once(" (")?.1.split_once(')')?.0.parse().ok()
}

/// How often to tell how far a watch has come, where all that it tells of is other shards'.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// One watch, to its end.
async fn follow(
    source: &ApiSource,
    share: &Share,
    at: &mut ResourceVersion,
    audience: &Audience,
) -> Result<(), Error> {
    let kind = source.kind();
    let mut watch = source.watch(*at).await?;
    let mut told = audience.send(Observed::Watching(kind, *at)).await;
    let mut told_at = Instant::now();
    while told.is_ok() {
        let (object, is_deleted) = match watch.next().await? {
            None => return Ok(()),
            Some(Event::Changed(object)) => (object, false),
            Some(Event::Deleted(object)) => (object, true),
            Some(Event::Bookmark { resource_version }) => {
                *at = resource_version.parse().unwrap_or(*at);
                told = audience.send(Observed::At(kind, *at)).await;
                continue;
            }
            // Made an error of already.
            Some(Event::Error(_)) => return Ok(()),
        };
        *at = object.resource_version.parse().unwrap_or(*at);
        if let Some(item) = item(kind, share, source.projection(), object) {
            let observed = if is_deleted { Observed::Deleted(item) } else { Observed::Changed(item) };
            told = audience.send(observed).await;
        } else if told_at.elapsed() > TELL_EVERY {
            told = audience.send(Observed::At(kind, *at)).await;
            told_at = Instant::now();
        }
    }
    Ok(())
}

/// What an object is to this shard, if anything.
fn item(kind: Resource, share: &Share, projection: &Projection, object: Object) -> Option<Item> {
    match kind {
        Resource::Nodes if projection.files_by_name() && !share.includes(&object.name) => None,
        Resource::Nodes => match projection.node(object) {
            Ok(node) if share.includes(&node) => Some(Item::Node(node)),
            Ok(node) => Some(Item::Other(OtherNode { name: node.name, version: node.version })),
            Err(error) => {
                tracing::warn!(%error, "skipping a node");
                None
            }
        },
        Resource::Records => record(share, &projection.rules, object).map(Item::Record),
    }
}

fn record(share: &Share, rules: &Rules, object: Object) -> Option<SeenRecord> {
    let name = object.name.clone();
    let found = Found::from(object).seen_through(rules, None);
    let version = found.version().unwrap_or(ResourceVersion(0));
    let filed_under = records::filed_under(share, &name, &found)?;
    let node =
        found.content.as_ref().map_or_else(|_| filed_under.clone(), |decoded| decoded.record.node.clone());
    let stored = Found::stored(Some(&found)).map(label_storage::Record::summary);
    Some(SeenRecord { name, filed_under, node, version, stored, complaint: found.complaint() })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use label_storage::rules::IdentityBy;

    use super::*;

    #[test]
    fn a_node_is_of_the_shard_that_it_is_filed_in_and_others_only_hear_of_it() {
        let replicas = NonZeroU32::new(2).expect("not zero");
        let shares = [0, 1].map(|index| Share { index, replicas, nodes: None });
        // What it is to each of them.
        let items = |identity: IdentityBy, serial: &str| {
            let projection = Projection {
                rules: Arc::new(Rules { identity, ..Rules::default() }),
                ..Projection::default()
            };
            let object = Object {
                name: "node-1".to_owned(),
                uid: "u1".to_owned(),
                resource_version: "7".to_owned(),
                labels: [("serial".to_owned(), serial.to_owned())].into(),
                ..Object::default()
            };
            shares.clone().map(|share| match item(Resource::Nodes, &share, &projection, object.clone()) {
                None => "nothing",
                Some(Item::Node(_)) => "ours",
                Some(Item::Other(node)) if (&*node.name, node.version.0) == ("node-1", 7) => "another's",
                Some(_) => "something else",
            })
        };
        let serial = || IdentityBy::Label("serial".to_owned());
        assert_eq!(items(IdentityBy::Name, "1"), ["nothing", "ours"]);
        assert_eq!(items(serial(), ""), ["another's", "ours"], "by its name, for want of anything else");
        for number in 0..8 {
            let (filed, number) = (format!("label:serial={number}"), number.to_string());
            let is_ours = label_storage::shard(&filed, replicas) == 0;
            let expected = if is_ours { ["ours", "another's"] } else { ["another's", "ours"] };
            assert_eq!(items(serial(), &number), expected, "{filed}");
        }
    }

    #[test]
    fn a_position_is_given_up_only_where_the_server_does_not_know_it() {
        let is_unknown =
            |code, message: &str| is_unknown_version(&Error::answered("watch nodes", code, message, None));
        assert!(is_unknown(410, "too old resource version: 188998 (192345)"));
        assert!(is_unknown(504, "Timeout: Too large resource version: 99, current: 7"));
        for code in [400, 401, 403, 404, 429, 500, 502, 503, 504] {
            assert!(!is_unknown(code, "bad gateway"), "{code}");
        }
    }

    #[test]
    fn where_the_servers_memory_begins_is_read_from_its_refusal() {
        let oldest = |code, message: &str| oldest_known(&Error::answered("watch nodes", code, message, None));
        assert_eq!(oldest(410, "too old resource version: 188998 (192345)"), Some(ResourceVersion(192_345)));
        assert_eq!(oldest(500, "too old resource version: 5 (17)"), None);
        for message in [
            "The resourceVersion for the provided watch is too old.",
            "too old resource version: 5",
            "too old resource version: 5 (",
            "too old resource version: 5 (x)",
            "etcdserver: mvcc: required revision has been compacted",
            "",
        ] {
            assert_eq!(oldest(410, message), None, "{message}");
        }
    }
}
