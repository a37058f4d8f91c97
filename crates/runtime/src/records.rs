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
#[derive(Clone)]
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

    /// For a decision.
    pub fn stored(found: Option<&Self>) -> Stored<'_> {
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
        let list = call::within(call::ALL, WHAT, self.api.list(&ours)).await?;
        require_complete(WHAT, list.metadata.continue_.as_deref())?;
        let named = |config_map: &ConfigMap| config_map.metadata.name.clone();
        Ok(list.items.iter().filter_map(|item| Some((named(item)?, Found::new(item)))).collect())
    }

    /// Reads the record of one Node, as it is now.
    pub async fn get(&self, node: &str) -> Result<Option<Found>, Error> {
        let found = call::find("get configmap", self.api.get_opt(&record_name(node))).await?;
        Ok(found.map(|config_map| Found { config_map: Some(config_map.clone()), ..Found::new(&config_map) }))
    }
}

/// Tells people about damaged records: once for each version of a record, not with every look at it.
#[derive(Debug, Default)]
pub struct DamageReport(HashMap<String, Option<String>>);

impl DamageReport {
    /// Logs what is wrong with these records, unless that has been said.
    pub fn tell_all<'a>(&mut self, records: impl IntoIterator<Item = (&'a String, &'a Found)>) {
        let mut heard = HashMap::new();
        std::mem::swap(&mut self.0, &mut heard);
        for (name, found) in records {
            if let Some(said) = heard.remove(name) {
                self.0.insert(name.clone(), said);
            }
            self.tell(name, found);
        }
    }

    fn tell(&mut self, name: &str, found: &Found) {
        let damage = match &found.content {
            Ok(decoded) if decoded.damage.is_empty() => {
                self.0.remove(name);
                return;
            }
            Ok(decoded) => Ok(&decoded.damage),
            Err(unreadable) => Err(unreadable),
        };
        if self.0.insert(name.to_owned(), found.version.clone()) == Some(found.version.clone()) {
            return;
        }
        match damage {
            Ok(damage) => {
                let what = damage.iter().take(5).map(ToString::to_string).collect::<Vec<_>>().join("; ");
                tracing::warn!(
                    record = name,
                    entries = damage.len(),
                    what,
                    "a record is damaged: the rest of it is used"
                );
            }
            Err(error) => tracing::warn!(record = name, %error, "a record can't be read and is left alone"),
        }
    }
}
