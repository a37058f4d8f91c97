//! Label keys as ConfigMap keys, and back.
//!
//! A ConfigMap key takes `[-._a-zA-Z0-9]`, at most 253 of them, and must not be `.`, `..` or begin with `..`. So `/`
//! becomes `-SLASH-`, and an ordinary key stays readable: `beta.kubernetes.io/os` is `beta.kubernetes.io-SLASH-os`.
//!
//! The encoding is a bijection. Whatever would collide or be refused is written as a token between two dashes:
//!
//! | in the label key | in the ConfigMap key |
//! |---|---|
//! | `/` | `-SLASH-` |
//! | `:`, which only the names of other items have ([`Item`](crate::item::Item)) | `-COLON-` |
//! | a dash that would begin a token | `-DASH-` |
//! | the first dot of `.` or `..x` | `-DOT-` |
//! | any other byte that a ConfigMap key can't hold | `-X2A-` (hexadecimal) |
//! | the empty key | `-EMPTY-` |
//! | a key whose spelling is over 253 characters | `-LONG-` and its SHA-256; the value is `key=value` |
//!
//! Read from left to right, a token is taken whole. A literal dash is escaped whenever a token's *word* follows it,
//! whatever comes after the word, so no literal text can be mistaken for a token. (Long keys can't be squeezed:
//! a label key has more information than 253 such characters hold.)

use sha2::{Digest, Sha256};

const MAX_KEY: usize = 253;
/// Longer than any name of an item. It bounds the work for a value with many `=`.
const MAX_TEXT: usize = 4096;
const LONG: &str = "-LONG-";
const EMPTY: &str = "-EMPTY-";
const WORDS: [&str; 6] = ["SLASH", "COLON", "DASH", "DOT", "EMPTY", "LONG"];

/// An entry of a ConfigMap that can't be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// [`encode`] never makes this key. If it were accepted, two entries could mean one label.
    #[error("the key is not one that Label Storage writes")]
    NotCanonical,
    /// The value of a long key lacks the key.
    #[error("the value does not hold the long key that belongs to this hash")]
    NotItsLongKey,
}

/// The ConfigMap key for a label key. Every string has its own.
pub fn encode(key: &str) -> String {
    let spelled = spell(key);
    if spelled.len() <= MAX_KEY { spelled } else { format!("{LONG}{}", hex_sha256(key)) }
}

/// A label as an entry of a ConfigMap's data.
pub fn encode_entry(key: &str, value: &str) -> (String, String) {
    let encoded = encode(key);
    let value = if encoded.starts_with(LONG) { format!("{key}={value}") } else { value.to_owned() };
    (encoded, value)
}

/// Reverses [`encode_entry`]. It does not check that the result is a valid label.
pub fn decode_entry(data_key: &str, data_value: &str) -> Result<(String, String), Error> {
    if data_key.starts_with(LONG) {
        // Key and value may both have a `=`. Only one split fits the hash.
        let mut parted =
            data_value.match_indices('=').map(|(at, _)| (&data_value[..at], &data_value[at + 1..]));
        let entry = parted.find(|(key, _)| key.len() <= MAX_TEXT && encode(key) == data_key);
        let (key, value) = entry.ok_or(Error::NotItsLongKey)?;
        return Ok((key.to_owned(), value.to_owned()));
    }
    let key = read(data_key).ok_or(Error::NotCanonical)?;
    if encode(&key) == data_key { Ok((key, data_value.to_owned())) } else { Err(Error::NotCanonical) }
}

fn spell(key: &str) -> String {
    if key.is_empty() {
        return EMPTY.to_owned();
    }
    let mut spelled = String::with_capacity(key.len() + 6);
    for (at, c) in key.char_indices() {
        let after = &key[at + c.len_utf8()..];
        match c {
            '/' => spelled.push_str("-SLASH-"),
            ':' => spelled.push_str("-COLON-"),
            '-' if begins_with_a_word(after) => spelled.push_str("-DASH-"),
            '.' if at == 0 && (after.is_empty() || after.starts_with('.')) => spelled.push_str("-DOT-"),
            '-' | '.' | '_' => spelled.push(c),
            c if c.is_ascii_alphanumeric() => spelled.push(c),
            c => {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    spelled.push_str(&format!("-X{byte:02X}-"));
                }
            }
        }
    }
    spelled
}

