//! The rules that are in force: what the flags say, over what a file says, for as long as the file stays as it is.
//!
//! The file is looked at every few seconds, and compared by what is in it: a ConfigMap that is mounted as a volume is swapped by its
//! kubelet, with times and links that tell nothing. A file that can't be used changes nothing, so that a slip of the pen in a
//! running cluster is a line in the log, and not the end of all storers.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use label_storage::Rules;
use label_storage::rules::{Draft, Refused};
use tokio::sync::watch;

use crate::metrics::Metrics;
use crate::shutdown::Shutdown;

/// How often the file is looked at.
const INTERVAL: Duration = Duration::from_secs(5);

/// And how soon again when there is something new in it: whoever writes it may not be done.
const SETTLING: Duration = Duration::from_millis(500);

/// No ConfigMap holds more.
const MAX_BYTES: u64 = 1 << 20;

/// The rules that are in force.
#[derive(Debug)]
pub struct Rulebook {
    rules: watch::Sender<Arc<Rules>>,
    file: Option<Follower>,
}

/// A file that can't be used. At the start there is nothing to fall back on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not there, or is none.
    #[error("can't read the rules in {}: {source}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is a mistake in it.
    #[error("{}: {why}", .file.display())]
    Refused {
        /// The file.
        file: PathBuf,
        /// Where, and which.
        why: Refused,
    },
}

#[derive(Debug)]
struct Follower {
    file: PathBuf,
    flags: Draft,
    seen: Mutex<Seen>,
}

/// What is known of the file.
#[derive(Debug, Default)]
struct Seen {
    /// What was in it when it was last used or refused.
    judged: Vec<u8>,
    is_refused: bool,
    /// What has been in it since, at the last look.
    fresh: Option<Vec<u8>>,
    /// Looks in a row that found no file.
    failures: u32,
}

/// What a look at the file has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looked {
    /// It is as it was.
    Same,
    /// There is something new in it, which counts if it is still there at the next look.
    Fresh,
    /// It was used.
    Accepted,
    /// It can't be used.
    Refused,
    /// It can't be read.
    Unreadable,
}

impl Rulebook {
    /// The rules of these flags, over those of a file if there is to be one.
    pub fn open(config: Option<PathBuf>, flags: Draft) -> Result<Self, Error> {
        let Some(file) = config else {
            return Ok(Self { rules: watch::Sender::new(Arc::new(flags.rules())), file: None });
        };
        let judged = match read(&file) {
            Ok(bytes) => bytes,
            Err(source) => return Err(Error::Unreadable { file, source }),
        };
        let draft = match parse(&judged) {
            Ok(draft) => draft,
            Err(why) => return Err(Error::Refused { file, why }),
        };
        let rules = Arc::new(draft.under(flags.clone()).rules());
        let seen = Mutex::new(Seen { judged, ..Seen::default() });
        Ok(Self { rules: watch::Sender::new(rules), file: Some(Follower { file, flags, seen }) })
    }

