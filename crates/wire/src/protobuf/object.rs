//! Reads an object by hand: a derived reader would first copy all annotations, most of which are not kept.

use super::fields::Fields;
use super::node::{self, read_time};
use crate::{Asked, Content, Error, NodePart, Object};

/// Reads an object. Field 1 is the metadata in all types. After an error, the object has the fields before it.
pub(super) fn read(asked: &Asked<'_>, bytes: &[u8], object: &mut Object) -> Result<(), Error> {
    let mut node = NodePart::default();
    let mut fields = Fields(bytes);
    while let Some((field, value)) = fields.next()? {
        match (field, asked.content) {
            (1, _) => read_meta(asked, value.bytes()?, object)?,
            (2, Content::ConfigMap) => {
                let (key, value) = entry(value.bytes()?)?;
                object.data.insert(text(key), text(value));
            }
            (3, Content::ConfigMap) => {
                let (key, value) = entry(value.bytes()?)?;
                object.binary_data.insert(text(key), value.to_vec());
            }
            (2, Content::Node) => node::read_spec(value.bytes()?, &mut node)?,
            (3, Content::Node) => node::read_status(value.bytes()?, &mut node)?,
            _ => {}
        }
    }
    object.node = (asked.content == Content::Node).then_some(node);
    Ok(())
}

fn read_meta(asked: &Asked<'_>, bytes: &[u8], object: &mut Object) -> Result<(), Error> {
    let mut fields = Fields(bytes);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => object.name = text(value.bytes()?),
            5 => object.uid = text(value.bytes()?),
            6 => object.resource_version = text(value.bytes()?),
            8 => object.created_at = read_time(value.bytes()?)?,
            9 => {
                value.bytes()?;
                object.is_terminating = true;
            }
            11 => {
                let (key, value) = entry(value.bytes()?)?;
                object.labels.insert(text(key), text(value));
            }
            12 => {
                let (key, value) = entry(value.bytes()?)?;
                if std::str::from_utf8(key).is_ok_and(asked.annotations) {
                    object.annotations.insert(text(key), text(value));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The key and the value of a map entry. A missing one is empty.
fn entry(bytes: &[u8]) -> Result<(&[u8], &[u8]), Error> {
    let (mut key, mut content) = (&[][..], &[][..]);
    let mut fields = Fields(bytes);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => key = value.bytes()?,
            2 => content = value.bytes()?,
            _ => {}
        }
    }
    Ok((key, content))
}

/// A text, with U+FFFD in place of what is not UTF-8.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