fn read(spelled: &str) -> Option<String> {
    if spelled == EMPTY {
        return Some(String::new());
    }
    let mut key = Vec::with_capacity(spelled.len());
    let mut rest = spelled;
    while let Some(&first) = rest.as_bytes().first() {
        if let Some((byte, after)) = read_token(rest) {
            key.push(byte);
            rest = after;
        } else {
            key.push(first);
            rest = rest.get(1..)?;
        }
    }
    String::from_utf8(key).ok()
}

fn read_token(text: &str) -> Option<(u8, &str)> {
    let (word, after) = text.strip_prefix('-')?.split_once('-')?;
    let byte = match word {
        "SLASH" => b'/',
        "COLON" => b':',
        "DASH" => b'-',
        "DOT" => b'.',
        _ => u8::from_str_radix(hex_digits(word)?, 16).ok()?,
    };
    Some((byte, after))
}

fn begins_with_a_word(text: &str) -> bool {
    WORDS.iter().any(|word| text.starts_with(word))
        || text.get(..3).is_some_and(|word| hex_digits(word).is_some())
}

fn hex_digits(word: &str) -> Option<&str> {
    let digits = word.strip_prefix('X')?;
    let upper = |b: u8| b.is_ascii_digit() || (b'A'..=b'F').contains(&b);
    (digits.len() == 2 && digits.bytes().all(upper)).then_some(digits)
}

