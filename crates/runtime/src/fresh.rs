//! Fresh reads: by name or, while many keys wait, from a list that serves all of them.
//!
//! An attempt needs its Node or record as it was after a certain moment. A list that began after that moment has it, and costs the API server
//! far less than thousands of reads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use label_storage::name::record_name;
use label_storage::store::PLAN_LIFETIME;
use label_storage::{Node, RecordKey};
use label_storage_wire::{Content, Object, Undecodable};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::api_source::{ApiSource, Resource};
use crate::cache::Known;
use crate::call::Error;
use crate::records::Found;
use crate::shard_context::ShardContext;

/// The most keys that one list is used for. Their objects take about 1 KB each.
const MOST: usize = 8192;
/// Fewer keys are read one by one.
const FEWEST: usize = 64;
/// The time for which a list is used. The rest of a plan's lifetime is for the write.
const LIFETIME: Duration = PLAN_LIFETIME.saturating_sub(Duration::from_secs(2));
/// The time after a look at the queue, or after a failed list, before the next.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(10);
/// Lists that take longer than this are of little use: most of their lifetime is over when they are there.
const SLOW: Duration = Duration::from_secs(6);
const PAUSE_AFTER_SLOW: Duration = Duration::from_secs(60);
/// Keys wait this long for a list. While thousands of reads by name compete with it, it takes ten times as long.
const PATIENCE: Duration = Duration::from_secs(5);

/// The number of listed objects that cost the API server as much as one read by name.
const fn worth(content: Content) -> usize {
    match content {
        Content::Node => 12,
        Content::Metadata | Content::ConfigMap => 32,
    }
}

/// The objects that an attempt will read, as far as that is known before it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    Node(Extent),
    Record,
    NodeThenRecord(Extent),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// As much of a Node as the daemon's lists of all Nodes have.
    Listed,
    Whole,
}

/// How one attempt reads its Node and its record.
pub struct FreshReads {
    /// The versions in the cache: an older answer is stale.
    pub known: Known,
    node: Option<Listed>,
    record: Option<Listed>,
}

#[derive(Clone)]
struct Listed {
    /// `None` if the list did not have it.
    object: Option<Object>,
    began: Instant,
}

impl Listed {
    /// The object, if it was read after this moment and not long ago.
    fn used(listed: Option<&Self>, after: Option<Instant>, tries: u32) -> Option<Self> {
        let is_fresh = |listed: &&Self| {
            after.is_none_or(|after| listed.began >= after) && listed.began.elapsed() < LIFETIME
        };
        listed.filter(|_| tries == 0).filter(is_fresh).cloned()
    }
}

impl FreshReads {
    /// Reads that ask for each object by name.
    pub fn by_name(known: Known) -> Self {
        Self { known, node: None, record: None }
    }

    /// Reads the Node as it was at `after`, or later. Returns it with the time at which the read began.
    pub async fn node(
        &self,
        context: &ShardContext,
        name: &str,
        after: Option<Instant>,
        tries: u32,
    ) -> Result<(Option<Node>, Instant), Error> {
        self.node_or(context, after, tries, context.node_source.get_node(name)).await
    }

    /// Reads the Node for a write that is refused if the Node has changed since. The first try may be answered from the API server's cache.
    pub async fn guarded_node(
        &self,
        context: &ShardContext,
        name: &str,
        tries: u32,
    ) -> Result<(Option<Node>, Instant), Error> {
        let (source, known) = (&context.node_source, &self.known.node);
        let get = async {
            match tries {
                0 if known.is_there => source.get_cached_node(name, known.version).await,
                _ => source.get_node(name).await,
            }
        };
        self.node_or(context, None, tries, get).await
    }

    async fn node_or(
        &self,
        context: &ShardContext,
        after: Option<Instant>,
        tries: u32,
        get: impl Future<Output = Result<Option<Node>, Error>>,
    ) -> Result<(Option<Node>, Instant), Error> {
        let asked_at = Instant::now();
        let (node, began) = match Listed::used(self.node.as_ref(), after, tries) {
            Some(Listed { object, began }) => {
                (object.map(|object| context.node_source.to_node(object)).transpose()?, began)
            }
            None => (get.await?, asked_at),
        };
        self.known.node.check("get node", node.as_ref().map(|node| Some(node.version)))?;
        Ok((node, began))
    }

