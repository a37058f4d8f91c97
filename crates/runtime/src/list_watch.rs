//! The tasks that list and watch, and send the objects to the engine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use label_storage::name::node_in_record_name;
use label_storage::store::Stored;
use label_storage::summary::{RecordSummary, UidDigest};
use label_storage::{Node, ResourceVersion};
use label_storage_wire::{Event, Object, Undecodable};
use tokio::sync::mpsc;

use crate::api_source::{ApiSource, Listed, Resource};
use crate::args::Share;
use crate::backoff;
use crate::call::Error;
use crate::projection::Projection;
use crate::records::{self, Found};

pub(crate) enum Observed {
    Listed {
        list: u32,
        /// Objects of this shard.
        items: Vec<Update>,
    },
    ListEnded {
        kind: Resource,
        list: u32,
        /// If this is no error, all items were sent.
        outcome: Result<Listed, Error>,
        took: Duration,
    },
    Changed(Update),
    /// An object was deleted, and looked like this just before.
    Deleted(Update),
    /// A watch works, from this version on.
    Watching(Resource, ResourceVersion),
    /// A watch has come to this version: all earlier events were sent.
    At(Resource, ResourceVersion),
    /// A watch is broken. It is repeated.
    NotWatching(Resource, Error),
    /// A watch can't be resumed where it was, and begins at this version, the oldest that the server has.
    Skipped(Resource, ResourceVersion),
    /// A watch can't be resumed: a list has to come first.
    Expired(Resource),
}

/// An object of this shard, or a Node that may have been.
pub(crate) enum Update {
    Node(Node),
    /// A Node of another shard. Sent only if a Node can change its shard while it lives.
    Elsewhere {
        name: String,
        version: ResourceVersion,
    },
    Record(SeenRecord),
    /// A record of another shard, and the incarnation that it was made from. Sent only if a Node can change its shard while it lives.
    RecordElsewhere {
        filed_under: String,
        uid: UidDigest,
    },
    /// An object that can't be decoded, of any shard if its own is not known. A Node counts as unchanged, a record as unreadable.
    Undecodable {
        kind: Resource,
        /// Empty if it can't be decoded either.
        name: String,
        why: String,
    },
}

/// A ConfigMap that is a record, or should be.
pub(crate) struct SeenRecord {
    pub(crate) name: String,
    /// Its key; if it has none, one that no Node has.
    pub(crate) filed_under: String,
    /// The Node that it was made from; if it names none, the same as the key.
    pub(crate) node: String,
    pub(crate) version: ResourceVersion,
    pub(crate) stored: Stored<RecordSummary>,
    /// The damage, for people.
    pub(crate) complaint: Option<String>,
}

pub(crate) type Audience = mpsc::Sender<Observed>;

/// The number of items in one message. Few messages fit into the channel, so that a list takes little memory.
const BATCH: usize = 64;

struct Batches {
    list: u32,
    items: Vec<Update>,
    audience: Audience,
}

impl Batches {
    fn tell(&mut self) {
        let items = std::mem::take(&mut self.items);
        if !items.is_empty() {
            // At the end of the process there is no receiver, and nothing is lost.
            let _ = self.audience.blocking_send(Observed::Listed { list: self.list, items });
        }
    }
}

/// Dropped on the thread that reads the list, when the list has ended.
impl Drop for Batches {
    fn drop(&mut self) {
        self.tell();
    }
}

/// Lists all objects. Returns true if the list is complete.
pub(crate) async fn list(source: Arc<ApiSource>, share: Share, list: u32, audience: Audience) -> bool {
    let (kind, began) = (source.kind, Instant::now());
    let mut batches = Batches { list, items: Vec::new(), audience: audience.clone() };
    let projection = source.projection.clone();
    let each = move |object| {
        if let Some(item) = item(kind, &share, &projection, object) {
            batches.items.push(item);
            if batches.items.len() >= BATCH {
                batches.tell();
            }
        }
    };
    let outcome = source.list(each).await;
    let is_complete = outcome.is_ok();
    let _ = audience.send(Observed::ListEnded { kind, list, outcome, took: began.elapsed() }).await;
    is_complete
}

