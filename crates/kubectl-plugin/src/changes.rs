//! Two sets of what is kept, one against the other.

use console::style;
use label_storage::Labels;
use serde::Serialize;

use crate::output::plain;

/// Something that two sets have otherwise, or only one of them has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Difference {
    /// Its name.
    pub(crate) name: String,
    /// What it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<String>,
    /// What it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<String>,
}

impl Difference {
    /// As lines of a diff, for people: one line each, whatever stands in it.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let before = self.before.as_ref().map(|value| plain(&format!("-{}={value}", self.name)));
        let after = self.after.as_ref().map(|value| plain(&format!("+{}={value}", self.name)));
        before.into_iter().chain(after)
    }
}

/// All of them as lines of a diff.
pub(crate) fn diff_lines(differences: &[Difference]) -> Vec<String> {
    differences.iter().flat_map(Difference::lines).collect()
}

/// A line of a diff in its colour, where there are any.
pub(crate) fn painted(line: &str) -> String {
    match line.as_bytes().first() {
        Some(b'-') => style(line).red().to_string(),
        Some(b'+') => style(line).green().to_string(),
        _ => line.to_owned(),
    }
}

/// What is different, by name.
pub(crate) fn differences(before: &Labels, after: &Labels) -> Vec<Difference> {
    let mut names: Vec<_> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    let different = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    different
        .map(|name| Difference {
            name: name.clone(),
            before: before.get(name).cloned(),
            after: after.get(name).cloned(),
        })
        .collect()
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
