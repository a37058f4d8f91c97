//! The time limit of the start-up taint.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::summary::UidDigest;

/// A Node is dropped this long after its time limit. If it still has the taint, its time begins again.
const MEMORY: Duration = Duration::from_secs(3600);

/// The times at which Nodes were first seen with the start-up taint, by name.
#[derive(Debug)]
pub struct StartupTaints {
    /// The time limit; `None` if the rules do not use the taint.
    bound: Option<Duration>,
    nodes: HashMap<String, Tainted>,
}

#[derive(Debug)]
struct Tainted {
    uid: UidDigest,
    since: Instant,
    /// It was removed, but no watch has reported that yet.
    is_lifted: bool,
}

impl StartupTaints {
    /// Allows the start-up taint for this long.
    pub fn new(bound: Option<Duration>) -> Self {
        Self { bound, nodes: HashMap::new() }
    }

    /// Notes the incarnation of a Node that has the taint, or that it has none.
    pub fn note(&mut self, node: &str, uid: Option<UidDigest>, now: Instant) {
        match uid.filter(|_| self.bound.is_some()) {
            None => _ = self.nodes.remove(node),
            Some(uid) if self.nodes.get(node).is_some_and(|known| known.uid == uid) => (),
            Some(uid) => {
                self.nodes.insert(node.to_owned(), Tainted { uid, since: now, is_lifted: false });
            }
        }
    }

    /// The time for which a Node may still have the taint; `None` if there is no limit.
    pub fn left(&self, node: &str, uid: UidDigest, now: Instant) -> Option<Duration> {
        let bound = self.bound?;
        match self.nodes.get(node).filter(|known| known.uid == uid) {
            None => Some(bound),
            Some(known) if known.is_lifted => None,
            Some(known) => Some(bound.saturating_sub(now.duration_since(known.since))),
        }
    }

    /// The taint was removed.
    pub fn lifted(&mut self, node: &str, uid: UidDigest) {
        if let Some(known) = self.nodes.get_mut(node).filter(|known| known.uid == uid) {
            known.is_lifted = true;
        }
    }

    /// Drops Nodes that were not seen for long.
    pub fn forget_old(&mut self, now: Instant) {
        let longest = self.bound.unwrap_or_default() + MEMORY;
        self.nodes.retain(|_, known| now.duration_since(known.since) < longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Uid;

    fn uid(text: &str) -> UidDigest {
        Uid::new(text).expect("a uid").digest()
    }

    #[test]
    fn the_time_of_an_incarnation_is_its_own() {
        let (mut taints, now) = (StartupTaints::new(Some(Duration::ZERO)), Instant::now());
        taints.note("a", Some(uid("u1")), now);
        assert_eq!(taints.left("a", uid("u1"), now), Some(Duration::ZERO));
        taints.lifted("a", uid("u1"));
        assert_eq!(taints.left("a", uid("u1"), now), None, "what is lifted is not to be lifted again");
        taints.note("a", Some(uid("u1")), now);
        assert_eq!(taints.left("a", uid("u1"), now), None, "though it is still seen");
        taints.note("a", Some(uid("u2")), now);
        assert_eq!(taints.left("a", uid("u2"), now), Some(Duration::ZERO));
    }

    #[test]
    fn where_the_rule_is_off_it_lasts_for_ever() {
        let (mut taints, now) = (StartupTaints::new(None), Instant::now());
        taints.note("a", Some(uid("u1")), now);
        assert_eq!(taints.left("a", uid("u1"), now), None);
    }
}
