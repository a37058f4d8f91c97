//! The record: one ConfigMap for each Node, readable and editable by people, and therefore hostile until checked.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;

use crate::name::{node_in_record_name, record_name};
use crate::{Labels, Node, ResourceVersion, Uid, key, label};

/// The label that tells a record from somebody else's ConfigMap.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "label-storage");
/// The full name of the node: the ConfigMap's own name may be shortened.
pub const NODE: &str = "label-storage/node";
/// The incarnation that the labels were read from.
pub const NODE_UID: &str = "label-storage/node-uid";
/// The resourceVersion of the node that the labels were read from.
pub const NODE_RESOURCE_VERSION: &str = "label-storage/node-resource-version";
/// One more with every write of the record.
pub const GENERATION: &str = "label-storage/generation";
/// The generation in which the labels last changed: what a marker has to name for its node to have them all.
pub const LABELS_GENERATION: &str = "label-storage/labels-generation";
/// When the labels were read from the node.
pub const CAPTURED_AT: &str = "label-storage/captured-at";
/// Since when the node is gone; absent while it is there.
pub const DEPARTED_AT: &str = "label-storage/departed-at";

/// What a ConfigMap may hold. The API server counts values alone; counting keys too keeps a record clear of etcd's
/// own limit on a request.
const MAX_BYTES: usize = 1 << 20;

/// What is stored of one Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The Node's full name.
    pub node: String,
    /// The incarnation that the labels were read from. `None` where the record doesn't say: then it belongs to no
    /// living one, and its labels are restored.
    pub uid: Option<Uid>,
    /// The version of the Node that the labels were read from.
    pub node_version: Option<ResourceVersion>,
    /// Counts the writes of this record.
    pub generation: u64,
    /// The generation in which the labels last changed. Never above `generation`.
    pub labels_generation: Option<u64>,
    /// When the labels were read from the Node.
    pub captured_at: Option<Timestamp>,
    /// Since when the Node is gone.
    pub departed_at: Option<Timestamp>,
    /// What comes back with the Node.
    pub labels: Labels,
    /// What else is in the ConfigMap. Somebody meant something by it: it is written back as it was.
    pub leftovers: Leftovers,
}

/// Entries of a record that are no labels, or labels that are none of the reader's business (see
/// [`Record::seen_through`]).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Entries of `data` with a key or a value that no label has, and labels that were set aside.
    pub data: BTreeMap<String, String>,
    /// All of `binaryData`.
    pub binary_data: BTreeMap<String, ByteString>,
}

impl Leftovers {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty() && self.binary_data.is_empty()
    }
}

/// A record that was read, and what was wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// All that could be used.
    pub record: Record,
    /// What could not, for a person to see.
    pub damage: Vec<Damage>,
}

/// One thing in a record that could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Damage {
    /// An annotation that should be there is not, or does not say what it should.
    Annotation(&'static str),
    /// An entry of `data` whose key no label has.
    Key(String),
    /// An entry of `data` whose value no label has.
    Value(String),
    /// An entry of `binaryData`: labels are text.
    Binary(String),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotation(name) => write!(f, "annotation {name} is missing or unusable"),
            Self::Key(key) => write!(f, "data key {key:?} is no label key"),
            Self::Value(key) => write!(f, "the value of data key {key:?} is no label value"),
            Self::Binary(key) => write!(f, "binaryData {key:?} is no label"),
        }
    }
}

/// Why a ConfigMap can't be read as a record at all. It is left for a person, never overwritten.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Somebody else's ConfigMap is in the way.
    #[error(
        "configmap {0} lacks the label app.kubernetes.io/managed-by=label-storage: if it is a record, put the label back; \
         if it is not, move it to another name"
    )]
    Foreign(String),
    /// The record says that it belongs to another Node than its own name does.
    #[error(
        "configmap {record} says in its annotation label-storage/node that it belongs to node {node:?}: correct or remove that annotation"
    )]
    AnotherNode {
        /// The ConfigMap.
        record: String,
        /// The Node that it names.
        node: String,
    },
    /// The ConfigMap's name is shortened, and the annotation with the full name is gone.
    #[error(
        "configmap {0} does not say which node it belongs to: put its name into the annotation label-storage/node"
    )]
    NoNode(String),
}

/// The labels of a Node do not fit into a ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the labels of node {node}, and what else its record holds, need {bytes} bytes, and a configmap takes {MAX_BYTES}: remove \
     some of them; until then the record stays as it is"
)]
pub struct TooLarge {
    /// The Node.
    pub node: String,
    /// The size of its keys and values.
    pub bytes: usize,
}

impl Record {
    /// The first record of a Node, as it looks in this view.
    pub fn of(node: &Node, now: Timestamp) -> Self {
        Self {
            node: node.name.clone(),
            uid: Some(node.uid.clone()),
            node_version: Some(node.version),
            generation: 1,
            labels_generation: Some(1),
            captured_at: Some(now),
            departed_at: None,
            labels: node.labels.clone(),
            leftovers: Leftovers::default(),
        }
    }

    /// The next generation of this record, with the Node as it looks in this view.
    pub fn retaken(&self, node: &Node, now: Timestamp) -> Self {
        self.followed_by(Self::of(node, now))
    }

    /// The next generation of this record, with what this incarnation has over what the record has.
    pub fn merged(&self, node: &Node, now: Timestamp) -> Self {
        let mut labels = self.labels.clone();
        labels.extend(node.labels.clone());
        self.followed_by(Self { labels, ..Self::of(node, now) })
    }

