//! Incomplete lists.

use bytes::Buf;
use prost::encoding::{WireType, decode_varint, encode_key, encode_varint};
use serde_json::Value;

use super::{Format, MAGIC, Malformed};

/// Field numbers. In `runtime.Unknown`: the object itself. In a list: an item.
const RAW: u32 = 2;
const ITEMS: u32 = 2;

/// The same list without every third item.
pub(crate) fn without_a_third(format: Format, body: &[u8]) -> Result<Vec<u8>, Malformed> {
    match format {
        Format::Protobuf => protobuf(body),
        Format::Json => json(body),
    }
}

fn is_kept(number: usize) -> bool {
    number % 3 != 2
}

fn json(body: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut list: Value = serde_json::from_slice(body).map_err(|error| Malformed(error.to_string()))?;
    if let Some(items) = list.get_mut("items").and_then(Value::as_array_mut) {
        let mut numbers = 0..;
        items.retain(|_| numbers.next().is_some_and(is_kept));
    }
    Ok(list.to_string().into_bytes())
}

fn protobuf(body: &[u8]) -> Result<Vec<u8>, Malformed> {
    let content = body.strip_prefix(MAGIC).ok_or_else(|| Malformed("it is not protobuf".to_owned()))?;
    let mut edited = MAGIC.to_vec();
    for field in fields(content) {
        let field = field?;
        if field.number != RAW {
            edited.extend_from_slice(field.whole);
            continue;
        }
        let (mut list, mut numbers) = (Vec::with_capacity(field.content.len()), 0..);
        for field in fields(field.content) {
            let field = field?;
            if field.number != ITEMS || numbers.next().is_some_and(is_kept) {
                list.extend_from_slice(field.whole);
            }
        }
        encode_key(RAW, WireType::LengthDelimited, &mut edited);
        encode_varint(list.len() as u64, &mut edited);
        edited.extend_from_slice(&list);
    }
    Ok(edited)
}

/// A field of a message, not decoded.
struct Field<'a> {
    number: u32,
    /// With key and length.
    whole: &'a [u8],
    content: &'a [u8],
}

fn fields(mut message: &[u8]) -> impl Iterator<Item = Result<Field<'_>, Malformed>> {
    std::iter::from_fn(move || {
        (!message.is_empty()).then(|| {
            let field = first_field(message)?;
            message.advance(field.whole.len());
            Ok(field)
        })
    })
    // After an error the rest can't be read.
    .scan(false, |is_over, field| (!std::mem::replace(is_over, field.is_err())).then_some(field))
}

fn first_field(message: &[u8]) -> Result<Field<'_>, Malformed> {
    let malformed = |what: &str| Malformed(what.to_owned());
    let varint = |rest: &mut &[u8]| decode_varint(rest).map_err(|error| Malformed(error.to_string()));
    let mut rest = message;
    let key = varint(&mut rest)?;
    let number = u32::try_from(key >> 3).map_err(|_| malformed("an invalid field number"))?;
    let length = match key & 7 {
        0 => {
            let before = rest.len();
            varint(&mut rest)?;
            let length = before - rest.len();
            rest = &message[message.len() - before..];
            length
        }
        1 => 8,
        2 => usize::try_from(varint(&mut rest)?).map_err(|_| malformed("an invalid length"))?,
        5 => 4,
        _ => return Err(malformed("an invalid field type")),
    };
    let content = rest.get(..length).ok_or_else(|| malformed("a field that is longer than its message"))?;
    Ok(Field { number, whole: &message[..message.len() - rest.len() + length], content })
}

#[cfg(test)]
mod tests {
    use label_storage_wire as wire;
    use prost::Message;
    use serde_json::json;

    use super::*;
    use crate::edit::status::{TypeMeta, Unknown};

    /// A list as the API server writes it: metadata with a version, then the items.
    fn list(names: &[&str]) -> Vec<u8> {
        let text = |number: u8, text: &str| {
            [&[number << 3 | 2, u8::try_from(text.len()).expect("short")], text.as_bytes()].concat()
        };
        let nested = |number: u8, message: &[u8]| {
            [&[number << 3 | 2, u8::try_from(message.len()).expect("short")], message].concat()
        };
        let mut raw = nested(1, &text(2, "77"));
        for name in names {
            raw.extend(nested(2, &nested(1, &text(1, name))));
        }
        // A number, as a later version of Kubernetes may add.
        raw.extend([3 << 3, 0x85, 1]);
        let kind = TypeMeta {
            api_version: "meta.k8s.io/v1".to_owned(),
            kind: "PartialObjectMetadataList".to_owned(),
        };
        let unknown = Unknown::new(kind, raw);
        [&MAGIC[..], &unknown.encode_to_vec()].concat()
    }

    fn names(body: &[u8]) -> (Vec<String>, String) {
        let asked = wire::Asked { content: wire::Content::Metadata, annotations: &|_| false };
        let mut names = Vec::new();
        let each = |object: Result<wire::Object, _>| names.push(object.expect("an object").name);
        let listed = wire::read_list(&asked, body, each).expect("a list");
        (names, listed.resource_version)
    }

    #[test]
    fn a_third_is_missing_and_the_rest_is_a_right_list() {
        let whole = list(&["a", "b", "c", "d", "e", "f", "g"]);
        assert_eq!(names(&whole).0.len(), 7);
        let edited = without_a_third(Format::Protobuf, &whole).expect("it is well-formed");
        let expected = (["a", "b", "d", "e", "g"].map(str::to_owned).into(), "77".to_owned());
        assert_eq!(names(&edited), expected);
        let empty = list(&[]);
        assert_eq!(without_a_third(Format::Protobuf, &empty).expect("it is well-formed"), empty);

        let list =
            json!({"kind": "LeaseList", "metadata": {"resourceVersion": "77"}, "items": ["a", "b", "c"]});
        let edited = without_a_third(Format::Json, list.to_string().as_bytes()).expect("it is well-formed");
        let edited: Value = serde_json::from_slice(&edited).expect("JSON");
        let expected =
            json!({"kind": "LeaseList", "metadata": {"resourceVersion": "77"}, "items": ["a", "b"]});
        assert_eq!(edited, expected);
    }

    #[test]
    fn what_is_no_list_is_not_edited() {
        let whole = list(&["a", "b", "c"]);
        assert!(without_a_third(Format::Protobuf, &whole[..whole.len() - 20]).is_err());
        assert!(without_a_third(Format::Protobuf, b"{}").is_err());
        assert!(without_a_third(Format::Json, b"{").is_err());
    }
}
