//! Reports keys that several Nodes claim, and objects that can't be read: each once.

use std::collections::HashMap;
use std::sync::Arc;

use label_storage::store::Stored;
use label_storage::summary::UidDigest;
use label_storage::{NodeName, RecordKey, ResourceVersion};

use crate::api_source::Resource;
use crate::cache::{Cache, Entry};
use crate::list_watch::SeenRecord;
use crate::metrics::Metrics;
use crate::recorder::EventRecorder;

/// The most claimants of which every change is reported at once. More share something that is no identity, such as a zone, and are
/// reported after a list.
const FEW: usize = 16;
const NAMED: usize = 5;

pub(super) struct Reports {
    events: EventRecorder,
    /// The claimants that were last reported, by key.
    contested: HashMap<RecordKey, Vec<(NodeName, UidDigest)>>,
    /// By key: the complaint, and the incarnation of the Node that it was reported for.
    unreadable: HashMap<RecordKey, (String, Option<UidDigest>)>,
    /// By kind and name: the error, and true if the object was seen since the last list.
    undecodable: HashMap<(Resource, String), (String, bool)>,
    metrics: Arc<Metrics>,
}

impl Reports {
    pub(super) fn new(events: &EventRecorder, metrics: &Arc<Metrics>) -> Self {
        Self {
            events: events.clone(),
            contested: HashMap::new(),
            unreadable: HashMap::new(),
            undecodable: HashMap::new(),
            metrics: Arc::clone(metrics),
        }
    }

    /// Reports the changes of an entry. A claimant beyond `heard`, the progress of the watch of Nodes, may have replaced another that is gone,
    /// so it is not reported yet. Returns true if the key was contested until now.
    pub(super) fn decided(&mut self, entry: &Entry<'_>, heard: Option<ResourceVersion>) -> bool {
        if entry.is_contested() {
            let told = self.contested.entry(entry.key().clone()).or_default();
            let is_seen = |version| heard.is_some_and(|heard| version <= heard);
            let is_few = entry.claimants().nth(FEW).is_none();
            if is_few && entry.claimants().all(|(_, node)| is_seen(node.version)) {
                tell(entry, told, &self.events);
            }
            return false;
        }
        if let (Some(node), Some((complaint, told))) = (entry.node(), self.unreadable.get_mut(entry.key()))
            && *told != Some(node.uid)
        {
            *told = Some(node.uid);
            self.events.unreadable(entry.node_name(), node.uid, complaint);
        }
        let told = self.contested.remove(entry.key());
        if told.as_ref().is_some_and(|told| !told.is_empty()) {
            tracing::info!(identity = &**entry.key(), "the identity belongs to one node again");
        }
        told.is_some()
    }

    pub(super) fn record(&mut self, record: &SeenRecord) {
        let Some(complaint) = &record.complaint else {
            self.unreadable.remove(record.filed_under.as_str());
            return;
        };
        tracing::warn!(record = record.name, complaint, "problem found in a record");
        if record.stored == Stored::Unreadable {
            self.unreadable.insert(RecordKey::from(record.filed_under.as_str()), (complaint.clone(), None));
        }
    }

    pub(super) fn undecodable(&mut self, kind: Resource, name: String, why: String) {
        let known = self.undecodable.insert((kind, name.clone()), (why.clone(), true));
        if known.is_none_or(|(known, _)| known != why) {
            self.metrics.objects_undecodable.get_or_create(&[("resource", kind.resource())]).inc();
            tracing::warn!(resource = kind.resource(), name, why, "skipping an object that can't be decoded");
        }
    }

    pub(super) fn listed(&mut self, cache: &Cache) {
        self.undecodable.retain(|_, (_, is_seen)| std::mem::take(is_seen));
        self.contested.retain(|key, told| {
            let entry = cache.get(key).filter(Entry::is_contested);
            entry.inspect(|entry| tell(entry, told, &self.events)).is_some()
        });
        self.unreadable
            .retain(|key, _| cache.get(key).is_some_and(|entry| entry.stored() == Stored::Unreadable));
    }

    pub(super) fn start_over(&mut self) {
        self.contested.clear();
    }
}

/// Reports all claimants, unless that was done.
fn tell(entry: &Entry<'_>, told: &mut Vec<(NodeName, UidDigest)>, events: &EventRecorder) {
    let mut present: Vec<_> = entry.claimants().map(|(name, node)| (name.clone(), node.uid)).collect();
    present.sort_by(|(one, _), (other, _)| one.cmp(other));
    if *told == present {
        return;
    }
    let names: Vec<&str> = present.iter().map(|(name, _)| &**name).collect();
    let problem = match names.len() {
        1 => "a node claims the identity of another node, and was stored under another identity before",
        _ => "several nodes have the same identity",
    };
    tracing::warn!(
        identity = &**entry.key(),
        nodes = names.len(),
        examples = ?&names[..names.len().min(NAMED)],
        "{problem}: not stored or restored until that is resolved"
    );
    for (name, uid) in &present {
        events.contested(name, *uid, entry.key(), &names);
    }
    *told = present;
}
