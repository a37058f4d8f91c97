//! The syntax of labels. Whatever is read from a ConfigMap is checked before it is sent: one bad label would make the API
//! server refuse the whole patch.

use std::collections::BTreeMap;

/// The labels of one Node, sorted so that equal sets are written equally.
pub type Labels = BTreeMap<String, String>;

const MAX_PREFIX: usize = 253;
/// Of a name, and of a value.
const MAX_NAME: usize = 63;

/// True if the API server accepts this label key: an optional DNS prefix with a slash, and a name.
pub fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_prefix(prefix) && is_name(name),
        None => is_name(key),
    }
}

/// True if the API server accepts this annotation key: a label key whose prefix may have capital letters.
pub fn is_annotation_key(key: &str) -> bool {
    is_key(&key.to_ascii_lowercase())
}

/// True if the API server accepts this label value: empty, or like the name of a key.
pub fn is_value(value: &str) -> bool {
    value.is_empty() || is_name(value)
}

/// True if a text holds what was written. The API server, and whatever decodes its protobuf, puts U+FFFD in place of bytes that are
/// not UTF-8.
pub fn is_intact(text: &str) -> bool {
    !text.contains(char::REPLACEMENT_CHARACTER)
}

fn is_prefix(prefix: &str) -> bool {
    prefix.len() <= MAX_PREFIX
        && prefix.split('.').all(|part| {
            part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && starts_and_ends_alphanumeric(part)
        })
}

fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && starts_and_ends_alphanumeric(name)
}

fn starts_and_ends_alphanumeric(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_judged_as_the_api_server_does() {
        let longest =
            format!("{}/{}", ["a".repeat(63).as_str(); 4].join(".")[..253].to_owned(), "n".repeat(63));
        for good in ["a", "A_b.c-9", "example.com/pool", "a-SLASH-b", "x.y/1", longest.as_str()] {
            assert!(is_key(good), "{good}");
        }
        let too_long = "n".repeat(64);
        let long_prefix = format!("{}/n", "a".repeat(254));
        for bad in [
            "",
            "/",
            "a/",
            "/a",
            "a/b/c",
            "..a",
            "-a",
            "a-",
            "ä",
            "a b",
            "A.com/x",
            "a..b/x",
            "a.-b/x",
            &too_long,
            &long_prefix,
        ] {
            assert!(!is_key(bad), "{bad}");
        }
    }

    #[test]
    fn values_are_judged_as_the_api_server_does() {
        for good in ["", "gold", "A_b.c-9", &"v".repeat(63)] {
            assert!(is_value(good), "{good}");
        }
        for bad in [" ", "-", "a/b", "gold ", "ü", "a\n", &"v".repeat(64)] {
            assert!(!is_value(bad), "{bad}");
        }
    }
}
