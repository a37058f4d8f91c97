//! Errors in a rules file, in words for its author.

use serde_saphyr::{DefaultMessageFormatter, Error, Location, MessageFormatter};

/// The longest reason: it goes into a log line.
const MAX_CHARS: usize = 500;

/// An error in a rules file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", .line.map(|line| format!("line {line}: ")).unwrap_or_default())]
pub struct Refused {
    /// The line of the error, counted from 1, if it is known.
    pub line: Option<u64>,
    /// Describes the error and its fix.
    pub reason: String,
}

impl Refused {
    pub(super) fn at(place: impl Into<Option<Location>>, reason: impl ToString) -> Self {
        let line = place.into().map(|place| place.line()).filter(|line| *line > 0);
        Self { line, reason: reason.to_string().chars().take(MAX_CHARS).collect() }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        let reason = match error.without_snippet() {
            Error::SerdeUnknownField { field, .. } if ["fence", "trustLabels"].contains(&field.as_str()) => {
                REPLACED.to_owned()
            }
            Error::SerdeUnknownField { field, expected, .. } => match nearest(field, expected) {
                Some(key) => format!("unknown key {field:?}: did you mean {key:?}?"),
                None => format!("unknown key {field:?}: write one of {}", expected.join(", ")),
            },
            Error::DuplicateMappingKey { key: Some(key), .. } => {
                format!("{key:?} is given twice: remove one of the two")
            }
            Error::SerdeMissingField { field, .. } => {
                format!("{field:?} is missing: a conflict needs keys and wins")
            }
            Error::MultipleDocuments { .. } => {
                "the file has a second document: put all rules into one, without ---".to_owned()
            }
            Error::InvalidScalar { ty: "boolean", .. } => "write true or false here".to_owned(),
            Error::NullIntoString { .. } => "the value is missing: write one, or remove the line".to_owned(),
            Error::Unexpected { expected: "mapping start", .. } => {
                "expected keys: write them with a colon, such as include: [pool]".to_owned()
            }
            Error::Unexpected { expected: "sequence start", .. } => {
                "expected a list: write [pool], or each value on a line with a dash".to_owned()
            }
            Error::Unexpected { expected: "string scalar" | "scalar", .. } => {
                "expected a single value, not a list or keys".to_owned()
            }
            Error::UnknownAnchor { .. } => STAR.to_owned(),
            Error::UnsupportedTag { .. } => MARK.to_owned(),
            other => match DefaultMessageFormatter.format_message(other) {
                message if message.contains("anchor or alias") => STAR.to_owned(),
                message if message.contains("scanning a tag") => MARK.to_owned(),
                message => format!("invalid YAML: {message}"),
            },
        };
        Self::at(error.location(), reason)
    }
}

const REPLACED: &str = "identity.fence and identity.trustLabels are now identity.otherMachine: \
     write none for fence: true, untrusted for trustLabels: same-machine, all for trustLabels: name";
const STAR: &str = "put a value that begins with * into quotes, such as '*.example.com/*'";
const MARK: &str = "put a value that begins with ! into quotes, such as '!example.com/gpu'";

/// The known key that is most like this one, if two typing mistakes or fewer explain it.
fn nearest<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    // Bounds the search.
    const LONGEST: usize = 40;
    let plain = |key: &str| key.replace(['-', '_'], "").to_lowercase();
    let wanted = plain(key);
    if wanted.len() > LONGEST {
        return None;
    }
    let distances = known.iter().map(|known| (distance(&wanted, &plain(known)), *known));
    let (distance, nearest) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= 2 && distance < nearest.len() / 2).then_some(nearest)
}

/// The Levenshtein distance: how many characters have to be added, removed or changed.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, a) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_the_one_that_was_meant() {
        let known = ["labels", "annotations", "taints", "cordon", "startupTaint", "by"];
        for (written, meant) in [
            ("lables", Some("labels")),
            ("label", Some("labels")),
            ("startup-taint", Some("startupTaint")),
            ("startup_taints", Some("startupTaint")),
            ("CORDON", Some("cordon")),
            ("bye", None),
            ("x", None),
            ("", None),
            ("nodes", None),
        ] {
            assert_eq!(nearest(written, &known), meant, "{written}");
        }
        assert_eq!(nearest(&"labels".repeat(100), &known), None);
    }

    #[test]
    fn a_key_of_more_than_forty_characters_is_nobodys_typing_mistake() {
        for (length, is_found) in [(39, true), (40, true), (41, false), (42, false)] {
            let key = "k".repeat(length);
            assert_eq!(nearest(&key, &[key.as_str()]).is_some(), is_found, "{length}");
        }
    }

    #[test]
    fn a_distance_counts_what_has_to_be_added_removed_or_changed() {
        for (one, other, expected) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("xxabc", "abc", 2),
            ("abcxx", "abc", 2),
            ("axbxc", "abc", 2),
            ("abc", "axbxc", 2),
            ("abc", "axc", 1),
            ("abc", "xyz", 3),
            ("ab", "ba", 2),
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
            ("äöü", "äou", 2),
        ] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
            assert_eq!(distance(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn a_reason_fits_into_a_log_line() {
        assert_eq!(Refused::at(None, "ä".repeat(10_000)).to_string().chars().count(), MAX_CHARS);
    }
}
