//! How a Node stands: what the daemons would say of it, by their own decision functions, in one word.

use jiff::Timestamp;
use label_storage::node_state::{NodeState, Skip};
use label_storage::restore;
use label_storage::store::{self, Circumstances, Sighting, Stored};
use label_storage::summary::{NodeSummary, RecordSummary};

/// How a living Node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Its record says what it says.
    UpToDate,
    /// It has nothing that would be stored.
    WithoutLabels,
    /// It should have a record, and has none.
    Unstored,
    /// It is right, and its record says something else.
    Differs,
    /// It is to be given its labels back.
    Pending,
    /// It would be, if it were not another machine, and the rules had no fence.
    OtherMachine,
    /// Its record can't be read.
    Unreadable,
    /// A person has taken it out of all this.
    Ignored,
    /// The rules have no record made of it.
    NotSelected,
    /// It does not have what its record would be filed under.
    NoIdentity,
}

/// What the daemons would say of a Node that is there. Whoever looks but once has seen nothing unchanged for any time. `is_fenced_off`: the
/// rules have a fence, and the Node is another machine than its record's.
pub(super) fn judge(
    node: NodeSummary,
    stored: Stored<RecordSummary>,
    is_fenced_off: bool,
    now: Timestamp,
) -> Standing {
    // The restorer's word comes first: while it has something to give back, the storer waits.
    if restore::decide(&node, stored) == restore::Reason::Returned {
        return if is_fenced_off { Standing::OtherMachine } else { Standing::Pending };
    }
    let has_labels = matches!(stored, Stored::Record(record) if record.labels == node.labels);
    let reason = store::decide(Sighting::Live(node), stored, Circumstances::at(now));
    match (reason.state(has_labels), reason) {
        (NodeState::Due, store::Reason::FirstSeen) => Standing::Unstored,
        (NodeState::Due, _) => Standing::Differs,
        (
            NodeState::Settled,
            store::Reason::NoLabels | store::Reason::EmptyForNow | store::Reason::EmptyForGood,
        ) => Standing::WithoutLabels,
        (NodeState::Settled, _) => Standing::UpToDate,
        (NodeState::Skipped(skip), _) => match skip {
            Skip::ViewOlderThanRecord => Standing::Differs,
            Skip::AwaitingRestore => Standing::Pending,
            Skip::RecordUnreadable => Standing::Unreadable,
            Skip::Ignored => Standing::Ignored,
            Skip::NotSelected => Standing::NotSelected,
            Skip::NoIdentity => Standing::NoIdentity,
            Skip::Contested | Skip::OtherMachine => Standing::OtherMachine,
        },
    }
}

#[cfg(test)]
mod tests {
    use label_storage::node::IGNORE;
    use label_storage::{Labels, Node, Record, ResourceVersion, Uid};

    use super::*;

    fn node(uid: &str, version: u64, labels: &[(&str, &str)]) -> Node {
        let labels: Labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Node {
            name: "a".to_owned(),
            uid: Uid::new(uid).expect("a uid"),
            version: ResourceVersion(version),
            labels,
            marker: None,
            extras: Default::default(),
        }
    }

    #[test]
    fn nodes_stand_as_the_daemons_would_say() {
        let now = Timestamp::now();
        let gold = [("pool", "gold")];
        let record = Record::of(&node("u1", 5, &gold), now);
        let marked = |node: Node| Node { marker: Some(node.marker_for(&record, [])), ..node };
        let mut ignored = node("u2", 9, &[]);
        ignored.extras.annotations.insert(IGNORE.to_owned(), "true".to_owned());
        let mut unselected = node("u2", 9, &gold);
        unselected.extras.is_unselected = true;
        let mut nobody = node("u2", 9, &gold);
        nobody.extras.is_unidentified = true;
        let (none, some) = (Stored::Nothing, Stored::Record(&record));
        for (node, stored, standing) in [
            (node("u1", 5, &gold), some, Standing::UpToDate),
            (node("u1", 9, &gold), some, Standing::UpToDate),
            (node("u1", 9, &[("pool", "silver")]), some, Standing::Differs),
            (node("u1", 4, &gold), some, Standing::Differs),
            (node("u2", 9, &[]), some, Standing::Pending),
            (node("u2", 9, &gold), some, Standing::Pending),
            (marked(node("u2", 9, &gold)), some, Standing::UpToDate),
            (marked(node("u2", 9, &[])), some, Standing::Differs),
            (node("u2", 9, &gold), none, Standing::Unstored),
            (node("u2", 9, &[]), none, Standing::WithoutLabels),
            (node("u2", 9, &gold), Stored::Unreadable, Standing::Unreadable),
            (ignored, some, Standing::Ignored),
            (unselected, none, Standing::NotSelected),
            (nobody, none, Standing::NoIdentity),
        ] {
            let summary = stored.map(Record::summary);
            assert_eq!(judge(node.summary(), summary, false, now), standing, "{node:?} {stored:?}");
            let fenced_off = if standing == Standing::Pending { Standing::OtherMachine } else { standing };
            assert_eq!(judge(node.summary(), summary, true, now), fenced_off, "{node:?} {stored:?}");
        }
    }
}
