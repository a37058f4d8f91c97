//! The bench's own watches of metadata. Each event has the time of its arrival.

use std::time::{Duration, Instant};

use anyhow::Context;
use futures::TryStreamExt;
use kube::api::{WatchEvent, WatchParams};
use kube::core::Request;
use label_storage::name::node_in_record_name;
use label_storage::record::{NODE_RESOURCE_VERSION, NODE_UID};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, NODES, Object, config_maps};
use crate::machine::Machine;
use crate::meta::Meta;

/// The pause between two watches.
const PAUSE: Duration = Duration::from_millis(10);

/// An awaited event of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) at: Instant,
    pub(crate) machine: Machine,
    /// The incarnation of its Node.
    pub(crate) uid: String,
    /// The version of its Node.
    pub(crate) version: u64,
}

/// Events from now on. Dropping it ends the watch.
pub(crate) struct Watch {
    events: UnboundedReceiver<anyhow::Result<Sight>>,
    task: JoinHandle<()>,
}

impl Watch {
    /// Watches for Nodes that have all their labels.
    pub(crate) async fn whole_nodes(cluster: &Cluster) -> anyhow::Result<Self> {
        Self::start(cluster, NODES.to_owned(), whole_node).await
    }

    /// Watches for records, with the incarnation and the version of the Node that each was made from.
    pub(crate) async fn records(cluster: &Cluster, namespace: &str) -> anyhow::Result<Self> {
        Self::start(cluster, config_maps(namespace), record).await
    }

    async fn start(
        cluster: &Cluster,
        collection: String,
        read: fn(Instant, Meta) -> Option<Sight>,
    ) -> anyhow::Result<Self> {
        let version = cluster.version(&collection).await?;
        let (sender, events) = unbounded_channel();
        let cluster = cluster.clone();
        let task = tokio::spawn(async move {
            if let Err(error) = follow(&cluster, &collection, version, read, &sender).await {
                // The receiver is gone if the watch was dropped.
                let _ = sender.send(Err(error));
            }
        });
        Ok(Self { events, task })
    }

    pub(crate) async fn next(&mut self) -> anyhow::Result<Sight> {
        self.events.recv().await.context("the watch has ended")?
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn whole_node(at: Instant, node: Meta) -> Option<Sight> {
    let machine = Machine::of_name(&node.name)?;
    machine.is_whole(&node.labels).then_some(Sight { at, machine, uid: node.uid, version: node.version })
}

fn record(at: Instant, record: Meta) -> Option<Sight> {
    let machine = Machine::of_name(node_in_record_name(&record.name)?)?;
    let uid = record.annotations.get(NODE_UID)?.clone();
    let version = record.annotations.get(NODE_RESOURCE_VERSION)?.parse().ok()?;
    Some(Sight { at, machine, uid, version })
}

/// Watches until the receiver is dropped. A watch that ends, as all do after some minutes, is continued from its last version.
async fn follow(
    cluster: &Cluster,
    collection: &str,
    mut version: String,
    read: fn(Instant, Meta) -> Option<Sight>,
    sender: &UnboundedSender<anyhow::Result<Sight>>,
) -> anyhow::Result<()> {
    loop {
        let request = Request::new(collection).watch_metadata(&WatchParams::default(), &version)?;
        let events = match cluster.client.request_events::<Object>(request).await {
            Ok(events) => events,
            Err(kube::Error::Api(status)) if status.code != 429 && status.code < 500 => {
                return Err(kube::Error::Api(status)).with_context(|| format!("watching {collection}"));
            }
            Err(_) => {
                tokio::time::sleep(PAUSE * 10).await;
                continue;
            }
        };
        let mut events = std::pin::pin!(events);
        // A broken connection ends the watch, too. The next one continues from the last version.
        while let Ok(Some(event)) = events.try_next().await {
            let at = Instant::now();
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    version = object.metadata.version.to_string();
                    if let Some(sight) = read(at, object.metadata)
                        && sender.send(Ok(sight)).is_err()
                    {
                        return Ok(());
                    }
                }
                WatchEvent::Deleted(object) => version = object.metadata.version.to_string(),
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) => {
                    anyhow::bail!("the watch of {collection} fell too far behind: {}", status.message);
                }
            }
        }
        if sender.is_closed() {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_node_with_all_its_labels_is_seen() {
        let at = Instant::now();
        let mut node = Meta { name: Machine(4).name(), uid: "u".to_owned(), version: 8, ..Meta::default() };
        assert_eq!(whole_node(at, node.clone()), None);
        node.labels = Machine(4).labels();
        let sight = Sight { at, machine: Machine(4), uid: "u".to_owned(), version: 8 };
        assert_eq!(whole_node(at, node), Some(sight));
    }

    #[test]
    fn a_record_tells_what_it_was_made_from() {
        let at = Instant::now();
        let node = Meta { name: Machine(4).name(), uid: "u".to_owned(), version: 8, ..Meta::default() };
        let made = Machine(4).record(&node).unwrap().metadata;
        let meta = Meta {
            name: made.name.unwrap(),
            version: 100,
            annotations: made.annotations.unwrap(),
            ..Meta::default()
        };
        assert_eq!(
            record(at, meta),
            Some(Sight { at, machine: Machine(4), uid: "u".to_owned(), version: 8 })
        );
        assert_eq!(record(at, Meta { name: "kube-root-ca.crt".to_owned(), ..Meta::default() }), None);
    }
}
