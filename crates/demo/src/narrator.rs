//! Prints lines on stdout with the elapsed time at the left, in colour if stdout is a terminal.

use std::fmt::Display;
use std::io::Write;
use std::time::Instant;

use console::style;

/// The width of the time at the left of a line.
const MARGIN: &str = "          ";

pub(crate) struct Narrator {
    start: Instant,
}

impl Narrator {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now() }
    }

    pub(crate) fn heading(&self, text: &str) {
        line(format_args!("\n{MARGIN}{}", style(text).bold().cyan()));
    }

    pub(crate) fn say(&self, text: impl Display) {
        line(format_args!("{} {text}", self.time()));
    }

    /// Prints the success of a part.
    pub(crate) fn succeed(&self, text: impl Display) {
        line(format_args!("{} {}", self.time(), style(text).bold().green()));
    }

    /// Prints several indented lines.
    pub(crate) fn block(&self, text: &str) {
        for text in text.lines() {
            line(format_args!("{MARGIN}  {}", style(text).yellow()));
        }
    }

    fn time(&self) -> impl Display {
        style(format!("{:>7.1} s", self.start.elapsed().as_secs_f64())).dim()
    }
}

/// Ignores a closed stdout, as in `demo | head`.
fn line(text: impl Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
