//! Rules in one line, for the log: what differs from the defaults, as a file would say it.

use std::fmt;

use super::Rules;
use super::patterns::{Patterns, Selection};
use super::units::Written;

impl fmt::Display for Rules {
    /// The differences from the defaults, as YAML that [`Rules::from_yaml`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Self::default();
        let mut parts = Vec::new();
        let selections = [
            ("labels", &self.labels, &default.labels),
            ("annotations", &self.annotations, &default.annotations),
            ("taints", &self.taints, &default.taints),
        ];
        parts.extend(selections.map(|(key, its, default)| group(key, selection(its, default))));
        parts.push(part("cordon", self.cordon, default.cordon));
        parts.push(group(
            "nodes",
            [
                part("selector", quoted(&self.selector), quoted(&default.selector)),
                part("optIn", self.opt_in, default.opt_in),
            ],
        ));
        let conflicts = self.conflicts.iter();
        let conflicts = conflicts.map(|(names, winner)| format!("{{keys: {}, wins: {winner}}}", list(names)));
        let conflicts: Vec<_> = conflicts.collect();
        parts.push((!conflicts.is_empty()).then(|| format!("conflicts: [{}]", conflicts.join(", "))));
        parts.push(group(
            "identity",
            [
                part("by", quoted(&self.identity), quoted(&default.identity)),
                part("fence", self.fence, default.fence),
                part("trustLabels", self.trust, default.trust),
            ],
        ));
        let at_most = self.startup_taint.unwrap_or(Self::STARTUP_TAINT);
        parts.push(group(
            "startupTaint",
            [
                part("enabled", self.startup_taint.is_some(), false),
                part("atMost", Written(at_most), Written(Self::STARTUP_TAINT)),
            ],
        ));
        parts.push(part("retention", Written(self.retention), Written(default.retention)));
        parts.push(part("cleanupShare", self.cleanup_share, default.cleanup_share));
        parts.push(part("history", self.history, default.history));
        write!(f, "{}", braced(parts).as_deref().unwrap_or("{}"))
    }
}

/// What a key has, unless that is the default.
fn part<T: fmt::Display + PartialEq>(key: &str, its: T, default: T) -> Option<String> {
    (its != default).then(|| format!("{key}: {its}"))
}

/// What a key has below it, unless that is nothing.
fn group(key: &str, parts: impl IntoIterator<Item = Option<String>>) -> Option<String> {
    braced(parts).map(|parts| format!("{key}: {parts}"))
}

fn braced(parts: impl IntoIterator<Item = Option<String>>) -> Option<String> {
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("{{{}}}", parts.join(", ")))
}

fn selection(its: &Selection, default: &Selection) -> [Option<String>; 2] {
    [
        part("include", list(&its.include), list(&default.include)),
        part("exclude", list(&its.exclude), list(&default.exclude)),
    ]
}

fn list(patterns: &Patterns) -> String {
    format!("[{}]", patterns.words().map(quoted).collect::<Vec<_>>().join(", "))
}

/// In quotes, where YAML would take it for something else. No rule holds a quote itself.
fn quoted(text: impl fmt::Display) -> String {
    let text = text.to_string();
    let is_plain =
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/' | b'-' | b'_'));
    let is_word =
        is_plain && text.starts_with(|c: char| c.is_ascii_alphabetic()) && !text.eq_ignore_ascii_case("null");
    if is_word { text } else { format!("'{text}'") }
}