    /// The rules that are in force.
    pub fn current(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.borrow())
    }

    /// The same, and word of others.
    pub fn changes(&self) -> watch::Receiver<Arc<Rules>> {
        self.rules.subscribe()
    }

    /// Looks at the file from time to time, until the shutdown. Without a file there is nothing to do.
    pub async fn follow(&self, metrics: &Metrics, shutdown: &Shutdown) {
        if self.file.is_none() {
            return;
        }
        let mut pause = INTERVAL;
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => (),
                () = shutdown.requested() => return,
            }
            pause = if self.look(metrics) == Looked::Fresh { SETTLING } else { INTERVAL };
        }
    }

    /// Looks at the file once.
    pub(crate) fn look(&self, metrics: &Metrics) -> Looked {
        let Some(Follower { file, flags, seen }) = &self.file else { return Looked::Same };
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = match read(file) {
            Ok(bytes) => bytes,
            Err(error) => {
                seen.failures += 1;
                missing(file, &error, seen.failures, metrics);
                return Looked::Unreadable;
            }
        };
        if std::mem::take(&mut seen.failures) > 1 {
            tracing::info!(file = %file.display(), "the rules can be read again");
            metrics.rules_refused.set(seen.is_refused.into());
        }
        if bytes == seen.judged {
            seen.fresh = None;
            return Looked::Same;
        }
        if seen.fresh.as_ref() != Some(&bytes) {
            seen.fresh = Some(bytes);
            return Looked::Fresh;
        }
        let draft = if is_emptied(&seen.judged, &bytes) { Err(emptied()) } else { parse(&bytes) };
        *seen = Seen { judged: bytes, is_refused: draft.is_err(), fresh: None, failures: 0 };
        metrics.rules_refused.set(seen.is_refused.into());
        match draft {
            Ok(draft) => {
                metrics.rules_read("accepted");
                self.put_in_force(draft.under(flags.clone()).rules(), file);
                Looked::Accepted
            }
            Err(why) => {
                metrics.rules_read("refused");
                let error = Error::Refused { file: file.clone(), why };
                tracing::error!(%error, "the rules are refused, the last good ones stay in force");
                Looked::Refused
            }
        }
    }

    fn put_in_force(&self, rules: Rules, file: &Path) {
        let before = self.current();
        let file = file.display();
        if *before == rules {
            tracing::info!(%file, "the file has changed, the rules have not");
        } else {
            tracing::info!(%file, %before, after = %rules, "rules changed");
            self.rules.send_replace(Arc::new(rules));
        }
    }
}