    /// Reads the record as it was at `after`, or later. A record that the list lacks is read by name: it may have lost the label that lists
    /// select by. So is one that the cache knows to be deleted.
    pub async fn record(
        &self,
        context: &ShardContext,
        key: &RecordKey,
        after: Instant,
        tries: u32,
    ) -> Result<Option<Found>, Error> {
        let known = &self.known.record;
        let listed = Listed::used(self.record.as_ref(), Some(after), tries).and_then(|listed| listed.object);
        let is_deleted = |found: &Found| !known.is_there && found.version() <= Some(known.version);
        let found = match listed.map(Found::from).filter(|found| !is_deleted(found)) {
            None => context.record_source.get(&record_name(key)).await?.map(Found::from),
            listed => listed,
        };
        known.check("get configmap", found.as_ref().map(Found::version))?;
        Ok(found)
    }
}

/// Lists for the keys that wait.
#[derive(Default)]
pub(crate) struct BulkReads {
    running: JoinSet<Result<[Batch; 2], Error>>,
    batches: [Batch; 2],
    not_before: Option<Instant>,
    running_since: Option<Instant>,
    /// The names of the Nodes and records whose attempts began while a list was running: it comes too late for them.
    begun: Vec<[String; 2]>,
    /// The term of the lease in which the lists began.
    term: u64,
}

/// The objects of one list that were wanted, by name. Those that it did not have are `None`.
#[derive(Default)]
struct Batch {
    objects: HashMap<String, Option<Object>>,
    began: Option<Instant>,
    /// The number of objects that were wanted.
    wanted: usize,
    /// The time that the list took.
    took: Duration,
}

impl Batch {
    fn take(&mut self, name: &str) -> Option<Listed> {
        let (object, began) = (self.objects.remove(name)?, self.began?);
        Some(Listed { object, began })
    }

    /// True if the next list should begin: little of this one is left, or it will be too old when the next one is there.
    fn is_used_up(&self) -> bool {
        let is_ending = |began: Instant| began.elapsed() + self.took >= LIFETIME;
        self.objects.len() <= self.wanted / 4 || self.began.is_none_or(is_ending)
    }
}

impl BulkReads {
    /// Drops the lists of an earlier term of the lease.
    pub(crate) fn keep_to_term(&mut self, term: u64) {
        if self.term != term {
            *self = Self { term, ..Self::default() };
        }
    }

    /// True if the queue should be looked at for many keys that wait. Lists that are too old to be used are dropped.
    pub(crate) fn is_due(&mut self) -> bool {
        for batch in &mut self.batches {
            if batch.began.is_some_and(|began| began.elapsed() >= LIFETIME) {
                *batch = Batch::default();
            }
        }
        let is_over = self.not_before.is_none_or(|not_before| not_before <= Instant::now());
        is_over && self.running.is_empty() && self.batches.iter().all(Batch::is_used_up)
    }

    /// Lists Nodes, and then records, if that costs less than to read by name what these attempts need. `all` is the number of objects of a
    /// kind.
    pub(crate) fn begin(
        &mut self,
        context: &ShardContext,
        needs: impl Iterator<Item = (RecordKey, String, Needs)>,
        all: impl Fn(Resource) -> usize,
    ) {
        self.not_before = Some(Instant::now() + PAUSE);
        let (mut nodes, mut records) = (Vec::new(), Vec::new());
        for (key, node, needs) in needs.take(MOST) {
            match needs {
                Needs::Nothing => (),
                Needs::Node(extent) => nodes.push((node, extent, None)),
                Needs::Record => records.push(record_name(&key)),
                Needs::NodeThenRecord(extent) => nodes.push((node, extent, Some(record_name(&key)))),
            }
        }
        let is_worth_it = |wanted: usize, kind: Resource, content: Content| {
            wanted >= FEWEST && wanted * worth(content) >= all(kind)
        };
        let (nodes_source, records_source) =
            (context.source(Resource::Nodes), context.source(Resource::Records));
        let whole = nodes.iter().filter(|(_, extent, _)| *extent == Extent::Whole).count();
        let content = if whole * 4 > nodes.len() { nodes_source.whole() } else { nodes_source.content() };
        if content != nodes_source.whole() {
            // The few that have to be whole are read by name.
            nodes.retain(|(_, extent, _)| *extent == Extent::Listed);
        }
        if !is_worth_it(nodes.len(), Resource::Nodes, content) {
            nodes.clear();
        }
        let mut names = Vec::new();
        for (name, _, record) in nodes {
            names.push(name);
            records.extend(record);
        }
        if !is_worth_it(records.len(), Resource::Records, Content::ConfigMap) {
            records.clear();
        }
        if names.is_empty() && records.is_empty() {
            return;
        }
        self.running_since = Some(Instant::now());
        self.running.spawn(async move {
            let nodes = list(&nodes_source, content, names).await?;
            let records = list(&records_source, Content::ConfigMap, records).await?;
            Ok([nodes, records])
        });
    }

