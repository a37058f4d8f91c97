//! Waiting for the watch: a list or an answer may show a Node before the watch has come to it, and what the watch is still to
//! tell may be the deletion of the one before it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use label_storage::ResourceVersion;

use crate::reconciler::Look;
use crate::record_key::RecordKey;

/// How often to look whether there is still something to wait for.
pub const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Nodes that were seen before the watch has come to them.
#[derive(Debug)]
pub struct WatchLag {
    waiting: HashMap<RecordKey, Waiting>,
    patience: Duration,
}

/// How far the watch had come, and since when it has not come further.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    heard: Option<ResourceVersion>,
    since: Instant,
}

impl WatchLag {
    /// Waits while the watch goes on, and for this long where it does not: it may be broken.
    pub fn new(patience: Duration) -> Self {
        Self { waiting: HashMap::new(), patience }
    }

    /// Whether to wait for the watch before anything is done with this Node.
    pub fn must_wait(&mut self, look: &Look<'_>) -> bool {
        if !look.is_ahead_of_the_watch() {
            self.forget(look.entry.key());
            return false;
        }
        let (now, heard) = (Instant::now(), look.heard);
        let waiting =
            self.waiting.entry(RecordKey::clone(look.entry.key())).or_insert(Waiting { heard, since: now });
        if heard > waiting.heard {
            *waiting = Waiting { heard, since: now };
        }
        now.duration_since(waiting.since) < self.patience
    }

    /// The next wait of this Node is another one.
    pub fn forget(&mut self, node: &RecordKey) {
        self.waiting.remove(node);
    }

    /// Forgets all but these.
    pub fn retain(&mut self, concerns: impl Fn(&RecordKey) -> bool) {
        self.waiting.retain(|node, _| concerns(node));
    }
}

#[cfg(test)]
mod tests {
    use label_storage::{Labels, Node};

    use super::*;
    use crate::cache::Cache;

    #[test]
    fn a_long_history_is_waited_for_as_long_as_the_watch_goes_on() {
        let node = Node::new("a".to_owned(), "u1".to_owned(), "100", Labels::new(), None).expect("a node");
        let mut cache = Cache::default();
        cache.see_node("a", node.summary());
        let entry = cache.get("a").expect("an entry");
        let look = |heard: u64| {
            let heard = Some(ResourceVersion(heard));
            Look { entry, view: None, is_event: false, is_unsure: false, heard }
        };
        let mut watch_lag = WatchLag::new(Duration::ZERO);
        assert!(!watch_lag.must_wait(&look(1)), "its patience is over at once");
        let mut watch_lag = WatchLag::new(Duration::from_secs(600));
        assert!(watch_lag.must_wait(&look(1)));
        let began = watch_lag.waiting["a"].since;
        assert!(watch_lag.must_wait(&look(1)));
        assert_eq!(watch_lag.waiting["a"].since, began, "the watch stands still");
        assert!(watch_lag.must_wait(&look(2)));
        assert!(watch_lag.waiting["a"].since > began, "the watch goes on");
        assert!(!watch_lag.must_wait(&look(100)) && watch_lag.waiting.is_empty(), "it has come to the node");
    }
}
