//! The metadata of an object, as far as the bench uses it.

use std::collections::BTreeMap;

use label_storage::Labels;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Meta {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) uid: String,
    #[serde(rename = "resourceVersion", deserialize_with = "number")]
    pub(crate) version: u64,
    #[serde(default)]
    pub(crate) labels: Labels,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

fn number<'de, D: Deserializer<'de>>(text: D) -> Result<u64, D::Error> {
    String::deserialize(text)?.parse().map_err(D::Error::custom)
}