    /// The time until which keys wait for a list that is running, if nothing else serves them.
    pub(crate) fn holds_until(&self) -> Option<Instant> {
        let is_served = self.batches.iter().any(|batch| !batch.objects.is_empty());
        self.running_since.filter(|_| !is_served).map(|since| since + PATIENCE)
    }

    /// Waits for a list that runs. Never ends if there is none.
    pub(crate) async fn next(&mut self) {
        let ended = self.running.join_next().await;
        match ended {
            None => std::future::pending().await,
            Some(Ok(Ok(batches))) => {
                self.batches = batches;
                if self.running_since.is_some_and(|since| since.elapsed() > SLOW) {
                    self.not_before = Some(Instant::now() + PAUSE_AFTER_SLOW);
                }
                for names in self.begun.drain(..) {
                    for (batch, name) in self.batches.iter_mut().zip(names) {
                        batch.objects.remove(&name);
                    }
                }
            }
            Some(Ok(Err(error))) => {
                tracing::debug!(%error, "a list for many nodes failed: they are read one by one");
                let pause = error.retry_after().unwrap_or_default().max(PAUSE_AFTER_FAILURE);
                self.not_before = Some(Instant::now() + pause);
            }
            Some(Err(_)) => self.not_before = Some(Instant::now() + PAUSE_AFTER_FAILURE),
        }
        self.running_since = None;
        self.begun = Vec::new();
    }

    /// The reads of an attempt that begins now.
    pub(crate) fn reads(&mut self, key: &RecordKey, node: &str, known: Known) -> FreshReads {
        let record = record_name(key);
        let [nodes, records] = &mut self.batches;
        let reads = FreshReads { known, node: nodes.take(node), record: records.take(&record) };
        if self.running_since.is_some() {
            self.begun.push([node.to_owned(), record]);
        }
        reads
    }
}

/// Lists all objects, and keeps those with these names.
async fn list(source: &ApiSource, content: Content, names: Vec<String>) -> Result<Batch, Error> {
    if names.is_empty() {
        return Ok(Batch::default());
    }
    let (began, wanted) = (Instant::now(), names.len());
    let objects: HashMap<_, _> = names.into_iter().map(|name| (name, None)).collect();
    let objects = Arc::new(Mutex::new(objects));
    let found = Arc::clone(&objects);
    let each = move |object: Result<Object, Undecodable>| {
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        match object {
            Ok(object) => {
                if let Some(place) = found.get_mut(&object.name) {
                    *place = Some(object);
                }
            }
            // It may be any of them, so all are read by name.
            Err(undecodable) if undecodable.part.name.is_empty() => found.clear(),
            Err(undecodable) => _ = found.remove(&undecodable.part.name),
        }
    };
    let listed = source.list_uncompressed(content, each).await?;
    let objects = std::mem::take(&mut *objects.lock().unwrap_or_else(PoisonError::into_inner));
    let took = began.elapsed();
    tracing::debug!(kind = ?source.kind, ?content, wanted, items = listed.items, ?took, "listed for many nodes");
    Ok(Batch { objects, began: Some(began), wanted, took })
}

#[cfg(test)]
mod tests {
    use label_storage::ResourceVersion;

    use super::*;
    use crate::cache::{Cache, KnownVersion};
    use crate::fixtures::{self, Calls, Reply};

    const NODES: usize = 100;
    const LIST: &str = "GET /api/v1/nodes";
    const GET: &str = "GET /api/v1/nodes/";

    fn node(name: &str, version: u64) -> Node {
        let labels = [("pool".to_owned(), "gold".to_owned())].into();
        Node::new(name.to_owned(), "u1".to_owned(), &version.to_string(), labels, None).expect("a node")
    }

    fn name(number: usize) -> String {
        format!("node-{number}")
    }

    /// A server that has these Nodes at version 7, each read by name at version 9, and lists for the first `waiting` of them.
    async fn bulk(waiting: usize) -> (BulkReads, ShardContext, Calls) {
        let (mut bulk, replica, calls) = listing(waiting);
        if !bulk.running.is_empty() {
            bulk.next().await;
        }
        (bulk, replica, calls)
    }

    fn listed() -> Vec<Node> {
        (0..NODES).map(|number| node(&name(number), 7)).collect()
    }

    fn server() -> (ShardContext, Calls) {
        let reply = |call: String| async move {
            match call.strip_prefix(GET) {
                Some(name) => Reply::Node(Box::new(node(name, 9))),
                None => Reply::Nodes(listed()),
            }
        };
        fixtures::replica(reply).expect("a replica")
    }