/// A volume that is being swapped may have no file for a moment, which is nothing to worry about.
fn missing(file: &Path, error: &io::Error, failures: u32, metrics: &Metrics) {
    let file = file.display();
    match failures {
        1 => tracing::debug!(%file, %error, "can't read the rules for now"),
        2 => {
            metrics.rules_read("refused");
            metrics.rules_refused.set(1);
            tracing::warn!(%file, %error, "can't read the rules, the last good ones stay in force; no process would start like that");
        }
        _ => {}
    }
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // What is too large is not read to its end, but its size is seen.
    File::open(file)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether there is nothing in it any more: hardly anybody means that, and all rules would be others at once.
fn is_emptied(before: &[u8], now: &[u8]) -> bool {
    now.trim_ascii().is_empty() && !before.trim_ascii().is_empty()
}

fn emptied() -> Refused {
    let reason = "there is nothing in it any more: to go back to the defaults, write {}".to_owned();
    Refused { line: None, reason }
}

fn parse(bytes: &[u8]) -> Result<Draft, Refused> {
    if bytes.len() as u64 > MAX_BYTES {
        let reason = "there is more than 1 MiB in it: rules are a few lines".to_owned();
        return Err(Refused { line: None, reason });
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Draft::from_yaml(text),
        Err(error) => {
            let before = &bytes[..error.valid_up_to()];
            let line = before.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
            Err(Refused { line: Some(line), reason: "this is no text: write it in UTF-8".to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    /// A rulebook that follows a file, and all that can be seen of it.
    struct Desk {
        folder: TempDir,
        book: Rulebook,
        metrics: Metrics,
        changes: watch::Receiver<Arc<Rules>>,
    }

    impl Desk {
        fn new(text: &str, flags: &str) -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            std::fs::write(folder.path().join("rules"), text).expect("a file");
            let flags = Draft::from_yaml(flags).expect("flags");
            let book = Rulebook::open(Some(folder.path().join("rules")), flags).expect("good rules");
            let changes = book.changes();
            Self { folder, book, metrics: Metrics::default(), changes }
        }

        fn file(&self) -> PathBuf {
            self.folder.path().join("rules")
        }

        fn write(&self, text: impl AsRef<[u8]>) {
            std::fs::write(self.file(), text).expect("a file");
        }

        fn look(&self) -> Looked {
            self.book.look(&self.metrics)
        }

        /// Looks until there is no more to be seen.
        fn settle(&self) -> Looked {
            match self.look() {
                Looked::Fresh => self.look(),
                looked => looked,
            }
        }

        fn rules(&self) -> String {
            self.book.current().to_string()
        }

        /// Accepted, refused, and whether what is there is refused.
        fn counts(&self) -> (u64, u64, i64) {
            let count = |outcome| self.metrics.rules_reloads.get_or_create(&[("outcome", outcome)]).get();
            (count("accepted"), count("refused"), self.metrics.rules_refused.get())
        }
    }

    #[test]
    fn without_a_file_the_flags_are_the_rules() {
        let flags = Draft::from_yaml("retention: 7d").expect("flags");
        let book = Rulebook::open(None, flags).expect("no file, no mistake");
        assert_eq!(book.current().to_string(), "{retention: 7d}");
        assert_eq!(book.look(&Metrics::default()), Looked::Same);
    }

    #[test]
    fn a_file_that_can_not_be_used_is_no_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("rules");
        let error = |file: &Path| {
            Rulebook::open(Some(file.to_owned()), Draft::default()).expect_err("refused").to_string()
        };
        let name = file.display();
        assert!(error(&file).starts_with(&format!("can't read the rules in {name}: No such file")));
        assert!(error(folder.path()).contains("s a directory"));
        for (text, refused) in [
            (
                &b"cordon: true\nretention: soon\n"[..],
                "line 2: give a time of at least 1m, such as 30d, or forever",
            ),
            (b"cordon: true\n# caf\xe9\n", "line 2: this is no text: write it in UTF-8"),
            (&[b'#'; (1 << 20) + 1], "there is more than 1 MiB in it: rules are a few lines"),
        ] {
            std::fs::write(&file, text).expect("a file");
            assert_eq!(error(&file), format!("{name}: {refused}"));
        }
        std::fs::write(&file, [b'#'; 1 << 20]).expect("a file");
        assert!(Rulebook::open(Some(file), Draft::default()).is_ok());
    }

    #[test]
    fn a_file_that_was_emptied_does_not_end_all_rules() {
        let desk = Desk::new("retention: forever", "");
        for nothing in ["", "\n"] {
            desk.write(nothing);
            assert_eq!((desk.settle(), desk.rules()), (Looked::Refused, "{retention: forever}".to_owned()));
            desk.write("retention: forever");
            assert_eq!(desk.settle(), Looked::Accepted);
        }
        desk.write("{}");
        assert_eq!((desk.settle(), desk.rules()), (Looked::Accepted, "{}".to_owned()));
    }

    #[test]
    fn a_change_is_in_force_once_it_has_settled() {
        let mut desk = Desk::new("retention: 7d", "");
        assert_eq!(desk.look(), Looked::Same);
        desk.write("");
        assert_eq!(desk.look(), Looked::Fresh);
        // Whoever writes it had only just begun.
        desk.write("retention: 8d");
        assert_eq!(desk.look(), Looked::Fresh);
        assert_eq!(desk.rules(), "{retention: 7d}");
        assert_eq!(desk.look(), Looked::Accepted);
        assert_eq!(desk.rules(), "{retention: 8d}");
        assert!(desk.changes.has_changed().expect("open"));
        assert_eq!(desk.changes.borrow_and_update().to_string(), "{retention: 8d}");
        assert_eq!((desk.look(), desk.counts()), (Looked::Same, (1, 0, 0)));
        assert!(!desk.changes.has_changed().expect("open"));
    }

    #[test]
    fn flags_win_over_the_file_also_when_it_changes() {
        let desk = Desk::new("retention: 7d\nhistory: 1", "retention: forever");
        assert_eq!(desk.rules(), "{retention: forever, history: 1}");
        desk.write("retention: 8d\nhistory: 2");
        assert_eq!(
            (desk.settle(), desk.rules()),
            (Looked::Accepted, "{retention: forever, history: 2}".to_owned())
        );
    }

    #[test]
    fn what_is_refused_changes_nothing_and_is_said_once() {
        let mut desk = Desk::new("retention: 7d", "");
        desk.write("retention: soon");
        assert_eq!(desk.settle(), Looked::Refused);
        assert_eq!([desk.look(), desk.look()], [Looked::Same; 2]);
        assert_eq!((desk.rules(), desk.counts()), ("{retention: 7d}".to_owned(), (0, 1, 1)));
        desk.write("retention: later");
        assert_eq!((desk.settle(), desk.counts()), (Looked::Refused, (0, 2, 1)));
        // What was good is good again, and nobody need act upon it.
        desk.write("retention: 7d");
        assert_eq!((desk.settle(), desk.counts()), (Looked::Accepted, (1, 2, 0)));
        assert!(!desk.changes.has_changed().expect("open"));
        desk.changes.mark_unchanged();
        desk.write("retention: 9d");
        assert_eq!((desk.settle(), desk.rules()), (Looked::Accepted, "{retention: 9d}".to_owned()));
    }

    #[test]
    fn what_is_taken_back_before_it_counted_never_was() {
        let desk = Desk::new("retention: 7d", "");
        desk.write("retention: soon");
        assert_eq!(desk.look(), Looked::Fresh);
        desk.write("retention: 7d");
        assert_eq!(desk.look(), Looked::Same);
        desk.write("retention: soon");
        assert_eq!((desk.look(), desk.counts()), (Looked::Fresh, (0, 0, 0)));
    }

    #[test]
    fn a_file_that_is_gone_is_worth_a_word_if_it_stays_so() {
        let desk = Desk::new("retention: 7d", "");
        // Gone for a moment, as often as it likes.
        for _ in 0..3 {
            std::fs::remove_file(desk.file()).expect("a file");
            assert_eq!((desk.look(), desk.counts()), (Looked::Unreadable, (0, 0, 0)));
            desk.write("retention: 7d");
            assert_eq!((desk.look(), desk.counts()), (Looked::Same, (0, 0, 0)));
        }
        std::fs::remove_file(desk.file()).expect("a file");
        assert_eq!((desk.look(), desk.counts()), (Looked::Unreadable, (0, 0, 0)));
        for _ in 0..3 {
            assert_eq!((desk.look(), desk.counts()), (Looked::Unreadable, (0, 1, 1)));
        }
        desk.write("retention: 7d");
        assert_eq!((desk.look(), desk.counts()), (Looked::Same, (0, 1, 0)));
        assert_eq!(desk.rules(), "{retention: 7d}");
        // One that was refused is still refused when it is back.
        desk.write("retention: soon");
        assert_eq!(desk.settle(), Looked::Refused);
        std::fs::remove_file(desk.file()).expect("a file");
        assert_eq!([desk.look(), desk.look()], [Looked::Unreadable; 2]);
        desk.write("retention: soon");
        assert_eq!((desk.look(), desk.counts()), (Looked::Same, (0, 3, 1)));
    }

    /// As a kubelet does it: a folder for each state, and a link to the present one that is swapped.
    #[test]
    fn a_volume_that_is_swapped_is_a_file_that_has_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("..data");
        for (state, text) in [("one", "retention: 7d"), ("two", "retention: 8d")] {
            std::fs::create_dir(folder.path().join(state)).expect("a folder");
            std::fs::write(folder.path().join(state).join("rules.yaml"), text).expect("a file");
        }
        symlink("one", &link).expect("a link");
        symlink("..data/rules.yaml", folder.path().join("rules.yaml")).expect("a link");
        let book =
            Rulebook::open(Some(folder.path().join("rules.yaml")), Draft::default()).expect("good rules");
        let metrics = Metrics::default();
        assert_eq!(book.look(&metrics), Looked::Same);
        symlink("two", folder.path().join("..tmp")).expect("a link");
        std::fs::rename(folder.path().join("..tmp"), &link).expect("a link");
        assert_eq!([book.look(&metrics), book.look(&metrics)], [Looked::Fresh, Looked::Accepted]);
        assert_eq!(book.current().to_string(), "{retention: 8d}");
    }

    #[tokio::test(start_paused = true)]
    async fn it_follows_its_file_until_the_shutdown() {
        let mut desk = Desk::new("retention: 7d", "");
        let (metrics, shutdown) = (Metrics::default(), Shutdown::default());
        desk.write("retention: 8d");
        let following = desk.book.follow(&metrics, &shutdown);
        let waiting = async {
            desk.changes.changed().await.expect("open");
            shutdown.request();
        };
        tokio::join!(following, waiting);
        assert_eq!(desk.rules(), "{retention: 8d}");
    }
}
