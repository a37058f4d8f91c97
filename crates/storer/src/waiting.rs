//! Nodes that wait to be restored. The storer records nothing of them meanwhile, so somebody should know.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use label_storage::store::Reason;

/// A restorer needs seconds. Whoever has waited for this long may be waiting for one that isn't there.
const LONG: Duration = Duration::from_secs(60);

/// Since when nodes wait to be restored, and when that was last told.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    since: HashMap<String, Instant>,
    told: Option<Instant>,
}

impl Waiting {
    /// Takes note of what was decided about a node.
    pub(crate) fn note(&mut self, node: &str, reason: Reason) {
        if matches!(reason, Reason::AwaitingRestore | Reason::Returned) {
            self.since.entry(node.to_owned()).or_insert_with(Instant::now);
        } else {
            self.since.remove(node);
        }
    }

    /// Tells about those that have waited for long, once a minute, and forgets those that are of no concern any more.
    pub(crate) fn tell(&mut self, concerns: impl Fn(&str) -> bool) {
        self.since.retain(|node, _| concerns(node));
        let now = Instant::now();
        if let Some((nodes, example)) = self.overdue(now) {
            tracing::warn!(
                nodes,
                example,
                "nodes wait to be restored, and their labels are not stored meanwhile: is there a restorer for them?"
            );
            self.told = Some(now);
        }
    }

    fn overdue(&self, now: Instant) -> Option<(usize, String)> {
        if self.told.is_some_and(|told| now.duration_since(told) < LONG) {
            return None;
        }
        let mut overdue = self.since.iter().filter(|(_, since)| now.duration_since(**since) >= LONG);
        let (example, _) = overdue.next()?;
        Some((overdue.count() + 1, example.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_wait_for_long_are_told_of_once_in_a_while() {
        let mut waiting = Waiting::default();
        let now = Instant::now();
        for node in ["a", "b"] {
            waiting.note(node, Reason::AwaitingRestore);
        }
        waiting.note("c", Reason::UpToDate);
        assert_eq!(waiting.overdue(now), None);
        let later = now + LONG * 2;
        assert_eq!(waiting.overdue(later).map(|(nodes, _)| nodes), Some(2));
        waiting.told = Some(later);
        assert_eq!(waiting.overdue(later + LONG / 2), None);
        assert!(waiting.overdue(later + LONG).is_some());
        waiting.note("a", Reason::Restored);
        assert_eq!(waiting.overdue(later + LONG), Some((1, "b".to_owned())));
        waiting.tell(|_| false);
        assert_eq!(waiting.overdue(later + LONG * 9), None);
    }
}
