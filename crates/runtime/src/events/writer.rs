//! The calls: an Event is created, or made longer.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};

use super::book::{Repeated, Summary};
use super::{News, Reason};
use crate::call::{self, Error};

/// Where Events about what is in no namespace are.
const DEFAULT: &str = "default";

/// The most bytes that the API server takes for the name of an instance.
const MAX_INSTANCE: usize = 128;

/// Writes Events in the name of a daemon.
pub(super) struct Writer {
    about_nodes: Api<Event>,
    about_many: Api<Event>,
    daemon: String,
    instance: String,
    pub(super) namespace: String,
}

impl Writer {
    pub(super) fn new(client: Client, daemon: &str, instance: &str, namespace: &str) -> Self {
        Self {
            about_nodes: Api::namespaced(client.clone(), DEFAULT),
            about_many: Api::namespaced(client, namespace),
            daemon: daemon.to_owned(),
            instance: instance[..instance.floor_char_boundary(MAX_INSTANCE)].to_owned(),
            namespace: namespace.to_owned(),
        }
    }

    /// Writes one about a Node, and returns its name.
    pub(super) async fn write(&self, news: &News) -> Result<String, Error> {
        let node = ObjectReference { uid: Some(news.uid.clone()), ..reference("Node", &news.node) };
        self.create(&self.about_nodes, self.event(news.reason, node, news.note.clone())).await
    }

    /// Writes one about many Nodes, where the records are: none of them has more to do with it than any other.
    pub(super) async fn sum_up(&self, summary: &Summary) -> Result<String, Error> {
        let name = &self.namespace;
        let namespace = ObjectReference { namespace: Some(name.clone()), ..reference("Namespace", name) };
        let note = summary.reason.of_many(summary.count, summary.within);
        self.create(&self.about_many, self.event(summary.reason, namespace, note)).await
    }

    /// Says that it has happened again.
    pub(super) async fn repeat(&self, repeated: &Repeated) -> Result<(), Error> {
        let last_observed_time = MicroTime(Timestamp::now());
        let series = EventSeries { count: repeated.count, last_observed_time };
        let patch = Patch::Merge(Event { series: Some(series), ..Event::default() });
        let params = PatchParams::default();
        let patched = self.about_nodes.patch(&repeated.name, &params, &patch);
        call::one("patch event", patched).await.map(drop)
    }

    async fn create(&self, api: &Api<Event>, event: Event) -> Result<String, Error> {
        let created = call::one("create event", api.create(&PostParams::default(), &event)).await?;
        Ok(created.metadata.name.unwrap_or_default())
    }

    fn event(&self, reason: Reason, regarding: ObjectReference, note: String) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(format!("label-storage-{}.{:016x}", self.daemon, rand::random::<u64>())),
                namespace: regarding.namespace.clone().or_else(|| Some(DEFAULT.to_owned())),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(Timestamp::now())),
            reporting_controller: Some(format!("label-storage/{}", self.daemon)),
            reporting_instance: Some(self.instance.clone()),
            action: Some(reason.action().to_owned()),
            reason: Some(reason.as_str().to_owned()),
            regarding: Some(regarding),
            note: Some(note),
            type_: Some(if reason.is_warning() { "Warning" } else { "Normal" }.to_owned()),
            ..Event::default()
        }
    }
}

fn reference(kind: &str, name: &str) -> ObjectReference {
    let (api_version, kind, name) = (Some("v1".to_owned()), Some(kind.to_owned()), Some(name.to_owned()));
    ObjectReference { api_version, kind, name, ..ObjectReference::default() }
}
