//! What a person has written, read without believing anything: all that is wrong with it, and where.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use label_storage::item::{Item, MAX_ANNOTATIONS};
use label_storage::node::{MAX_IDENTITY, Machine};
use label_storage::record::{Leftovers, More, Version, WithheldValue};
use label_storage::{Labels, Record, label};
use serde_saphyr::{DefaultMessageFormatter, Error, Location, MessageFormatter, Spanned};

use crate::find::is_name;

use super::{Document, Past, Problem, Sorted, Tags, Taint, Text, Texts, fingerprint};

/// More writes than any record sees. Above it there would be no room for the next.
const MAX_GENERATION: u64 = i64::MAX as u64;

impl Document {
    /// The record that it is, of no incarnation, or all that is wrong with it.
    pub(crate) fn record(&self) -> Result<(Record, Tags), Vec<Problem>> {
        let mut wrong = Wrong::default();
        if !is_name(&self.node.value) {
            wrong.at(&self.node, "no node can have this name");
        }
        if let Some(identity) = self.identity.as_ref().filter(|identity| !identity.value.contains('=')) {
            wrong.at(
                identity,
                "this is nothing that a record is filed under: write it as in systemUUID=4c4c4544-…",
            );
        }
        let kept = Sorted {
            labels: self.labels.as_ref(),
            annotations: self.annotations.as_ref(),
            taints: self.taints.as_ref(),
            cordon: self.cordon,
        };
        let labels = kept.joined(&mut wrong);
        let machine = self.machine.as_ref();
        let machine = Machine {
            provider_id: machine.and_then(|machine| wrong.machine(machine.provider_id.as_ref())),
            system_uuid: machine.and_then(|machine| wrong.machine(machine.system_uuid.as_ref())),
        };
        let mut withheld = BTreeMap::new();
        for kept in self.withheld.iter().flatten() {
            wrong.check(&kept.name.value, &kept.value);
            let system_uuid = wrong.machine(kept.system_uuid.as_ref());
            let name = &kept.name.value;
            let is_twice = labels.contains_key(name)
                || withheld
                    .insert(name.clone(), WithheldValue { value: kept.value.value.clone(), system_uuid })
                    .is_some();
            if is_twice {
                wrong.at(&kept.name, "this stands here for the second time: remove one of the two");
            }
        }
        let mut history: Vec<_> =
            self.history.iter().flatten().map(|past| past.version(&mut wrong)).collect();
        history.sort_by_key(|version| version.generation);
        let newest = history.last().map_or(0, |version| version.generation);
        let leftovers = self.leftovers.as_ref();
        let record = Record {
            config_map: None,
            node: self.node.value.clone(),
            uid: None,
            node_version: None,
            // The present is newer than the past.
            generation: self.generation.unwrap_or(1).max(newest.saturating_add(1)),
            labels_generation: None,
            captured_at: wrong.time(self.captured_at.as_ref()),
            departed_at: wrong.time(self.departed_at.as_ref()),
            labels,
            more: More {
                identity: self.identity.as_ref().map(|identity| identity.value.clone()),
                machine,
                withheld,
                history,
            },
            leftovers: Leftovers {
                data: plain(leftovers.and_then(|rest| rest.data.as_ref())),
                binary_data: leftovers.and_then(|rest| rest.binary_data.clone()).unwrap_or_default(),
            },
        };
        let tags = self.tags(&mut wrong);
        if wrong.0.is_empty() {
            self.try_out(&record, &tags, &mut wrong);
        }
        if wrong.0.is_empty() { Ok((record, tags)) } else { Err(wrong.0) }
    }

    /// What stands there for the ConfigMap itself.
    fn tags(&self, wrong: &mut Wrong) -> Tags {
        let leftovers = self.leftovers.as_ref();
        let labels = leftovers.and_then(|rest| rest.labels.as_ref());
        let annotations = leftovers.and_then(|rest| rest.annotations.as_ref());
        for (key, value) in labels.into_iter().chain(annotations).flatten() {
            if Tags::is_ours(key) {
                wrong.at(value, format!("{key:?} is written by the daemons themselves: remove it"));
            }
        }
        for (key, value) in labels.into_iter().flatten() {
            if !(label::is_key(key) && label::is_value(&value.value)) {
                wrong.at(
                    value,
                    format!("leftovers: a ConfigMap can't have the label {key:?} with this value"),
                );
            }
        }
        for (key, value) in annotations.into_iter().flatten() {
            if !label::is_annotation_key(key) {
                wrong.at(value, format!("leftovers: a ConfigMap can't have the annotation {key:?}"));
            }
        }
        Tags { labels: plain(labels), annotations: plain(annotations) }
    }

