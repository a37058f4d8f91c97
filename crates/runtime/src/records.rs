//! Records as they come from the API server.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use label_storage::name::{node_in_record_name, record_name};
use label_storage::record::{Decoded, Unreadable};
use label_storage::store::Stored;
use label_storage::summary::RecordSummary;
use label_storage::{Node, Record, ResourceVersion, Rules};
use label_storage_wire::Object;

use crate::args::Share;
use crate::cache::Reading;
use crate::call::{self, Error};
use crate::record_key::Filed;

/// A ConfigMap under a record's name, and its content if that can be read.
#[derive(Debug, Clone)]
pub struct Found {
    pub config_map: ConfigMap,
    pub content: Result<Decoded, Unreadable>,
}

/// The version of a record and a summary of its content.
pub type Recorded = Reading<(ResourceVersion, Stored<RecordSummary>)>;

impl From<ConfigMap> for Found {
    fn from(config_map: ConfigMap) -> Self {
        let content = Record::decode(&config_map);
        Self { config_map, content }
    }
}

impl From<Object> for Found {
    fn from(object: Object) -> Self {
        let binary_data = object.binary_data.into_iter().map(|(key, bytes)| (key, ByteString(bytes)));
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
            binary_data: Some(binary_data.collect()),
            immutable: None,
        })
    }
}

impl Found {
    /// The record as seen through these rules and the annotation of its Node, if that is known.
    pub fn seen_through(self, rules: &Rules, node: Option<&Node>) -> Self {
        let seen = |decoded: Decoded| Decoded { record: decoded.record.seen_through(rules, node), ..decoded };
        Self { content: self.content.map(seen), ..self }
    }

    pub fn version(&self) -> Option<ResourceVersion> {
        self.config_map.metadata.resource_version.as_deref()?.parse().ok()
    }

    pub fn stored(found: Option<&Self>) -> Stored<&Record> {
        match found.map(|found| &found.content) {
            None => Stored::Nothing,
            Some(Ok(decoded)) => Stored::Record(&decoded.record),
            Some(Err(_)) => Stored::Unreadable,
        }
    }

    pub fn reading(found: Option<&Self>) -> Recorded {
        match found.map(Self::version) {
            None => Reading::Absent,
            Some(Some(version)) => Reading::Present((version, Self::stored(found).map(Record::summary))),
            // Without a version it can't be compared with the cache.
            Some(None) => Reading::None,
        }
    }

    /// The damage, in one line.
    pub fn complaint(&self) -> Option<String> {
        const MOST: usize = 5;
        let damage = match &self.content {
            Ok(decoded) if decoded.damage.is_empty() => return None,
            Ok(decoded) => &decoded.damage,
            Err(error) => return Some(format!("it can't be read, and is not changed: {error}")),
        };
        let mut what: Vec<_> = damage.iter().take(MOST).map(ToString::to_string).collect();
        if damage.len() > MOST {
            what.push(format!("and {} more", damage.len() - MOST));
        }
        Some(format!("it is damaged, and only the rest is used: {}", what.join("; ")))
    }
}

/// The key of a record, if this replica handles it.
pub(crate) fn filed_under(share: &Share, name: &str, found: &Found) -> Option<String> {
    let filed = match &found.content {
        Ok(Decoded { record, .. }) => Filed { under: record.filed_under(), name: &record.node },
        Err(_) => match node_in_record_name(name) {
            Some(node) => Filed::from(node),
            // The first replica reports a record that belongs to no Node, under a name that no Node has.
            None => return (share.index == 0).then(|| format!("?{name}")),
        },
    };
    share.includes(filed).then(|| filed.under.to_owned())
}

pub async fn get(records: &Api<ConfigMap>, key: &str) -> Result<Option<Found>, Error> {
    let found = call::one("get configmap", records.get_opt(&record_name(key))).await?;
    Ok(found.map(Found::from))
}
