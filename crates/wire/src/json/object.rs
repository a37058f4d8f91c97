//! An object. By hand, since only a caller knows which annotations are to be kept.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::node;
use crate::{Asked, Content, Object, check_kind};

/// Reads an object as what was asked for.
#[derive(Clone, Copy)]
pub(super) struct Whole<'a>(pub(super) &'a Asked<'a>);

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Key {
    Kind,
    Metadata,
    Data,
    BinaryData,
    Spec,
    Status,
    #[serde(other)]
    Other,
}

impl<'de> DeserializeSeed<'de> for Whole<'_> {
    type Value = Object;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Object, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = Object;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {}", self.0.content.kind())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Object, A::Error> {
        let Self(asked) = self;
        let mut object = Object::default();
        let (mut spec, mut status) = (None, None);
        while let Some(key) = fields.next_key()? {
            match (key, asked.content) {
                (Key::Kind, _) => {
                    let kind: Option<String> = fields.next_value()?;
                    check_kind(&kind.unwrap_or_default(), asked.content.kind()).map_err(A::Error::custom)?;
                }
                (Key::Metadata, _) => {
                    fields.next_value_seed(Nullable(Meta { asked, object: &mut object }))?;
                }
                (Key::Data, Content::ConfigMap) => object.data = unless_null(&mut fields)?,
                (Key::BinaryData, Content::ConfigMap) => {
                    let entries: BTreeMap<_, Base64> = unless_null(&mut fields)?;
                    object.binary_data =
                        entries.into_iter().map(|(key, Base64(bytes))| (key, bytes)).collect();
                }
                (Key::Spec, Content::Node) => spec = fields.next_value()?,
                (Key::Status, Content::Node) => status = fields.next_value()?,
                _ => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        object.node = (asked.content == Content::Node)
            .then(|| node::node(spec.unwrap_or_default(), status.unwrap_or_default()));
        Ok(object)
    }
}

/// Reads metadata into an object.
struct Meta<'a> {
    asked: &'a Asked<'a>,
    object: &'a mut Object,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum MetaKey {
    Name,
    Uid,
    ResourceVersion,
    CreationTimestamp,
    DeletionTimestamp,
    Labels,
    Annotations,
    #[serde(other)]
    Other,
}

impl<'de> DeserializeSeed<'de> for Meta<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Meta<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let Self { asked, object } = self;
        while let Some(key) = fields.next_key()? {
            match key {
                MetaKey::Name => object.name = unless_null(&mut fields)?,
                MetaKey::Uid => object.uid = unless_null(&mut fields)?,
                MetaKey::ResourceVersion => object.resource_version = unless_null(&mut fields)?,
                MetaKey::CreationTimestamp => {
                    // As with protobuf: a time that can't be one spoils no list.
                    let text: String = unless_null(&mut fields)?;
                    object.created_at = text.parse().ok();
                }
                MetaKey::DeletionTimestamp => {
                    object.is_terminating = fields.next_value::<Option<IgnoredAny>>()?.is_some();
                }
                MetaKey::Labels => object.labels = unless_null(&mut fields)?,
                MetaKey::Annotations => {
                    let wanted = fields.next_value_seed(Nullable(Annotations(asked)))?;
                    object.annotations = wanted.unwrap_or_default();
                }
                MetaKey::Other => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Reads those annotations that are wanted. The others are passed over where they stand.
struct Annotations<'a>(&'a Asked<'a>);

impl<'de> DeserializeSeed<'de> for Annotations<'_> {
    type Value = BTreeMap<String, String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Annotations<'_> {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("annotations")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut wanted = BTreeMap::new();
        while let Some(key) = entries.next_key_seed(AnnotationKey(self.0))? {
            match key {
                Some(key) => drop(wanted.insert(key, entries.next_value()?)),
                None => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        Ok(wanted)
    }
}

/// Reads the key of an annotation, if it is wanted.
struct AnnotationKey<'a>(&'a Asked<'a>);

impl<'de> DeserializeSeed<'de> for AnnotationKey<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for AnnotationKey<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key of an annotation")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok((self.0.annotations)(key).then(|| key.to_owned()))
    }
}

/// Reads what is there unless it is `null`, which is how Go writes what nobody made.
pub(super) struct Nullable<S>(pub(super) S);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Nullable<S> {
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Nullable<S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("something or null")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

/// The next value, or an empty one where it is `null`.
fn unless_null<'de, T: Default + Deserialize<'de>, A: MapAccess<'de>>(fields: &mut A) -> Result<T, A::Error> {
    Ok(fields.next_value::<Option<T>>()?.unwrap_or_default())
}

struct Base64(Vec<u8>);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64_STANDARD.decode(text).map(Self).map_err(D::Error::custom)
    }
}