/// Watches from this version on, for as long as the server has its history. A watch that ends or fails is repeated where it ended, after a
/// pause if it failed, however often: only the server can tell that it no longer has that version.
pub(crate) async fn watch(source: Arc<ApiSource>, share: Share, from: ResourceVersion, audience: Audience) {
    let (kind, mut at, mut failures) = (source.kind, from, 0u32);
    loop {
        let (before, began) = (at, Instant::now());
        let end = follow(&source, &share, &mut at, &audience).await;
        if audience.is_closed() {
            return;
        }
        // A watch that ends at once and sends nothing works no better than one that fails.
        let is_alive = at > before || began.elapsed() > Duration::from_secs(1);
        failures = if is_alive { 0 } else { failures.saturating_add(1) };
        let error = match end {
            Ok(()) if is_alive => continue,
            Ok(()) => Error::unclear("watch", "the server ends each watch at once"),
            Err(error) => error,
        };
        if let Some(oldest) = oldest_known(&error).filter(|oldest| *oldest > at) {
            let _ = audience.send(Observed::Skipped(kind, oldest)).await;
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

/// True if the server no longer has the history after a version, or never had that version.
fn is_unknown_version(error: &Error) -> bool {
    error.code == Some(410) || error.message.contains("oo large resource version")
}

/// The oldest version that the server has, if it names it: `too old resource version: 5 (17)`.
fn oldest_known(error: &Error) -> Option<ResourceVersion> {
    let message = error.message.strip_suffix(" (410)")?;
    let (_, rest) = message.split_once("too old resource version: ")?;
    rest.split_once(" (")?.1.split_once(')')?.0.parse().ok()
}

/// How often to send how far a watch has come, if all its events are of other shards.
const TELL_EVERY: Duration = Duration::from_secs(1);

async fn follow(
    source: &ApiSource,
    share: &Share,
    at: &mut ResourceVersion,
    audience: &Audience,
) -> Result<(), Error> {
    let kind = source.kind;
    let mut watch = source.watch(*at).await?;
    let mut told = audience.send(Observed::Watching(kind, *at)).await;
    let mut told_at = Instant::now();
    while told.is_ok() {
        let (object, is_deleted) = match watch.next().await? {
            None => return Ok(()),
            Some(Event::Changed(object)) => (Ok(object), false),
            Some(Event::Deleted(object)) => (Ok(object), true),
            Some(Event::Undecodable(undecodable)) => (Err(undecodable), false),
            Some(Event::Bookmark { resource_version }) => {
                *at = resource_version.parse().unwrap_or(*at);
                told = audience.send(Observed::At(kind, *at)).await;
                continue;
            }
            // `next` has made an error of it.
            Some(Event::Error(_)) => return Ok(()),
        };
        let version = match &object {
            Ok(object) => &object.resource_version,
            Err(undecodable) => &undecodable.part.resource_version,
        };
        *at = version.parse().unwrap_or(*at);
        if let Some(item) = item(kind, share, &source.projection, object) {
            let observed = if is_deleted { Observed::Deleted(item) } else { Observed::Changed(item) };
            told = audience.send(observed).await;
        } else if told_at.elapsed() > TELL_EVERY {
            told = audience.send(Observed::At(kind, *at)).await;
            told_at = Instant::now();
        }
    }
    Ok(())
}

/// The item for an object, if this shard needs it.
fn item(
    kind: Resource,
    share: &Share,
    projection: &Projection,
    object: Result<Object, Undecodable>,
) -> Option<Update> {
    let (object, error) = match object {
        Ok(object) => (object, None),
        Err(Undecodable { part, error }) => (*part, Some(error)),
    };
    let name = object.name.clone();
    let undecodable = |name, why| Some(Update::Undecodable { kind, name, why });
    match (kind, error) {
        (_, Some(why)) if name.is_empty() => undecodable(name, why),
        (Resource::Nodes, _) if projection.files_by_name() && !share.includes(name.as_str()) => None,
        (Resource::Nodes, Some(why)) => undecodable(name, why),
        (Resource::Nodes, None) => match projection.node(object) {
            Ok(node) if share.includes(&node) => Some(Update::Node(node)),
            Ok(node) => Some(Update::Elsewhere { name, version: node.version }),
            Err(error) => undecodable(name, error.to_string()),
        },
        (Resource::Records, Some(why)) => {
            let found = Found::from(object);
            if found.content.is_err() && node_in_record_name(&name).is_none() {
                return undecodable(name, why);
            }
            let seen = record(share, name, &found)?;
            let complaint = Some(format!("it can't be decoded, and is not changed: {why}"));
            Some(Update::Record(SeenRecord { stored: Stored::Unreadable, complaint, ..seen }))
        }
        (Resource::Records, None) => {
            let found = Found::from(object).seen_through(&projection.rules, None);
            let elsewhere = || {
                let record = &found.content.as_ref().ok().filter(|_| !projection.files_by_name())?.record;
                let (filed_under, uid) = (record.filed_under().to_owned(), record.uid.as_ref()?.digest());
                Some(Update::RecordElsewhere { filed_under, uid })
            };
            record(share, name, &found).map(Update::Record).or_else(elsewhere)
        }
    }
}

fn record(share: &Share, name: String, found: &Found) -> Option<SeenRecord> {
    let version = found.version().unwrap_or(ResourceVersion(0));
    let filed_under = records::filed_under(share, &name, found)?;
    let node =
        found.content.as_ref().map_or_else(|_| filed_under.clone(), |decoded| decoded.record.node.clone());
    let stored = Found::stored(Some(found)).map(label_storage::Record::summary);
    Some(SeenRecord { name, filed_under, node, version, stored, complaint: found.complaint() })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use label_storage::Rules;
    use label_storage::name::record_name;
    use label_storage::record::{MANAGED_BY, NODE};
    use label_storage::rules::IdentityBy;

    use super::*;

    #[test]
    fn a_node_is_of_the_shard_that_it_is_filed_in_and_others_only_hear_of_it() {
        let replicas = NonZeroU32::new(2).expect("not zero");
        let shares = [0, 1].map(|index| Share { index, replicas, nodes: None });
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
            shares.clone().map(|share| match item(Resource::Nodes, &share, &projection, Ok(object.clone())) {
                None => "nothing",
                Some(Update::Node(_)) => "ours",
                Some(Update::Elsewhere { name, version }) if (&*name, version.0) == ("node-1", 7) => {
                    "another's"
                }
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
    fn an_object_that_can_not_be_decoded_is_reported_where_it_may_be_known() {
        let replicas = NonZeroU32::new(2).expect("not zero");
        let shares = [0, 1].map(|index| Share { index, replicas, nodes: None });
        let items = |kind, part: &Object| {
            shares.clone().map(|share| {
                let undecodable = Undecodable { part: Box::new(part.clone()), error: "no".to_owned() };
                match item(kind, &share, &Projection::default(), Err(undecodable)) {
                    None => "nothing".to_owned(),
                    Some(Update::Undecodable { name, why, .. }) => format!("{name:?} {why}"),
                    Some(Update::Record(SeenRecord { filed_under, stored: Stored::Unreadable, .. })) => {
                        format!("unreadable {filed_under}")
                    }
                    Some(_) => "something else".to_owned(),
                }
            })
        };
        let object = |name: &str| Object { name: name.to_owned(), ..Object::default() };
        let long = "n".repeat(250);
        let mut record = object(&record_name(&long));
        let nobody = ["\"\" no", "\"\" no"];
        assert_eq!(items(Resource::Nodes, &object("")), nobody);
        assert_eq!(items(Resource::Records, &object("")), nobody);
        assert_eq!(items(Resource::Nodes, &object("node-1")), ["nothing", "\"node-1\" no"]);
        let known = ["nothing", "unreadable node-1"];
        assert_eq!(items(Resource::Records, &object("label-storage.node-1")), known);
        let unknown = format!("{:?} no", record.name);
        assert_eq!(items(Resource::Records, &record), [unknown.clone(), unknown]);
        record.labels = [(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned())].into();
        record.annotations = [(NODE.to_owned(), long.clone())].into();
        let of_shard = |index| match label_storage::shard(&long, replicas) == index {
            true => format!("unreadable {long}"),
            false => "nothing".to_owned(),
        };
        assert_eq!(items(Resource::Records, &record), [of_shard(0), of_shard(1)]);
    }

    #[test]
    fn a_node_without_a_usable_version_is_undecodable() {
        let share = Share { index: 0, replicas: NonZeroU32::MIN, nodes: None };
        let object = Object { name: "a".to_owned(), uid: "u1".to_owned(), ..Object::default() };
        let update = item(Resource::Nodes, &share, &Projection::default(), Ok(object));
        assert!(matches!(update, Some(Update::Undecodable { name, .. }) if name == "a"));
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
