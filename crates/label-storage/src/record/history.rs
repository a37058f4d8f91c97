//! How a record writes down what the labels were before, and what was withheld.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use jiff::Timestamp;

use super::config_map::to_the_second;
use super::{Version, WithheldValue};
use crate::item::Item;
use crate::{Labels, key};

/// A version's name in `data`, before its generation.
const NAME: &str = "history:";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    kept: Labels,
}

/// A version, as an entry of `data`.
pub(super) fn encode(version: &Version) -> (String, String) {
    let written = Written { at: version.at.map(to_the_second), kept: version.labels.clone() };
    // A map of texts is always JSON.
    let value = serde_json::to_string(&written).unwrap_or_default();
    key::encode_entry(&format!("{NAME}{}", version.generation), &value)
}

/// The generation that an entry of this name tells of, if it is one. Two spellings of one number would be one entry when written.
pub(super) fn generation(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(NAME)?;
    digits.parse().ok().filter(|generation: &u64| generation.to_string() == digits)
}

/// A version, of what stands there; `None` where some of it would be lost if it was written again, or could never have been kept.
pub(super) fn decode(generation: u64, value: &str) -> Option<Version> {
    let Written { at, kept: labels } = serde_json::from_str(value).ok()?;
    let at = at.map(|at| at.parse::<Timestamp>()).transpose().ok()?;
    let is_kept = |(name, value): (&String, &String)| Item::parse(name).is_some_and(|kept| kept.takes(value));
    labels.iter().all(is_kept).then_some(Version { generation, at, labels })
}

/// What was withheld: each name, with the machine that had it, or with nothing.
pub(super) fn encode_withheld(withheld: &BTreeMap<String, WithheldValue>) -> Option<String> {
    let origins: BTreeMap<_, _> =
        withheld.iter().map(|(name, kept)| (name, kept.system_uuid.as_deref().unwrap_or_default())).collect();
    (!origins.is_empty()).then(|| serde_json::to_string(&origins).unwrap_or_default())
}

/// The names, and the machine of each.
pub(super) fn decode_withheld(text: &str) -> Option<BTreeMap<String, Option<String>>> {
    let origins: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
    Some(origins.into_iter().map(|(name, uuid)| (name, (!uuid.is_empty()).then_some(uuid))).collect())
}
