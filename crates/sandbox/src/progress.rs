//! How far a long step is: a bar on a terminal, a plain line for each tenth where stderr goes to a file.

use indicatif::{ProgressBar, ProgressStyle};

/// Progress towards a known total, shown on stderr.
#[derive(Debug)]
pub struct Progress {
    what: String,
    total: u64,
    bar: ProgressBar,
    /// The tenth that the last plain line told of.
    told: u64,
}

impl Progress {
    /// Starts at 0 of `total`. `what` says which step this is.
    pub fn new(what: impl Into<String>, total: u64) -> Self {
        let what = what.into();
        let bar = ProgressBar::new(total).with_message(what.clone());
        // The template is a constant that indicatif knows; its default style would do as well.
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
        // Nothing to do is nothing to tell.
        let tenth = (done * 10).checked_div(self.total).unwrap_or(0);
        if self.bar.is_hidden() && tenth > self.told {
            self.told = tenth;
            eprintln!("{}: {} % ({done} of {})", self.what, tenth * 10, self.total);
        }
    }

    /// Takes the bar away, so that the next line takes its place.
    pub fn clear(self) {
        self.bar.finish_and_clear();
    }
}
