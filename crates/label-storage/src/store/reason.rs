//! The storer's reasons, in the words that users build upon.

use strum::IntoStaticStr;

/// Why the storer does what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Reason {
    /// The Node has labels and there is no record yet.
    FirstSeen,
    /// The Node has no labels and there is no record: none is needed.
    NoLabels,
    /// The record says what the Node says.
    UpToDate,
    /// The Node's labels differ from the record's, and the Node is right.
    LabelsChanged,
    /// The restorer has marked this incarnation: from here on the Node is right, and the record follows it.
    Restored,
    /// The record said that the Node is gone, and it is there.
    NotGone,
    /// A new incarnation that has not been restored: its labels are not the Node's word yet.
    AwaitingRestore,
    /// As [`AwaitingRestore`](Self::AwaitingRestore), and the record still said that the Node is gone.
    Returned,
    /// This view of the Node is older than the one that the record was made from.
    ViewOlderThanRecord,
    /// The ConfigMap can't be read: a person has to look.
    RecordUnreadable,
    /// The record has no labels left; it stays until no plan from before can be alive.
    EmptyForNow,
    /// The record has had no labels for long enough.
    EmptyForGood,
    /// The Node was deleted: these were its last labels.
    LastWords,
    /// The Node was deleted before it was restored: what it had goes over what the record has.
    LeftUnrestored,
    /// The Node is gone: from now on the retention counts.
    Departed,
    /// The Node is gone, and its record waits for it.
    Away,
    /// The Node has been gone for longer than the retention.
    RetentionOver,
    /// The Node is gone, and nothing is stored of it.
    NothingStored,
    /// A person has taken the Node out of all this. What was stored before that stays.
    Ignored,
    /// The rules have no record made of this Node.
    NotSelected,
    /// The Node does not have what its record would be filed under.
    NoIdentity,
    /// The Node was deleted, and was another machine than the one that the record is kept for.
    OtherMachine,
    /// An earlier write of the record may still arrive: this one, which changes nothing else, makes the API server refuse it.
    OutcomeUnknown,
}

impl Reason {
    /// True if a living Node's labels are written to a record that may be another incarnation's.
    pub const fn takes_over(self) -> bool {
        matches!(self, Self::FirstSeen | Self::LabelsChanged | Self::Restored)
    }

    /// A word for logs and metrics; part of what users build upon, so it stays.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
