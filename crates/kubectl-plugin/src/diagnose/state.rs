//! The state of a node and its record, by the decision functions of the daemons.

use jiff::Timestamp;
use label_storage::node::Machine;
use label_storage::node_state::{NodeState, Skip};
use label_storage::restore;
use label_storage::rules::OtherMachine;
use label_storage::store::{self, Circumstances, Sighting, Stored};
use label_storage::summary::NodeSummary;
use label_storage::{Node, Record, Rules};
use label_storage_runtime::records::Found;
use serde::Serialize;
use strum::Display;

/// The state of a node and its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum State {
    UpToDate,
    /// The node is up to date, but some stored items were not restored to it.
    Withheld,
    /// The node waits for the restorer.
    Pending,
    /// The node has no record yet.
    New,
    /// The node has changed, and its record has not.
    Changed,
    /// Several nodes have the identity of the record.
    Contested,
    /// The node is on another machine, which the rules exclude.
    OtherMachine,
    /// The record can't be read.
    Unreadable,
    NoLabels,
    Ignored,
    NotSelected,
    NoIdentity,
    /// The node does not exist.
    Departed,
}

impl State {
    /// The state of a node, of its record, or of both.
    pub(crate) fn of(node: Option<&Subject>, found: Option<&Found>, now: Timestamp) -> Self {
        let stored = Found::stored(found);
        let Some(node) = node else {
            return if stored == Stored::Unreadable { Self::Unreadable } else { Self::Departed };
        };
        if node.is_contested {
            return Self::Contested;
        }
        let is_other = |record: &Record| {
            node.machine.as_ref().is_some_and(|machine| machine.differs_from(&record.more.machine))
        };
        let summary = stored.map(Record::summary);
        // The restorer's decision comes first: while it has something to restore, the storer waits.
        match restore::decide(&node.summary, summary) {
            restore::Reason::Ignored => return Self::Ignored,
            restore::Reason::Returned if matches!(stored, Stored::Record(record) if is_other(record)) => {
                return Self::OtherMachine;
            }
            restore::Reason::Returned => return Self::Pending,
            _ => {}
        }
        let has_labels = matches!(summary, Stored::Record(record) if record.labels == node.summary.labels);
        let reason = store::decide(Sighting::Live(node.summary), summary, Circumstances::at(now));
        let is_withheld = !summary.withheld_from(&node.summary).is_empty();
        match (reason.state(has_labels), reason) {
            (NodeState::Settled, _) if is_withheld => Self::Withheld,
            (NodeState::Due, store::Reason::FirstSeen) => Self::New,
            (NodeState::Due, _) => Self::Changed,
            (
                NodeState::Settled,
                store::Reason::NoLabels | store::Reason::EmptyForNow | store::Reason::EmptyForGood,
            ) => Self::NoLabels,
            (NodeState::Settled, _) => Self::UpToDate,
            (NodeState::Skipped(skip), _) => match skip {
                Skip::ViewOlderThanRecord => Self::Changed,
                Skip::AwaitingRestore => Self::Pending,
                Skip::RecordUnreadable => Self::Unreadable,
                Skip::Ignored => Self::Ignored,
                Skip::NotSelected => Self::NotSelected,
                Skip::NoIdentity => Self::NoIdentity,
                Skip::Contested => Self::Contested,
                Skip::OtherMachine => Self::OtherMachine,
            },
        }
    }
}

/// A node, as far as its state depends on it.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) summary: NodeSummary,
    /// `None` if the rules exclude no machine.
    pub(crate) machine: Option<Box<Machine>>,
    pub(crate) is_contested: bool,
}

impl Subject {
    /// A node as the storer sees it.
    pub(crate) fn new(node: &Node, rules: &Rules) -> Self {
        let excludes = rules.other_machine == OtherMachine::None;
        let machine = excludes.then(|| Box::new(node.extras.machine.clone()));
        Self { summary: node.summary(), machine, is_contested: false }
    }
}

