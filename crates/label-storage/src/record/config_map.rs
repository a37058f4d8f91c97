//! The record as a ConfigMap.

use std::collections::BTreeMap;
use std::str::FromStr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};

use super::{
    CAPTURED_AT, DEPARTED_AT, Damage, Decoded, GENERATION, IDENTITY, LABELS_GENERATION, MANAGED_BY,
    MAX_BYTES, NODE, NODE_RESOURCE_VERSION, NODE_UID, PROVIDER_ID, Record, SYSTEM_UUID, TooLarge, Unreadable,
    Version, WITHHELD, WithheldValue, history,
};
use crate::item::Item;
use crate::name::{is_identity, node_in_record_name, record_name};
use crate::node::Machine;
use crate::{Uid, key};

impl Record {
    /// Writes the record into a ConfigMap: a new one for a create, the one that was read for a replace. Other labels and
    /// annotations stay.
    pub fn encode_into(&self, config_map: &mut ConfigMap) -> Result<(), TooLarge> {
        let mut data: BTreeMap<_, _> = self.labels.iter().map(|(k, v)| key::encode_entry(k, v)).collect();
        data.extend(self.more.withheld.iter().map(|(k, kept)| key::encode_entry(k, &kept.value)));
        for (data_key, value) in &self.leftovers.data {
            data.entry(data_key.clone()).or_insert_with(|| value.clone());
        }
        let text = data.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        let binary = self.leftovers.binary_data.iter().map(|(k, v)| k.len() + v.0.len()).sum::<usize>();
        let mut bytes = text + binary;
        if bytes > MAX_BYTES {
            return Err(TooLarge { node: self.node.clone(), bytes });
        }
        // The history fills the room that is left.
        for version in self.more.history.iter().rev() {
            let (data_key, value) = history::encode(version);
            bytes += data_key.len() + value.len();
            if bytes > MAX_BYTES {
                break;
            }
            data.entry(data_key).or_insert(value);
        }

        let meta = &mut config_map.metadata;
        meta.name = Some(record_name(self.filed_under()));
        meta.managed_fields = None;
        meta.labels.get_or_insert_default().insert(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned());
        let annotations = meta.annotations.get_or_insert_default();
        let mut annotate = |name: &str, value: Option<String>| match value {
            Some(value) => annotations.insert(name.to_owned(), value),
            None => annotations.remove(name),
        };
        annotate(NODE, Some(self.node.clone()));
        annotate(NODE_UID, self.uid.as_ref().map(Uid::to_string));
        annotate(NODE_RESOURCE_VERSION, self.node_version.map(|version| version.to_string()));
        annotate(GENERATION, Some(self.generation.to_string()));
        annotate(LABELS_GENERATION, self.labels_generation.map(|generation| generation.to_string()));
        annotate(CAPTURED_AT, self.captured_at.map(to_the_second));
        annotate(DEPARTED_AT, self.departed_at.map(to_the_second));
        annotate(IDENTITY, self.more.identity.clone());
        annotate(PROVIDER_ID, self.more.machine.provider_id.clone());
        annotate(SYSTEM_UUID, self.more.machine.system_uuid.clone());
        let withheld = self.more.withheld.iter();
        let origins: BTreeMap<_, _> = withheld.map(|(name, kept)| (name, OriginText::of(kept))).collect();
        let origins = (!origins.is_empty()).then(|| serde_json::to_string(&origins).unwrap_or_default());
        annotate(WITHHELD, origins);
        config_map.data = Some(data);
        config_map.binary_data =
            (!self.leftovers.binary_data.is_empty()).then(|| self.leftovers.binary_data.clone());
        Ok(())
    }

