//! Waits for the watch: a list or an answer may show a Node before the watch has come to it. The watch may still have to report the deletion
//! of the incarnation before.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::{RecordKey, ResourceVersion};

/// The pause before a key whose turn came too early is looked at again.
pub const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The keys whose Nodes were seen before the watch has come to them.
#[derive(Debug)]
pub struct WatchLag {
    /// The progress of the watch, and the time since which it has not changed.
    waiting: HashMap<RecordKey, (ResourceVersion, Instant)>,
    patience: Duration,
}

impl WatchLag {
    /// Waits while the watch goes on, and for `patience` while it does not: it may be broken.
    pub fn new(patience: Duration) -> Self {
        Self { waiting: HashMap::new(), patience }
    }

    /// True if a Node of this version has to wait until the watch has come to it. `heard`: the progress of the watch; `None` if there is no
    /// watch.
    pub fn must_wait(
        &mut self,
        key: &RecordKey,
        node: ResourceVersion,
        heard: Option<ResourceVersion>,
        now: Instant,
    ) -> bool {
        let Some(heard) = heard.filter(|heard| *heard < node) else {
            self.forget(key);
            return false;
        };
        let waiting = self.waiting.entry(key.clone()).or_insert((heard, now));
        if heard > waiting.0 {
            *waiting = (heard, now);
        }
        now.duration_since(waiting.1) < self.patience
    }

    /// The next wait for this key is another one.
    pub fn forget(&mut self, key: &str) {
        self.waiting.remove(key);
    }

    /// Drops all other keys.
    pub fn retain(&mut self, concerns: impl Fn(&str) -> bool) {
        self.waiting.retain(|key, _| concerns(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_history_is_waited_for_as_long_as_the_watch_goes_on() {
        let (key, start) = (RecordKey::from("a"), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut lag = WatchLag::new(Duration::from_secs(10));
        let mut waits =
            |heard, now| lag.must_wait(&key, ResourceVersion(100), Some(ResourceVersion(heard)), at(now));
        assert!(waits(1, 0) && waits(1, 9));
        assert!(!waits(1, 10), "the watch stands still");
        assert!(waits(2, 11) && waits(2, 20), "the watch goes on");
        assert!(!waits(2, 21));
        assert!(!waits(100, 22), "it has come to the node");
        assert!(waits(99, 30), "another wait");
        assert!(!lag.must_wait(&key, ResourceVersion(100), None, at(30)), "there is no watch");
        assert!(lag.waiting.is_empty());
    }
}
