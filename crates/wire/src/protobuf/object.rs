//! An object, from the bytes of it. By hand, since a derived message would first copy all the annotations that are
//! then thrown away.

use super::fields::Fields;
use crate::{Error, OURS, Object};

/// Reads a `PartialObjectMetadata` or a `ConfigMap`: the first is the second without `data`.
pub(super) fn read(bytes: &[u8]) -> Result<Object, Error> {
    let mut object = Object::default();
    let mut fields = Fields(bytes);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => read_meta(value.bytes()?, &mut object)?,
            2 => {
                let (key, value) = entry(value.bytes()?)?;
                object.data.insert(text(key)?, text(value)?);
            }
            3 => {
                let (key, value) = entry(value.bytes()?)?;
                object.binary_data.insert(text(key)?, value.to_vec());
            }
            _ => {}
        }
    }
    Ok(object)
}

fn read_meta(bytes: &[u8], object: &mut Object) -> Result<(), Error> {
    let mut fields = Fields(bytes);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => object.name = text(value.bytes()?)?,
            5 => object.uid = text(value.bytes()?)?,
            6 => object.resource_version = text(value.bytes()?)?,
            9 => {
                value.bytes()?;
                object.is_terminating = true;
            }
            11 => {
                let (key, value) = entry(value.bytes()?)?;
                object.labels.insert(text(key)?, text(value)?);
            }
            12 => {
                let (key, value) = entry(value.bytes()?)?;
                if key.starts_with(OURS.as_bytes()) {
                    object.annotations.insert(text(key)?, text(value)?);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Key and value of an entry of a map. One that is not there is empty.
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

fn text(bytes: &[u8]) -> Result<String, Error> {
    let text = std::str::from_utf8(bytes).map_err(|_| Error::malformed("a text that is not UTF-8"))?;
    Ok(text.to_owned())
}
