//! Waits for the watch: a list or an answer may show a Node before the watch has come to it. The watch may still have to report the deletion
//! of the incarnation before.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::summary::{NodeSummary, UidDigest};
use crate::{RecordKey, ResourceVersion};

/// The pause before a key whose turn came too early is looked at again.
pub const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The keys whose Nodes were seen before the watch has come to them.
#[derive(Debug)]
pub struct WatchLag {
    waiting: HashMap<RecordKey, Wait>,
    patience: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    /// The incarnation, and the first version of it that was seen.
    uid: UidDigest,
    version: ResourceVersion,
    /// The progress of the watch, and the time since which it has not changed.
    heard: ResourceVersion,
    since: Instant,
}

impl WatchLag {
    /// Waits while the watch goes on, and for `patience` while it does not: it may be broken.
    pub fn new(patience: Duration) -> Self {
        Self { waiting: HashMap::new(), patience }
    }

    /// True if a Node has to wait until the watch has come to it: to the first version of this incarnation that was seen, because the Node
    /// may change faster than the watch goes on. `heard`: the progress of the watch; `None` if there is no watch.
    pub fn must_wait(
        &mut self,
        key: &RecordKey,
        node: NodeSummary,
        heard: Option<ResourceVersion>,
        now: Instant,
    ) -> bool {
        let NodeSummary { uid, version, .. } = node;
        let Some(heard) = heard.filter(|heard| *heard < version) else {
            self.forget(key);
            return false;
        };
        let first = Wait { uid, version, heard, since: now };
        let wait = self.waiting.entry(key.clone()).or_insert(first);
        if wait.uid != uid {
            *wait = first;
        }
        if heard > wait.heard {
            (wait.heard, wait.since) = (heard, now);
        }
        heard < wait.version && now.duration_since(wait.since) < self.patience
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
    use crate::fixtures::node;

    fn waits(lag: &mut WatchLag, uid: &str, version: u64, heard: u64, now: Instant) -> bool {
        let node = node("a").incarnation(uid).at(version).summary();
        lag.must_wait(&RecordKey::from("a"), node, Some(ResourceVersion(heard)), now)
    }

    #[test]
    fn a_long_history_is_waited_for_as_long_as_the_watch_goes_on() {
        let start = Instant::now();
        let mut lag = WatchLag::new(Duration::from_secs(10));
        let mut waits =
            |heard, now| super::tests::waits(&mut lag, "u1", 100, heard, start + Duration::from_secs(now));
        assert!(waits(1, 0) && waits(1, 9));
        assert!(!waits(1, 10), "the watch stands still");
        assert!(waits(2, 11) && waits(2, 20), "the watch goes on");
        assert!(!waits(2, 21));
        assert!(!waits(100, 22), "it has come to the node");
        assert!(waits(99, 30), "another wait");
        let node = node("a").at(100).summary();
        assert!(!lag.must_wait(&RecordKey::from("a"), node, None, start), "there is no watch");
        assert!(lag.waiting.is_empty());
    }

    #[test]
    fn a_node_that_changes_all_the_time_waits_for_its_first_version() {
        let (mut lag, now) = (WatchLag::new(Duration::from_secs(10)), Instant::now());
        assert!(waits(&mut lag, "u1", 100, 50, now) && waits(&mut lag, "u1", 200, 99, now));
        assert!(!waits(&mut lag, "u1", 200, 100, now) && !waits(&mut lag, "u1", 300, 101, now));
        assert!(waits(&mut lag, "u2", 400, 110, now), "another incarnation");
        assert!(!waits(&mut lag, "u2", 400, 400, now));
    }
}
