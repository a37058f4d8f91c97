//! Records: reading one by name, and what is to be said about a damaged one.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use label_storage::name::{node_in_record_name, record_name};
use label_storage::record::{Decoded, Unreadable};
use label_storage::store::Stored;
use label_storage::summary::RecordSummary;
use label_storage::{Node, Record, ResourceVersion, Rules};
use label_storage_wire::Object;

use crate::args::Share;
use crate::call::{self, Error};
use crate::reconciler::Reading;
use crate::record_key::Filed;

/// The ConfigMaps of one namespace that are records.
pub struct Records {
    api: Api<ConfigMap>,
    namespace: String,
}

/// A ConfigMap under a record's name, read or not.
#[derive(Debug, Clone)]
pub struct Found {
    /// As the API server sent it.
    pub config_map: ConfigMap,
    /// What it says.
    pub content: Result<Decoded, Unreadable>,
}

/// What was found where a record was looked for: its version, and what it says.
pub type Recorded = Reading<(ResourceVersion, Stored<RecordSummary>)>;

impl From<ConfigMap> for Found {
    fn from(config_map: ConfigMap) -> Self {
        let content = Record::decode(&config_map);
        Self { config_map, content }
    }
}

/// What lists and watches tell of.
impl From<Object> for Found {
    fn from(object: Object) -> Self {
        let binary_data =
            object.binary_data.into_iter().map(|(key, bytes)| (key, ByteString(bytes))).collect();
        Self::from(ConfigMap {
            metadata: ObjectMeta {
                name: Some(object.name),
                uid: Some(object.uid),
                resource_version: Some(object.resource_version),
                labels: Some(object.labels),
                annotations: Some(object.annotations),
                ..ObjectMeta::default()
            },
            data: Some(object.data),
            binary_data: Some(binary_data),
            immutable: None,
        })
    }
}

impl Found {
    /// The same, with what it says seen through these rules, and through the list of its Node, where that is known.
    pub fn seen_through(self, rules: &Rules, node: Option<&Node>) -> Self {
        let seen = |decoded: Decoded| Decoded { record: decoded.record.seen_through(rules, node), ..decoded };
        Self { content: self.content.map(seen), ..self }
    }

    /// The ConfigMap's own version.
    pub fn version(&self) -> Option<ResourceVersion> {
        self.config_map.metadata.resource_version.as_deref()?.parse().ok()
    }

    /// What was found, in short.
    pub fn reading(found: Option<&Self>) -> Recorded {
        let stored = Self::stored(found).map(Record::summary);
        match found.map(Self::version) {
            None => Reading::Absent,
            Some(Some(version)) => Reading::Present((version, stored)),
            // Nobody can tell whether it is news.
            Some(None) => Reading::None,
        }
    }

    /// What is wrong with it, in one line.
    pub fn complaint(&self) -> Option<String> {
        match &self.content {
            Ok(Decoded { damage, .. }) if damage.is_empty() => None,
            Ok(Decoded { damage, .. }) => {
                let what = damage.iter().take(5).map(ToString::to_string).collect::<Vec<_>>().join("; ");
                let more = damage.len().saturating_sub(5);
                let more = if more > 0 { format!("; and {more} more") } else { String::new() };
                Some(format!("it is damaged, and the rest of it is used: {what}{more}"))
            }
            Err(error) => Some(format!("it can't be read and is left alone: {error}")),
        }
    }

    /// For a decision.
    pub fn stored(found: Option<&Self>) -> Stored<&Record> {
        match found.map(|found| &found.content) {
            None => Stored::Nothing,
            Some(Ok(decoded)) => Stored::Record(&decoded.record),
            Some(Err(_)) => Stored::Unreadable,
        }
    }
}

/// What a record is filed under, if this replica handles it.
pub(crate) fn filed_under(share: &Share, name: &str, found: &Found) -> Option<String> {
    let filed = match &found.content {
        Ok(Decoded { record, .. }) => Some(Filed { under: record.filed_under(), name: &record.node }),
        Err(_) => node_in_record_name(name).map(Filed::from),
    };
    match filed {
        Some(filed) => share.includes(filed).then(|| filed.under.to_owned()),
        // Nobody's, then: the first replica tells about it, under a name that no Node has.
        None => (share.index == 0).then(|| format!("?{name}")),
    }
}

impl Records {
    /// Reads with this client.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), namespace: namespace.to_owned() }
    }

    /// Where they are.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// For writing them.
    pub fn api(&self) -> &Api<ConfigMap> {
        &self.api
    }

    /// Reads the record that is filed under this, as it is now.
    pub async fn get(&self, filed: &str) -> Result<Option<Found>, Error> {
        let found = call::one("get configmap", self.api.get_opt(&record_name(filed))).await?;
        Ok(found.map(Found::from))
    }
}