    /// The same while the list is running.
    fn listing(waiting: usize) -> (BulkReads, ShardContext, Calls) {
        let (replica, calls) = server();
        let mut bulk = BulkReads::default();
        let needs = (0..waiting)
            .map(|number| (RecordKey::from(&*name(number)), name(number), Needs::Node(Extent::Whole)));
        assert!(bulk.is_due());
        bulk.begin(&replica, needs, |_| NODES);
        (bulk, replica, calls)
    }

    fn known(name: &str, version: u64) -> Known {
        let mut cache = Cache::default();
        cache.see_node(None, name, node(name, version).summary());
        cache.get(name).expect("an entry").known()
    }

    #[tokio::test(start_paused = true)]
    async fn many_are_read_by_one_list_and_few_by_name() {
        for (waiting, lists, gets) in [(NODES, 1, 0), (FEWEST, 1, 0), (FEWEST - 1, 0, FEWEST - 1)] {
            let (mut bulk, replica, calls) = bulk(waiting).await;
            for number in 0..waiting {
                let (key, name) = (RecordKey::from(&*name(number)), name(number));
                let reads = bulk.reads(&key, &name, known(&name, 7));
                let (read, _) = reads.node(&replica, &name, None, 0).await.expect("read");
                let version = if lists == 1 { 7 } else { 9 };
                assert_eq!(read, Some(whole(node(&name, version))));
            }
            assert_eq!(calls.count(LIST) - calls.count(GET), lists, "{waiting}");
            assert_eq!(calls.count(GET), gets, "{waiting}");
        }
    }

    fn nothing_known() -> Known {
        let nothing = || KnownVersion::new(ResourceVersion(0), false);
        Known { node: nothing(), record: nothing() }
    }

