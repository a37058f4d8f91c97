//! A list in JSON, read as a stream: the items are taken one by one, whatever they stand before or after.

use std::cell::Cell;
use std::fmt;
use std::io::{self, BufRead, Read};

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::object::{Nullable, Whole};
use super::{Refusal, error};
use crate::{Asked, Error, Listed, MAX_ITEM, Object, check_kind, listed};

pub(crate) fn read_list(
    asked: &Asked<'_>,
    input: impl BufRead,
    each: impl FnMut(Object),
) -> Result<Listed, Error> {
    let left = Cell::new(MAX_ITEM);
    let mut json = serde_json::Deserializer::from_reader(Metered { input, left: &left });
    let Head { meta, refusal, items } =
        List { asked, each, left: &left }.deserialize(&mut json).map_err(error)?;
    json.end().map_err(error)?;

    let kind = refusal.kind.as_deref().unwrap_or_default();
    if kind == "Status" {
        return Err(Error::Status(refusal.status()?));
    }
    check_kind(kind, asked.content.list_kind())?;
    let items = items.ok_or_else(|| Error::malformed("a list without items"))?;
    let continues = meta.r#continue.unwrap_or_default();
    let remaining = meta.remaining_item_count.unwrap_or_default();
    listed(meta.resource_version.unwrap_or_default(), &continues, remaining, items)
}

/// Input that fails where one object takes more than its share: the reader of JSON would keep any text, however long.
struct Metered<'a, R> {
    input: R,
    /// How many bytes the object that is being read may still take.
    left: &'a Cell<usize>,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left.get() == 0 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let read = self.input.read(buffer)?;
        self.left.set(self.left.get().saturating_sub(read));
        Ok(read)
    }
}

/// Tells the end of an object's share from failures of the input itself.
pub(super) fn input_error(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::FileTooLarge => Error::TooLarge,
        _ => error.into(),
    }
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Key {
    Kind,
    Metadata,
    Items,
    Message,
    Reason,
    Details,
    Code,
    #[serde(other)]
    Other,
}

/// What stands around the items, and their number if there were any `items`.
#[derive(Default)]
struct Head {
    meta: Meta,
    /// Its kind, and what it has if that is a status.
    refusal: Refusal,
    items: Option<usize>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    resource_version: Option<String>,
    r#continue: Option<String>,
    remaining_item_count: Option<i64>,
}

/// Hands on the items, and returns what stands around them.
struct List<'a, F> {
    asked: &'a Asked<'a>,
    each: F,
    left: &'a Cell<usize>,
}

impl<'de, F: FnMut(Object)> DeserializeSeed<'de> for List<'_, F> {
    type Value = Head;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Head, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: FnMut(Object)> Visitor<'de> for List<'_, F> {
    type Value = Head;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<Head, A::Error> {
        let mut head = Head::default();
        while let Some(key) = fields.next_key()? {
            match key {
                Key::Kind => head.refusal.kind = fields.next_value()?,
                Key::Metadata => head.meta = fields.next_value::<Option<_>>()?.unwrap_or_default(),
                Key::Items if head.items.is_some() => return Err(A::Error::duplicate_field("items")),
                Key::Items => {
                    let items = Items { asked: self.asked, each: &mut self.each, left: self.left };
                    head.items = Some(fields.next_value_seed(Nullable(items))?.unwrap_or_default());
                    self.left.set(MAX_ITEM);
                }
                Key::Message => head.refusal.message = fields.next_value()?,
                Key::Reason => head.refusal.reason = fields.next_value()?,
                Key::Details => head.refusal.details = fields.next_value()?,
                Key::Code => head.refusal.code = fields.next_value()?,
                Key::Other => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(head)
    }
}

/// Hands on the items, and returns their number.
struct Items<'a, F> {
    asked: &'a Asked<'a>,
    each: &'a mut F,
    left: &'a Cell<usize>,
}

impl<'de, F: FnMut(Object)> DeserializeSeed<'de> for Items<'_, F> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(Object)> Visitor<'de> for Items<'_, F> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the items of a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<usize, A::Error> {
        let mut count = 0;
        self.left.set(MAX_ITEM);
        while let Some(item) = items.next_element_seed(Whole(self.asked))? {
            (self.each)(item.named().map_err(|error| match error {
                Error::Malformed(what) => A::Error::custom(what),
                other => A::Error::custom(other),
            })?);
            count += 1;
            self.left.set(MAX_ITEM);
        }
        Ok(count)
    }
}
