//! One record as a document of YAML that a person can read and edit.

mod checking;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use label_storage::item::Item;
use label_storage::record::{MANAGED_BY, Version, WithheldValue};
use label_storage::rules::builtin_exclusions;
use label_storage::{Labels, Record};
use serde::{Deserialize, Serialize};
use serde_saphyr::{Location, Spanned};

/// How kubectl remembers what it has made the whole object of.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A text, and where it stands.
type Text = Spanned<String>;
type Texts = BTreeMap<String, Text>;

/// What is stored of one Node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Document {
    node: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    labels: Option<Texts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    annotations: Option<Texts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    taints: Option<Vec<Taint>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cordon: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    departed_at: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    captured_at: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    generation: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine: Option<OfMachine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    withheld: Option<Vec<SetAside>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    leftovers: Option<Rest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    history: Option<Vec<Past>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Taint {
    key: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Text>,
    effect: Text,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfMachine {
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    provider_id: Option<Text>,
    #[serde(default, rename = "systemUUID", skip_serializing_if = "Option::is_none")]
    system_uuid: Option<Text>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SetAside {
    name: Text,
    value: Text,
    #[serde(default, rename = "systemUUID", skip_serializing_if = "Option::is_none")]
    system_uuid: Option<Text>,
}

/// What else is in the record, and on it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rest {
    /// On the ConfigMap itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    labels: Option<Texts>,
    /// On the ConfigMap itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    annotations: Option<Texts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<Texts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    binary_data: Option<BTreeMap<String, ByteString>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Past {
    generation: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    labels: Option<Texts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    annotations: Option<Texts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    taints: Option<Vec<Taint>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cordon: Option<bool>,
}

/// Something that is wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Within the document, from 1.
    pub(crate) line: u64,
    /// What is wrong, and what to do about it.
    pub(crate) what: String,
}

impl Document {
    /// What an export shows of a record.
    pub(crate) fn of(record: &Record, tags: &Tags, with_history: bool) -> Self {
        let kept = Sorted::of(&record.labels);
        let machine = &record.more.machine;
        let of_machine = OfMachine {
            provider_id: machine.provider_id.as_deref().map(text),
            system_uuid: machine.system_uuid.as_deref().map(text),
        };
        let withheld: Vec<_> = record.more.withheld.iter().map(SetAside::of).collect();
        let binary_data = record.leftovers.binary_data.clone();
        let leftovers = Rest {
            labels: texts(&tags.labels),
            annotations: texts(&tags.annotations),
            data: texts(&record.leftovers.data),
            binary_data: (!binary_data.is_empty()).then_some(binary_data),
        };
        let history: Vec<_> = record.more.history.iter().filter(|_| with_history).map(Past::of).collect();
        Self {
            node: text(&record.node),
            identity: record.more.identity.as_deref().map(text),
            labels: kept.labels,
            annotations: kept.annotations,
            taints: kept.taints,
            cordon: kept.cordon,
            departed_at: record.departed_at.map(time),
            captured_at: record.captured_at.map(time),
            generation: Some(record.generation),
            machine: (!machine.is_unknown()).then_some(of_machine),
            withheld: (!withheld.is_empty()).then_some(withheld),
            leftovers: (!record.leftovers.is_empty() || !tags.is_empty()).then_some(leftovers),
            history: (!history.is_empty()).then_some(history),
        }
    }

    /// As YAML, without the line that begins a document.
    pub(crate) fn to_yaml(&self) -> Result<String, serde_saphyr::ser::Error> {
        serde_saphyr::to_string(self)
    }

    /// Reads one, or says what is wrong with it.
    pub(crate) fn parse(yaml: &str) -> Result<Self, Problem> {
        let options = serde_saphyr::options! { with_snippet: false, reject_unsupported_tags: true };
        serde_saphyr::from_str_with_options(yaml, options).map_err(|error| Problem::of(&error))
    }
}