    fn whole(mut node: Node) -> Node {
        node.extras.is_whole = true;
        node
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_is_too_old_for_an_attempt_is_not_used() {
        let version = async |after: Option<Instant>, age, tries, seen| {
            let (mut bulk, replica, _) = bulk(NODES).await;
            tokio::time::advance(age).await;
            let reads = bulk.reads(&RecordKey::from("node-1"), "node-1", known("node-1", seen));
            let read = reads.node(&replica, "node-1", after, tries).await;
            read.map(|(node, _)| node.map(|node| node.version)).map_err(|error| error.kind)
        };
        let [listed, asked] = [7, 9].map(|version| Ok(Some(ResourceVersion(version))));
        let second = Duration::from_secs(1);
        assert_eq!(version(None, Duration::ZERO, 0, 7).await, listed);
        assert_eq!(version(Some(Instant::now()), Duration::ZERO, 0, 7).await, listed);
        let later = Instant::now() + second;
        assert_eq!(version(Some(later), second, 0, 7).await, asked, "it began before that");
        assert_eq!(version(None, LIFETIME, 0, 7).await, asked, "it is of too long ago");
        assert_eq!(version(None, Duration::ZERO, 1, 7).await, asked, "a write was refused because of it");
        let stale = Err(crate::call::FailureKind::Moved);
        assert_eq!(version(None, Duration::ZERO, 0, 8).await, stale, "the cache has a newer one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_nobody_uses_is_dropped() {
        let (mut bulk, ..) = bulk(NODES).await;
        assert!(!bulk.is_due() && bulk.batches[0].objects.len() == NODES);
        tokio::time::advance(LIFETIME).await;
        assert!(bulk.is_due() && bulk.batches[0].objects.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_of_an_earlier_term_of_the_lease_is_dropped() {
        let (mut bulk, ..) = bulk(NODES).await;
        bulk.keep_to_term(0);
        assert_eq!(bulk.batches[0].objects.len(), NODES);
        bulk.keep_to_term(1);
        assert!(bulk.is_due() && bulk.batches[0].objects.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn keys_wait_for_a_list_unless_they_have_begun() {
        let (mut bulk, replica, calls) = listing(NODES);
        assert_eq!(bulk.holds_until(), Some(Instant::now() + PATIENCE));
        let early = bulk.reads(&RecordKey::from("node-0"), "node-0", nothing_known());
        bulk.next().await;
        assert_eq!(bulk.holds_until(), None);
        assert_eq!(bulk.batches[0].objects.len(), NODES - 1, "the list came too late for one");
        early.node(&replica, "node-0", None, 0).await.expect("read");
        assert_eq!(calls.count(GET), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_list_is_not_repeated_soon() {
        for (took, is_due) in [(SLOW, true), (SLOW + PAUSE, false)] {
            let (replica, _) = fixtures::replica(move |_| async move {
                tokio::time::sleep(took).await;
                Reply::Nodes(listed())
            })
            .expect("a replica");
            let mut bulk = BulkReads::default();
            let needs = (0..NODES)
                .map(|number| (RecordKey::from(&*name(number)), name(number), Needs::Node(Extent::Listed)));
            bulk.begin(&replica, needs, |_| NODES);
            bulk.next().await;
            tokio::time::advance(LIFETIME).await;
            assert_eq!(bulk.is_due(), is_due, "{took:?}");
            tokio::time::advance(PAUSE_AFTER_SLOW).await;
            assert!(bulk.is_due());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_has_whole_nodes_only_if_many_need_them() {
        for (needing_whole, metadata, gets) in [(0, 1, 0), (NODES / 4, 1, 1), (NODES / 4 + 1, 0, 0)] {
            let (replica, calls) = server();
            let extent = |number| if number < needing_whole { Extent::Whole } else { Extent::Listed };
            let needs = (0..NODES)
                .map(|number| (RecordKey::from(&*name(number)), name(number), Needs::Node(extent(number))));
            let mut bulk = BulkReads::default();
            bulk.begin(&replica, needs, |_| NODES);
            bulk.next().await;
            assert_eq!(calls.count("GET /api/v1/nodes metadata"), metadata, "{needing_whole}");
            let reads = bulk.reads(&RecordKey::from("node-0"), "node-0", nothing_known());
            reads.node(&replica, "node-0", None, 0).await.expect("read");
            assert_eq!(calls.count(GET), gets, "{needing_whole}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_that_a_list_lacks_or_that_was_deleted_since_is_read_by_name() {
        let version = |version: u64| Object { resource_version: version.to_string(), ..Object::default() };
        for (listed, is_there, known, gets, why) in [
            (Some(7), true, 7, 0, "it is the same"),
            (Some(7), false, 6, 0, "it is new"),
            (None, false, 0, 1, "it may have been created since"),
            (Some(7), false, 7, 1, "it was deleted since"),
        ] {
            let (replica, calls) =
                fixtures::replica(|_| async { Reply::Refusal(404, "not found") }).expect("a replica");
            let mut reads = FreshReads::by_name(nothing_known());
            reads.known.record = KnownVersion::new(ResourceVersion(known), is_there);
            reads.record = Some(Listed { object: listed.map(version), began: Instant::now() });
            let read = reads.record(&replica, &RecordKey::from("node-1"), Instant::now(), 0).await;
            assert_eq!(read.expect("read").is_some(), gets == 0, "{why}");
            assert_eq!(calls.count("GET"), gets, "{why}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn other_failures_do_not_count_towards_accepting_a_404() {
        let (replica, _) =
            fixtures::replica(|_| async { Reply::Refusal(404, "not found") }).expect("a replica");
        let reads = FreshReads::by_name(known("node-1", 7));
        for is_accepted in [false, false, true] {
            assert_eq!(reads.node(&replica, "node-1", None, 5).await.is_ok(), is_accepted);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_list_has_and_can_not_be_decoded_is_read_by_name() {
        for (broken, gets) in [("node-1", 1), ("", 2)] {
            // The server answers with a Node that has no usable fields but its name.
            let reply = move |call: String| async move {
                match call.strip_prefix(GET) {
                    Some(name) => Reply::Node(Box::new(node(name, 9))),
                    None => Reply::Broken(broken),
                }
            };
            let (replica, calls) = fixtures::replica(reply).expect("a replica");
            let mut bulk = BulkReads::default();
            let needs = (0..NODES)
                .map(|number| (RecordKey::from(&*name(number)), name(number), Needs::Node(Extent::Whole)));
            bulk.begin(&replica, needs, |_| NODES);
            bulk.next().await;
            for name in ["node-1", "node-2"] {
                let reads = bulk.reads(&RecordKey::from(name), name, nothing_known());
                let (read, _) = reads.node(&replica, name, None, 0).await.expect("read");
                assert_eq!(read.is_some(), gets == 2 || name == "node-1", "{name}");
            }
            assert_eq!(calls.count(GET), gets);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_the_list_does_not_have_is_absent() {
        let (mut bulk, replica, calls) = bulk(NODES).await;
        bulk.batches[0].objects.insert("gone".to_owned(), None);
        let reads = bulk.reads(&RecordKey::from("gone"), "gone", nothing_known());
        assert_eq!(reads.node(&replica, "gone", None, 0).await.expect("read").0, None);
        assert_eq!(calls.count(GET), 0);
    }
}
