//! The progress of a long step: a bar on a terminal, or a plain line for each tenth if stderr is a file.

use indicatif::{ProgressBar, ProgressStyle};

/// Progress towards a known total, shown on stderr.
#[derive(Debug)]
pub struct Progress {
    what: String,
    total: u64,
    bar: ProgressBar,
    /// The tenth in the last plain line.
    told: u64,
}

impl Progress {
    /// Starts at 0 of `total`. `what` is the name of the step.
    pub fn new(what: impl Into<String>, total: u64) -> Self {
        let what = what.into();
        let bar = ProgressBar::new(total).with_message(what.clone());
        // The template is constant and valid. If not, the default style is used.
        if let Ok(style) =
            ProgressStyle::with_template("{elapsed:>4} {msg} [{bar:20}] {human_pos} of {human_len}")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        Self { what, total, bar, told: 0 }
    }

    /// Shows that `done` of the total are done.
    pub fn set(&mut self, done: u64) {
        let done = done.min(self.total);
        self.bar.set_position(done);
        // With nothing to do, there is no line.
        let tenth = (done * 10).checked_div(self.total).unwrap_or(0);
        if self.bar.is_hidden() && tenth > self.told {
            self.told = tenth;
            eprintln!("{}: {} % ({done} of {})", self.what, tenth * 10, self.total);
        }
    }

    /// Removes the bar, so that the next line takes its place.
    pub fn clear(self) {
        self.bar.finish_and_clear();
    }
}