    /// Reads a record from a ConfigMap. Unusable entries are set aside and reported.
    pub fn decode(config_map: &ConfigMap) -> Result<Decoded, Unreadable> {
        let meta = &config_map.metadata;
        let name = meta.name.as_deref().unwrap_or_default();
        let managed_by = meta.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY.0));
        let is_unlabelled = managed_by.map(String::as_str) != Some(MANAGED_BY.1);
        // Tools remove labels. The annotation that the name follows from shows as well that it is a record.
        let names = meta.annotations.iter().flat_map(|all| [IDENTITY, NODE].map(|key| all.get(key)));
        if is_unlabelled && !names.flatten().any(|filed_under| record_name(filed_under) == name) {
            return Err(Unreadable::Foreign(name.to_owned()));
        }

        let mut annotations = Annotations { map: meta.annotations.as_ref(), damage: Vec::new() };
        let identity = annotations.optional(IDENTITY, |text| is_identity(text).then(|| text.to_owned()));
        if let Some(identity) = identity.as_ref().filter(|identity| record_name(identity) != name) {
            let identity = excerpt(identity);
            return Err(Unreadable::AnotherIdentity { record: name.to_owned(), identity });
        }
        let node = match (annotations.get(NODE), node_in_record_name(name)) {
            (Some(node), _) if identity.is_some() || record_name(node) == name => node,
            (Some(node), _) => {
                return Err(Unreadable::AnotherNode { record: name.to_owned(), node: excerpt(node) });
            }
            (None, Some(node)) => {
                annotations.damage.push(Damage::Annotation(NODE));
                node
            }
            (None, None) => return Err(Unreadable::NoNode(name.to_owned())),
        };
        let mut record = Self::awaiting(node, identity);
        record.config_map = meta.uid.as_deref().and_then(Uid::new);
        record.more.is_unlabelled = is_unlabelled;
        record.uid = annotations.optional(NODE_UID, |uid| Uid::new(uid));
        record.node_version = annotations.required(NODE_RESOURCE_VERSION, parsed);
        let generation = annotations.required(GENERATION, parsed);
        record.labels_generation = annotations.required(LABELS_GENERATION, parsed);
        // A marker made from this record has to satisfy it, or the Node would be restored again and again.
        record.generation = generation.max(record.labels_generation).unwrap_or_default();
        record.captured_at = annotations.required(CAPTURED_AT, parsed);
        record.departed_at = annotations.optional(DEPARTED_AT, parsed);
        let origins: Option<BTreeMap<String, OriginText>> =
            annotations.optional(WITHHELD, |text| serde_json::from_str(text).ok());
        let mut origins = origins.unwrap_or_default();
        let text = |name| annotations.get(name).filter(|text| !text.is_empty()).map(str::to_owned);
        record.more.machine = Machine { provider_id: text(PROVIDER_ID), system_uuid: text(SYSTEM_UUID) };

        let mut damage = annotations.damage;
        for (data_key, data_value) in config_map.data.iter().flatten() {
            match read_entry(data_key, data_value) {
                Ok(DataItem::Past(version)) => record.more.history.push(version),
                Ok(DataItem::Item(name, value)) => match origins.remove(&name) {
                    Some(origin) => _ = record.more.withheld.insert(name, origin.withheld(value)),
                    None => _ = record.labels.insert(name, value),
                },
                Err(what) => {
                    damage.push(what);
                    record.leftovers.data.insert(data_key.clone(), data_value.clone());
                }
            }
        }
        for (data_key, bytes) in config_map.binary_data.iter().flatten() {
            damage.push(Damage::Binary(excerpt(data_key)));
            record.leftovers.binary_data.insert(data_key.clone(), bytes.clone());
        }
        record.more.history.sort_by_key(|version| version.generation);
        Ok(Decoded { record, damage })
    }
}

/// The origin of a withheld item, as the annotation [`WITHHELD`] has it.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum OriginText {
    /// The system UUID alone.
    SystemUuid(String),
    Known {
        #[serde(skip_serializing_if = "Option::is_none")]
        node: Option<String>,
        #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
        provider_id: Option<String>,
        #[serde(rename = "systemUUID", skip_serializing_if = "Option::is_none")]
        system_uuid: Option<String>,
    },
}

impl OriginText {
    fn of(kept: &WithheldValue) -> Self {
        let Machine { provider_id, system_uuid } = kept.machine.clone();
        Self::Known { node: kept.node.clone(), provider_id, system_uuid }
    }

    fn withheld(self, value: String) -> WithheldValue {
        let (node, provider_id, system_uuid) = match self {
            Self::SystemUuid(uuid) => (None, None, Some(uuid).filter(|uuid| !uuid.is_empty())),
            Self::Known { node, provider_id, system_uuid } => (node, provider_id, system_uuid),
        };
        WithheldValue { value, node, machine: Machine { provider_id, system_uuid } }
    }
}

/// An entry of `data`.
pub(super) enum DataItem {
    /// An item: its name and its value.
    Item(String, String),
    Past(Version),
}

pub(super) fn read_entry(data_key: &str, data_value: &str) -> Result<DataItem, Damage> {
    let bad_key = || Damage::Key(excerpt(data_key));
    let bad_value = || Damage::Value(excerpt(data_key), excerpt(data_value));
    let (name, value) = key::decode_entry(data_key, data_value).map_err(|error| match error {
        key::Error::NotItsLongKey => bad_value(),
        key::Error::NotCanonical => bad_key(),
    })?;
    if let Some(generation) = history::generation(&name) {
        return history::decode(generation, &value).map(DataItem::Past).ok_or_else(bad_value);
    }
    let item = Item::parse(&name).ok_or_else(bad_key)?;
    if item.takes(&value) { Ok(DataItem::Item(name, value)) } else { Err(bad_value()) }
}

struct Annotations<'a> {
    map: Option<&'a BTreeMap<String, String>>,
    damage: Vec<Damage>,
}

impl<'a> Annotations<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        self.map?.get(name).map(String::as_str)
    }

    fn required<T>(&mut self, name: &'static str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let value = self.get(name).and_then(read);
        if value.is_none() {
            self.damage.push(Damage::Annotation(name));
        }
        value
    }

    fn optional<T>(&mut self, name: &'static str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.get(name).and_then(|_| self.required(name, read))
    }
}

fn parsed<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// RFC 3339 in whole seconds, as Kubernetes itself writes times.
pub(super) fn to_the_second(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// Enough of a text to recognise it in a log line, whatever its size.
fn excerpt(text: &str) -> String {
    const ENOUGH: usize = 80;
    match text.char_indices().nth(ENOUGH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