/// SHA-256 rather than a quick hash: whoever may label a node chooses the keys, and must not be able to make two collide.
pub(crate) fn hex_sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::label;

    fn is_config_map_key(key: &str) -> bool {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        (1..=253).contains(&key.len()) && key.bytes().all(legal) && key != "." && !key.starts_with("..")
    }

    fn round_trip(key: &str) {
        let (data_key, data_value) = encode_entry(key, "v");
        assert!(is_config_map_key(&data_key), "{key:?} became {data_key:?}");
        assert_eq!(decode_entry(&data_key, &data_value), Ok((key.to_owned(), "v".to_owned())));
    }

    #[test]
    fn ordinary_keys_stay_readable() {
        for (key, data_key) in [
            ("my_key", "my_key"),
            ("beta.kubernetes.io/os", "beta.kubernetes.io-SLASH-os"),
            ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io-SLASH-control-plane"),
            ("topology.kubernetes.io/zone", "topology.kubernetes.io-SLASH-zone"),
            ("a-b.c_d", "a-b.c_d"),
        ] {
            assert_eq!(encode(key), data_key);
            round_trip(key);
        }
    }

    #[test]
    fn what_would_collide_or_be_refused_is_escaped() {
        for (key, data_key) in [
            ("a-SLASH-b", "a-DASH-SLASH-b"),
            ("a-SLASH/b", "a-DASH-SLASH-SLASH-b"),
            ("a-DASH-b", "a-DASH-DASH-b"),
            ("x/SLASH-y", "x-SLASH-SLASH-y"),
            ("..a", "-DOT-.a"),
            (".", "-DOT-"),
            ("..", "-DOT-."),
            ("", "-EMPTY-"),
            ("-EMPTY-", "-DASH-EMPTY-"),
            ("a b", "a-X20-b"),
            ("a-X20-b", "a-DASH-X20-b"),
            ("ä", "-XC3--XA4-"),
        ] {
            assert_eq!(encode(key), data_key);
            round_trip(key);
        }
    }

    #[test]
    fn what_only_resembles_a_token_stays_as_it_is() {
        for key in ["a-Xyz", "a-XA-b", "a-X2-", "a-X2a-b", "a-XAG-", "a-X", "a-X2", "a-SLAS-b", "a-slash-b"] {
            assert_eq!(encode(key), key);
            round_trip(key);
        }
    }

    #[test]
    fn a_key_at_the_length_limits_survives() {
        let prefix = "p".repeat(253);
        for name_length in [1, 62, 63] {
            round_trip(&format!("{prefix}/{}", "n".repeat(name_length)));
        }
        // The last spelling that fits, and the first that doesn't.
        let fits = format!("{}/{}", "p".repeat(183), "n".repeat(63));
        assert_eq!(encode(&fits).len(), 253);
        round_trip(&fits);
        let over = format!("{}/{}", "p".repeat(184), "n".repeat(63));
        assert!(encode(&over).starts_with("-LONG-"));
        round_trip(&over);
    }

    #[test]
    fn what_encode_never_writes_is_refused() {
        for data_key in
            ["a-X61-b", "-DOT-a", "-DASH-x", "-EMPTY-x", "-x2F-/", "-XFF-", "a-DOT-", "-X2F-", "ä", ""]
        {
            assert_eq!(decode_entry(data_key, "v"), Err(Error::NotCanonical), "{data_key}");
        }
        let (long, value) = encode_entry(&format!("{}/n", "p".repeat(253)), "v");
        for (data_key, data_value) in [
            (long.as_str(), "v"),
            (long.as_str(), "short=v"),
            ("-LONG-", value.as_str()),
            ("-LONG-00", value.as_str()),
        ] {
            assert_eq!(decode_entry(data_key, data_value), Err(Error::NotItsLongKey), "{data_key}");
        }
    }

    /// Everything that tokens could be confused by, in every order: no two keys may share an encoding.
    #[test]
    fn no_two_keys_share_an_encoding() {
        const PIECES: [&str; 14] = [
            "-", "/", ".", "a", "SLASH", "DASH", "DOT", "EMPTY", "LONG", "X2F", "X2D", "-SLASH-", "-DASH-",
            "X",
        ];
        let mut keys = vec![String::new()];
        let mut last = keys.clone();
        for _ in 0..4 {
            last =
                last.iter().flat_map(|key| PIECES.iter().map(move |piece| format!("{key}{piece}"))).collect();
            keys.extend(last.iter().cloned());
        }
        let mut seen: HashMap<String, String> = HashMap::new();
        for key in keys {
            round_trip(&key);
            let earlier = seen.entry(encode(&key)).or_insert_with(|| key.clone());
            assert_eq!(*earlier, key);
        }
    }

    fn label_key() -> impl Strategy<Value = String> {
        let word = prop_oneof![
            3 => "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
            1 => "[a-z]{0,9}(-(SLASH|DASH|DOT|LONG|EMPTY|X2F|XC3)-?[a-zA-Z]{1,5}){1,5}",
        ];
        let part = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?";
        let prefix = proptest::collection::vec(part, 1..5).prop_map(|parts| {
            let mut prefix = parts.join(".");
            prefix.truncate(253);
            prefix.trim_end_matches(['.', '-']).to_owned()
        });
        (proptest::option::of(prefix), word).prop_map(|(prefix, mut name)| {
            name.truncate(63);
            let name = name.trim_matches(['.', '-', '_']).to_owned();
            prefix.map_or(name.clone(), |prefix| format!("{prefix}/{name}"))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn every_label_key_survives_the_round_trip(key in label_key().prop_filter("grammar", |key| label::is_key(key))) {
            round_trip(&key);
        }

        #[test]
        fn any_text_at_all_survives_the_round_trip(key in any::<String>()) {
            round_trip(&key);
        }

        #[test]
        fn different_label_keys_stay_different(a in label_key(), b in label_key(), cut in 0usize..330) {
            // Keys that share their beginning are where a careless shortening would collide.
            let sibling = a.get(..cut).map_or_else(|| format!("{a}x"), |head| format!("{head}{b}"));
            for other in [&b, &sibling] {
                prop_assert_eq!(a == *other, encode(&a) == encode(other));
            }
        }

        #[test]
        fn an_entry_that_decodes_is_the_one_that_encode_writes(data_key in "[-._a-zA-Z0-9]{1,40}", value in ".{0,20}") {
            if let Ok((key, decoded)) = decode_entry(&data_key, &value) {
                prop_assert_eq!(encode_entry(&key, &decoded), (data_key, value));
            }
        }
    }
}
