//! The state of a Node, as a decision leaves it: the one meaning of a reason for logs, gauges, `status` and `explain`.

use strum::{IntoStaticStr, VariantArray};

use crate::{restore, store};

/// The state of a Node, for one daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    /// There is nothing to do, or only something that makes the record tidier.
    Settled,
    /// It has to be stored, or restored.
    Due,
    /// It is skipped for now.
    Skipped(Skip),
}

/// The reason why a Node is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Skip {
    /// Its record can't be read: a person has to fix it.
    RecordUnreadable,
    /// Its record has a later version than the Node. If that does not change, a person has to fix it.
    ViewOlderThanRecord,
    /// It has to be restored before it is stored.
    AwaitingRestore,
    /// It has the annotation `label-storage/ignore`.
    Ignored,
    /// The rules select other Nodes.
    NotSelected,
    /// It lacks the identity that its record would be filed under.
    NoIdentity,
    /// Several Nodes have its identity: a person has to fix it.
    #[strum(serialize = "identity-contested")]
    Contested,
    /// It is another machine than its record's, which by the rules gets nothing: a person has to decide.
    OtherMachine,
}

impl Skip {
    /// All of them.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The name in metrics. Users rely on it, so it does not change.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// True if the record may lack the Node's latest labels, or the Node its stored ones.
    pub const fn is_behind(self) -> bool {
        matches!(
            self,
            Self::RecordUnreadable | Self::ViewOlderThanRecord | Self::Contested | Self::OtherMachine
        )
    }
}

impl store::Reason {
    /// The state of the Node. `has_labels`: the record has the Node's labels, so that a write only makes it tidier.
    pub const fn state(self, has_labels: bool) -> NodeState {
        match self {
            Self::FirstSeen | Self::LabelsChanged | Self::FinalLabels | Self::LeftUnrestored => {
                NodeState::Due
            }
            Self::Restored if !has_labels => NodeState::Due,
            Self::AwaitingRestore | Self::Returned => NodeState::Skipped(Skip::AwaitingRestore),
            Self::RecordUnreadable => NodeState::Skipped(Skip::RecordUnreadable),
            Self::ViewOlderThanRecord => NodeState::Skipped(Skip::ViewOlderThanRecord),
            Self::Ignored => NodeState::Skipped(Skip::Ignored),
            Self::NotSelected => NodeState::Skipped(Skip::NotSelected),
            Self::NoIdentity => NodeState::Skipped(Skip::NoIdentity),
            Self::Restored
            | Self::NoLabels
            | Self::UpToDate
            | Self::NotGone
            | Self::EmptyForNow
            | Self::EmptyForGood
            | Self::Departed
            | Self::Away
            | Self::RetentionOver
            | Self::NothingStored
            | Self::OtherMachine
            | Self::OutcomeUnknown
            | Self::LabelLost => NodeState::Settled,
        }
    }
}

impl restore::Reason {
    /// The state of the Node.
    pub const fn state(self) -> NodeState {
        match self {
            Self::Returned | Self::ReturnedWhole | Self::NoRoom | Self::SeenInPart => NodeState::Due,
            Self::RecordUnreadable => NodeState::Skipped(Skip::RecordUnreadable),
            Self::Ignored => NodeState::Skipped(Skip::Ignored),
            Self::NoIdentity => NodeState::Skipped(Skip::NoIdentity),
            Self::OtherMachine => NodeState::Skipped(Skip::OtherMachine),
            Self::NothingStored | Self::SameIncarnation | Self::AlreadyRestored => NodeState::Settled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_node_is_due_only_if_its_record_lacks_its_labels() {
        assert_eq!(store::Reason::Restored.state(false), NodeState::Due);
        assert_eq!(store::Reason::Restored.state(true), NodeState::Settled);
        assert_eq!(store::Reason::LabelsChanged.state(false), NodeState::Due);
    }

    #[test]
    fn a_node_that_waits_for_the_restorer_is_skipped_by_the_storer_and_due_for_the_restorer() {
        assert_eq!(store::Reason::AwaitingRestore.state(false), NodeState::Skipped(Skip::AwaitingRestore));
        assert_eq!(restore::Reason::Returned.state(), NodeState::Due);
        assert_eq!(restore::Reason::AlreadyRestored.state(), NodeState::Settled);
    }

    #[test]
    fn words_are_as_documented() {
        let words = Skip::ALL.iter().map(|skip| skip.as_str()).collect::<Vec<_>>().join(" ");
        assert_eq!(
            words,
            "record-unreadable view-older-than-record awaiting-restore ignored not-selected no-identity \
             identity-contested other-machine"
        );
        let behind: Vec<_> =
            Skip::ALL.iter().filter(|skip| skip.is_behind()).map(|skip| skip.as_str()).collect();
        assert_eq!(
            behind,
            ["record-unreadable", "view-older-than-record", "identity-contested", "other-machine"]
        );
    }
}
