//! The preview of a change: a person sees it before it is made.

use console::style;

use crate::changes::{Difference, diff_lines, painted};
use crate::output::plain;

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

    /// Adds something that the person should know.
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
