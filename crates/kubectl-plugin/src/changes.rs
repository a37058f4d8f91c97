//! What a change does, for a person to see before it is made.

use console::style;
use label_storage::Labels;

/// A heading, and under it what is added, changed and taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Changes {
    lines: Vec<String>,
    has_changes: bool,
}

impl Changes {
    /// None yet.
    pub(crate) fn of(heading: impl Into<String>) -> Self {
        Self { lines: vec![heading.into()], has_changes: false }
    }

    /// All that differs.
    pub(crate) fn between(heading: impl Into<String>, before: &Labels, after: &Labels) -> Self {
        let mut changes = Self::of(heading);
        for (name, value) in after {
            changes.set(name, before.get(name).map(String::as_str), value);
        }
        for (name, value) in before.iter().filter(|(name, _)| !after.contains_key(*name)) {
            changes.take(name, value);
        }
        changes
    }

    /// Something gets a value, in place of one that it had.
    pub(crate) fn set(&mut self, name: &str, before: Option<&str>, value: &str) {
        match before {
            Some(before) if before == value => return,
            Some(before) => {
                self.lines.push(format!("  {}", style(format!("~ {name}: {before} -> {value}")).yellow()));
            }
            None => self.lines.push(format!("  {}", style(format!("+ {name}={value}")).green())),
        }
        self.has_changes = true;
    }

    /// Something goes.
    pub(crate) fn take(&mut self, name: &str, value: &str) {
        self.lines.push(format!("  {}", style(format!("- {name}={value}")).red()));
        self.has_changes = true;
    }

    /// Something else happens.
    pub(crate) fn also(&mut self, what: impl AsRef<str>) {
        self.lines.push(format!("  * {}", what.as_ref()));
        self.has_changes = true;
    }

    /// Something that the person should know.
    pub(crate) fn note(&mut self, what: impl AsRef<str>) {
        self.lines.push(format!("  {} {}", style("!").yellow().bold(), what.as_ref()));
    }

    /// Whether nothing changes.
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_changes
    }

    /// All of it, as lines.
    pub(crate) fn to_text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_has_a_line() {
        console::set_colors_enabled(false);
        let labels = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<Labels>()
        };
        let (before, after) = (
            labels(&[("a", "1"), ("b", "2"), ("same", "3")]),
            labels(&[("b", "4"), ("c", "5"), ("same", "3")]),
        );
        let mut changes = Changes::between("node x", &before, &after);
        changes.note("mind this");
        assert_eq!(changes.to_text(), "node x\n  ~ b: 2 -> 4\n  + c=5\n  - a=1\n  ! mind this\n");
        assert!(!changes.is_empty());
        assert!(Changes::between("node x", &before, &before).is_empty());
    }
}
