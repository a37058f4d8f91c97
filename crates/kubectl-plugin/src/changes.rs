//! The differences between two sets of items.

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

/// One line for each value, whatever it contains.
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
}
