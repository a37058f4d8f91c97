//! Reading records.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client};
use label_storage::Record;
use label_storage::name::record_name;
use label_storage::record::{Decoded, MANAGED_BY, Unreadable};
use label_storage::store::Stored;

use crate::call::{self, Error};
use crate::nodes::require_complete;

/// The ConfigMaps of one namespace that are records.
pub struct Records {
    api: Api<ConfigMap>,
}

/// A ConfigMap under a record's name, read or not.
#[derive(Debug, Clone)]
pub struct Found {
    /// As the API server sent it, for a replace. `None` in a listing, where nothing is replaced from.
    pub config_map: Option<ConfigMap>,
    /// Its resourceVersion: the guard of every write.
    pub version: Option<String>,
    /// What it says.
    pub content: Result<Decoded, Unreadable>,
}

impl Found {
    fn new(config_map: &ConfigMap) -> Self {
        let version = config_map.metadata.resource_version.clone();
        Self { config_map: None, version, content: Record::decode(config_map) }
    }

    fn is_damaged(&self) -> bool {
        self.content.as_ref().map_or(true, |decoded| !decoded.damage.is_empty())
    }

    fn tell_damage(&self, record: &str) {
        match &self.content {
            Ok(Decoded { damage, .. }) => {
                let what = damage.iter().take(5).map(ToString::to_string).collect::<Vec<_>>().join("; ");
                let entries = damage.len();
                tracing::warn!(record, entries, what, "a record is damaged: the rest of it is used");
            }
            Err(error) => tracing::warn!(record, %error, "a record can't be read and is left alone"),
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

impl Records {
    /// Reads with this client.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace) }
    }

    /// For writing them.
    pub fn api(&self) -> &Api<ConfigMap> {
        &self.api
    }

    /// Lists all records, by the ConfigMap's name.
    pub async fn list(&self) -> Result<HashMap<String, Found>, Error> {
        const WHAT: &str = "list configmaps";
        let ours = ListParams::default().labels(&format!("{}={}", MANAGED_BY.0, MANAGED_BY.1));
        let list = call::all(WHAT, self.api.list(&ours)).await?;
        require_complete(WHAT, list.metadata.continue_.as_deref())?;
        let named = |config_map: &ConfigMap| config_map.metadata.name.clone();
        Ok(list.items.iter().filter_map(|item| Some((named(item)?, Found::new(item)))).collect())
    }

    /// Reads the record of one Node, as it is now.
    pub async fn get(&self, node: &str) -> Result<Option<Found>, Error> {
        let found = call::one("get configmap", self.api.get_opt(&record_name(node))).await?;
        Ok(found.map(|config_map| {
            let found = Found::new(&config_map);
            Found { config_map: Some(config_map), ..found }
        }))
    }
}

/// Tells people about damaged records: once for each version of a record, not with every look at it.
#[derive(Debug, Default)]
pub struct DamageReport {
    /// The records that were damaged at the last look, and at which version.
    told: HashMap<String, Option<String>>,
}

impl DamageReport {
    /// Logs what is wrong with these records, unless that has been said.
    pub fn tell<'a>(&mut self, records: impl IntoIterator<Item = (&'a String, &'a Found)>) {
        let damaged = records.into_iter().filter(|(_, found)| found.is_damaged());
        let damaged: HashMap<_, _> = damaged.map(|(name, found)| (name.clone(), found)).collect();
        for (name, found) in &damaged {
            if self.told.get(name) != Some(&found.version) {
                found.tell_damage(name);
            }
        }
        self.told = damaged.into_iter().map(|(name, found)| (name, found.version.clone())).collect();
    }
}