/// What people have put on the ConfigMap of a record, for purposes of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tags {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Tags {
    /// Those of this ConfigMap.
    pub(crate) fn of(config_map: &ConfigMap) -> Self {
        let meta = &config_map.metadata;
        let theirs = |all: &Option<BTreeMap<String, String>>| {
            let theirs = all.iter().flatten().filter(|(key, _)| !Self::is_ours(key));
            theirs.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        Self { labels: theirs(&meta.labels), annotations: theirs(&meta.annotations) }
    }

    /// Whether the daemons write it themselves, or it tells of the very object that it is on.
    fn is_ours(key: &str) -> bool {
        key == MANAGED_BY.0 || key.starts_with(builtin_exclusions::OURS) || key == LAST_APPLIED
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }

    /// Puts them on a ConfigMap, where they replace those of the same keys.
    pub(crate) fn put_on(&self, config_map: &mut ConfigMap) {
        let meta = &mut config_map.metadata;
        for (on, theirs) in [(&mut meta.labels, &self.labels), (&mut meta.annotations, &self.annotations)] {
            if !theirs.is_empty() {
                on.get_or_insert_default().extend(theirs.clone());
            }
        }
    }
}

/// A number that is the same for two records which give the same back to the same Node. When they were written, and how often, is no
/// difference, and neither is what people have put on the ConfigMap.
pub(crate) fn fingerprint(record: &Record) -> u64 {
    let mut hasher = DefaultHasher::new();
    let (more, leftovers) = (&record.more, &record.leftovers);
    (&record.node, &more.identity, &record.labels).hash(&mut hasher);
    (&more.machine.provider_id, &more.machine.system_uuid).hash(&mut hasher);
    for (name, kept) in &more.withheld {
        (name, &kept.value, &kept.system_uuid).hash(&mut hasher);
    }
    (&leftovers.data, leftovers.binary_data.len()).hash(&mut hasher);
    for (key, bytes) in &leftovers.binary_data {
        (key, &bytes.0).hash(&mut hasher);
    }
    hasher.finish()
}

/// What is kept, sorted by what it is: written, or borrowed from what was read.
#[derive(Default)]
struct Sorted<L, T> {
    labels: Option<L>,
    annotations: Option<L>,
    taints: Option<T>,
    cordon: Option<bool>,
}

impl Sorted<Texts, Vec<Taint>> {
    fn of(all: &Labels) -> Self {
        let mut sorted = Self { labels: None, annotations: None, taints: None, cordon: None };
        for (name, value) in all {
            match Item::parse(name) {
                Some(Item::Label(key)) => {
                    sorted.labels.get_or_insert_default().insert(key.to_owned(), text(value));
                }
                Some(Item::Annotation(key)) => {
                    sorted.annotations.get_or_insert_default().insert(key.to_owned(), text(value));
                }
                Some(Item::Taint { effect, key }) => {
                    let value = (!value.is_empty()).then(|| text(value));
                    let taint = Taint { key: text(key), value, effect: text(effect) };
                    sorted.taints.get_or_insert_default().push(taint);
                }
                Some(Item::Cordon) => sorted.cordon = Some(true),
                // What is read from a record is checked there.
                None => (),
            }
        }
        sorted
    }
}

impl SetAside {
    fn of((name, kept): (&String, &WithheldValue)) -> Self {
        Self {
            name: text(name),
            value: text(&kept.value),
            system_uuid: kept.system_uuid.as_deref().map(text),
        }
    }
}

impl Past {
    fn of(version: &Version) -> Self {
        let kept = Sorted::of(&version.labels);
        Self {
            generation: version.generation,
            at: version.at.map(time),
            labels: kept.labels,
            annotations: kept.annotations,
            taints: kept.taints,
            cordon: kept.cordon,
        }
    }
}

fn text(text: &str) -> Text {
    Spanned::new(text.to_owned(), Location::UNKNOWN, Location::UNKNOWN)
}

/// In whole seconds, as records have them.
fn time(time: Timestamp) -> Text {
    text(&Timestamp::from_second(time.as_second()).unwrap_or(time).to_string())
}

fn texts(texts: &BTreeMap<String, String>) -> Option<Texts> {
    (!texts.is_empty()).then(|| texts.iter().map(|(key, value)| (key.clone(), text(value))).collect())
}

#[cfg(test)]
mod tests;
