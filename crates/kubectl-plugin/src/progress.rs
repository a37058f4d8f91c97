//! The progress of long work: a bar on a terminal, a line every few seconds elsewhere.

use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use label_storage_runtime::api_source::ApiSource;
use label_storage_wire::Object;

/// The time between two lines.
const INTERVAL: Duration = Duration::from_secs(5);

/// The time limit for a list. Each object is worked on while the list arrives.
pub(crate) const LIST_LIMIT: Duration = Duration::from_secs(600);

/// The templates of a bar with and without a known end.
const TEMPLATES: [&str; 2] =
    ["{msg} {bar:40} {human_pos}/{human_len} {per_sec} {eta}", "{msg} {spinner} {human_pos} {per_sec}"];

pub(crate) struct Progress {
    /// As in "written".
    done: &'static str,
    /// As in "records".
    things: &'static str,
    bar: Option<ProgressBar>,
    total: Option<u64>,
    count: u64,
    printed_at: Instant,
}

impl Progress {
    pub(crate) fn new(done: &'static str, things: &'static str, total: Option<u64>) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
            let style = ProgressStyle::with_template(TEMPLATES[usize::from(total.is_none())]);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())).with_message(done)
        });
        Self { done, things, bar, total, count: 0, printed_at: Instant::now() }
    }

    /// Counts one more.
    pub(crate) fn step(&mut self) {
        self.count += 1;
        match &self.bar {
            Some(bar) => bar.inc(1),
            None if self.printed_at.elapsed() >= INTERVAL => {
                eprintln!("{}", self.line());
                self.printed_at = Instant::now();
            }
            None => (),
        }
    }

    fn line(&self) -> String {
        let Self { done, things, count, .. } = self;
        match self.total {
            Some(total) => format!("{done}: {count} of {total} {things}"),
            None => format!("{done}: {count} {things}"),
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

/// Reads a list and shows the progress. `add` puts each object into the state as it arrives, up to the first error.
pub(crate) async fn list<T: Send + 'static>(
    source: ApiSource,
    things: &'static str,
    state: T,
    mut add: impl FnMut(&mut T, Object) -> Result<()> + Send + 'static,
) -> Result<T> {
    let state = Arc::new(Mutex::new((state, Ok(()))));
    let shared = Arc::clone(&state);
    let mut progress = Progress::new("read", things, None);
    let each = move |object| {
        progress.step();
        let (state, result) = &mut *shared.lock().unwrap_or_else(PoisonError::into_inner);
        if result.is_ok() {
            *result = add(state, object);
        }
    };
    source.allowing(LIST_LIMIT).list(each).await?;
    let state = Arc::into_inner(state).context("the list is still being read")?;
    let (state, result) = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    result.map(|()| state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_gives_the_count_and_every_bar_can_be_drawn() {
        let line = |total| {
            let mut progress = Progress::new("written", "records", total);
            progress.step();
            progress.line()
        };
        assert_eq!(line(Some(12)), "written: 1 of 12 records");
        assert_eq!(line(None), "written: 1 records");
        for template in TEMPLATES {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }
}
