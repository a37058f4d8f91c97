//! How far long work is: a bar on a terminal, a line every so often elsewhere.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is written where there is no terminal.
const EVERY: Duration = Duration::from_secs(5);

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Things, such as "records".
    Of(&'static str),
    Bytes,
}

/// How far it is.
pub(crate) struct Progress {
    what: &'static str,
    unit: Unit,
    bar: Option<ProgressBar>,
    /// `None` where nobody knows.
    all: Option<u64>,
    done: u64,
    said_at: Instant,
}

impl Progress {
    /// Of so many, where that is known.
    pub(crate) fn new(what: &'static str, unit: Unit, all: Option<u64>) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = all.map_or_else(ProgressBar::no_length, ProgressBar::new);
            let style = ProgressStyle::with_template(template(unit, all.is_some()));
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())).with_message(what)
        });
        Self { what, unit, bar, all, done: 0, said_at: Instant::now() }
    }

    /// So many more.
    pub(crate) fn step(&mut self, more: u64) {
        self.done += more;
        match &self.bar {
            Some(bar) => bar.inc(more),
            None if self.said_at.elapsed() >= EVERY => {
                eprintln!("{}", self.told());
                self.said_at = Instant::now();
            }
            None => (),
        }
    }

    fn told(&self) -> String {
        let Self { what, done, .. } = self;
        match (self.unit, self.all) {
            (Unit::Of(things), Some(all)) => format!("{what}: {done} of {all} {things}"),
            (Unit::Of(things), None) => format!("{what}: {done} {things}"),
            (Unit::Bytes, all) => {
                let percent = done.saturating_mul(100).checked_div(all.unwrap_or_default()).unwrap_or(100);
                format!("{what}: {percent}%")
            }
        }
    }
}

fn template(unit: Unit, is_bounded: bool) -> &'static str {
    match (unit, is_bounded) {
        (Unit::Of(_), true) => "{msg} {bar:40} {human_pos}/{human_len} {per_sec} {eta}",
        (Unit::Of(_), false) => "{msg} {spinner} {human_pos} {per_sec}",
        (Unit::Bytes, _) => "{msg} {bar:40} {bytes}/{total_bytes} {eta}",
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is_and_every_bar_can_be_drawn() {
        let said = |unit, all| {
            let mut progress = Progress::new("written", unit, all);
            progress.step(3);
            progress.told()
        };
        assert_eq!(said(Unit::Of("records"), Some(12)), "written: 3 of 12 records");
        assert_eq!(said(Unit::Of("records"), None), "written: 3 records");
        assert_eq!(said(Unit::Bytes, Some(12)), "written: 25%");
        assert_eq!(said(Unit::Bytes, Some(0)), "written: 100%");
        for unit in [Unit::Of("records"), Unit::Bytes] {
            for is_bounded in [true, false] {
                assert!(ProgressStyle::with_template(template(unit, is_bounded)).is_ok());
            }
        }
    }
}
