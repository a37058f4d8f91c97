//! Labels that do not come to rest: somebody sets one, somebody else sets it back, and so on. Each change is stored as it should
//! be; but somebody should know, because one of the two loses.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use label_storage::Labels;
use xxhash_rust::xxh3::xxh3_64;

/// A change that is undone later than this is a change of mind.
const WINDOW: Duration = Duration::from_secs(3600);

/// So many changes are remembered, at least the latest half of them: the rest is forgotten, whatever happens.
const MOST: usize = 16_384;

/// How often to tell of it in the log.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Remembers the last change of each label.
#[derive(Debug, Default)]
pub(crate) struct Churn {
    young: HashMap<u64, Change>,
    old: HashMap<u64, Change>,
    told_at: Option<Instant>,
}

/// What a label was before, as a digest, and when that changed.
#[derive(Debug, Clone, Copy)]
struct Change {
    before: u64,
    at: Instant,
    /// Whether it undid the change before. Once may be a change of mind, or a label that was meant to be there for a while.
    is_back: bool,
}

impl Churn {
    /// Takes note of a change of a Node's labels. Returns how many of them go to and fro: this change undoes the last one, which
    /// undid the one before.
    pub(crate) fn note(&mut self, node: &str, before: &Labels, after: &Labels, now: Instant) -> u64 {
        let keys = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
        let mut flips = 0;
        for key in keys.filter(|key| before.get(*key) != after.get(*key)) {
            let label = xxh3_64(format!("{node} {key}").as_bytes());
            let last = self.young.remove(&label).or_else(|| self.old.remove(&label));
            let last = last.filter(|last| now.saturating_duration_since(last.at) <= WINDOW);
            let is_back = last.is_some_and(|last| last.before == digest(after.get(key)));
            self.young.insert(label, Change { before: digest(before.get(key)), at: now, is_back });
            if is_back && last.is_some_and(|last| last.is_back) {
                flips += 1;
                self.tell(node, key, now);
            }
            if self.young.len() >= MOST / 2 {
                self.old = std::mem::take(&mut self.young);
            }
        }
        flips
    }

    fn tell(&mut self, node: &str, key: &str, now: Instant) {
        if self.told_at.is_none_or(|at| now.saturating_duration_since(at) >= TELL_EVERY) {
            self.told_at = Some(now);
            tracing::warn!(node, key, "a label goes to and fro: does something else set it, too?");
        }
    }
}

fn digest(value: Option<&String>) -> u64 {
    value.map_or(0, |value| xxh3_64(value.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(value: &str) -> Labels {
        [("pool".to_owned(), value.to_owned())].into()
    }

    #[test]
    fn what_goes_to_and_fro_is_churn_and_what_is_undone_once_is_not() {
        let (mut churn, now) = (Churn::default(), Instant::now());
        let (gold, silver, none) = (labels("gold"), labels("silver"), Labels::new());
        assert_eq!(churn.note("a", &none, &gold, now), 0);
        assert_eq!(churn.note("a", &gold, &silver, now), 0);
        assert_eq!(churn.note("a", &silver, &gold, now), 0, "a change of mind");
        assert_eq!(churn.note("b", &gold, &silver, now), 0, "another node");
        assert_eq!(churn.note("a", &gold, &silver, now), 1);
        assert_eq!(churn.note("a", &silver, &gold, now), 1);
        assert_eq!(churn.note("a", &gold, &none, now), 0, "something else");
        assert_eq!(churn.note("a", &none, &gold, now), 0);
        assert_eq!(churn.note("a", &gold, &none, now), 1, "there, and not, and there, and not");
    }

    #[test]
    fn what_takes_its_time_is_none() {
        let (mut churn, now) = (Churn::default(), Instant::now());
        for (hours, (before, after)) in
            (0..).zip([("gold", "silver"), ("silver", "gold")].into_iter().cycle().take(9))
        {
            assert_eq!(churn.note("a", &labels(before), &labels(after), now + WINDOW * 2 * hours), 0);
        }
    }

    #[test]
    fn memory_is_bounded_and_the_latest_are_remembered() {
        let (mut churn, now) = (Churn::default(), Instant::now());
        for number in 0..MOST * 2 {
            churn.note(&number.to_string(), &labels("gold"), &labels("silver"), now);
            assert!(churn.young.len() + churn.old.len() <= MOST);
        }
        let last = (MOST * 2 - MOST / 4).to_string();
        assert_eq!(churn.note(&last, &labels("silver"), &labels("gold"), now), 0);
        assert_eq!(churn.note(&last, &labels("gold"), &labels("silver"), now), 1);
    }
}
