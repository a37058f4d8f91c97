//! How far it is: a bar on a terminal, a line every so often elsewhere.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is written where there is no terminal.
const EVERY: Duration = Duration::from_secs(5);

pub(super) struct Progress {
    bar: Option<ProgressBar>,
    all: u64,
    done: u64,
    said_at: Instant,
}

impl Progress {
    pub(super) fn new(all: usize) -> Self {
        let all = all as u64;
        let bar = io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} {per_sec} {eta}");
            ProgressBar::new(all).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { bar, all, done: 0, said_at: Instant::now() }
    }

    /// One more.
    pub(super) fn step(&mut self) {
        self.done += 1;
        match &self.bar {
            Some(bar) => bar.inc(1),
            None if self.said_at.elapsed() >= EVERY => {
                eprintln!("{} of {} records", self.done, self.all);
                self.said_at = Instant::now();
            }
            None => (),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