    /// Writes it and reads it again, as the daemons do: what they would read otherwise is no record.
    fn try_out(&self, record: &Record, tags: &Tags, wrong: &mut Wrong) {
        let whole = self.identity.as_ref().unwrap_or(&self.node);
        if record.generation > MAX_GENERATION {
            wrong.at(whole, "its generation is too large: remove that line");
            return;
        }
        for key in record.leftovers.data.keys().chain(record.leftovers.binary_data.keys()) {
            if !is_data_key(key) {
                wrong.at(whole, format!("leftovers: a ConfigMap can't have the key {key:?}"));
                return;
            }
        }
        let mut config_map = ConfigMap::default();
        tags.put_on(&mut config_map);
        if let Err(error) = record.encode_into(&mut config_map) {
            wrong.at(whole, error);
            return;
        }
        let annotations = config_map.metadata.annotations.iter().flatten();
        if annotations.map(|(key, value)| key.len() + value.len()).sum::<usize>() > MAX_ANNOTATIONS {
            wrong.at(
                whole,
                "too much of it is withheld, or has annotations of its own: a ConfigMap can't hold them",
            );
            return;
        }
        let read = match Record::decode(&config_map) {
            Ok(read) => read,
            Err(error) => return wrong.at(whole, error),
        };
        if fingerprint(&read.record) != fingerprint(record) {
            wrong.at(
                whole,
                "the daemons would read some of this as something else: what stands under leftovers and is a label, \
                 an annotation or a taint belongs there",
            );
        }
    }
}

impl Sorted<&Texts, &Vec<Taint>> {
    /// All of it by name.
    fn joined(self, wrong: &mut Wrong) -> Labels {
        let mut all = Labels::new();
        for (key, value) in self.labels.into_iter().flatten() {
            if key.contains(':') {
                wrong.at(value, format!("{key:?} is no label key"));
            } else {
                wrong.check(key, value);
            }
            all.insert(key.clone(), value.value.clone());
        }
        for (key, value) in self.annotations.into_iter().flatten() {
            let name = Item::Annotation(key).to_string();
            wrong.check(&name, value);
            all.insert(name, value.value.clone());
        }
        for Taint { key, value, effect } in self.taints.into_iter().flatten() {
            let name = Item::Taint { effect: &effect.value, key: &key.value }.to_string();
            wrong.check(&name, value.as_ref().unwrap_or(&empty_at(key)));
            let value = value.as_ref().map(|value| value.value.clone()).unwrap_or_default();
            if all.insert(name, value).is_some() {
                wrong.at(key, "a node has one taint of each key and effect: remove one of the two");
            }
        }
        if self.cordon == Some(true) {
            all.insert(Item::Cordon.to_string(), "true".to_owned());
        }
        all
    }
}

impl Past {
    fn version(&self, wrong: &mut Wrong) -> Version {
        let (labels, annotations) = (self.labels.as_ref(), self.annotations.as_ref());
        let kept = Sorted { labels, annotations, taints: self.taints.as_ref(), cordon: self.cordon };
        let labels = kept.joined(wrong);
        Version { generation: self.generation, at: wrong.time(self.at.as_ref()), labels }
    }
}

/// What is wrong so far.
#[derive(Default)]
struct Wrong(Vec<Problem>);

impl Wrong {
    fn at(&mut self, place: &Text, what: impl ToString) {
        self.0.push(Problem { line: line(place.referenced), what: what.to_string() });
    }

    /// Whether there is such a thing, and the API server takes this value for it: as records are read.
    fn check(&mut self, name: &str, value: &Text) {
        match Item::parse(name) {
            None => self.at(value, format!("{name:?} is nothing that a node can have: correct its key")),
            Some(kept) if !kept.takes(&value.value) => {
                self.at(value, format!("the value of {name:?} is none that it can have: correct it"));
            }
            Some(_) => (),
        }
    }

    /// Whole seconds, as records have them.
    fn time(&mut self, written: Option<&Text>) -> Option<Timestamp> {
        let written = written?;
        match written.value.parse::<Timestamp>() {
            Ok(time) => Timestamp::from_second(time.as_second()).ok(),
            Err(_) => {
                self.at(written, "this is no time: write it as in 2026-11-16T06:48:56Z, or remove the line");
                None
            }
        }
    }

    fn machine(&mut self, written: Option<&Text>) -> Option<String> {
        let written = written?;
        if written.value.is_empty() || written.value.len() > MAX_IDENTITY {
            self.at(written, "no machine can have this name: correct it, or remove the line");
        }
        Some(written.value.clone())
    }
}

impl Problem {
    pub(super) fn of(error: &Error) -> Self {
        let what = match error.without_snippet() {
            Error::SerdeUnknownField { field, expected, .. } => {
                format!("there is no key {field:?} here: write one of {}", expected.join(", "))
            }
            Error::DuplicateMappingKey { key: Some(key), .. } => {
                format!("{key:?} stands here for the second time: remove one of the two")
            }
            Error::SerdeMissingField { field, .. } => format!("{field:?} is missing here"),
            Error::NullIntoString { .. } => {
                "there is nothing here: write \"\" for an empty value, \"~\" or \"null\" in quotes, or remove the line".to_owned()
            }
            other => format!("this can't be read: {}", DefaultMessageFormatter.format_message(other)),
        };
        Self { line: error.location().map_or(1, line), what: what.replace('\n', " ") }
    }
}

/// Whether a ConfigMap takes this as the key of an entry.
fn is_data_key(key: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=253).contains(&key.len()) && key.bytes().all(is_legal) && key != "." && !key.starts_with("..")
}

fn line(place: Location) -> u64 {
    place.line().max(1)
}

fn empty_at(place: &Text) -> Text {
    Spanned::new(String::new(), place.referenced, place.defined)
}

fn plain(texts: Option<&Texts>) -> BTreeMap<String, String> {
    texts.into_iter().flatten().map(|(key, value)| (key.clone(), value.value.clone())).collect()
}
