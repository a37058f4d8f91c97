//! Rules in one line, for the log.

use std::fmt;

use super::units::DisplayDuration;
use super::{Conflicts, Patterns, Rules, Selection};

impl fmt::Display for Rules {
    /// The differences from the defaults, as YAML that [`Rules::from_yaml`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Self::default();
        let nodes = [
            part("selector", quoted(&self.selector), quoted(&default.selector)),
            part("optIn", self.opt_in, default.opt_in),
        ];
        let identity = [
            part("by", quoted(&self.identity), quoted(&default.identity)),
            part("otherMachine", self.other_machine, default.other_machine),
        ];
        let at_most = self.startup_taint.unwrap_or(Self::STARTUP_TAINT);
        let startup_taint = [
            part("enabled", self.startup_taint.is_some(), false),
            part("atMost", DisplayDuration(at_most), DisplayDuration(Self::STARTUP_TAINT)),
        ];
        let all = braced([
            group("labels", selection(&self.labels, &default.labels)),
            group("annotations", selection(&self.annotations, &default.annotations)),
            group("taints", selection(&self.taints, &default.taints)),
            part("cordon", self.cordon, default.cordon),
            group("nodes", nodes),
            part("conflicts", conflicts(&self.conflicts), conflicts(&default.conflicts)),
            group("identity", identity),
            group("startupTaint", startup_taint),
            part("patience", DisplayDuration(self.patience), DisplayDuration(default.patience)),
            part("retention", DisplayDuration(self.retention), DisplayDuration(default.retention)),
            part("cleanupShare", self.cleanup_share, default.cleanup_share),
            part("history", self.history, default.history),
        ]);
        f.write_str(all.as_deref().unwrap_or("{}"))
    }
}

fn part<T: fmt::Display + PartialEq>(key: &str, its: T, default: T) -> Option<String> {
    (its != default).then(|| format!("{key}: {its}"))
}

/// `key: {...}`, unless there is nothing to put into the braces.
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

fn conflicts(its: &Conflicts) -> String {
    let conflicts = its.iter().map(|(names, winner)| format!("{{keys: {}, wins: {winner}}}", list(names)));
    format!("[{}]", conflicts.collect::<Vec<_>>().join(", "))
}

fn list(patterns: &Patterns) -> String {
    format!("[{}]", patterns.words().map(quoted).collect::<Vec<_>>().join(", "))
}

/// In quotes, where YAML needs them. No rule contains a quote itself.
fn quoted(text: impl fmt::Display) -> String {
    let text = text.to_string();
    let is_plain =
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/' | b'-' | b'_'));
    let is_word =
        is_plain && text.starts_with(|c: char| c.is_ascii_alphabetic()) && !text.eq_ignore_ascii_case("null");
    if is_word { text } else { format!("'{text}'") }
}
