//! Nodes that keep pods away until they are restored, and for how long that may last.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use label_storage::summary::UidDigest;

/// After this long beyond its time a Node is forgotten. One that is still there is noted again, and its time begins anew.
const MEMORY: Duration = Duration::from_secs(3600);

/// Since when Nodes have been seen with the start-up taint, by name.
#[derive(Debug)]
pub(crate) struct Taints {
    /// For how long it may last; `None`: the taint is none of our business.
    bound: Option<Duration>,
    nodes: HashMap<String, Tainted>,
}

#[derive(Debug)]
struct Tainted {
    uid: UidDigest,
    since: Instant,
    /// It is gone, though that has not been seen yet.
    is_lifted: bool,
}

impl Taints {
    pub(crate) fn new(bound: Option<Duration>) -> Self {
        Self { bound, nodes: HashMap::new() }
    }

    /// Takes note of the incarnation of a Node that has the taint, or that it has not.
    pub(crate) fn note(&mut self, node: &str, uid: Option<UidDigest>) {
        match uid.filter(|_| self.bound.is_some()) {
            None => _ = self.nodes.remove(node),
            Some(uid) if self.nodes.get(node).is_some_and(|known| known.uid == uid) => (),
            Some(uid) => {
                let tainted = Tainted { uid, since: Instant::now(), is_lifted: false };
                self.nodes.insert(node.to_owned(), tainted);
            }
        }
    }

    /// For how long pods may still be kept away from a Node that has the taint; `None`: for as long as it likes.
    pub(crate) fn left(&self, node: &str, uid: UidDigest) -> Option<Duration> {
        let bound = self.bound?;
        match self.nodes.get(node).filter(|known| known.uid == uid) {
            None => Some(bound),
            Some(known) if known.is_lifted => None,
            Some(known) => Some(bound.saturating_sub(known.since.elapsed())),
        }
    }

    /// The taint was taken off.
    pub(crate) fn lifted(&mut self, node: &str, uid: UidDigest) {
        if let Some(known) = self.nodes.get_mut(node).filter(|known| known.uid == uid) {
            known.is_lifted = true;
        }
    }

    /// Forgets Nodes that nobody has heard of for long.
    pub(crate) fn forget_old(&mut self) {
        let longest = self.bound.unwrap_or_default() + MEMORY;
        self.nodes.retain(|_, known| known.since.elapsed() < longest);
    }
}

#[cfg(test)]
mod tests {
    use label_storage::Uid;

    use super::*;

    fn uid(text: &str) -> UidDigest {
        Uid::new(text).expect("a uid").digest()
    }

    #[test]
    fn the_time_of_an_incarnation_is_its_own() {
        let mut taints = Taints::new(Some(Duration::ZERO));
        taints.note("a", Some(uid("u1")));
        assert_eq!(taints.left("a", uid("u1")), Some(Duration::ZERO));
        taints.lifted("a", uid("u1"));
        assert_eq!(taints.left("a", uid("u1")), None, "what is lifted is not to be lifted again");
        taints.note("a", Some(uid("u1")));
        assert_eq!(taints.left("a", uid("u1")), None, "though it is still seen");
        taints.note("a", Some(uid("u2")));
        assert_eq!(taints.left("a", uid("u2")), Some(Duration::ZERO));
    }

    #[test]
    fn where_the_rule_is_off_it_lasts_for_ever() {
        let mut taints = Taints::new(None);
        taints.note("a", Some(uid("u1")));
        assert_eq!(taints.left("a", uid("u1")), None);
    }
}