#[cfg(test)]
mod tests {
    use label_storage::node::IGNORE;
    use label_storage::{Labels, ResourceVersion, Uid};

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

    fn on(machine: &str, mut node: Node) -> Node {
        node.extras.machine.system_uuid = Some(machine.to_owned());
        node
    }

    #[test]
    fn states_are_the_daemons_decisions() {
        let now = Timestamp::now();
        let gold = [("pool", "gold")];
        let record = Record::of(&on("m-1", node("u1", 5, &gold)), now);
        let mut config_map = Default::default();
        record.encode_into(&mut config_map).expect("a record");
        let found = Found::from(config_map.clone());
        let mut unreadable = found.clone();
        unreadable.config_map.metadata.annotations = None;
        unreadable.config_map.metadata.labels = None;
        let unreadable = Found::from(unreadable.config_map);
        let marked = |node: Node| Node { marker: Some(node.marker_for(&record, [])), ..node };
        let mut ignored = node("u2", 9, &[]);
        ignored.extras.annotations.insert(IGNORE.to_owned(), "true".to_owned());
        let mut unselected = node("u2", 9, &gold);
        unselected.extras.is_unselected = true;
        let mut nobody = node("u2", 9, &gold);
        nobody.extras.is_unidentified = true;
        let (none, some) = (None, Some(&found));
        let withholding = |node: Node| Node { marker: Some("u2/1/refused:tier".to_owned()), ..node };
        let with_withheld = withholding(node("u2", 9, &[]));
        let with_withheld = Record { labels: [("tier".to_owned(), "x".to_owned())].into(), ..record.clone() }
            .retaken(&with_withheld, now, &Rules::default());
        let mut withheld_config_map = Default::default();
        with_withheld.encode_into(&mut withheld_config_map).expect("a record");
        let found_withheld = Found::from(withheld_config_map);
        let some_withheld = Some(&found_withheld);
        let excluding = Rules { other_machine: OtherMachine::None, ..Rules::default() };
        for (node, found, state) in [
            (node("u1", 5, &gold), some, State::UpToDate),
            (node("u1", 9, &gold), some, State::UpToDate),
            (node("u1", 9, &[("pool", "silver")]), some, State::Changed),
            (node("u1", 4, &gold), some, State::Changed),
            (node("u2", 9, &[]), some, State::Pending),
            (node("u2", 9, &gold), some, State::Pending),
            (marked(node("u2", 9, &gold)), some, State::UpToDate),
            (marked(node("u2", 9, &[])), some, State::Changed),
            (withholding(node("u2", 9, &[])), some_withheld, State::Withheld),
            (withholding(node("u2", 9, &[("tier", "own")])), some_withheld, State::Changed),
            (node("u2", 9, &[]), some_withheld, State::UpToDate),
            (node("u2", 9, &gold), none, State::New),
            (node("u2", 9, &[]), none, State::NoLabels),
            (node("u2", 9, &gold), Some(&unreadable), State::Unreadable),
            (ignored.clone(), some, State::Ignored),
            (unselected, none, State::NotSelected),
            (nobody, none, State::NoIdentity),
        ] {
            let subject = Subject::new(&node, &Rules::default());
            assert_eq!(State::of(Some(&subject), found, now), state, "{node:?}");
            let contested = Subject { is_contested: true, ..subject };
            assert_eq!(State::of(Some(&contested), found, now), State::Contested);
            let excluded = Subject::new(&on("m-2", node.clone()), &excluding);
            let other = if state == State::Pending { State::OtherMachine } else { state };
            assert_eq!(State::of(Some(&excluded), found, now), other, "{node:?}");
        }
        let departed = Record { departed_at: Some(now), ..record };
        departed.encode_into(&mut config_map).expect("a record");
        let subject = Subject::new(&ignored, &Rules::default());
        assert_eq!(State::of(Some(&subject), Some(&Found::from(config_map)), now), State::Ignored);
        assert_eq!(State::of(None, some, now), State::Departed);
        assert_eq!(State::of(None, Some(&unreadable), now), State::Unreadable);
    }
}