    fn followed_by(&self, next: Self) -> Self {
        let generation = self.next_generation();
        let changed = next.labels != self.labels;
        let labels_generation = if changed { Some(generation) } else { self.labels_generation };
        Self { generation, labels_generation, leftovers: self.leftovers.clone(), ..next }
    }

    /// The next generation of this record, with the Node gone since `departed_at`, or back.
    pub fn with_departed_at(&self, departed_at: Option<Timestamp>) -> Self {
        Self { generation: self.next_generation(), departed_at, ..self.clone() }
    }

    /// Whether nothing is left in it that anyone could miss.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.leftovers.is_empty()
    }

    fn next_generation(&self) -> u64 {
        self.generation.saturating_add(1)
    }

    /// Writes the record into a ConfigMap: a new one for a create, the one that was read for a replace. What else
    /// people put on its metadata stays.
    pub fn encode_into(&self, config_map: &mut ConfigMap) -> Result<(), TooLarge> {
        let mut data: BTreeMap<_, _> = self.labels.iter().map(|(k, v)| key::encode_entry(k, v)).collect();
        for (data_key, value) in &self.leftovers.data {
            data.entry(data_key.clone()).or_insert_with(|| value.clone());
        }
        let text = data.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        let binary = self.leftovers.binary_data.iter().map(|(k, v)| k.len() + v.0.len()).sum::<usize>();
        if text + binary > MAX_BYTES {
            return Err(TooLarge { node: self.node.clone(), bytes: text + binary });
        }

        let meta = &mut config_map.metadata;
        meta.name = Some(record_name(&self.node));
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
        config_map.data = Some(data);
        config_map.binary_data =
            (!self.leftovers.binary_data.is_empty()).then(|| self.leftovers.binary_data.clone());
        Ok(())
    }

    /// Reads a record from a ConfigMap, believing nothing: what can't be used is set aside and named.
    pub fn decode(config_map: &ConfigMap) -> Result<Decoded, Unreadable> {
        let meta = &config_map.metadata;
        let name = meta.name.as_deref().unwrap_or_default();
        let managed_by = meta.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY.0));
        if managed_by.map(String::as_str) != Some(MANAGED_BY.1) {
            return Err(Unreadable::Foreign(name.to_owned()));
        }

        let mut damage = Vec::new();
        let annotations = Annotations(meta.annotations.as_ref());
        let node = match (annotations.get(NODE), node_in_record_name(name)) {
            (Some(node), _) if record_name(node) == name => node.to_owned(),
            (Some(node), _) => {
                return Err(Unreadable::AnotherNode { record: name.to_owned(), node: excerpt(node) });
            }
            (None, Some(node)) => {
                damage.push(Damage::Annotation(NODE));
                node.to_owned()
            }
            (None, None) => return Err(Unreadable::NoNode(name.to_owned())),
        };
        let uid = annotations.required(NODE_UID, &mut damage, |uid| Uid::new(uid));
        let node_version =
            annotations.required(NODE_RESOURCE_VERSION, &mut damage, |version| version.parse().ok());
        let generation = annotations.required(GENERATION, &mut damage, |generation| generation.parse().ok());
        let labels_generation =
            annotations.required(LABELS_GENERATION, &mut damage, |generation| generation.parse().ok());
        let captured_at = annotations.required(CAPTURED_AT, &mut damage, |time| time.parse().ok());
        let departed_at = annotations
            .get(DEPARTED_AT)
            .and_then(|_| annotations.required(DEPARTED_AT, &mut damage, |time| time.parse().ok()));

        let mut labels = Labels::new();
        let mut leftovers = Leftovers::default();
        for (data_key, data_value) in config_map.data.iter().flatten() {
            match read_label(data_key, data_value) {
                Ok((key, value)) => {
                    labels.insert(key, value);
                }
                Err(what) => {
                    damage.push(what);
                    leftovers.data.insert(data_key.clone(), data_value.clone());
                }
            }
        }
        for (data_key, bytes) in config_map.binary_data.iter().flatten() {
            damage.push(Damage::Binary(excerpt(data_key)));
            leftovers.binary_data.insert(data_key.clone(), bytes.clone());
        }
        // A marker made from this record has to satisfy it, or the Node would be restored again and again.
        let generation = generation.max(labels_generation).unwrap_or_default();
        let record = Self {
            node,
            uid,
            node_version,
            generation,
            labels_generation,
            captured_at,
            departed_at,
            labels,
            leftovers,
        };
        Ok(Decoded { record, damage })
    }
}

fn read_label(data_key: &str, data_value: &str) -> Result<(String, String), Damage> {
    match key::decode_entry(data_key, data_value) {
        Err(key::Error::NotItsLongKey) => Err(Damage::Value(excerpt(data_key))),
        Err(key::Error::NotCanonical) => Err(Damage::Key(excerpt(data_key))),
        Ok((key, _)) if !label::is_key(&key) => Err(Damage::Key(excerpt(data_key))),
        Ok((_, value)) if !label::is_value(&value) => Err(Damage::Value(excerpt(data_key))),
        Ok(entry) => Ok(entry),
    }
}

struct Annotations<'a>(Option<&'a BTreeMap<String, String>>);

impl Annotations<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0?.get(name).map(String::as_str)
    }

    fn required<T>(
        &self,
        name: &'static str,
        damage: &mut Vec<Damage>,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let value = self.get(name).and_then(read);
        if value.is_none() {
            damage.push(Damage::Annotation(name));
        }
        value
    }
}

/// RFC 3339 in whole seconds, as Kubernetes itself writes times.
fn to_the_second(time: Timestamp) -> String {
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

#[cfg(test)]
mod tests;
