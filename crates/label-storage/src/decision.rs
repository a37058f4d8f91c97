//! A decision about a key: when to reconcile it, and the state of its Node until then.

use std::time::Duration;

use crate::node_state::NodeState;

/// A decision of the storer or the restorer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// The reason in logs.
    pub reason: &'static str,
    /// When to reconcile the key.
    pub when: When,
    /// The state that gauges and `status` show.
    pub state: NodeState,
}

/// When to reconcile a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Not before something changes.
    Never,
    /// As soon as the work queue allows.
    Now(Urgency),
    /// After this time, if nothing changes until then.
    After(Duration, Urgency),
}

/// The more urgent keys go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Final labels would be lost.
    Urgent,
    /// The Node has changed just now.
    Soon,
    /// The Node has been due for a while.
    Routine,
    /// The Node is gone. People may wait until its record shows that.
    Departed,
    /// The write only makes the record tidier.
    Tidy,
}

impl Decision {
    /// There is nothing to do.
    pub const fn nothing(reason: &'static str) -> Self {
        Self { reason, when: When::Never, state: NodeState::Settled }
    }
}
