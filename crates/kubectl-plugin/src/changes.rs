//! The differences between two sets of items, and the preview of a change.

use std::collections::BTreeSet;

use console::style;
use label_storage::Labels;
use serde::Serialize;

use crate::output::plain;

/// An item whose values differ, or that only one of the sets has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Difference {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<String>,
}

/// One line for each value. Line breaks and control characters are escaped.
pub(crate) fn diff_lines(differences: &[Difference]) -> Vec<String> {
    let lines = differences.iter().flat_map(|Difference { name, before, after }| {
        let line = |sign: char, value: &String| plain(&format!("{sign}{name}={value}"));
        [before.as_ref().map(|value| line('-', value)), after.as_ref().map(|value| line('+', value))]
    });
    lines.flatten().collect()
}

/// A line of a diff in its colour.
pub(crate) fn painted(line: &str) -> String {
    match line.as_bytes().first() {
        Some(b'-') => style(line).red().to_string(),
        Some(b'+') => style(line).green().to_string(),
        _ => line.to_owned(),
    }
}

pub(crate) fn differences(before: &Labels, after: &Labels) -> Vec<Difference> {
    let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let all = names.into_iter().map(|name| {
        let [before, after] = [before, after].map(|labels| labels.get(name).cloned());
        Difference { name: name.clone(), before, after }
    });
    all.filter(|difference| difference.before != difference.after).collect()
}

/// Shown before a change is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Preview {
    text: String,
    notes: String,
}

impl Preview {
    pub(crate) fn new(heading: &str) -> Self {
        Self { text: plain(heading) + "\n", notes: String::new() }
    }

    pub(crate) fn changes(&mut self, name: &str, before: Option<&str>, after: Option<&str>) {
        if before != after {
            let [before, after] = [before, after].map(|value| value.map(str::to_owned));
            let lines = diff_lines(&[Difference { name: name.to_owned(), before, after }]);
            self.text.extend(lines.iter().map(|line| format!("  {}\n", painted(line))));
        }
    }

    /// Adds another effect of the change.
    pub(crate) fn also(&mut self, what: &str) {
        self.text += &format!("  * {}\n", plain(what));
    }

    pub(crate) fn note(&mut self, what: &str) {
        self.notes += &format!("  {} {}\n", style("!").yellow(), plain(what));
    }

    pub(crate) fn to_text(&self) -> String {
        format!("{}{}", self.text, self.notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_away_added_and_changed_is_told_by_name() {
        let labels = |pairs: &[(&str, &str)]| -> Labels {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let before = labels(&[("a", "1"), ("b", "1"), ("same", "x")]);
        let after = labels(&[("b", "2"), ("c", ""), ("same", "x")]);
        assert_eq!(diff_lines(&differences(&before, &after)), ["-a=1", "-b=1", "+b=2", "+c="]);
        assert_eq!(differences(&before, &before), []);
        let forged = differences(&labels(&[]), &labels(&[("annotation:a", "1\n+pool=gold")]));
        assert_eq!(diff_lines(&forged), [r"+annotation:a=1\n+pool=gold"], "one line");
    }

    #[test]
    fn every_difference_has_its_lines_and_notes_come_last() {
        console::set_colors_enabled(false);
        let mut preview = Preview::new("node x:");
        preview.note("mind this");
        preview.changes("a", Some("1"), Some("2"));
        preview.changes("b", Some("3"), None);
        preview.changes("c", None, Some("\n  ! \x1b[2J"));
        preview.changes("same", Some("4"), Some("4"));
        preview.also("and that");
        assert_eq!(
            preview.to_text(),
            "node x:\n  -a=1\n  +a=2\n  -b=3\n  +c=\\n  ! \\u{1b}[2J\n  * and that\n  ! mind this\n"
        );
    }
}
