//! What a change will do, for a person to see before it is made.

use console::style;
use label_storage::Labels;

use crate::changes::{Difference, differences, painted};
use crate::output::plain;

/// A heading, and under it what is added, changed and taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Preview {
    heading: String,
    differences: Vec<Difference>,
    effects: Vec<String>,
    notes: Vec<String>,
}

impl Preview {
    /// Nothing is changed yet.
    pub(crate) fn new(heading: impl Into<String>) -> Self {
        Self { heading: heading.into(), differences: Vec::new(), effects: Vec::new(), notes: Vec::new() }
    }

    /// All that differs.
    pub(crate) fn between(heading: impl Into<String>, before: &Labels, after: &Labels) -> Self {
        Self { differences: differences(before, after), ..Self::new(heading) }
    }

    /// Something gets another value, or one at all, or none any more.
    pub(crate) fn changes(&mut self, name: &str, before: Option<&str>, after: Option<&str>) {
        if before != after {
            let [before, after] = [before, after].map(|value| value.map(str::to_owned));
            self.differences.push(Difference { name: name.to_owned(), before, after });
        }
    }

    /// Something else happens.
    pub(crate) fn also(&mut self, what: impl Into<String>) {
        self.effects.push(what.into());
    }

    /// Something that the person should know.
    pub(crate) fn note(&mut self, what: impl Into<String>) {
        self.notes.push(what.into());
    }

    /// All of it, as lines.
    pub(crate) fn to_text(&self) -> String {
        let differences = self.differences.iter().flat_map(Difference::lines);
        let lines = differences.map(|line| format!("  {}", painted(&line)));
        let effects = self.effects.iter().map(|what| format!("  * {}", plain(what)));
        let notes = self.notes.iter().map(|what| format!("  {} {}", style("!").yellow(), plain(what)));
        let all = std::iter::once(plain(&self.heading)).chain(lines).chain(effects).chain(notes);
        all.map(|line| format!("{line}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_has_its_lines_and_notes_come_last() {
        console::set_colors_enabled(false);
        let labels = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<Labels>()
        };
        let mut preview = Preview::between("node x:", &labels(&[("a", "1")]), &labels(&[("a", "2")]));
        preview.note("mind this");
        preview.also("and that");
        preview.changes("b", Some("3"), None);
        preview.changes("c", None, Some("\n  ! \x1b[2J"));
        preview.changes("same", Some("4"), Some("4"));
        assert_eq!(
            preview.to_text(),
            "node x:\n  -a=1\n  +a=2\n  -b=3\n  +c=\\n  ! \\u{1b}[2J\n  * and that\n  ! mind this\n"
        );
    }
}
